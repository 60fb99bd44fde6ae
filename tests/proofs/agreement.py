"""The R*-tree beside `rtree` (libspatialindex), on boxes that come and go."""

from collections import Counter

import numpy as np
from rtree.index import Index, Property

from oracle import as_sets, matches
from rtfilter import RStarTree


def run(seed: int) -> Counter[str]:
    """One pair of indexes, asked after each of some rounds of changes."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 7))
    capacity = [(4, 4), (4, 7), (10, 20), (70, 130), (512, 4096)][seed % 5]
    tree, peer = RStarTree(d, capacity), Index(properties=Property(dimension=d))
    held: dict[int, tuple] = {}
    counts: Counter[str] = Counter()
    for _ in range(6):
        count = int(rng.integers(1, 250))
        low = rng.integers(0, 40, (count, d)).astype(float)
        high = low + rng.integers(0, 20, (count, d))
        ids = np.arange(count) + max(held, default=-1) + 1
        (tree.insert_many if rng.random() < 0.5 else tree.extend)(ids, low, high)
        for id, a, b in zip(ids.tolist(), low, high, strict=True):
            peer.insert(id, (*a, *b))
            held[id] = a, b
        for id in rng.permutation(list(held))[: rng.integers(0, len(held))].tolist():
            assert tree.delete(id)
            a, b = held.pop(id)
            peer.delete(id, (*a, *b))
        if rng.random() < 0.2:
            tree.repack()
        tree.check()
        points = rng.integers(-1, 61, (20, d)).astype(float)
        sides = np.array(list(held.values())).reshape(len(held), 2, d)
        expected = matches(sides[:, 0], sides[:, 1], points, np.array(list(held), np.int64))
        assert as_sets(tree.search(points)) == expected, f"seed {seed}: brute force"
        assert [set(peer.intersection((*p, *p))) for p in points] == expected, f"seed {seed}: rtree"
        for level in range(tree.height):
            hits = tree.resume(tree.frontier(points, level))
            assert np.diff(hits.offsets).tolist() == list(map(len, expected)), f"seed {seed}: level {level}"
        counts["asked"] += len(points)
        counts["compared"] += len(points) * len(held)
    return counts
