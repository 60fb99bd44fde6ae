"""The session of a client: its messages and their answers, the same for every door that has directives.

A message is a JSON object with a ``directive`` and its fields. The answer is CONNECTED, ACK or ERROR, and
repeats the ``tag`` of the message, if any. Deliveries are EVENT, DIGEST and ENDED, numbered within a
connection. ``ACK`` with ``upto`` acknowledges all up to a number, with ``numbers`` single ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence, Set
from contextlib import ExitStack
from math import inf
from time import perf_counter
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
from msgspec import UNSET, Raw

from rtfilter.basics.errors import EventError, PredicateError, RTFilterError
from rtfilter.basics.session_states import TABLE, Directive, State
from rtfilter.basics.sockets import network
from rtfilter.service import messages
from rtfilter.service.access.user_checks import no_longer
from rtfilter.service.backlog import Backlog
from rtfilter.service.concurrency import LARGE, Turn
from rtfilter.service.measures import Door
from rtfilter.service.parse import MANY, Parse, Parsed, report, require_shallow, with_hints
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.publishing import stopping
from rtfilter.service.records import BESIDE, BYTES_OF_ID, Sending, UserDelivery, fitting, shown
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import (
    DirectiveError,
    NotJSONError,
    ServiceError,
    StandbyError,
    TooLargeError,
)

MOST_UNSENT: Final = 100
"""Most messages that wait to be sent; above it, deliveries stay in the backlog until some are sent."""
UNSENT_BYTES: Final = 2**20
"""Most bytes of these; the last message or delivery may exceed them."""
MOST_AGAIN: Final = 10
"""Most times that the wait before a redelivery doubles."""
ENTRY: Final = 100
"""Bytes of an event of a DIGEST beside the event and its ids, at most."""
FEW: Final = 1000
"""Deliveries that may be added before those that are needed no more are removed."""
LATER: Final = 2**53
"""The number of a delivery of several messages until the last of them is made; no other is as large."""


_encode: Final = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)
_Due = int | Sequence[int]
"""The position of a delivery to send, or the positions of a digest."""


class _Sent(msgspec.Struct, frozen=True, gc=False):
    """The number of the last message of a delivery, and the time of its redelivery."""

    number: int
    again: float


class _Rest(NamedTuple):
    """A delivery of several messages, some of which are not made yet."""

    delivery: UserDelivery
    first: int
    """Place of the first id of the next message."""
    before: int
    """See `Sending`."""


class Outbox:
    """Messages that wait to be sent: a part of `asyncio.Queue`, in a fraction of its time."""

    def __init__(self) -> None:
        self._waiting: deque[bytes | None] = deque()
        self._some = asyncio.Event()
        self.bytes = 0  # of the waiting messages

    def qsize(self) -> int:
        """Return the number of messages that wait."""
        return len(self._waiting)

    def put_nowait(self, message: bytes | None) -> None:
        """Add a message at the end; None ends the connection."""
        self._waiting.append(message)
        self.bytes += len(message or b"")
        self._some.set()

    def get_nowait(self) -> bytes | None:
        """Remove and return the first message."""
        message = self._waiting.popleft()
        self.bytes -= len(message or b"")
        return message

    async def some(self, most: int) -> list[bytes | None]:
        """Wait for a message; return up to `most` of the waiting ones, none after None."""
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        found = [self.get_nowait()]
        while found[-1] is not None and self._waiting and len(found) < most:
            found.append(self.get_nowait())
        return found


class Conversation:
    """A session. Its door sends the messages of `unsent` in order until it finds None. It calls `sent` after
    each `unsent`, and `lost` at the end.

    A message has at most `nesting` levels of nested JSON. `turn` is that of the door's work on all messages.
    """

    def __init__(self, pipeline: Pipeline, nesting: int = 64, door: Door = "tcp") -> None:
        self._pipeline, self.state, self._nesting = pipeline, State.PRE_CONNECTED, nesting
        self._door, self._measures, self._open = door, pipeline.measures, True
        self._measures.connections[door] += 1
        self.who: Identity | None = None
        self.id = str(uuid4())
        self._address = ""
        self.outbox = Outbox()
        self._straight: Callable[[Sequence[bytes]], bool] | None = None
        self.turn = Turn(pipeline.rounds)
        self._due: deque[_Due] = deque()
        self._rest: _Rest | None = None  # comes before all that is due
        self._sent: dict[int, _Sent] = {}  # by position; their numbers ascend
        self._added, self._room = 0, FEW  # deliveries since the last `_prune`, and until the next
        self._number = self._sending = 0
        self._credit: int | None = None
        self._caught_up = False
        self._heard, self._large = 0.0, False  # of the message that is carried out
        self._read = asyncio.Event()
        self._connection = ExitStack()
        self._earliest = inf  # time of the next redelivery
        self._clock = pipeline.deliver.clock

    def meet(self, address: str, straight: Callable[[Sequence[bytes]], bool] | None = None) -> None:
        """Note the address of the peer, and a function of the door, if it has one, that sends messages at
        once, past the outbox, and returns True; or it sends none, and returns False."""
        self._address, self._straight, self.turn.address = address, straight, network(address)

    # -- deliveries ------------------------------------------------------------------------------------------

    @property
    def _backlog(self) -> Backlog:
        assert self.who is not None
        return self._pipeline.deliver.backlog(self.who.user)

    def send(self, positions: Sequence[int], digest: bool = False) -> None:
        """Send deliveries, now or when there is room and credit."""
        if digest:
            self._due.append(positions)
        else:
            self._due.extend(positions)
        self._go_on(len(positions))

    def take_over(self, positions: Sequence[int]) -> None:
        """Send deliveries again, before all that wait: those of another receiver, or late ones."""
        sent = (at for at, sent in self._sent.items() if sent.again < inf)  # others wait to be sent again
        again = sorted({*positions} | self._backlog.following(positions, sent))
        self._wait(again, inf)  # until they are sent
        self._due.extendleft(reversed(again))
        self._go_on(len(again))

    def _go_on(self, added: int) -> None:
        self._flush()
        self._added += added
        if self._added > self._room:
            self._prune()

    def _prune(self) -> None:
        """Remove deliveries that were dropped, or acknowledged on another connection."""
        needed = self._backlog.pending
        self._due = deque(left for one in self._due if (left := _those_of(one, needed)))
        self._sent = {at: sent for at, sent in self._sent.items() if at in needed}
        self._added, self._room = 0, max(FEW, len(needed))

    async def unsent(self) -> list[bytes | None]:
        """Wait for messages to send; return the waiting ones, none after None."""
        found = await self.outbox.some(MOST_UNSENT)
        self._sending = len(found)
        return found

    def sent(self) -> None:
        """Continue after the door has sent the messages of the last `unsent`."""
        self._sending = 0
        self._read.set()
        few = self.outbox.qsize() < MOST_UNSENT // 2 and self.outbox.bytes < UNSENT_BYTES // 2
        if few:
            self._flush()

    def _flush(self) -> None:
        if not self._waits:
            return
        get, now = self._backlog.get, self._clock()
        room, made = MOST_UNSENT - self.outbox.qsize(), list[bytes]()
        left = UNSENT_BYTES - self.outbox.bytes
        while self._waits and len(made) < room and left > 0:
            if self._rest is not None:
                made.append(self._continued(self._rest))
                left -= len(made[-1])
                continue
            due = self._due.popleft()
            found = map(get, _positions(due))
            there = [one for one in found if one is not None]  # others were dropped or acknowledged
            if not there:
                continue
            if isinstance(due, Sequence) and (part := self._part(there)):
                made.append(self._emitted_digest(part, now))
            else:
                made.append(self._emitted(there[0], now))
            left -= len(made[-1])
        self._say(made, straight=not self._waits)  # the others are sent when the door has sent these

    def _part(self, deliveries: list[UserDelivery]) -> list[UserDelivery]:
        """Return the first deliveries that fit into one DIGEST; the others are due next. The list is empty if
        the first one is too long, and must be sent alone."""
        sizes = [len(one.body) + ENTRY + 2 * BYTES_OF_ID * len(one.subscriptions) for one in deliveries]
        count = fitting(sizes, self._pipeline.message // 2)
        if count < len(deliveries):
            self._due.appendleft([one.position for one in deliveries[count:]])
        return deliveries[:count] if sizes[0] < self._pipeline.message - BESIDE else []

    def _emitted(self, one: UserDelivery, now: float) -> bytes:
        """Return the message of a delivery, or the first one of several if one cannot contain all ids."""
        number, ids = self._next(), one.subscriptions
        sending = self._note(one.position, now)
        if one.ended is not None:
            ended = {"position": one.position, "subscription": ids[0], "reason": one.ended}
            return _encode({"directive": "ENDED", "number": number, **ended, **sending.lost})
        most = self._most_ids(one)
        if len(ids) > most:
            self._rest = _Rest(one, most, sending.before)
            self._number_again(one.position, LATER)
        return _event(number, one, ids[:most], sending)

    def _most_ids(self, one: UserDelivery) -> int:
        return max(1, (self._pipeline.message - BESIDE - len(one.body)) // BYTES_OF_ID)

    def _number_again(self, position: int, number: int) -> None:
        """Give a sent delivery a number above all others, if it is needed still."""
        sent = self._sent.pop(position, None)
        if sent is not None:
            self._sent[position] = _Sent(number, sent.again)

    def _continued(self, rest: _Rest) -> bytes:
        """Return the next message of a delivery, which is acknowledged with the last one."""
        one, first, before = rest
        number, after = self._next(), first + self._most_ids(one)
        if after < len(one.subscriptions):
            self._rest = rest._replace(first=after)
        else:
            self._rest = None
            self._number_again(one.position, number)
        return _event(number, one, one.subscriptions[first:after], Sending(before))

    def _emitted_digest(self, deliveries: list[UserDelivery], now: float) -> bytes:
        number = self._next()
        dropped = sum(self._note(one.position, now).dropped for one in deliveries)
        events = [
            {
                "position": one.position,
                "subscriptions": one.subscriptions,
                "event": Raw(one.body),
                "at": one.at,
            }
            for one in deliveries
        ]
        digest = {
            "directive": "DIGEST",
            "number": number,
            "filter": deliveries[0].filter,
            "subscriptions": sorted({id for one in deliveries for id in one.subscriptions}),
            "events": events,
        }
        return _encode({**digest, **Sending(0, dropped).lost})

    @property
    def _waits(self) -> bool:
        """True if there is a message to make now; a delivery that is begun needs no more credit."""
        return self._rest is not None or (bool(self._due) and self._may_send)

    @property
    def _may_send(self) -> bool:
        return self._credit is None or self._credit > 0

    def _next(self) -> int:
        """Return the number of the next delivery, and use one of the credit."""
        self._number += 1
        if self._credit is not None:
            self._credit -= 1
        return self._number

    def _note(self, position: int, now: float) -> Sending:
        """Count a sending, and plan the redelivery; return the data to send beside the delivery."""
        sending = self._backlog.note_sent(position)
        again = now + self._pipeline.keeping.redeliver * 2 ** min(sending.before, MOST_AGAIN)
        known = self._sent.get(position)
        self._sent[position] = _Sent(self._number if known is None else known.number, again)
        if again < self._earliest:
            self._earliest = again
        return sending

    async def room(self) -> None:
        """Wait while too many answers wait for a peer that does not read them."""
        while self.outbox.qsize() >= 2 * MOST_UNSENT or self.outbox.bytes >= UNSENT_BYTES:
            self._read.clear()
            await self._read.wait()

    def unacknowledged(self) -> list[int]:
        """Return the positions that were sent or wait to be sent, ascending."""
        return sorted(set(self._sent).union(*map(_positions, self._due)))

    def tick(self, now: float) -> None:
        """Send again the deliveries that were not acknowledged in time."""
        if now < self._earliest:
            return
        late = [at for at, sent in self._sent.items() if sent.again <= now]
        if late:
            self.take_over(late)
        self._earliest = min((sent.again for sent in self._sent.values()), default=inf)

    def _wait(self, positions: Iterable[int], again: float) -> None:
        for position in positions:
            if position in self._sent:
                self._sent[position] = _Sent(self._sent[position].number, again)

    # -- directives ------------------------------------------------------------------------------------------

    async def hear(self, text: str | bytes) -> None:
        """Carry out a message, and answer it. Errors that a client can cause are answered, not raised."""
        tag: Any = None
        self._heard, self._large = perf_counter(), len(text) >= LARGE
        try:
            read = self._message_of
            if self._large and self.who is not None:
                message = await self._pipeline.asides.reads.run_for(self.who.user, read, text)
            else:
                message = read(text)
            tag = message.tag
            following = self.state if message.directive is None else after(self.state, message.directive)
            if isinstance(message, messages.Misread):
                raise message.error
            told = await self._act(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.refuse(NotJSONError(f"this is not JSON: {error}"), tag)
        except RTFilterError as error:
            self.refuse(error, tag)
        else:
            if self.state is State.DISCONNECTED:
                return  # it was lost meanwhile
            self.state = following
            self._put("CONNECTED" if isinstance(message, messages.Connect) else "ACK", tag, **told)
            self._follow(message)

    def _message_of(self, text: str | bytes) -> messages.Message | messages.Misread:
        text = messages.without_mark(text)
        require_shallow(text.encode() if isinstance(text, str) else text, self._nesting)
        return messages.read(text)

    async def _act(self, message: messages.Message) -> dict[str, Any]:
        """Carry out a message; return the fields of its answer."""
        pipeline = self._pipeline
        if isinstance(message, messages.Connect):
            self.who = await self._come_in(message)
            return {
                "connection": self.id,
                "user": self.who.user,
                "roles": sorted(str(role) for role in self.who.roles),
            }
        who = self.who
        assert who is not None
        match message:
            case messages.Subscribe():
                id = await pipeline.subscriptions.subscribe(who, message.filter, message.wish, message.key)
                if message.everywhere:
                    await pipeline.everywhere([id])
                return {"subscription": id}
            case messages.Unsubscribe():
                await pipeline.subscriptions.unsubscribe(who, message.subscription)
            case messages.Replace():
                expires = await pipeline.subscriptions.replace(who, message.subscription, message.wish)
                return {"subscription": message.subscription, "expires": expires}
            case messages.List():
                return await self._list(who, message)
            case messages.Match():
                return await self._match(who, message)
            case messages.Explain():
                filter = pipeline.subscriptions.filter_of(who, message.subscription)
                event = await self._events(who, filter, [bytes(message.event)], lone=True)
                reasons = await pipeline.asking.explain(who, filter, event.bodies[0], message.subscription)
                return {"matched": reasons.matched, "report": report(reasons, event)}
            case messages.Ack():
                await self._acknowledge(who, message.upto, set(message.numbers))
            case messages.Credit():
                self._credit = min((self._credit or 0) + message.more, 2**53)
            case messages.Publish():
                return await self._publish(who, message)
            case messages.Ready():
                who.require(Role.SUBSCRIBER)
            case messages.Stop():
                pipeline.deliver.stop(who.user, self)
                for one in self._due:
                    self._wait(_positions(one), self._clock())
                self._due.clear()
                if self._rest is not None:  # as if it was not sent
                    self._sent.pop(self._rest.delivery.position, None)
                    self._rest = None
                self._earliest = 0.0
            case messages.Site():
                if not pipeline.users.open:
                    who.require(Role.SITE)
                if pipeline.site is None:
                    raise DirectiveError("this server is no site of a network")
                pipeline.site.hear(who.user, message.site, message.cluster, message.message)
            case messages.Get():
                self._caught_up = True
                return {"pending": self._get(who)}
        return {}

    async def _come_in(self, message: messages.Connect) -> Identity:
        users = self._pipeline.users
        if self._pipeline.standby is not None:
            raise StandbyError
        if self._pipeline.stopping:
            raise stopping()
        if message.token is not None:
            who = await users.token(message.token)
        elif message.user is not None:
            who = await users.password(message.user, message.password, self._address)
        else:
            raise DirectiveError('CONNECT needs "token", or "user" and "password"')
        self._connection.enter_context(users.connect(who))
        self._pipeline.presence.sessions.add(self)
        _log.info("a session begins", extra={"connection": self.id, "user": who.user})
        return who

    async def _acknowledge(self, who: Identity, upto: int, numbers: Set[int]) -> None:
        if upto > self._number:
            raise DirectiveError('"upto" must be the number of a delivery of this connection')
        if not all(0 < number <= self._number for number in numbers):
            raise DirectiveError('"numbers" must be numbers of deliveries of this connection')
        taken = {}
        for position, sent in self._sent.items():
            if sent.number > upto:
                break
            taken[position] = sent
        if numbers:
            taken |= {position: sent for position, sent in self._sent.items() if sent.number in numbers}
        for position in taken:
            del self._sent[position]
        try:
            await self._pipeline.deliveries.acknowledge(who, taken)
        except ServiceError:
            self._sent = dict(sorted((taken | self._sent).items(), key=lambda one: one[1].number))
            self._earliest = 0.0
            raise

    async def _list(self, who: Identity, message: messages.List) -> dict[str, Any]:
        """Return the subscriptions that fit into one message, and the id to continue after."""
        if message.subscription is not None:
            one = await self._pipeline.subscriptions.show(who, message.subscription)
            return {"subscriptions": [shown(one)], "next": None}
        found, more = await self._pipeline.subscriptions.list(
            who, message.filter, message.after, message.limit
        )
        page = [_encode(shown(one)) for one in found]
        count = fitting(map(len, page), self._pipeline.message // 2)
        return {
            "subscriptions": list(map(Raw, page[:count])),
            "next": found[count - 1].id if more or count < len(found) else None,
        }

    async def _match(self, who: Identity, message: messages.Match) -> dict[str, Any]:
        events = await self._events(
            who, message.filter, message.texts, lone=message.events is UNSET, stored=False
        )
        found, left = list[bytes](), self._pipeline.message // 2
        async for part in await self._pipeline.asking.match(who, message.filter, events.table):
            if 2 * len(part.ids) <= left:  # else they take more bytes
                found.append(_encode(part.lists())[1:-1])
                left -= len(found[-1])
            else:
                left = -1
            if left < 0:
                raise TooLargeError("the matches do not fit into one message; send fewer events")
        matches = Raw(b"[" + b",".join(found) + b"]")
        return with_hints({"matches": matches}, events.hints)

    async def _events(
        self,
        who: Identity,
        filter: str,
        texts: list[bytes],
        lone: bool,
        stored: bool = True,
        compact: bool = False,
    ) -> Parsed:
        """Read events; in a thread if they are many or long, or some may have lists."""
        given = self._pipeline.filters.parse(filter), texts, lone, stored, compact
        if self._large or len(texts) >= MANY or any(b"[" in text for text in texts):
            return await self._pipeline.asides.reads.run_for(who.user, _parsed, *given)
        return _parsed(*given)

    async def _publish(self, who: Identity, message: messages.Publish) -> dict[str, Any]:
        most = self._pipeline.message // BYTES_OF_ID
        if message.count > most:
            raise TooLargeError(f"a message has at most {most:,} events; send several")
        # A key stands for the same events in whatever spaces and digits, also after an upgrade.
        events = await self._events(
            who, message.filter, message.texts, message.events is UNSET, compact=message.key is not None
        )
        self._measures.parse.add(perf_counter() - self._heard, message.count)
        bodies, hints = events.bodies, events.hints
        del events  # its table is much larger, and the answer may take seconds
        positions = await self._pipeline.publishing.publish(
            who, message.filter, bodies, message.key, self._heard
        )
        return with_hints({"positions": positions}, hints)

    def _get(self, who: Identity) -> int:
        """Queue all pending deliveries that were not sent on this connection; return their number."""
        sent = set(self.unacknowledged())
        unsent = [one.position for one in self._pipeline.deliveries.pending(who) if one.position not in sent]
        self._due.extend(unsent)
        return len(unsent)

    def _follow(self, message: messages.Message) -> None:
        """Begin deliveries, or end the connection, after the answer to a message."""
        if isinstance(message, messages.Ready):
            assert self.who is not None
            self._pipeline.deliver.begin(self.who.user, self)
            if self._caught_up:
                self._get(self.who)
        elif isinstance(message, messages.Disconnect):
            self.outbox.put_nowait(None)
        if self.who is not None:
            self._flush()

    def refuse(self, error: RTFilterError, tag: Any = None) -> None:
        """Send an ERROR."""
        told: dict[str, Any] = {"kind": kind_of(error), "error": str(error)}
        self.refused(told["kind"])
        if isinstance(error, ServiceError) and error.retry_after is not None:
            told["retry_after"] = error.retry_after
        if isinstance(error, EventError | PredicateError) and error.row is not None:
            told["row"] = error.row
        self._put("ERROR", tag, **told)

    def refused(self, kind: str) -> None:
        """Count a refusal. The door calls it if it refuses without an ERROR."""
        self._measures.refuse(self._door, kind)

    def _put(self, directive: str, tag: Any = None, **told: Any) -> None:
        tagged = {} if tag is None else {"tag": tag}
        self._say([_encode({"directive": directive, **tagged, **told})])

    def _say(self, messages: Sequence[bytes], straight: bool = True) -> None:
        """Send messages after the waiting ones; past the outbox if none waits and the door can."""
        way = self._straight if straight and not self.outbox.qsize() and not self._sending else None
        if messages and (way is None or not way(messages)):
            for message in messages:
                self.outbox.put_nowait(message)

    def lost(self) -> None:
        """End the session of a closed connection. Subscriptions and backlog stay."""
        if self.who is not None:
            self._pipeline.deliver.stop(self.who.user, self)
            if self.state is not State.DISCONNECTED:
                _log.info("a session ends", extra={"connection": self.id, "user": self.who.user})
        self._pipeline.presence.sessions.discard(self)
        self._connection.close()
        self._straight = None  # breaks a cycle with the door, which would wait for garbage collection
        self._measures.connections[self._door] -= self._open  # `lost` may be called twice
        self._open = False
        self.state = State.DISCONNECTED

    @property
    def owed(self) -> int:
        """Messages that are being sent, or wait and may be sent."""
        made = self._sending + self.outbox.qsize() + (self._rest is not None)
        return made + (len(self._due) if self._may_send else 0)

    def expel(self) -> None:
        """End the session of a user who may not stay connected: send an ERROR, and close."""
        self.refuse(no_longer())
        self.outbox.put_nowait(None)
        self.lost()


def after(state: State, directive: Directive) -> State:
    """Return the state after a directive. Raises `DirectiveError` with the allowed ones."""
    try:
        return TABLE[state][directive]
    except KeyError:
        allowed = ", ".join(TABLE[state]) or "nothing"
        raise DirectiveError(f"{directive} is not allowed in {state}; allowed: {allowed}") from None


def _parsed(parse: Parse, texts: list[bytes], lone: bool, stored: bool, compact: bool) -> Parsed:
    events = list(map(msgspec.json.decode, texts))
    return parse.objects(events, None if compact else texts, stored, lone)


def kind_of(error: RTFilterError) -> str:
    """Return a short name of the kind of an error, which programs can compare."""
    if isinstance(error, ServiceError):
        return error.kind
    return "event" if isinstance(error, EventError) else "predicate"


def _positions(due: _Due) -> Sequence[int]:
    return (due,) if isinstance(due, int) else due


def _those_of(due: _Due, needed: Container[int]) -> _Due | None:
    left = [position for position in _positions(due) if position in needed]
    return left[0] if left and isinstance(due, int) else left or None


def _event(number: int, one: UserDelivery, ids: Sequence[int], sending: Sending) -> bytes:
    message = {
        "directive": "EVENT",
        "number": number,
        "position": one.position,
        "subscriptions": ids,
        "filter": one.filter,
        "event": Raw(one.body),
        "at": one.at,
        "response": one.response,
        "redelivered": sending.before,
    }
    if one.source is not None:
        message["from"] = one.source
    return _encode(message | sending.lost if sending.dropped else message)
