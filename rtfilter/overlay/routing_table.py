"""The routing table of a broker: the connections that an event goes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.filter import EventFilter
from rtfilter.matchers.registry import Factory
from rtfilter.overlay.broker_names import Connection, ConnectionKind, SubscriptionId
from rtfilter.overlay.routing_messages import RouterEntry, RouterSubscription
from rtfilter.predicates.predicate import Predicate

PARSED: Final = 10_000
"""Most conditions that are cached as predicates."""


class Table:
    """Entries of subscriptions and connections, with an index over them for each event type.

    One subscription may have several entries while the network changes, each for another connection. An index
    knows entries by small numbers, and an array has the connection of each number. An index per connection
    could stop at its first match, but all of them must be searched: `python -m experiments tables`.

    Attributes
    ----------
    changed : set of (SubscriptionId, Connection), optional
        Gets each entry that is added or removed, where a set is put here.
    """

    def __init__(self, types: Mapping[str, Schema], matchers: Mapping[str, Factory] | None = None) -> None:
        self._indexes = {name: _Index(schema, (matchers or {}).get(name)) for name, schema in types.items()}
        self._of: dict[SubscriptionId, dict[Connection, tuple[RouterSubscription, int]]] = {}
        self._at: Counter[Connection] = Counter()
        self.changed: set[tuple[SubscriptionId, Connection]] | None = None

    def add(self, subscription: RouterSubscription, connection: Connection) -> bool:
        """Add an entry; return False, and change nothing, if it exists.

        Raises
        ------
        ValueError, PredicateError
            The type is unknown, or the condition cannot be used.
        """
        entries = self._of.get(subscription.id, {})
        if connection in entries:
            return False
        predicate = self.predicate(subscription)
        number = self._indexes[subscription.type].add(predicate, subscription.id, connection)
        self._of.setdefault(subscription.id, entries)[connection] = subscription, number
        self._at[connection] += 1
        self._note(subscription.id, connection)
        return True

    def remove(self, id: SubscriptionId, connection: Connection) -> bool:
        """Remove an entry; return False if there is none."""
        entries = self._of.get(id, {})
        if connection not in entries:
            return False
        subscription, number = entries.pop(connection)
        if not entries:
            del self._of[id]
        self._indexes[subscription.type].remove(number)
        self._at[connection] -= 1
        if not self._at[connection]:
            del self._at[connection]
        self._note(id, connection)
        return True

    def _note(self, id: SubscriptionId, connection: Connection) -> None:
        if self.changed is not None:
            self.changed.add((id, connection))

    def get(self, id: SubscriptionId, connection: Connection) -> RouterSubscription | None:
        """Return the subscription of an entry, or None."""
        found = self._of.get(id, {}).get(connection)
        return None if found is None else found[0]

    def predicate(self, subscription: RouterSubscription) -> Predicate:
        """Return the predicate of a subscription. Raises as `add`."""
        return self.read(subscription.type, subscription.condition)

    def read(self, type: str, condition: str) -> Predicate:
        """Return the predicate of a condition for an event type. Raises as `add`."""
        return self._index(type).read(condition)

    def extend(self, types: Mapping[str, Schema]) -> None:
        """Take further types, or another schema of known ones; entries that do not fit it are removed."""
        for name, schema in types.items():
            former = [one for one in self if one.subscription.type == name]
            for subscription, connection in former:
                self.remove(subscription.id, connection)
            self._indexes[name] = _Index(schema, None)
            for subscription, connection in former:
                with suppress(PredicateError):
                    self.add(subscription, connection)

    def schema(self, type: str) -> Schema:
        """Return the schema of an event type. Raises `ValueError` for an unknown type."""
        return self._index(type).schema

    def match(self, type: str, event: Mapping[str, Any]) -> dict[Connection, list[SubscriptionId]]:
        """Return the connections that an event goes to; for clients, with matching subscriptions, ascending.

        Raises `ValueError` and `EventError`.
        """
        return self._index(type).match(event)

    def connections(self, id: SubscriptionId) -> Collection[Connection]:
        """Return the connections that have an entry of a subscription."""
        return self._of.get(id, {}).keys()

    def entries(self, id: SubscriptionId) -> list[RouterEntry]:
        """Return the entries of a subscription."""
        return [RouterEntry(subscription, one) for one, (subscription, _) in self._of.get(id, {}).items()]

    def of(self, connection: Connection) -> list[RouterSubscription]:
        """Return the subscriptions with an entry for a connection, in the order in which they were added."""
        return [entries[connection][0] for entries in self._of.values() if connection in entries]

    def used(self) -> list[Connection]:
        """Return all connections with an entry."""
        return list(self._at)

    def __iter__(self) -> Iterator[RouterEntry]:
        for entries in self._of.values():
            for connection, (subscription, _) in entries.items():
                yield RouterEntry(subscription, connection)

    def __len__(self) -> int:
        return self._at.total()

    def __contains__(self, entry: tuple[SubscriptionId, Connection]) -> bool:
        id, connection = entry
        return connection in self._of.get(id, ())

    def _index(self, type: str) -> _Index:
        if type not in self._indexes:
            known = ", ".join(self._indexes) or "none"
            raise ValueError(f"unknown event type {type!r:.60}; the types of this broker are {known}")
        return self._indexes[type]


class _Index:
    """The entries of one event type by number. Changes are collected, and applied before the next use."""

    def __init__(self, schema: Schema, matcher: Factory | None) -> None:
        self.schema = schema
        self._parsed: dict[str, Predicate] = {}  # by condition
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

    def read(self, condition: str) -> Predicate:
        """Return the predicate of a condition. Raises `PredicateError`, also if it needs too many boxes."""
        predicate = self._parsed.get(condition)
        if predicate is None:
            predicate = Predicate.parse(condition, self.schema)
            predicate.cost  # noqa: B018, refuses what the index would refuse later
            if len(self._parsed) >= PARSED:
                self._parsed.clear()
            self._parsed[condition] = predicate
        return predicate

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
        """See `Table.match`."""
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
