"""Predicates as sets: covering and intersection."""
