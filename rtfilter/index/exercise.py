"""Use of a small tree in every way, which loads or compiles all kernels of a tree."""

from __future__ import annotations

import numpy as np

from rtfilter.index import bulk
from rtfilter.index.tree import RStarTree


def exercise() -> None:
    """Change and search a small tree in every way."""
    low = np.random.default_rng(0).random((5000, 2))
    tree = RStarTree.bulk_load(low[:200], low[:200] + 0.1, capacity=(4, 8))
    tree.insert(200, low[0], low[0] + 0.5)
    tree.insert(200, low[1], low[1] + 0.5)  # an id with two boxes
    tree.insert_many(np.arange(201, 241), low[:40], low[:40] + 0.2)
    tree.replace(201, low[:2], low[:2] + 0.3)
    tree.delete(202)
    tree.delete_many(np.arange(0, 200, 2))
    for points in (low[:200], low[:1]):
        tree.any(points)
        frontier = tree.frontier(points, 1)
        tree.resume(frontier)
        tree.resume_part(frontier.split(np.arange(len(points)), np.array([0, len(points)])), 0)
    tree.search_boxes(low[:9], low[:9] + 0.2, "within")
    tree.boxes_of(201)
    tree.repack()
    large = RStarTree.bulk_load(low[:4096], low[:4096] + 0.1)
    large.insert(5000, low[4096], low[4096] + 0.1)  # hash tables grow, and are saved meanwhile
    RStarTree.from_arrays(large.to_arrays())
    boxes = np.stack([low, low + 0.1], axis=1)
    bulk.grouped(boxes, np.arange(len(boxes)), 100, threads=2)
