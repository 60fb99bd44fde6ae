"""Disjunctions of conjunctions: the data of a predicate, and their meaning.

`Disjunction.matches` defines the meaning; boxes only give most of its answers faster. The normative text is
`docs/predicates.md`. `rtfilter.predicates.predicate.Predicate` adds notations, cost and relations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rtfilter.basics.errors import PredicateError
from rtfilter.events.cells import require_usable
from rtfilter.events.encoding import is_missing
from rtfilter.events.fields import NOW, microseconds_at
from rtfilter.events.nesting import ATOMS, is_list, with_composed_names
from rtfilter.events.schema import Schema
from rtfilter.predicates.model.constraints import Filter, Quantified, constraint_from_json, constraint_to_json
from rtfilter.predicates.model.list_tests import Elements, event_of, is_null


class _Mark:
    """The schema that a predicate was checked against; it is no part of its value, and is not copied."""

    __slots__ = ("_schema",)
    _schema: Schema


@dataclass(frozen=True, slots=True)
class Disjunction(_Mark):
    """A disjunction of filters. Without filters, no event satisfies it.

    Attributes
    ----------
    filters : tuple of Filter
    """

    filters: tuple[Filter, ...]

    @classmethod
    def checked(cls, filters: tuple[Filter, ...], schema: Schema) -> Self:
        """Return the predicate of filters that were checked against `schema`; it stores the schema."""
        predicate = cls(filters)
        object.__setattr__(predicate, "_schema", schema)
        return predicate

    @property
    def schema(self) -> Schema | None:
        """The schema that it was checked against, as by `parse`; None if there is none."""
        return getattr(self, "_schema", None)

    def is_checked(self, schema: Schema) -> bool:
        """Return whether it was checked against this very schema, so that another check changes nothing."""
        return getattr(self, "_schema", None) is schema

    @classmethod
    def everything(cls) -> Self:
        """Return the predicate that every event satisfies."""
        return cls((Filter(()),))

    def matches(self, event: Mapping[str, object], now: float | None = None) -> bool:
        """Return whether an event satisfies the predicate; a filter gives the same answer.

        Parameters
        ----------
        event : mapping
            Names, in any spelling of Unicode, to values, with objects and lists as in events of a filter. An
            absent key or None is a missing value. Values of another type than the constants' are no error:
            they satisfy only ``exists``.
        now : float, optional
            The value of ``NOW()``, in seconds since 1970; by default the time of the system.

        Raises
        ------
        EventError
            Its lists have too many choices of elements or are nested too deeply, or one name has two values.
        """
        schema = self.schema
        if schema is None or schema.fields.spelled:
            event = with_composed_names(event, self._sources())
        if now is not None:
            event = {**event, NOW: microseconds_at(now)}
        nested = schema is not None and len(schema.fields.further) > 0
        for name, value in event.items():
            if type(value) is float or type(value) not in ATOMS:
                self._require_usable(name, value)
            if type(value) not in ATOMS and (isinstance(value, Mapping) or is_list(value)):
                nested = True
                break
        if not nested:
            return self.satisfied_by(event)
        seen = event_of(event, names_of(self), None if schema is None else schema.fields)
        return seen.satisfy(self.filters) if isinstance(seen, Elements) else self.satisfied_by(seen)

    def _require_usable(self, name: str, value: object) -> None:
        """Raise `EventError` for a value that no event can have, if the predicate names its attribute."""
        if not is_missing(value) and name in self._sources():
            require_usable(name, value)

    def _sources(self) -> frozenset[str]:
        """Return the names in events of the attributes that the predicate names."""
        names, schema = names_of(self), self.schema
        return names if schema is None else schema.fields.sources(names)

    def satisfied_by(self, row: Mapping[str, object]) -> bool:
        """Return whether a flat event without lists, as from `EventTable.row`, satisfies the predicate.

        It gives the same answer as `matches`, faster.
        """
        for conjunction in self.filters:  # noqa: SIM110, a loop is twice as fast as any() here
            if conjunction.matches(row):
                return True
        return False

    def to_json(self) -> list[list[list[Any]]]:
        """Return ``[[[attribute, operator, value], ...], ...]``, for `from_json`.

        A comparison is ``[left, operator, right]``, see `Comparison.to_json`, and a quantified constraint
        ``[quantifier, [[attribute, operator, value], ...]]``.
        """
        return [[constraint_to_json(c) for c in conjunction.constraints] for conjunction in self.filters]

    @classmethod
    def from_json(cls, data: Sequence[Sequence[Sequence[Any]]]) -> Self:
        """Return the predicate of a result of `to_json`.

        Raises
        ------
        PredicateError
            `data` is not of that form.
        """
        try:
            return cls(tuple(Filter(tuple(constraint_from_json(*c) for c in f)) for f in data))
        except PredicateError:
            raise
        except (TypeError, AttributeError, ValueError, RecursionError) as error:
            raise PredicateError(f"this is not a predicate's JSON: {error}") from None

    def __str__(self) -> str:
        """Return the predicate as an SQL condition, which `rtfilter.predicates.predicate.parse` reads."""
        if len(self.filters) == 1:
            return str(self.filters[0])
        return " OR ".join(f"({conjunction})" for conjunction in self.filters) or "FALSE"


def names_of(predicate: Disjunction) -> frozenset[str]:
    """Return the attributes that a predicate names."""
    return frozenset(
        name for own in predicate.filters for test in own.constraints for name in test.attributes
    )


def asks_for_none(predicate: Disjunction) -> bool:
    """Return whether a predicate requires an attribute to be missing."""
    return any(map(is_null, (test for own in predicate.filters for test in own.constraints)))


def asks_for_every(predicate: Disjunction) -> bool:
    """Return whether a predicate has quantified constraints, which ask for all elements of a list."""
    return any(isinstance(test, Quantified) for own in predicate.filters for test in own.constraints)
