"""The tables of the log with the steps between their versions, and their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import sqlalchemy as sql
from msgspec import Struct

from rtfilter.store.database import WHOLE, Step

TABLES = sql.MetaData()
"""Of the last version: a change of an existing table also needs a step in `STEPS`."""

LOG = sql.Table(
    "log",
    TABLES,
    sql.Column("position", WHOLE, primary_key=True, autoincrement=False),
    sql.Column("at", sql.Float, nullable=False),
    sql.Column("kind", sql.Text, nullable=False),
    sql.Column("filter", sql.Text, nullable=False),
    sql.Column("user", sql.Text, nullable=False),
    sql.Column("body", sql.LargeBinary, nullable=False),
    sql.Column("subscription", WHOLE),
    sql.Column("until", WHOLE),  # the position of the change that replaced or removed it
    sql.Column("expires", sql.Float),
    sql.Column("manner", sql.Text),
)
_change = LOG.c.subscription.is_not(None)
LIVE = LOG.c.until.is_(None) & _change
"""The condition of present subscriptions."""
for _name, _columns, _where in (
    ("live", (LOG.c.subscription,), LIVE),
    ("live_of_user", (LOG.c.user, LOG.c.subscription), LIVE),
    ("changes", (LOG.c.filter, LOG.c.position), _change),
    ("superseded", (LOG.c.until,), LOG.c.until.is_not(None)),
):
    sql.Index(_name, *_columns, sqlite_where=_where, postgresql_where=_where)
KEYS = sql.Table(
    "keys",
    TABLES,
    sql.Column("user", sql.Text, primary_key=True),
    sql.Column("key", sql.Text, primary_key=True),
    sql.Column("request", sql.LargeBinary, nullable=False),
    sql.Column("first", WHOLE, nullable=False),
    sql.Column("count", WHOLE, nullable=False),
)
sql.Index("keys_first", KEYS.c.first)
MARKS = sql.Table(
    "marks",
    TABLES,
    sql.Column("user", sql.Text, primary_key=True),
    sql.Column("low", WHOLE, nullable=False),
    sql.Column("beyond", sql.LargeBinary, nullable=False),
    sql.Column("dropped", WHOLE, nullable=False, server_default="0"),
)
BACKLOG = sql.Table(
    "backlog",
    TABLES,
    sql.Column("user", sql.Text, primary_key=True),
    sql.Column("number", WHOLE, primary_key=True, autoincrement=False),
    sql.Column("body", sql.LargeBinary, nullable=False),
)
FILTERS = sql.Table(
    "filters",
    TABLES,
    sql.Column("name", sql.Text, primary_key=True),
    sql.Column("since", WHOLE, nullable=False),
    sql.Column("schema", sql.LargeBinary, nullable=False),
    sql.Column("key", sql.Text),
)
FORMER = sql.Table(
    "former_users",
    TABLES,
    sql.Column("user", sql.Text, primary_key=True),
    sql.Column("upto", WHOLE, nullable=False),  # events up to there are of a removed user of this name
)
STATE = sql.Table(
    "state",
    TABLES,
    sql.Column("name", sql.Text, primary_key=True),
    sql.Column("value", WHOLE, nullable=False),
)


def _runs(text: str) -> Step:
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
"""The steps to the last version, for `migrate`."""
VERSION: Final = 1 + len(STEPS)
"""The last version of the tables."""


class Kind(StrEnum):
    """The kinds of entries."""

    EVENT = "event"
    SUBSCRIBE = "subscribe"
    REPLACE = "replace"
    UNSUBSCRIBE = "unsubscribe"


class Entry(Struct, frozen=True, gc=False):
    """An entry to add to the log."""

    kind: Kind
    filter: str
    user: str
    """The publisher, or the user of the subscription."""
    body: bytes
    """JSON."""
    subscription: int | None = None
    """The id of the changed subscription; None for a new one, whose id is its position."""
    at: float = 0.0
    """Its arrival, in seconds since 1970."""
    expires: float | None = None
    """The expiry of a subscription. An entry for its end by time has it, too, and is refused if the
    subscription has another expiry by now."""
    manner: str | None = None
    """The manner of its deliveries, as JSON; None for one by one."""
    arrived: float | None = None
    """Its arrival by `time.perf_counter` of this process."""
    predicate: Any = None
    """The `where` of a subscription, if this process has read it already."""

    def id_at(self, position: int) -> int:
        """Return the id of the subscription that it adds or changes, by its position in the log."""
        return position if self.subscription is None else self.subscription


class Logged(NamedTuple):
    """An entry at its position."""

    position: int
    entry: Entry


class Acknowledged(NamedTuple):
    """The acknowledged events of a user: every event up to `low`, and those in `beyond`, which are above it.

    `dropped` is the number of dropped deliveries that were not reported to the user.
    """

    low: int = 0
    beyond: frozenset[int] = frozenset()
    dropped: int = 0


class RequestKey(NamedTuple):
    """The key that identifies a repeated request."""

    user: str
    key: str
    request: bytes
    """A hash of the request; another request with the same key is refused."""


class Request(NamedTuple):
    """Entries that are stored together: all, or none."""

    entries: list[Entry]
    """The log sets a later time where an entry before has one."""
    key: RequestKey | None = None


Held = tuple[int, Sequence[int], str | None]
"""The position of an event and its matching subscriptions; or that of the end of one, and the reason."""


class Row(NamedTuple):
    """Deliveries of one user and batch; the rows of each user have numbers."""

    user: str
    number: int
    deliveries: Sequence[Held]


class Progress(NamedTuple):
    """The progress of deliveries."""

    settled: int | None
    """The matches of all entries up to this position are known, and in these rows or in earlier ones; None if
    rows of other users are still to come."""
    marks: Mapping[str, Acknowledged] = {}
    rows: Sequence[Row] = ()
    """A row replaces the one with the same user and number."""
    gone: Sequence[tuple[str, int]] = ()
    """Rows to remove, by user and number."""
