"""Mean response of bursts by plan."""
