"""Compiled kernels of the R*-tree: plain functions over the arrays of `layout.Tree`.

Imports go one way; each module uses those above it:

- `jit` compiles, `borrow` passes arrays, `pools` allocates them, `array_types` and `layout` name them, and
  `vector` has operations that numba lacks;
- `geometry` measures boxes, `hash_tables` finds boxes and ids, `grid` draws the masks of a node;
- `select_point` and `select_box` read the masks;
- `nodes` is the pool of nodes, `entries` the entries of a node;
- `split`, `insert`, `delete` and `dissolve` change a tree box by box, `changes` has their entry points, and
  `pack` builds a whole tree;
- `runs` stores the results of a search, `dealt` is a frontier cut into groups, `expand` takes a search one
  level down, `leaves` ends it, and `descend` is the whole search.

No module here knows schemas, predicates or batches.
"""
