"""Predicates: their meaning, their notations, their cost and their relations.

`Predicate.matches` defines the meaning; boxes only give most of its answers faster. The normative text is
`docs/predicates.md`. Constraints and filters are defined in `rtfilter.predicates.constraints`, and can be
imported from here as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rtfilter.errors import PredicateError
from rtfilter.events.cells import require_usable
from rtfilter.events.encoding import is_missing
from rtfilter.events.nesting import ATOMS, is_list, with_composed_names
from rtfilter.events.schema import Schema
from rtfilter.events.table import NOW, microseconds_at
from rtfilter.predicates.as_pattern import as_pattern
from rtfilter.predicates.combine import all_of, any_of, checked
from rtfilter.predicates.constraints import (
    COMPARE,
    FORMS,
    MAX_TERMS,
    NEGATED,
    OPERATORS_OF,
    PRESENCE,
    SETS,
    Constraint,
    Filter,
    Quantified,
    Test,
    constraint_from_json,
    constraint_to_json,
)
from rtfilter.predicates.cost import Cost, cost_of
from rtfilter.predicates.covering import intersects, judge
from rtfilter.predicates.list_tests import Elements, event_of, names_of
from rtfilter.predicates.pattern import parse_pattern
from rtfilter.predicates.sql import MAX_LENGTH, parse_sql
from rtfilter.text import shown

__all__ = [
    "COMPARE",
    "FORMS",
    "MAX_TERMS",
    "NEGATED",
    "OPERATORS_OF",
    "PRESENCE",
    "SETS",
    "Constraint",
    "Filter",
    "Predicate",
    "Quantified",
    "Test",
    "constraint_to_json",
]


class _Mark:
    """The schema that a predicate was checked against; it is no part of its value, and is not copied."""

    __slots__ = ("_schema",)
    _schema: Schema


@dataclass(frozen=True, slots=True)
class Predicate(_Mark):
    """A disjunction of filters. Without filters it matches no event.

    Attributes
    ----------
    filters : tuple of Filter
    """

    filters: tuple[Filter, ...]

    @classmethod
    def checked(cls, filters: tuple[Filter, ...], schema: Schema) -> Predicate:
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
    def parse(cls, source: str | Mapping[str, Any] | Predicate, schema: Schema) -> Predicate:
        """Return the predicate that `source` describes, checked against `schema`.

        Parameters
        ----------
        source : str, mapping or Predicate
            An SQL condition, an event pattern, or a predicate, whose constants are converted to the types of
            the attributes; see `docs/predicates.md`. A predicate that was checked against the same schema is
            returned as it is.
        schema : Schema

        Raises
        ------
        PredicateError
            An attribute or operator is unknown, the attribute can never have a constant, a construct is not
            supported, or there are too many filters, constants or levels. The message shows the place.

        Examples
        --------
        >>> from rtfilter import Schema
        >>> cheap = Predicate.parse("symbol = 'ACME' AND price < 10", Schema({"price": float, "symbol": str}))
        >>> cheap.to_pattern()
        {'symbol': ['ACME'], 'price': [{'numeric': ['<', 10]}]}
        >>> cheap.matches({"symbol": "ACME", "price": 9.5})
        True
        """
        if isinstance(source, Predicate):
            if source.is_checked(schema):
                return source
            filters = any_of(
                [all_of([checked(schema, c) for c in one.constraints]) for one in source.filters]
            )
        elif isinstance(source, str):
            filters = parse_sql(source, schema)
        elif isinstance(source, Mapping):
            filters = parse_pattern(source, schema)
        else:
            raise PredicateError(
                "a predicate is an SQL condition (str), an event pattern (mapping) or a Predicate; "
                f"got {type(source).__name__}"
            )
        return cls.checked(filters, schema)

    @classmethod
    def everything(cls) -> Predicate:
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
        seen = event_of(event, self)
        return seen.satisfy(self) if isinstance(seen, Elements) else self.satisfied_by(seen)

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

    def to_sql(self) -> str:
        """Return the SQL condition that `parse` reads as an equal predicate.

        Raises
        ------
        PredicateError
            The condition would be longer than `parse` reads.
        """
        condition = str(self)
        if len(condition) > MAX_LENGTH:
            raise PredicateError(
                f"the SQL condition would have {len(condition)} characters, and at most {MAX_LENGTH} are "
                "read; use to_pattern or to_json"
            )
        return condition

    def to_pattern(self) -> dict[str, Any]:
        """Return the event pattern that `parse` reads as an equal predicate; JSON can hold it.

        Raises
        ------
        PredicateError
            Patterns have no form for one of its constraints; `attribute` and the message name it.
        """
        return as_pattern(self.filters)

    @property
    def cost(self) -> Cost:
        """The cost of a subscription to it: boxes in the index, and whether candidates must be verified.

        Raises
        ------
        PredicateError
            It was not checked against a schema (see `parse`), or needs too many boxes.
        """
        if self.schema is None:
            raise PredicateError(
                "the cost depends on the schema, against which this predicate was not checked: "
                "use Predicate.parse(predicate, schema)"
            )
        return cost_of(self, self.schema)

    def covers(self, other: Predicate) -> bool | None:
        """Return whether every event that satisfies `other` satisfies this predicate too; None if not known.

        An answer is never wrong for events without lists; see `docs/covering.md` for others, and for unknown
        answers. If only one of the two was checked against a schema, the other one is checked against it as
        well. Events are then those of the schema, without values outside of domains.

        Raises
        ------
        PredicateError
            They were checked against different schemas, or one does not fit the schema of the other.

        Examples
        --------
        >>> from rtfilter import Schema
        >>> schema = Schema({"price": float, "symbol": str})
        >>> cheap, acme = (Predicate.parse(text, schema) for text in ("price < 10", "symbol = 'ACME'"))
        >>> cheap.covers(Predicate.parse("price < 5 AND symbol = 'ACME'", schema))
        True
        >>> cheap.covers(acme), cheap.intersects(acme)
        (False, True)
        """
        return judge(*self._with(other)).covers

    def intersects(self, other: Predicate) -> bool | None:
        """Return whether an event can satisfy this predicate and `other`; None if not known. See `covers`."""
        return intersects(*self._with(other))

    def _with(self, other: Predicate) -> tuple[Predicate, Predicate, Schema | None]:
        """Return both predicates checked against one schema, and the schema; None if neither was checked."""
        if not isinstance(other, Predicate):
            raise TypeError(f"this takes a Predicate, as Predicate.parse returns it, not {shown(other)}")
        own, others = self.schema, other.schema
        schema = others if own is None else own
        if schema is None:
            return self, other, None
        if own is not None and others is not None and own != others:
            raise PredicateError(f"these predicates are of different schemas: {own!r} and {others!r}")
        one = Predicate.parse(self, schema) if own is None else self
        return one, Predicate.parse(other, schema) if others is None else other, schema

    def to_json(self) -> list[list[list[Any]]]:
        """Return ``[[[attribute, operator, value], ...], ...]``, for `from_json`.

        A comparison is ``[left, operator, right]``, see `Comparison.to_json`, and a quantified constraint
        ``[quantifier, [[attribute, operator, value], ...]]``.
        """
        return [[constraint_to_json(c) for c in conjunction.constraints] for conjunction in self.filters]

    @classmethod
    def from_json(cls, data: Sequence[Sequence[Sequence[Any]]]) -> Predicate:
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
        """Return the predicate as an SQL condition, which `rtfilter.predicates.model.parse` reads."""
        if len(self.filters) == 1:
            return str(self.filters[0])
        return " OR ".join(f"({conjunction})" for conjunction in self.filters) or "FALSE"


Source = str | Mapping[str, Any] | Predicate
"""The types that `parse` accepts."""


def parse(source: Source, schema: Schema) -> Predicate:
    """Return the predicate that `source` describes; see `Predicate.parse`."""
    return Predicate.parse(source, schema)
