"""The R*-tree of boxes. Knows nothing of schemas, predicates or batches."""
