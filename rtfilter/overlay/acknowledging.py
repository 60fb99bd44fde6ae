"""Acknowledgements of events: a broker acknowledges an event when all receivers have acknowledged it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rtfilter.overlay.broker_names import Connection, ConnectionKind, EventId, member
from rtfilter.overlay.core import Core
from rtfilter.overlay.routing_messages import Acknowledge, Event

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
    rising : bool
        True if it was sent on towards the rendezvous.
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
            self._give(key, passed)
        return False

    def note(
        self, event: Event, source: Connection, awaits: Iterable[Connection], sure: bool, rising: bool
    ) -> None:
        """Record an event that was sent to some connections, rising or not."""
        key = event.id, event.attempt, event.rising
        if self._core.grace is None:
            self._passed[key] = None
        else:
            early = self._early.pop((event.id, event.attempt, rising), set())
            if not self._core.at.leads:
                early = set()
            passed = self._passed[key] = _Passed(
                set(awaits) - early, source, sure, rising, self._core.at.leads
            )
            self._give(key, passed)
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
                self._give(key, passed)
        if not found and message.own:  # the source received the multicast before this broker
            self._early.setdefault((message.id, message.attempt, message.rising), set()).add(source)
            if len(self._early) > EARLY:
                del self._early[next(iter(self._early))]

    def waiting(self, event: Event) -> list[_Passed]:
        """Return the records of an attempt of an event for which clients of this broker wait."""
        found = (self._passed.get((event.id, event.attempt, rising)) for rising in (False, True))
        return [one for one in found if one and any(to.kind is ConnectionKind.CLIENT for to in one.sources)]

    def _give(self, key: Key, passed: _Passed) -> None:
        if passed.awaits or not passed.sure:
            return
        core = self._core
        for source in passed.sources:
            # The designated broker answers for the whole cluster, even if a member sent the multicast of the
            # event.
            fellow = source.kind is ConnectionKind.MEMBER and not core.at.leads
            to = member(core.at.designated) if fellow else source
            if to.kind is ConnectionKind.CLIENT or core.knows(to):
                core.send(
                    to, Acknowledge(key[0], key[1], key[2] and to.kind is not ConnectionKind.CLIENT, fellow)
                )
        passed.sources = []
