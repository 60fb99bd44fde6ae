"""Drafts: subscriptions that are read, checked and compiled before a change needs the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import cut, numbered
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Takes, refuse_untaken
from rtfilter.predicates.bounds.bound_arrays import compile_bounds
from rtfilter.predicates.boxes.compiling import compile_predicate
from rtfilter.predicates.predicate import Predicate, Source, parse
from rtfilter.predicates.stored.predicate_store import Kept, kept
from rtfilter.predicates.templates.many import Refused, compile_many
from rtfilter.subscriptions.labels import NO_LABELS, LabelColumns

_FALSE: Final = kept(Predicate(()))


class Draft(NamedTuple):
    """Subscriptions that were read and checked; a change gives them handles."""

    filters: Filters
    predicates: Sequence[Kept] | None
    """Predicates to store beside the matcher; None if the boxes hold all of them."""
    labels: LabelColumns = NO_LABELS
    """Expiry and metadata, and ids that are no integers."""

    def piece(self, first: int, last: int) -> Draft:
        """Return consecutive rows."""
        own = None if self.predicates is None else self.predicates[first:last]
        return Draft(self.filters.piece(first, last), own, self.labels.piece(slice(first, last)))


def tell_impossible(draft: Draft) -> bool:
    """Warn in the log if some subscriptions can match no event; return whether it did.

    ``FALSE`` gets no warning: its author means it. Matchers without boxes do not know.
    """
    texts = draft.predicates
    rows = [row for row in draft.filters.impossible().tolist() if texts is None or texts[row] != _FALSE]
    if not rows:
        return False
    import logging  # slow to import

    logging.getLogger("rtfilter").warning(
        "%s of %s can match no event, because no value satisfies all constraints: %s%s; see Predicate.cost; "
        "the log does not report later ones in this filter",
        f"{len(rows):,}",
        numbered(len(draft.filters), "subscription"),
        "" if len(draft.filters) == 1 else f"row {rows[0]}, ",
        cut(str(draft.filters.predicates()[rows[0]])),
    )
    return True


def of_sources(
    sources: Sequence[Source], schema: Schema, takes: Takes, name: str, refused: Refused | None = None
) -> Draft:
    """Read predicates, and check that the matcher called `name` takes them.

    Raises `PredicateError`; if there are several sources, its `row` and its text name the row. With
    `refused`, it is not raised: `refused` gets the row and the error of each unusable source, in order, and
    the draft has all others.
    """
    try:
        return _of_sources(sources, schema, takes, name, refused)
    except PredicateError as error:
        if len(sources) > 1:
            error.show_row()
        raise


def _of_sources(
    sources: Sequence[Source], schema: Schema, takes: Takes, name: str, refused: Refused | None
) -> Draft:
    if (len(sources) > 1 or refused is not None) and takes.boxes and takes.everything:
        compiled = compile_many(sources, schema, refused)
        return Draft(Filters.of_compiled(schema, compiled), compiled.kept)
    predicates = []
    for row, source in enumerate(sources):
        try:
            predicate = parse(source, schema)
            refuse_untaken(name, takes, [predicate], schema)
            if takes.boxes and refused is not None:
                compile_predicate(predicate, schema)
            predicates.append(predicate)
        except PredicateError as error:
            error.row = row
            if refused is None:
                raise
            error.show_row()
            refused(row, error)
    filters = Filters.of_predicates(schema, predicates)
    if takes.boxes:
        filters.boxes()
    return Draft(filters, list(map(kept, predicates)))


def of_bounds(low: Any, high: Any, schema: Schema, takes: Takes, name: str) -> Draft:
    """Read closed bounds; see `rtfilter.predicates.bounds.bound_arrays.compile_bounds`."""
    filters = Filters.of_bounds(schema, compile_bounds(low, high, schema))
    if not takes.everything:
        refuse_untaken(name, takes, filters.predicates(), schema)
    if takes.boxes:
        return Draft(filters, None)
    predicates = filters.predicates()
    return Draft(Filters.of_predicates(schema, predicates), list(map(kept, predicates)))
