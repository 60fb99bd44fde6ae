"""Exact checks of many candidates at once, by compiled code on columns of conditions.

A box knows only the beginning of a long text, so candidates of such boxes are verified. The first check of a
predicate compiles it to conditions: intervals of coordinates, texts with an order, and patterns. Later checks
compare bytes. Letters of either case are compared in folded texts, a column beside the plain one. Networks,
two attributes and a few more constraints have no such form: if the rest of a conjunction holds, Python checks
them. Python also checks quantified constraints for events with lists; for other events their inner
constraints are conditions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from math import inf, nextafter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import BoolArray, Flags, FloatArray, IntArray
from rtfilter.events.elements import is_of_choices
from rtfilter.events.encoding import HIGHEST, LOWEST, MISSING, utf8
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.kernels.array_types import Byte1, Int1, Int2, Int32_1
from rtfilter.index.kernels.borrow import ByAddress
from rtfilter.index.kernels.hash_tables import hash_id
from rtfilter.index.kernels.jit import kernel, part, unwrapped
from rtfilter.predicates.boxes.cost import EQUAL, GREATER, LESS, MOST, ORDERS, count_conditions
from rtfilter.predicates.model.constraints import SETS, Constraint, Filter, Quantified, Test, is_negated
from rtfilter.predicates.model.disjunction import asks_for_every
from rtfilter.predicates.operands.like import ANY, EACH, in_bytes
from rtfilter.predicates.operands.text_comparison import encoded, encoded_one
from rtfilter.predicates.predicate import Predicate
from rtfilter.subscriptions.verification import ASK, NO, UNKNOWN, YES

AT_ONCE, SHARE = 4096, 8
"""New predicates that one call compiles, before Python checks the others: other threads wait meanwhile.

`AT_ONCE`, in some tenths of a second, and one for each `SHARE` candidates.
"""
DENSE: Final = 8
"""Candidates for each event from which all texts are encoded: to look up which are needed takes longer."""
SORTED: Final = 4
"""Conditions for each candidate up to which candidates are sorted, so that conditions are read in order."""
STEPS: Final = 16
"""Failed comparisons for each byte of a text, after which Python searches the text in linear time."""

INSIDE, ORDER, PATTERN, PYTHON = 0, 1, 2, 3
MORE, LAST_OF_TEST, LAST_OF_FILTER, LAST = 0, 1, 2, 3

CONDITION: Final = np.dtype(
    [
        ("kind", np.int8),  # INSIDE, ORDER, PATTERN, or PYTHON, which leaves the decision to Python
        ("ends", np.int8),  # MORE: an alternative follows; else the kind of group that ends here
        ("negated", np.int8),  # the same for all alternatives of a constraint
        ("accepts", np.int8),  # ORDER: the results LESS, EQUAL, GREATER that satisfy it
        ("place", np.int32),  # INSIDE: the coordinate; else the column of texts
        ("low", np.float64),  # INSIDE: the least coordinate; else where the text or pattern begins
        ("high", np.float64),  # INSIDE: the greatest coordinate; else the size of the text or pattern
    ]
)
Condition = tuple[int, int, int, int, int, float, float]
Alternative = tuple[int, int, int, float, float, bytes]
"""Kind, accepts, place, low, high, and the bytes of the text or pattern."""


class CompiledConditions(NamedTuple):
    """The conditions of all predicates compiled so far."""

    table: Int2  # int64 (n, 3): handle, first condition and number of them; a hash table
    conditions: NDArray[np.void]  # records `CONDITION`
    block: Byte1  # uint8: the bytes of texts and patterns


_EMPTY: Final = -1
_KEY, _FIRST, _COUNT = 0, 1, 2


def _nothing() -> CompiledConditions:
    table = np.full((2, 3), _EMPTY, np.int64)
    return CompiledConditions(table, np.empty(0, CONDITION), np.empty(0, np.uint8))


WRITTEN_BY_ADDRESS = ByAddress(_nothing)
opened_written = WRITTEN_BY_ADDRESS.opened

SEPARATOR, NO_TEXT = 0xFF, 0xFE
"""Bytes that no text in UTF-8 has: they separate the texts of one event, and stand for a missing one."""
_SEPARATOR, _NO_TEXT = bytearray((SEPARATOR,)), bytes((NO_TEXT,))

_PYTHON: Final[list[Alternative]] = [(PYTHON, 0, 0, 0.0, 0.0, b"")]


class Checks:
    """The compiled conditions of predicates, by handle.

    Threads may verify at the same time; `forget` must run alone.
    """

    def __init__(self, schema: Schema) -> None:
        fields = schema.fields
        self._places = {field.name: fields.places[field.name] for field in fields}
        self._families = {field.name: field.family for field in fields}
        self._lock, self._busy = threading.RLock(), False
        self._clear()

    def _clear(self) -> None:
        # First, so that an interrupt leaves no conditions that ask for columns of before.
        self._use(_nothing(), 0)
        self._columns: dict[tuple[str, bool], int] = {}  # texts that conditions ask for, and whether folded
        self._used = self._dead = self._bytes = 0
        self._listed: set[int] = set()  # handles whose conditions hold for events without lists only

    def _use(self, written: CompiledConditions, keys: int) -> None:
        """Use arrays from now on; the table has `keys` handles."""
        where = WRITTEN_BY_ADDRESS.addresses(written)
        # No signal interrupts this line: arrays and their addresses belong together.
        self._written, self._where, self._keys = written, where, keys

    def decide(
        self,
        handles: IntArray,
        owners: IntArray,
        events: EventTable,
        rows: IntArray | None,
        get: Callable[[int], Predicate | None],
    ) -> NDArray[np.int8]:
        """Return a verdict for each of k candidates, int8 (k,): `NO`, `YES`, or `ASK`.

        The event of each is its owner: a place in `rows` of events, or in all events if `rows` is None. `get`
        returns the predicate of a handle, None if it is unknown.
        """
        with self._lock:
            if self._busy:  # a signal handler matches events during a call
                return np.full(len(handles), ASK, np.int8)
            try:
                self._busy = True
                return self._decide(handles, owners, events, rows, get)
            finally:
                self._busy = False

    def decide_one(
        self, handles: IntArray, exact: Flags, event: EventTable, get: Callable[[int], Predicate | None]
    ) -> Flags:
        """Return `decide` for the hits of one event without lists, uint8 (k,); `YES` for exact hits.

        `exact` is 0 for each candidate, as in `Hits.exact`. Calls of NumPy take most of the time, so there
        are few.
        """
        verdicts = exact.copy()
        with self._lock:
            if self._busy:
                verdicts[verdicts == NO] = ASK
                return verdicts
            try:
                self._busy = True
                _decide_one(self._where, handles, verdicts, event.points, self._texts_of_one(event))
                if UNKNOWN in verdicts.tobytes():
                    unknown = verdicts == UNKNOWN
                    self._write_some(handles[unknown], len(handles), get)
                    verdicts[unknown] = NO
                    _decide_one(self._where, handles, verdicts, event.points, self._texts_of_one(event))
                    np.minimum(verdicts, ASK, out=verdicts)
            finally:
                self._busy = False
        return verdicts

    def _texts_of_one(self, event: EventTable) -> NDArray[np.uint8]:
        """Encode all texts of one event that conditions ask for, with separators."""
        texts = [encoded_one(event.value(name), folded) for name, folded in self._columns]
        parts = [_NO_TEXT if text is None else text for text in texts]
        return np.frombuffer(_SEPARATOR.join(parts), np.uint8)  # writable: numba is faster

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
        if UNKNOWN in verdicts.tobytes():
            unknown = np.flatnonzero(verdicts == UNKNOWN)
            self._write_some(np.unique(handles[unknown]), len(handles), get)
            verdicts[unknown] = self._verdicts(handles[unknown], owners[unknown], events, places)
            np.minimum(verdicts, ASK, out=verdicts)
        if self._listed and is_of_choices(events):
            verdicts[np.isin(handles, list(self._listed))] = ASK
        return verdicts

    def _write_some(self, handles: IntArray, candidates: int, get: Callable[[int], Predicate | None]) -> None:
        for handle in handles[: AT_ONCE + candidates // SHARE].tolist():
            self._write(handle, get(handle))

    @unwrapped
    def _verdicts(
        self, handles: IntArray, owners: IntArray, events: EventTable, places: IntArray
    ) -> NDArray[np.int8]:
        asked = np.zeros((len(self._columns), len(places)), np.bool_)
        if len(handles) < DENSE * len(places):
            firsts = _find(self._where, handles, owners, asked)
        else:
            firsts = _find(self._where, handles, owners, asked[:0])
            some = np.zeros(len(places), np.bool_)
            some[owners] = True
            asked[:] = some
        sizes, texts = self._texts(events, places, asked)
        return _verdicts(self._where, firsts, owners, events.points, places, sizes, texts)

    def _texts(
        self, events: EventTable, places: IntArray, asked: BoolArray
    ) -> tuple[IntArray, NDArray[np.uint8]]:
        """Encode the texts that are asked for.

        Returns their sizes in bytes, by column and owner, -1 for none, and the bytes of all texts in this
        order.
        """
        sizes = np.empty(asked.shape, np.int64)
        sizes.fill(-1)
        parts: list[bytes] = []
        for (name, folded), column in self._columns.items():
            owners = asked[column].nonzero()[0]
            if len(owners):
                sizes[column, owners], part = encoded(events.values(name, places[owners].tolist()), folded)
                parts.append(part)
        return sizes, np.frombuffer(bytearray().join(parts), np.uint8)

    def _write(self, handle: int, predicate: Predicate | None) -> None:
        conditions, block = self._conditions_of(() if predicate is None else predicate.filters)
        table, rows, texts = self._written
        first, keys = self._used, self._keys
        if 2 * (keys + 1) > len(table):
            table, keys = _larger(table)
        rows, texts = _room(rows, first + len(conditions)), _room(texts, self._bytes + len(block))
        written = CompiledConditions(table, rows, texts)
        if any(new is not old for new, old in zip(written, self._written, strict=True)):
            self._use(written, keys)
        rows[first : first + len(conditions)] = conditions
        texts[self._bytes : self._bytes + len(block)] = np.frombuffer(block, np.uint8)
        self._used += len(conditions)
        self._bytes += len(block)
        if predicate is not None and asks_for_every(predicate):
            self._listed.add(handle)
        self._keys += int(_enter(table, handle, first, len(conditions)))  # last: now it is found

    def forget(self, handles: IntArray) -> None:
        """Remove the conditions of some handles, int64 (n,); unknown ones are ignored."""
        if not self._keys:
            return
        self._dead += _forget(self._written.table, handles)
        if self._listed:
            self._listed.difference_update(handles.tolist())
        if 2 * self._dead > self._used:
            self._clear()

    def _conditions_of(self, filters: Iterable[Filter]) -> tuple[list[Condition], bytes]:
        """Compile a predicate; return its conditions, at least one, and the bytes of texts and patterns."""
        found: list[Condition] = []
        block = bytearray()
        for conjunction in filters:
            tests = [self._alternatives(test) for test in _of_one_element(conjunction.constraints)]
            tests = sorted(tests, key=lambda own: own[1][0][0]) or [(False, _PYTHON)]  # cheapest first
            if len(found) + sum(len(alternatives) for _, alternatives in tests) > MOST:
                break
            for negated, alternatives in tests:
                for kind, accepts, place, low, high, text in alternatives:
                    if kind in (ORDER, PATTERN):
                        low, high = self._bytes + len(block), len(text)
                    found.append((kind, MORE, negated, accepts, place, low, high))
                    block += text
                _end(found, LAST_OF_TEST)
            _end(found, LAST_OF_FILTER)
        else:
            if found:
                _end(found, LAST)
                return found, bytes(block)
        return [(PYTHON, LAST, 0, 0, 0, 0.0, 0.0)], b""

    def _alternatives(self, test: Test) -> tuple[bool, list[Alternative]]:
        """Return whether a constraint is negated, and its alternatives: one must hold, or none if negated."""
        if not isinstance(test, Constraint) or not count_conditions(test, self._families):
            return False, _PYTHON
        name, operator, value = test
        place = self._places[name]
        negated = is_negated(operator)
        if operator == "exists":
            return False, [(INSIDE, 0, place, LOWEST, inf, b"")]
        if operator == "is null":
            return False, [(INSIDE, 0, place, MISSING, MISSING, b"")]
        constants: Iterable[Any] = value if operator in SETS else (value,)
        if self._families[name] != "str":
            return negated, [(INSIDE, 0, place, *_interval(operator, float(one)), b"") for one in constants]
        accepts = ORDERS.get(operator, 0)
        column = self._columns.setdefault((name, operator.endswith("ignore case")), len(self._columns))
        if accepts:
            return negated, [(ORDER, accepts, column, 0.0, 0.0, utf8(one)) for one in constants]
        pattern = utf8(value) + bytes((ANY,)) if operator.endswith("prefix") else in_bytes(value)
        return negated, [(PATTERN, 0, column, 0.0, 0.0, pattern)]


def _end(conditions: list[Condition], ends: int) -> None:
    """Mark the last condition as the end of a constraint, a conjunction or the predicate."""
    conditions[-1] = (conditions[-1][0], ends, *conditions[-1][2:])


def _of_one_element(tests: Iterable[Test]) -> list[Test]:
    """Return constraints for events without lists: quantified ones give the constraints inside them."""
    found: list[Test] = []
    for test in tests:
        if isinstance(test, Quantified) and (test.quantifier == "any" or len(test.tests) == 1):
            found += test.tests
        else:
            found.append(test)
    return found


def exercise() -> None:
    """Run all kernels once, which compiles or loads them."""
    schema = Schema({"s": str})
    checks, one = Checks(schema), np.zeros(1, np.int64)
    predicate = Predicate.parse("s LIKE 'a%'", schema)
    event = schema.read([{"s": "a"}])
    checks.decide(one, one, event, None, lambda handle: predicate)
    checks.decide_one(one, one.astype(np.uint8), event, lambda handle: predicate)
    checks.forget(one)


def _interval(operator: str, value: float) -> tuple[float, float]:
    """Return the least and greatest coordinate that satisfy an operator; of ``!=``, that violate it."""
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


def _larger(old: IntArray) -> tuple[IntArray, int]:
    """Return a larger table of the live entries, and their number."""
    live = old[old[:, _FIRST] >= 0]
    size = 64
    while size < 4 * len(live):
        size *= 2
    table = np.full((size, 3), _EMPTY, np.int64)
    for handle, first, count in live.tolist():
        _enter(table, handle, first, count)
    return table, len(live)


def _room(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Return an array with room for `count` elements: this one, or a larger copy."""
    if count <= len(array):
        return array
    larger = np.empty(max(count, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def _place(table: IntArray, handle: int) -> np.int64:
    """Return the place of a handle in the table, or the free place for it."""
    last = np.uint64(len(table) - 1)
    place = hash_id(handle) & last
    while table[place, _KEY] != _EMPTY and table[place, _KEY] != handle:
        place = (place + np.uint64(1)) & last
    return np.int64(place)


@kernel
def _enter(table: IntArray, handle: int, first: int, count: int) -> np.int64:
    """Enter a handle; return how many places that took."""
    place = _place(table, handle)
    new = np.int64(table[place, _KEY] == _EMPTY)
    table[place, _FIRST], table[place, _COUNT] = first, count
    table[place, _KEY] = handle
    return new


@kernel
def _forget(table: IntArray, handles: IntArray) -> int:
    """Remove all from the table but the keys of some handles; return how many conditions these had."""
    count = 0
    for handle in handles:
        place = _place(table, handle)
        if table[place, _KEY] == handle and table[place, _FIRST] >= 0:
            count += table[place, _COUNT]
            table[place, _FIRST] = -1
    return count


@part
def _place_of(table: IntArray, handle: int) -> np.int64:
    """Return the place in the table of a handle that has conditions, -1 for others."""
    place = _place(table, handle)
    known = table[place, _KEY] == handle and table[place, _FIRST] >= 0
    return place if known else np.int64(-1)


@kernel
def _find(where: Int1, handles: IntArray, owners: IntArray, asked: BoolArray) -> IntArray:
    """Return the first condition of each candidate, or -1, and mark the texts that its conditions need.

    Nothing is marked if `asked` is empty.
    """
    written = opened_written(where)
    table, conditions = written.table, written.conditions
    firsts = np.empty(len(handles), np.int64)
    for hit in range(len(handles)):
        place = _place_of(table, handles[hit])
        firsts[hit] = -1
        if place >= 0:
            at = firsts[hit] = table[place, _FIRST]
            count = table[place, _COUNT] if len(asked) else 0
            for own in range(at, at + count):
                condition = conditions[own]
                if condition.kind == ORDER or condition.kind == PATTERN:
                    asked[condition.place, owners[hit]] = True
    return firsts


@part
def _fits(
    texts: NDArray[np.uint8],
    place: np.int64,
    end: np.int64,
    block: NDArray[np.uint8],
    at: np.int64,
    stop: np.int64,
) -> int:
    """Compare texts[place:end] with the pattern block[at:stop]: YES, NO, or ASK if that takes too long.

    The pieces before the first and behind the last `ANY` have fixed places. Each piece between them is
    matched at the first place where it fits.
    """
    left = STEPS * (end - place)
    while at < stop and block[at] != ANY:
        if place == end or (block[at] != EACH and block[at] != texts[place]):
            return NO
        place += 1
        if block[at] == EACH:
            while place < end and texts[place] & 0xC0 == 0x80:  # the rest of a character
                place += 1
        at += 1
    if at == stop:
        return YES if place == end else NO
    while block[stop - 1] != ANY:
        stop -= 1
        end -= 1
        if end < place or (block[stop] != EACH and block[stop] != texts[end]):
            return NO
        if block[stop] == EACH:
            while end > place and texts[end] & 0xC0 == 0x80:
                end -= 1
    at += 1
    while at < stop:  # at a piece; its first byte is no `EACH`, and an `ANY` ends it
        while place < end and texts[place] != block[at]:
            place += 1
        here, own = place, at
        while block[own] != ANY:
            if here == end:  # later places are too near to the end as well
                return NO
            if block[own] != EACH and block[own] != texts[here]:
                break
            here += 1
            if block[own] == EACH:
                while here < end and texts[here] & 0xC0 == 0x80:
                    here += 1
            own += 1
        if block[own] == ANY:
            place, at = here, own + 1
            continue
        place += 1
        left -= own - at
        if left < 0:
            return ASK
    return YES


@part
def _verdict(
    written: CompiledConditions,
    at: int,
    points: FloatArray,
    row: int,
    ends: IntArray,
    owner: int,
    texts: Byte1,
) -> int:
    """Return the verdict of the conditions from `at` on for the event ``points[row]``.

    ``ends[owner]`` has the first byte and the size of each of its texts in `texts`, by column; a size of -1
    for none. There are no views of arrays: numba would count references to each.
    """
    conditions, block = written.conditions, written.block
    every = one = True  # of the conjunction: all held so far; of the constraint: none held yet
    while True:
        condition = conditions[at]
        if every and one:
            present = holds = False
            if condition.kind == INSIDE:
                value = points[row, condition.place]
                holds = condition.low <= value <= condition.high
                present = LOWEST <= value <= HIGHEST
            elif condition.kind == PYTHON:
                return ASK
            else:
                begin, size = ends[owner, condition.place, 0], ends[owner, condition.place, 1]
                own, length = np.int64(condition.low), np.int64(condition.high)
                present = size >= 0
                if present and condition.kind == PATTERN:
                    fits = _fits(texts, begin, begin + size, block, own, own + length)
                    if fits == ASK:
                        return ASK
                    holds = fits == YES
                elif present:
                    shared, same = min(size, length), 0
                    while same < shared and texts[begin + same] == block[own + same]:
                        same += 1
                    order = EQUAL
                    if same < shared:
                        order = LESS if texts[begin + same] < block[own + same] else GREATER
                    elif size != length:
                        order = LESS if size < length else GREATER
                    holds = condition.accepts & order != 0
            one = not holds
            if condition.ends != MORE or holds:
                every = (present and not holds) if condition.negated else holds
        if condition.ends != MORE:
            one = True
        if condition.ends >= LAST_OF_FILTER:
            if every:
                return YES
            every = True
        if condition.ends == LAST:
            return NO
        at += 1


@part
def _sorted(firsts: IntArray, owners: IntArray) -> tuple[Int32_1, Int32_1, Int32_1]:
    """Sort candidates by their first conditions, by counting; three empty arrays if there are few.

    Returns where the candidates of each condition begin, from -1 on, the candidates, and their owners.
    """
    most = np.int64(-1)
    for first in firsts:
        most = max(most, first)
    if most > SORTED * len(firsts):
        return np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int32)
    begins = np.zeros(most + 4, np.int32)
    for first in firsts:
        begins[first + 3] += 1
    for at in range(len(begins) - 1):
        begins[at + 1] += begins[at]
    order, owners_of = np.empty(len(firsts), np.int32), np.empty(len(firsts), np.int32)
    for hit in range(len(firsts)):
        place = begins[firsts[hit] + 2]
        order[place], owners_of[place] = hit, owners[hit]
        begins[firsts[hit] + 2] += 1
    return begins, order, owners_of


@kernel
def _verdicts(
    where: Int1,
    firsts: IntArray,
    owners: IntArray,
    points: FloatArray,
    places: IntArray,
    sizes: IntArray,
    texts: NDArray[np.uint8],
) -> NDArray[np.int8]:
    """Return a verdict for each candidate from its conditions.

    `sizes` has the sizes of the events' texts, by column and owner, -1 for none; `texts` has the bytes in
    this order.
    """
    written = opened_written(where)
    ends = np.empty((sizes.shape[1], sizes.shape[0], 2), np.int64)
    total = 0
    for column in range(sizes.shape[0]):
        for row in range(sizes.shape[1]):
            ends[row, column, 0], ends[row, column, 1] = total, sizes[column, row]
            total += max(sizes[column, row], 0)
    verdicts = np.full(len(firsts), UNKNOWN, np.int8)
    begins, order, owners_of = _sorted(firsts, owners)
    for first in range(len(begins) - 3):
        for at in range(begins[first + 1], begins[first + 2]):
            owner = int(owners_of[at])
            verdicts[order[at]] = _verdict(written, first, points, places[owner], ends, owner, texts)
    if not len(begins):
        for hit in range(len(firsts)):
            if firsts[hit] >= 0:
                owner = owners[hit]
                verdicts[hit] = _verdict(written, firsts[hit], points, places[owner], ends, owner, texts)
    return verdicts


@kernel
def _decide_one(where: Int1, handles: IntArray, verdicts: Flags, points: FloatArray, texts: Byte1) -> None:
    """Replace each 0 in `verdicts` by the verdict of this candidate.

    `points` is the only event, float64 (1, D); `texts` has its texts, in the order of columns, with
    separators.
    """
    written = opened_written(where)
    count = 1
    for byte in texts:
        count += byte == SEPARATOR
    ends = np.empty((1, count, 2), np.int64)
    column = begin = 0
    for at in range(len(texts) + 1):
        if at == len(texts) or texts[at] == SEPARATOR:
            missing = at > begin and texts[begin] == NO_TEXT
            ends[0, column, 0], ends[0, column, 1] = begin, -1 if missing else at - begin
            column, begin = column + 1, at + 1
    for hit in range(len(handles)):
        if verdicts[hit] == 0:
            place = _place_of(written.table, handles[hit])
            verdicts[hit] = UNKNOWN
            if place >= 0:
                first = written.table[place, _FIRST]
                verdicts[hit] = _verdict(written, first, points, 0, ends, 0, texts)
