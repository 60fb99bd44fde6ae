"""Compiled kernels of the R*-tree: plain functions over the arrays of `layout.Tree`.

Imports go one way, each of these uses those above it:

- `jit` compiles, `borrow` hands arrays over, `pools` makes them, `array_types` and `layout` name them, and
  `vector` does what numba cannot;
- `geometry` measures boxes, `hash_tables` finds boxes and ids, `grid` draws the masks of a node;
- `select_point` and `select_box` read the masks;
- `nodes` is the pool of nodes, `entries` what a node holds;
- `split`, `insert`, `delete` and `dissolve` are the rules by which a tree changes box by box, `changes` the
  ways in, and `pack` builds one at once;
- `runs` keeps what a search finds, `dealt` is a frontier cut into groups, `expand` takes a search one level
  down, `leaves` ends it, and `descend` is the whole.

Nothing here knows of schemas, predicates or batches.
"""
