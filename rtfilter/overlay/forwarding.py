"""The forwarding of events."""

from __future__ import annotations

import msgspec

from rtfilter.overlay.acknowledging import Acknowledging
from rtfilter.overlay.broker_names import CLUSTER, Connection, ConnectionKind, link
from rtfilter.overlay.core import Core
from rtfilter.overlay.routing_messages import Event, Notify
from rtfilter.overlay.strategies.strategy import Strategy
from rtfilter.overlay.uncertainty import LOST, Uncertainty


class Forwarding:
    """Sends each attempt of an event on once: to all matching connections, and to those of the strategy."""

    def __init__(self, core: Core, uncertainty: Uncertainty, acknowledging: Acknowledging) -> None:
        self._core, self._uncertainty, self._acknowledging = core, uncertainty, acknowledging

    def take(self, event: Event, source: Connection) -> None:
        """Process an event of a client or a neighbour."""
        if self._acknowledging.is_new(event, source):
            if source.kind is ConnectionKind.CLIENT:
                self._core.note(events=1)
            if event.rising:
                self._rise(event, source)
            else:
                awaits, sure = self._spread(event, source)
                self._acknowledging.note(event, source, awaits, sure, False)

    def _rise(self, event: Event, source: Connection) -> None:
        """Send an event towards the rendezvous, or from there back to all matching connections."""
        core, note = self._core, self._acknowledging.note
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
        matched = core.table.match(event.type, event.values)
        for connection, ids in matched.items():
            if connection.kind is ConnectionKind.CLIENT:
                core.send(connection, Notify(event.id, event.type, event.values, tuple(ids)))
        came_from = None if source is None else source.kind
        strategy = self._strategy(event)
        if (core.at.leads or not strategy.shared) and any(
            one.kind is not ConnectionKind.LINK for one in matched
        ):
            core.note(served=1)
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
        return links | fellows, LOST not in matched and self._uncertainty.is_sure(event.type)

    def _strategy(self, event: Event) -> Strategy:
        """Return the strategy of an event's epoch, or the one in use if that one is removed."""
        return self._core.strategies.get(event.epoch, self._core.strategy)

    def _send(self, connections: set[Connection], event: Event) -> None:
        for connection in sorted(connections):
            self._core.send(connection, event)
