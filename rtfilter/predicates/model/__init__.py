"""Constraints, conjunctions and disjunctions: the data of predicates, and their meaning."""
