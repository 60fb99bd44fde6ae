"""Predicates and events of the thesis's benchmark (Novák 2013), twelve long attributes and ``<``.

Each predicate is one filter with a constraint on each of twelve attributes, and no constraint comes twice:
predicate i has the constant ``j * 10000 + 1000 + i`` for attribute j. So the predicates are nested, each in
the next.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rtfilter.events.schema import Schema
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate

ATTRIBUTES: Final = tuple(f"longAttribute{j}" for j in range(12))
SCHEMA: Final = Schema(dict.fromkeys(ATTRIBUTES, int))
STEP, LEAST = 10_000, 1000
"""The constant of attribute j and predicate i is ``j * STEP + LEAST + i``."""
ALONE: Final = 6
"""The attribute that decides in the methods `Match2`."""
SIZES: Final = ((1000, 1000), (1000, 100), (2000, 100), (4000, 100))
"""Numbers of predicates and of events, in the order of the thesis's tables."""


class Method(NamedTuple):
    """A benchmark of the thesis, which has thirteen.

    Attributes
    ----------
    name : str
    satisfied : int
        Nominal percentage of the predicates that the event satisfies; it satisfies one fewer of them.
    almost : bool
        True if the event satisfies 11 of the 12 constraints of all other predicates (`Match2`), or none.
    shuffled : bool
        True if predicates come in random order, or sorted.
    """

    name: str
    satisfied: int
    almost: bool
    shuffled: bool

    def event(self, predicates: int) -> dict[str, int]:
        """Return the event, which is matched again and again."""
        least = self._unsatisfied(predicates)
        if self.satisfied == 100:
            return dict.fromkeys(ATTRIBUTES, 0)
        values = {name: j * STEP + LEAST + least for j, name in enumerate(ATTRIBUTES)}
        if self.almost:
            return dict.fromkeys(ATTRIBUTES, 0) | {ATTRIBUTES[ALONE]: values[ATTRIBUTES[ALONE]]}
        return values

    def _unsatisfied(self, predicates: int) -> int:
        return predicates * (100 - self.satisfied) // 100

    def matched(self, predicates: int) -> int:
        """Return the number of predicates that the event satisfies."""
        return predicates if self.satisfied == 100 else predicates - 1 - self._unsatisfied(predicates)

    def increments(self, predicates: int) -> int:
        """Return the number of constraints that the event satisfies, which is the work of counting."""
        every = len(ATTRIBUTES)
        matched = self.matched(predicates)
        return (every - 1) * predicates + matched if self.almost else every * matched


METHODS: Final = (
    *(
        Method(f"{kind}_{share}{'_random' * shuffled}", share, kind == "Match2", shuffled)
        for shuffled in (True, False)
        for kind in ("Match", "Match2")
        for share in (25, 50, 75)
    ),
    Method("Match_100", 100, False, False),
)
"""All thirteen, in the order of the thesis's tables."""


def predicates(count: int, seed: int | None = None) -> list[Predicate]:
    """Return so many predicates, sorted, or in the random order of a seed."""
    order = range(count) if seed is None else np.random.default_rng([seed, count]).permutation(count).tolist()
    return [
        Predicate.parse(
            Predicate(
                (
                    Filter(
                        tuple(
                            Constraint(name, "<", j * STEP + LEAST + i) for j, name in enumerate(ATTRIBUTES)
                        )
                    ),
                )
            ),
            SCHEMA,
        )
        for i in order
    ]


def equalities(count: int, seed: int, values: int = 10, asked: int = 3) -> list[Predicate]:
    """Return predicates on values of a few random attributes, for the thesis's objection to R-trees."""
    rng = np.random.default_rng([seed, count, asked])
    found = []
    for _ in range(count):
        names = rng.choice(len(ATTRIBUTES), asked, replace=False).tolist()
        drawn = rng.integers(values, size=asked).tolist()
        own = (Constraint(ATTRIBUTES[j], "=", value) for j, value in zip(names, drawn, strict=True))
        found.append(Predicate.parse(Predicate((Filter(tuple(own)),)), SCHEMA))
    return found


def few_values(count: int, seed: int, values: int = 10) -> list[dict[str, int]]:
    """Return events for `equalities`."""
    drawn = np.random.default_rng([seed, count]).integers(values, size=(count, len(ATTRIBUTES)))
    return [dict(zip(ATTRIBUTES, row, strict=True)) for row in drawn.tolist()]
