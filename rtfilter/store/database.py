"""A database: SQLite in a file, or PostgreSQL. Committed data survives a killed process."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, Literal

import sqlalchemy as sql
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from rtfilter.basics.errors import RTFilterError
from rtfilter.basics.extras import needed
from rtfilter.store.folder import private

BUSY: Final = 10_000
"""Milliseconds that a transaction of SQLite waits for another one."""
POSTGRESQL: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "options": "-c lock_timeout=10s -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 "
    "-c tcp_keepalives_count=3",  # so that PostgreSQL notices a lost machine, too, and frees its locks
}
"""The default limits of a PostgreSQL connection, such as the wait for a lost peer or a lock."""
PAGES: Final = 16_000
"""Pages of SQLite's write-ahead log, 64 MB, at which a commit itself moves them into the database."""
MORE: Final = 2 * 2**20
"""Bytes that `reserve` keeps above the size of the write-ahead log."""
LOCK: Final = 0x7274_6669
"""The advisory lock of PostgreSQL that a server has."""
FORM: Final = "postgresql+psycopg://user:password@host/name"
"""The form of an address. It may have a password, so no message shows any of it."""
_DRIVER: Final = "postgresql+psycopg"
WHOLE: Final = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
"""The type of columns of int64."""
Step = Callable[[sql.Connection], object]
"""A step from one version of the tables to the next one. It names its columns itself."""
_log = logging.getLogger(__name__)


class AddressError(ValueError):
    """This is no address of a database of PostgreSQL."""


class VersionError(RTFilterError, ValueError):
    """A database that a newer rtfilter made."""


def engine(url: str, power: bool = False) -> sql.Engine:
    """Open a database by a URL of SQLAlchemy, such as ``sqlite:////path/to/file``.

    With `power`, a commit also survives a loss of power: SQLite then waits once more for the disk. PostgreSQL
    always follows its own settings.
    """
    place = sql.make_url(url)
    file = place.drivername.startswith("sqlite")
    given = {} if file else {name: value for name, value in POSTGRESQL.items() if name not in place.query}
    if file and place.database not in (None, "", ":memory:"):
        with suppress(OSError):  # SQLite has the better error; its other files get the mode of this one
            open(str(place.database), "ab", opener=private).close()
    made = sql.create_engine(url, hide_parameters=True, pool_pre_ping=not file, connect_args=given)
    if made.dialect.name == "sqlite":
        durable = "FULL" if power else "NORMAL"

        def configure(connection: Any, _: object) -> None:
            connection.isolation_level = None  # `_begin` begins, not the driver
            connection.execute(f"PRAGMA busy_timeout = {BUSY}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {durable}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")

        sql.event.listen(made, "connect", configure)
        sql.event.listen(made, "begin", _begin)
    return made


def writing(engine: sql.Engine) -> sql.Engine:
    """Return the same database, for transactions that write.

    SQLite takes its lock when they begin: a transaction that has read first could not get it later.
    """
    return engine.execution_options(rtfilter_writes=True)


def checkpoint(engine: sql.Engine, how: Literal["PASSIVE", "TRUNCATE"] = "PASSIVE") -> None:
    """Move committed data from SQLite's write-ahead log into the database, while others write.

    A commit would do it every 1000 pages, and take ten times as long as others do. The next checkpoint
    repeats a failed one. After "TRUNCATE", if no other process uses the database, the log is empty.
    PostgreSQL has a process for this.
    """
    if engine.dialect.name == "sqlite":
        with suppress(SQLAlchemyError, sqlite3.Error), closing(engine.raw_connection()) as connection:
            connection.cursor().execute(f"PRAGMA wal_checkpoint({how})")


def reserve(engine: sql.Engine) -> None:
    """Reserve disk space beside SQLite's database: as much as its write-ahead log takes, and some more.

    A start on a full disk calls `release`, since moving the log into the database needs so much space.
    Nothing is reserved if there is no space, if the system cannot reserve any, or if enough is reserved.
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
    """Free the disk space that `reserve` has reserved."""
    path = _beside(engine, "reserve")
    if path is not None:
        path.unlink(missing_ok=True)


def _beside(engine: sql.Engine, name: str) -> Path | None:
    """Return the path of a file beside SQLite's database, or None for other databases."""
    place = engine.url.database
    if engine.dialect.name != "sqlite" or place in (None, "", ":memory:"):
        return None
    return Path(f"{place}-{name}")


def _begin(connection: sql.Connection) -> None:
    writes = connection.get_execution_options().get("rtfilter_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class DatabaseLock:
    """A lock that keeps other servers out of a database of PostgreSQL, until `close` or a lost connection.

    For SQLite it does nothing, since the folder has a lock.
    """

    def __init__(self, engine: sql.Engine) -> None:
        self._engine = engine
        self._connection: sql.Connection | None = None

    def take(self) -> bool:
        """Take the lock, unless it is taken already; return whether it is now. Raises `SQLAlchemyError`."""
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
            self.close()  # else it would connect again by itself, without the lock
            raise
        if not got:
            self.close()
        return bool(got)

    def close(self) -> None:
        """Release the lock."""
        if self._connection is not None:
            self._connection.invalidate()  # in the pool, it would keep the lock
            self._connection.close()
            self._connection = None


def postgresql(url: str) -> str:
    """Return the address of a database, `FORM` or without ``+psycopg``, with the driver that is used.

    Raises `AddressError`, and `ModuleNotFoundError` if the driver is not installed.
    """
    try:
        made = sql.make_url(url)
    except (ArgumentError, ValueError):
        raise AddressError(f"this is no address of a database; write it as {FORM}") from None
    if made.drivername not in (_DRIVER, "postgresql", "postgres"):
        raise AddressError(f"a database is one of PostgreSQL, {FORM}; without any it is SQLite in the folder")
    if "@" in (made.host or ""):
        raise AddressError("the address of the database has two @; in a user or password, write %40 for one")
    with needed("postgresql", "a database of PostgreSQL"):
        import psycopg  # noqa: F401
    return made.set(drivername=_DRIVER).render_as_string(hide_password=False)


def migrate(
    connection: sql.Connection,
    steps: Sequence[Step],
    tables: sql.MetaData,
    state: sql.Table,
) -> None:
    """Bring the tables to the last version; make missing ones. No other server may use the database.

    A database may have several sets of tables; `state` has their version. The first step leads from version 1
    to 2; new tables need none. Raises `VersionError`, and changes nothing, if the database is of a newer one.
    """
    last, found = 1 + len(steps), None
    if sql.inspect(connection).has_table(state.name):
        found = connection.execute(sql.select(state.c.value).where(state.c.name == "version")).scalar()
    if found is None:  # there are no tables yet
        found = last
    if not 1 <= found <= last:
        raise VersionError(
            f"this database is of version {found}, and this rtfilter uses {last}; use the rtfilter that made "
            "it, or a newer one, or another folder"
        )
    for number in range(found, last):
        steps[number - 1](connection)
        _log.warning("the database is brought from version %d to %d", number, number + 1)
    tables.create_all(connection)
    put_state(connection, state, "version", last)


def put_state(connection: sql.Connection, state: sql.Table, name: str, value: int) -> None:
    """Set a number of a table of states."""
    connection.execute(sql.delete(state).where(state.c.name == name))
    connection.execute(sql.insert(state).values(name=name, value=value))
