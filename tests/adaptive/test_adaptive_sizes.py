"""adaptive.sizes: classes of batch size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.adaptive import exact, powers_of_two


@given(st.integers(1, 10**9))
def test_powers_of_two_reach_from_the_label_to_twice_the_label(size):
    label = powers_of_two(size)
    assert label <= size < 2 * label
    assert label & (label - 1) == 0


@pytest.mark.parametrize("classes", [exact, powers_of_two])
@given(size=st.integers(1, 10**9))
def test_the_label_is_a_size_of_its_own_class(classes, size):
    assert classes(classes(size)) == classes(size)


def test_exact_tells_all_sizes_apart():
    assert [exact(size) for size in (1, 2, 3)] == [1, 2, 3]
