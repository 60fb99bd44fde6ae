"""The oracle: what a match is, by brute force."""

from itertools import product

import numpy as np
from numpy.typing import NDArray

from rtfilter.predicates.model.constraints import Filter, Quantified


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


def choices(value, path: str = "", trail: tuple = ()) -> list[dict]:
    """Each choice of elements of an event with lists: by name a value, and the elements on the way to it."""
    if isinstance(value, dict):
        parts = [choices(inner, f"{path}.{key}" if path else key, trail) for key, inner in value.items()]
        return [{name: own for part in chosen for name, own in part.items()} for chosen in product(*parts)]
    if isinstance(value, list):
        found = [
            choice
            for index, element in enumerate(value)
            for choice in choices(element, path, (*trail, ((path, trail), index)))
        ]
        return found or [{}]
    return [{}] if value is None else [{path: (value, dict(trail))}]


def holds_for_elements(test: Quantified, found: list[dict]) -> bool:
    """Whether the elements in all choices satisfy a quantified constraint."""
    values = [choice[test.attribute][0] for choice in found if test.attribute in choice]
    accepted = [[own.matches({test.attribute: value}) for own in test.tests] for value in values]
    return any(map(all, accepted)) if test.quantifier == "any" else values != [] and all(map(any, accepted))


def satisfied(predicate, event: dict) -> bool:
    """Whether an event with lists satisfies a predicate."""
    found = choices(event)
    for one in predicate.filters:
        quantified = [test for test in one.constraints if isinstance(test, Quantified)]
        if not all(holds_for_elements(test, found) for test in quantified):
            continue
        tests = [test for test in one.constraints if not isinstance(test, Quantified)]
        nulls = [test.attribute for test in tests if getattr(test, "operator", "") == "is null"]
        others = Filter(tuple(test for test in tests if getattr(test, "operator", "") != "is null"))
        names = [name for test in others.constraints for name in test.attributes]
        for choice in found:
            if not others.matches({name: value for name, (value, _) in choice.items()}):
                continue
            trail = {place: index for name in names for place, index in choice[name][1].items()}
            there = (other[name][1] for other in found for name in nulls if name in other)
            if not any(all(trail.get(place, at) == at for place, at in own.items()) for own in there):
                return True
    return False
