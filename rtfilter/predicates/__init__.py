"""Predicates: what they mean, how they are written, and the boxes that they compile to."""
