"""The R*-tree of boxes. It does not know schemas, predicates or batches."""
