"""Workloads: reproducible, independent of how they are cut, and what they claim to be."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.other_boxes import HALF_WIDTH, centred, sided
from oracle import as_sets, matches
from rtfilter import EventFilter
from rtfilter.replay.workloads import BOXES, WORKLOADS, workload
from rtfilter.replay.workloads.base import BLOCK, blocks
from rtfilter.replay.workloads.random_boxes import (
    CLUSTERED_HALF_WIDTH,
    CLUSTERS,
    GEO_SIDE,
    NARROW_SIDE,
    PREDICATES,
    SHARES,
    SPARSE_TOP,
    SPREAD,
    TOP,
)

cuts = st.lists(st.integers(1, 2 * BLOCK + 5), min_size=1, max_size=4)


@pytest.mark.parametrize("name", BOXES)
@settings(max_examples=10)
@given(start=st.integers(0, 3 * BLOCK), sizes=cuts)
def test_rows_do_not_depend_on_how_the_sequence_is_cut(name, start, sizes):
    made = workload(name, seed=3, dimensions=2)
    low, high = made.subscriptions(0, start + sum(sizes))
    points = made.events(0, start + sum(sizes))
    for size in sizes:
        part = made.subscriptions(start, size)
        assert np.array_equal(part.low, low[start : start + size])
        assert np.array_equal(part.high, high[start : start + size])
        assert np.array_equal(made.events(start, size), points[start : start + size])
        start += size


@pytest.mark.parametrize("start", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_nothing_is_an_empty_array(start):
    made = workload("wide", dimensions=3)
    assert [part.shape for part in made.subscriptions(start, 0)] == [(0, 3), (0, 3)]
    assert made.events(start, 0).shape == (0, 3)


def test_seeds_streams_and_blocks_have_generators_of_their_own():
    def first(seed, stream, block):
        return blocks(lambda rng, rows: rng.random(), seed, stream, block * BLOCK, 1)[0][0]

    places = [(seed, stream, block) for seed in (0, 1) for stream in (0, 1) for block in (0, 1)]
    assert len({first(*place) for place in places}) == len(places)
    assert [first(*place) for place in places] == [first(*place) for place in places]


def test_a_workload_follows_its_seed():
    one, two = workload("wide", seed=1), workload("wide", seed=2)
    assert not np.array_equal(one.events(0, 9), two.events(0, 9))
    assert not np.array_equal(one.subscriptions(0, 9).low, two.subscriptions(0, 9).low)
    assert np.array_equal(one.events(0, 9), workload("wide", seed=1).events(0, 9))


def test_rows_stay_the_same_between_versions():
    """Kept results are comparable only if they are of the same rows."""
    made = {name: workload(name, seed=1) for name in BOXES}
    assert {
        name: (of.subscriptions(5000, 1).high[0, 0], of.events(5000, 1)[0, 0]) for name, of in made.items()
    } == {
        "wide": (59875.0, 30345.0),
        "narrow": (45708.0, 30345.0),
        "clustered": (38169.0, 27801.0),
        "dense": (65299.0, 30345.0),
        "sparse": (945.0, 543.0),
        "equal": (np.inf, 46.0),
        "nested": (89163.0, 26000.0),
        "geo": (0.7295321310546314, 0.2954690900734337),
    }


@pytest.mark.parametrize("name", ["wide", "narrow", "dense"])
def test_coordinates_are_integers_of_the_whole_domain(name):
    made = workload(name)
    low, high = made.subscriptions(0, 20_000)
    points = made.events(0, 20_000)
    assert low.shape == high.shape == points.shape == (20_000, 12)
    assert (low <= high).all()
    for values in (low, high, points):
        assert values.dtype == np.float64
        assert np.array_equal(values, np.round(values))
        assert values.min() >= 0
        assert values.max() <= TOP
    assert low.min() <= 5
    assert high.max() >= TOP - 5
    assert points.mean() == pytest.approx(TOP / 2, rel=0.01)


def test_a_wide_side_contains_a_point_with_probability_one_third():
    made = workload("wide")
    low, high = made.subscriptions(0, 20_000)
    inside = (low <= made.events(0, 20_000)) & (made.events(0, 20_000) <= high)
    assert inside.mean() == pytest.approx(1 / 3, abs=0.01)
    middle = ((low <= TOP / 2) & (high >= TOP / 2)).mean()  # a side contains v with probability 2 v (1 - v)
    assert middle == pytest.approx(1 / 2, abs=0.01)


def test_a_narrow_side_is_a_quarter_of_the_domain_less_what_is_clipped():
    low, high = workload("narrow").subscriptions(0, 20_000)
    clipped = (low == 0) | (high == TOP)
    assert np.unique((high - low + 1)[~clipped]).tolist() == [NARROW_SIDE]
    assert (high - low + 1).max() == NARROW_SIDE
    assert clipped.mean() == pytest.approx(1 / 4, abs=0.01)


def test_sided_boxes_are_narrow_ones_of_any_side():
    narrow, same = workload("narrow", seed=2), sided(2)
    assert np.array_equal(narrow.subscriptions(0, 99), same.subscriptions(0, 99))
    low, high = sided(1, 3, 0.5).subscriptions(0, 9000)
    assert (high - low + 1).max() == (TOP + 1) / 2


def test_a_centred_side_has_a_uniform_centre_and_half_width():
    low, high = centred(1, 3).subscriptions(0, 20_000)
    assert np.array_equal(low, np.round(low))
    assert (low.min(), high.max()) == (0, TOP)
    whole = (low > 0) & (high < TOP)
    half = ((high - low) / 2)[whole]
    assert half.max() <= HALF_WIDTH
    # A half-width h fits around a centre with probability 1 - 2 h: of those that fit, the mean is a third.
    assert half.mean() == pytest.approx(HALF_WIDTH / 3, rel=0.02)
    assert whole.mean() == pytest.approx(1 / 2, abs=0.01)
    assert ((low + high) / 2)[whole].mean() == pytest.approx(TOP / 2, rel=0.02)


def test_clustered_boxes_and_events_lie_around_the_same_places():
    made = workload("clustered", seed=4, dimensions=12)
    low, high = made.subscriptions(0, 3000)
    points = made.events(0, 3000)
    centres = np.where((low > 0) & (high < TOP), (low + high) / 2, np.nan)
    apart = np.nanmean(np.abs(points[:60, None] - centres[None]), axis=2)  # small within a cluster only
    near = apart < 2 * SPREAD
    assert near.mean() == pytest.approx(1 / CLUSTERS, rel=0.2)
    assert apart[near].mean() == pytest.approx(2 * SPREAD / np.pi**0.5, rel=0.2)  # of two normal draws
    assert 0 <= points.min() <= points.max() <= TOP
    assert (high - low).max() <= 2 * CLUSTERED_HALF_WIDTH
    other = workload("clustered", seed=5, dimensions=12).events(0, 500)
    assert (np.abs(points[:60, None] - other[None]).mean(axis=2) > 2 * SPREAD).mean() > 0.99


def test_a_dense_side_is_half_of_the_domain_or_more_wherever_it_fits():
    low, high = workload("dense").subscriptions(0, 20_000)
    share = (high - low + 1) / (TOP + 1)
    assert share.min() == pytest.approx(0.5, abs=0.001)
    assert share.max() == pytest.approx(0.95, abs=0.001)
    assert share.mean() == pytest.approx(0.725, abs=0.001)
    assert (low / (TOP + 1 - (high - low + 1))).mean() == pytest.approx(0.5, abs=0.01)


def test_a_sparse_subscription_constrains_few_popular_attributes():
    low, high = workload("sparse").subscriptions(0, 40_000)
    assert low.shape == (40_000, 24)
    constrained = np.isfinite(low)
    assert np.array_equal(constrained, np.isfinite(high))
    counts = np.bincount(constrained.sum(axis=1), minlength=6)
    assert counts[:2].tolist() == [0, 0]
    assert counts[2:] / 40_000 == pytest.approx([0.25] * 4, abs=0.01)
    popular = constrained.mean(axis=0)
    assert (np.diff(popular[:8]) < 0).all()
    # Without replacement: the first of k draws is attribute r with probability (1/r) / H(24).
    pairs = constrained[constrained.sum(axis=1) == 2]
    weight = 1 / np.arange(1, 25)
    weight /= weight.sum()
    second = sum(weight[r] * weight[0] / (1 - weight[r]) for r in range(1, 24))
    assert pairs[:, 0].mean() == pytest.approx(weight[0] + second, abs=0.02)
    sides = (high - low)[constrained]
    assert (sides == 0).mean() == pytest.approx(0.5, abs=0.01)
    assert sides[sides > 0].mean() == pytest.approx(SPARSE_TOP / 3, rel=0.02)
    values = low[constrained]
    assert (values.min(), high[constrained].max()) == (0, SPARSE_TOP)


def test_sparse_with_few_dimensions_constrains_them_all():
    low, _ = workload("sparse", dimensions=1).subscriptions(0, 9)
    assert np.isfinite(low).all()


def test_nested_has_the_result_sizes_of_the_benchmark():
    made = workload("nested")
    low, high = made.subscriptions(0, PREDICATES)
    points = made.events(0, 400)
    assert (low == -np.inf).all()
    assert np.array_equal(np.sort(high[:, 3]), 3 * 10_000 + 1000 - 1 + np.arange(PREDICATES))
    found = [int((point <= high).all(axis=1).sum()) for point in np.unique(points, axis=0)]
    right = [PREDICATES - 1 - int(np.floor(PREDICATES * (1 - share))) for share in SHARES]
    assert sorted(found) == sorted(right)
    assert np.array_equal(made.subscriptions(PREDICATES, 50), made.subscriptions(0, 50))
    assert not np.array_equal(high, workload("nested", seed=2).subscriptions(0, PREDICATES).high)


def test_geo_boxes_are_small_squares_within_the_unit_square():
    low, high = workload("geo").subscriptions(0, 20_000)
    points = workload("geo").events(0, 20_000)
    assert low.shape == points.shape == (20_000, 2)
    assert high - low == pytest.approx(GEO_SIDE)
    for values in (low, high, points):
        assert values.min() >= 0
        assert values.max() <= 1
        assert values.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("name", BOXES)
def test_a_filter_takes_schema_subscriptions_and_events(name):
    made = workload(name, dimensions=2)
    target = EventFilter(made.schema)
    made.subscribe(target, 0, 60)
    ids = made.subscribe(target, 60, 40)
    assert ids.tolist() == list(range(60, 100))
    low, high = made.subscriptions(0, 100)
    # Some at a corner of a box, because a geo event seldom meets one of so few.
    points = np.concatenate([made.events(7, 50), np.where(np.isfinite(low), low, high)[:9]])
    expected = matches(low, high, points)
    assert any(expected)
    assert as_sets(target.match_batch(points)) == expected


def test_unusable_requests_say_what_to_do():
    with pytest.raises(ValueError, match=f"unknown workload 'broad'; there are {', '.join(WORKLOADS)}"):
        workload("broad")
    with pytest.raises(ValueError, match="leave dimensions out"):
        workload("flights", dimensions=3)
    with pytest.raises(ValueError, match="at least one dimension"):
        workload("wide", dimensions=0)
    with pytest.raises(ValueError, match="must not be negative"):
        workload("wide").events(-1, 5)


@pytest.mark.slow
def test_importing_workloads_loads_none_of_the_optional_packages():
    code = "import sys, rtfilter.replay.workloads as w; w.workload('wide'); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"rtree", "pandas", "matplotlib", "pyarrow"} & set(run.stdout.split())
