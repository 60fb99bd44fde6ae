"""The spread of subscriptions to neighbours, also when neighbours come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from rtfilter.basics.errors import PredicateError
from rtfilter.overlay.broker_names import (
    CLUSTER,
    BrokerMessage,
    Connection,
    ConnectionKind,
    SubscriptionId,
    link,
    member,
)
from rtfilter.overlay.core import LOST, Core, Uncertainty
from rtfilter.overlay.routing_messages import (
    Confirm,
    Replica,
    Replicate,
    RouterEntry,
    RouterSubscribe,
    RouterSubscription,
    RouterSubscriptions,
    RouterUnsubscribe,
    Unreplicate,
)
from rtfilter.overlay.suppressing import CoveringForwarding, MergingForwarding, SubscriptionForwarding

PART: Final = 256
"""Most subscriptions in a message."""
BESIDE: Final = 1000
"""Most bytes of a subscription in addition to its condition: its id, and the names of type and connection."""

T = TypeVar("T")


class Spreading:
    """Adds and removes entries, and sends them to the brokers that must know them.

    A designated broker sends them to linked clusters, by its strategy, and to its own cluster, which has a
    replica of the table: the entries as a member would have them in that role. A member sends its own
    entries to the designated broker.
    """

    def __init__(self, core: Core, uncertainty: Uncertainty, covering: bool, slack: float | None) -> None:
        self._core, self._uncertainty, self._covering, self._slack = core, uncertainty, covering, slack
        self.replica: dict[tuple[SubscriptionId, Connection], RouterEntry] = {}
        self._forwardings: dict[str, SubscriptionForwarding] = {}
        self._learns: dict[str, frozenset[str]] = {}  # types whose subscriptions a linked cluster must know
        self._named: dict[Connection, set[SubscriptionId]] = {}  # so far, from parts of `RouterSubscriptions`
        self._unconfirmed: dict[SubscriptionId, set[Connection]] = {}  # with the connections that wait for it
        self._withheld: set[str] = set()  # types of subscriptions for which it is not certain yet
        self.announced = 0

    # -- one subscription ----------------------------------------------------------------------------

    def enter(self, subscription: RouterSubscription, connection: Connection) -> None:
        """Add an entry, and send it to the brokers that must know it. Confirm it, also if it exists."""
        core, id = self._core, subscription.id
        if core.table.add(subscription, connection):
            if core.at.leads:
                for cluster, forwarding in self._forwardings.items():
                    if subscription.type in self._learns[cluster] and connection != link(cluster):
                        self._tell(cluster, forwarding.add(subscription))
                self._replicate(Replicate(RouterEntry(subscription, self._seen_by_others(connection))))
            elif core.at.designated and core.shared:
                core.send(CLUSTER, RouterSubscribe(subscription))
            if self._uncertainty.settle(id, connection):
                self.leave(id, LOST)
        if core.grace is not None:
            self._unconfirmed.setdefault(id, set()).add(connection)
            self._confirm(subscription)
            self._confirm_suppressed()

    def leave(self, id: SubscriptionId, connection: Connection) -> None:
        """Remove an entry, and send the removal to the brokers that knew it."""
        core = self._core
        if not core.table.remove(id, connection):
            return
        if connection == LOST:
            self._uncertainty.forget(id)
        left = core.table.connections(id)
        if not left:
            self._unconfirmed.pop(id, None)
        if core.at.leads:
            for cluster, forwarding in self._forwardings.items():
                if all(other == link(cluster) for other in left):
                    self._tell(cluster, forwarding.remove(id))
            if connection != LOST:
                self._replicate(Unreplicate(id, self._seen_by_others(connection)))
            self._confirm_one(id)  # it may have waited for a neighbour that need not know it now
            self._confirm_suppressed()
        elif core.at.designated and core.shared:
            core.send(CLUSTER, RouterUnsubscribe(id))

    def lose(self, subscription: RouterSubscription, connection: Connection) -> None:
        """Remove an entry whose connection seems lost: at once, or after the grace."""
        core, id = self._core, subscription.id
        if core.grace is not None:
            core.table.add(subscription, LOST)
            core.table.remove(id, connection)
            self._uncertainty.keep(id, connection)
            self._replicate(Unreplicate(id, connection))
        else:
            self.leave(id, connection)

    # -- messages of neighbours ----------------------------------------------------------------------

    def take_subscribe(self, message: RouterSubscribe, source: Connection) -> None:
        """Add a subscription of a member or a linked cluster."""
        if self._core.at.leads:
            if source in self._named:
                self._named[source].add(message.subscription.id)
            self.enter(message.subscription, source)

    def take_unsubscribe(self, message: RouterUnsubscribe, source: Connection) -> None:
        """Remove a subscription of a member or a linked cluster."""
        if self._core.at.leads:
            self.leave(message.id, source)

    def take_subscriptions(self, message: RouterSubscriptions, source: Connection) -> None:
        """Process a part of all subscriptions of a member or a linked cluster, and answer if it asks."""
        core = self._core
        if not core.at.leads:
            if message.ask and source == core.designated:
                self.announce(ask=False)
            return
        if message.first:
            self._named[source] = set()
        named, wrong = self._named.setdefault(source, set()), list[Exception]()
        for subscription in message.subscriptions:
            named.add(subscription.id)
            try:
                self.enter(subscription, source)
            except (ValueError, PredicateError) as error:  # the others are entered all the same
                wrong.append(error)
        if message.last:
            del self._named[source]
            for subscription in core.table.of(source):
                if subscription.id in named:
                    continue
                if message.certain:
                    self.leave(subscription.id, source)
                else:
                    self.lose(subscription, source)
        if message.ask:
            if source.kind is ConnectionKind.LINK:
                self._greet(source.name)
                self._tell_all(source.name, ask=False)
            else:
                self._replicate_all()
        if wrong:
            raise wrong[0]

    def announce(self, ask: bool = True, certain: bool = False) -> None:
        """Send the designated broker all subscriptions of a member's clients."""
        core = self._core
        own = [entry.subscription for entry in core.table] if core.shared else []
        self.announced += 1
        if core.grace is not None:
            for one in own:  # until the designated broker, which may be another one, confirms them
                self._unconfirmed.setdefault(one.id, set()).update(core.table.connections(one.id))
        for message in self._in_messages(own, ask, certain):
            core.send(CLUSTER, message)

    def take_confirm(self, message: Confirm, source: Connection) -> None:
        """Process a neighbour's confirmation that all necessary brokers behind it know a subscription."""
        core = self._core
        if not core.at.leads:
            if source == core.designated:
                self._confirmed(message.id)
        elif source.name in self._forwardings:
            for id in self._forwardings[source.name].confirm(message.id):
                self._confirm_one(id)

    def is_known_everywhere(self, id: SubscriptionId) -> bool:
        """See `Router.is_known_everywhere`."""
        entries = self._core.table.entries(id)
        if not entries:
            return True
        if not self._core.at.leads:
            return bool(self._core.at.designated) and id not in self._unconfirmed
        certain = self._uncertainty.may_confirm(entries[0].subscription.type)
        return certain and all(one.is_confirmed(id) for one in self._forwardings.values())

    def confirm_all(self) -> None:
        """Confirm the subscriptions that can be confirmed after a change of the network."""
        for id in list(self._unconfirmed):
            self._confirm_one(id)
        for forwarding in self._forwardings.values():
            forwarding.suppressed_now.clear()

    def tick(self) -> None:
        """Confirm the subscriptions that have waited until it was certain that all neighbours are known."""
        if any(map(self._uncertainty.may_confirm, self._withheld)):
            self._withheld.clear()
            self.confirm_all()

    def _confirm_suppressed(self) -> None:
        """Confirm the subscriptions that another one has covered since the last time."""
        for forwarding in self._forwardings.values():
            found, forwarding.suppressed_now = forwarding.suppressed_now, []
            for id in found:
                self._confirm_one(id)

    def _confirm_one(self, id: SubscriptionId) -> None:
        for entry in self._core.table.entries(id)[:1]:
            self._confirm(entry.subscription)

    def _confirm(self, subscription: RouterSubscription) -> None:
        """Confirm a subscription to the waiting connections, if all neighbours have confirmed it."""
        core, id = self._core, subscription.id
        if id not in self._unconfirmed:
            return
        if core.at.leads:
            if not self._uncertainty.may_confirm(subscription.type):
                self._withheld.add(subscription.type)
            elif all(one.is_confirmed(id) for one in self._forwardings.values()):
                self._confirmed(id)
        elif core.at.designated and not core.shared:
            self._confirmed(id)

    def _confirmed(self, id: SubscriptionId) -> None:
        for connection in sorted(self._unconfirmed.pop(id, ())):
            if connection.kind is ConnectionKind.CLIENT or self._core.knows(connection):
                self._core.send(connection, Confirm(id))

    # -- links ---------------------------------------------------------------------------------------

    def forget_links(self) -> None:
        """Remove clusters without a link; their subscriptions and those of lost members become uncertain."""
        core = self._core
        for gone in self._forwardings.keys() - core.at.links.keys():
            del self._forwardings[gone], self._learns[gone]
            self._uncertainty.part()
        for connection in sorted(core.table.used()):
            stays = connection.kind is ConnectionKind.CLIENT or connection == LOST or core.knows(connection)
            if not stays:
                self._named.pop(connection, None)
                for subscription in core.table.of(connection):
                    self.lose(subscription, connection)

    def refresh(self, before: Mapping[str, str], certain: bool = False) -> None:
        """Send linked clusters what they must know now, because they are new or the strategy requires it.

        `before` has the earlier links, with their designated brokers. `certain` is True if nothing was lost.
        """
        core = self._core
        for cluster, broker in core.at.links.items():
            types = frozenset(
                type
                for type in core.types
                for strategy in core.strategies.values()
                if cluster in strategy.learners(core.at, type)
            )
            new = before.get(cluster) != broker
            if new or types != self._learns.get(cluster):
                forwarding = self._new_forwarding()
                forwarding.fill(
                    subscription
                    for subscription, connection in core.table
                    if subscription.type in types and connection != link(cluster)
                )
                self._learns[cluster], self._forwardings[cluster] = types, forwarding
                if new:
                    self._greet(cluster)
                self._tell_all(cluster, ask=new, certain=certain and not new)

    def _new_forwarding(self) -> SubscriptionForwarding:
        core = self._core
        if self._slack is not None:
            return MergingForwarding(core.table.predicate, self._slack, core.new_id)
        return CoveringForwarding(core.table.predicate) if self._covering else SubscriptionForwarding()

    def hear(self, message: BrokerMessage, source: Connection) -> None:
        """Pass a message to the strategy, which may change the clusters that must know subscriptions."""
        core = self._core
        if source.kind is ConnectionKind.LINK:
            for strategy in core.strategies.values():
                for cluster, other in strategy.hear(message, core.at, source.name):
                    core.send(link(cluster), other)
            self.refresh(core.at.links)
            self.confirm_all()

    def moved(self, anew: bool) -> None:
        """Pass a new place to the strategy, and send its messages."""
        for strategy in self._core.strategies.values():
            for cluster, message in strategy.moved(self._core.at, anew):
                self._core.send(link(cluster), message)

    def _greet(self, cluster: str) -> None:
        core = self._core
        for strategy in core.strategies.values():
            self._tell(cluster, strategy.greeting(core.at, cluster, core.types))

    def greet_all(self) -> None:
        """Send the strategies' greetings to all linked clusters."""
        for cluster in self._core.at.links:
            self._greet(cluster)

    def _tell(self, cluster: str, messages: Iterable[BrokerMessage]) -> None:
        for message in messages:
            self._core.send(link(cluster), message)

    def _tell_all(self, cluster: str, ask: bool, certain: bool = False) -> None:
        self._tell(cluster, self._in_messages(list(self._forwardings[cluster].sent()), ask, certain))

    def _in_messages(
        self, content: Sequence[RouterSubscription], ask: bool, certain: bool
    ) -> Iterator[RouterSubscriptions]:
        for part, first, last in _parts(content, content, self._core.longest):
            yield RouterSubscriptions(tuple(part), first, last, ask and last, certain)

    # -- the cluster ---------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Become the designated broker, with the replica as routing table."""
        core = self._core
        replica, self.replica = self.replica, {}
        for subscription, connection in replica.values():
            if connection != member(core.name):
                core.table.add(subscription, connection)
        self._replicate_all()

    def step_down(self) -> None:
        """Become an ordinary member, with the subscriptions of the own clients only."""
        core = self._core
        for subscription, connection in list(core.table):
            if connection.kind is not ConnectionKind.CLIENT:
                core.table.remove(subscription.id, connection)
                self._uncertainty.forget(subscription.id)
        self._forwardings, self._learns, self._named = {}, {}, {}
        self._unconfirmed = {
            id: waits
            for id, waits in self._unconfirmed.items()
            if any(connection.kind is ConnectionKind.CLIENT for connection in waits)
        }

    def take_replica(self, message: Replica | Replicate | Unreplicate, source: Connection) -> None:
        """Apply a message of the designated broker about its entries to the replica."""
        if self._core.at.leads or source != self._core.designated:
            return
        match message:
            case Replica(entries=entries, first=first):
                kept = {} if first else self.replica
                self.replica = kept | {(one.subscription.id, one.connection): one for one in entries}
            case Replicate(entry=entry):
                self.replica[entry.subscription.id, entry.connection] = entry
            case Unreplicate(id=id, connection=connection):
                self.replica.pop((id, connection), None)

    def _replicate(self, message: BrokerMessage) -> None:
        if self._core.shared and len(self._core.at.members) > 1:
            self._core.send(CLUSTER, message)

    def _replicate_all(self) -> None:
        """Send the cluster the whole table, by multicast, so that its order among other messages is kept."""
        entries = [
            RouterEntry(subscription, self._seen_by_others(connection))
            for subscription, connection in self._core.table
            if connection != LOST
        ]
        subscriptions = [entry.subscription for entry in entries]
        for part, first, last in _parts(entries, subscriptions, self._core.longest):
            self._replicate(Replica(tuple(part), first, last))

    def _seen_by_others(self, connection: Connection) -> Connection:
        """Return a connection as a member that takes over would have it: clients are behind this broker."""
        return member(self._core.name) if connection.kind is ConnectionKind.CLIENT else connection


def _parts(
    content: Sequence[T], subscriptions: Sequence[RouterSubscription], longest: int
) -> Iterator[tuple[Sequence[T], bool, bool]]:
    """Split content into several messages: yield each part, and whether it is the first and the last one.

    `subscriptions` has the subscription of each item. A part fits a message, or has only one item.
    """
    starts, size = [0], 0
    for number, one in enumerate(subscriptions):
        added = BESIDE + len(one.condition.encode())
        size += added
        if number > starts[-1] and (number == starts[-1] + PART or size > longest):
            starts.append(number)
            size = added
    for start, end in zip(starts, [*starts[1:], len(content)], strict=True):
        yield content[start:end], start == 0, end == len(content)
