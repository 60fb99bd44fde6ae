"""Batches of JSON events in which one inner object is a list of flat objects, read column by column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, compress
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.errors import EventError
from rtfilter.events.cells import encode_objects
from rtfilter.events.elements import MAX_CHOICES, of_choices
from rtfilter.events.fields import Field, Fields
from rtfilter.events.json_forms import Form, Inner
from rtfilter.events.table import EventTable, Lists, rests_one_by_one

_NONE: Final = type(None)


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
    """Return the table of events; None if they have other lists, or a value is refused.

    Parameters
    ----------
    events : sequence of struct
        n events of the form.
    form : Form
    own : iterable of tuple
        The attributes that are read, and the function that gets each from an event.
    blank : float64 (1, D)
        The point of an event that has none of them.
    fields : Fields
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
    if any(_NONE not in set(map(type, column)) for column in columns):
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
