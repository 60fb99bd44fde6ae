"""A database: SQLite in a file, or PostgreSQL. What is committed survives a killed process."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, Literal

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError

from rtfilter.store.folder import private

BUSY: Final = 10_000
"""Milliseconds that a transaction of SQLite waits for another one."""
POSTGRESQL: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "options": "-c lock_timeout=10s",
}
"""The default limits of a PostgreSQL connection: the time until a lost server or a lock is given up."""
PAGES: Final = 16_000
"""Pages of SQLite's write-ahead log, 64 MB, at which a commit itself moves them into the database."""
MORE: Final = 2 * 2**20
"""Bytes that `reserve` keeps beyond the size of the write-ahead log."""
LOCK: Final = 0x7274_6669
"""Of PostgreSQL's advisory locks, the one that a server holds."""


def engine(url: str, power: bool = False) -> sql.Engine:
    """Open a database.

    Parameters
    ----------
    url : str
        As of SQLAlchemy: ``sqlite:////path/to/file``, or ``postgresql+psycopg://user@host/name``.
    power : bool
        Whether a commit also survives a loss of power. SQLite is slower by one wait for the disk then;
        PostgreSQL always does what its own settings say.
    """
    place = sql.make_url(url)
    file = place.drivername.startswith("sqlite")
    given = {} if file else {name: value for name, value in POSTGRESQL.items() if name not in place.query}
    if file and place.database not in (None, "", ":memory:"):
        with suppress(OSError):  # SQLite says it better, and makes its other files as this one
            open(str(place.database), "ab", opener=private).close()
    made = sql.create_engine(url, hide_parameters=True, pool_pre_ping=not file, connect_args=given)
    if made.dialect.name == "sqlite":
        durable = "FULL" if power else "NORMAL"

        def configure(connection: Any, _: object) -> None:
            connection.isolation_level = None  # `_begin` begins, not the driver
            settings = {
                "busy_timeout": BUSY,
                "journal_mode": "WAL",
                "synchronous": durable,
                "wal_autocheckpoint": PAGES,
            }
            for name, value in settings.items():
                connection.execute(f"PRAGMA {name} = {value}")

        sql.event.listen(made, "connect", configure)
        sql.event.listen(made, "begin", _begin)
    return made


def writing(engine: sql.Engine) -> sql.Engine:
    """The same database, for transactions that write.

    SQLite takes its lock when they begin: one that has read first could not get it any more.
    """
    return engine.execution_options(rtfilter_writes=True)


def checkpoint(engine: sql.Engine, how: Literal["PASSIVE", "TRUNCATE"] = "PASSIVE") -> None:
    """Move what was committed from SQLite's write-ahead log into the database, while others write on.

    A commit would do it every 1000 pages, and take ten times as long as others do. What fails here is done by
    the next one. PostgreSQL has a process for this.

    Parameters
    ----------
    engine : sqlalchemy.Engine
    how : "PASSIVE" or "TRUNCATE"
        With the latter, where nobody else uses the database, the write-ahead log is empty then, and takes no
        room.
    """
    if engine.dialect.name == "sqlite":
        with suppress(SQLAlchemyError, sqlite3.Error), closing(engine.raw_connection()) as connection:
            connection.cursor().execute(f"PRAGMA wal_checkpoint({how})")


def reserve(engine: sql.Engine) -> None:
    """Keep as much room on the disk beside SQLite's database as its write-ahead log takes, and some more.

    A start on a full disk gets it by `release`: to move the log into the database takes so much. Nothing is
    kept where there is no room, or where the system cannot keep any. Nothing is done while there is enough.
    """
    path, log = _beside(engine, "reserve"), _beside(engine, "wal")
    if path is None or log is None or not hasattr(os, "posix_fallocate"):
        return
    with suppress(OSError):
        used = log.stat().st_size
        if path.exists() and path.stat().st_size >= used + MORE // 2:
            return
        size = used + MORE
        with open(path, "ab", opener=private) as file:
            before = file.tell()
            try:
                if before < size:
                    os.posix_fallocate(file.fileno(), before, size - before)
            except OSError:
                os.ftruncate(file.fileno(), before)  # some of it may be there


def release(engine: sql.Engine) -> None:
    """Give up the room that `reserve` keeps."""
    path = _beside(engine, "reserve")
    if path is not None:
        path.unlink(missing_ok=True)


def _beside(engine: sql.Engine, name: str) -> Path | None:
    """A file beside SQLite's database; None for others."""
    place = engine.url.database
    if engine.dialect.name != "sqlite" or place in (None, "", ":memory:"):
        return None
    return Path(f"{place}-{name}")


def _begin(connection: sql.Connection) -> None:
    writes = connection.get_execution_options().get("rtfilter_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class Hold:
    """Keeps other servers out of a database of PostgreSQL until it is closed, or its connection is lost.

    For SQLite it does nothing: there, the folder has a lock.
    """

    def __init__(self, engine: sql.Engine) -> None:
        self._engine = engine
        self._connection: sql.Connection | None = None

    def take(self) -> bool:
        """Take it where it is not held, or was lost; returns whether it is held. Raises `SQLAlchemyError`."""
        if self._engine.dialect.name != "postgresql":
            return True
        try:
            if self._connection is not None:
                self._connection.execute(sql.select(1))
                self._connection.commit()
                return True
            self._connection = self._engine.connect()
            got = self._connection.execute(sql.select(sql.func.pg_try_advisory_lock(LOCK))).scalar()
            self._connection.commit()
        except SQLAlchemyError:
            self.close()  # or it would connect again by itself, without the lock
            raise
        if not got:
            self.close()
        return bool(got)

    def close(self) -> None:
        """Let others in."""
        if self._connection is not None:
            self._connection.invalidate()  # in the pool, it would keep the lock
            self._connection.close()
            self._connection = None


def hold(engine: sql.Engine, patience: float = 5.0) -> Hold | None:
    """Keep other servers out of a database of PostgreSQL.

    Returns None where another one is in for so many seconds: PostgreSQL takes a moment to see that a server
    was killed.
    """
    made = Hold(engine)
    end = time.monotonic() + patience
    while not made.take():
        if time.monotonic() >= end:
            return None
        time.sleep(0.1)
    return made
