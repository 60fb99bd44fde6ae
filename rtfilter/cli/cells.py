"""From the text of a CSV cell that is not empty to the value of an attribute or a bound.

A number is written as in Python, without underscores; a boolean is true, false, 1 or 0, in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

LARGE = 2.0**53
"""From here on a float is not every integer."""
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _integer(cell: str) -> object:
    try:
        return int(cell) if "_" not in cell else cell
    except ValueError:
        return _float(cell)


def _float(cell: str) -> object:
    try:
        value = float(cell) if "_" not in cell else None
    except ValueError:
        return cell
    if value is None:
        return cell
    if abs(value) >= LARGE:
        try:
            return int(cell)
        except ValueError:  # not written as an integer
            pass
    return value


def _boolean(cell: str) -> object:
    return _BOOLEANS.get(cell.lower(), cell)


VALUES: dict[str, Callable[[str], object]] = {
    "int": _integer,
    "float": _float,
    "bool": _boolean,
    "str": str,
    "timestamp": str,
}
"""How to read the value of an attribute, by its kind. Text of another type stays text: it matches nothing."""


def _number_bound(cell: str) -> float:
    value = _float(cell)
    if not isinstance(value, int | float) or isnan(value):
        raise ValueError(cell)
    return value


def _boolean_bound(cell: str) -> float:
    found = _BOOLEANS.get(cell.lower())
    if found is None:
        raise ValueError(cell)
    return float(found)


def _timestamp_bound(cell: str) -> float:
    from rtfilter.events.encoding import microseconds

    found = microseconds(cell)
    if found is None:
        raise ValueError(cell)
    return found


BOUNDS: dict[str, Callable[[str], float]] = {
    "number": _number_bound,
    "bool": _boolean_bound,
    "timestamp": _timestamp_bound,
}
"""How to read a bound, by the family of the attribute. `ValueError` for text of another type."""
