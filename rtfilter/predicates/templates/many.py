"""Reading and compiling many predicates: SQL or patterns of one template together, all others one by one.

The results are those of `rtfilter.predicates.predicate.parse` and
`rtfilter.predicates.boxes.compiling.compile_predicate` for each predicate, in less time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import IntArray
from rtfilter.basics.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes.compiling import Boxes, Distincts, boxes_of, distinct_boxes
from rtfilter.predicates.predicate import Predicate, Source, parse
from rtfilter.predicates.stored.predicate_store import Kept, kept
from rtfilter.predicates.templates.condition_templates import Template
from rtfilter.predicates.templates.template_boxes import TemplateBoxes
from rtfilter.predicates.templates.template_constants import Key, cut

SLICE: Final = 1 << 15
"""Predicates that are read together: the constants from their texts take memory."""
FEW: Final = 4
"""Predicates of a template from which it pays to learn the template, which takes two parses."""


class Compiled(NamedTuple):
    """n predicates and their boxes."""

    rows: IntArray
    """int64 (n,), ascending: the rows of the sources, without refused ones."""
    kept: list[Kept]
    """See `rtfilter.predicates.stored.predicate_store.kept`."""
    boxes: Boxes
    owners: IntArray | None
    """int64 (m,), ascending: the predicate of each box, from 0; None if each predicate has one box."""


Refused = Callable[[int, PredicateError], object]
"""Receives the row of a source and its error."""


def compile_many(sources: Sequence[Source], schema: Schema, refused: Refused | None = None) -> Compiled:
    """Read predicates and compile them.

    Parameters
    ----------
    sources : sequence of str, mapping or Predicate (n,)
    schema : Schema
    refused : callable, optional
        Receives each unusable source, in order; by default the first one is an error.

    Raises `PredicateError`: as `parse` and `compile_predicate`; its `row` is that of the source.
    """
    reader = _Reader(sources, schema)
    for first in range(0, len(sources), SLICE):
        reader.fill(range(first, min(first + SLICE, len(sources))))
    reader.read_left(refused)
    return reader.compiled()


class _Reader:
    """The reader of many sources, with the results so far."""

    def __init__(self, sources: Sequence[Source], schema: Schema) -> None:
        self._sources, self._schema = sources, schema
        self._kept: list[Kept | None] = [None] * len(sources)
        self._templates: dict[Key, tuple[Template, TemplateBoxes] | None] = {}
        self._parts: list[tuple[Any, Boxes]] = []  # boxes, and the row of each
        self._alone: tuple[list[int], Distincts] = [], []  # the same for sources that were read one by one

    def fill(self, rows: range) -> None:
        """Read the sources that have a template and no error."""
        groups: dict[Key, tuple[list[int], list[Sequence[Any]]]] = {}  # rows and constants
        for row in rows:
            found = cut(self._sources[row])
            if found is None:
                continue
            group = groups.get(found.key)
            if group is None:
                group = groups[found.key] = [], []
            group[0].append(row)
            group[1].append(found.constants)
        for key, (own, constants) in groups.items():
            if key not in self._templates and len(own) >= FEW:
                template = Template.learn(self._sources[own[0]], self._schema)
                known = None if template is None else (template, TemplateBoxes(template, self._schema))
                self._templates[key] = known
            known = self._templates.get(key)
            if known is not None:
                self._fill_group(*known, own, constants)

    def _fill_group(
        self, template: Template, boxes: TemplateBoxes, rows: list[int], constants: list[Sequence[Any]]
    ) -> None:
        columns = template.columns(constants)
        # The others are parsed: constants, or repetitions, may change their meaning.
        if any(None in column for column in columns):
            rows, columns = _chosen([None not in row for row in zip(*columns, strict=True)], rows, columns)
        repeating = template.repeating(columns)
        if repeating is not None and any(repeating):
            rows, columns = _chosen([not found for found in repeating], rows, columns)
        if not rows:
            return
        usable, owners, found = boxes.compute(columns, len(rows))
        self._parts.append((np.array(rows)[owners], found))
        for row, text in zip(rows, template.encoded(columns, len(rows)), strict=True):
            self._kept[row] = text
        for place in np.flatnonzero(~usable).tolist():
            predicate, row = template.predicate([column[place] for column in columns]), rows[place]
            self._kept[row] = None
            with suppress(PredicateError):  # too many boxes: reported together with the remaining sources
                self._take(row, predicate)

    def _take(self, row: int, predicate: Predicate) -> None:
        found = distinct_boxes(predicate, self._schema)
        self._kept[row] = kept(predicate)
        self._alone[0].extend([row] * len(found))
        self._alone[1].extend(found.items())

    def read_left(self, refused: Refused | None) -> None:
        """Parse all sources that no template could read."""
        for row, known in enumerate(self._kept):
            if known is not None:
                continue
            try:
                self._take(row, parse(self._sources[row], self._schema))
            except PredicateError as error:
                error.row = row
                error.show_row()
                if refused is None:
                    raise
                refused(row, error)

    def compiled(self) -> Compiled:
        """Return all results, in the order of the sources."""
        taken = np.array([one is not None for one in self._kept], np.bool_)
        rows = np.flatnonzero(taken)
        alone: tuple[Any, Boxes] = self._alone[0], boxes_of(self._alone[1], self._schema)
        of_rows, parts = zip(alone, *self._parts, strict=True)
        owners = np.concatenate([np.array(own, np.int64) for own in of_rows])
        order = np.argsort(owners, kind="stable")
        boxes = Boxes(*(np.concatenate(side)[order] for side in zip(*parts, strict=True)))
        owners = np.searchsorted(rows, owners[order])
        found = [one for one in self._kept if one is not None]
        one_each = np.array_equal(owners, np.arange(len(rows)))
        return Compiled(rows, found, boxes, None if one_each else owners)


def _chosen(
    wanted: Iterable[Any], rows: list[int], columns: list[list[Any]]
) -> tuple[list[int], list[list[Any]]]:
    """Return the wanted rows, and their values."""
    chosen = list(wanted)
    return list(compress(rows, chosen)), [list(compress(column, chosen)) for column in columns]
