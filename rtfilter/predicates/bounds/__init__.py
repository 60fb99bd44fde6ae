"""Predicates given as closed bounds in arrays and tables."""
