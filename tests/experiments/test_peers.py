"""Every peer answers as brute force on all that it says it can do."""

import numpy as np
import pytest

from experiments import peers
from experiments.peers.peer import Finite, grouped
from experiments.peers.scans import brute_force, require_equal
from oracle import matches
from rtfilter.basics.extras import install
from rtfilter.replay.workloads import BOXES, Bounds, workload

WORKLOADS = {"boostree": {"geo"}, "shapely STRtree": {"geo"}, "mokaccino": set(BOXES) - {"geo"}}
"""What peers can be asked; those that are not here, all of them."""
DIMENSIONS = {
    "boostree": {2, 3, 4},
    "shapely STRtree": {2},
    **{name: {2, 3, 4, 5} for name in peers.PEERS if name.startswith("rtree ")},
}


@pytest.fixture(scope="module", params=BOXES)
def small(request):
    made = workload(request.param, seed=2)
    boxes = made.subscriptions(0, 300)
    # Also the corners of boxes: bounds are closed.
    corners = [np.where(np.isfinite(side), side, made.events(0, 300))[:5] for side in boxes]
    return request.param, boxes, np.concatenate([made.events(0, 30), *corners])


def answered(found):
    return [set(np.asarray(ids).tolist()) for ids in found]


def test_brute_force_is_the_oracle(small):
    _, boxes, points = small
    assert answered(brute_force(boxes, points)) == matches(*boxes, points)


@pytest.mark.parametrize(
    ("small", "name"),
    [
        pytest.param(made, name, marks=[] if (place + at) % 3 == 0 or name in WORKLOADS else pytest.mark.long)
        for place, made in enumerate(BOXES)
        for at, name in enumerate(peers.PEERS)
        if made in WORKLOADS.get(name, BOXES)
    ],
    indirect=["small"],
)
@pytest.mark.slow
def test_every_peer_answers_as_brute_force(small, name):
    _, boxes, points = small
    expected = matches(*boxes, points)
    for ask in peers.PEERS[name](boxes).ways.values():
        found = ask(points)
        assert sum(len(np.asarray(ids)) for ids in found) == sum(map(len, expected))
        assert answered(ask(points)) == expected
        assert answered(ask(points[3:4])) == expected[3:4]


@pytest.mark.parametrize("name", peers.PEERS)
def test_every_peer_can_do_what_it_should(name):
    peer = peers.PEERS[name]
    able = {made for made in BOXES if not peers.unable(peer, workload(made).subscriptions(0, 50))}
    assert able == WORKLOADS.get(name, set(BOXES))
    narrow = {d: workload("narrow", 1, d).subscriptions(0, 50) for d in range(1, 6)}
    able = {d for d, boxes in narrow.items() if not peers.unable(peer, boxes)}
    assert able == DIMENSIONS.get(name, set(narrow))


@pytest.mark.parametrize(
    ("name", "dimensions"),
    [
        pytest.param(name, d, marks=[] if d in (min(able), max(able)) else pytest.mark.long)
        for name in peers.PEERS
        for able in [DIMENSIONS.get(name, range(1, 6))]
        for d in able
    ],
)
@pytest.mark.slow
def test_few_dimensions(name, dimensions):
    made = workload("narrow", 1, dimensions)
    boxes, points = made.subscriptions(0, 200), made.events(0, 20)
    for ask in peers.PEERS[name](boxes).ways.values():
        assert answered(ask(points)) == matches(*boxes, points)


def test_a_missing_peer_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(peers.PEERS["DuckDB"], "package", "no_such_module")
    reason = peers.unable(peers.PEERS["DuckDB"], workload("wide").subscriptions(0, 5))
    assert reason == f"no_such_module is not installed: {install('peers')}"


def test_percolators_refuse_what_they_cannot_say():
    free = Bounds(np.array([[-np.inf]]), np.array([[np.inf]]))
    for name in ("perq", "mokaccino"):
        assert "needs a constraint" in peers.unable(peers.PEERS[name], free)


def test_finite_keeps_every_answer():
    rng = np.random.default_rng(1)
    low, high = np.sort(rng.integers(0, 9, (2, 300, 3)).astype(float), axis=0)
    low[rng.random(low.shape) < 0.4] = -np.inf
    high[rng.random(high.shape) < 0.4] = np.inf
    points = rng.integers(-50, 60, (200, 3)).astype(float)
    finite = Finite(Bounds(low, high))
    assert np.isfinite([finite(low), finite(high)]).all()
    assert matches(finite(low), finite(high), finite(points)) == matches(low, high, points)
    assert Finite(Bounds(low[:0], high[:0]))(points) is points


def test_finite_without_any_finite_end():
    low, high = np.full((2, 2), -np.inf), np.full((2, 2), np.inf)
    finite, points = Finite(Bounds(low, high)), np.array([[7.0, -3.0]])
    assert matches(finite(low), finite(high), finite(points)) == [{0, 1}]


def test_pairs_are_grouped_by_event():
    found = grouped(np.array([2, 0, 2]), np.array([5, 6, 4]), 4)
    assert [ids.tolist() for ids in found] == [[6], [], [5, 4], []]
    assert found.offsets.dtype == np.int64


@pytest.mark.parametrize(("answers", "event"), [([[1, 0], [3]], 1), ([[0], [2]], 0), ([[0, 1, 1], [2]], 0)])
def test_a_wrong_answer_is_an_error(answers, event):
    expected = [np.array([0, 1]), np.array([2])]
    require_equal("right", [[1, 0], [2]], expected)
    with pytest.raises(AssertionError, match=f"theirs: event {event} matches"):
        require_equal("theirs", answers, expected)
