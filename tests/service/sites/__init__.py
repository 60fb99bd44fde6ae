"""Sites that are killed, held and cut off, and a checker that knows every event and every subscription."""
