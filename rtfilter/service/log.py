"""The log: events and changes of subscriptions in one order, and what has been acknowledged.

What `Log.commit` returned survives a killed process. Everything else of the server is computed from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sql

_TABLES = sql.MetaData()
_LOG = sql.Table(
    "log",
    _TABLES,
    sql.Column("position", sql.Integer, primary_key=True),
    sql.Column("kind", sql.Text, nullable=False),
    sql.Column("user", sql.Text, nullable=False),
    sql.Column("body", sql.LargeBinary, nullable=False),
    sql.Column("key", sql.Text),
    sql.UniqueConstraint("user", "key"),
    sqlite_autoincrement=True,
)
_MARKS = sql.Table(
    "marks",
    _TABLES,
    sql.Column("user", sql.Text, primary_key=True),
    sql.Column("low", sql.Integer, nullable=False),
    sql.Column("beyond", sql.LargeBinary, nullable=False),
)
PAGE: Final = 10_000
"""Entries that are read at once."""


class Kind(StrEnum):
    """What an entry is."""

    EVENT = "event"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"


class Entry(NamedTuple):
    """What is to be put into the log.

    Attributes
    ----------
    kind : Kind
    user : str
        Who publishes, or whose subscription it is.
    body : bytes
        JSON.
    key : str or None
        A second entry of this user with the same key is not put in; the first one stands for it.
    """

    kind: Kind
    user: str
    body: bytes
    key: str | None = None


class Logged(NamedTuple):
    """An entry at its position."""

    position: int
    entry: Entry


class Mark(NamedTuple):
    """What a user has acknowledged: every event up to `low`, and those in `beyond`, which are above it."""

    low: int = 0
    beyond: frozenset[int] = frozenset()


class Log:
    """The log in a file of SQLite. For one thread at a time.

    Parameters
    ----------
    path : Path
        Is made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._engine = sql.create_engine(
            f"sqlite:///{path}", connect_args={"check_same_thread": False}, poolclass=sql.pool.StaticPool
        )
        sql.event.listen(self._engine, "connect", _configure)
        sql.event.listen(self._engine, "begin", _begin)
        _TABLES.create_all(self._engine)

    def commit(self, entries: Sequence[Entry], marks: Mapping[str, Mark]) -> list[tuple[int, bool]]:
        """Put in entries and marks: all or nothing, and durable when this returns.

        Returns
        -------
        list of (int, bool)
            The position of each entry, and whether it is new: False where its key was there.
        """
        placed = []
        with self._engine.begin() as connection:
            for entry in entries:
                known = None
                if entry.key is not None:
                    asked = sql.select(_LOG.c.position).where(
                        _LOG.c.user == entry.user, _LOG.c.key == entry.key
                    )
                    known = connection.execute(asked).scalar()
                if known is None:
                    put = connection.execute(sql.insert(_LOG).values(**entry._asdict()))
                    assert put.inserted_primary_key is not None
                    placed.append((int(put.inserted_primary_key[0]), True))
                else:
                    placed.append((int(known), False))
            for user, (low, beyond) in marks.items():
                connection.execute(sql.delete(_MARKS).where(_MARKS.c.user == user))
                written = msgspec.json.encode(sorted(beyond))
                connection.execute(sql.insert(_MARKS).values(user=user, low=low, beyond=written))
        return placed

    def entries(self) -> Iterator[Logged]:
        """All entries, in order."""
        position = 0
        while True:
            asked = sql.select(_LOG).where(_LOG.c.position > position).order_by(_LOG.c.position).limit(PAGE)
            with self._engine.connect() as connection:
                rows = connection.execute(asked).all()
            for position, kind, user, body, key in rows:
                yield Logged(position, Entry(Kind(kind), user, body, key))
            if len(rows) < PAGE:
                return

    def marks(self) -> dict[str, Mark]:
        """What each user has acknowledged."""
        with self._engine.connect() as connection:
            rows = connection.execute(sql.select(_MARKS)).all()
        return {user: Mark(low, frozenset(msgspec.json.decode(beyond))) for user, low, beyond in rows}

    def close(self) -> None:
        """Close the file."""
        self._engine.dispose()


def _configure(connection: Any, _: object) -> None:
    connection.isolation_level = None  # `_begin` begins, not the driver
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "busy_timeout = 5000"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sql.Connection) -> None:
    connection.exec_driver_sql("BEGIN")
