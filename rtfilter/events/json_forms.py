"""Types of structs for events as JSON: they have the attributes that a filter reads, and nothing else.

Batches in which one inner object is a list of flat objects are read column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
import numpy as np

from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.basics.errors import EventError
from rtfilter.events.cells import encode_objects
from rtfilter.events.elements import MAX_CHOICES, of_choices
from rtfilter.events.fields import Field, Fields
from rtfilter.events.table import EventTable, Lists, rests_one_by_one

_TYPES: Final[dict[str, Any]] = {
    "number": int | float | None,
    "str": str | None,
    "timestamp": str | None,
    "bool": bool | None,
}
_NEVER: Final = Literal["\0 nothing is this \0"]
"""The type of fields that must be absent: an event with one does not fit."""


class Value(NamedTuple):
    """An attribute in an object."""

    place: str
    """The name of its field in the struct."""
    key: str
    name: str
    """Its own name, with the path of the object."""
    absent: object
    """The value of the field if the object lacks it."""


class Inner(NamedTuple):
    """An object in an object, or a list of objects."""

    place: str
    """The name of its field in the struct."""
    key: str
    path: str
    form: Form


class Form(NamedTuple):
    """A struct type for the objects at one path of events.

    An inner object may be a list of objects, and a value any list, which is decoded completely.
    """

    kind: Any
    values: Sequence[Value]
    objects: Sequence[Inner]

    def paths(self) -> Iterator[tuple[str, str]]:
        """Yield each name, with the path of its fields in the structs."""
        for one in self.values:
            yield one.name, one.place
        for inner in self.objects:
            yield from ((name, f"{inner.place}.{rest}") for name, rest in inner.form.paths())

    def inner(self) -> Iterator[tuple[str, Inner]]:
        """Yield the path of fields of each inner object, outer ones first."""
        for one in self.objects:
            yield one.place, one
            yield from ((f"{one.place}.{rest}", deeper) for rest, deeper in one.form.inner())

    def flatten(self, event: Any, values: dict[str, object], lists: dict[str, Any]) -> None:
        """Put the values of an event by name, and its lists by path, into dicts; see `nesting.flatten`."""
        for place, _, name, absent in self.values:
            value = getattr(event, place)
            if value is not absent:
                values[name] = value
                if type(value) is list:
                    lists[name] = value
        for place, _, path, form in self.objects:
            value = getattr(event, place)
            if type(value) is list:
                lists[path] = [form.as_dict(one) for one in value]
            else:
                form.flatten(value, values, lists)

    def as_dict(self, event: Any) -> dict[str, object]:
        """Return an object as it was in the text, without the attributes that are not read."""
        found = {one.key: getattr(event, one.place) for one in self.values}
        found = {one.key: found[one.key] for one in self.values if found[one.key] is not one.absent}
        for place, key, _, form in self.objects:
            value = getattr(event, place)
            found[key] = [form.as_dict(one) for one in value] if type(value) is list else form.as_dict(value)
        return found


def form_of(fields: Sequence[Field], sources: frozenset[str]) -> Form:
    """Return the form of events with these attributes, by the names that they have in events."""
    types: dict[str, Any] = {}
    for field in fields:
        if field.source in sources:
            kind = msgspec.UnsetType if field.null else _TYPES[field.family]
            types[field.source] = types[field.source] | kind if field.of else kind
    return _form({name: (name, kind) for name, kind in types.items()})


def _form(types: dict[str, tuple[str, Any]], path: str = "") -> Form:
    """Return the form of objects with attributes of these types, by their paths within the object."""
    inner: dict[str, dict[str, tuple[str, Any]]] = {}
    fields: list[Any] = []
    values: list[Value] = []
    objects: list[Inner] = []
    for key, (name, kind) in types.items():
        first, _, rest = key.partition(".")
        if rest:
            inner.setdefault(first, {})[rest] = name, kind
        else:
            absent = msgspec.UNSET if msgspec.UnsetType in get_args(kind) else None
            values.append(Value(f"f{len(fields)}", key, name, absent))
            fields.append((f"f{len(fields)}", kind | list, msgspec.field(default=absent, name=key)))
    for first, own in inner.items():
        form = _form(own, f"{path}{first}.")
        objects.append(Inner(f"f{len(fields)}", first, f"{path}{first}", form))
        kind = form.kind | list[form.kind]  # type: ignore[name-defined]
        empty = _always(form.kind())
        fields.append((f"f{len(fields)}", kind, msgspec.field(default_factory=empty, name=first)))
        # The same names may be written with dots: such an event does not fit.
        for dotted in {f"{first}.{beginning}" for rest in own for beginning in _beginnings(rest)}:
            fields.append((f"f{len(fields)}", _NEVER, msgspec.field(default=None, name=dotted)))
    return Form(msgspec.defstruct("Event", fields, gc=False), values, objects)


def _beginnings(path: str) -> Iterator[str]:
    parts = path.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _always(one: Any) -> Callable[[], Any]:
    return lambda: one


class ReadValues(NamedTuple):
    """The values of the attributes that were read."""

    by_name: dict[str, Sequence[object]]

    def row(self, index: int) -> dict[str, object]:
        """See `Rows`."""
        return {name: own[index] for name, own in self.by_name.items() if own[index] is not None}

    def values(self, name: str, rows: Sequence[int]) -> Sequence[object]:
        """See `Rows`."""
        own = self.by_name.get(name)
        return [None] * len(rows) if own is None else [own[row] for row in rows]

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        """See `Rows`."""
        return rests_one_by_one(self.by_name[field.name].__getitem__, field, rows, coordinates)


def read_lists(
    events: Sequence[Any], form: Form, own: Iterable[tuple[Field, Any]], blank: FloatArray, fields: Fields
) -> EventTable | None:
    """Return the table of n structs of a form; None if they have other lists, or a value is refused.

    `own` are the attributes that are read, with the function that gets each from an event; `blank`,
    float64 (1, D), is the point of an event that has none of them.
    """
    found = _only_list(events, form)
    if found is None:
        return None
    inner, objects = found
    listed = [type(one) is list for one in objects]
    elements = list(chain.from_iterable(compress(objects, listed)))
    get_inside = {one.name: attrgetter(one.place) for one in inner.form.values}
    inside = {name: list(map(get, elements)) for name, get in get_inside.items()}
    sizes = np.array([len(one) if is_list else 0 for one, is_list in zip(objects, listed, strict=True)])
    of_element = np.arange(len(events)).repeat(sizes)
    there = _with_value(inside.values())  # an element without any of these attributes gives no choice
    if there is not None:
        inside = {name: list(compress(column, there)) for name, column in inside.items()}
        of_element = of_element[there]
    left = np.bincount(of_element, minlength=len(events))
    if left.max() > MAX_CHOICES:
        return None
    counts = np.maximum(left, 1)
    owner = np.arange(len(events)).repeat(counts)
    offsets = np.concatenate([[0], counts.cumsum()])
    places = np.flatnonzero(left[owner])
    points = blank.repeat(len(events), axis=0)
    encoded: dict[str, FloatArray] = {}
    values: dict[str, Sequence[object]] = {}
    try:
        for field, get in own:
            inner_get = get_inside.get(field.name)
            if inner_get is None:
                column = list(map(get, events))
            else:
                column = [
                    None if is_list else inner_get(one) for one, is_list in zip(objects, listed, strict=True)
                ]
                encoded[field.name] = _encoded(field, inside[field.name])
            place = fields.places[field.name]
            points[:, place : place + field.width] = _encoded(field, column)
            values[field.name] = column
    except (EventError, AttributeError, TypeError):  # a value is a list, or refused
        return None
    chosen = points[owner]
    for name, codes in encoded.items():
        place = fields.places[name]
        chosen[places, place : place + codes.shape[1]] = codes
    points += 0.0  # -0.0 and 0.0 become the same coordinate
    at = places.tolist()
    empty = dict.fromkeys(offsets[:-1][(left == 0) & listed].tolist())
    from_lists = {name: empty | dict(zip(at, column, strict=True)) for name, column in inside.items()}
    table, firsts = EventTable(points, ReadValues(values), fields), [fields.places[name] for name in inside]
    return of_choices(table, chosen, owner, offsets, from_lists, _Lists(inner, objects), firsts)


def _only_list(events: Sequence[Any], form: Form) -> tuple[Inner, list[Any]] | None:
    """Return the inner object that is a list in some events, with its value in each; None if several are."""
    found = None
    for path, inner in form.inner():
        try:
            objects = list(map(attrgetter(path), events))
        except AttributeError:  # within a list
            return None
        if list in set(map(type, objects)):
            if found is not None or inner.form.objects:
                return None
            found = inner, objects
    return found


def _with_value(columns: Iterable[Sequence[object]]) -> BoolArray | None:
    """Return which elements have a value in some column, bool (k,); None if all have."""
    columns = list(columns)
    if any(type(None) not in set(map(type, column)) for column in columns):
        return None
    found = np.array(
        [any(value is not None for value in own) for own in zip(*columns, strict=True)], np.bool_
    )
    return None if found.all() else found


def _encoded(field: Field, column: Sequence[Any]) -> FloatArray:
    kinds = set(map(type, column))
    if list in kinds:
        raise TypeError("a value is a list")
    return encode_objects(field, column, kinds).reshape(len(column), field.width)


class _Lists:
    """The lists of each event, made of its structs when they are asked for; see `Choices.lists`."""

    def __init__(self, inner: Inner, objects: Sequence[Any]) -> None:
        self._inner, self._objects = inner, objects

    def __getitem__(self, row: int) -> Lists | None:
        own = self._objects[row]
        if type(own) is not list:
            return None
        return {self._inner.path: [self._inner.form.as_dict(one) for one in own]}
