"""Thousands of boxes: ours, rtree and brute force give the same answers."""

import numpy as np
import pytest
from rtree.index import Index, Property

from oracle import as_sets, matches
from rtfilter import RStarTree
from rtfilter.replay.workloads import BOXES

COUNTS = dict.fromkeys(BOXES, 20_000) | dict.fromkeys(("clustered", "equal", "geo"), 100_000)
"""Of boxes: many where brute force and `rtree` are fast."""
SIZES = [("sparse", 5000), ("clustered", 5000)]
SIZES += [pytest.param(*one, marks=pytest.mark.long) for one in COUNTS.items()]
LIMIT = 1e9
"""Beyond all events: `rtree` crashes on infinite sides."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), SIZES)
def test_thousands_of_boxes(name, count):
    workload = BOXES[name](1)
    low, high = workload.subscriptions(0, count)
    # Half given events, half the centres of boxes, so that there is something to find.
    ends = np.clip(low, -LIMIT, LIMIT), np.clip(high, -LIMIT, LIMIT)
    points = np.concatenate([workload.events(0, 100), (ends[0][:100] + ends[1][:100]) / 2])
    expected = matches(low, high, points)
    assert all(i in expected[100 + i] for i in range(100))
    peer = Index((np.arange(len(low)), *ends), properties=Property(dimension=low.shape[1]))
    assert [set(peer.intersection(np.concatenate([point, point]))) for point in points] == expected
    packed = RStarTree.bulk_load(low, high)
    assert as_sets(packed.search(points)) == expected
    grown = RStarTree(low.shape[1])
    grown.insert_many(np.arange(count), low, high)
    assert as_sets(grown.search(points)) == expected
    for level in range(grown.height):
        hits = grown.resume(grown.frontier(points, level))
        assert np.diff(hits.offsets).tolist() == [len(ids) for ids in expected]
    # The paper's capacities, after half of the boxes have gone again.
    small = RStarTree.bulk_load(low, high, capacity=(10, 20))
    small.delete_many(np.arange(count // 2))
    small.check()
    assert as_sets(small.search(points)) == [{id for id in ids if id >= count // 2} for ids in expected]
