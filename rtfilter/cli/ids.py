"""The ids of the subscriptions in a file, and the id that a command line asks for.

Ids are integers or text, all ids of a file of one type. JSON and Parquet have types. Cells of CSV are
integers if all of them are integers without leading zeros, and otherwise text. UUIDs are text.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from uuid import UUID

from rtfilter.cli.arguments import subscription_id
from rtfilter.cli.rows import FileRows
from rtfilter.cli.terminal import CommandError
from rtfilter.text import shown

Id = int | str
"""An id in a file."""
_INTEGER = re.compile(r"\s*-?(0|[1-9][0-9]{0,29})\s*")
_WORDS: dict[type, str] = {int: "an integer", str: "text"}


def of_cells(cells: Sequence[str]) -> list[Id | None]:
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


def asked(text: str, kind: type | None) -> int | str | UUID:
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
