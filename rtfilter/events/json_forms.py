"""Types of structs for events as JSON: they have the attributes that a filter reads, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from rtfilter.events.fields import Field

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
