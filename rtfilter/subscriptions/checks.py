"""Exact checks of many hits at once: what predicates ask for, in columns, which compiled code reads.

A box tells of a long text only how it begins, so hits of such boxes are checked. Where a rule's first check
comes among many, its predicate is written down as conditions: intervals of coordinates, and texts with how to
compare them. From then on a check compares bytes. Predicates that ask for more than that (a pattern with
wildcards, letters of any case, networks, two attributes) are left to Python. So are quantified constraints of
events with lists; of others they ask what their constraints ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from math import inf, nextafter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtfilter.dtypes import FloatArray, IntArray
from rtfilter.events.elements import is_of_choices
from rtfilter.events.encoding import EXACT, HIGHEST, LOWEST, MISSING, string, utf8
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.kernels.hash_tables import hash_id
from rtfilter.index.kernels.interrupts import unwrapped
from rtfilter.index.kernels.jit import kernel
from rtfilter.predicates.elements import asks_for_every
from rtfilter.predicates.model import Constraint, Predicate, Quantified, Test
from rtfilter.subscriptions.verdict import ASK, NO, UNKNOWN, YES

MOST: Final = 64
"""Conditions of one predicate that are written down."""
FEW, SHARE = 64, 8
"""New predicates that one call writes down: some, and one for so many hits: it takes longer than a check."""

INSIDE, ORDER, PREFIX = 0, 1, 2
LESS, EQUAL, GREATER = 1, 2, 4
_ORDERS: Final = {
    "<": LESS, "<=": LESS | EQUAL, "=": EQUAL, "<>": EQUAL, ">=": GREATER | EQUAL, ">": GREATER,
    "in": EQUAL, "not in": EQUAL,
}  # fmt: skip
_NEGATED: Final = frozenset(("<>", "not in", "not prefix"))
MORE, LAST_OF_TEST, LAST_OF_FILTER = 0, 1, 2

CONDITION: Final = np.dtype(
    [
        ("kind", np.int8),  # INSIDE, ORDER or PREFIX
        ("ends", np.int8),  # MORE: the next is an alternative; else what this is the last condition of
        ("negated", np.int8),  # all alternatives of a test alike
        ("accepts", np.int8),  # ORDER: LESS, EQUAL and GREATER that hold
        ("place", np.int32),  # INSIDE: the coordinate; else the column of texts
        ("low", np.float64),  # INSIDE: the least coordinate; else where the text begins
        ("high", np.float64),  # INSIDE: the greatest coordinate; else the size of the text
    ]
)
Condition = tuple[int, int, int, int, int, float, float]

_EMPTY: Final = -1
_KEY, _FIRST, _COUNT = 0, 1, 2


class Checks:
    """What is written down of predicates, by handle. Many may decide at once; who forgets must be alone."""

    def __init__(self, schema: Schema) -> None:
        fields = schema.fields
        self._places = {field.name: fields.places[field.name] for field in fields}
        self._families = {field.name: field.family for field in fields}
        self._names = [field.name for field in fields if field.family == "str"]
        self._columns = {name: column for column, name in enumerate(self._names)}
        self._lock, self._busy = threading.RLock(), False
        self._clear()

    def _clear(self) -> None:
        self._asked: set[int] = set()  # columns of texts that conditions ask for
        self._table = np.full((2, 3), _EMPTY, np.int64)  # handle, first condition and number of them
        self._keys = self._used = self._dead = self._bytes = 0
        self._listed: set[int] = set()  # handles whose conditions are those of events without lists
        self._conditions = np.empty(0, CONDITION)
        self._block = np.empty(0, np.uint8)

    def decide(
        self,
        handles: IntArray,
        owners: IntArray,
        events: EventTable,
        rows: IntArray | None,
        get: Callable[[int], Predicate | None],
    ) -> NDArray[np.int8]:
        """Return a verdict for each hit, int8 (k,): `NO`, `YES`, or `ASK`.

        Parameters
        ----------
        handles : int64 (k,)
        owners : int64 (k,)
            Of `rows`, or of `events` where there are none: the event of each hit.
        events : EventTable
        rows : int64 (n,) or None
            Rows of `events`.
        get : callable
            Gives the predicate of a handle, or None.
        """
        with self._lock:
            if self._busy:  # a signal handler matches events, in the midst of this
                return np.full(len(handles), ASK, np.int8)
            try:
                self._busy = True
                return self._decide(handles, owners, events, rows, get)
            finally:
                self._busy = False

    def _decide(
        self,
        handles: IntArray,
        owners: IntArray,
        events: EventTable,
        rows: IntArray | None,
        get: Callable[[int], Predicate | None],
    ) -> NDArray[np.int8]:
        places = np.arange(len(events)) if rows is None else rows
        verdicts = self._verdicts(handles, owners, events, places)
        unknown = np.flatnonzero(verdicts == UNKNOWN)
        if len(unknown):
            for handle in np.unique(handles[unknown])[: FEW + len(handles) // SHARE].tolist():
                self._write(handle, get(handle))
            verdicts[unknown] = self._verdicts(handles[unknown], owners[unknown], events, places)
            np.minimum(verdicts, ASK, out=verdicts)
        if self._listed and is_of_choices(events):
            verdicts[np.isin(handles, list(self._listed))] = ASK
        return verdicts

    @unwrapped
    def _verdicts(
        self, handles: IntArray, owners: IntArray, events: EventTable, places: IntArray
    ) -> NDArray[np.int8]:
        spans = np.full((len(self._names), len(places), 2), -1, np.int64)
        parts: list[bytes] = []
        at = 0
        for column in self._asked:
            for row, value in enumerate(events.values(self._names[column], places.tolist())):
                text = string(value)
                if text is not None:
                    part = utf8(text)
                    spans[column, row] = at, len(part)
                    parts.append(part)
                    at += len(part)
        texts = np.frombuffer(b"".join(parts), np.uint8) if parts else np.empty(0, np.uint8)
        return _verdicts(
            handles, owners, self._table, self._conditions, self._block, events.points, places, spans, texts
        )

    def _write(self, handle: int, predicate: Predicate | None) -> None:
        """Write a predicate down; one that is left to Python has no conditions."""
        found = None if predicate is None else self._conditions_of(predicate)
        conditions, block = found or ([], b"")
        self._conditions = _room(self._conditions, self._used + len(conditions))
        self._block = _room(self._block, self._bytes + len(block))
        first = self._used
        self._conditions[first : first + len(conditions)] = conditions
        self._block[self._bytes : self._bytes + len(block)] = np.frombuffer(block, np.uint8)
        self._used += len(conditions)
        self._bytes += len(block)
        self._asked.update(condition[4] for condition in conditions if condition[0] != INSIDE)
        if 2 * (self._keys + 1) > len(self._table):
            self._grow()
        if conditions and predicate is not None and asks_for_every(predicate):
            self._listed.add(handle)
        self._keys += int(_enter(self._table, handle, first, len(conditions)))  # last: now it is there

    def _grow(self) -> None:
        live = self._table[self._table[:, _FIRST] >= 0]
        size = 64
        while size < 4 * len(live):
            size *= 2
        table = np.full((size, 3), _EMPTY, np.int64)
        for handle, first, count in live.tolist():
            _enter(table, handle, first, count)
        self._table, self._keys = table, len(live)

    def forget(self, handles: IntArray) -> None:
        """Forget what is written down of some handles, int64 (n,); others are ignored."""
        if not self._keys:
            return
        self._dead += _forget(self._table, handles)
        if self._listed:
            self._listed.difference_update(handles.tolist())
        if 2 * self._dead > self._used:
            self._clear()

    def _conditions_of(self, predicate: Predicate) -> tuple[list[Condition], bytes] | None:
        """Its conditions and the bytes of their texts; None where Python decides."""
        found: list[Condition] = []
        block = b""
        for conjunction in predicate.filters:
            if not conjunction.constraints:
                return None
            tests = _of_one_element(conjunction.constraints)
            if tests is None:
                return None
            for test in tests:
                alternatives = self._alternatives(test)
                if not alternatives or len(found) + len(alternatives) > MOST:
                    return None
                negated = int(test.operator in _NEGATED)
                for kind, accepts, place, low, high, text in alternatives:
                    if kind != INSIDE:
                        low, high = self._bytes + len(block), len(text)
                    found.append((kind, MORE, negated, accepts, place, low, high))
                    block += text
                found[-1] = (found[-1][0], LAST_OF_TEST, *found[-1][2:])
            found[-1] = (found[-1][0], LAST_OF_FILTER, *found[-1][2:])
        return found, block

    def _alternatives(self, test: Constraint) -> list[tuple[int, int, int, float, float, bytes]] | None:
        """One of which must hold, or none if it is negated: kind, accepts, place, low, high, text."""
        name, operator, value = test
        place = self._places[name]
        if operator == "exists":
            return [(INSIDE, 0, place, LOWEST, inf, b"")]
        if operator == "is null":
            return [(INSIDE, 0, place, MISSING, MISSING, b"")]
        values: Iterable[Any] = value if operator in ("in", "not in") else (value,)
        if self._families[name] == "str":
            column = self._columns[name]
            if operator in ("prefix", "not prefix"):
                return [(PREFIX, 0, column, 0.0, 0.0, utf8(value))]
            if operator not in _ORDERS:
                return None
            return [(ORDER, _ORDERS[operator], column, 0.0, 0.0, utf8(one)) for one in values]
        if any(abs(one) >= EXACT for one in values):
            return None
        return [(INSIDE, 0, place, *_interval(operator, float(one)), b"") for one in values]


def _of_one_element(tests: Iterable[Test]) -> list[Constraint] | None:
    """The constraints that a filter is of events without lists; None for other tests and for disjunctions."""
    found: list[Constraint] = []
    for test in tests:
        if isinstance(test, Quantified) and (test.quantifier == "any" or len(test.tests) == 1):
            found += test.tests
        elif isinstance(test, Constraint):
            found.append(test)
        else:
            return None
    return found


def exercise() -> None:
    """Use all kernels once, which loads or compiles them."""
    schema = Schema({"s": str})
    checks, one = Checks(schema), np.zeros(1, np.int64)
    predicate = Predicate.parse("s LIKE 'a%'", schema)
    checks.decide(one, one, schema.read([{"s": "a"}]), None, lambda handle: predicate)
    checks.forget(one)


def _interval(operator: str, value: float) -> tuple[float, float]:
    """Least and greatest coordinate for which an operator holds, or, of a negated one, does not hold."""
    match operator:
        case "<":
            return LOWEST, nextafter(value, -inf)
        case "<=":
            return LOWEST, value
        case ">":
            return nextafter(value, inf), HIGHEST
        case ">=":
            return value, HIGHEST
        case _:
            return value, value


def _room(array: NDArray[Any], count: int) -> NDArray[Any]:
    """An array with room for so many elements: this one, or a larger one with all that is in it."""
    if count <= len(array):
        return array
    larger = np.empty(max(count, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def _place(table: IntArray, handle: int) -> np.int64:
    """Where a handle is, or would be entered."""
    last = np.uint64(len(table) - 1)
    place = hash_id(handle) & last
    while table[place, _KEY] != _EMPTY and table[place, _KEY] != handle:
        place = (place + np.uint64(1)) & last
    return np.int64(place)


@kernel
def _enter(table: IntArray, handle: int, first: int, count: int) -> np.int64:
    """Enter a handle; returns how many places that took."""
    place = _place(table, handle)
    new = np.int64(table[place, _KEY] == _EMPTY)
    table[place, _FIRST], table[place, _COUNT] = first, count
    table[place, _KEY] = handle
    return new


@kernel
def _forget(table: IntArray, handles: IntArray) -> int:
    """Keep nothing but the keys of some handles; returns how many conditions they had."""
    count = 0
    for handle in handles:
        place = _place(table, handle)
        if table[place, _KEY] == handle and table[place, _FIRST] >= 0:
            count += table[place, _COUNT]
            table[place, _FIRST] = -1
    return count


@kernel
def _verdicts(
    handles: IntArray,
    owners: IntArray,
    table: IntArray,
    conditions: NDArray[np.void],
    block: NDArray[np.uint8],
    points: FloatArray,
    places: IntArray,
    spans: IntArray,
    texts: NDArray[np.uint8],
) -> NDArray[np.int8]:
    """A verdict for each hit.

    `spans` has where the text of an event begins, and its size, by column and owner; -1 where there is none.
    """
    verdicts = np.empty(len(handles), np.int8)
    last = np.uint64(len(table) - 1)
    for hit in range(len(handles)):
        handle = handles[hit]  # as in `_place`, which numba would call, and count references to the table
        place = hash_id(handle) & last
        while table[place, _KEY] != _EMPTY and table[place, _KEY] != handle:
            place = (place + np.uint64(1)) & last
        first, count = table[place, _FIRST], table[place, _COUNT]
        if table[place, _KEY] == _EMPTY or first < 0:
            verdicts[hit] = UNKNOWN
            continue
        verdicts[hit] = ASK if count == 0 else NO
        owner = owners[hit]
        every = one = True  # tests of this filter so far; of this test, whether an alternative is yet to hold
        for at in range(first, first + count):
            condition = conditions[at]
            if every and one:
                present = holds = False
                if condition.kind == INSIDE:
                    value = points[places[owner], condition.place]
                    holds = condition.low <= value <= condition.high
                    present = LOWEST <= value <= HIGHEST
                else:
                    begin, size = spans[condition.place, owner, 0], spans[condition.place, owner, 1]
                    begins, length = np.int64(condition.low), np.int64(condition.high)
                    present = size >= 0
                    shared, same = min(size, length), 0
                    while same < shared and texts[begin + same] == block[begins + same]:
                        same += 1
                    if condition.kind == PREFIX:
                        holds = present and same == length
                    elif present:
                        order = EQUAL
                        if same < shared:
                            order = LESS if texts[begin + same] < block[begins + same] else GREATER
                        elif size != length:
                            order = LESS if size < length else GREATER
                        holds = condition.accepts & order != 0
                one = not holds
                if condition.ends != MORE or holds:
                    every = (present and not holds) if condition.negated else holds
            if condition.ends != MORE:
                one = True
            if condition.ends == LAST_OF_FILTER:
                if every:
                    verdicts[hit] = YES
                    break
                every = True
    return verdicts
