"""Compile all kernels, where they are not yet: once, before many tests would each do it at once."""

import sys

import numpy as np

from rtfilter import EventFilter, RStarTree, Schema
from rtfilter.index.kernels.jit import compilation_announced


def compile_tree() -> None:
    """Change and search a small tree in every way."""
    rng = np.random.default_rng(0)
    low = rng.random((200, 2))
    tree = RStarTree.bulk_load(low, low + 0.1, capacity=(4, 8))
    tree.insert(200, low[0], low[0] + 0.5)
    tree.insert_many(np.arange(201, 241), low[:40], low[:40] + 0.2)
    tree.delete_many(np.arange(0, 240, 2))
    tree.repack()
    for points in (low, low[:1]):
        tree.any(points)
        frontier = tree.frontier(points, 1)
        tree.resume(frontier)
        tree.resume_part(frontier.split(np.arange(len(points)), np.array([0, len(points)])), 0)
    tree.search_boxes(low, low + 0.2, "within")


def compile_matchers() -> None:
    """Match with those that have kernels of their own."""
    for matcher in ("masks", "counting"):
        filter = EventFilter(Schema({"x": float, "s": str}), matcher=matcher)
        filter.subscribe_many(["x > 1 OR s LIKE 'long-prefix-%'", "x < 5", "x BETWEEN 1 AND 2"])
        list(filter.stream([{"x": 1.5}, {"s": "long-prefix-1"}]))


if __name__ == "__main__":
    with compilation_announced(lambda text: print(text, file=sys.stderr, flush=True)):
        compile_tree()
        compile_matchers()
