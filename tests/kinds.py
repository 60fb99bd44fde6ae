"""Ids of each type, what has to hold of those that the index knows by handles, and kinds of matchers."""

from uuid import UUID

import numpy as np
import pytest

from lengths import long_but
from rtfilter import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.registry import MATCHERS, make_matcher

KINDS = {"int": int, "str": str, "uuid": UUID}
"""Types of ids by their names."""
TAKING_ALL = [name for name in MATCHERS if make_matcher(name, Schema({"x": float})).takes.everything]
"""The matchers that take every predicate; the others are tested on what they take by `check_matcher`."""

BOXED = [name for name in TAKING_ALL if make_matcher(name, Schema({"x": float})).takes.boxes]
"""Of these, those of boxes; the others are Python objects, and tests give them less to do."""
EACH = long_but(TAKING_ALL, ("rtree", "scan", "matching-tree"))
"""Of what all matchers share: the short form tries levels of boxes, one list of boxes, and no boxes."""
EACH_BOXED = long_but(BOXED, ("rtree", "scan", "counting"))
"""The same of what all matchers of boxes share: `counting` keeps them in layers."""
KEEPING = ("rtree", "masks", "hashes")
"""Of matchers, by what they save: arrays of their own, boxes, predicates."""
TAKEN_OVER = [(name, name) for name in TAKING_ALL if name not in KEEPING]
TAKEN_OVER += [(name, kind) for name in TAKING_ALL for kind in KEEPING]
TAKEN_OVER += [(kind, name) for name in TAKING_ALL for kind in KEEPING if name not in KEEPING]
"""Who saves, and who opens it: each with itself, and with each kind either way."""
_SHORT = {(name, name) for name in ("rtree", "scan", "matching-tree")} | {
    ("scan", "hashes"),
    ("hashes", "scan"),
}
_SHORT |= {pair for name in ("masks", "hashes", "scan") for pair in ((name, "rtree"), ("rtree", name))}
EACH_TAKEN_OVER = [
    pair if pair in _SHORT else pytest.param(*pair, marks=pytest.mark.long) for pair in TAKEN_OVER
]


def id_of(kind: type, number: int):
    """The id of a type that stands for a number."""
    if kind is int:
        return number
    return f"rule-{number}" if kind is str else UUID(int=number * 2**64 + 7)


def require_sound(filter) -> None:
    """Handles and ids belong together; no handle is free and in use, or free twice. Nothing may be claimed.

    And those that nothing bounds are counted by their handles.
    """
    held = filter._subscriptions
    names = held.labels.names
    if held.matcher.takes.boxes:
        handles = held.handles()
        predicates = [held.get(handle) for handle in handles.tolist()]
        filters = Filters.of_predicates(held.schema, predicates, handles)
        assert held.unbounded.handles == set(handles[filters.unbounded()].tolist())
    given_back = [*held._free, *(handle for handles in held._freed for handle in handles.tolist())]
    if names is None:
        assert not given_back
        return
    assert not held.claims
    used = names.used()
    assert np.array_equal(used, held.handles())
    assert names.handles(names.take(used).tolist()).tolist() == used.tolist()
    assert len(names.by_id()) == len(used)
    free = set(given_back)
    assert len(free) == len(given_back)
    assert free.isdisjoint(used.tolist())
    assert all(handle < held.next_id for handle in free)
