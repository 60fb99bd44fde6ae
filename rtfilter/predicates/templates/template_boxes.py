"""The boxes of all conditions of a template, computed column by column.

They equal the boxes of `rtfilter.predicates.boxes.compiling.compile_predicate`, in the same order. Conditions
with many pieces or equal boxes are left to that function.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.events.encoding import (
    EXACT,
    HIGHEST,
    IDENTITY_MAX,
    LOWEST,
    STRING_BYTES,
    string_codes,
    utf8,
)
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes.affixes import affix_of
from rtfilter.predicates.boxes.compiling import (
    ENDINGS,
    ENDS,
    MAX_BOXES,
    Boxes,
    pieces_of,
    text_range,
)
from rtfilter.predicates.boxes.narrowing import MAX_SPLIT, implied
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.operands.like import start as like_start
from rtfilter.predicates.templates.condition_templates import Hole, Template


class _Sides(NamedTuple):
    """The pieces of one attribute."""

    usable: BoolArray
    """bool (n,)."""
    starts: IntArray
    """int64 (n,): the first piece of each condition."""
    counts: IntArray
    """int64 (n,): the number of its pieces."""
    low: FloatArray
    """float64 (p, width)."""
    high: FloatArray
    """float64 (p, width)."""
    exact: BoolArray
    """bool (p,)."""


class TemplateBoxes:
    """The compiler of a template: it makes boxes from the constants of its conditions."""

    def __init__(self, template: Template, schema: Schema) -> None:
        self._schema = schema
        self._filters = [_Tests(tests, schema) for tests in template.filters]
        shape = (2, schema.dimensions)
        self._multipliers = np.random.default_rng(1).integers(1, 2**63, shape, np.uint64)

    def compute(self, columns: list[list[Any]], count: int) -> tuple[BoolArray, IntArray, Boxes]:
        """Return the boxes of `count` conditions; `columns` has their values, slot by slot.

        Returns
        -------
        usable : bool (n,)
            The conditions with boxes here; the others have to be compiled one by one.
        owners : int64 (m,), ascending
            The condition of each box, from 0; a condition may have none.
        boxes : Boxes
            m boxes.
        """
        usable = np.ones(count, np.bool_)
        parts = [tests.boxes(columns, count, usable) for tests in self._filters]
        if len(parts) == 1:
            owners, boxes = parts[0]
        else:
            empty = np.empty((0, self._schema.dimensions))
            none = np.empty(0, np.int64), Boxes(empty, empty, np.empty(0, np.bool_))
            owners = np.concatenate([own for own, _ in (none, *parts)])
            sides: Any = zip(*(boxes for _, boxes in (none, *parts)), strict=True)
            order = np.argsort(owners, kind="stable")
            owners, boxes = owners[order], Boxes(*(np.concatenate(side)[order] for side in sides))
            self._leave_equal(usable, owners, boxes)
        if not usable.all():
            own = usable[owners]
            owners, boxes = owners[own], Boxes(boxes.low[own], boxes.high[own], boxes.exact[own])
        return usable, owners, boxes

    def _leave_equal(self, usable: BoolArray, owners: IntArray, boxes: Boxes) -> None:
        """Mark conditions as unusable that have too many boxes, or that may have two equal ones."""
        usable &= np.bincount(owners, minlength=len(usable)) <= MAX_BOXES
        low, high = (side.view(np.uint64) * own for side, own in zip(boxes, self._multipliers, strict=False))
        mixed = low.sum(axis=1) ^ high.sum(axis=1) * np.uint64(3)
        order = np.lexsort((mixed, owners))
        own, mixed = owners[order], mixed[order]
        usable[own[1:][(own[1:] == own[:-1]) & (mixed[1:] == mixed[:-1])]] = False


class _Tests:
    """A conjunction of a template."""

    def __init__(self, tests: list[Any], schema: Schema) -> None:
        self._schema = schema
        self._sharp = not any(isinstance(test, Comparison) for test in tests)
        self._by_name: dict[str, list[Hole]] = {}
        for test in tests:
            follow = implied(test) if isinstance(test, Comparison) else [test]
            for one in follow:
                hole = one if type(one) is Hole else Hole(one.attribute, one.operator, (), one.value)
                self._by_name.setdefault(hole.attribute, []).append(hole)

    def boxes(self, columns: list[list[Any]], count: int, usable: BoolArray) -> tuple[IntArray, Boxes]:
        """Return the owners and boxes of this filter, and mark in `usable` the conditions to leave."""
        total = np.ones(count, np.int64)
        found: list[tuple[str, _Sides]] = []
        for name, own in self._by_name.items():
            attribute = self._schema.attributes[name]
            if attribute.ordinal and all(hole.operator in ENDS for hole in own):
                sides = _ends(own, columns, count)
            elif attribute.family == "str" and len(own) == 1 and own[0].slots and own[0].operator in _TEXTS:
                sides = _texts(own[0], columns)
            else:
                sides = _pieces(self._schema, own, columns, count)
            usable &= sides.usable
            total = np.minimum(total * sides.counts, MAX_SPLIT + 1)
            found.append((name, sides))
        usable &= total <= MAX_SPLIT
        total[~usable] = 0
        owners = np.repeat(np.arange(count), total)
        # In the order of itertools.product: the last attribute changes fastest.
        turn = np.arange(len(owners)) - np.repeat(np.cumsum(total) - total, total)
        low = np.full((len(owners), self._schema.dimensions), -inf)
        high = np.full((len(owners), self._schema.dimensions), inf)
        exact = np.full(len(owners), self._sharp)
        for name, sides in reversed(found):
            counts = sides.counts[owners]
            places = sides.starts[owners] + turn % counts
            turn //= counts
            at = self._schema.offsets[name]
            to = at + self._schema.attributes[name].width
            low[:, at:to], high[:, at:to] = sides.low[places], sides.high[places]
            exact &= sides.exact[places]
        return owners, Boxes(low + 0.0, high + 0.0, exact)  # -0.0 becomes 0.0, as in `compile_predicate`


def _ends(own: list[Hole], columns: list[list[Any]], count: int) -> _Sides:
    """Return the ends of numbers or timestamps; conditions with ends that are not sharp are not usable."""
    low, high = np.full(count, LOWEST), np.full(count, HIGHEST)
    usable = np.ones(count, np.bool_)
    for hole in own:
        given = columns[hole.slots[0]] if hole.slots else [hole.value] * count
        values: FloatArray = np.array(given, np.float64)
        usable &= np.abs(values) < EXACT
        if hole.operator in (">=", "="):
            low = np.maximum(low, values)
        if hole.operator in ("<=", "="):
            high = np.minimum(high, values)
        with np.errstate(over="ignore"):  # beyond the last number; such rows are not usable
            if hole.operator == ">":
                low = np.maximum(low, np.nextafter(values, inf))
            if hole.operator == "<":
                high = np.minimum(high, np.nextafter(values, -inf))
    counts = (low <= high).astype(np.int64)
    exact = np.ones(count, np.bool_)
    return _Sides(usable, np.arange(count), counts, low[:, np.newaxis], high[:, np.newaxis], exact)


def _texts(hole: Hole, columns: list[list[Any]]) -> _Sides:
    """Return the sides of a constraint of text that has one piece in all conditions."""
    low, high, exact = _TEXTS[hole.operator](columns[hole.slots[0]])
    count = len(exact)
    return _Sides(np.ones(count, np.bool_), np.arange(count), np.ones(count, np.int64), low, high, exact)


_Ends = tuple[FloatArray, FloatArray, BoolArray]
"""Low and high ends, float64 (n, 3), and whether they are exact, bool (n,)."""


def _equal(texts: list[str]) -> _Ends:
    low = string_codes(texts)
    high = low.copy()
    low[:, 2], high[:, 2] = -inf, inf
    return low, high, low[:, 1] <= IDENTITY_MAX // 2  # short strings have the lower half


def _prefix(texts: list[str]) -> _Ends:
    low, high, exact = _beginning(texts)
    low[:, 1] = [affix_of("prefix", text).end for text in texts]
    return low, high, exact


def _beginning(texts: list[str]) -> _Ends:
    starts = list(map(utf8, texts))
    ranges: FloatArray = np.array(list(map(text_range, starts)), np.float64)
    sharp = [len(start) <= STRING_BYTES and not start.endswith(b"\0") for start in starts]
    low, high = np.full((len(starts), 3), -inf), np.full((len(starts), 3), inf)
    low[:, 0], high[:, 0] = ranges[:, 0], ranges[:, 1] - 1  # whole numbers below 2**53
    return low, high, np.array(sharp, np.bool_)


def _alike(patterns: list[str]) -> _Ends:
    low, high, exact = _beginning(list(map(like_start, patterns)))
    low[:, 1] = [affix_of("like", pattern).end for pattern in patterns]
    low[:, 2], high[:, 2] = np.array(list(map(ENDINGS["like"], patterns)), np.float64).T
    return low, high, np.zeros_like(exact)


_TEXTS: Final[dict[str, Callable[[list[str]], _Ends]]] = {"=": _equal, "prefix": _prefix, "like": _alike}


def _pieces(schema: Schema, own: list[Hole], columns: list[list[Any]], count: int) -> _Sides:
    """Return the sides of all other constraints, value by value; repeated values are compiled once."""
    name = own[0].attribute
    slots = sorted({slot for hole in own for slot in hole.slots})
    known: dict[tuple[Any, ...], tuple[int, int]] = {}
    places: list[tuple[int, int]] = []
    low: list[tuple[float, ...]] = []
    high: list[tuple[float, ...]] = []
    exact: list[bool] = []
    rows: Any = zip(*(columns[slot] for slot in slots), strict=True) if slots else [()] * count
    for row in rows:
        place = known.get(row)
        if place is None:
            given = dict(zip(slots, row, strict=True))
            pieces = pieces_of(name, [hole.constraint(given) for hole in own], schema)
            place = known[row] = len(exact), len(pieces)
            for piece in pieces:
                low.append(piece.low)
                high.append(piece.high)
                exact.append(piece.exact)
        places.append(place)
    found = np.array(places, np.int64)
    lows, highs = (_column(side, schema.attributes[name].width) for side in (low, high))
    return _Sides(np.ones(count, np.bool_), found[:, 0], found[:, 1], lows, highs, np.array(exact, np.bool_))


def _column(side: list[tuple[float, ...]], width: int) -> AnyArray:
    return np.array(side, np.float64).reshape(-1, width)
