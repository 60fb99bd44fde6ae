"""The subscriptions that a broker has sent to a neighbour, and those that it has suppressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rtfilter.filter import EventFilter
from rtfilter.overlay.broker_messages import BrokerMessage
from rtfilter.overlay.broker_names import SubscriptionId
from rtfilter.overlay.routing_messages import RouterSubscribe, RouterSubscription, RouterUnsubscribe
from rtfilter.predicates.predicate import Predicate


class SubscriptionForwarding:
    """Forwards every subscription to a neighbour."""

    def __init__(self) -> None:
        self._sent: dict[SubscriptionId, RouterSubscription] = {}
        self._confirmed: set[SubscriptionId] = set()

    def add(self, subscription: RouterSubscription) -> list[BrokerMessage]:
        """Add a subscription; return the messages for the neighbour, none if it knows the subscription."""
        if subscription.id in self._sent:
            return []
        self._sent[subscription.id] = subscription
        return [RouterSubscribe(subscription)]

    def remove(self, id: SubscriptionId) -> list[BrokerMessage]:
        """Remove a subscription; return the messages for the neighbour."""
        self._confirmed.discard(id)
        return [] if self._sent.pop(id, None) is None else [RouterUnsubscribe(id)]

    def sent(self) -> Iterable[RouterSubscription]:
        """Return the subscriptions that the neighbour has received and still keeps."""
        return self._sent.values()

    def confirm(self, id: SubscriptionId) -> Iterable[SubscriptionId]:
        """Note that the neighbour confirms a subscription; return the ids that this confirms."""
        if id not in self._sent:
            return ()
        self._confirmed.add(id)
        return (id,)

    def is_confirmed(self, id: SubscriptionId) -> bool:
        """Return whether the neighbour has confirmed a subscription, or need not know it."""
        return id not in self._sent or id in self._confirmed

    @property
    def suppressed(self) -> int:
        """Number of subscriptions that the neighbour need not get, because others cover them."""
        return 0


class CoveringForwarding(SubscriptionForwarding):
    """Forwards a subscription to a neighbour unless one that was sent before covers it (Bittner 2004).

    An event that satisfies the covered one satisfies the other, so the neighbour sends it anyway. Before the
    covering one is removed, the subscriptions that only it suppressed are sent. Of equal subscriptions the
    first is sent; of suppressed ones, the one with the lowest id is next. If it is unknown whether a
    subscription covers another, both are sent.

    Parameters
    ----------
    read : callable
        Returns the predicate of a subscription.
    """

    def __init__(self, read: Callable[[RouterSubscription], Predicate]) -> None:
        super().__init__()
        self._read = read
        self._indexes: dict[str, EventFilter] = {}  # of sent subscriptions, by type
        self._numbers: dict[SubscriptionId, int] = {}
        self._ids: dict[tuple[str, int], SubscriptionId] = {}  # by type and number
        self._waiting: dict[
            SubscriptionId, tuple[RouterSubscription, SubscriptionId]
        ] = {}  # with the coverer
        self._covers: dict[SubscriptionId, set[SubscriptionId]] = {}

    def add(self, subscription: RouterSubscription) -> list[BrokerMessage]:
        """See `SubscriptionForwarding`."""
        if self.knows(subscription.id):
            return []
        by = self.coverer(subscription)
        if by is not None:
            self._waiting[subscription.id] = subscription, by
            self._covers.setdefault(by, set()).add(subscription.id)
            return []
        number = self._index(subscription).subscribe(self._read(subscription))
        self._numbers[subscription.id] = number
        self._ids[subscription.type, number] = subscription.id
        return super().add(subscription)

    def knows(self, id: SubscriptionId) -> bool:
        """Return whether a subscription was sent, or is suppressed."""
        return id in self._sent or id in self._waiting

    def coverer(self, subscription: RouterSubscription) -> SubscriptionId | None:
        """Return the id of a sent subscription that covers this one; None if there is none."""
        covering = self._index(subscription).related(self._read(subscription)).covers.ids
        return self._ids[subscription.type, int(covering[0])] if len(covering) else None

    def _index(self, subscription: RouterSubscription) -> EventFilter:
        index = self._indexes.get(subscription.type)
        if index is None:
            schema = self._read(subscription).schema
            assert schema is not None
            index = EventFilter(schema, max_unbounded=None, ids=int)
            self._indexes[subscription.type] = index
        return index

    def remove(self, id: SubscriptionId) -> list[BrokerMessage]:
        """Remove a subscription. Its replacements are sent before the removal, so that no event is missed."""
        if id in self._waiting:
            _, by = self._waiting.pop(id)
            self._covers[by].discard(id)
            return []
        if id not in self._sent:
            return []
        type, number = self._sent[id].type, self._numbers.pop(id)
        del self._ids[type, number]
        self._indexes[type].unsubscribe(number)
        messages: list[BrokerMessage] = []
        for orphan in sorted(self._covers.pop(id, ())):
            subscription, _ = self._waiting.pop(orphan)
            messages += self.add(subscription)
        return messages + super().remove(id)

    def confirm(self, id: SubscriptionId) -> Iterable[SubscriptionId]:
        """See `SubscriptionForwarding`. With a subscription, all that it covers are confirmed."""
        return (*super().confirm(id), *sorted(self._covers.get(id, ())))

    def is_confirmed(self, id: SubscriptionId) -> bool:
        """See `SubscriptionForwarding`."""
        return super().is_confirmed(self._waiting[id][1] if id in self._waiting else id)

    @property
    def suppressed(self) -> int:
        """See `SubscriptionForwarding`."""
        return len(self._waiting)
