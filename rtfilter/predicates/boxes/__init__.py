"""The boxes that predicates compile to, and their cost."""
