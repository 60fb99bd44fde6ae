"""Two lists of ids become what is entered, inside and left, as sets do."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter import Matches
from rtfilter.tracking.transitions import (
    joined,
    packed,
    rows_of,
    transitions,
    transitions_of_one,
    unpacked,
)

LAST = 2**63 - 2
IDS = st.one_of(st.integers(0, 12), st.integers(0, LAST), st.integers(LAST - 12, LAST))
LISTS = st.lists(st.lists(IDS, unique=True, max_size=6), max_size=8)


def lists_of(given):
    """Lists of ids as `Matches`."""
    offsets = np.cumsum([0, *map(len, given)])
    return Matches(offsets, np.array([id for ids in given for id in ids], np.int64))


def as_lists(found):
    return [[ids.tolist() for ids in one] for one in found]


@pytest.mark.slow
@given(st.lists(st.tuples(st.lists(IDS, unique=True, max_size=6), st.lists(IDS, unique=True, max_size=6))))
def test_they_are_the_differences_of_sets_ascending(pairs):
    before, now = [a for a, _ in pairs], [b for _, b in pairs]
    found = transitions(lists_of(before), lists_of(now))
    expected = [[sorted({*b} - {*a}), sorted({*a} & {*b}), sorted({*a} - {*b})] for a, b in pairs]
    assert len(found) == len(pairs)
    assert as_lists(found) == expected
    assert [[m.tolist() for m in way] for way in (found.entered, found.inside, found.left)] == [
        [one[place] for one in expected] for place in range(3)
    ]
    assert found.changed.tolist() == [bool(entered or left) for entered, _, left in expected]
    assert [ids.tolist() for ids in found.matches()] == [sorted(b) for b in now]
    assert found.ids.dtype == found.offsets.dtype == np.int64
    assert found.codes.dtype == np.int8


@given(st.lists(IDS, unique=True, max_size=3), st.lists(IDS, unique=True, max_size=3))
def test_one_event_is_as_one_of_many(before, now):
    lists, own = lists_of([sorted(before)]), lists_of([now])
    found, kept = transitions_of_one(packed(lists, np.arange(1))[0], own)
    many = transitions(lists, own)
    assert as_lists(found) == as_lists(many)
    assert found.offsets.tolist() == many.offsets.tolist()
    assert found.codes.dtype == np.int8
    assert unpacked([kept])[0].tolist() == sorted(now)


@given(LISTS, LISTS, st.data())
def test_lists_are_chosen_joined_and_packed(first, second, data):
    both = joined(lists_of(first), lists_of(second))
    assert [ids.tolist() for ids in both] == first + second
    rows = data.draw(st.lists(st.integers(0, len(both) - 1)) if len(both) else st.just([]))
    chosen = rows_of(both, np.array(rows, np.int64))
    assert [ids.tolist() for ids in chosen] == [(first + second)[row] for row in rows]
    again = unpacked(packed(both, np.array(rows, np.int64)))
    assert [ids.tolist() for ids in again] == [(first + second)[row] for row in rows]


def test_rows_count_from_both_ends():
    found = transitions(lists_of([[1, 2], []]), lists_of([[2, 3], [4]]))
    assert as_lists([found[0], found[-1]]) == [[[3], [2], [1]], [[4], [], []]]
    for row in (2, -3):
        with pytest.raises(IndexError, match="of a batch of 2"):
            found[row]


def test_as_a_table_of_arrow():
    found = transitions(lists_of([[1, 2], []]), lists_of([[2, 3], []])).to_arrow()
    lists = pa.large_list(pa.int64())
    assert found.schema == pa.schema([("entered", lists), ("inside", lists), ("left", lists)])
    assert found.to_pylist() == [
        {"entered": [3], "inside": [2], "left": [1]},
        {"entered": [], "inside": [], "left": []},
    ]
