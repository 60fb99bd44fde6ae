"""The attributes of events and predicates, and their coordinates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

from rtfilter.basics.dtypes import FloatArray
from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import composed, shown
from rtfilter.events.encoding import (
    EPOCH,
    EXACT,
    HIGHEST,
    LOWEST,
    MICROSECOND,
    Constant,
    Timestamp,
    boolean,
    microseconds,
    number,
    string,
)
from rtfilter.events.fields import PHRASES, Field, Fields
from rtfilter.events.moments import EXAMPLE, why_no_moment
from rtfilter.events.reading import read_events
from rtfilter.events.spelling import correction
from rtfilter.events.table import EventTable

_NULL = type(None)
KINDS: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool, "timestamp": datetime}
"""Name of each attribute type in JSON, and its Python type."""
_KIND_OF = {python_type: kind for kind, python_type in KINDS.items()} | {_NULL: "null"}
_READERS: dict[type, Callable[[object], Constant | None]] = {
    int: number,
    float: number,
    str: string,
    bool: boolean,
    datetime: microseconds,
    _NULL: boolean,
}

Type = type | str | None
"""A Python type, or a key of `KINDS`; None or ``null`` only in a list of types."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """The type of an attribute and, for numbers and timestamps, its domain.

    Parameters
    ----------
    type : type or str
        `int`, `float`, `str`, `bool` or `datetime.datetime`, or its name in JSON, a key of `KINDS`. `int` and
        `float` are both numbers: 1 equals 1.0, and an `int` attribute accepts 5.5.
    low, high : int, float or datetime, optional
        Closed ends of the domain; by default all of float64. An event with a value outside is refused
        with an `EventError`. An end may have any form that a value of an event may have; it is stored as int,
        float, or datetime in UTC.
    of : str, optional
        Another attribute of the schema whose values this one has too; see the list of types of a `Schema`.
        Only with it, the type may be None: the value is then a boolean, true if the other one is null.

    Raises
    ------
    TypeError
        The type is none of these.
    ValueError
        A domain of strings or booleans, an empty one, or an end of another type, beyond float64, or a
        timestamp of a year before 1 or after 9999.
    """

    type: type
    low: Any = None
    high: Any = None
    of: str | None = None

    if TYPE_CHECKING:

        def __init__(self, type: Type, low: Any = None, high: Any = None, of: str | None = None) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.type, str) and self.type in KINDS:
            object.__setattr__(self, "type", KINDS[self.type])
        given: object = self.type
        if given in (None, "null") and self.of is not None:
            object.__setattr__(self, "type", _NULL)
        if self.type not in [*KINDS.values(), *[_NULL] * (self.of is not None)]:  # `type` may have no hash
            known = ", ".join(kind.__name__ for kind in KINDS.values())
            names = ", ".join(KINDS)
            raise TypeError(f"an attribute's type is one of {known}, or a name: {names}; got {self.type!r}")
        if self.low is None and self.high is None:
            return
        if not self.ordinal:
            raise ValueError(f"a {self.kind} attribute has no domain; numbers and timestamps may have one")
        for name, end in (("low", self.low), ("high", self.high)):
            if end is not None:
                object.__setattr__(self, name, self._end(end))
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"the domain is empty: low {self.low!r} is above high {self.high!r}")

    @property
    def kind(self) -> str:
        """Name of the type in JSON: a key of `KINDS`, or ``null``."""
        return _KIND_OF[self.type]

    @property
    def ordinal(self) -> bool:
        """True if values are points on a line: numbers and timestamps."""
        return self.type in (int, float, datetime)

    @property
    def family(self) -> str:
        """The type that values compare with: ``number``, ``timestamp``, ``str`` or ``bool``."""
        if self.type is _NULL:
            return "bool"
        return "number" if self.type in (int, float) else self.kind

    @property
    def width(self) -> int:
        """Number of coordinates: 3 for a string (order, identity, ending), else 1."""
        return 3 if self.type is str else 1

    @property
    def bounds(self) -> tuple[float, float]:
        """The closed domain, int or float, in microseconds for timestamps; without one, all of float64."""
        low = LOWEST if self.low is None else _coordinate(self.low)
        high = HIGHEST if self.high is None else _coordinate(self.high)
        return low, high

    def _end(self, given: object) -> int | float | datetime:
        """Return an end of the domain in the form in which it is stored."""
        value = microseconds(given) if self.type is datetime else number(given)
        if value is None or not LOWEST <= value <= HIGHEST:
            raise ValueError(f"the domain of a {self.kind} attribute cannot end at {shown(given)}")
        if self.type is not datetime:
            return value
        try:
            return EPOCH + value * MICROSECOND
        except OverflowError:
            raise ValueError(
                f"the domain of a timestamp attribute cannot end at {shown(given)}: in UTC it is before the "
                "year 1 or after 9999; leave the end out"
            ) from None

    def to_json(self) -> dict[str, object]:
        """Return a JSON object that `from_json` turns into an equal attribute."""
        ends = {"low": self.low, "high": self.high, "of": self.of}
        plain = {
            name: end.isoformat() if isinstance(end, datetime) else end
            for name, end in ends.items()
            if end is not None
        }
        return {"type": self.kind} | plain

    @classmethod
    def from_json(cls, data: object) -> Attribute:
        """Return the attribute that a JSON value describes.

        Parameters
        ----------
        data : str or mapping
            A key of `KINDS`, or an object with such a key as ``type``, ``low`` and ``high`` for a domain, and
            ``of``.

        Raises
        ------
        ValueError
            The data describe no attribute.
        """
        entry = {"type": data} if isinstance(data, str) else data
        known = ", ".join(KINDS)
        if not isinstance(entry, Mapping) or not isinstance(entry.get("type"), str):
            raise ValueError(f"a type is needed, one of {known}; got {shown(data)}")
        of = entry.get("of")
        if entry["type"] not in KINDS and (entry["type"] != "null" or not isinstance(of, str)):
            hint = f'; write [{shown(known.split(", ")[0])}, "null"]' if entry["type"] == "null" else ""
            raise ValueError(f"the type {shown(entry['type'])} is unknown; use {known}{hint}")
        extra = [name for name in entry if name not in ("type", "low", "high", "of")]
        if extra:
            raise ValueError(f"{shown(extra[0])} is unknown; known are type, low and high")
        return cls(entry["type"], entry.get("low"), entry.get("high"), of)


Given = Attribute | Type | Mapping[str, Any] | Sequence[Type]
"""The type of an attribute in the arguments of a schema; a list has several types, see `Schema`."""


def _attributes(name: str, given: Any, of_json: bool = False) -> dict[str, Attribute]:
    """Return the attribute for a value in the arguments of a schema, and those for further types."""
    types = given.get("type") if isinstance(given, Mapping) else given
    try:
        if isinstance(types, list | tuple):
            return _of_types(name, types, given if isinstance(given, Mapping) else {})
        if of_json or isinstance(given, str | Mapping):
            return {name: Attribute.from_json(given)}
    except ValueError as error:
        raise ValueError(f"attribute {name!r}: {error}") from None
    return {name: given if isinstance(given, Attribute) else Attribute(given)}


def _of_types(name: str, types: Sequence[Type], options: Mapping[str, Any]) -> dict[str, Attribute]:
    """Return an attribute of the first type, and beside it one for each further type."""
    kinds: list[Any] = [_KIND_OF.get(one, one) if isinstance(one, type) else one for one in types]
    kinds = sorted(("null" if kind is None else kind for kind in kinds), key="null".__eq__)
    found: dict[str, Attribute] = {}
    for kind in kinds:
        beside: dict[str, Any] = {"of": name} if found else {}
        one = Attribute.from_json({"type": kind, **beside})
        if one.ordinal:
            one = Attribute.from_json({**options, "type": kind, **beside})
        if one.type is not _NULL and one.family in [
            own.family for own in found.values() if own.type is not _NULL
        ]:
            raise ValueError(f"the types {', '.join(kinds)} have the same values twice; keep one")
        found[f"{name}:{kind}" if found else name] = one
    if not found:
        raise ValueError("a list of types needs at least one")
    extra = [key for key in options if key not in ("type", "low", "high")]
    if extra:
        raise ValueError(f"{shown(extra[0])} is unknown; known are type, low and high")
    if not options.keys().isdisjoint(("low", "high")) and sum(one.ordinal for one in found.values()) != 1:
        raise ValueError("a domain needs one type of numbers or timestamps")
    return found


def _coordinate(end: int | float | datetime) -> float:
    return (end - EPOCH) // MICROSECOND if isinstance(end, datetime) else end


def require_name(name: object) -> None:
    """Raise `ValueError` if `name` cannot be the name of an attribute."""
    if not isinstance(name, str) or not all(name.split(".")) or name == "$or":
        raise ValueError(f"{shown(name)} cannot name an attribute: join non-empty parts with dots")


class Schema:
    """The named attributes, in order, with their types and domains.

    Parameters
    ----------
    attributes : mapping of str to type, str, list of types, mapping or Attribute
        For example ``{"price": float, "symbol": str, "size": Attribute(int, low=0, high=65535)}``, or as
        JSON has it, ``{"price": "float", "symbol": "str", "size": {"type": "int", "low": 0}}``.
        A name with dots, such as ``"url.resource"``, is a value inside a nested object. Names are stored in
        Unicode's form NFC, and found in every spelling.

        A list of types, such as ``["float", "str", "null"]`` or ``(float, str, None)``, means that values may
        have any of them. The attribute ``x`` then has the first type, and further attributes, ``x:str`` and
        ``x:null``, have the others; a constant finds the attribute of its type. With ``null``, null is a
        value, and not a missing attribute.
    strict : bool
        Refuse events with unknown attributes, and with values of another type. By default both are accepted
        and counted by a filter, and each name is logged once; see `docs/guide.md`.

    Raises
    ------
    TypeError, ValueError
        `attributes` is no mapping or empty, or has an unusable name, type or domain.

    Notes
    -----
    Immutable. A schema with k attributes of which s are strings has ``dimensions`` = k + 2s coordinates.
    """

    def __init__(self, attributes: Mapping[str, Given], *, strict: bool = False) -> None:
        if isinstance(attributes, Mapping) and isinstance(attributes.get("strict"), bool):
            found = Schema.from_json(attributes)
            attributes, strict = found.attributes, found.strict
        if not isinstance(strict, bool):
            raise TypeError(f"strict is True or False; got {shown(strict)}")
        if not isinstance(attributes, Mapping):
            array = isinstance(attributes, list | tuple) and any(isinstance(one, dict) for one in attributes)
            hint = "; Schema.from_json reads an array of objects" if array else ""
            raise TypeError(
                'a schema is a mapping of names to types, such as {"price": float, "symbol": str}; '
                f"got {shown(attributes)}{hint}"
            )
        if not attributes:
            raise ValueError("a schema needs at least one attribute")
        self.attributes: dict[str, Attribute] = {}
        for name, given in attributes.items():
            require_name(name)
            for own, attribute in _attributes(composed(name), given).items():
                if own in self.attributes:
                    further = attribute.of is not None or self.attributes[own].of is not None
                    how = "one for a further type" if further else "in two spellings of Unicode"
                    raise ValueError(f"two attributes are called {own!r}, {how}; keep one")
                self.attributes[own] = attribute
        self.names: tuple[str, ...] = tuple(
            name for name, attribute in self.attributes.items() if attribute.of is None
        )
        """The attributes without those for further types."""
        self.types: dict[str, tuple[str, ...]] = {}
        """For attributes of several types, except null: the attribute for each type."""
        self.nulls: dict[str, str] = {}
        """For attributes that may be null: the attribute that is true if they are."""
        for name, attribute in self.attributes.items():
            if attribute.of is None:
                continue
            if attribute.of not in self.names:
                raise ValueError(
                    f"attribute {name!r} is of {shown(attribute.of)}, which is no other attribute"
                )
            if attribute.type is _NULL:
                self.nulls[attribute.of] = name
            else:
                self.types[attribute.of] = (*self.types.get(attribute.of, (attribute.of,)), name)
        self.offsets: dict[str, int] = {}
        """First coordinate of each attribute."""
        self.dimensions: int = 0
        """Number of coordinates, D."""
        for name, attribute in self.attributes.items():
            self.offsets[name] = self.dimensions
            self.dimensions += attribute.width
        self.fields = Fields(
            Field(
                name,
                attribute.family,
                _READERS[attribute.type],
                *attribute.bounds,
                all(abs(end) < EXACT or abs(end) == HIGHEST for end in attribute.bounds),
                attribute.of or "",
                attribute.type is _NULL,
            )
            for name, attribute in self.attributes.items()
        )
        """The attributes, prepared for reading events."""
        self.strict: bool = strict
        self.fields.strict = strict

    def extended(self, attributes: Mapping[str, Given]) -> Schema:
        """Return a schema with the attributes of this one, and further ones after them.

        Raises `ValueError` for an attribute that exists already.
        """
        more = Schema(attributes)
        known = [name for name in more.attributes if name in self.attributes]
        if known:
            raise ValueError(f"there is an attribute {known[0]!r} already, and its type cannot be changed")
        return Schema({**self.attributes, **more.attributes}, strict=self.strict)

    def added_to(self, former: Schema) -> dict[str, Attribute] | None:
        """Return the attributes of this schema that a former one lacks.

        None if this schema lacks an attribute of the former one, has it with another type or domain, or has
        another strictness.
        """
        if self.strict != former.strict or not former.attributes.items() <= self.attributes.items():
            return None
        return {name: own for name, own in self.attributes.items() if name not in former.attributes}

    @cached_property
    def plain(self) -> bool:
        """True if all attributes are numbers, and so have one coordinate each."""
        return all(attribute.family == "number" for attribute in self.attributes.values())

    @cached_property
    def ordinal_offsets(self) -> dict[str, int]:
        """The position of the coordinate of each number and timestamp, by name."""
        return {name: self.offsets[name] for name, attribute in self.attributes.items() if attribute.ordinal}

    def read(self, events: object) -> EventTable:
        """Read events and encode them.

        Parameters
        ----------
        events : dict, list, str, bytes, ndarray, masked array, DataFrame, pyarrow.Table or EventTable
            One event or n of them. A list has dicts, or rows: lists or tuples of a value for each attribute,
            in the order of `names`. Text is JSON: an object, objects in lines, or an array of them; a list
            may have such texts, one object each. Nested objects are flattened with dots, attributes outside
            the schema are ignored. An array has shape (n, number of attributes), in the order of `names`; an
            array of numbers needs a schema of numbers only. A DataFrame is from pandas, or from Polars or
            another library with Arrow's C stream, which needs pyarrow. Missing are: an absent key or None in
            a dict or row, a masked cell, NaT, NaN and None in pandas, null in Arrow and Polars. A table of an
            earlier call is returned unchanged.

        Returns
        -------
        EventTable
            `points`, float64 (n, `dimensions`), and the values by row for exact evaluation.

        Raises
        ------
        EventError
            NaN (except in pandas), infinity, a value outside its domain or of a type that no event has, such
            as bytes, an unexpected shape, or a table of another schema; its `row` and `attribute` say where.
            A value of another type than its attribute is an error only in a strict schema: it satisfies
            nothing. `EventTable.odd` has such values.
        """
        return read_events(self.fields, events)

    def encode(self, events: object) -> FloatArray:
        """Return the points of `events`, float64 (n, `dimensions`); see `read`."""
        return self.read(events).points

    def attribute(self, name: str) -> Attribute:
        """Return the attribute with a name.

        Raises
        ------
        PredicateError
            The name is unknown; the message suggests the nearest name. The error's `attribute` is `name`.
        """
        try:
            return self.attributes[name]
        except KeyError:
            suggestion = correction(name, self.names)
            raise PredicateError(
                f"unknown attribute {shown(name)}{suggestion}",
                attribute=name,
                reason=f"unknown attribute{suggestion}",
            ) from None

    def typed(self, name: str, value: object) -> str:
        """Return the name of the attribute part with the type of a constant; `name`, if there is none."""
        for own in self.types.get(name, ()):
            if _READERS[self.attributes[own].type](value) is not None:
                return own
        return name

    def constant(self, name: str, value: object) -> Constant:
        """Return `value` as a canonical constant of the attribute `name`, of any of its types.

        Raises
        ------
        PredicateError
            The attribute is unknown, its values cannot be compared with `value`, or `value` is NaN, infinite
            or beyond float64.
        """
        attribute = self.attribute(self.typed(name, value) if name in self.types else name)
        found = _READERS[attribute.type](value)
        if found is None:
            if number(value) is None and isinstance(value, float):
                raise PredicateError.about(name, "cannot be compared with NaN")
            if attribute.type is datetime and isinstance(value, str):
                reason = f"is a timestamp, and {shown(value)} is not an ISO 8601 date or time"
                raise PredicateError.about(name, f"{reason}, such as {EXAMPLE}: {why_no_moment(value)}")
            what = f"{type(value).__name__} {shown(value)}"
            hint = "; use IS NULL or exists" if value is None else ""
            phrases = [PHRASES[self.attributes[own].family] for own in self.types.get(name, (name,))]
            raise PredicateError.about(
                name, f"is {' or '.join(phrases)}, it cannot be compared with the {what}{hint}"
            )
        if attribute.type is datetime:
            return Timestamp(found)
        if attribute.family == "number" and not LOWEST <= found <= HIGHEST:  # type: ignore[operator]
            constant, what = f"the constant {shown(found)}", "is infinite or beyond float64"
            raise PredicateError(
                f"{constant} for {name!r} {what}", attribute=name, reason=f"{constant} {what}"
            )
        return found

    def to_json(self) -> list[dict[str, object]] | dict[str, object]:
        """Return a JSON array, or an object for a strict schema, that `from_json` reads as an equal one."""
        entries = [{"name": name} | attribute.to_json() for name, attribute in self.attributes.items()]
        return {"strict": True, "attributes": entries} if self.strict else entries

    @classmethod
    def from_json(cls, data: object) -> Schema:
        """Return the schema that a JSON value describes.

        Parameters
        ----------
        data : mapping or list of mapping
            An object, attribute to type: ``{"price": "float", "size": {"type": "int", "low": 0}}``; or an
            array of such entries with a ``name`` each, as from `to_json`. See `Attribute.from_json`. Either
            may also be the ``attributes`` of an object with a boolean ``strict``.

        Raises
        ------
        ValueError
            The data are no schema; the message names the attribute.
        """
        strict = data.get("strict") if isinstance(data, Mapping) else None
        if isinstance(strict, bool):
            extra = [name for name in data if name not in ("strict", "attributes")]  # type: ignore[attr-defined]
            if extra or "attributes" not in data:  # type: ignore[operator]
                example = '{"strict": true, "attributes": {"price": "float"}}'
                raise ValueError(f'beside "strict" there are "attributes", and nothing else: {example}')
            data = data["attributes"]  # type: ignore[index]
        if isinstance(data, Mapping):
            entries = list(data.items())
        elif isinstance(data, list | tuple) and all(isinstance(entry, Mapping) for entry in data):
            entries = [
                (entry.get("name"), {key: value for key, value in entry.items() if key != "name"})
                for entry in data
            ]
        else:
            unread = isinstance(data, str | bytes | PathLike) or hasattr(data, "read")
            hint = "; pass json.loads(text), of a file the text of Path(file).read_text()" if unread else ""
            raise ValueError(
                f'a schema is a JSON object as Python reads it, such as the dict {{"price": "float"}}; '
                f"got the {type(data).__name__} {shown(data)}{hint}"
            )
        attributes: dict[str, Attribute] = {}
        for name, entry in entries:
            require_name(name)
            for own, attribute in _attributes(name, entry, of_json=True).items():
                if own in attributes:
                    raise ValueError(f"{own!r} occurs twice; keep one")
                attributes[own] = attribute
        return cls(attributes, strict=strict is True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        same = list(self.attributes.items()) == list(other.attributes.items())
        return same and self.strict == other.strict

    def __hash__(self) -> int:
        return hash((*self.attributes.items(), self.strict))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {attribute.kind}" for name, attribute in self.attributes.items())
        return f"Schema({fields}{', strict=True' if self.strict else ''})"
