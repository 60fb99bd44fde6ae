"""Many predicates, read and compiled together."""
