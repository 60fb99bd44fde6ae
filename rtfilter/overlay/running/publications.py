"""The unacknowledged publications of clients: stored, and sent again until they are acknowledged."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from rtfilter.basics.errors import RTFilterError
from rtfilter.events.schema import Schema
from rtfilter.events.spelling import unknown
from rtfilter.events.table import EventTable
from rtfilter.overlay.broker_machine import Broker, Out
from rtfilter.overlay.broker_names import EventId, Send, client
from rtfilter.overlay.forwarding import WaitReason
from rtfilter.overlay.routing_messages import Event
from rtfilter.overlay.running.broker_frames import MOST_BYTES, SPARE
from rtfilter.overlay.running.client_messages import (
    ClientPublish,
    EventArrived,
    Hint,
    Refused,
    Stored,
)
from rtfilter.store.broker_store import Change, Publication, Settled

SLOWER: Final = 2.0
"""Factor by which the time until the next repetition grows."""
REPEATS: Final = 100.0
"""Repetitions per second above which each waits longer: one takes some 0.3 ms."""
LONGEST: Final = 30.0
"""Most seconds of that longer wait, unless `ClientLimits.longest` is more."""
HINTS: Final = 20
"""Most hints for one client."""
HINTED: Final = 10_000
"""Most clients whose hints are remembered."""
UNKEPT: Final = (
    "this broker cannot store anything now, because its disk is full or its database absent; see its log; "
    "ask again later, or another broker"
)
"""The reason of a refusal when the broker cannot store anything."""
_log = logging.getLogger(__name__)


class ClientLimits(NamedTuple):
    """The limits of a broker for its clients: times in seconds, counts and sizes."""

    again: float = 2.0
    """Time until an unacknowledged publication is sent again, the first time."""
    longest: float = 10.0
    """The same, at most; `Publications` waits longer if very many wait."""
    linger: float = 30.0
    """Time that the subscriptions of a client stay after its connection, and within which a connected client
    must acknowledge some of its deliveries; otherwise it counts as gone."""
    unacknowledged: int = 10_000
    """Most unacknowledged publications of one client; others are refused."""
    deliveries: int = 10_000
    """Most pending deliveries of one client; others are not accepted, so their publishers send them again."""
    clients: int = 10_000
    """Most known clients; others are sent to another broker."""
    subscriptions: int = 100_000
    """Most subscriptions of one client."""
    bytes: int = 64 * 2**20
    """Most bytes of one client's subscriptions, of its unacknowledged publications, and of its pending
    deliveries: for each of the three."""
    event: int = MOST_BYTES - SPARE
    """Most bytes of an event, or of a condition; the same at all brokers of a network."""


def require_short(what: str, size: int, most: int) -> None:
    """Raise `ValueError` for text that is too long for a message between brokers."""
    if size > most:
        raise ValueError(f"{what} is {size:,} bytes long; at most {most:,}, see --message of the brokers")


class StoreRequest(NamedTuple):
    """A change that a client asks for: it is stored first, and then carried out, or else refused."""

    change: Change
    kept: Callable[[float], ClientWork]
    refused: Callable[[float], ClientWork]


class ClientWork(NamedTuple):
    """The work that a message or a tick causes."""

    changes: list[Change]
    """Changes to store at some time: a restart before that loses nothing."""
    out: list[Out]
    """Messages to send now."""
    asked: Sequence[StoreRequest] = ()
    """Requests to store, each before it is carried out."""


class Hints:
    """Hints for publishers: attributes that an event type does not have, and values of another type.

    Neither is an error, as in any filter: such an event is accepted. But it may reach none of its
    subscribers. A client gets each hint once, while it is remembered.
    """

    def __init__(self) -> None:
        self._told: dict[str, set[tuple[str, str, bool]]] = {}

    def of(
        self, client: str, type: str, schema: Schema, event: Mapping[str, Any], table: EventTable
    ) -> Iterator[str]:
        """Yield the hints for an event that its client has not had yet; `table` is the event as read."""
        inner = {name.partition(".")[0] for name in schema.names}
        for name in event:
            known = name in schema.attributes or name in inner
            if not known and self._is_new(client, type, name, False):
                hint = unknown(name, schema.names)
                yield f"{type}: {hint} (it is delivered, but no subscription can ask for it)"
        for one in table.odd:
            if not one.misspelt and self._is_new(client, type, one.name, True):
                yield f"{type}: {one}. It satisfies nothing but IS NOT NULL"

    def _is_new(self, client: str, *what: Any) -> bool:
        told = self._told.setdefault(client, set())
        if what in told or len(told) >= HINTS:
            return False
        told.add(what)
        if len(self._told) > HINTED:
            del self._told[next(iter(self._told))]
        return True


class _Pending:
    def __init__(
        self, kept: Publication, publish: ClientPublish, now: float, again_at: float, wait: float
    ) -> None:
        self.kept, self.publish, self.since = kept, publish, now
        self.again_at, self.wait, self.attempt = again_at, wait, 0


class Publications:
    """The unacknowledged publications of all clients of a broker; for `attempts` see `Clients`.

    Attributes
    ----------
    delays : list of float
        Seconds from each publication to its acknowledgement, until a reader removes them.
    resent : int
        Number of repetitions.
    """

    def __init__(self, broker: Broker, attempts: int, limits: ClientLimits) -> None:
        self._broker, self._attempts, self.limits = broker, attempts, limits
        self._pending: dict[EventId, _Pending] = {}
        self._storing: set[EventId] = set()
        self._counts: Counter[str] = Counter()  # by client, of both
        self._bytes: Counter[str] = Counter()
        self._started: float | None = None
        self._hints = Hints()
        self.delays: list[float] = []
        self.resent = 0

    def __len__(self) -> int:
        return len(self._pending)

    def restore(self, kept: Publication, now: float) -> None:
        """Restore a publication that an earlier incarnation has stored."""
        publish = ClientPublish(EventId(*kept[:3]), kept.type, msgspec.msgpack.decode(kept.event))
        self._count(kept, 1)
        self._pending[publish.id] = _Pending(kept, publish, now, now, self.limits.again)

    def ask(self, name: str, publish: ClientPublish) -> ClientWork:
        """Return a publication to be stored, the confirmation that it is stored, or its refusal."""
        id = publish.id
        if id in self._pending:
            return ClientWork([], [Send(client(name), Stored(id))])
        if id in self._storing:
            return ClientWork([], [])
        event = msgspec.msgpack.encode(publish.values)
        count, size = self._counts.get(name, 0), self._bytes.get(name, 0)
        if count >= self.limits.unacknowledged or size + len(event) > self.limits.bytes:
            reason = (
                f"{count:,} events of yours, {size:,} bytes, are not acknowledged yet; publish it again later"
            )
            return ClientWork([], [Send(client(name), Refused("", reason, id, later=True))])
        try:
            if id.origin != f"client {name}":  # otherwise it could be taken for another client's event
                raise ValueError(f"{name} cannot publish an event of {id.origin!r:.60}")
            require_short("the event", len(event), self.limits.event)
            table = self._broker.router.require_event(publish.type, publish.values)
        except (RTFilterError, ValueError) as error:
            return ClientWork([], [Send(client(name), Refused("", str(error), id))])
        self._storing.add(id)
        kept = Publication(*id, name, publish.type, event)
        self._count(kept, 1)
        schema = self._broker.router.table.schema(publish.type)
        hints = self._hints.of(name, publish.type, schema, publish.values, table)
        request = StoreRequest(
            kept, partial(self._stored, publish, kept), partial(self._not_stored, publish, kept)
        )
        return ClientWork([], [Send(client(name), Hint(hint)) for hint in hints], [request])

    def _stored(self, publish: ClientPublish, kept: Publication, now: float) -> ClientWork:
        work, id, again = ClientWork([], []), publish.id, self.limits.again
        self._storing.discard(id)
        pending = self._pending[id] = _Pending(kept, publish, now, now + again, SLOWER * again)
        self._try(pending, 1, work, now)
        work.out.append(Send(client(kept.client), Stored(id)))
        return work

    def _not_stored(self, publish: ClientPublish, kept: Publication, now: float) -> ClientWork:
        self._storing.discard(publish.id)
        self._count(kept, -1)
        return ClientWork([], [Send(client(kept.client), Refused("", UNKEPT, publish.id, later=True))])

    def holds(self, name: str, id: EventId, now: float) -> list[WaitReason]:
        """Return the reasons why an event of a client waits in the network."""
        pending = self._pending.get(id)
        if pending is None or pending.kept.client != name:
            return []
        event = Event(id, pending.publish.type, pending.publish.values, pending.attempt)
        return self._broker.router.wait_reasons(event, pending.since, now)

    def tick(self, now: float, work: ClientWork) -> None:
        """Repeat due publications."""
        self._started = now if self._started is None else self._started
        longest = max(self.limits.longest, min(len(self._pending) / REPEATS, LONGEST))
        for pending in list(self._pending.values()):
            if now >= pending.again_at:
                pending.again_at = now + pending.wait
                pending.wait = min(SLOWER * pending.wait, longest)
                attempt = self._attempts + int(1000 * (now - self._started)) + 2
                self.resent += 1
                self._try(pending, attempt, work, now)

    def acknowledged(self, id: EventId, now: float, work: ClientWork) -> None:
        """Remove a publication that all receivers have, and report it to its client."""
        pending = self._pending.pop(id, None)
        if pending is not None:
            self._count(pending.kept, -1)
            self.delays.append(now - pending.since)
            work.changes.append(Settled(*id))
            work.out.append(Send(client(pending.kept.client), EventArrived(id)))

    def _try(self, pending: _Pending, attempt: int, work: ClientWork, now: float) -> None:
        """Publish a stored event. After an error of this broker, a later attempt follows."""
        one, name, pending.attempt = pending.publish, pending.kept.client, attempt
        try:
            require_short("it", len(pending.kept.event), self.limits.event)
            work.out.extend(self._broker.publish(name, one.type, one.values, now, one.id, attempt))
        except (RTFilterError, ValueError) as error:  # it was stored under other event types, or limits
            del self._pending[one.id]
            self._count(pending.kept, -1)
            _log.warning("an event of %s is dropped, and was not acknowledged: %s", name, error)
            work.changes.append(Settled(*one.id))
            work.out.append(Send(client(name), Refused("", str(error), one.id)))
        except Exception:
            _log.exception("an event of %s could not be sent, and is tried again", name)

    def _count(self, kept: Publication, change: int) -> None:
        """Add a publication to the counts of its client, or with -1 remove it."""
        name = kept.client
        self._counts[name] += change
        self._bytes[name] += change * len(kept.event)
        if not self._counts[name]:
            del self._counts[name], self._bytes[name]
