"""Webhooks of users. Their secrets are not in the database: see `rtfilter.service.webhooks.signing`."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sql

from rtfilter.store.database import writing

_TABLES = sql.MetaData()
_WEBHOOKS = sql.Table(
    "webhooks",
    _TABLES,
    sql.Column("user", sql.Text, primary_key=True),
    sql.Column("url", sql.Text, nullable=False),
    sql.Column("salt", sql.LargeBinary, nullable=False),
    sql.Column("key", sql.LargeBinary, nullable=False),
    sql.Column("made", sql.Float, nullable=False),
    sql.Column("parked", sql.Float),
    sql.Column("reason", sql.Text),
    sql.Column("failures", sql.Integer, nullable=False, server_default="0"),
)


class Webhook(NamedTuple):
    """The destination of a user's deliveries; times are in seconds since 1970."""

    user: str
    url: str
    salt: bytes
    """The salt of its secret."""
    key: bytes
    """A mark of the key of the secret; the key itself is not in the database."""
    made: float
    parked: float | None = None
    """Time at which the webhook was parked; None if it sends."""
    reason: str | None = None
    """The reason of that."""
    failures: int = 0
    """Failed requests in a row."""


class WebhookTable:
    """All webhooks, by user, for any thread. The table is made if it does not exist."""

    def __init__(self, engine: sql.Engine) -> None:
        self._engine, self._writing = engine, writing(engine)
        with self._writing.begin() as connection:
            _TABLES.create_all(connection)

    def read(self) -> list[Webhook]:
        """Return all webhooks."""
        with self._engine.connect() as connection:
            return [
                Webhook(user, url, bytes(salt), bytes(key), *rest)
                for user, url, salt, key, *rest in connection.execute(sql.select(_WEBHOOKS))
            ]

    def put(self, webhook: Webhook) -> None:
        """Store a webhook; it replaces the user's earlier one."""
        with self._writing.begin() as connection:
            connection.execute(sql.delete(_WEBHOOKS).where(_WEBHOOKS.c.user == webhook.user))
            connection.execute(sql.insert(_WEBHOOKS).values(**webhook._asdict()))

    def note(self, webhook: Webhook) -> None:
        """Store the state of a webhook, unless it was removed or replaced meanwhile."""
        same = (_WEBHOOKS.c.user == webhook.user) & (_WEBHOOKS.c.salt == webhook.salt)
        with self._writing.begin() as connection:
            values = {name: getattr(webhook, name) for name in ("parked", "reason", "failures")}
            connection.execute(sql.update(_WEBHOOKS).where(same).values(**values))

    def remove(self, user: str) -> None:
        """Remove the webhook of a user, if there is one."""
        with self._writing.begin() as connection:
            connection.execute(sql.delete(_WEBHOOKS).where(_WEBHOOKS.c.user == user))
