"""Webhooks of users. No secret is in the database: see `rtfilter.service.webhooks.signing`."""

from __future__ import annotations

from typing import Any, NamedTuple

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
)


class Webhook(NamedTuple):
    """Where the deliveries of a user are sent; times in seconds since 1970.

    Attributes
    ----------
    user, url : str
    salt : bytes
        Of its secret.
    key : bytes
        A mark of the key that the secret is made with; the key is not in the database.
    made : float
    parked : float or None
        Since when nothing is sent any more.
    reason : str or None
        Why.
    """

    user: str
    url: str
    salt: bytes
    key: bytes
    made: float
    parked: float | None = None
    reason: str | None = None


class WebhookTable:
    """All webhooks, by user. From any thread.

    Parameters
    ----------
    engine : sqlalchemy.Engine
        The table is made where it is not there.
    """

    def __init__(self, engine: sql.Engine) -> None:
        self._engine, self._writing = engine, writing(engine)
        with self._writing.begin() as connection:
            _TABLES.create_all(connection)

    def read(self) -> list[Webhook]:
        """All of them."""
        with self._engine.connect() as connection:
            return [_webhook(row) for row in connection.execute(sql.select(_WEBHOOKS))]

    def put(self, webhook: Webhook) -> None:
        """Keep a webhook in the place of the one that its user had."""
        with self._writing.begin() as connection:
            connection.execute(sql.delete(_WEBHOOKS).where(_WEBHOOKS.c.user == webhook.user))
            connection.execute(sql.insert(_WEBHOOKS).values(**webhook._asdict()))

    def park(self, webhook: Webhook) -> None:
        """Keep that it is parked, unless it was removed or made anew meanwhile."""
        same = (_WEBHOOKS.c.user == webhook.user) & (_WEBHOOKS.c.salt == webhook.salt)
        with self._writing.begin() as connection:
            values = {"parked": webhook.parked, "reason": webhook.reason}
            connection.execute(sql.update(_WEBHOOKS).where(same).values(**values))

    def remove(self, user: str) -> None:
        """Forget the webhook of a user, where there is one."""
        with self._writing.begin() as connection:
            connection.execute(sql.delete(_WEBHOOKS).where(_WEBHOOKS.c.user == user))


def _webhook(row: Any) -> Webhook:
    return Webhook(row.user, row.url, bytes(row.salt), bytes(row.key), row.made, row.parked, row.reason)
