"""Versions of the tables, and the steps between them: all steps are one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import sqlalchemy as sql

from rtfilter.errors import RTFilterError
from rtfilter.store.log_tables import STATE, TABLES

Step = Callable[[sql.Connection], None]
_log = logging.getLogger(__name__)


class VersionError(RTFilterError, ValueError):
    """A database that a newer rtfilter made."""


def _find_keys_by_position(connection: sql.Connection) -> None:
    """Bring version 1 to 2: without the index, each trim would read all keys. New tables need no step."""
    connection.exec_driver_sql('CREATE INDEX keys_first ON keys ("first")')


def _count_failures_of_webhooks(connection: sql.Connection) -> None:
    """Bring version 2 to 3. A table that does not exist is made later, with the column."""
    if sql.inspect(connection).has_table("webhooks"):
        connection.exec_driver_sql("ALTER TABLE webhooks ADD COLUMN failures INTEGER NOT NULL DEFAULT 0")


def _find_what_was_superseded(connection: sql.Connection) -> None:
    """Bring version 3 to 4: without the index, each trim would read all subscriptions."""
    connection.exec_driver_sql("CREATE INDEX superseded ON log (until) WHERE until IS NOT NULL")


def _count_what_was_dropped(connection: sql.Connection) -> None:
    """Bring version 4 to 5: users get a report of dropped deliveries, also after a restart."""
    connection.exec_driver_sql("ALTER TABLE marks ADD COLUMN dropped BIGINT NOT NULL DEFAULT 0")


STEPS: Final[tuple[Step, ...]] = (
    _find_keys_by_position,
    _count_failures_of_webhooks,
    _find_what_was_superseded,
    _count_what_was_dropped,
)
"""The first leads from version 1 to 2. A step writes its columns itself: `TABLES` has the last version."""
VERSION: Final = 1 + len(STEPS)
"""The last version of the tables."""


def migrate(
    connection: sql.Connection,
    steps: tuple[Step, ...] = STEPS,
    tables: sql.MetaData = TABLES,
    state: sql.Table = STATE,
) -> None:
    """Bring the tables to the last version; make missing ones. No other server may use the database.

    Parameters
    ----------
    connection : sqlalchemy.Connection
    steps : tuple of callable
    tables : sqlalchemy.MetaData
        The tables of the server, or another set in the same database.
    state : sqlalchemy.Table
        The table that has their version.

    Raises
    ------
    VersionError
        The database is of a newer version. Nothing was changed.
    """
    last = 1 + len(steps)
    found = _version(connection, state)
    if found is None:
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
    connection.execute(sql.delete(state).where(state.c.name == "version"))
    connection.execute(sql.insert(state).values(name="version", value=last))


def _version(connection: sql.Connection, state: sql.Table) -> int | None:
    """Return the version of the tables, or None if there are none yet."""
    if not sql.inspect(connection).has_table(state.name):
        return None
    found: int | None = connection.execute(
        sql.select(state.c.value).where(state.c.name == "version")
    ).scalar()
    return found
