"""The attributes of a schema, prepared for reading the values of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from math import ceil, floor, inf, nextafter
from operator import ge, itemgetter, le
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.events.encoding import HIGHEST, LOWEST, is_missing
from rtfilter.events.spelling import Spelling

PHRASES: Final = {"number": "a number", "str": "a string", "bool": "a boolean", "timestamp": "a timestamp"}
"""The type of an attribute in messages, by its family."""


class _Key(str):
    """A key of rows that no attribute can have."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __reduce__(self) -> str:
        return "NULL" if self is NULL else "NOW"


NULL: Final = _Key("NULL")
"""An element of a list that is null, where null is a value."""
_ABSENT: Final = object()
NOW: Final = _Key("NOW()")
"""Key of the batch's moment in rows, in microseconds since 1970."""
_LAST: Final = 8e12


def microseconds_at(seconds: float) -> int:
    """Return seconds since 1970 in microseconds, limited to 250,000 years."""
    return int(max(min(seconds, _LAST), -_LAST) * 1_000_000)


class Field(NamedTuple):
    """An attribute, prepared for reading its values."""

    name: str
    family: str
    """``number``, ``timestamp``, ``str`` or ``bool``."""
    read: Callable[[object], Any]
    """Converts the value of an event to a canonical one; None for another type."""
    low: float
    high: float
    """Closed ends of the domain, int or float, exactly as declared; strings ignore them."""
    sharp: bool
    """True if each end is a float64 that shares its value with no other number."""
    of: str = ""
    """Another attribute with the same values; this one is for a further type of them."""
    null: bool = False
    """True if the value is whether the other attribute is null."""

    @property
    def source(self) -> str:
        """The name that the values have in events."""
        return self.of or self.name

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return 3 if self.family == "str" else 1

    def outside(self, values: AnyArray) -> BoolArray:
        """Return whether numbers, (n,) of exact integers or float64, are outside the domain; NaN is."""
        low, high = self.low, self.high
        if values.dtype.kind == "f":
            low, high = inward(low, high)
        else:
            low, high = ceil(low), floor(high)
        found: BoolArray = ~((values >= low) & (values <= high))
        return found


class Fields(tuple[Field, ...]):
    """The attributes of a schema, with everything that reading needs to know in advance."""

    strict = False
    """True if events with unknown names, or with values of another type, are refused."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(field.name for field in self)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names, in order, without those for further types."""
        return tuple(field.name for field in self if not field.of)

    @cached_property
    def known(self) -> frozenset[str]:
        """The names that events have."""
        return frozenset(self.labels)

    @cached_property
    def further(self) -> tuple[Field, ...]:
        """The attributes for further types of others."""
        return tuple(field for field in self if field.of)

    @cached_property
    def nullable(self) -> frozenset[str]:
        """The names for which null is a value."""
        return frozenset(field.of for field in self.further if field.null)

    def sources(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names in events of some attributes."""
        sources = {field.name: field.of for field in self.further}
        return frozenset(sources.get(name, name) for name in names)

    def completed(self, event: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a flat event, or a choice of elements, with the values of attributes for further types."""
        found = dict(event)
        for field in self.further:
            value = event.get(field.of, _ABSENT)
            if value is NULL:
                value = found[field.of] = None
            if value is _ABSENT or isinstance(value, Mapping):
                found.pop(field.name, None)
            else:
                found[field.name] = is_missing(value) if field.null else value
        return found

    @cached_property
    def places(self) -> dict[str, int]:
        """The first coordinate of each attribute, by name."""
        starts = accumulate((field.width for field in self), initial=0)
        return dict(zip(self.names, starts, strict=False))

    @cached_property
    def starts(self) -> IntArray:
        """The first coordinate of each attribute, int64 (number of attributes,)."""
        return np.array([*self.places.values()], np.int64)

    @cached_property
    def spelling(self) -> Spelling:
        """The detector of misspelt names in events."""
        return Spelling(self.labels)

    @cached_property
    def paths(self) -> frozenset[str] | None:
        """The names, if an event must be flattened for them; else None."""
        return self.known if any("." in name for name in self.known) else None

    @cached_property
    def spelled(self) -> bool:
        """True if some names are not ASCII, so that events may spell them differently: see `composed`."""
        return not all(name.isascii() for name in self.names)

    @cached_property
    def take(self) -> Callable[[Any], tuple[Any, ...]] | None:
        """A function that returns all values of a flat dict at once; None if it is not possible."""
        return itemgetter(*self.names) if len(self) > 1 and self.paths is None and not self.further else None

    @cached_property
    def family(self) -> str | None:
        """The family of all attributes, if they have the same one; else None."""
        return self[0].family if len({field.family for field in self}) == 1 else None

    @cached_property
    def numbers(self) -> bool:
        """True if all attributes are numbers, and the ends of all domains are plain float64."""
        return self.family == "number" and all(field.sharp for field in self)

    @cached_property
    def bounded(self) -> tuple[tuple[int, Field], ...]:
        """Place and attribute of each one with a domain."""
        return tuple(
            (place, field) for place, field in enumerate(self) if field.low > LOWEST or field.high < HIGHEST
        )

    @cached_property
    def _domains(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return tuple(field.low for field in self), tuple(field.high for field in self)

    @cached_property
    def inward(self) -> FloatArray:
        """The least and the greatest float64 of each domain, float64 (2, number of attributes)."""
        return np.array([inward(field.low, field.high) for field in self]).T

    def contain(self, values: Sequence[float]) -> bool:
        """Return whether numbers, one of each attribute, are in their domains; NaN and infinity are not."""
        low, high = self._domains
        return all(map(le, low, values)) and all(map(ge, high, values))


def inward(low: float, high: float) -> tuple[float, float]:
    """Return the least and the greatest float64 in a closed range of numbers, whose ends may be integers."""
    a, b = float(low), float(high)
    return a if a >= low else nextafter(a, inf), b if b <= high else nextafter(b, -inf)
