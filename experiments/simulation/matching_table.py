"""A routing table that finds the connections that an event goes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rtfilter.basics.dtypes import AnyArray
from rtfilter.events.schema import Schema
from rtfilter.filter import EventFilter
from rtfilter.matchers.registry import Factory
from rtfilter.overlay.broker_names import Connection, ConnectionKind, SubscriptionId
from rtfilter.overlay.routing_messages import RouterSubscription
from rtfilter.overlay.routing_table import Table
from rtfilter.predicates.predicate import Predicate


class MatchingTable(Table):
    """A routing table with an index over its entries for each event type.

    An index knows entries by small numbers, and an array has the connection of each number. An index per
    connection could stop at its first match, but all of them must be searched, see `python -m experiments
    tables`.
    """

    def __init__(self, types: Mapping[str, Schema], matchers: Mapping[str, Factory] | None = None) -> None:
        super().__init__(types)
        self._matchers, self._indexes = dict(matchers or {}), dict[str, _Index]()
        self._numbers: dict[tuple[SubscriptionId, Connection], int] = {}

    def add(self, subscription: RouterSubscription, connection: Connection) -> bool:
        """See `Table.add`."""
        added = super().add(subscription, connection)
        if added:
            id, predicate = subscription.id, self.predicate(subscription)
            self._numbers[id, connection] = self._index(subscription.type).add(predicate, id, connection)
        return added

    def remove(self, id: SubscriptionId, connection: Connection) -> bool:
        """See `Table.remove`."""
        subscription = self.get(id, connection)
        if subscription is not None:
            self._index(subscription.type).remove(self._numbers.pop((id, connection)))
        return super().remove(id, connection)

    def match(self, type: str, event: Mapping[str, Any]) -> dict[Connection, list[SubscriptionId]]:
        """Return the connections that an event goes to; for clients, with matching subscriptions, ascending.

        Raises `ValueError` and `EventError`.
        """
        return self._index(type).match(event)

    def _index(self, type: str) -> _Index:
        schema, index = self.schema(type), self._indexes.get(type)
        if index is None or index.schema is not schema:
            index = self._indexes[type] = _Index(schema, self._matchers.get(type))
        return index


class _Index:
    """The entries of one event type by number. Changes are collected, and applied before the next use."""

    def __init__(self, schema: Schema, matcher: Factory | None) -> None:
        self.schema = schema
        self._filter = EventFilter(schema, matcher=matcher, max_unbounded=None, ids=int)
        self._connections: list[Connection] = []
        self._places: dict[Connection, int] = {}
        self._entries: list[int] = []  # by place; a place without entries may get another connection
        self._vacant: list[int] = []
        self._place: AnyArray = np.zeros(64, np.int64)  # of each number, in `_connections`
        self._ids: dict[int, SubscriptionId] = {}  # of clients' entries
        self._numbers, self._free = 0, list[int]()
        self._new: dict[int, Predicate] = {}
        self._gone: list[int] = []

    def add(self, predicate: Predicate, id: SubscriptionId, connection: Connection) -> int:
        """Add an entry, and return its number."""
        place = self._places.get(connection)
        if place is None:
            place = self._places[connection] = self._take_place(connection)
        if self._free:
            number = self._free.pop()
        else:
            number, self._numbers = self._numbers, self._numbers + 1
            if number == len(self._place):
                self._place = np.resize(self._place, 2 * number)
        self._place[number] = place
        self._entries[place] += 1
        self._new[number] = predicate
        if connection.kind is ConnectionKind.CLIENT:
            self._ids[number] = id
        return number

    def remove(self, number: int) -> None:
        """Remove an entry, whose number may be used again."""
        if self._new.pop(number, None) is None:
            self._gone.append(number)
        self._free.append(number)
        self._ids.pop(number, None)
        place = int(self._place[number])
        self._entries[place] -= 1
        if not self._entries[place]:
            del self._places[self._connections[place]]
            self._vacant.append(place)

    def _take_place(self, connection: Connection) -> int:
        if self._vacant:
            place = self._vacant.pop()
            self._connections[place] = connection
        else:
            place = len(self._connections)
            self._connections.append(connection)
            self._entries.append(0)
        return place

    def match(self, event: Mapping[str, Any]) -> dict[Connection, list[SubscriptionId]]:
        """See `MatchingTable.match`."""
        numbers = self._settled().match(event)
        places = self._place[numbers]
        found: dict[Connection, list[SubscriptionId]] = {
            self._connections[place]: [] for place in sorted(set(places.tolist()))
        }
        for connection, ids in found.items():
            if connection.kind is ConnectionKind.CLIENT:
                own = numbers[places == self._places[connection]]
                ids.extend(sorted(self._ids[number] for number in own.tolist()))
        return found

    def _settled(self) -> EventFilter:
        if self._gone:
            self._filter.unsubscribe_many(self._gone)
            self._gone = []
        if self._new:
            self._filter.subscribe_many(list(self._new.values()), ids=list(self._new))
            self._new = {}
        return self._filter
