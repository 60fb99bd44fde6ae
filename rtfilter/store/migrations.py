"""Versions of the tables, and the steps between them: all steps are one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import sqlalchemy as sql

from rtfilter.errors import RTFilterError
from rtfilter.store.log_tables import STATE, TABLES

Step = Callable[[sql.Connection], object]
_log = logging.getLogger(__name__)


class VersionError(RTFilterError, ValueError):
    """A database that a newer rtfilter made."""


def _runs(text: str) -> Step:
    """Return a step of one statement. It names its columns itself: `TABLES` has the last version."""
    return lambda connection: connection.exec_driver_sql(text)


def _count_failures_of_webhooks(connection: sql.Connection) -> None:
    if sql.inspect(connection).has_table("webhooks"):  # else it is made later, with the column
        connection.exec_driver_sql("ALTER TABLE webhooks ADD COLUMN failures INTEGER NOT NULL DEFAULT 0")


STEPS: Final[tuple[Step, ...]] = (
    _runs('CREATE INDEX keys_first ON keys ("first")'),  # else each trim would read all keys
    _count_failures_of_webhooks,
    _runs("CREATE INDEX superseded ON log (until) WHERE until IS NOT NULL"),  # or all subscriptions
    _runs("ALTER TABLE marks ADD COLUMN dropped BIGINT NOT NULL DEFAULT 0"),
)
"""The first leads from version 1 to 2. New tables need no step."""
VERSION: Final = 1 + len(STEPS)
"""The last version of the tables."""


def migrate(
    connection: sql.Connection,
    steps: tuple[Step, ...] = STEPS,
    tables: sql.MetaData = TABLES,
    state: sql.Table = STATE,
) -> None:
    """Bring the tables to the last version; make missing ones. No other server may use the database.

    The tables are those of the server, or another set in the same database; `state` has their version. Raises
    `VersionError`, and changes nothing, if the database is of a newer version.
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
    connection.execute(sql.delete(state).where(state.c.name == "version"))
    connection.execute(sql.insert(state).values(name="version", value=last))
