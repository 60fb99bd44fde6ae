"""Coordinates of attribute values, and the types of values that can be compared.

Every attribute takes one coordinate of a float64 point, a string attribute three. Besides ordinary values
a coordinate can be `MISSING` (below every value) or `ALIEN` (above every value), so that one test of a
closed box per dimension covers absent and ill-typed values too. The normative text is
`docs/predicates.md`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, TypeGuard
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import FloatArray
from rtfilter.events.moments import microseconds_of, read_moment

MISSING: Final = -math.inf
"""Coordinate of an attribute that the event does not have."""
ALIEN: Final = math.inf
"""Coordinate of a present value of another type: it satisfies only ``exists``, or no constraint at all."""
HIGHEST: Final = float(np.finfo(np.float64).max)
LOWEST: Final = -HIGHEST
_ATOMS: Final = frozenset((int, float, str, bool))
_DIGITS: Final = 76
"""Most digits of a whole `Decimal` that is read exactly, as many as Arrow's widest type has."""
EXACT: Final = 2**53
"""Integers of at least this size may share a float64 with a neighbour: boxes there are supersets."""

STRING_BYTES: Final = 6
"""A string of at most this many UTF-8 bytes is encoded without loss."""
ORDER_MAX: Final = 256**STRING_BYTES - 1
"""Largest `order` coordinate of a string, and largest `ending`."""
_SHORT_BITS: Final = 51  # 6 bytes, and 3 bits for the length: "a" and "a\0" differ
SHORT_MASK: Final = 2**_SHORT_BITS - 1
IDENTITY_MAX: Final = 2 ** (_SHORT_BITS + 1) - 1
"""Largest `identity` coordinate of a string; codes of short strings are the lower half."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
_YEARS: Final = 290_000  # almost the range of int64 microseconds
_YEAR: Final = re.compile(r"(-?[0-9]+)(-.*)")
_FAR: Final = re.compile(
    r"([+-][0-9]{6})(-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)Z", re.ASCII
)


class Timestamp(int):
    """A canonical timestamp constant: microseconds since 1970-01-01T00:00:00Z; its text is ISO 8601."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        try:
            return (EPOCH + int(self) * MICROSECOND).isoformat().replace("+00:00", "Z")
        except OverflowError:
            if abs(int(self)) >= 2**63:
                return f"{int(self)} us"
            year, rest = _YEAR.fullmatch(str(np.datetime64(int(self), "us"))).groups()  # type: ignore[union-attr]
            return f"{int(year):+07}{rest}Z"


Constant = bool | int | float | str | Timestamp
"""A canonical constant. Its exact type decides how values of events are read for the comparison."""


def is_missing(value: object) -> bool:
    """Return whether a value means an absent attribute: None, NaT, pandas NA, or a nested object (a path)."""
    if value is None:
        return True
    if type(value) in _ATOMS:
        return False
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    # By name, so that pandas need not be imported; comparing NA with anything is an error.
    return type(value).__name__ in ("NaTType", "NAType") or isinstance(value, Mapping)


def number(value: object) -> int | float | None:
    """Return a value as a number; None for any other type, and for NaN. A bool is no number."""
    kind = type(value)
    if kind is float:
        return value if value == value else None  # type: ignore[return-value]
    if kind is int:
        return value  # type: ignore[return-value]
    if isinstance(value, bool | np.bool_ | Timestamp | np.timedelta64):  # two of them are integers to Python
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() < _DIGITS:
        whole = int(value)
        if whole == value:
            return whole  # exact, as in JSON
    if isinstance(value, float | np.floating | Decimal):
        try:
            result = float(value)
        except ValueError:  # a signalling NaN
            return None
        return result if result == result else None
    return number(value[()]) if is_scalar(value) else None


def is_scalar(value: object) -> TypeGuard[np.ndarray[Any, Any]]:
    """Return whether an array is a single value."""
    return isinstance(value, np.ndarray) and value.ndim == 0


def boolean(value: object) -> bool | None:
    """Return a value as a boolean; None for any other type, also for numbers."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return boolean(value[()]) if is_scalar(value) else None


def string(value: object) -> str | None:
    """Return a string, or the text of a UUID; None for any other type."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, UUID):
        return str(value)
    return string(value[()]) if is_scalar(value) else None


def microseconds(value: object) -> int | None:
    """Return a timestamp as whole microseconds since 1970-01-01T00:00:00Z, rounded down.

    Accepts datetime (naive means UTC), date (midnight UTC), numpy.datetime64 and ISO 8601 text; a year
    outside 1 to 9999 has a sign and six digits. Returns None for other values, and for a moment outside int64
    microseconds.
    """
    if isinstance(value, Timestamp):
        return int(value)
    if isinstance(value, str):
        moment = read_moment(value)
        if moment is None:
            return _far_microseconds(value)
        value = moment
    if isinstance(value, datetime):
        if is_missing(value):
            return None
        # As in Python, a time zone without an offset counts as none.
        naive = value.tzinfo is None or value.utcoffset() is None
        aware = value.replace(tzinfo=UTC) if naive else value
        return int((aware - EPOCH) // MICROSECOND)
    if isinstance(value, date):
        return (value.toordinal() - EPOCH.toordinal()) * 86_400_000_000
    if isinstance(value, np.datetime64):
        return microseconds_of(value)
    return microseconds(value[()]) if is_scalar(value) else None


def _far_microseconds(text: str) -> int | None:
    """Return a timestamp of a year that `datetime` does not have: ``+012345-01-31T12:00:00Z``."""
    found = _FAR.fullmatch(text)
    if found is None or abs(int(found[1])) > _YEARS:
        return None
    try:
        return int(np.datetime64(f"{int(found[1]):04}{found[2]}", "us").astype(np.int64))
    except ValueError:  # no such day
        return None


READERS: Final[dict[type, Callable[[object], Constant | None]]] = {
    int: number,
    float: number,
    bool: boolean,
    str: string,
    Timestamp: microseconds,
}
"""The function that reads an event's value for comparison with a constant, by the constant's exact type."""


def canonical(value: object) -> Constant | None:
    """Return the canonical form of a constant by its own type, or None if it has none.

    Text stays text: only a schema knows that an attribute is a timestamp.
    """
    for read in (number, boolean, string):
        found = read(value)
        if found is not None:
            return found if not isinstance(found, float) or math.isfinite(found) else None
    moment = microseconds(value)
    return None if moment is None else Timestamp(moment)


def utf8(text: str) -> bytes:
    """Encode text so that the order of the bytes is the order of the code points, lone surrogates too."""
    return text.encode() if text.isascii() else text.encode("utf-8", "surrogatepass")


def order_code(data: bytes) -> int:
    """Return the first 6 bytes, padded with zeros, as an integer in [0, `ORDER_MAX`]; monotone."""
    return int.from_bytes(data[:STRING_BYTES].ljust(STRING_BYTES, b"\0"), "big")


_Ranges = tuple[tuple[int, int], ...]
_REST: Final = (0x80, 0xBF)
_LEADS: Final[tuple[tuple[int, int, _Ranges], ...]] = (
    (0x00, 0x7F, ()),
    (0xC2, 0xDF, (_REST,)),
    (0xE0, 0xE0, ((0xA0, 0xBF), _REST)),
    (0xE1, 0xEF, (_REST, _REST)),
    (0xF0, 0xF0, ((0x90, 0xBF), _REST, _REST)),
    (0xF1, 0xF3, (_REST, _REST, _REST)),
    (0xF4, 0xF4, ((0x80, 0x8F), _REST, _REST)),
)
"""The possible first bytes of UTF-8 characters, with the possible bytes after each; lone surrogates too."""


def order_gaps(low: float, high: float) -> tuple[float, float]:
    """Return the widest ends, in `order`, that contain no other string than those in [low, high]."""
    if 0 < low <= ORDER_MAX:
        below = _nearest_text(int(low) - 1, up=False)
        low = 0.0 if below is None else below + 1.0
    if 0 <= high < ORDER_MAX:
        above = _nearest_text(int(high) + 1, up=True)
        high = float(ORDER_MAX) if above is None else above - 1.0
    return low, high


def _nearest_text(code: int, up: bool) -> int | None:
    """Return the least code of a string from `code` up, or the greatest from `code` down; None if none."""
    found = _nearest_bytes(code.to_bytes(STRING_BYTES, "big"), up, ())
    return None if found is None else int.from_bytes(found, "big")


def _nearest_bytes(data: bytes, up: bool, pending: _Ranges) -> bytes | None:
    """Return the nearest bytes to `data` of a string; `pending` are the rest of its first character."""
    if not data:
        return b""
    first, rest = data[0], data[1:]
    leads = ((*pending[0], pending[1:]),) if pending else _LEADS
    for least, most, after in leads if up else reversed(leads):
        byte = least if up else most
        if least <= first <= most:
            found = _nearest_bytes(rest, up, after)
            if found is not None:
                return bytes((first,)) + found
            byte = first + 1 if up else first - 1
            if not least <= byte <= most:
                continue
        elif (byte < first) == up:
            continue
        outermost = _nearest_bytes((b"\0" if up else b"\xff") * len(rest), up, after)
        return None if outermost is None else bytes((byte,)) + outermost
    return None


def ending_code(folded: str) -> int:
    """Return the last 6 bytes of a case-folded text as an integer, in reverse order, padded with zeros.

    The result is in [0, `ORDER_MAX`]. It is monotone in the reversed text, as `order_code` is in the text.
    """
    return _ending(utf8(folded[-STRING_BYTES:]))


def _ending(data: bytes) -> int:
    return int.from_bytes(data[-STRING_BYTES:].rjust(STRING_BYTES, b"\0"), "little")


SPREADS: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)
"""Odd multipliers: with xor-shifts they are bijections modulo 2**51 and spread neighbours apart."""
_MANY: Final = 64
"""Texts from which on arrays are faster than one text after the other."""
_LONGEST: Final = 256
"""Characters of the longest text whose code is cached: long ones would take much memory, and rarely recur."""


def string_code(text: str) -> tuple[float, float, float]:
    """Return the three coordinates (order, identity, ending) of a string, the same in every process.

    `order` is monotone in the string. `identity` is injective on strings of at most 6 UTF-8 bytes and
    spreads them over [0, 2**51); longer strings get a hash in [2**51, 2**52). `ending` is `ending_code` of
    the case-folded string. All are whole.
    """
    return _cached_code(text) if len(text) <= _LONGEST else _string_code(text)


def string_codes(texts: Sequence[str]) -> FloatArray:
    """Return the `string_code` of n strings, float64 (n, 3)."""
    if len(texts) < _MANY:
        return _each_code(texts)
    distinct = list(set(texts))
    if 2 * len(distinct) > len(texts):
        return _codes_of_many(texts)
    place = dict(zip(distinct, range(len(distinct)), strict=True))
    rows = np.fromiter(map(place.__getitem__, texts), np.int64, len(texts))
    codes: FloatArray = _codes_of_many(distinct)[rows]
    return codes


def _codes_of_many(texts: Sequence[str]) -> FloatArray:
    return _many_codes(texts) if len(texts) >= _MANY and all(map(str.isascii, texts)) else _each_code(texts)


def _each_code(texts: Sequence[str]) -> FloatArray:
    codes = chain.from_iterable(map(string_code, texts))
    return np.fromiter(codes, np.float64, 3 * len(texts)).reshape(len(texts), 3)


def _ascii_codes(texts: Sequence[str]) -> FloatArray:
    """Return the `string_code` of n ASCII strings by arrays: a third of the time if few of them recur."""
    lengths = np.fromiter(map(len, texts), np.uint64, len(texts))
    order = _first_bytes(texts)
    ends = _first_bytes([text[: -STRING_BYTES - 1 : -1] for text in texts], fold=True)
    mask = np.uint64(SHORT_MASK)
    code = (((order << 3) | lengths) * np.uint64(SPREADS[0])) & mask
    code = ((code ^ (code >> 27)) * np.uint64(SPREADS[1])) & mask
    identity = code ^ (code >> 26)
    long = np.flatnonzero(lengths > STRING_BYTES)
    digests = b"".join([_digest(texts[at].encode()) for at in long.tolist()])
    identity[long] = (np.frombuffer(digests, ">u8") & mask) | np.uint64(SHORT_MASK + 1)
    return np.column_stack((order, identity, ends)).astype(np.float64)


def _first_bytes(texts: Sequence[str], fold: bool = False) -> NDArray[np.uint64]:
    """Return the first 6 bytes of ASCII strings as integers, padded with zeros; `fold`: in lower case."""
    padded = np.zeros(len(texts), f"S{STRING_BYTES + 2}")
    padded[:] = np.array(texts, f"S{STRING_BYTES}")
    each = padded.view(np.uint8)
    if fold:
        each[(each >= ord("A")) & (each <= ord("Z"))] |= 0x20
    return (padded.view(">u8") >> 16).astype(np.uint64)


_many_codes: Callable[[Sequence[str]], FloatArray] = _ascii_codes


def use(codes_of: Callable[[Sequence[str]], FloatArray]) -> None:
    """Use a faster function for the `string_code` of many ASCII strings."""
    global _many_codes
    _many_codes = codes_of


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()


def _string_code(text: str) -> tuple[float, float, float]:
    data = utf8(text)
    if len(data) == len(text):  # ASCII: bytes take half of the time
        ending = _ending(data[-STRING_BYTES:].lower())
    else:
        ending = ending_code(text[-STRING_BYTES:].casefold())  # each character is folded independently
    if len(data) > STRING_BYTES:
        digest = int.from_bytes(_digest(data), "big")
        order = int.from_bytes(data[:STRING_BYTES], "big")
        return float(order), float((digest & SHORT_MASK) | (SHORT_MASK + 1)), float(ending)
    order = order_code(data)
    code = ((order << 3) | len(data)) * SPREADS[0] & SHORT_MASK
    code = (code ^ (code >> 27)) * SPREADS[1] & SHORT_MASK
    return float(order), float(code ^ (code >> 26)), float(ending)


_cached_code = lru_cache(maxsize=32_768)(_string_code)  # up to 1 kB each
