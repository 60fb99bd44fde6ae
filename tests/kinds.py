"""Ids of each type, and what has to hold of those that the index knows by keys."""

from uuid import UUID

import numpy as np

from rtfilter.matchers.filters import Filters

KINDS = {"int": int, "str": str, "uuid": UUID}
"""Types of ids by their names."""


def id_of(kind: type, number: int):
    """The id of a type that stands for a number."""
    if kind is int:
        return number
    return f"rule-{number}" if kind is str else UUID(int=number * 2**64 + 7)


def require_sound(filter) -> None:
    """Keys and ids belong together; no key is free and in use, or free twice. Nothing may be claimed.

    And those that nothing bounds are counted by their keys.
    """
    held = filter._subscriptions
    names = held.labels.names
    if held.matcher.takes.boxes:
        keys = held.keys()
        filters = Filters.of_predicates(held.schema, [held.get(key) for key in keys.tolist()], keys)
        assert held.unbounded.keys == set(keys[filters.unbounded()].tolist())
    given_back = [*held._free, *(key for keys in held._freed for key in keys.tolist())]
    if names is None:
        assert not given_back
        return
    assert not held.claims
    used = names.used()
    assert np.array_equal(used, held.keys())
    assert names.keys(names.take(used).tolist()).tolist() == used.tolist()
    assert len(names.by_id()) == len(used)
    free = set(given_back)
    assert len(free) == len(given_back)
    assert free.isdisjoint(used.tolist())
    assert all(key < held.next_id for key in free)
