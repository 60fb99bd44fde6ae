"""Parsing predicates in any notation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtfilter.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.combine import all_of, any_of, checked
from rtfilter.predicates.model import Predicate
from rtfilter.predicates.pattern import parse_pattern
from rtfilter.predicates.sql import parse_sql

Source = str | Mapping[str, Any] | Predicate
"""What `parse` accepts."""


def parse(source: Source, schema: Schema) -> Predicate:
    """Return the predicate that `source` describes, checked against `schema`.

    Parameters
    ----------
    source : str, mapping or Predicate
        An SQL condition, an event pattern, or a predicate, whose constants become those that the
        attributes need. A predicate that this function returned for the same schema is returned as it is.
    schema : Schema

    Raises
    ------
    PredicateError
        Unknown attribute or operator, a constant that the attribute can never have, a construct that is
        not supported, or too many filters, constants or levels. The message shows the place.
    """
    if isinstance(source, Predicate):
        if source.is_checked(schema):
            return source
        filters = any_of(
            [all_of([checked(schema, c) for c in conjunction.constraints]) for conjunction in source.filters]
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
    return Predicate.checked(filters, schema)
