"""Predicates: their meaning, their notations, and the boxes that they compile to."""
