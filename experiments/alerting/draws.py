"""Profiles and events for Bittner's comparison, which does not give its own: uniform, small domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.events.schema import Schema
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate

VALUES: Final = 12
"""Values of each attribute: 0 to 11, all alike. With few of them the tree of Gough and Smith finds room."""
OPERATORS: Final = ("=", "<", ">", "range", "set")
"""The operators of the paper."""


class Case(NamedTuple):
    """The parameters of a random draw.

    Attributes
    ----------
    profiles : int
    attributes : int
    careless : float
        Share of attributes that a profile does not care about; it cares about one at least.
    matches : float
        Share of profiles that an event matches, about. Equality does not follow it.
    operators : str
        One of `OPERATORS`, or "mixed".
    """

    profiles: int
    attributes: int
    careless: float
    matches: float
    operators: str

    @property
    def schema(self) -> Schema:
        """Integers."""
        return Schema({f"a{i}": int for i in range(self.attributes)})

    def predicates(self, rng: np.random.Generator) -> list[Predicate]:
        """Return the profiles."""
        return [self._profile(rng) for _ in range(self.profiles)]

    def _profile(self, rng: np.random.Generator) -> Predicate:
        cares = np.flatnonzero(rng.random(self.attributes) >= self.careless)
        if not len(cares):
            cares = rng.integers(self.attributes, size=1)
        width = int(np.clip(round(VALUES * self.matches ** (1 / len(cares))), 1, VALUES - 1))
        tests: list[Constraint] = []
        for at in cares.tolist():
            operator = self.operators if self.operators != "mixed" else str(rng.choice(OPERATORS))
            tests += _tests(f"a{at}", operator, width, rng)
        return Predicate((Filter(tuple(tests)),))

    def events(self, count: int, rng: np.random.Generator) -> Sequence[dict[str, Any]]:
        """Return events with all attributes."""
        drawn = rng.integers(VALUES, size=(count, self.attributes)).tolist()
        return [dict(zip(self.schema.names, row, strict=True)) for row in drawn]


def _tests(name: str, operator: str, width: int, rng: np.random.Generator) -> list[Constraint]:
    """Return a test that so many values satisfy, or, of equality, one."""
    if operator == "=":
        return [Constraint(name, "=", int(rng.integers(VALUES)))]
    if operator == "set":
        return [Constraint(name, "in", rng.choice(VALUES, width, replace=False).tolist())]
    if operator == "range":
        low = int(rng.integers(VALUES - width + 1))
        return [Constraint(name, ">=", low), Constraint(name, "<=", low + width - 1)]
    # Around the width, so that there are many bounds.
    near = int(np.clip(width + rng.integers(-1, 2), 1, VALUES - 1))
    return [Constraint(name, "<", near) if operator == "<" else Constraint(name, ">", VALUES - 1 - near)]
