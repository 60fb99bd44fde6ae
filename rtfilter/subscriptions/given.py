"""Times to live and metadata as callers pass them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import timedelta
from math import inf, isfinite
from numbers import Real
from typing import Any

import numpy as np

from rtfilter.subscriptions.labels import NO_LABELS, Beside
from rtfilter.subscriptions.metadata import encoded
from rtfilter.text import shown

Lifetime = float | timedelta
"""Seconds, or a timedelta."""


def labels_of(
    count: int,
    ttl: Lifetime | Sequence[Lifetime | None] | None,
    metadata: Sequence[Mapping[str, Any] | None] | None,
    clock: Callable[[], float],
) -> Beside:
    """Return the labels of `count` subscriptions; `ttl` may be one value for all of them.

    Raises `TypeError` and `ValueError`, with the row if there are several subscriptions.
    """
    if ttl is None and metadata is None:
        return NO_LABELS
    texts: list[bytes | None] | None = None
    if metadata is not None:
        texts = [_of_row(*each, encoded) for each in _rows("metadata", metadata, count)]
    if ttl is None:
        return Beside(None, None, texts)
    now = clock()
    if not isfinite(now):
        raise ValueError(f"the clock returned {shown(now)}, but a time to live needs finite seconds")
    if isinstance(ttl, Real | timedelta | np.timedelta64 | str):
        return Beside(None, np.full(count, now + seconds(ttl)), texts)
    lives = [_of_row(*each, seconds) for each in _rows("ttl", ttl, count)]
    return Beside(None, now + np.array(lives, np.float64), texts)


def seconds(ttl: object) -> float:
    """Return a time to live in seconds, inf for None.

    Raises `TypeError`; `ValueError` if it is not above 0.
    """
    if ttl is None:
        return inf
    if isinstance(ttl, timedelta):
        value = ttl.total_seconds()
    elif isinstance(ttl, np.timedelta64) and np.datetime_data(ttl.dtype)[0] not in ("Y", "M"):
        value = float(ttl / np.timedelta64(1, "s"))
    elif isinstance(ttl, Real) and not isinstance(ttl, bool | np.timedelta64):
        try:
            value = float(ttl)
        except OverflowError:
            value = inf
    else:
        raise TypeError(f"a time to live is a number of seconds or a timedelta, not {shown(ttl)}")
    if not (value > 0 and isfinite(value)):
        raise ValueError(
            f"a time to live is finite and above 0, not {shown(ttl)}; "
            "leave it out if the subscription never expires"
        )
    return value


def _rows(name: str, column: Any, count: int) -> list[tuple[int | None, Any]]:
    """Return the cells of a column with their rows, None as the row if there is only one."""
    if isinstance(column, str | Mapping | Set) or not hasattr(column, "__len__"):
        raise TypeError(f"{name} must be a list with a value for each subscription, not {shown(column)}")
    if len(column) != count:
        raise ValueError(f"{name} has {len(column)} rows for {count} subscriptions")
    return [(row if count > 1 else None, cell) for row, cell in enumerate(column)]


def _of_row(row: int | None, cell: Any, read: Callable[[Any], Any]) -> Any:
    """Read a cell; errors name its row."""
    try:
        return read(cell)
    except (TypeError, ValueError) as error:
        raise (error if row is None else type(error)(f"row {row}, {error}")) from None
