"""Compiled kernels of the R*-tree: plain functions over the arrays of `layout.Tree`.

Data flows one way: `layout` names the arrays, `tables` finds boxes and ids, `grid` is the inside of a node,
`rstar` changes the tree, `pack` builds it at once, `descend` searches it; `jit` compiles. Nothing here knows
of schemas, predicates or batches.
"""
