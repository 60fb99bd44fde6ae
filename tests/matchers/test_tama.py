"""TAMA: cells on all levels, counted; what is found is compared."""

import numpy as np
import pytest
from box_cases import containing, drawn
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.matchers.papers.tama import TamaIndex


def split(found):
    return [sorted(own.tolist()) for own in np.split(found.rows, found.offsets[1:-1])]


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 200),
    st.integers(1, 4),
    st.sampled_from([None, 1, 2, 8, 64]),
)
def test_cells_of_any_number_of_levels_lose_nothing(seed, count, dimensions, cells):
    rng = np.random.default_rng(seed)
    low, high = drawn(rng, count, dimensions)
    points = rng.integers(-1, 21, (7, dimensions)).astype(float)
    points[0], points[1] = -np.inf, np.inf
    index = TamaIndex(low, high, cells)
    answer = index.search(points)
    assert split(answer) == containing(low, high, points)
    assert (index.estimate(points) <= answer.work + (np.isinf(low) & np.isinf(high)).all(axis=1).sum()).all()


def test_work_is_increments_and_boxes_that_were_compared():
    low, high = np.array([[0.0], [2.0], [-np.inf]]), np.array([[3.0], [7.0], [np.inf]])
    index = TamaIndex(low, high, 2)  # ends 0, 2, 3, 7 are cut in two at 2, the lower median
    # Below 2 lies box 0 alone, from 2 on both. Each has one attribute, so it is compared; the last has none.
    assert index.search(np.array([[1.0], [2.5], [7.5]])).work.tolist() == [2, 4, 4]
    assert split(index.search(np.array([[1.0], [2.5], [7.5]]))) == [[0, 2], [0, 1, 2], [2]]
    assert index.estimate(np.array([[1.0], [2.5]])).tolist() == [2, 3]


@pytest.mark.parametrize("cells", [4, 32, 1024])
def test_more_levels_compare_less_in_vain(cells):
    rng = np.random.default_rng(2)
    low, high = np.sort(rng.random((2, 3000, 3)), axis=0)
    points = rng.random((50, 3))
    holding = [int(((low <= x) & (x <= high)).sum()) for x in points]
    matches = np.diff(TamaIndex(low, high, cells).search(points).offsets)
    vain = TamaIndex(low, high, cells).search(points).work - holding - matches
    assert (vain >= 0).all()
    assert vain.mean() < 14_000 / cells
