"""Predicates as they are kept in memory and in snapshots, by id."""
