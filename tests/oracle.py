"""The oracle: what a match is, by brute force."""

import numpy as np
from numpy.typing import NDArray


def matches(low: NDArray, high: NDArray, points: NDArray, ids: NDArray | None = None) -> list[set[int]]:
    """Ids of the closed boxes (n, d) that contain each point (m, d)."""
    names = np.arange(len(low)) if ids is None else np.asarray(ids)
    return [set(names[((low <= p) & (p <= high)).all(axis=1)].tolist()) for p in points]


def as_sets(found) -> list[set[int]]:
    """The ids of each event of a `Matches` as sets; an id that occurs twice is an error."""
    sets = [set(ids.tolist()) for ids in found]
    assert [len(s) for s in sets] == [len(ids) for ids in found], "an id is reported twice"
    return sets


def subscribers(predicates: dict, rows: list[dict]) -> list[set[int]]:
    """Ids of the predicates, a dict by id of `Predicate`, that each flat event satisfies."""
    return [{id for id, predicate in predicates.items() if predicate.matches(row)} for row in rows]
