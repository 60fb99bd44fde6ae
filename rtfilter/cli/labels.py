"""Times to live and metadata in a file of subscriptions.

JSON lines have "ttl", seconds, and "metadata", an object. Tables have columns ``ttl``, seconds or a duration,
and ``metadata``, the text of a JSON object; a column of Parquet may hold structs. An empty cell is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from rtfilter.text import shown

NAMES: Final = ("ttl", "metadata")
"""Names of the columns, and of the keys in JSON lines."""

Cells = tuple[object, object]
"""A time to live and metadata, each may be None."""
NONE: Final[Cells] = None, None


def of_csv(header: Sequence[str]) -> Callable[[list[str]], Cells]:
    """Return a function that reads the TTL and metadata of a CSV row."""
    ttl, metadata = (header.index(name) if name in header else None for name in NAMES)

    def read(row: list[str]) -> Cells:
        seconds = None if ttl is None else row[ttl] or None
        return _number(seconds), None if metadata is None else row[metadata] or None

    return read if ttl is not None or metadata is not None else lambda row: NONE


def of_arrow(table: Any) -> Sequence[Cells]:
    """Return the TTL and metadata of each row of an Arrow table."""
    columns = [
        table.column(name).to_pylist() if name in table.column_names else [None] * len(table)
        for name in NAMES
    ]
    return list(zip(*columns, strict=True))


def _number(cell: str | None) -> object:
    try:
        return None if cell is None else float(cell)
    except ValueError:
        return cell


class FileLabels:
    """The TTLs and metadata of a file for `subscribe_many`, checked row by row."""

    def __init__(self) -> None:
        self._ttl: list[Any] = []
        self._metadata: list[Any] = []

    def take(self, cells: Cells) -> None:
        """Read the cells of the next subscription. After a `TypeError` or `ValueError`, nothing is stored."""
        ttl, metadata = cells
        if cells is not NONE:
            from rtfilter.subscriptions.given import seconds
            from rtfilter.subscriptions.metadata import encoded

            given: Any = ttl
            seconds(given)
            metadata = _object(metadata)
            encoded(metadata)
        self._ttl.append(ttl)
        self._metadata.append(metadata)

    def options(self) -> dict[str, Any]:
        """Return the arguments of `subscribe_many`, without those that no subscription has."""
        given = {"ttl": self._ttl, "metadata": self._metadata}
        return {name: column for name, column in given.items() if any(value is not None for value in column)}


def _object(metadata: object) -> object:
    if not isinstance(metadata, str):
        return metadata
    try:
        return json.loads(metadata)
    except ValueError:
        raise ValueError(f"metadata is a JSON object, not {shown(metadata)}") from None
