"""The limits that uvicorn lacks: peers have bounds before they are known, and idle ones are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from math import inf
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

from rtfilter.service.doors.admission import Strangers, nobody
from rtfilter.service.doors.problems import HeadersError, MalformedError, describe
from rtfilter.service.errors import ServiceError
from rtfilter.service.measures import Door, Measures
from rtfilter.service.rounds import Rounds, Turn

SILENT: Final = 30.0
"""Seconds without a byte, in either direction; seconds for all headers, and for a body after its answer."""
MOST_HEADERS: Final = 64 * 2**10
"""Bytes of a request apart from its body: target, headers, trailers, and extensions of one chunk. A request
that begins within the data of another one may have as much again."""
PIECE: Final = 4 * 2**10
"""Bytes that are parsed at once, between two looks whether a turn is over: it may be a hundred requests."""
FRAMES: Final = 2 * 2**10
"""The same of a session: it may be hundreds of frames."""
MOST_OF_SESSION, LONGEST_LINE = 128, 8_000
"""Headers of a request for a session, and bytes of each, about as many as `websockets` reads."""
NO_SESSION: Final = (
    f"a request for a session has no body, and at most {MOST_OF_SESSION} headers, none of them long"
)
MOST_LINES: Final = 256
"""Headers of a request. A short header takes twenty times its size in memory."""
CLOSE_WITHIN: Final = 10.0
"""Seconds that the last bytes of a session may take."""


class _Flow(FlowControl):
    """Reads nothing while it is held, although uvicorn resumes reading for each request."""

    held = False

    def resume_reading(self) -> None:
        """Read on, if it is not held."""
        if not self.held:
            super().resume_reading()


class Http(HttpToolsProtocol):
    """HTTP, for peers that complete their requests in time and within `MOST_HEADERS`.

    Each request begins at its turn, and what strangers send is parsed at theirs. While requests wait for the
    answer to an earlier one, no more are read. Nobody reads trailers, so they are dropped: a trailer is no
    header, and may not change one.

    Parameters
    ----------
    measures : Measures
    rounds : Rounds
    strangers : Strangers
    given, more
        As of uvicorn.
    """

    def __init__(
        self, measures: Measures, rounds: Rounds, strangers: Strangers, *given: Any, **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self._measures, self._rounds, self._strangers = measures, rounds, strangers
        self._counted = False
        self._know: Callable[[], object] = nobody

    def connection_made(self, transport: Any) -> None:
        """Begin to watch."""
        super().connection_made(transport)
        self._know = _admitted(self, "http")
        self._strange = True  # until a request says who it is
        self.flow: _Flow = _Flow(transport)
        self._rest = b""  # what is not parsed yet, while requests or others wait
        self._waits = False  # for its turn
        self._upgrades = False  # what comes meanwhile is nobody's
        self._measures.connections["http"] += 1
        self._counted = True
        self._heard, self._before = 0, (0, 0)
        self._beside = self._head = 0  # bytes beside the body, and those of the headers among them
        self._headed = self._many = False  # whether all headers have come, and whether too many
        self._owed: float | None = self.loop.time()  # since when the peer owes headers, or the end of a body
        self._timer = self.loop.call_later(SILENT, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        super().connection_lost(exc)
        self._rest = b""
        for cycle, _ in self.pipeline:  # or these would stay until Python looks for garbage
            cycle.on_response = nobody
        self.pipeline.clear()
        self._leave()

    def handle_websocket_upgrade(self) -> None:
        """It becomes a session at its turn, unless `websockets` cannot read the request."""
        if self.scope["method"] != "GET" or len(self.headers) > MOST_OF_SESSION or self._has_long_line:
            self._refuse(MalformedError(NO_SESSION))
            return
        self._upgrades = True
        self.flow.pause_reading()
        self._rounds.join(self._become_session, _address(self))

    @property
    def _has_long_line(self) -> bool:
        return max(len(self.url), *(len(name) + len(value) for name, value in self.headers)) > LONGEST_LINE

    def _become_session(self) -> None:
        if not self._counted or self.transport.is_closing():
            return
        self._know()  # the session counts from here on
        super().handle_websocket_upgrade()
        self._leave()
        session = self.transport.get_protocol()
        if not (isinstance(session, WebSocketsSansIOProtocol) and session.handshake_initiated):
            self._refuse(MalformedError(NO_SESSION))
        else:
            self.flow.resume_reading()

    def _leave(self) -> None:
        self._measures.connections["http"] -= self._counted
        self._counted = False
        self._timer.cancel()  # or it would keep what the connection holds
        self._know()

    def data_received(self, data: bytes) -> None:
        """Parse data, or keep it while requests wait."""
        self._heard += 1
        if self._upgrades:
            return
        if not self._headed:
            self._owe()
        self._rest += data
        if self._strange:
            self._take_turn()
        elif not self._waits:
            self._parse()

    def _take_turn(self) -> None:
        """Parse more when others had their turns."""
        if not self._waits:
            self._waits = self.flow.held = True
            self.flow.pause_reading()
            self._rounds.join(self._go_on, _address(self))

    def _parse(self) -> None:
        """Parse what is there, in pieces that cannot exceed the bounds by much, for one turn."""
        turn = Turn(self._rounds)
        rest, self._rest = memoryview(self._rest), b""
        while rest and not self.pipeline:
            piece = rest[: min(PIECE, MOST_HEADERS + 1 - self._beside)]
            rest = rest[len(piece) :]
            self._beside += len(piece)  # the callbacks below subtract the body
            super().data_received(piece)  # type: ignore[arg-type]  # httptools takes any buffer
            if self._beside > MOST_HEADERS:
                self._refuse(HeadersError(f"headers and trailers have at most {MOST_HEADERS} bytes"))
            if self._upgrades or self.transport.is_closing():
                return
            if turn.over and rest:
                self._take_turn()
                break
        self._rest, self.flow.held = bytes(rest), bool(self.pipeline) or self._waits
        if self.flow.held:
            self.flow.pause_reading()

    def _go_on(self) -> None:
        """Parse more: it has its turn, or what others waited for is answered."""
        self._waits = self.flow.held = False
        if self._counted and not self.transport.is_closing():
            self.flow.resume_reading()
            self._parse()  # which pauses where a body waits to be taken

    def _start_asgi_task(self, *given: Any) -> None:
        self._rounds.join(partial(super()._start_asgi_task, *given), _address(self))

    def on_message_begin(self) -> None:
        """A request begins."""
        self._owe()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        if self._headed:
            return
        if len(self.headers) >= MOST_LINES:
            self._many = True
            raise ValueError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """All headers have come."""
        before, self._headed = self.cycle, True
        self._head = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        super().on_headers_complete()
        if self.cycle is not before:  # otherwise it becomes a session, and nobody reads a body
            self._owed = None

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._beside = max(self._head, self._beside - len(body))
        super().on_body(body)

    def on_chunk_complete(self) -> None:
        """A chunk ends. The size of a chunk costs nothing: a body may have as many as it has bytes."""
        self._beside = self._head

    def on_message_complete(self) -> None:
        """A request ends."""
        self._beside, self._head, self._headed, self._owed = 0, 0, False, None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer ends, perhaps before its request does."""
        super().on_response_complete()
        if "who" in self.cycle.scope["state"]:
            self._strange = False
            self._know()
        if self.flow.held and not self.pipeline and not self._waits:
            self._go_on()
        if self._headed and self.cycle.response_complete:
            self._owe()

    def _owe(self) -> None:
        if self._owed is None:
            self._owed = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        """Say that this is no HTTP, or has too many headers."""
        if self._many:
            self._refuse(HeadersError(f"a request has at most {MOST_LINES} headers"))
        else:
            self._refuse(MalformedError("this is no request of HTTP/1.1"))

    def _refuse(self, error: ServiceError) -> None:
        if self.transport.is_closing():
            return
        self._measures.refuse("http", error.kind)
        if self._answering():
            self.transport.close()
            return
        document = describe(error).response()
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nconnection: close\r\n"
        lines = b"".join(b"%s: %s\r\n" % one for one in document.raw_headers)
        self.transport.write(head.encode() + lines + b"\r\n" + bytes(document.body))
        self.transport.close()

    def _answering(self) -> bool:
        """Return whether another answer has begun, or is to come first."""
        cycle = self.cycle
        if cycle is None:
            return False
        if self._headed:
            return cycle.response_started or bool(self.pipeline)
        return not cycle.response_complete

    def _look(self) -> None:
        """Close the connection of a peer that is too slow, or does nothing."""
        unsent, cycle = self.transport.get_write_buffer_size(), self.cycle
        ours = slow = False
        if not self.transport.is_closing():
            answered = cycle is None or cycle.response_complete
            ours = not unsent and (self.flow.held or not (answered or cycle.more_body))
            slow = not self.flow.held and self._owed is not None and self.loop.time() - self._owed >= SILENT
        if slow or (not ours and self._before == (self._heard, unsent)):
            self.transport.abort()
            return
        self._before = self._heard, unsent
        self._timer = self.loop.call_later(SILENT, self._look)


def _address(peer: Http | Sessions) -> str:
    """The address of a peer; a socket of this machine has none."""
    return peer.client[0] if peer.client else ""


def _admitted(peer: Http | Sessions, door: Door) -> Callable[[], object]:
    """Count a peer; returns what to call once it is known. One too many is cut off."""
    if peer.client is None:  # a socket of this machine has no address
        return nobody
    known = peer._strangers.come_over_http(peer.client[0])
    if known is None:
        peer._measures.refuse(door, "limit")
        peer.transport.abort()
    return known or nobody


STRAIGHT: Final = "rtfilter.straight"
"""Of a session's scope, the extension that is `Sessions.straight`."""
KNOWN: Final = "rtfilter.known"
"""The same, `Sessions.know`."""
STRANGE: Final = 64 * 2**10
"""Bytes, with their frames, that a peer may send before it is known who it is; also over TCP."""
STRANGE_FRAMES: Final = 100
"""Frames of these."""
MUCH: Final = f"before CONNECT, at most {STRANGE} bytes and {STRANGE_FRAMES} frames may come"


class Sessions(WebSocketsSansIOProtocol):
    """WebSocket, for peers that say soon who they are, and take what they are sent.

    Frames are parsed in turns, and no further than the session takes messages and the peer takes answers.

    Parameters
    ----------
    measures : Measures
    rounds : Rounds
    strangers : Strangers
    given, more
        As of uvicorn.
    """

    def __init__(
        self, measures: Measures, rounds: Rounds, strangers: Strangers, *given: Any, **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self._measures, self._rounds, self._strangers = measures, rounds, strangers
        self._known: Callable[[], object] = nobody
        self.scope: Any = {"extensions": {}}  # until there is one
        self._rest = bytearray()  # what is not parsed yet
        self._waits = False  # for its turn
        self._bytes, self._frames = float(STRANGE), float(STRANGE_FRAMES)  # that may come

    def connection_made(self, transport: Any) -> None:
        """Count it."""
        super().connection_made(transport)
        self._known = _admitted(self, "websocket")

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over; what it would hold until Python looks for garbage goes now."""
        super().connection_lost(exc)
        self.know()
        self._rest.clear()
        self.frames = []
        self.scope["extensions"].clear()

    def know(self) -> None:
        """It is known who the peer is, or it is gone."""
        self._bytes = self._frames = inf
        self._known()

    def data_received(self, data: bytes) -> None:
        """Parse frames, or keep them until the session and the peer can go on."""
        self._rest += data
        self._parse()

    def _parse(self) -> None:
        """Parse what is there for one turn, unless a message waits to be taken, or an answer."""
        if self._waits:
            return
        turn = Turn(self._rounds)
        while self._rest and self._may_parse:
            piece = bytes(self._rest[:FRAMES] if self.handshake_initiated else self._rest)
            del self._rest[: len(piece)]
            self._bytes -= len(piece) * self.handshake_initiated
            super().data_received(piece)
            if min(self._bytes, self._frames) < 0:
                self._refuse()
            if self.transport.is_closing():
                self._rest.clear()
                return
            if turn.over:
                break
        if not self._rest and self._may_parse:
            self.transport.resume_reading()
            return
        self.transport.pause_reading()
        if self._may_parse:
            self._take_turn()

    def _take_turn(self) -> None:
        """Parse more when others had their turns."""
        if not self._waits:
            self._waits = True
            self._rounds.join(self._go_on, _address(self))

    @property
    def _may_parse(self) -> bool:
        return not self.read_paused and self.writable.is_set()

    def _go_on(self) -> None:
        self._waits = False
        if not self.transport.is_closing():
            self._parse()

    def handle_events(self) -> None:
        """Count frames."""
        self._frames -= len(self.conn.events)
        super().handle_events()

    def _refuse(self) -> None:
        """Close the connection of a peer that sends much, and does not say who it is."""
        self._measures.refuse("websocket", "too-large")
        if self.conn.state is not State.OPEN:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.conn.fail(1008, MUCH)
            self.handle_parser_exception()

    async def receive(self) -> Any:
        """A message for the session; then others may come."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._take_turn()
        return message

    def resume_writing(self) -> None:
        """The peer takes answers again."""
        super().resume_writing()
        self._take_turn()

    def handle_connect(self, event: Request) -> None:
        """A session begins, if it may."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[STRAIGHT], extensions[KNOWN] = self.straight, self.know

    def straight(self, messages: Sequence[bytes]) -> bool:
        """Send messages at once, as text, without a step of ASGI for each, which takes three times as long.

        Returns False, and sends none, where the peer has much to take already or is gone.
        """
        open = self.conn.state is State.OPEN and not self.transport.is_closing()
        if not open or not self.writable.is_set():
            return False
        for message in messages:
            self.conn.send_text(message)
        self.transport.write(b"".join(self.conn.data_to_send()))
        return True

    def shutdown(self) -> None:
        """End with the server, also where the peer has just begun to end."""
        if self.handshake_complete and self.conn.state is not State.OPEN:
            self.transport.close()  # uvicorn would say that it ends, which it may no more
            return
        super().shutdown()

    async def send(self, message: Any) -> None:
        """Send, and note that an answer which refuses a session completes its handshake, too."""
        await super().send(message)
        if message["type"] == "websocket.close":
            self._take_turn()  # the peer's answer to it may be there
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def keepalive_timeout(self) -> None:
        """The peer answers no ping; it may take no bytes either."""
        super().keepalive_timeout()
        self.loop.call_later(CLOSE_WITHIN, self.transport.abort)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The session is over."""
        super().on_task_complete(task)
        self.loop.call_later(CLOSE_WITHIN, self.transport.abort)
