"""Lists in events: an event with lists stands for one event for each choice of their elements.

One element is chosen from each list, with all its attributes: attributes of one object of a list stay
together. The normative text is `docs/predicates.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain, compress
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.basics.errors import EventError
from rtfilter.basics.text import listed
from rtfilter.events.cells import encode_objects
from rtfilter.events.encoding import MISSING, is_missing
from rtfilter.events.fields import NULL, Field, Fields
from rtfilter.events.nesting import ATOMS, MAX_NESTING, flatten, inner_paths, is_list, too_deep, twice
from rtfilter.events.table import ByRow, Choices, EventTable, Lists, Rows, SomeRows, rests_one_by_one

MAX_CHOICES: Final = 1000
"""Most choices of one event."""

_UNREAD: Final = 0.0
"""Coordinate of an attribute that was not read, because no subscription uses it."""

ListKey = tuple[Any, ...]
"""Identifies a list of an event: indexes and paths from the outermost list to it."""


class Choice(NamedTuple):
    """A choice of one element from each list."""

    values: dict[str, object]
    """The present values, by flattened name."""
    places: dict[ListKey, int]
    """The index of the chosen element, by list."""


class Chosen(dict[str, object]):
    """The values of one choice, by flattened name, with access to those of other choices.

    Attributes
    ----------
    every : callable
        Returns all values of an attribute in the event, each different one at least once.
    """

    __slots__ = ("every",)

    def __init__(self, values: Mapping[str, object], every: Callable[[str], Sequence[object]]) -> None:
        super().__init__(values)
        self.every = every


def every_value(row: Mapping[str, object], name: str) -> Sequence[object]:
    """Return all values of an attribute in an event; `row` is a choice of it, or a flat event."""
    if isinstance(row, Chosen):
        return row.every(name)
    value = row.get(name)
    return () if is_missing(value) else (value,)


def is_of_choices(table: EventTable) -> bool:
    """Return whether the rows of a table are `Chosen`: it is searched instead of events with lists."""
    rows = table._rows
    while isinstance(rows, SomeRows):
        rows = rows.source
    return isinstance(rows, _Elements)


def choices(
    lists: Lists,
    names: frozenset[str],
    row: int = 0,
    *,
    distinct: bool = False,
    placed: bool = True,
    nullable: frozenset[str] = frozenset(),
) -> list[Choice]:
    """Return all choices of elements, at least one.

    `names` are the attributes to read: a list without any of them has no element. Errors name the `row`.
    `distinct` keeps only the first of choices with equal values, and `placed` fills `Choice.places`. Null is
    an element, read as `NULL`, for the `nullable` attributes. Raises `EventError` for more than
    `MAX_CHOICES`, lists that are nested too deep, and a name with two values.
    """
    return _Reader(names, row, distinct, placed, nullable).of_lists((), lists, 1)


def _columns(
    lists: Lists, names: frozenset[str], row: int, nullable: frozenset[str]
) -> tuple[int, Mapping[str, Sequence[object]]]:
    """Return the number of choices of elements, and the values of each attribute that lists may have.

    See `choices` for parameters and errors. Equal choices may become one.
    """
    if len(lists) == 1 and not nullable:
        ((path, elements),) = lists.items()
        found = _plain_columns(path, elements, names)
        if found is not None:
            return found
    own = choices(lists, names, row, distinct=True, placed=False, nullable=nullable)
    return len(own), {name: [one.values.get(name) for one in own] for name in below(lists, [*names])}


def _plain_columns(
    path: str, elements: Sequence[Any], names: frozenset[str]
) -> tuple[int, dict[str, list[object]]] | None:
    """Return `_columns` of one list of values or of flat dicts, which is much faster; None for others."""
    keys, kinds = _keys_below(path, names), set(map(type, elements))
    if keys is None or len(elements) > MAX_CHOICES:
        return None
    if kinds <= ATOMS:
        there = [one for one in elements if one is not None] if path in names else []
        columns: dict[str, list[object]] = {name: [None] * max(len(there), 1) for _, name in keys}
        if path in names:
            columns[path] = there or [None]
        return max(len(there), 1), columns
    if kinds != {dict}:
        return None
    columns = {name: [one.get(key) for one in elements] for key, name in keys}
    kinds = set(map(type, chain.from_iterable(columns.values())))
    if not kinds <= ATOMS:
        return None
    if path in names:
        columns[path] = [None] * len(elements)
    if columns and type(None) not in kinds and path not in names:
        return len(elements), columns
    # An element without any of these attributes gives no choice.
    some = [any(value is not None for value in values) for values in zip(*columns.values(), strict=True)]
    if not all(some):
        columns = {name: list(compress(column, some)) or [None] for name, column in columns.items()}
    return max(sum(some), 1), columns


@lru_cache(maxsize=1024)
def _keys_below(path: str, names: frozenset[str]) -> tuple[tuple[str, str], ...] | None:
    """Return key and name of the attributes of objects at a path; None if some attributes are deeper."""
    start = f"{path}."
    keys = [(name.removeprefix(start), name) for name in names if name.startswith(start)]
    return None if any("." in key for key, _ in keys) else tuple(keys)


class _Reader:
    def __init__(
        self, names: frozenset[str], row: int, distinct: bool, placed: bool, nullable: frozenset[str]
    ) -> None:
        self._names, self._inner, self._nullable = names, inner_paths(names), nullable
        self._row, self._distinct, self._placed = row, distinct, placed

    def of_lists(self, parent: ListKey, lists: Lists, depth: int) -> list[Choice]:
        """Return the choices of one element from each list."""
        parts = [self._of_list((*parent, path), path, elements, depth) for path, elements in lists.items()]
        self._require_few(prod(map(len, parts)), list(lists))
        found = [Choice({}, {})]
        for part in parts:
            found = [self._both(one, other) for one in found for other in part]
        return found

    def _of_list(self, own: ListKey, path: str, elements: Sequence[Any], depth: int) -> list[Choice]:
        if depth > MAX_NESTING:
            raise too_deep(self._row)
        found: list[Choice] = []
        wanted, nullable = path in self._names, path in self._nullable
        for index, element in enumerate(elements):
            if nullable and element is None:
                element = NULL
            if type(element) in ATOMS:
                if wanted and element is not None:
                    found.append(Choice({path: element}, {own: index} if self._placed else {}))
                continue
            if isinstance(element, Mapping):
                inside = self._of_object((*own, index), path, element, depth)
            elif is_list(element):
                inside = self._of_list((*own, index), path, element, depth + 1)
            elif wanted and not is_missing(element):
                inside = [Choice({path: element}, {})]
            else:
                continue
            for values, places in inside:
                if values:  # an element without these attributes is no choice
                    found.append(Choice(values, {**places, own: index} if self._placed else places))
        if self._distinct and len(found) > 1:
            found = _distinct(found)
        self._require_few(len(found), [path])
        return found or [Choice({}, {})]

    def _of_object(self, own: ListKey, path: str, element: Mapping[Any, object], depth: int) -> list[Choice]:
        if path not in self._inner:
            return []
        given, lists = flatten(element, self._names, self._row, f"{path}.")
        for name in self._nullable.intersection(given):
            given[name] = NULL if given[name] is None else given[name]
        values = {name: value for name, value in given.items() if not (is_list(value) or is_missing(value))}
        fixed = Choice(values, {})
        return [self._both(fixed, one) for one in self.of_lists(own, lists, depth + 1)] if lists else [fixed]

    def _both(self, one: Choice, other: Choice) -> Choice:
        if not one.values:
            return other
        both = one.values.keys() & other.values.keys()
        if both:
            raise twice(min(both), self._row)
        return Choice({**one.values, **other.values}, {**one.places, **other.places})

    def _require_few(self, count: int, paths: list[str]) -> None:
        if count > MAX_CHOICES:
            what = f"the lists {listed(paths)} have" if len(paths) > 1 else f"the list {paths[0]!r} has"
            raise EventError(
                f"{what} {count:,} choices of elements, and at most {MAX_CHOICES:,} are tried; "
                "send several events with fewer elements each",
                row=self._row,
                attribute=paths[0],
            )


def _distinct(found: list[Choice]) -> list[Choice]:
    """Return each different choice once; 1 and True differ."""
    first: dict[Any, Choice] = {}
    try:
        for choice in found:
            first.setdefault(frozenset((key, type(one), one) for key, one in choice.values.items()), choice)
        return list(first.values())
    except TypeError:  # a value without a hash
        return found


class _Elements(NamedTuple):
    source: Rows
    owner: IntArray
    """int64 (m,): the row of the event of each choice."""
    offsets: IntArray
    """int64 (n + 1,): as in `Choices`."""
    chosen: dict[str, dict[int, object]]
    """By attribute and choice, the values from lists; None for a choice without one."""
    known: dict[tuple[int, str], list[object]]
    """Cache of `_every`: all values of an attribute of an event."""

    def row(self, index: int) -> dict[str, object]:
        event = int(self.owner[index])
        values = self.source.row(event)
        for name, own in self.chosen.items():
            if index in own:
                values.pop(name, None)
                if own[index] is not None:
                    values[name] = own[index]
        return Chosen(values, partial(self._every, event))

    def _every(self, event: int, name: str) -> list[object]:
        found = self.known.get((event, name))
        if found is None:
            first, end = self.offsets[event : event + 2].tolist()
            own = self.chosen.get(name, {})
            given = (
                [own[at] for at in range(first, end)] if first in own else [self.source.row(event).get(name)]
            )
            # By identity, since a value may have no hash; an element in several choices is one object.
            found = list({id(value): value for value in given if value is not None}.values())
            self.known[event, name] = found
        return found

    def values(self, name: str, rows: Sequence[int]) -> list[object]:
        given, own = self.source.values(name, self.owner[list(rows)].tolist()), self.chosen.get(name, {})
        return [own.get(at, value) for at, value in zip(rows, given, strict=True)]

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        own = self.chosen.get(field.name, {})
        inside = np.array([row in own for row in rows.tolist()], np.bool_)
        found = np.empty(len(rows), np.int64)
        found[inside] = rests_one_by_one(own.__getitem__, field, rows[inside], coordinates[inside])
        if not inside.all():
            found[~inside] = self.source.rests(field, self.owner[rows[~inside]], coordinates[~inside])
        return found


def with_choices(
    table: EventTable, lists: Mapping[int, Lists], names: frozenset[str] | None = None
) -> EventTable:
    """Return a table with the choices of its events, or the table of the choices if each event has only one.

    In `table`, lists were read as values of another type. `lists` has them by row and path: an attribute, or
    the beginning of one. `names` are the attributes to read from them, by default all. Raises `EventError` as
    `choices`, and for an element that would be refused as a value.
    """
    if not lists:
        return table
    if names is not None and table.fields.further:
        names = table.fields.sources(names)
    if names is not None and not names >= table.fields.known:
        return _with_some(table, lists, names)
    return _with_choices(table, lists, table.fields.known)


def _with_some(table: EventTable, lists: Mapping[int, Lists], names: frozenset[str]) -> EventTable:
    """Return `with_choices` for the attributes `names`; mark other attributes with lists as unread."""
    inner, kept = inner_paths(names), {}
    unread: dict[frozenset[str], list[int]] = {}
    for row, given in lists.items():
        unread.setdefault(frozenset(given), []).append(row)
        own = {path: elements for path, elements in given.items() if path in names or path in inner}
        if own:
            kept[row] = own
    for paths, rows in unread.items():
        left_out = _left_out(paths, table.fields.names, names)
        for field in table.fields:
            if field.source in left_out:
                place = table.fields.places[field.name]
                table.points[rows, place : place + field.width] = _UNREAD
    found = _with_choices(table, kept, names) if kept else table
    found.read = names.union(field.name for field in table.fields.further if field.of in names)
    return found


@lru_cache(maxsize=1024)
def _left_out(paths: frozenset[str], known: tuple[str, ...], names: frozenset[str]) -> frozenset[str]:
    """Return those of the `known` names that are at or below some paths, but not in `names`."""
    return frozenset(below(paths, [name for name in known if name not in names]))


def _with_choices(table: EventTable, lists: Mapping[int, Lists], names: frozenset[str]) -> EventTable:
    count = len(table)
    fields = table.fields
    found = {row: _columns(own, names, row, fields.nullable) for row, own in lists.items()}
    counts = np.ones(count, np.int64)
    for row, (own, _) in found.items():
        counts[row] = own
    offsets = np.concatenate([[0], np.cumsum(counts)])
    owner = np.repeat(np.arange(count), counts)
    points = table.points[owner]
    first = table.fields.places
    chosen: dict[str, dict[int, object]] = {}
    for row, (own, columns) in found.items():
        for name in columns:
            if name not in lists[row] and table.points[row, first[name]] != MISSING:
                raise twice(name, row)
        if fields.further:
            columns = _completed(fields, columns, own)
        for name, values in columns.items():
            start = int(offsets[row])
            chosen.setdefault(name, {}).update(zip(range(start, start + own), values, strict=True))
    for field in fields:
        if field.name in chosen:
            start = first[field.name]
            _put(points[:, start : start + field.width], field, chosen[field.name], owner)
    kept = [lists.get(row) for row in range(count)]
    return of_choices(table, points, owner, offsets, chosen, kept, list(first.values()))


def of_choices(
    table: EventTable,
    points: FloatArray,
    owner: IntArray,
    offsets: IntArray,
    chosen: dict[str, dict[int, object]],
    lists: ByRow,
    firsts: list[int],
) -> EventTable:
    """Return a table of n events with their m choices, or that of the choices if each event has only one.

    `points`, float64 (m, D), are those of the choices; -0.0 becomes 0.0 here. `owner`, `offsets` and `chosen`
    are as in `_Elements`, `lists` as in `Choices`. `firsts` are the first coordinates of the attributes that
    some choices of an event may lack.
    """
    points += 0.0  # -0.0 and 0.0 become the same coordinate
    rows = _Elements(table._rows, owner, offsets, chosen, {})
    made = EventTable(points, rows, table.fields)
    if len(made) == len(table):  # each event has one choice
        return made
    partial = _partial(points[:, firsts], offsets, owner)
    return EventTable(table.points, table._rows, table.fields, Choices(made, offsets, lists, partial))


def _completed(
    fields: Fields, columns: Mapping[str, Sequence[object]], count: int
) -> dict[str, Sequence[object]]:
    """Return columns of `count` choices with those of attributes for further types; None is no value."""
    rows = [{name: own[at] for name, own in columns.items() if own[at] is not None} for at in range(count)]
    found = list(map(fields.completed, rows))
    further = [field.name for field in fields.further if field.of in columns]
    return {name: [own.get(name) for own in found] for name in (*columns, *further)}


def below(lists: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the names whose values come from lists."""
    return [name for name in names if any(name == path or name.startswith(f"{path}.") for path in lists)]


def _put(coordinates: FloatArray, field: Field, values: Mapping[int, object], owner: IntArray) -> None:
    """Write the values of one attribute, by choice, into its coordinates, float64 (m, width)."""
    places = np.fromiter(values, np.int64, len(values))
    try:
        encoded = encode_objects(field, list(values.values()))
    except EventError as error:
        row = int(owner[places[error.row or 0]])
        raise EventError.about(field.name, error.reason, row) from None
    coordinates[places] = encoded.reshape(len(places), field.width)


def _partial(first: FloatArray, offsets: IntArray, owner: IntArray) -> BoolArray | None:
    """Return `Choices.partial`; `first` is the first coordinate of each attribute, float64 (m, k)."""
    missing = first == MISSING
    some = np.logical_or.reduceat(~missing, offsets[:-1], axis=0)
    found: BoolArray = (missing & some[owner]).any(axis=1)
    return found if found.any() else None
