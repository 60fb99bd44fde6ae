"""The clients of a broker: what they want, what they have published, and what they do not have yet.

A machine around `Broker`: messages and ticks in; messages out, and what is to be kept.
What clients ask is kept first and done then: where it cannot be kept, nothing has followed from it.
It sends a publication again, under the same id, until it is acknowledged. An acknowledgement of the broker is
held until all clients have the event to whom it was delivered, so publishers know that it has arrived.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from rtfilter.errors import RTFilterError
from rtfilter.overlay.broker import Broker, Out
from rtfilter.overlay.names import EventId, SubscriptionId, client
from rtfilter.overlay.routing_messages import Acknowledge, Confirm, Notify
from rtfilter.overlay.running.client_messages import (
    Arrived,
    Deliver,
    Drop,
    Have,
    Publish,
    Refused,
    Stored,
    Want,
    Wanted,
)
from rtfilter.overlay.running.links import OWN_ERROR, Goodbye
from rtfilter.overlay.sending import Message, Send
from rtfilter.store.brokers import Change, Gone, Publication, Settled, Subscription

SLOWER: Final = 2.0
"""By which the time until a publication is sent again grows each time."""


UNKEPT: Final = (
    "this broker cannot keep anything now: its disk is full, or its database away, as its log says; "
    "ask again later, or another broker"
)
"""Why something is refused."""
KEY: Final = 200
"""Most characters of the key of a subscription: a database has it in an index."""
UNTAKEN: Final = 10_000
"""Most events that are remembered as not taken: what is asked about is among the last."""
_log = logging.getLogger(__name__)


class Patience(NamedTuple):
    """How long a broker waits for its clients, and for others on their behalf.

    Attributes
    ----------
    again, longest : float
        Seconds until a publication that is not acknowledged is sent again: the first time, and at most.
    linger : float
        Seconds that the subscriptions of a client stay after its connection, and that one who is connected
        has to acknowledge something of what is delivered: it is taken for gone then.
    unacknowledged : int
        Most publications of one client that are not acknowledged; others are refused.
    deliveries : int
        Most that one client does not have yet; others are not taken, so their publishers send them again.
    clients : int
        Most that are known; others are told to go to another broker.
    subscriptions : int
        Most of one client.
    bytes : int
        Most of one client's subscriptions, of its publications that are not acknowledged, and of deliveries
        that it does not have yet: of each.
    """

    again: float = 2.0
    longest: float = 30.0
    linger: float = 30.0
    unacknowledged: int = 10_000
    deliveries: int = 10_000
    clients: int = 10_000
    subscriptions: int = 100_000
    bytes: int = 64 * 2**20


class Asked(NamedTuple):
    """What a client asks that must be kept first: then `Clients.kept` does it, or `Clients.refused` does not.

    Attributes
    ----------
    client : str
    message : Want, Drop or Publish
    change : Change
        What is to be kept.
    """

    client: str
    message: Want | Drop | Publish
    change: Change


class Work(NamedTuple):
    """What follows from a message or a tick.

    Attributes
    ----------
    changes : list of Change
        To be kept at some time: a restart before that loses nothing.
    out : list of Out
        To be sent now.
    asked : sequence of Asked
        To be kept, each in its turn.
    """

    changes: list[Change]
    out: list[Out]
    asked: Sequence[Asked] = ()


class _Wish:
    """A subscription of a client."""

    def __init__(self, want: Want, id: SubscriptionId) -> None:
        self.want, self.id, self.confirmed = want, id, False


class _Client:
    def __init__(self) -> None:
        self.wishes: dict[str, _Wish] = {}
        self.gone_at: float | None = None  # None while it is connected
        self.took_at = 0.0  # when it has last taken something, or begun to miss something
        self.asked = 0  # changes of what it wants that are being kept
        self.bytes = 0  # of what it wants, and asks
        self.missing_bytes = 0
        self.missing: dict[EventId, Deliver] = {}
        self.has: dict[EventId, None] = {}  # of late


class _Pending:
    """A publication that is not acknowledged."""

    def __init__(self, kept: Publication, publish: Publish, now: float, again_at: float, wait: float) -> None:
        self.client, self.publish, self.since = kept.client, publish, now
        self.kept = kept
        self.again_at, self.wait = again_at, wait


class Clients:
    """All clients of a broker.

    Parameters
    ----------
    broker : Broker
    attempts : int
        From which attempts to send again are counted, one for each millisecond: the time since 1970, so that
        no other broker, and no later incarnation, takes the same number for the same event.
    patience : Patience

    Attributes
    ----------
    delays : list of float
        Seconds from each publication to its acknowledgement, until somebody takes them out.
    resent : int
        How often publications were sent again.
    """

    def __init__(self, broker: Broker, attempts: int, patience: Patience | None = None) -> None:
        self.broker, self.patience = broker, patience or Patience()
        self._attempts = attempts
        self._clients: dict[str, _Client] = {}
        self._owners: dict[SubscriptionId, tuple[str, str]] = {}
        self._pending: dict[EventId, _Pending] = {}
        self._storing: set[EventId] = set()
        self._unacknowledged: Counter[str] = Counter()
        self._unacknowledged_bytes: Counter[str] = Counter()
        self._started: float | None = None
        self._awaited: Counter[EventId] = Counter()  # by how many clients that do not have it
        self._sizes: dict[EventId, int] = {}  # of those
        self._held: dict[EventId, list[Out]] = {}  # acknowledgements
        self._untaken: dict[EventId, None] = {}  # there was no room
        self.delays: list[float] = []
        self.resent = 0

    # -- coming and going ----------------------------------------------------------------------------

    def restore(
        self, subscriptions: Iterable[Subscription], publications: Iterable[Publication], now: float
    ) -> Work:
        """Go on with what an earlier incarnation has kept."""
        work = Work([], [])
        for one in subscriptions:
            found, want = self._client(one.client), Want(one.key, one.type, one.predicate)
            found.gone_at = now
            found.bytes += _size(want)
            self._want(one.client, want, work, now)
        for kept in publications:
            publish = Publish(EventId(*kept[:3]), kept.type, msgspec.msgpack.decode(kept.event))
            self._counts(kept.client, kept)
            self._pending[publish.id] = _Pending(kept, publish, now, now, self.patience.again)
        return work

    def has_room(self, name: str) -> bool:
        """Whether a client may join."""
        return name in self._clients or len(self._clients) < self.patience.clients

    def joined(self, name: str, now: float) -> Work:
        """A client is connected: send what it does not have."""
        found = self._client(name)
        found.gone_at = None
        return Work([], [Send(client(name), one) for one in found.missing.values()])

    def left(self, name: str, now: float) -> None:
        """A client is no longer connected."""
        if name in self._clients:
            self._clients[name].gone_at = now

    # -- what they say -------------------------------------------------------------------------------

    def hear(self, name: str, message: Message, now: float) -> Work:
        """Take a message of a client. Raises `ValueError` where no client would say it."""
        work = Work([], [])
        match message:
            case Want(key=key) | Drop(key=key):
                return self._asks(name, message, key)
            case Publish():
                return self._publishes(name, message)
            case Have(id=id):
                self._client(name).took_at = now
                self._has(self._client(name), id, work)
            case _:
                raise ValueError(f"no client says {type(message).__name__}")
        return work

    def kept(self, asked: Asked, now: float) -> Work:
        """Do what a client has asked, now that it is kept."""
        work, (name, message, change) = Work([], []), asked
        if not isinstance(message, Publish):
            self._client(name).asked -= 1
        match message:
            case Want():
                self._want(name, message, work, now)
            case Drop(key=key):
                self._drop(name, key, work, now)
            case Publish(id=id):
                self._storing.discard(id)
                again = self.patience.again
                assert isinstance(change, Publication)
                pending = self._pending[id] = _Pending(change, message, now, now + again, SLOWER * again)
                self._try(pending, 1, work, now)
                work.out.append(Send(client(name), Stored(id)))
        return work

    def refused(self, asked: Asked, now: float) -> Work:
        """Refuse what a client has asked, since it cannot be kept. What it no longer wants it never gets."""
        work, (name, message, change) = Work([], []), asked
        if not isinstance(message, Publish):
            self._client(name).asked -= 1
        match message:
            case Want(key=key):
                self._client(name).bytes -= _size(message)
                work.out.append(Send(client(name), Refused(key, UNKEPT, later=True)))
            case Drop(key=key):
                work.changes.append(Gone(name, key))
                self._drop(name, key, work, now)
            case Publish(id=id):
                self._storing.discard(id)
                assert isinstance(change, Publication)
                self._counts_no_more(change)
                work.out.append(Send(client(name), Refused("", UNKEPT, id, later=True)))
        return work

    def tick(self, now: float) -> Work:
        """Do what is due."""
        work = Work([], [])
        self._started = now if self._started is None else self._started
        for pending in list(self._pending.values()):
            if now >= pending.again_at:
                pending.again_at = now + pending.wait
                pending.wait = min(SLOWER * pending.wait, self.patience.longest)
                attempt = self._attempts + int(1000 * (now - self._started)) + 2
                self.resent += 1
                self._try(pending, attempt, work, now)
        for name, found in list(self._clients.items()):
            idle_since = found.took_at if found.missing and found.gone_at is None else found.gone_at
            if idle_since is not None and not found.asked and now >= idle_since + self.patience.linger:
                if found.gone_at is None:
                    why = f"you have taken nothing for {self.patience.linger:g} seconds"
                    work.out.append(Send(client(name), Goodbye(why)))
                for key in list(found.wishes):
                    work.changes.append(Gone(name, key))
                    self._drop(name, key, work, now)
                for id in list(found.missing):
                    self._needs_no_more(found, id, work)
                del self._clients[name]
        return work

    # -- what the broker says ------------------------------------------------------------------------

    def passed(self, work: Work, now: float) -> Work:
        """Put what the broker says to clients into their own words; all else stays as it is."""
        out: list[Out] = []
        for one in work.out:
            out.extend(self._one(one, work.changes, now))
        return Work(work.changes, out, work.asked)

    def _one(self, one: Out, changes: list[Change], now: float) -> list[Out]:
        if isinstance(one.message, Acknowledge):
            id = one.message.id
            if id in self._untaken:
                return []
            if id in self._awaited:
                self._held.setdefault(id, []).append(one)
                return []
        return self._told(one.to.name, one.message, changes, now) if isinstance(one, Send) else [one]

    def _told(self, name: str, message: Message, changes: list[Change], now: float) -> list[Out]:
        match message:
            case Notify():
                return self._notify(name, message, now)
            case Confirm(id=id):
                owner, key = self._owners.get(id, ("", ""))
                if not owner:
                    return []
                self._clients[owner].wishes[key].confirmed = True
                return [Send(client(owner), Wanted(key))]
            case Acknowledge(id=event):
                pending = self._pending.pop(event, None)
                if pending is None:
                    return []
                self._counts_no_more(pending.kept)
                self.delays.append(now - pending.since)
                changes.append(Settled(*event))
                return [Send(client(pending.client), Arrived(event))]
        return [Send(client(name), message)]

    def _notify(self, name: str, notify: Notify, now: float) -> list[Out]:
        found = self._clients.get(name)
        if found is None or notify.id in found.missing or notify.id in found.has:
            return []
        size = self._sizes.get(notify.id) or len(msgspec.msgpack.encode(notify.values))
        full = found.missing_bytes + size > self.patience.bytes and found.missing
        if full or len(found.missing) >= self.patience.deliveries:
            self._untaken[notify.id] = None
            if len(self._untaken) > UNTAKEN:
                del self._untaken[next(iter(self._untaken))]
            return []
        self._untaken.pop(notify.id, None)
        if not found.missing:
            found.took_at = now
        self._awaited[notify.id] += 1
        self._sizes[notify.id] = size
        found.missing_bytes += size
        keys = tuple(self._owners[id][1] for id in notify.subscriptions if id in self._owners)
        deliver = found.missing[notify.id] = Deliver(notify.id, notify.type, notify.values, keys)
        return [] if found.gone_at is not None else [Send(client(name), deliver)]

    # ------------------------------------------------------------------------------------------------

    def _client(self, name: str) -> _Client:
        return self._clients.setdefault(name, _Client())

    def _asks(self, name: str, message: Want | Drop, key: str) -> Work:
        """Have a change of what a client wants kept, unless nobody could want it."""
        change: Change
        found = self._client(name)
        if isinstance(message, Want):
            former = found.wishes.get(key)
            if former is not None and former.want == message and not found.asked:
                return Work([], [Send(client(name), Wanted(key))] if former.confirmed else [])
            try:
                self._require_room(found, message)
                _require_keepable(key, message.condition)
                self.broker.router.require_condition(message.type, message.condition)
            except (RTFilterError, ValueError) as error:
                return Work([], [Send(client(name), Refused(key, str(error)))])
            found.bytes += _size(message)
            change = Subscription(name, key, message.type, message.condition)
        else:
            change = Gone(name, key)
        found.asked += 1
        return Work([], [], [Asked(name, message, change)])

    def _require_room(self, found: _Client, want: Want) -> None:
        former = found.wishes.get(want.key)
        count = len(found.wishes) + found.asked - (former is not None)
        if count >= self.patience.subscriptions:
            raise ValueError(f"you have {count:,} subscriptions, as many as a client may; end some of them")
        size = found.bytes + _size(want) - (0 if former is None else _size(former.want))
        if size > self.patience.bytes:
            most = self.patience.bytes
            raise ValueError(
                f"your subscriptions would be {size:,} bytes long, and may be {most:,}; end some"
            )

    def _want(self, name: str, want: Want, work: Work, now: float) -> None:
        found = self._client(name)
        former = found.wishes.get(want.key)
        if former is not None and former.want == want:
            found.bytes -= _size(want)
            if former.confirmed:
                work.out.append(Send(client(name), Wanted(want.key)))
            return
        try:
            id, out = self.broker.subscribe(name, want.type, want.condition, now)
        except (RTFilterError, ValueError) as error:  # kept under other event types
            found.bytes -= _size(want)
            work.out.append(Send(client(name), Refused(want.key, str(error))))
            return
        except Exception:  # each start would end by it
            _log.exception("a subscription of %s is refused: %s", name, want)
            found.bytes -= _size(want)
            work.out.append(Send(client(name), Refused(want.key, OWN_ERROR)))
            return
        if former is not None:
            self._drop(name, want.key, work, now)
        found.wishes[want.key] = _Wish(want, id)
        self._owners[id] = name, want.key
        work.out.extend(out)

    def _drop(self, name: str, key: str, work: Work, now: float) -> None:
        found = self._client(name)
        wish = found.wishes.pop(key, None)
        if wish is not None:
            found.bytes -= _size(wish.want)
            del self._owners[wish.id]
            work.out.extend(self.broker.unsubscribe(wish.id, now))

    def _publishes(self, name: str, publish: Publish) -> Work:
        """Have a publication stored, unless it is, or nobody could publish it."""
        id = publish.id
        if id in self._pending:
            return Work([], [Send(client(name), Stored(id))])
        if id in self._storing:
            return Work([], [])
        event = msgspec.msgpack.encode(publish.values)
        waiting = self._unacknowledged.get(name, 0), self._unacknowledged_bytes.get(name, 0)
        if waiting[0] >= self.patience.unacknowledged or waiting[1] + len(event) > self.patience.bytes:
            reason = "{:,} events of yours, {:,} bytes, are not acknowledged yet; publish it again later"
            return Work([], [Send(client(name), Refused("", reason.format(*waiting), id, later=True))])
        try:
            if id.origin != f"client {name}":  # else its own event of that id would be taken for known
                raise ValueError(f"{name} cannot publish an event of {id.origin!r:.60}")
            self.broker.router.require_event(publish.type, publish.values)
        except (RTFilterError, ValueError) as error:
            return Work([], [Send(client(name), Refused("", str(error), id))])
        self._storing.add(id)
        kept = Publication(*id, name, publish.type, event)
        self._counts(name, kept)
        return Work([], [], [Asked(name, publish, kept)])

    def _try(self, pending: _Pending, attempt: int, work: Work, now: float) -> None:
        """Publish what is stored. After an error of this broker it is tried again as if nobody had it."""
        one = pending.publish
        try:
            work.out.extend(self.broker.publish(pending.client, one.type, one.values, now, one.id, attempt))
        except (RTFilterError, ValueError) as error:  # stored under other event types
            self._give_up(one.id, str(error), work)
        except Exception:
            _log.exception("an event of %s could not be sent, and is tried again", pending.client)

    def _counts(self, name: str, kept: Publication) -> None:
        self._unacknowledged[name] += 1
        self._unacknowledged_bytes[name] += len(kept.event)

    def _counts_no_more(self, kept: Publication) -> None:
        name = kept.client
        self._unacknowledged[name] -= 1
        self._unacknowledged_bytes[name] -= len(kept.event)
        if not self._unacknowledged[name]:
            del self._unacknowledged[name], self._unacknowledged_bytes[name]

    def _give_up(self, id: EventId, reason: str, work: Work) -> None:
        pending = self._pending.pop(id)
        self._counts_no_more(pending.kept)
        _log.warning("an event of %s is dropped, and was not acknowledged: %s", pending.client, reason)
        work.changes.append(Settled(*id))
        work.out.append(Send(client(pending.client), Refused("", reason, id)))

    def _has(self, found: _Client, id: EventId, work: Work) -> None:
        self._needs_no_more(found, id, work)
        found.has[id] = None
        if len(found.has) > self.patience.deliveries:
            del found.has[next(iter(found.has))]

    def _needs_no_more(self, found: _Client, id: EventId, work: Work) -> None:
        """A client has a delivery, or is gone for good: give acknowledgements that waited for it."""
        if found.missing.pop(id, None) is None:
            return
        found.missing_bytes -= self._sizes[id]
        self._awaited[id] -= 1
        if not self._awaited[id]:
            del self._awaited[id], self._sizes[id]
            work.out.extend(self._held.pop(id, ()))

    def stats(self) -> dict[str, Any]:
        """How many there are, and what waits."""
        return {
            "clients": sum(one.gone_at is None for one in self._clients.values()),
            "subscriptions": len(self._owners),
            "unacknowledged": len(self._pending),
            "undelivered": sum(len(one.missing) for one in self._clients.values()),
            "held": len(self._held),
            "resent": self.resent,
        }


def _require_keepable(*texts: str) -> None:
    """Refuse what PostgreSQL takes in no text, or, of the first, in no index."""
    if len(texts[0]) > KEY:
        raise ValueError(f"the key of a subscription has at most {KEY} characters")
    if any("\0" in text for text in texts):
        raise ValueError("a text has the character 0, which no database keeps; leave it out")


def _size(want: Want) -> int:
    return len((want.key + want.condition).encode())
