"""Compiled kernels of the R*-tree: plain functions over the arrays of `layout.Tree`.

Imports go one way; each module uses those above it:

- `jit` compiles, `borrow` passes arrays, `pools` allocates them, `array_types` and `layout` name them, and
  `vector` has operations that numba lacks;
- `geometry` measures boxes, `hash_tables` finds boxes and ids, `grid` draws the masks of a node;
- `select_point` and `select_box` read the masks;
- `nodes` is the pool of nodes, and the entries of a node;
- `insert` and `changes` change a tree box by box, `pack` builds a whole tree;
- `runs` stores the results of a search, `frontiers` are searches that stopped at a level, and `descend` is
  the whole search.

No module here knows schemas, predicates or batches.
"""
