"""Events: their attributes, how they are read, and where they lie as points."""
