"""The state that a broker of a network stores: its clients' subscriptions and unacknowledged publications.

Its tables are beside those of the server, with a version of their own. Several brokers may share a database.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sql

from rtfilter.basics.errors import RTFilterError
from rtfilter.store.database import WHOLE, Step, migrate, writing
from rtfilter.store.log import TakenError

TABLES: Final = sql.MetaData()
"""Of the last version: a change also needs a step in `STEPS`."""
STATE: Final = sql.Table(
    "broker_state",
    TABLES,
    sql.Column("name", sql.Text, primary_key=True),
    sql.Column("value", WHOLE, nullable=False),
)
BROKERS: Final = sql.Table(
    "brokers",
    TABLES,
    sql.Column("broker", sql.Text, primary_key=True),
    sql.Column("incarnation", WHOLE, nullable=False),
    sql.Column("memory", sql.LargeBinary),
)
SUBSCRIPTIONS: Final = sql.Table(
    "broker_subscriptions",
    TABLES,
    sql.Column("broker", sql.Text, primary_key=True),
    sql.Column("client", sql.Text, primary_key=True),
    sql.Column("key", sql.Text, primary_key=True),
    sql.Column("type", sql.Text, nullable=False),
    sql.Column("predicate", sql.Text, nullable=False),
)
PUBLICATIONS: Final = sql.Table(
    "broker_publications",
    TABLES,
    sql.Column("broker", sql.Text, primary_key=True),
    sql.Column("origin", sql.Text, primary_key=True),
    sql.Column("incarnation", WHOLE, primary_key=True, autoincrement=False),
    sql.Column("number", WHOLE, primary_key=True, autoincrement=False),
    sql.Column("client", sql.Text, nullable=False),
    sql.Column("type", sql.Text, nullable=False),
    sql.Column("event", sql.LargeBinary, nullable=False),
)
STEPS: Final[tuple[Step, ...]] = ()
"""The first leads from version 1 to 2; see `migrate`."""


class ClientSubscription(NamedTuple):
    """A subscription of a client, to events of a type; its key is the client's own."""

    client: str
    key: str
    type: str
    predicate: str
    """As SQL."""


class Publication(NamedTuple):
    """A published event that is not acknowledged; the first three fields are its id."""

    origin: str
    incarnation: int
    number: int
    client: str
    """The publisher."""
    type: str
    event: bytes


class Gone(NamedTuple):
    """A removed subscription."""

    client: str
    key: str


class Settled(NamedTuple):
    """A publication that is acknowledged."""

    origin: str
    incarnation: int
    number: int


class BrokerMemory(NamedTuple):
    """The stored memory of a state machine; the last one is valid."""

    data: bytes


Change = ClientSubscription | Publication | Gone | Settled | BrokerMemory


class OwnedError(RTFilterError, ValueError):
    """A database that is not shared has data of other brokers, the owners."""

    def __init__(self, owners: list[str]) -> None:
        super().__init__(f"the database is that of {', '.join(owners)}")
        self.owners = owners


class BrokerStore:
    """The store of a broker or of the rendezvous point; its tables are made, or brought to the last version.

    Its `incarnation` is higher than at each former start, even after a loss of data, if the clock does not go
    back. If it is `shared`, other brokers may store data there, too; else it raises `OwnedError`, and
    changes nothing, if there are data of others, but none of this one. Raises `VersionError`.
    """

    def __init__(self, engine: sql.Engine, broker: str, shared: bool = True) -> None:
        self._engine, self._writing, self._broker = engine, writing(engine), broker
        with self._writing.begin() as connection:
            migrate(connection, STEPS, TABLES, STATE)
            former = connection.execute(self._own(BROKERS.c.incarnation)).scalar()
            self.incarnation = max((former or 0) + 1, int(time.time()))
            if former is None:
                others = [] if shared else connection.execute(sql.select(BROKERS.c.broker)).scalars().all()
                if others:
                    raise OwnedError(sorted(others))
                connection.execute(
                    sql.insert(BROKERS).values(broker=broker, incarnation=self.incarnation, memory=None)
                )
            else:
                self._update(connection, incarnation=self.incarnation)

    def commit(self, changes: Sequence[Change]) -> None:
        """Store changes in their order, in one transaction; all of it is durable when this returns.

        Raises `TakenError` if another process has started the broker since, and `SQLAlchemyError`.
        """
        with self._writing.begin() as connection:
            if connection.execute(self._own(BROKERS.c.incarnation)).scalar() != self.incarnation:
                raise TakenError(f"another process has started the broker {self._broker}; this one must end")
            for change in changes:
                self._put(connection, change)

    def subscriptions(self) -> list[ClientSubscription]:
        """Return all subscriptions, in no certain order."""
        with self._engine.connect() as connection:
            return [ClientSubscription(*row) for row in connection.execute(self._rows(SUBSCRIPTIONS))]

    def publications(self) -> list[Publication]:
        """Return all publications; those of one client in the order of their arrival."""
        of = PUBLICATIONS.c
        query = self._rows(PUBLICATIONS).order_by(of.origin, of.incarnation, of.number)
        with self._engine.connect() as connection:
            return [Publication(*row) for row in connection.execute(query)]

    def memory(self) -> bytes | None:
        """Return the data of the last `BrokerMemory`, or None."""
        with self._engine.connect() as connection:
            found: bytes | None = connection.execute(self._own(BROKERS.c.memory)).scalar()
        return None if found is None else bytes(found)

    def _own(self, column: sql.Column[Any]) -> sql.Select[Any]:
        return sql.select(column).where(BROKERS.c.broker == self._broker).with_for_update()

    def _rows(self, table: sql.Table) -> sql.Select[Any]:
        """Return a query for the rows of the broker, without its name."""
        columns = [column for column in table.columns if column.name != "broker"]
        return sql.select(*columns).where(table.c.broker == self._broker)

    def _update(self, connection: sql.Connection, **values: object) -> None:
        connection.execute(sql.update(BROKERS).where(BROKERS.c.broker == self._broker).values(**values))

    def _put(self, connection: sql.Connection, change: Change) -> None:
        match change:
            case ClientSubscription():
                self._put(connection, Gone(change.client, change.key))
                self._insert(connection, SUBSCRIPTIONS, change)
            case Publication():
                self._insert(connection, PUBLICATIONS, change)
            case BrokerMemory():
                self._update(connection, memory=change.data)
            case Gone() | Settled():
                table = SUBSCRIPTIONS if isinstance(change, Gone) else PUBLICATIONS
                known = change._asdict() | {"broker": self._broker}
                own = [table.c[name] == value for name, value in known.items()]
                connection.execute(sql.delete(table).where(*own))

    def _insert(
        self, connection: sql.Connection, table: sql.Table, change: ClientSubscription | Publication
    ) -> None:
        connection.execute(sql.insert(table).values(broker=self._broker, **change._asdict()))
