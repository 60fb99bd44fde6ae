"""What a client says in a session, and what it is answered: the same for every door that has directives.

A message is a JSON object with a ``directive`` and what it needs; a ``tag``, where there is one, comes back
with the answer, which is CONNECTED, ACK or ERROR. Deliveries are EVENT, DIGEST and ENDED. They are numbered
within a connection, and ``ACK`` with ``upto`` acknowledges all up to a number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any, Final, NamedTuple, overload
from uuid import uuid4

import msgspec

from rtfilter.errors import EventError, PredicateError, RTFilterError
from rtfilter.service.errors import DirectiveError, NotAuthenticatedError, NotJSONError, ServiceError
from rtfilter.service.nesting import require_shallow
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import Delivery, Wish
from rtfilter.service.roles import Identity, Role
from rtfilter.service.session import Directive, State, after

MOST_UNSENT: Final = 100
"""Messages that wait to be sent; beyond it, deliveries stay in the backlog until some were."""
DEFAULT: Final = "default"
"""The filter, where a message names none."""
MOST_AGAIN: Final = 10
"""Times that the wait before a delivery is sent again doubles."""


class _Due(NamedTuple):
    """What is to be sent in one message."""

    positions: Sequence[int]
    digest: bool


class _Sent(NamedTuple):
    """What was sent in one message, and when it is sent again."""

    positions: Sequence[int]
    again: float


class Conversation:
    """One session. Its door takes what is to be sent from `outbox`, in order, until it finds None, says
    `sent` after each, and calls `lost` in the end.

    Parameters
    ----------
    pipeline : Pipeline
    nesting : int
        How deep a message may nest.

    Attributes
    ----------
    state : State
    who : Identity or None
    """

    def __init__(self, pipeline: Pipeline, nesting: int = 64) -> None:
        self._pipeline, self.state, self._nesting = pipeline, State.PRE_CONNECTED, nesting
        self.who: Identity | None = None
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._due: deque[_Due] = deque()
        self._sent: dict[int, _Sent] = {}  # by number
        self._number = 0
        self._credit: int | None = None
        self._caught_up = False
        self._heard = 0.0
        self._read = asyncio.Event()
        self._connection = ExitStack()
        self._earliest = float("inf")  # when something is sent again
        self._clock = pipeline.deliver.clock

    # -- deliveries ------------------------------------------------------------------------------------------

    def send(self, positions: Sequence[int], digest: bool = False) -> None:
        """Send deliveries, now or when there is room and credit."""
        self._due.extend([_Due(positions, True)] if digest else [_Due([one], False) for one in positions])
        self._flush()

    def sent(self) -> None:
        """The door has sent one message."""
        self._read.set()
        if self._due and self.outbox.qsize() < MOST_UNSENT // 2:
            self._flush()

    def _flush(self) -> None:
        while self._due and self._credit != 0 and self.outbox.qsize() < MOST_UNSENT:
            positions, digest = self._due.popleft()
            assert self.who is not None
            found = [self._pipeline.deliver.get(self.who.user, position) for position in positions]
            there = [delivery for delivery in found if delivery is not None]  # others are needed no more
            if there:
                self._emit(there, digest)

    def _emit(self, deliveries: list[Delivery], digest: bool) -> None:
        assert self.who is not None
        before = [self._pipeline.deliver.note_sent(self.who.user, one.position) for one in deliveries]
        self._number += 1
        wait = self._pipeline.keeping.redeliver * 2 ** min(max(before), MOST_AGAIN)
        again = self._clock() + wait
        self._sent[self._number] = _Sent([one.position for one in deliveries], again)
        self._earliest = min(self._earliest, again)
        if self._credit is not None:
            self._credit -= 1
        first = deliveries[0]
        if digest:
            self._put("DIGEST", **_digest(self._number, deliveries))
        elif first.ended is None:
            self._put("EVENT", **_event(self._number, first, before[0]))
        else:
            ended = {"position": first.position, "subscription": first.subscriptions[0]}
            self._put("ENDED", number=self._number, **ended, reason=first.ended)

    async def room(self) -> None:
        """Wait while a peer asks and does not read what it is answered."""
        while self.outbox.qsize() >= 2 * MOST_UNSENT:
            self._read.clear()
            await self._read.wait()

    def unacknowledged(self) -> list[int]:
        """The positions that were sent, or were to be, in order."""
        sent = {position for one in self._sent.values() for position in one.positions}
        return sorted(sent.union(*(one.positions for one in self._due)))

    def tick(self, now: float) -> None:
        """Send again what was not acknowledged in time."""
        if now < self._earliest:
            return
        late = [number for number, sent in self._sent.items() if sent.again <= now]
        again: list[int] = []
        for number in late:
            sent = self._sent[number]
            self._sent[number] = sent._replace(again=float("inf"))  # a late ACK of this number counts
            again += sent.positions
        self._earliest = min((sent.again for sent in self._sent.values()), default=float("inf"))
        if again:
            self.send(sorted(set(again)))

    # -- directives ------------------------------------------------------------------------------------------

    async def hear(self, text: str | bytes) -> None:
        """Do what a message asks for, and answer it. Nothing is raised that a client could cause."""
        tag: Any = None
        self._heard = perf_counter()
        try:
            require_shallow(text.encode() if isinstance(text, str) else text, self._nesting)
            message = msgspec.json.decode(text)
            if not isinstance(message, dict):
                raise DirectiveError('a message is a JSON object, such as {"directive": "READY"}')
            tag = message.get("tag")
            directive = _directive(message.get("directive"))
            following = after(self.state, directive)
            told = await self._act(directive, message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(tag, NotJSONError(f"this is not JSON: {error}"))
        except RTFilterError as error:
            self._refuse(tag, error)
        else:
            if self.state is State.DISCONNECTED:
                return  # it was lost meanwhile
            self.state = following
            self._put("CONNECTED" if directive is Directive.CONNECT else "ACK", tag, **told)
            self._follow(directive)

    async def _act(self, directive: Directive, message: dict[str, Any]) -> dict[str, Any]:
        """Do it; returns what the answer tells."""
        pipeline = self._pipeline
        if directive is Directive.CONNECT:
            self.who = await self._come_in(message)
            return {
                "connection": str(uuid4()),
                "user": self.who.user,
                "roles": sorted(str(role) for role in self.who.roles),
            }
        who = self.who
        assert who is not None
        match directive:
            case Directive.SUBSCRIBE:
                wish = Wish(
                    message.get("where"),
                    *(message.get(name) for name in ("metadata", "ttl", "digest", "order")),
                )
                key = _text(message, "key", None)
                return {"subscription": await pipeline.subscribe(who, _filter(message), wish, key)}
            case Directive.UNSUBSCRIBE:
                await pipeline.unsubscribe(who, _whole(message, "subscription"))
            case Directive.ACK:
                await self._acknowledge(who, _whole(message, "upto"))
            case Directive.CREDIT:
                more = _whole(message, "more")
                self._credit = min((self._credit or 0) + more, 2**53)
            case Directive.PUBLISH:
                return {"positions": await self._publish(who, message)}
            case Directive.READY:
                who.require(Role.SUBSCRIBER)
            case Directive.STOP:
                pipeline.deliver.stop(who.user, self)
                self._due.clear()
            case Directive.GET:
                self._caught_up = True
                return {"pending": self._get(who)}
        return {}

    async def _come_in(self, message: dict[str, Any]) -> Identity:
        users = self._pipeline.users
        if "token" in message:
            who = await users.token(_text(message, "token"))
        else:
            who = await users.password(_text(message, "user"), _text(message, "password", ""))
        self._connection.enter_context(users.connect(who))
        self._pipeline.sessions.add(self)
        return who

    async def _acknowledge(self, who: Identity, upto: int) -> None:
        if upto > self._number:
            raise DirectiveError('"upto" is the number of a delivery of this connection')
        numbers = [number for number in self._sent if number <= upto]
        positions = [position for number in numbers for position in self._sent.pop(number).positions]
        await self._pipeline.acknowledge(who, positions)

    async def _publish(self, who: Identity, message: dict[str, Any]) -> list[int]:
        filter = _filter(message)
        if ("event" in message) == ("events" in message):
            raise DirectiveError('give "event", an object, or "events", a list of them')
        events = message["events"] if "events" in message else [message["event"]]
        if not isinstance(events, list):
            raise DirectiveError('"events" is a list of objects')
        parsed = self._pipeline.parse(filter).objects(events)
        return await self._pipeline.publish(who, filter, parsed, _text(message, "key", None), self._heard)

    def _get(self, who: Identity) -> int:
        """Have all sent that was not sent on this connection; returns how many these are."""
        sent = set(self.unacknowledged())
        unsent = [one.position for one in self._pipeline.pending(who) if one.position not in sent]
        self._due.extend(_Due([position], False) for position in unsent)
        return len(unsent)

    def _follow(self, directive: Directive) -> None:
        """What comes after the answer."""
        if directive is Directive.READY:
            assert self.who is not None
            self._pipeline.deliver.begin(self.who.user, self)
            if self._caught_up:
                self._get(self.who)
        elif directive is Directive.DISCONNECT:
            self.outbox.put_nowait(None)
        if self.who is not None:
            self._flush()

    def _refuse(self, tag: Any, error: RTFilterError) -> None:
        told: dict[str, Any] = {"kind": kind_of(error), "error": str(error)}
        if isinstance(error, ServiceError) and error.retry_after is not None:
            told["retry_after"] = error.retry_after
        if isinstance(error, EventError | PredicateError) and error.row is not None:
            told["row"] = error.row
        self._put("ERROR", tag, **told)

    def _put(self, directive: str, tag: Any = None, **told: Any) -> None:
        tagged = {} if tag is None else {"tag": tag}
        self.outbox.put_nowait(msgspec.json.encode({"directive": directive, **tagged, **told}))

    def lost(self) -> None:
        """The connection is gone. Subscriptions and backlog stay."""
        if self.who is not None:
            self._pipeline.deliver.stop(self.who.user, self)
        self._pipeline.sessions.discard(self)
        self._connection.close()
        self.state = State.DISCONNECTED

    def expel(self) -> None:
        """The user may not stay connected: say so, and have the door close."""
        self._refuse(None, NotAuthenticatedError("what proved who you are is no longer good; connect again"))
        self.outbox.put_nowait(None)
        self.lost()


def kind_of(error: RTFilterError) -> str:
    """A short name of what is wrong, which programs can compare."""
    if isinstance(error, ServiceError):
        return error.kind
    return "event" if isinstance(error, EventError) else "predicate"


def _event(number: int, one: Delivery, before: int) -> dict[str, Any]:
    return {
        "number": number,
        "position": one.position,
        "subscriptions": one.subscriptions,
        "filter": one.filter,
        "event": msgspec.Raw(one.body),
        "at": one.at,
        "response": one.response,
        "redelivered": before,
    }


def _digest(number: int, deliveries: list[Delivery]) -> dict[str, Any]:
    return {
        "number": number,
        "filter": deliveries[0].filter,
        "subscriptions": sorted({id for one in deliveries for id in one.subscriptions}),
        "events": [
            {
                "position": one.position,
                "subscriptions": one.subscriptions,
                "event": msgspec.Raw(one.body),
                "at": one.at,
            }
            for one in deliveries
        ],
    }


def _directive(name: object) -> Directive:
    try:
        return Directive(name)  # type: ignore[arg-type]
    except ValueError:
        raise DirectiveError(f'"directive" is one of {", ".join(Directive)}') from None


def _filter(message: dict[str, Any]) -> str:
    return _text(message, "filter", DEFAULT)


_NEEDED: Final = object()


@overload
def _text(message: dict[str, Any], name: str, otherwise: str = ...) -> str: ...


@overload
def _text(message: dict[str, Any], name: str, otherwise: None) -> str | None: ...


def _text(message: dict[str, Any], name: str, otherwise: Any = _NEEDED) -> str | None:
    found = message.get(name, otherwise)
    if found is not otherwise and not isinstance(found, str):
        raise DirectiveError(f'"{name}" is text')
    if found is _NEEDED:
        raise DirectiveError(f'"{name}" is needed, as text')
    return found  # type: ignore[no-any-return]


def _whole(message: dict[str, Any], name: str) -> int:
    found = message.get(name)
    if type(found) is not int or not 0 <= found < 2**53:
        raise DirectiveError(f'"{name}" is needed, as a whole number')
    return found
