"""The value of an attribute or a bound from the text of a CSV cell that is not empty.

A number is written as in Python, without underscores; a boolean is true, false, 1 or 0, in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

LARGE = 2.0**53
"""From here on, floats do not have every integer."""
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _integer(cell: str) -> int | float:
    try:
        return int(cell) if "_" not in cell else _float(cell)
    except ValueError:
        return _float(cell)


def _float(cell: str) -> int | float:
    if "_" in cell:
        raise ValueError(cell)
    value = float(cell)
    if abs(value) >= LARGE:
        try:
            return int(cell)
        except ValueError:  # not written as an integer
            pass
    return value


def _boolean(cell: str) -> bool:
    found = _BOOLEANS.get(cell.lower())
    if found is None:
        raise ValueError(cell)
    return found


def _moment(cell: str) -> str:
    _timestamp_bound(cell)
    return cell


VALUES: dict[str, Callable[[str], object]] = {
    "int": _integer,
    "float": _float,
    "bool": _boolean,
    "str": str,
    "timestamp": _moment,
}
"""The function that reads the value of an attribute, by kind. `ValueError` for text of another type."""


def _number_bound(cell: str) -> float:
    value = _float(cell)
    if isnan(value):
        raise ValueError(cell)
    return value


def _boolean_bound(cell: str) -> float:
    return float(_boolean(cell))


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
"""The function that reads a bound, by family of the attribute. `ValueError` for text of another type."""
