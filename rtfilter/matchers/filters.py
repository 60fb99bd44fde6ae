"""Filters of many subscriptions as columns: the input and the content of a matcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.basics.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.bounds.bound_arrays import EncodedBounds, bounds_predicate
from rtfilter.predicates.bounds.ends import NO_ENDS, Ends
from rtfilter.predicates.boxes.compiling import Boxes, compile_predicate, unbounded
from rtfilter.predicates.predicate import Predicate
from rtfilter.predicates.stored.predicate_store import KeptPredicates
from rtfilter.predicates.templates.many import Compiled

_NO_ROWS: Final = np.empty(0, np.int64)


class BoxColumns(NamedTuple):
    """m closed boxes in encoded coordinates; see `rtfilter.predicates.boxes.compiling`."""

    ids: IntArray
    """int64 (m,): the subscription of each box, which may have several or none."""
    low: FloatArray
    """float64 (m, D)."""
    high: FloatArray
    """float64 (m, D), at least `low` everywhere."""
    exact: BoolArray
    """bool (m,): whether every event inside satisfies the subscription."""


class Filters:
    """The predicates of n subscriptions, in the columns that a matcher works on.

    Attributes
    ----------
    schema : Schema
    ids : int64 (n,)
        The subscriptions, each once.
    """

    __slots__ = ("_boxes", "_ends", "_predicates", "_rows", "_unbounded", "ids", "schema")

    def __init__(
        self,
        schema: Schema,
        ids: IntArray,
        predicates: Sequence[Predicate] | None,
        boxes: Boxes | None,
        rows: IntArray | None,
        ends: Ends = NO_ENDS,
    ) -> None:
        self.schema, self.ids = schema, ids
        self._predicates = predicates
        self._boxes = boxes
        self._rows = rows  # rows of `ids`, for each box; None: box i belongs to ids[i]
        self._ends = ends  # owned by rows of `ids`
        self._unbounded: IntArray | None = None

    @classmethod
    def of_predicates(
        cls, schema: Schema, predicates: Sequence[Predicate], ids: IntArray | None = None
    ) -> Filters:
        """Build filters of predicates that were checked against `schema`; ids are 0..n - 1 by default."""
        names = np.arange(len(predicates)) if ids is None else ids
        return cls(schema, names, predicates, None, None)

    @classmethod
    def of_compiled(cls, schema: Schema, compiled: Compiled) -> Filters:
        """Build filters of predicates that were compiled together; ids are 0..n - 1."""
        names = np.arange(len(compiled.rows))
        return cls(schema, names, KeptPredicates(compiled.kept), compiled.boxes, compiled.owners)

    @classmethod
    def of_boxes(cls, schema: Schema, boxes: BoxColumns) -> Filters:
        """Build filters of encoded boxes; a subscription may have several boxes."""
        if len(boxes.ids) < 2:
            return cls(schema, boxes.ids, None, Boxes(boxes.low, boxes.high, boxes.exact), None)
        ids, rows = np.unique(boxes.ids, return_inverse=True)
        same = len(ids) == len(boxes.ids)
        names, places = (boxes.ids, None) if same else (ids, rows)
        return cls(schema, names, None, Boxes(boxes.low, boxes.high, boxes.exact), places)

    @classmethod
    def of_bounds(cls, schema: Schema, bounds: EncodedBounds) -> Filters:
        """Build filters of one box each; ids are 0..n - 1.

        Boxes with exact ends beside them are not exact.
        """
        exact = np.empty(len(bounds.low), np.bool_)
        exact.fill(True)  # for one element, much faster than np.ones
        if bounds.ends is not NO_ENDS:
            exact[bounds.ends.owners] = False
        boxes = Boxes(bounds.low, bounds.high, exact)
        return cls(schema, np.arange(len(bounds.low)), None, boxes, None, bounds.ends)

    @classmethod
    def joined(cls, schema: Schema, parts: Sequence[Filters], without: IntArray) -> Filters:
        """Join several filters, all of boxes or all of predicates, without some ids.

        The boxes of one subscription may lie in several parts.
        """
        if any(part._boxes is None for part in parts):
            ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in parts)])
            keep = np.flatnonzero(~np.isin(ids, without)).tolist()
            predicates = [predicate for part in parts for predicate in part.predicates()]
            return cls.of_predicates(schema, [predicates[row] for row in keep], ids[keep])
        empty = np.empty((0, schema.dimensions))
        nothing = BoxColumns(np.empty(0, np.int64), empty, empty, np.empty(0, np.bool_))
        columns: Any = zip(nothing, *(part.of(schema).boxes() for part in parts), strict=True)
        boxes = BoxColumns(*map(np.concatenate, columns))
        columns = zip(NO_ENDS, *(part.ends for part in parts), strict=True)
        ends = Ends(*map(np.concatenate, columns))
        if len(without):
            wanted = ~np.isin(boxes.ids, without)
            own: Any = (column[wanted] for column in boxes)
            boxes = BoxColumns(*own)
            ends = ends.take(~np.isin(ends.owners, without))
        # By id, so that equal subscriptions are always packed in the same way.
        order = np.argsort(boxes.ids, kind="stable")
        sorted_boxes: Any = (column[order] for column in boxes)
        return cls.of_boxes(schema, BoxColumns(*sorted_boxes)).with_ends(ends)

    def with_ends(self, ends: Ends) -> Filters:
        """Return the boxes together with the exact ends of some of them, owned by `ids` as in `ends`."""
        if not len(ends.owners):
            return self
        order = np.argsort(self.ids)
        rows = order[np.searchsorted(self.ids, ends.owners, sorter=order)]
        owned = ends.owned_by(rows)
        return Filters(self.schema, self.ids, self._predicates, self._boxes, self._rows, owned)

    def cuts(self, most: int) -> list[int]:
        """Return the rows to cut at, from 0 to n: a piece is one subscription, or has at most `most` boxes.

        Without boxes, a subscription counts as one.
        """
        if self._rows is None:
            return [*range(0, len(self), most), len(self)]
        ends = np.cumsum(np.maximum(np.bincount(self._rows, minlength=len(self)), 1))
        cuts, before = [0], 0
        while cuts[-1] < len(self):
            cuts.append(max(int(np.searchsorted(ends, before + most, side="right")), cuts[-1] + 1))
            before = int(ends[cuts[-1] - 1])
        return cuts

    def piece(self, first: int, last: int) -> Filters:
        """Return the subscriptions of some rows; boxes must be in the order of their subscriptions."""
        boxes, rows = self._boxes, self._rows
        if boxes is not None:
            begin, end = (first, last) if rows is None else np.searchsorted(rows, [first, last])
            boxes = Boxes(boxes.low[begin:end], boxes.high[begin:end], boxes.exact[begin:end])
            rows = None if rows is None else rows[begin:end] - first
        predicates = None if self._predicates is None else self._predicates[first:last]
        ends = self._ends
        if len(ends.owners):
            ends = ends.take(slice(*np.searchsorted(ends.owners, [first, last])))
            ends = ends._replace(owners=ends.owners - first)
        piece = Filters(self.schema, self.ids[first:last], predicates, boxes, rows, ends)
        if boxes is not None:  # cut for all pieces at once, which is much faster
            unbounded = self.unbounded()
            piece._unbounded = unbounded[slice(*np.searchsorted(unbounded, [first, last]))] - first
        return piece

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def weight(self) -> int:
        """Number of boxes if they are compiled, or of subscriptions if there are more of them."""
        return len(self) if self._boxes is None else max(len(self), len(self._boxes.low))

    def named(self, ids: IntArray) -> Filters:
        """Return the same filters with other ids, int64 (n,), distinct."""
        named = Filters(self.schema, ids, self._predicates, self._boxes, self._rows, self._ends)
        named._unbounded = self._unbounded
        return named

    def of(self, schema: Schema) -> Filters:
        """Return the same filters for a schema that may have further attributes behind those of this one."""
        more = schema.dimensions - self.schema.dimensions
        if not more:
            return self
        boxes = self._boxes
        if boxes is not None:
            open_ends = np.full((len(boxes.low), more), np.inf)
            low, high = np.hstack([boxes.low, -open_ends]), np.hstack([boxes.high, open_ends])
            boxes = Boxes(low, high, boxes.exact)
        same = Filters(schema, self.ids, self._predicates, boxes, self._rows, self._ends)
        same._unbounded = self._unbounded
        return same

    @property
    def ends(self) -> Ends:
        """Exact ends of bounds that their boxes do not hold, owned by ids."""
        return self._ends.owned_by(self.ids[self._ends.owners]) if len(self._ends.owners) else self._ends

    def boxes(self) -> BoxColumns:
        """Return the boxes; the first call compiles them.

        Raises `PredicateError` if a predicate needs too many boxes; its `row` is that of the predicate.
        """
        low, high, exact = self._compiled()
        return BoxColumns(self.ids if self._rows is None else self.ids[self._rows], low, high, exact)

    def _compiled(self) -> Boxes:
        if self._boxes is None:
            self._compile()
            assert self._boxes is not None
        return self._boxes

    def _compile(self) -> None:
        assert self._predicates is not None
        compiled = []
        for row, predicate in enumerate(self._predicates):
            try:
                compiled.append(compile_predicate(predicate, self.schema))
            except PredicateError as error:
                error.row = row
                raise
        if len(compiled) == 1:
            self._boxes, boxes = compiled[0], len(compiled[0].low)
            self._rows = None if boxes == 1 else np.zeros(boxes, np.int64)
            return
        empty = np.empty((0, self.schema.dimensions))
        parts = [Boxes(empty, empty, np.empty(0, np.bool_)), *compiled]
        self._boxes = Boxes(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        self._rows = np.repeat(np.arange(len(compiled)), [len(own.low) for own in compiled])

    def exact(self) -> BoolArray:
        """Return whether all boxes of each subscription are exact, bool (n,)."""
        of_boxes = self._compiled().exact
        if self._rows is None:
            return of_boxes
        exact = np.ones(len(self), np.bool_)
        exact[self._rows[~of_boxes]] = False
        return exact

    def unbounded(self) -> IntArray:
        """Return the rows of subscriptions with a box that bounds and decides nothing, int64 (k,)."""
        if self._unbounded is None:
            boxes = self._compiled()
            # For the exact box of one subscription, NumPy would take longer than all the rest.
            if boxes.exact.item() if len(boxes.exact) == 1 else boxes.exact.all():
                self._unbounded = _NO_ROWS
            else:
                found = np.flatnonzero(unbounded(boxes, self.schema))
                self._unbounded = found if self._rows is None else np.unique(self._rows[found])
        return self._unbounded

    def impossible(self) -> IntArray:
        """Return the rows of subscriptions without a box, which no event satisfies, ascending, int64 (k,).

        The result is empty if the boxes are not compiled, as for matchers that work without boxes.
        """
        if self._boxes is None or self._rows is None:
            return _NO_ROWS
        return np.flatnonzero(np.bincount(self._rows, minlength=len(self)) == 0)

    def predicates(self) -> Sequence[Predicate]:
        """Return the n predicates.

        Raises `ValueError` if a subscription has only boxes, and these do not determine the predicate.
        """
        if self._predicates is not None:
            return self._predicates
        assert self._boxes is not None
        low, high, exact = self._boxes
        if self._rows is not None or not (exact | np.isin(np.arange(len(exact)), self._ends.owners)).all():
            raise ValueError("these boxes do not determine the predicates they were compiled from")
        sides = enumerate(zip(low, high, strict=True))
        return [bounds_predicate(*pair, self.schema, self._ends.of_row(row)) for row, pair in sides]
