"""Events: their attributes, readers for every form, and their encoding as points."""
