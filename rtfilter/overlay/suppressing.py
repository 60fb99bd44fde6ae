"""The subscriptions that a broker sends to a neighbour: all, those that no other covers, or merged boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from rtfilter.filter import EventFilter
from rtfilter.overlay.broker_names import BrokerMessage, SubscriptionId
from rtfilter.overlay.routing_messages import RouterSubscribe, RouterSubscription, RouterUnsubscribe
from rtfilter.predicates.boxes.compiling import compile_predicate
from rtfilter.predicates.operands.expressions import written
from rtfilter.predicates.predicate import Predicate

FEW: Final = 500
"""Most subscriptions for a new neighbour among which covering ones are looked for."""
FAR: Final = 1e300
"""Size of an end from which a side counts as open."""


class SubscriptionForwarding:
    """Forwards every subscription to a neighbour."""

    def __init__(self) -> None:
        self._sent: dict[SubscriptionId, RouterSubscription] = {}
        self._confirmed: set[SubscriptionId] = set()
        self.suppressed_now: list[SubscriptionId] = []
        """Subscriptions that another one has covered since this list was emptied."""

    def add(self, subscription: RouterSubscription) -> list[BrokerMessage]:
        """Add a subscription; return the messages for the neighbour, none if it knows the subscription."""
        if subscription.id in self._sent:
            return []
        self._sent[subscription.id] = subscription
        return [RouterSubscribe(subscription)]

    def fill(self, subscriptions: Iterable[RouterSubscription]) -> None:
        """Add the subscriptions for a new neighbour, which then gets `sent`."""
        for one in subscriptions:
            self.add(one)

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
        self._waiting: dict[SubscriptionId, tuple[RouterSubscription, SubscriptionId]] = {}  # and coverer
        self._covers: dict[SubscriptionId, set[SubscriptionId]] = {}

    def add(self, subscription: RouterSubscription) -> list[BrokerMessage]:
        if self.knows(subscription.id):
            return []
        by = self.coverer(subscription)
        if by is not None:
            self._waiting[subscription.id] = subscription, by
            self._covers.setdefault(by, set()).add(subscription.id)
            self.suppressed_now.append(subscription.id)
            return []
        number = self._index(subscription).subscribe(self._read(subscription))
        self._numbers[subscription.id] = number
        self._ids[subscription.type, number] = subscription.id
        return super().add(subscription)

    def fill(self, subscriptions: Iterable[RouterSubscription]) -> None:
        """See `SubscriptionForwarding`. Of many, all are sent: a search takes a millisecond of each one."""
        by_id = {one.id: one for one in subscriptions}
        if len(by_id) <= FEW:
            super().fill(by_id.values())
            return
        self._sent |= by_id
        for type in {one.type for one in by_id.values()}:
            some = [one for one in by_id.values() if one.type == type]
            numbers = self._index(some[0]).subscribe_many(list(map(self._read, some))).tolist()
            for one, number in zip(some, numbers, strict=True):
                self._numbers[one.id], self._ids[type, number] = number, one.id

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
        return super().is_confirmed(self._waiting[id][1] if id in self._waiting else id)

    @property
    def suppressed(self) -> int:
        return len(self._waiting)


class _Group(NamedTuple):
    """A sent box, with closed ends, and the subscriptions that it was made for."""

    names: tuple[str, ...]
    """The attributes with bounds."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    empty: float
    """Upper bound of the share of its volume that is outside of all boxes that it was made for."""
    made_for: frozenset[SubscriptionId]


class MergingForwarding(CoveringForwarding):
    """Forwards one box around several to a neighbour, if little of the box is empty.

    The merged box is a subscription of this broker itself. It covers the subscriptions that it was made for,
    which are suppressed. The neighbour may send events that match none of them, which this broker drops: if
    events are uniform in a box, at most the share `slack` of the events for the box. If a subscription of the
    box is removed, the others are sent again, unless a wider box replaces it: a growing box is sent first,
    and then the former one is removed. Only boxes over the same number attributes, closed on all sides, are
    merged.

    Parameters
    ----------
    read : callable
        See `CoveringForwarding`.
    slack : float
        Largest share of a box that may be empty, from 0 to below 1.
    new_id : callable
        Returns a new id of this broker.
    """

    def __init__(
        self,
        read: Callable[[RouterSubscription], Predicate],
        slack: float,
        new_id: Callable[[], SubscriptionId],
    ) -> None:
        super().__init__(read)
        self._slack, self._new_id = slack, new_id
        self._groups: dict[SubscriptionId, _Group] = {}  # by the id that was sent
        self._made: dict[SubscriptionId, SubscriptionId] = {}  # the box that was made for a subscription

    def add(self, subscription: RouterSubscription) -> list[BrokerMessage]:
        if self.knows(subscription.id) or self.coverer(subscription) is not None:
            return super().add(subscription)
        own = self._group(subscription)
        near = None if own is None else self._nearest(subscription.type, own)
        if near is None:
            if own is not None:
                self._groups[subscription.id] = own
            return super().add(subscription)
        former, merged = near
        wide = RouterSubscription(self._new_id(), subscription.type, _condition(merged))
        old, alone = self._sent[former], self._groups.pop(former).made_for == {former}
        self._groups[wide.id] = merged
        self._made.update(dict.fromkeys(merged.made_for, wide.id))
        messages = super().add(wide) + super().remove(former)
        for covered in (subscription, *((old,) if alone else ())):
            messages += super().add(covered)  # sends nothing, because the wide box covers it
        return messages

    fill = SubscriptionForwarding.fill  # one by one: each may make a box wider

    def remove(self, id: SubscriptionId) -> list[BrokerMessage]:
        if self._is_replaced(id):
            return super().remove(id)  # sends nothing, because the wide box covers it
        self._groups.pop(id, None)
        wide = self._made.pop(id, None)
        messages = super().remove(id)
        if wide in self._groups:
            del self._groups[wide]
            messages += super().remove(wide)
        return messages

    def _is_replaced(self, id: SubscriptionId) -> bool:
        """Replace a subscription of a box by a suppressed one that covers it; return False without one."""
        wide = self._made.get(id)
        if wide is None or wide not in self._groups or id not in self._waiting:
            return False
        own = self._read(self._waiting[id][0])
        for other in sorted(self._covers.get(wide, set()) - {id}):
            elsewhere = self._made.get(other, wide)
            if elsewhere != wide and elsewhere in self._groups:
                continue
            if self._read(self._waiting[other][0]).covers(own):
                group = self._groups[wide]
                self._groups[wide] = group._replace(made_for=(group.made_for - {id}) | {other})
                self._made[other] = wide
                del self._made[id]
                return True
        return False

    @property
    def merged(self) -> int:
        """Number of sent boxes that cover several subscriptions."""
        return sum(len(group.made_for) > 1 for group in self._groups.values())

    def _nearest(self, type: str, own: _Group) -> tuple[SubscriptionId, _Group] | None:
        """Return the sent box whose union with this one has the least empty space; None above the slack."""
        best, least = None, self._slack
        for id, other in self._groups.items():
            if other.names == own.names and self._sent[id].type == type:
                empty = _empty(own, other)
                if empty <= least:
                    best, least = id, empty
        return None if best is None else (best, _merge(own, self._groups[best], least))

    def _group(self, subscription: RouterSubscription) -> _Group | None:
        """Return the group of one subscription alone, or None if it is no closed box over numbers."""
        predicate = self._read(subscription)
        schema = predicate.schema
        assert schema is not None
        low, high, exact = compile_predicate(predicate, schema)
        if len(low) != 1 or not exact[0]:
            return None
        bounded = np.isfinite(low[0]) | np.isfinite(high[0])
        names = [name for name in schema.attributes if bounded[schema.offsets[name]]]
        places = [schema.offsets[name] for name in names]
        ends = tuple(low[0, places].tolist()), tuple(high[0, places].tolist())
        numbers = all(schema.attribute(name).family == "number" for name in names)
        if not names or not numbers or min(ends[0]) <= -FAR or max(ends[1]) >= FAR:
            return None
        return _Group(tuple(names), *ends, 0.0, frozenset((subscription.id,)))


def _empty(one: _Group, two: _Group) -> float:
    """Return an upper bound of the empty share of the box around two groups."""
    of_one = of_two = of_both = 1.0  # shares of the whole, over all sides that are not a single point
    for a, b, c, d in zip(one.low, one.high, two.low, two.high, strict=True):
        width = max(b, d) - min(a, c)
        if width > 0:
            of_one *= (b - a) / width
            of_two *= (d - c) / width
            of_both *= max(min(b, d) - max(a, c), 0) / width
    return 1 - (of_one + of_two - of_both) + one.empty * of_one + two.empty * of_two


def _merge(one: _Group, two: _Group, empty: float) -> _Group:
    """Return the group of the box around two groups."""
    low, high = tuple(map(min, one.low, two.low)), tuple(map(max, one.high, two.high))
    return _Group(one.names, low, high, empty, one.made_for | two.made_for)


def _condition(group: _Group) -> str:
    sides = zip(group.names, group.low, group.high, strict=True)
    return " AND ".join(f"{written(name)} BETWEEN {low!r} AND {high!r}" for name, low, high in sides)
