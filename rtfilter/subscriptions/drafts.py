"""Drafts: subscriptions that were read, checked and compiled before anybody has to wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rtfilter.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Takes, refuse_untaken
from rtfilter.predicates.bounds import compile_bounds
from rtfilter.predicates.parse import Source, parse
from rtfilter.predicates.store import Kept, kept
from rtfilter.subscriptions.labels import NO_LABELS, Beside


class Draft(NamedTuple):
    """Subscriptions that were read and checked, and are still without ids."""

    filters: Filters
    predicates: list[Kept] | None
    """To keep beside the matcher; None where its boxes tell all."""
    labels: Beside = NO_LABELS
    """Deadlines and metadata."""


def of_sources(sources: Sequence[Source], schema: Schema, takes: Takes, name: str) -> Draft:
    """Read predicates for the matcher of a name, which takes some.

    Raises `PredicateError`; of several its `row`, and its text, tell which.
    """
    try:
        return _of_sources(sources, schema, takes, name)
    except PredicateError as error:
        if len(sources) > 1:
            error.show_row()
        raise


def _of_sources(sources: Sequence[Source], schema: Schema, takes: Takes, name: str) -> Draft:
    predicates = []
    for row, source in enumerate(sources):
        try:
            predicates.append(parse(source, schema))
        except PredicateError as error:
            error.row = row
            raise
    refuse_untaken(name, takes, predicates, schema)
    filters = Filters.of_predicates(schema, predicates)
    # A matcher of constraints asks no predicate afterwards: they are kept to explain and to save.
    exact = filters.exact().tolist() if takes.boxes else [True] * len(predicates)
    return Draft(filters, [kept(*pair) for pair in zip(predicates, exact, strict=True)])


def of_bounds(low: Any, high: Any, schema: Schema, takes: Takes, name: str) -> Draft:
    """Read closed bounds; see `rtfilter.predicates.bounds.compile_bounds`."""
    filters = Filters.of_bounds(schema, compile_bounds(low, high, schema))
    if not takes.everything:
        refuse_untaken(name, takes, filters.predicates(), schema)
    if takes.boxes:
        return Draft(filters, None)
    predicates = filters.predicates()
    return Draft(Filters.of_predicates(schema, predicates), [kept(one, True) for one in predicates])
