"""Events like the lots of a city, in GeoJSON, and event patterns of one kind each that match some of them.

The kinds are those of event-ruler's published benchmark, and conjunctions of two and three attributes. The
events have the attributes of the benchmark's events, whose data is not part of its repository any more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

Pattern = dict[str, Any]
"""An event pattern as event-ruler reads it."""

ATTRIBUTES: Final[dict[str, str]] = {
    "type": "str",
    "properties.MAPBLKLOT": "str",
    "properties.BLKLOT": "str",
    "properties.BLOCK_NUM": "str",
    "properties.LOT_NUM": "str",
    "properties.FROM_ST": "str",
    "properties.TO_ST": "str",
    "properties.STREET": "str",
    "properties.ST_TYPE": "str",
    "properties.ODD_EVEN": "str",
    "geometry.type": "str",
    "geometry.firstCoordinates.x": "float",
    "geometry.firstCoordinates.y": "float",
    "geometry.coordinates.x": "float",
    "geometry.coordinates.y": "float",
}
"""The attributes of patterns, as a schema."""
TWELVE: Final = "numeric, 12"
"""The kind with a range for each of twelve numbers, which only its events have."""
MEASURES: Final = tuple(f"m{at:02}" for at in range(12))
FEW: Final = 5
"""Up to so many patterns that accept nearly everything stand alone; more are joined with a block."""

_SYLLABLES: Final = ("AL", "BER", "CO", "DEL", "FUL", "GRA", "HAR", "JA", "KE", "MAS", "NOR", "TON", "VAL")
_TYPES: Final = ("ST", "AVE", "BLVD", "CT", "DR", "LN", "WAY")
_WEST, _EAST, _SOUTH, _NORTH = -122.515, -122.357, 37.708, 37.832


def attributes(kind: str) -> dict[str, str]:
    """Return the attributes that the events for a kind of patterns have, as a schema."""
    return ATTRIBUTES | {f"measures.{name}": "float" for name in MEASURES if kind == TWELVE}


def events(kind: str, count: int, seed: int) -> list[bytes]:
    """Draw events of some 800 bytes for a kind of patterns."""
    draw = Random(seed)
    return [json.dumps(_event(kind, draw), separators=(",", ":")).encode() for _ in range(count)]


def _event(kind: str, draw: Random) -> dict[str, Any]:
    event = _lot(draw)
    if kind == TWELVE:
        event["measures"] = {name: round(draw.random(), 6) for name in MEASURES}
    return event


def _lot(draw: Random) -> dict[str, Any]:
    block, lot, number = f"{draw.randrange(10_000):04}", f"{draw.randrange(1000):03}", draw.randrange(4000)
    x, y = draw.uniform(_WEST, _EAST), draw.uniform(_SOUTH, _NORTH)
    corners = [
        {"x": x + draw.uniform(-3e-4, 3e-4), "y": y + draw.uniform(-3e-4, 3e-4), "z": 0.0}
        for _ in range(draw.randint(5, 12))
    ]
    return {
        "type": "Feature",
        "properties": {
            "MAPBLKLOT": block + lot,
            "BLKLOT": block + lot,
            "BLOCK_NUM": block,
            "LOT_NUM": lot,
            "FROM_ST": str(number),
            "TO_ST": str(number + 2 * draw.randrange(4)),
            "STREET": f"{_word(draw)} {_word(draw)}",
            "ST_TYPE": draw.choices(_TYPES, (55, 20, 5, 5, 5, 5, 5))[0],
            "ODD_EVEN": "EO"[number % 2],
        },
        "geometry": {
            "type": "Polygon" if draw.random() < 0.99 else "MultiPolygon",
            "firstCoordinates": corners[0],
            "coordinates": corners,
        },
    }


def _word(draw: Random) -> str:
    return "".join(draw.choices(_SYLLABLES, k=2))


def patterns(kind: str, count: int, seed: int) -> list[Pattern]:
    """Draw patterns of a kind, a name in `NAMES`; each is made of an event, so it may match."""
    draw = Random(f"{kind} {seed}")
    made = []
    for at in range(count):
        one = _event(kind, draw)
        name = ROTATED[at % len(ROTATED)] if kind == ALL else kind
        pattern = KINDS[name](one, draw)
        if name.startswith("anything-but") and count > FEW:
            pattern.setdefault("properties", {})["BLOCK_NUM"] = [one["properties"]["BLOCK_NUM"]]
        made.append(pattern)
    return made


def _properties(*names: str) -> Callable[[dict[str, Any], Random], Pattern]:
    """Return what makes a pattern of values that are equal."""
    return lambda one, draw: {"properties": {name: [one["properties"][name]] for name in names}}


def _text(
    name: str, make: Callable[[str, Random], Any], negated: bool = False
) -> Callable[[dict[str, Any], Random], Pattern]:
    """Return what makes a pattern of one condition on a text."""

    def pattern(one: dict[str, Any], draw: Random) -> Pattern:
        condition = make(one["properties"][name], draw)
        return {"properties": {name: [{"anything-but": condition} if negated else condition]}}

    return pattern


def _start(text: str, draw: Random) -> str:
    return text[: draw.randint(4, 6)]


def _end(text: str, draw: Random) -> str:
    return text[-draw.randint(4, 6) :]


def _mixed(text: str, draw: Random) -> str:
    return "".join(draw.choice((str.upper, str.lower))(letter) for letter in text)


def _wildcard(text: str, draw: Random) -> str:
    """Leave out one or two letters, and begin with a star in one of four."""
    out = draw.sample(range(1, len(text) - 1), 2) + ([0] if draw.random() < 0.25 else [])
    starred = "".join("*" if at in out else letter for at, letter in enumerate(text))
    return re.sub(r"\*+", "*", starred)


def _between(value: float, width: float, draw: Random) -> dict[str, Any]:
    low = value - draw.uniform(0, width)
    return {"numeric": [">=", round(low, 6), "<", round(low + width, 6)]}


def _numeric(one: dict[str, Any], draw: Random) -> Pattern:
    first = one["geometry"]["firstCoordinates"]
    return {"geometry": {"firstCoordinates": {"x": [_between(first["x"], 2e-5, draw)]}}}


def _two_numeric(one: dict[str, Any], draw: Random) -> Pattern:
    first = one["geometry"]["firstCoordinates"]
    ranges = {axis: [_between(first[axis], 1e-3, draw)] for axis in ("x", "y")}
    return {"geometry": {"firstCoordinates": ranges}}


def _twelve_numeric(one: dict[str, Any], draw: Random) -> Pattern:
    return {"measures": {name: [_between(value, 0.5, draw)] for name, value in one["measures"].items()}}


def _arrays(one: dict[str, Any], draw: Random) -> Pattern:
    geometry = one["geometry"]
    corner = draw.choice(geometry["coordinates"])
    ranges = {axis: [_between(corner[axis], 1e-3, draw)] for axis in ("x", "y")}
    return {"geometry": {"type": [geometry["type"]], "coordinates": ranges}}


_LOT, _STREET = "MAPBLKLOT", "STREET"
KINDS: Final[dict[str, Callable[[dict[str, Any], Random], Pattern]]] = {
    "exact": _properties(_LOT),
    "exact, 2": _properties("BLOCK_NUM", "ODD_EVEN"),
    "exact, 3": _properties("BLOCK_NUM", "ODD_EVEN", "ST_TYPE"),
    "prefix": _text(_LOT, lambda text, draw: {"prefix": _start(text, draw)}),
    "suffix": _text(_LOT, lambda text, draw: {"suffix": _end(text, draw)}),
    "wildcard": _text(_LOT, lambda text, draw: {"wildcard": _wildcard(text, draw)}),
    "ignore case": _text(_STREET, lambda text, draw: {"equals-ignore-case": _mixed(text, draw)}),
    "prefix, ignore case": _text(
        _STREET, lambda text, draw: {"prefix": {"equals-ignore-case": _mixed(text[:7], draw)}}
    ),
    "suffix, ignore case": _text(
        _STREET, lambda text, draw: {"suffix": {"equals-ignore-case": _mixed(text[-7:], draw)}}
    ),
    "numeric": _numeric,
    "numeric, 2": _two_numeric,
    TWELVE: _twelve_numeric,
    "anything-but": _text(_STREET, lambda text, draw: [text], negated=True),
    "anything-but prefix": _text(_LOT, lambda text, draw: {"prefix": _start(text, draw)}, negated=True),
    "anything-but wildcard": _text(
        _LOT, lambda text, draw: {"wildcard": _wildcard(text, draw)}, negated=True
    ),
    "arrays of objects": _arrays,
}
"""The functions that make a pattern, by kind."""
ROTATED: Final = tuple(kind for kind in KINDS if kind != TWELVE)
ALL: Final = "all"
"""Patterns of all kinds that have the same events, in rotation."""
NAMES: Final = (*KINDS, ALL)


def for_quamina(pattern: Pattern) -> Pattern | None:
    """Return a pattern as quamina reads it; None where it has none that means the same."""
    made: Pattern = {}
    for name, inner in pattern.items():
        found = for_quamina(inner) if isinstance(inner, dict) else _conditions(inner)
        if found is None:
            return None
        made[name] = found
    return made


def _conditions(alternatives: Sequence[Any]) -> Any:
    found = [_condition(one) for one in alternatives]
    return None if None in found else found


def _condition(one: Any) -> Any:
    if not isinstance(one, dict):
        return one
    ((name, value),) = one.items()
    plain = isinstance(value, str)
    if name == "suffix" and plain:
        return {"wildcard": "*" + value}
    if name in ("prefix", "wildcard", "equals-ignore-case") and plain:
        return one
    return one if name == "anything-but" and isinstance(value, list) else None
