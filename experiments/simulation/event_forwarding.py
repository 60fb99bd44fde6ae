"""The forwarding of events, and their acknowledgement when all receivers have acknowledged them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from experiments.simulation.choosing import Choosing
from experiments.simulation.event_messages import Acknowledge, Event, EventId, Notify
from experiments.simulation.matching_table import MatchingTable
from rtfilter.overlay.broker_names import CLUSTER, BrokerPlace, Connection, ConnectionKind, link, member
from rtfilter.overlay.core import LOST, Core
from rtfilter.overlay.strategies import Strategy

SEEN: Final = 10_000
"""Most events to remember, so that none is forwarded twice while the tree changes."""
EARLY: Final = 1_000
"""Most events with acknowledgements that came before the event."""

Key = tuple[EventId, int, bool]
"""An attempt of an event, and whether it rises."""


class _Passed:
    """An event that this broker has sent on.

    Attributes
    ----------
    awaits : set of Connection
        The receivers that have not acknowledged it.
    sources : list of Connection
        The senders that wait for an acknowledgement.
    sure : bool
        True if all receivers were known. Otherwise it is never acknowledged, but sent again.
    led : bool
        True if this broker was the designated one then. A member waits for that broker, which answers for
        all, and not for another member, which answers only for itself and may not know the designated one.
    """

    __slots__ = ("awaits", "led", "rising", "sources", "sure")

    def __init__(
        self, awaits: set[Connection], source: Connection, sure: bool, rising: bool, led: bool
    ) -> None:
        self.awaits, self.sources, self.sure, self.rising, self.led = awaits, [source], sure, rising, led


class Acknowledging:
    """Records the events that have passed, and acknowledges them if the core requires it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._passed: dict[Key, _Passed | None] = {}
        self._early: dict[Key, set[Connection]] = {}

    def is_new(self, event: Event, source: Connection) -> bool:
        """Return whether this attempt is new. If not, acknowledge it to `source` when possible."""
        key = event.id, event.attempt, event.rising
        if key not in self._passed:
            return True
        passed = self._passed[key]
        if passed is not None:
            passed.sources.append(source)
            self._answer(key, passed)
        return False

    def note(
        self, event: Event, source: Connection, awaits: Iterable[Connection], sure: bool, rising: bool
    ) -> None:
        """Record an event that was sent to some connections, rising or not."""
        key = event.id, event.attempt, event.rising
        if self._core.grace is None:
            self._passed[key] = None
        else:
            leads = self._core.at.leads
            early = self._early.pop((event.id, event.attempt, rising), set())
            awaited = set(awaits) - early if leads else set(awaits)
            passed = self._passed[key] = _Passed(awaited, source, sure, rising, leads)
            self._answer(key, passed)
        if len(self._passed) > SEEN:
            del self._passed[next(iter(self._passed))]

    def hear(self, message: Acknowledge, source: Connection) -> None:
        """Process an acknowledgement, and acknowledge the event to its sources if it was the last one."""
        found = False
        for rose in (False, True):
            key = message.id, message.attempt, rose
            passed = self._passed.get(key)
            if passed is not None and passed.rising == message.rising and (passed.led or not message.own):
                found = True
                passed.awaits.discard(source)
                self._answer(key, passed)
        if not found and message.own:  # the source received the multicast before this broker
            self._early.setdefault((message.id, message.attempt, message.rising), set()).add(source)
            if len(self._early) > EARLY:
                del self._early[next(iter(self._early))]

    def _answer(self, key: Key, passed: _Passed) -> None:
        if passed.awaits or not passed.sure:
            return
        core = self._core
        for source in passed.sources:
            # The designated broker answers for the whole cluster, even if a member sent the multicast of the
            # event.
            fellow = source.kind is ConnectionKind.MEMBER and not core.at.leads
            to = core.designated if fellow else source
            if to.kind is ConnectionKind.CLIENT or core.knows(to):
                rising = key[2] and to.kind is not ConnectionKind.CLIENT
                core.send(to, Acknowledge(key[0], key[1], rising, fellow))
        passed.sources = []


class Certainty:
    """Records what a designated broker may not know, so that no acknowledged event misses a subscriber.

    Attributes
    ----------
    unheard : set of Connection
        Neighbours that have not sent their subscriptions yet.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._doubtful_until = float("-inf")
        self.unheard: set[Connection] = set()

    def doubt(self) -> None:
        """Make all knowledge uncertain for the grace."""
        if self._core.grace is not None:
            self._doubtful_until = self._core.now + self._core.grace

    def moved(self, old: BrokerPlace) -> None:
        """Note the new neighbours after a change of the place."""
        new = self._core.at
        links, members = (old.links, old.members) if old.leads else ({}, frozenset[str]())
        self.unheard |= {member(broker) for broker in new.members - members - {new.broker}}
        self.unheard |= {link(c) for c, broker in new.links.items() if links.get(c) != broker}
        self.unheard = {one for one in self.unheard if new.leads and self._core.knows(one)}

    def is_sure(self, type: str) -> bool:
        """Return whether a designated broker knows its neighbours and their subscriptions to a type.

        Uncertain entries do not count.
        """
        return self._core.now >= self._doubtful_until and not self.unheard and self._core.is_whole(type)


class Forwarding:
    """Sends each attempt of an event on once: to all matching connections, and to those of the strategy."""

    def __init__(self, core: Core, table: MatchingTable, choosing: Choosing) -> None:
        self._core, self._table, self._choosing = core, table, choosing
        self.certainty, self.acknowledging = Certainty(core), Acknowledging(core)

    def take(self, event: Event, source: Connection) -> None:
        """Process an event of a client or a neighbour."""
        if self.acknowledging.is_new(event, source):
            if source.kind is ConnectionKind.CLIENT:
                self._choosing.note(events=1)
            if event.rising:
                self._rise(event, source)
            else:
                awaits, sure = self._spread(event, source)
                self.acknowledging.note(event, source, awaits, sure, False)

    def _rise(self, event: Event, source: Connection) -> None:
        """Send an event towards the rendezvous, or from there back to all matching connections."""
        core, note = self._core, self.acknowledging.note
        if not core.at.leads:
            up = {core.designated} if core.at.designated else set()
            self._send(up, event)
            note(event, source, up, bool(up), True)
            return
        where = self._strategy(event).ascent(core.at, event.type)
        if where == core.at.cluster:
            awaits, sure = self._spread(msgspec.structs.replace(event, rising=False), None)
            note(event, source, awaits, sure, False)
        elif where is None:
            note(event, source, (), False, True)
        else:
            self._send({link(where)}, event)
            note(event, source, (link(where),), True, True)

    def _spread(self, event: Event, source: Connection | None) -> tuple[set[Connection], bool]:
        """Send an event to all matching connections and to those of the strategy, but not back to its source.

        Returns
        -------
        set of Connection, bool
            The brokers that must acknowledge it, and whether these are all that must have it.
        """
        core = self._core
        matched = self._table.match(event.type, event.values)
        for connection, ids in matched.items():
            if connection.kind is ConnectionKind.CLIENT:
                core.send(connection, Notify(event.id, event.type, event.values, tuple(ids)))
        came_from = None if source is None else source.kind
        strategy = self._strategy(event)
        if (core.at.leads or not strategy.shared) and any(
            one.kind is not ConnectionKind.LINK for one in matched
        ):
            self._choosing.note(served=1)
        if not core.at.leads:
            if came_from is not ConnectionKind.CLIENT:
                return set(), True
            if core.at.designated or strategy.multicast:
                core.send(CLUSTER if strategy.multicast else core.designated, event)
            return {core.designated}, bool(core.at.designated)
        links = {link(cluster) for cluster in strategy.always(core.at, event.type)}
        links |= {one for one in matched if one.kind is ConnectionKind.LINK and one != LOST}
        links -= {source}
        self._send(links, event)
        fellows = {one for one in matched if one.kind is ConnectionKind.MEMBER}
        if not strategy.shared:
            fellows = set(core.fellows)
        fellows -= {source}
        if not strategy.multicast:
            self._send(fellows, event)
        elif fellows and came_from is not ConnectionKind.MEMBER:  # from a member, the whole cluster has it
            core.send(CLUSTER, event)
        return links | fellows, LOST not in matched and self.certainty.is_sure(event.type)

    def _strategy(self, event: Event) -> Strategy:
        """Return the strategy of an event's epoch, or the one in use if that one is removed."""
        return self._core.strategies.get(event.epoch, self._core.strategy)

    def _send(self, connections: set[Connection], event: Event) -> None:
        for connection in sorted(connections):
            self._core.send(connection, event)
