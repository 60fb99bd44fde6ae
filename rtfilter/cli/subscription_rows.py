"""The rows of a file of subscriptions beside their predicates: ids, times to live, metadata; unusable rows.

Ids are integers or text, all ids of a file of one type. JSON and Parquet have types. Cells of CSV are
integers if all of them are integers without leading zeros, and otherwise text. UUIDs are text.

JSON lines have "ttl", seconds, and "metadata", an object. Tables have columns ``ttl``, seconds or a duration,
and ``metadata``, the text of a JSON object; a column of Parquet may hold structs. An empty cell is none.
"""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from rtfilter.cli.arguments import subscription_id
from rtfilter.cli.terminal import CommandError, say
from rtfilter.reading import files
from rtfilter.text import shown

Id = int | str
"""An id in a file."""
_INTEGER = re.compile(r"\s*-?(0|[1-9][0-9]{0,29})\s*")
_WORDS: dict[type, str] = {int: "an integer", str: "text"}
LABELS: Final = ("ttl", "metadata")
"""Names of the columns, and of the keys in JSON lines."""

Cells = tuple[object, object]
"""A time to live and metadata, each may be None."""
NO_LABELS: Final[Cells] = None, None


class FileRows:
    """The rows of a file, by line or, for Parquet, by number.

    Attributes
    ----------
    refused : int
        Number of rows that were left out.
    """

    def __init__(self, path: str, skip: bool = False) -> None:
        self._path, self._skip = path, skip
        self.refused = 0

    def place(self, at: int) -> str:
        """Return the name of a row in messages."""
        parquet = self._path.endswith(".parquet")
        return files.row_place(self._path, at) if parquet else files.place(self._path, at)

    def refuse(self, at: int, reason: object) -> None:
        """Report an unusable row and leave it out. Raises `CommandError` unless such rows are skipped."""
        self.tell(f"{self.place(at)}: {reason}")

    def tell(self, message: str) -> None:
        """Do the same as `refuse`, with a message that already has the place."""
        if not self._skip:
            raise CommandError(message)
        self.refused += 1
        say(f"left out: {message}")


def id_column(cells: Sequence[str]) -> list[Id | None]:
    """Return the ids in a column of CSV; None for an empty cell."""
    if all(_INTEGER.fullmatch(cell) for cell in cells if cell):
        return [int(cell) if cell else None for cell in cells]
    return [cell or None for cell in cells]


class Ids:
    """The ids of a file, read row by row: either all rows have an id, or none; each id occurs once."""

    def __init__(self, rows: FileRows) -> None:
        self._rows = rows
        self._seen: dict[Id, int] = {}
        self._given: bool | None = None
        self._first: tuple[int, type] = 0, int

    def take(self, row: int, at: int, id: object) -> Id | None:
        """Return the id of a subscription, or its row if the file has no ids; None if it cannot be used.

        `rows` gets the reason.
        """
        if isinstance(id, UUID):
            id = str(id)
        wrong = self._wrong(id)
        if wrong is not None:
            self._rows.refuse(at, wrong)
            return None
        if id is None:
            self._given = False
            return row
        assert isinstance(id, int | str)
        if not self._seen:
            self._given, self._first = True, (at, type(id))
        self._seen[id] = at
        return id

    def _wrong(self, id: object) -> str | None:
        if self._given not in (None, id is not None):
            odd = "no id, but others have one" if self._given else "an id, but others have none"
            return f"{odd}; give every subscription an id or none"
        if id is None:
            return None
        if type(id) is int and not 0 <= id < 2**63 - 1:
            return f"an id is an integer from 0 to 2**63 - 2; got {shown(id)}"
        if type(id) not in _WORDS:
            return f"an id is an integer or text; got {shown(id)}"
        if isinstance(id, str) and not _encodable(id):
            return f"the id {shown(id)} has a character that UTF-8 cannot hold"
        assert isinstance(id, int | str)
        at, kind = self._first
        if self._seen and type(id) is not kind:
            there = f"that of {self._rows.place(at)} is {_WORDS[kind]}"
            return f"the id {shown(id)} is {_WORDS[type(id)]}, {there}; use one type in a file"
        if id in self._seen:
            return f"the id {shown(id)} is taken already, see {self._rows.place(self._seen[id])}"
        return None


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def asked_id(text: str, kind: type | None) -> int | str | UUID:
    """Return the id in the argument --id, if the ids of the index have this type; None for an empty index.

    Raises
    ------
    CommandError
        The text is no id of this type.
    """
    if kind is str:
        return text
    if kind is UUID:
        try:
            return UUID(text)
        except ValueError:
            raise CommandError(f"argument --id: the ids of this index are UUIDs; got {shown(text)}") from None
    try:
        return subscription_id(text)
    except ArgumentTypeError as error:
        raise CommandError(f"argument --id: {error}") from None


def csv_labels(header: Sequence[str]) -> Callable[[list[str]], Cells]:
    """Return a function that reads the TTL and metadata of a CSV row."""
    ttl, metadata = (header.index(name) if name in header else None for name in LABELS)

    def read(row: list[str]) -> Cells:
        seconds = None if ttl is None else row[ttl] or None
        return _number(seconds), None if metadata is None else row[metadata] or None

    return read if ttl is not None or metadata is not None else lambda row: NO_LABELS


def arrow_labels(table: Any) -> Sequence[Cells]:
    """Return the TTL and metadata of each row of an Arrow table."""
    columns = [
        table.column(name).to_pylist() if name in table.column_names else [None] * len(table)
        for name in LABELS
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
        if cells is not NO_LABELS:
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
