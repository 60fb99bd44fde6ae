"""The notations of predicates: SQL conditions and event patterns, read and written."""
