"""Cluster multicasts that arrive whole, once and in order, by numbers and requests for missing ones.

A multicast on a local network is lost, doubled or late at times. Its sender numbers it; a receiver that sees
a later number, also in a heartbeat, requests the missing ones from the sender, by unicast. The sender
keeps its last multicasts. If it no longer has one, the receiver gets `GivenUp`, and its router fetches the
whole replica.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Any

from rtfilter.overlay.broker_names import BrokerMessage, Whole
from rtfilter.overlay.membership.contacts import (
    TO_CLUSTER,
    Contact,
    Dispatch,
    MembershipMessage,
    MembershipSettings,
    to_broker,
    to_router,
)
from rtfilter.overlay.membership.election import Member

AT_ONCE = 64
"""The most multicasts that a receiver asks for at once."""
STREAMS = 1000
"""Most senders that a receiver remembers; it removes the sender that was silent for longest."""


class Numbered(MembershipMessage, frozen=True):
    """A multicast, with its number."""

    sender: str
    incarnation: Whole
    number: Whole
    body: Any
    """The message of the multicast. Over a wire it arrives as a dict, to be converted by its tag."""


class Lacking(MembershipMessage, frozen=True):
    """A receiver's request to send multicasts again."""

    contact: Contact
    """The receiver that asks."""
    incarnation: Whole
    """Incarnation of the sender."""
    first: Whole
    last: Whole


class GivenUp(MembershipMessage, frozen=True):
    """A sender's answer that it no longer has requested multicasts."""

    sender: str
    incarnation: Whole
    kept: Whole
    """The first number that it still has."""


class Missed(BrokerMessage, frozen=True):
    """To the router: multicasts of a member are lost; fetch the state that they changed."""

    sender: str


class _Stream:
    """The multicasts that a receiver has from a single sender."""

    def __init__(self, incarnation: int, number: int) -> None:
        self.incarnation = incarnation
        self.number = number  # the last one handed up
        self.last = number  # the last one known to exist
        self.held: dict[int, BrokerMessage] = {}  # after a gap
        self.contact: Contact | None = None
        self.ask_at = inf


class Multicast:
    """The multicasts of one broker, and those that it receives."""

    def __init__(self, contact: Contact, settings: MembershipSettings, incarnation: int = 1) -> None:
        self.number = 0
        """Number of the last multicast sent."""
        self._contact = contact
        self._settings = settings
        self._incarnation = incarnation
        self._sent: deque[Numbered] = deque(maxlen=settings.repairs)
        self._streams: dict[str, _Stream] = {}

    @property
    def due(self) -> float:
        """The time at which `tick` next has something to do."""
        return min((stream.ask_at for stream in self._streams.values()), default=inf)

    def send(self, message: BrokerMessage) -> list[Dispatch]:
        """Number a message for all others of the cluster, store it, and return it for sending."""
        self.number += 1
        numbered = Numbered(self._contact.name, self._incarnation, self.number, message)
        self._sent.append(numbered)
        return [Dispatch(TO_CLUSTER, numbered)]

    def receive(self, message: Numbered | Lacking | GivenUp, now: float) -> list[Dispatch]:
        """Process a multicast, or a message about one; the next ones in order go `to_router`."""
        if isinstance(message, Lacking):
            return self._again(message)
        if isinstance(message, GivenUp):
            return self._given_up(message, now)
        if message.sender == self._contact.name:
            return []
        stream, sends = self._stream(message.sender, message.incarnation, message.number - 1)
        if message.incarnation != stream.incarnation or message.number <= stream.number:
            return sends
        stream.last = max(stream.last, message.number)
        if len(stream.held) < self._settings.repairs or message.number == stream.number + 1:
            stream.held[message.number] = message.body
        return sends + self._hand_up(message.sender, stream, now)

    def note_number(self, member: Member, now: float) -> list[Dispatch]:
        """Learn from a heartbeat or registration the number of a member's last multicast."""
        name = member.contact.name
        if name == self._contact.name:
            return []
        stream, sends = self._stream(name, member.incarnation, member.number)
        if member.incarnation != stream.incarnation:
            return sends
        stream.contact = member.contact
        stream.last = max(stream.last, member.number)
        return sends + self._hand_up(name, stream, now)

    def left(self, name: str) -> list[Dispatch]:
        """Deliver what there is from a member that has left; nothing missing will come."""
        stream = self._streams.get(name)
        return self._flush(name, stream, stream.last) if stream else []

    def tick(self, now: float) -> list[Dispatch]:
        """Request missing multicasts, when it is due."""
        sends = []
        for stream in self._streams.values():
            if now >= stream.ask_at:
                stream.ask_at = now + self._settings.answer
                if stream.contact:
                    first = stream.number + 1
                    before = min(stream.held, default=stream.last + 1) - 1
                    lacking = Lacking(
                        self._contact, stream.incarnation, first, min(before, stream.number + AT_ONCE)
                    )
                    sends.append(Dispatch(to_broker(stream.contact), lacking))
        return sends

    def _stream(self, sender: str, incarnation: int, number: int) -> tuple[_Stream, list[Dispatch]]:
        """Return the stream of a sender; make one after `number`, or after 0 for a new incarnation."""
        stream = self._streams.pop(sender, None)
        sends: list[Dispatch] = []
        if stream is None:
            stream = self._streams[sender] = _Stream(incarnation, number)
            if number:
                sends.append(Dispatch(to_router(sender), Missed(sender)))
            if len(self._streams) > STREAMS:
                del self._streams[next(iter(self._streams))]
        elif incarnation > stream.incarnation:
            sends += self._flush(sender, stream, stream.last)
            contact, stream = stream.contact, _Stream(incarnation, 0)
            stream.contact = contact
        self._streams[sender] = stream  # now the most recent one
        return stream, sends

    def _hand_up(self, sender: str, stream: _Stream, now: float) -> list[Dispatch]:
        sends = []
        while (body := stream.held.pop(stream.number + 1, None)) is not None:
            stream.number += 1
            sends.append(Dispatch(to_router(sender), body))
        if stream.number == stream.last:
            stream.ask_at = inf
        elif sends or stream.ask_at == inf:
            # a little later: it may only have been overtaken
            stream.ask_at = now + self._settings.answer / 4
        return sends

    def _flush(self, sender: str, stream: _Stream, last: int) -> list[Dispatch]:
        """Deliver the multicasts up to a number, and `Missed` if some are missing."""
        if stream.number >= last:
            return []
        sends = [Dispatch(to_router(sender), Missed(sender))]
        sends += [
            Dispatch(to_router(sender), stream.held.pop(number))
            for number in sorted(stream.held)
            if number <= last
        ]
        stream.number = last
        stream.ask_at = inf
        return sends

    def _again(self, lacking: Lacking) -> list[Dispatch]:
        if lacking.incarnation != self._incarnation:
            return []
        to = to_broker(lacking.contact)
        kept = self._sent[0].number if self._sent else self.number + 1
        sends: list[Dispatch] = []
        if lacking.first < kept:
            sends.append(Dispatch(to, GivenUp(self._contact.name, self._incarnation, kept)))
        first, last = max(lacking.first, kept), min(lacking.last, self.number, lacking.first + AT_ONCE)
        return sends + [Dispatch(to, self._sent[number - kept]) for number in range(first, last + 1)]

    def _given_up(self, message: GivenUp, now: float) -> list[Dispatch]:
        stream = self._streams.get(message.sender)
        if stream is None or stream.incarnation != message.incarnation:
            return []
        stream.last = max(stream.last, message.kept - 1)
        sends = self._flush(message.sender, stream, message.kept - 1)
        return sends + self._hand_up(message.sender, stream, now)
