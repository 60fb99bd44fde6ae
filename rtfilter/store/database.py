"""A database: SQLite in a file, or PostgreSQL. What is committed survives a killed process."""

from __future__ import annotations

import time
from typing import Any, Final

import sqlalchemy as sql

BUSY: Final = 10_000
"""Milliseconds that a transaction of SQLite waits for another one."""
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
    made = sql.create_engine(url, hide_parameters=True, pool_pre_ping=not url.startswith("sqlite"))
    if made.dialect.name == "sqlite":
        durable = "FULL" if power else "NORMAL"

        def configure(connection: Any, _: object) -> None:
            connection.isolation_level = None  # `_begin` begins, not the driver
            for pragma in (f"busy_timeout = {BUSY}", "journal_mode = WAL", f"synchronous = {durable}"):
                connection.execute(f"PRAGMA {pragma}")

        sql.event.listen(made, "connect", configure)
        sql.event.listen(made, "begin", _begin)
    return made


def writing(engine: sql.Engine) -> sql.Engine:
    """The same database, for transactions that write.

    SQLite takes its lock when they begin: one that has read first could not get it any more.
    """
    return engine.execution_options(rtfilter_writes=True)


def _begin(connection: sql.Connection) -> None:
    writes = connection.get_execution_options().get("rtfilter_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def hold(engine: sql.Engine, patience: float = 5.0) -> sql.Connection | None:
    """Keep other servers out of a database of PostgreSQL until the connection is closed.

    Returns None where another one is in for so many seconds (PostgreSQL takes a moment to see that a server
    was killed), and for SQLite a connection that holds nothing: there, the folder
    has a lock.
    """
    connection = engine.connect()
    end = time.monotonic() + patience
    while engine.dialect.name == "postgresql":
        got = connection.execute(sql.select(sql.func.pg_try_advisory_lock(LOCK))).scalar()
        connection.commit()
        if got:
            break
        if time.monotonic() >= end:
            connection.close()
            return None
        time.sleep(0.1)
    return connection
