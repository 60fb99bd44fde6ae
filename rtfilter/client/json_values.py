"""Values as JSON has them. A value that JSON would change is an error.

The table of values is in `docs/clients.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import msgspec
import numpy as np

from rtfilter.client.client_errors import ClientError
from rtfilter.events.encoding import Timestamp, boolean, is_missing, microseconds, number, string

_KEPT: Final = (set, frozenset, bytes, bytearray, memoryview, Decimal, datetime, date, time, timedelta)
"""Types that msgspec would convert to its own form."""
_NONE: Final = (set, frozenset, bytes, bytearray, memoryview, time, timedelta, np.generic)
"""Types without a form in JSON, after all types that have one."""


def converted(value: Any, path: str) -> Any:
    """Return a value in types that JSON represents without loss.

    Raises `ClientError` for NaN, infinity, or another value that JSON cannot represent, with a path such as
    ``events[3].blob``; and errors of msgspec for a dataclass or another object.
    """
    if isinstance(value, Mapping):
        return {key: converted(one, f"{path}.{key}") for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [converted(one, f"{path}[{at}]") for at, one in enumerate(value)]
    if isinstance(value, np.ndarray):
        return converted(list(value) if value.ndim else value[()], path)
    if isinstance(value, msgspec.Raw):
        return value
    if is_missing(value):
        return None
    if isinstance(value, float | np.floating | Decimal):
        return _number(value, path)
    for read in (boolean, number, string):
        found = read(value)
        if found is not None:
            return found
    if isinstance(value, date | np.datetime64):  # includes datetime
        return _moment(value, path)
    if isinstance(value, _NONE):
        raise ClientError(
            f"{path} is {_phrase(value)}, which JSON cannot represent; write it as text, a number or a list"
        )
    found = msgspec.to_builtins(value, builtin_types=_KEPT)  # converts a dataclass, an enumeration, a UUID
    if type(found) is type(value):
        raise ClientError(f"{path} is {_phrase(value)}, which JSON cannot represent")
    return converted(found, path)


def _phrase(value: object) -> str:
    return f"of the type {type(value).__name__}"


def _number(value: Any, path: str) -> int | float | Decimal:
    if not (value.is_finite() if isinstance(value, Decimal) else isfinite(value)):
        raise ClientError(
            f"{path} is not finite: JSON has no NaN and no infinity; leave out what is not known"
        )
    if not isinstance(value, Decimal):
        return float(value)
    whole = number(value)  # JSON reads numbers with a decimal point as floats
    return whole if isinstance(whole, int) else value


def _moment(value: Any, path: str) -> str:
    if type(value) is date or type(value) is datetime:
        return value.isoformat()
    found = microseconds(value)
    if found is None:
        raise ClientError(f"{path} is a moment that int64 microseconds do not hold")
    return str(Timestamp(found))
