"""The routing table of a broker: the subscriptions of each connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final

from rtfilter.basics.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import Connection, SubscriptionId
from rtfilter.overlay.routing_messages import RouterEntry, RouterSubscription
from rtfilter.predicates.predicate import Predicate

PARSED: Final = 10_000
"""Most conditions that are cached as predicates."""


class Table:
    """Entries of subscriptions and connections.

    One subscription may have several entries while the network changes, each for another connection.

    Attributes
    ----------
    changed : set of (SubscriptionId, Connection), optional
        Gets each entry that is added or removed, where a set is put here.
    """

    def __init__(self, types: Mapping[str, Schema]) -> None:
        self._schemas = dict(types)
        self._parsed: dict[str, dict[str, Predicate]] = {name: {} for name in types}  # by type and condition
        self._of: dict[SubscriptionId, dict[Connection, RouterSubscription]] = {}
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
        self.predicate(subscription)
        self._of.setdefault(subscription.id, entries)[connection] = subscription
        self._at[connection] += 1
        self._note(subscription.id, connection)
        return True

    def remove(self, id: SubscriptionId, connection: Connection) -> bool:
        """Remove an entry; return False if there is none."""
        entries = self._of.get(id, {})
        if connection not in entries:
            return False
        del entries[connection]
        if not entries:
            del self._of[id]
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
        return self._of.get(id, {}).get(connection)

    def predicate(self, subscription: RouterSubscription) -> Predicate:
        """Return the predicate of a subscription. Raises as `add`."""
        return self.read(subscription.type, subscription.condition)

    def read(self, type: str, condition: str) -> Predicate:
        """Return the predicate of a condition for an event type. Raises as `add`."""
        schema, parsed = self.schema(type), self._parsed[type]
        predicate = parsed.get(condition)
        if predicate is None:
            predicate = Predicate.parse(condition, schema)
            predicate.cost  # noqa: B018, refuses a condition that needs too many boxes
            if len(parsed) >= PARSED:
                parsed.clear()
            parsed[condition] = predicate
        return predicate

    def extend(self, types: Mapping[str, Schema]) -> None:
        """Take further types, or another schema of known ones; entries that do not fit it are removed."""
        for name, schema in types.items():
            former = [one for one in self if one.subscription.type == name]
            for subscription, connection in former:
                self.remove(subscription.id, connection)
            self._schemas[name], self._parsed[name] = schema, {}
            for subscription, connection in former:
                with suppress(PredicateError):
                    self.add(subscription, connection)

    def schema(self, type: str) -> Schema:
        """Return the schema of an event type. Raises `ValueError` for an unknown type."""
        if type not in self._schemas:
            known = ", ".join(self._schemas) or "none"
            raise ValueError(f"unknown event type {type!r:.60}; the types of this broker are {known}")
        return self._schemas[type]

    def connections(self, id: SubscriptionId) -> Collection[Connection]:
        """Return the connections that have an entry of a subscription."""
        return self._of.get(id, {}).keys()

    def entries(self, id: SubscriptionId) -> list[RouterEntry]:
        """Return the entries of a subscription."""
        return [RouterEntry(subscription, one) for one, subscription in self._of.get(id, {}).items()]

    def of(self, connection: Connection) -> list[RouterSubscription]:
        """Return the subscriptions with an entry for a connection, in the order in which they were added."""
        return [entries[connection] for entries in self._of.values() if connection in entries]

    def used(self) -> list[Connection]:
        """Return all connections with an entry."""
        return list(self._at)

    def __iter__(self) -> Iterator[RouterEntry]:
        for entries in self._of.values():
            for connection, subscription in entries.items():
                yield RouterEntry(subscription, connection)

    def __len__(self) -> int:
        return self._at.total()

    def __contains__(self, entry: tuple[SubscriptionId, Connection]) -> bool:
        id, connection = entry
        return connection in self._of.get(id, ())
