"""The clients of a broker: their subscriptions, their publications, and their pending deliveries.

A machine around `Broker`: messages and ticks go in; messages and changes to store come out. A client's
request is stored first and carried out then: if it cannot be stored, it has no effect. The broker sends a
publication again, under the same id, until it is acknowledged. It holds back an acknowledgement until all
clients have acknowledged their deliveries of the event, so publishers know that it has arrived.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

import msgspec

from rtfilter.basics.errors import RTFilterError
from rtfilter.overlay.broker_machine import Broker, Out
from rtfilter.overlay.broker_names import BrokerMessage, EventId, Send, SubscriptionId, client
from rtfilter.overlay.forwarding import WaitReason
from rtfilter.overlay.routing_messages import Acknowledge, Confirm, Notify
from rtfilter.overlay.running.client_messages import (
    Ask,
    AskSchema,
    ClientDeliver,
    ClientPublish,
    Drop,
    Goodbye,
    HasSchema,
    Have,
    Leave,
    Refused,
    Waits,
    Want,
    Wanted,
)
from rtfilter.overlay.running.links import OWN_ERROR
from rtfilter.overlay.running.publications import (
    UNKEPT,
    ClientLimits,
    ClientWork,
    Publications,
    StoreRequest,
    require_short,
)
from rtfilter.store.broker_store import Change, ClientSubscription, Gone, Publication

KEY: Final = 200
"""Most characters of the key of a subscription, because a database has it in an index."""
HOLDS: Final = 5
"""Most reasons why an event waits in an answer to a client."""
UNTAKEN: Final = 10_000
"""Most events without room at a client to remember: questions are about recent events."""
_log = logging.getLogger(__name__)


@dataclass
class _Wish:
    """A subscription of a client."""

    want: Want
    id: SubscriptionId
    program: int | None
    """The last program that asked for it."""
    confirmed: bool = False


class _Client:
    def __init__(self) -> None:
        self.wishes: dict[str, _Wish] = {}
        self.gone_at: float | None = None  # None while connected
        self.ends = False  # it has sent `Leave`
        self.program: int | None = None  # the incarnation of the program that connected last
        self.inherits_until = inf  # the end of subscriptions from an earlier program that are not repeated
        self.took_at = 0.0  # the last acknowledgement, or the begin of a wait for one
        self.asked = 0  # number of its changes that are being stored
        self.bytes = 0  # of its subscriptions and requests
        self.missing_bytes = 0
        self.missing: dict[EventId, ClientDeliver] = {}
        self.has: dict[EventId, None] = {}  # recent events that it has


class Clients:
    """All clients of a broker.

    `attempts` is the first number of attempts to send again, increased by one each millisecond: the time
    since 1970, so that no other broker, and no later incarnation, uses the same number for the same event.
    """

    def __init__(self, broker: Broker, attempts: int, limits: ClientLimits | None = None) -> None:
        self.broker, self.limits = broker, limits or ClientLimits()
        self.publications = Publications(broker, attempts, self.limits)
        self._clients: dict[str, _Client] = {}
        self._owners: dict[SubscriptionId, tuple[str, str]] = {}
        self._awaited: Counter[EventId] = Counter()  # number of clients that do not have it
        self._sizes: dict[EventId, int] = {}  # of these events
        self._held: dict[EventId, list[Out]] = {}  # acknowledgements that are held back
        self._untaken: dict[EventId, set[str]] = {}  # the clients without room

    # -- coming and going ----------------------------------------------------------------------------

    def restore(
        self, subscriptions: Iterable[ClientSubscription], publications: Iterable[Publication], now: float
    ) -> ClientWork:
        """Restore the state that an earlier incarnation has stored."""
        work = ClientWork([], [])
        for one in subscriptions:
            found, want = self._client(one.client), Want(one.key, one.type, one.predicate)
            found.gone_at = now
            found.bytes += _size(want)
            self._want(one.client, want, work, now)
        for kept in publications:
            self.publications.restore(kept, now)
        return work

    def has_room(self, name: str) -> bool:
        """Return whether a client may connect."""
        return name in self._clients or len(self._clients) < self.limits.clients

    def joined(self, name: str, program: int, now: float) -> ClientWork:
        """Note that a client has connected; return its pending deliveries. `program` is its incarnation."""
        found = self._client(name)
        found.gone_at, found.ends = None, False
        if found.program != program:
            found.program, found.inherits_until = program, now + self.limits.linger
        return ClientWork([], [Send(client(name), one) for one in found.missing.values()])

    def left(self, name: str, now: float) -> None:
        """Note that a client is no longer connected."""
        if name in self._clients:
            self._clients[name].gone_at = now

    # -- messages of clients -------------------------------------------------------------------------

    def hear(self, name: str, message: BrokerMessage, now: float) -> ClientWork:
        """Process a message of a client. Raises `ValueError` for a message that clients do not send."""
        work = ClientWork([], [])
        match message:
            case Want(key=key) | Drop(key=key):
                return self._asks(name, message, key)
            case ClientPublish():
                return self.publications.ask(name, message)
            case Have(id=id):
                self._client(name).took_at = now
                self._has(self._client(name), id, work)
            case Ask(id=id):
                work.out.append(Send(client(name), Waits(id, self._holds(name, id, now))))
            case AskSchema(type=asked):
                work.out.append(Send(client(name), self._schema(asked)))
            case Leave():
                found = self._client(name)
                found.ends = True
                if not found.asked:  # otherwise once those are stored
                    self._forget(name, found, work, now)
            case _:
                raise ValueError(f"clients do not send {type(message).__name__}")
        return work

    def _schema(self, type: str) -> HasSchema:
        try:
            return HasSchema(type, self.broker.router.table.schema(type).to_json())
        except ValueError as error:
            return HasSchema(type, [], str(error))

    def _holds(self, name: str, id: EventId, now: float) -> tuple[WaitReason, ...]:
        """Return the reasons why an event of a client waits: first at this broker, then elsewhere."""
        if id.origin != f"client {name}":
            return ()
        found = [
            WaitReason(f"client {other}, which has no room for more", now - self._clients[other].took_at)
            for other in sorted(self._untaken.get(id, ()))
        ]
        if id in self._awaited:
            for other, one in self._clients.items():
                if id in one.missing:
                    state = "has not acknowledged it" if one.gone_at is None else "is not connected"
                    since = one.took_at if one.gone_at is None else one.gone_at
                    found.append(WaitReason(f"client {other}, which {state}", now - since))
        found += self.publications.holds(name, id, now)
        return tuple(found[:HOLDS])

    def _stored(self, name: str, message: Want | Drop, now: float) -> ClientWork:
        """Carry out a request of a client that is stored now."""
        work, found = ClientWork([], []), self._client(name)
        found.asked -= 1
        if isinstance(message, Drop):
            self._drop(name, message.key, work, now)
        elif not self._want(name, message, work, now):
            former = found.wishes.get(message.key)
            work.changes.append(Gone(name, message.key) if former is None else _kept(name, former.want))
        return work

    def _not_stored(self, name: str, message: Want | Drop, now: float) -> ClientWork:
        """Refuse a request that cannot be stored. A removed subscription gets no deliveries, anyway."""
        work, found = ClientWork([], []), self._client(name)
        found.asked -= 1
        if isinstance(message, Drop):
            self._end(name, message.key, work, now)
        else:
            found.bytes -= _size(message)
            work.out.append(Send(client(name), Refused(message.key, UNKEPT, later=True)))
        return work

    def tick(self, now: float) -> ClientWork:
        """Send publications again, and remove clients that are gone or accept no deliveries."""
        work = ClientWork([], [])
        self.publications.tick(now, work)
        for name, found in list(self._clients.items()):
            if found.asked:
                continue
            idle_since = found.took_at if found.missing and found.gone_at is None else found.gone_at
            if found.ends or (idle_since is not None and now >= idle_since + self.limits.linger):
                if not found.ends and found.gone_at is None:
                    why = f"you have acknowledged nothing for {self.limits.linger:g} seconds"
                    work.out.append(Send(client(name), Goodbye(why)))
                self._forget(name, found, work, now)
            elif found.gone_at is None and now >= found.inherits_until:
                found.inherits_until = inf
                for key, wish in list(found.wishes.items()):
                    if wish.program != found.program:
                        self._end(name, key, work, now)
        return work

    def _forget(self, name: str, found: _Client, work: ClientWork, now: float) -> None:
        """Remove a client for good, so that no acknowledgement waits for it."""
        for key in list(found.wishes):
            self._end(name, key, work, now)
        for id in list(found.missing):
            self._needs_no_more(found, id, work)
        for id in list(self._untaken):
            self._takes(name, id)
        del self._clients[name]

    # -- messages of the broker ----------------------------------------------------------------------

    def passed(self, work: ClientWork, now: float) -> ClientWork:
        """Convert messages of the broker to clients into client messages; leave others unchanged."""
        done = ClientWork(work.changes, [], work.asked)
        for one in work.out:
            if isinstance(one.message, Acknowledge) and one.message.id in self._untaken:
                pass  # its publisher sends it again
            elif isinstance(one.message, Acknowledge) and one.message.id in self._awaited:
                self._held.setdefault(one.message.id, []).append(one)
            else:
                self._one(one, done, now)
        return done

    def _one(self, one: Out, work: ClientWork, now: float) -> None:
        name, message = one.to.name, one.message
        match message if isinstance(one, Send) else None:
            case Notify() as notify:
                work.out.extend(self._notify(name, notify, now))
            case Confirm(id=id):
                owner, key = self._owners.get(id, ("", ""))
                if owner:
                    self._clients[owner].wishes[key].confirmed = True
                    work.out.append(Send(client(owner), Wanted(key)))
            case Acknowledge(id=event):
                self.publications.acknowledged(event, now, work)
            case _:
                work.out.append(one)

    def _notify(self, name: str, notify: Notify, now: float) -> list[Out]:
        found = self._clients.get(name)
        if found is None or notify.id in found.missing or notify.id in found.has:
            return []
        size = self._sizes.get(notify.id) or len(msgspec.msgpack.encode(notify.values))
        full = found.missing_bytes + size > self.limits.bytes and found.missing
        if full or len(found.missing) >= self.limits.deliveries:
            self._untaken.setdefault(notify.id, set()).add(name)
            if len(self._untaken) > UNTAKEN:
                del self._untaken[next(iter(self._untaken))]
            return []
        self._takes(name, notify.id)
        if not found.missing:
            found.took_at = now
        self._awaited[notify.id] += 1
        self._sizes[notify.id] = size
        found.missing_bytes += size
        keys = tuple(self._owners[id][1] for id in notify.subscriptions if id in self._owners)
        deliver = found.missing[notify.id] = ClientDeliver(notify.id, notify.type, notify.values, keys)
        return [] if found.gone_at is not None else [Send(client(name), deliver)]

    def _takes(self, name: str, id: EventId) -> None:
        """Note that a client has room for an event, or is gone."""
        lacking = self._untaken.get(id, set())
        lacking.discard(name)
        if not lacking:
            self._untaken.pop(id, None)

    # ------------------------------------------------------------------------------------------------

    def _client(self, name: str) -> _Client:
        return self._clients.setdefault(name, _Client())

    def _asks(self, name: str, message: Want | Drop, key: str) -> ClientWork:
        """Return a change of a client's subscriptions to be stored, or its refusal."""
        change: Change
        found = self._client(name)
        if isinstance(message, Want):
            former = found.wishes.get(key)
            if former is not None and former.want == message and not found.asked:
                former.program = found.program
                return ClientWork([], [Send(client(name), Wanted(key))] if former.confirmed else [])
            try:
                self._require_room(found, message)
                require_short("the condition", len(message.condition.encode()), self.limits.event)
                if len(key) > KEY:
                    raise ValueError(f"the key of a subscription has at most {KEY} characters")
                if "\0" in key + message.condition:
                    raise ValueError("a text has the character 0, which no database keeps; leave it out")
                self.broker.router.require_condition(message.type, message.condition)
            except (RTFilterError, ValueError) as error:
                return ClientWork([], [Send(client(name), Refused(key, str(error)))])
            found.bytes += _size(message)
            change = _kept(name, message)
        elif key not in found.wishes and not found.asked:
            return ClientWork([], [])
        else:
            change = Gone(name, key)
        found.asked += 1
        done, refused = partial(self._stored, name, message), partial(self._not_stored, name, message)
        return ClientWork([], [], [StoreRequest(change, done, refused)])

    def _require_room(self, found: _Client, want: Want) -> None:
        former = found.wishes.get(want.key)
        count = len(found.wishes) + found.asked - (former is not None)
        if count >= self.limits.subscriptions:
            raise ValueError(f"you have {count:,} subscriptions, the most of a client; remove some of them")
        size = found.bytes + _size(want) - (0 if former is None else _size(former.want))
        if size > self.limits.bytes:
            most = self.limits.bytes
            raise ValueError(
                f"your subscriptions would be {size:,} bytes long; at most {most:,} are allowed: remove some"
            )

    def _want(self, name: str, want: Want, work: ClientWork, now: float) -> bool:
        """Subscribe, unless the client has; return False if the subscription is refused now."""
        found = self._client(name)
        former = found.wishes.get(want.key)
        if former is not None and former.want == want:
            former.program = found.program
            found.bytes -= _size(want)
            if former.confirmed:
                work.out.append(Send(client(name), Wanted(want.key)))
            return True
        try:
            id, out = self.broker.subscribe(name, want.type, want.condition, now)
        except Exception as error:
            reason = str(error)
            if isinstance(error, RTFilterError | ValueError):  # it was stored under other event types
                told = "a subscription of client %s to %s, %.200r, is not taken up: %s"
                _log.warning(told, name, want.type, want.condition, reason)
            else:
                _log.exception("a subscription of %s is refused: %s", name, want)
                reason = OWN_ERROR
            found.bytes -= _size(want)
            work.out.append(Send(client(name), Refused(want.key, reason)))
            return False
        if former is not None:
            self._drop(name, want.key, work, now)
        found.wishes[want.key] = _Wish(want, id, found.program)
        self._owners[id] = name, want.key
        work.out.extend(out)
        return True

    def _end(self, name: str, key: str, work: ClientWork, now: float) -> None:
        """Remove a subscription, and store the removal."""
        work.changes.append(Gone(name, key))
        self._drop(name, key, work, now)

    def _drop(self, name: str, key: str, work: ClientWork, now: float) -> None:
        found = self._client(name)
        wish = found.wishes.pop(key, None)
        if wish is not None:
            found.bytes -= _size(wish.want)
            del self._owners[wish.id]
            work.out.extend(self.broker.unsubscribe(wish.id, now))

    def _has(self, found: _Client, id: EventId, work: ClientWork) -> None:
        self._needs_no_more(found, id, work)
        found.has[id] = None
        if len(found.has) > self.limits.deliveries:
            del found.has[next(iter(found.has))]

    def _needs_no_more(self, found: _Client, id: EventId, work: ClientWork) -> None:
        """Remove a pending delivery of a client; release the acknowledgements that waited for it."""
        if found.missing.pop(id, None) is None:
            return
        found.missing_bytes -= self._sizes[id]
        self._awaited[id] -= 1
        if not self._awaited[id]:
            del self._awaited[id], self._sizes[id]
            work.out.extend(self._held.pop(id, ()))

    def stats(self) -> dict[str, Any]:
        """Return the number of clients, and of the subscriptions and events that wait."""
        return {
            "clients": sum(one.gone_at is None for one in self._clients.values()),
            "subscriptions": len(self._owners),
            "unacknowledged": len(self.publications),
            "undelivered": sum(len(one.missing) for one in self._clients.values()),
            "held": len(self._held),
            "resent": self.publications.resent,
        }


def _size(want: Want) -> int:
    return len((want.key + want.condition).encode())


def _kept(name: str, want: Want) -> ClientSubscription:
    return ClientSubscription(name, want.key, want.type, want.condition)
