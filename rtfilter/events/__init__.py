"""Events: their attributes, reading them in every form, and encoding them as points."""
