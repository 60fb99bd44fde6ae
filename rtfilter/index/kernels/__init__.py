"""Compiled kernels of the R*-tree: plain functions over the arrays of `layout.Tree`.

Data flows one way, from each of these to those below it:

- `array_types` and `layout` name the arrays; `jit` compiles, `borrow` and `vector` do what numba cannot;
- `geometry` measures boxes, `hash_tables` finds boxes and ids, `grid` draws the masks of a node;
- `select_point` reads the masks;
- `nodes` is the pool of nodes, `entries` what a node holds;
- `split`, `insert` and `delete` change a tree box by box, `pack` builds one at once;
- `runs` keeps what a search finds, `dealt` is a frontier cut into groups, and `descend` searches.

Nothing here knows of schemas, predicates or batches.
"""
