"""Requests of users, with their bodies: within limits, and as events."""

from __future__ import annotations

import asyncio
import re
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope

from rtfilter.basics.sockets import network
from rtfilter.basics.text import placed
from rtfilter.service.concurrency import LARGE, Threads
from rtfilter.service.doors import arrow
from rtfilter.service.doors.problems import MediaTypeError, SilentError
from rtfilter.service.doors.server_metrics import PipelineCollector
from rtfilter.service.parse import MANY, Parse, Parsed, require_shallow, require_shallow_lines
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.roles import Identity
from rtfilter.service.service_errors import BusyError, NotJSONError, RequestError, TooLargeError
from rtfilter.service.webhooks import Webhooks

JSON: Final = "application/json"
LINES: Final = ("application/x-ndjson", "application/jsonl", "application/ndjson")
ARROW: Final = "application/vnd.apache.arrow.stream"
SILENT: Final = 30.0
"""Seconds without a byte of a body after which the request is refused."""
SLOWEST: Final = 1024
"""Fewest bytes a second of a body that takes longer than `SILENT`."""
MOST_EVENTS: Final = 100_000
"""Most events of one request."""
MOST_DOCUMENT: Final = 2**20
"""Most bytes of JSON that is no event: of a filter, a subscription, a question."""
ROOM_WITHIN: Final = 20.0
"""Seconds that a request waits for room: a peer of which nothing is read is closed after 30."""
_UNKNOWN: Final = re.compile("Object contains unknown field `(.*)`")
_T = TypeVar("_T")


class Rooms:
    """Room for the bodies of each user's requests, over all connections, until they are answered.

    Parameters
    ----------
    most : int
        Bytes of one user.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rooms: WeakValueDictionary[str, _Room] = WeakValueDictionary()

    async def enter(self, user: str, size: int) -> Callable[[], None]:
        """Wait for room for `size` bytes, in order; return a function that gives it back.

        Raises
        ------
        BusyError
            There was no room for `ROOM_WITHIN` seconds.
        """
        room = self._rooms.get(user)
        if room is None:
            room = self._rooms[user] = _Room(self._most)
        size = min(size, self._most)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        room.waiting.append((size, turn))
        room.give(0)
        try:
            async with asyncio.timeout(ROOM_WITHIN):
                await turn
        except BaseException as error:
            if (size, turn) in room.waiting:
                room.waiting.remove((size, turn))
                size = 0
            room.give(size)
            if isinstance(error, TimeoutError):
                raise BusyError("other requests of yours take all the room; wait for answers", 1.0) from None
            raise
        return partial(room.give, size)


class _Room:
    """The bytes that are left for a user, and the requests that wait for them."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def give(self, size: int) -> None:
        """Give back bytes, and admit waiting requests for which there is room."""
        self._left += size
        while self.waiting and self.waiting[0][0] <= self._left:
            size, turn = self.waiting.popleft()
            self._left -= size
            if not turn.done():
                turn.set_result(None)


class RequestLimits(NamedTuple):
    """The limits of one request.

    Attributes
    ----------
    body : int
        Most bytes of the body.
    nesting : int
        Most levels of objects and arrays in JSON.
    """

    body: int = 16 * 2**20
    nesting: int = 64


class ServerParts(NamedTuple):
    """The objects that all doors of HTTP and WebSocket share.

    Attributes
    ----------
    bodies : Rooms
        Bytes of bodies.
    answers : Rooms
        Long answers that are being written.
    """

    pipeline: Pipeline
    webhooks: Webhooks
    metrics: PipelineCollector
    limits: RequestLimits
    bodies: Rooms
    answers: Rooms


class Call(Request):
    """A request to a door.

    Attributes
    ----------
    who : Identity
        Unless the door is open.
    content : bytes
        The body, if the door reads one.
    arrived, read : float
        When its headers and its body were there, by `time.perf_counter`.
    """

    who: Identity

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.site: ServerParts = scope["app"]
        self.pipeline = self.site.pipeline
        self.content = b""
        self.arrived = self.read = perf_counter()
        self._leaves: list[Callable[[], None]] = []

    def leave(self) -> None:
        """Give back all room."""
        for leave in self._leaves:
            leave()

    async def enter_answers(self) -> None:
        """Wait while many answers of the user are written; a door whose answer may be long calls it."""
        self._leaves.append(await self.site.answers.enter(self.who.user, 1))

    async def take_body(self, most: int | None = None) -> None:
        """Read the body, of at most `most` bytes, then check the client again: that may have taken hours."""
        most = self.site.limits.body if most is None else min(most, self.site.limits.body)
        room = await self.site.bodies.enter(self.who.user, size_of(self, most))
        self._leaves.append(room)
        self.content = await whole(self, most)
        self.read = perf_counter()
        self.pipeline.users.require_still(self.who)

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def wants_arrow(self) -> bool:
        """True if the header Accept names a stream of Arrow's, and pyarrow is installed."""
        accepted = self.headers.get("accept", "").split(",")
        return any(one.partition(";")[0].strip().lower() == ARROW for one in accepted) and arrow.is_there()

    async def document(self, kind: type[_T]) -> _T:
        """Return the body, which is JSON. Raises `MediaTypeError`, and the errors of `document`."""
        if self.media_type != JSON:
            raise MediaTypeError(f"Content-Type is {self.media_type or 'missing'}; send {JSON}")
        return await self.worked(document, self.content, kind, self.site.limits.nesting)

    async def events(self, parse: Parse, stored: bool = True) -> Parsed:
        """Return the events of the body, to be stored or to be matched only.

        Raises
        ------
        EventError, NotJSONError, MediaTypeError, TooLargeError
        """
        kind, body = self.media_type, self.content
        given = kind, body, parse, self.site.limits.nesting, stored
        return await self.worked(_events, *given, long=takes_long(kind, body))

    async def worked(self, work: Callable[..., _T], *given: Any, long: bool = False) -> _T:
        """Return the result of work on the body: in a thread if it takes long, else in a turn of the loop.

        The bodies of many requests may end at the same time.
        """
        if long or len(self.content) >= LARGE:
            return await self.beside(work, *given)
        await self.pipeline.rounds.wait(network(self.client.host) if self.client else "")
        return work(*given)

    async def beside(self, work: Callable[..., _T], *given: Any) -> _T:
        """Return the result of work in a thread, of which each user has one at a time."""
        reads: Threads = self.pipeline.asides.reads
        return await reads.run_for(self.who.user, work, *given)


async def whole(request: Request, most: int) -> bytes:
    """Return the body of a request.

    Raises
    ------
    TooLargeError
        The body has more than `most` bytes; the rest is not read.
    MediaTypeError
        The body is compressed.
    SilentError
        Nothing of it arrives for `SILENT` seconds, or fewer bytes a second than `SLOWEST`.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise MediaTypeError("send the body without Content-Encoding")
    require_small(size_of(request, 0), most, "a body")
    found = bytearray()
    parts = aiter(request.stream())
    clock = asyncio.get_running_loop().time
    end = clock() + SILENT
    while True:
        silent = clock() + SILENT
        slow = end + len(found) / SLOWEST
        try:
            async with asyncio.timeout_at(min(silent, slow)):
                part = await anext(parts, None)
        except TimeoutError:
            if silent <= slow:
                raise SilentError(f"nothing more of the body came for {SILENT:.0f} seconds") from None
            raise SilentError(f"the body comes slower than {SLOWEST} bytes a second") from None
        if part is None:
            return bytes(found).removeprefix(BOM_UTF8)  # Arrow's streams never begin so
        found += part
        require_small(len(found), most, "a body")


def size_of(request: Request, otherwise: int) -> int:
    """Return the bytes of a body by its header Content-Length, or `otherwise`."""
    told = request.headers.get("content-length", "")
    return int(told) if told.isdecimal() else otherwise


def require_small(size: int, most: int, what: str) -> None:
    """Raise `TooLargeError` if there are more bytes than `most`."""
    if size > most:
        raise TooLargeError(f"{what} has at most {most} bytes; send several")


def document(body: bytes, kind: type[_T], nesting: int) -> _T:
    """Return JSON as a type that msgspec knows.

    Raises
    ------
    NotJSONError
        The text is no JSON, or nests deeper than `nesting`.
    RequestError
        It is of another type.
    """
    if not body.strip():
        raise NotJSONError("the body is empty; send JSON")
    require_shallow(body, nesting)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise RequestError(_said(str(error), kind)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJSONError(f"this is not JSON: {error}") from None


def _said(message: str, kind: type) -> str:
    """Return what msgspec says of a wrong value with the field first, and the known fields of an object."""
    place, what = placed(message)
    if unknown := _UNKNOWN.fullmatch(what):
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(kind)) if not place else ""
        what = f"the field {unknown[1]!r} is unknown" + (f"; the fields are {known}" if known else "")
    return f"{place}: {what}" if place else what


def takes_long(kind: str, body: bytes) -> bool:
    """Return whether reading a body would block the event loop: an event with lists may mean a thousand."""
    return len(body) >= LARGE or kind == ARROW or b"[" in body or body.count(b"\n") >= MANY


def _events(kind: str, body: bytes, parse: Parse, nesting: int, stored: bool) -> Parsed:
    if kind == ARROW:
        found = arrow.table(body, MOST_EVENTS)
        columns = None if stored else parse.columns(found)
        return columns or parse.objects(arrow.rows(found), stored=stored)
    read = parse.lines if _is_lines(kind, body, nesting) else parse.one
    return read(body, stored)


def _is_lines(kind: str, body: bytes, nesting: int) -> bool:
    """Return whether a body is JSON lines; otherwise it is JSON. Its depth is checked before it is read."""
    if kind == JSON:
        require_shallow(body, nesting)
        return False
    if kind not in LINES:
        raise MediaTypeError(f"Content-Type is {kind or 'missing'}; send {JSON}, {LINES[0]} or {ARROW}")
    if len(body) > MOST_EVENTS and body.count(b"\n") + (not body.endswith(b"\n")) > MOST_EVENTS:
        raise TooLargeError(f"a request has at most {MOST_EVENTS} events; send several")
    require_shallow_lines(body, nesting)
    return True
