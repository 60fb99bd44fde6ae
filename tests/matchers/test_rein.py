"""REIN and HEM: boxes are found by what excludes them, and every operation is counted."""

import numpy as np
import pytest
from box_cases import containing, crowded, drawn
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.matchers.papers.rein import EndsIndex, Sides


def split(found):
    return [sorted(own.tolist()) for own in np.split(found.rows, found.offsets[1:-1])]


def marks(low, high, points):
    """Ends beyond each point, counted one by one."""
    return [int((low > x).sum() + (high < x).sum()) for x in points]


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(1, 4), st.sampled_from([drawn, crowded]))
def test_marks_are_the_ends_beyond_the_values_and_the_rest_matches(seed, count, dimensions, draw):
    rng = np.random.default_rng(seed)
    low, high = draw(rng, count, dimensions)
    points = rng.integers(-1, 21, (7, dimensions)).astype(float)
    points[0], points[1] = -np.inf, np.inf
    index = EndsIndex(low, high)
    answer = index.search(points)
    assert split(answer) == containing(low, high, points)
    assert answer.work.tolist() == marks(low, high, points)
    assert (index.estimate(points) == answer.work + 1).all()


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 300),
    st.integers(1, 3),
    st.integers(1, 9),
    st.sampled_from([drawn, crowded]),
)
def test_sets_of_bits_lose_nothing_wherever_groups_are_cut(seed, count, dimensions, groups, draw):
    rng = np.random.default_rng(seed)
    low, high = draw(rng, count, dimensions)
    points = rng.integers(-1, 95, (9, dimensions)).astype(float)
    points[0], points[1] = -np.inf, np.inf
    index = EndsIndex(low, high, groups)
    answer = index.search(points)
    assert split(answer) == containing(low, high, points)
    assert (index.estimate(points) == answer.work + 1).all()


@pytest.mark.parametrize("place", [5.0, 90.0])
def test_values_that_crowd_in_one_place_lose_no_match(place):
    # Nine in ten upper ends are the same: more than a group holds, so several cuts fall between equal ends.
    high = np.concatenate([np.full(900, place), np.linspace(5, 90, 100)])[:, None]
    low = np.zeros_like(high)
    points = np.array([[4.0], [5.0], [5.5], [50.0], [89.9], [90.0], [91.0]])
    for groups in (2, 4, 16):
        assert split(EndsIndex(low, high, groups).search(points)) == containing(low, high, points)


@pytest.mark.parametrize(
    ("value", "work"),
    [
        (0, 0),  # no end lies beyond
        (5, 5),  # five ends are marked: they are the last of the last group
        (25, 7 + 2),  # the last group has 32: seven are taken out of its set, whose two words are joined
        (64, 2),  # at a cut: a set as it is
        (70, 6 + 2),  # six are marked, and the set of the next group is joined
    ],
)
def test_bits_and_words_are_counted(value, work):
    # 128 upper ends 0, 1, ..., 127 in 4 groups of 32; those below a value lie beyond it.
    high = np.arange(128.0)[:, None]
    low, point = np.full_like(high, -np.inf), np.array([[float(value)]])
    assert Sides.of(low, high).outside(point).tolist() == [[0, value]]
    assert EndsIndex(low, high, 4).search(point).work.tolist() == [work]


def test_sets_save_most_marks():
    rng = np.random.default_rng(1)
    low, high = np.sort(rng.random((2, 20_000, 4)), axis=0)
    points = rng.random((20, 4))
    single, joined = EndsIndex(low, high).search(points), EndsIndex(low, high, 64).search(points)
    assert split(single) == split(joined)
    assert single.work.sum() > 15 * joined.work.sum()
