"""The unacknowledged publications of clients: stored, and sent again until they are acknowledged."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

import msgspec

from rtfilter.errors import RTFilterError
from rtfilter.overlay.broker_machine import Broker
from rtfilter.overlay.broker_names import EventId, Send, client
from rtfilter.overlay.forwarding import WaitReason
from rtfilter.overlay.routing_messages import Event
from rtfilter.overlay.running.client_messages import ClientPublish, EventArrived, Hint, Refused, Stored
from rtfilter.overlay.running.client_work import UNKEPT, ClientLimits, ClientWork, StoreRequest, require_short
from rtfilter.overlay.running.hints import Hints
from rtfilter.store.broker_store import Publication, Settled

SLOWER: Final = 2.0
"""Factor by which the time until the next repetition grows."""
REPEATS: Final = 100.0
"""Repetitions per second above which each waits longer: one takes some 0.3 ms."""
LONGEST: Final = 30.0
"""Most seconds of that longer wait, unless `ClientLimits.longest` is more."""
_log = logging.getLogger(__name__)


class _Pending:
    """An unacknowledged publication."""

    def __init__(
        self, kept: Publication, publish: ClientPublish, now: float, again_at: float, wait: float
    ) -> None:
        self.kept, self.publish, self.since = kept, publish, now
        self.again_at, self.wait, self.attempt = again_at, wait, 0


class Publications:
    """The unacknowledged publications of all clients of a broker.

    Parameters
    ----------
    broker : Broker
    attempts : int
        See `Clients`.
    limits : ClientLimits

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
        self._count(kept)
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
        self._count(kept)
        schema = self._broker.router.table.schema(publish.type)
        hints = self._hints.of(name, publish.type, schema, publish.values, table)
        return ClientWork(
            [], [Send(client(name), Hint(hint)) for hint in hints], [StoreRequest(name, publish, kept)]
        )

    def kept(self, publish: ClientPublish, kept: Publication, now: float) -> ClientWork:
        """Send a publication that is stored now."""
        work, id, again = ClientWork([], []), publish.id, self.limits.again
        self._storing.discard(id)
        pending = self._pending[id] = _Pending(kept, publish, now, now + again, SLOWER * again)
        self._try(pending, 1, work, now)
        work.out.append(Send(client(kept.client), Stored(id)))
        return work

    def refused(self, publish: ClientPublish, kept: Publication) -> ClientWork:
        """Refuse a publication that cannot be stored."""
        self._storing.discard(publish.id)
        self._count_no_more(kept)
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
        for pending in list(self._pending.values()):
            if now >= pending.again_at:
                pending.again_at = now + pending.wait
                pending.wait = min(SLOWER * pending.wait, self._longest)
                attempt = self._attempts + int(1000 * (now - self._started)) + 2
                self.resent += 1
                self._try(pending, attempt, work, now)

    @property
    def _longest(self) -> float:
        """Most seconds between two repetitions: more if very many publications wait."""
        longest = self.limits.longest
        return max(longest, min(len(self._pending) / REPEATS, LONGEST))

    def acknowledged(self, id: EventId, now: float, work: ClientWork) -> None:
        """Remove a publication that all receivers have, and report it to its client."""
        pending = self._pending.pop(id, None)
        if pending is not None:
            self._count_no_more(pending.kept)
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
            self._count_no_more(pending.kept)
            _log.warning("an event of %s is dropped, and was not acknowledged: %s", name, error)
            work.changes.append(Settled(*one.id))
            work.out.append(Send(client(name), Refused("", str(error), one.id)))
        except Exception:
            _log.exception("an event of %s could not be sent, and is tried again", name)

    def _count(self, kept: Publication) -> None:
        self._counts[kept.client] += 1
        self._bytes[kept.client] += len(kept.event)

    def _count_no_more(self, kept: Publication) -> None:
        name = kept.client
        self._counts[name] -= 1
        self._bytes[name] -= len(kept.event)
        if not self._counts[name]:
            del self._counts[name], self._bytes[name]
