"""Predicates with their notations, their cost and their relations.

`rtfilter.predicates.model.disjunction.Disjunction` has their data and their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import shown
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes.cost import Cost, cost_of
from rtfilter.predicates.covers.covering import intersects, judge
from rtfilter.predicates.language.pattern import as_pattern, parse_pattern
from rtfilter.predicates.language.sql import MAX_LENGTH, parse_sql
from rtfilter.predicates.model.combine import all_of, any_of, checked
from rtfilter.predicates.model.disjunction import Disjunction


@dataclass(frozen=True, slots=True)
class Predicate(Disjunction):
    """A disjunction of filters. Without filters it matches no event.

    Attributes
    ----------
    filters : tuple of Filter
    """

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


Source = str | Mapping[str, Any] | Predicate
"""The types that `parse` accepts."""


def parse(source: Source, schema: Schema) -> Predicate:
    """Return the predicate that `source` describes; see `Predicate.parse`."""
    return Predicate.parse(source, schema)
