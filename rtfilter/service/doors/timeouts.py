"""The limits that uvicorn lacks: bounds for unauthenticated peers, and the end of idle connections."""

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
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

from rtfilter.basics.sockets import network
from rtfilter.service.concurrency import Rounds, Turn
from rtfilter.service.doors import problems
from rtfilter.service.doors.admission import Strangers, nobody
from rtfilter.service.doors.problems import HeadersError, MalformedError
from rtfilter.service.measures import Door, Measures
from rtfilter.service.service_errors import ServiceError

SILENT: Final = 30.0
"""Seconds without a byte, in either direction; seconds for all headers, and for a body after its answer."""
MOST_HEADERS: Final = 64 * 2**10
"""Bytes of a request apart from its body: target, headers, trailers, and extensions of one chunk. A request
that begins within the data of another one may have as much again."""
PIECE: Final = 4 * 2**10
"""Bytes of a body that are parsed between two checks of the turn."""
HEADS: Final = 512
"""The same of headers: they may hold ten requests, which wait as objects."""
FRAMES: Final = 2 * 2**10
"""The same for a session: they may hold hundreds of frames."""
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
    """Reads nothing while `held` is set, although uvicorn resumes reading for each request."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class _Admitted:
    """The part of a connection's protocol that HTTP and WebSocket share: its turns, and its admission.

    Parameters
    ----------
    measures, rounds, strangers
    given, more
        See uvicorn.
    """

    client: tuple[str, int] | None
    transport: asyncio.Transport

    def __init__(
        self, measures: Measures, rounds: Rounds, strangers: Strangers, *given: Any, **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self._measures, self._rounds, self._strangers = measures, rounds, strangers
        self._know: Callable[[], object] = nobody  # the function to call after authentication
        self._waits = False  # for its turn

    @property
    def _address(self) -> str:
        """The address of the peer, or its network; empty for a socket of this machine, which has none."""
        return network(self.client[0]) if self.client else ""

    def _admit(self, door: Door) -> None:
        """Count the peer, or close one too many."""
        known = self._strangers.come_over_http(self.client[0]) if self.client else nobody
        if known is None:
            self._measures.refuse(door, "limit")
            self.transport.abort()
        self._know = known or nobody


class Http(_Admitted, HttpToolsProtocol):
    """HTTP, for peers that complete their requests in time and within `MOST_HEADERS`.

    Each request begins at its turn, and bytes of unauthenticated peers are parsed in turns, too. While
    requests wait for the answer to an earlier one, no more are read. Trailers are dropped: a trailer is no
    header, and may not change one.
    """

    _counted = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._admit("http")
        self._strange = True  # until it counts for the user of a request
        self.flow: _Flow = _Flow(transport)
        self._rest = b""  # bytes that are not parsed yet
        self._upgrades = False  # the session has not begun; bytes are dropped
        self._measures.connections["http"] += 1
        self._counted = True
        self._heard, self._before = 0, (0, 0)
        self._beside = self._head = 0  # bytes beside the body, and those of the headers among them
        self._headed = self._many = False  # whether all headers have come, and whether too many
        self._owed: float | None = self.loop.time()  # since when the peer owes headers, or the end of a body
        self._timer = self.loop.call_later(SILENT, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the bytes and the place of a closed connection."""
        super().connection_lost(exc)
        self._rest = b""
        for cycle, _ in self.pipeline:  # or these would stay until Python looks for garbage
            cycle.on_response = nobody
        self.pipeline.clear()
        self._leave()

    def handle_websocket_upgrade(self) -> None:
        """Begin a session at the connection's turn; refuse a request that `websockets` cannot read."""
        if self.scope["method"] != "GET" or len(self.headers) > MOST_OF_SESSION or self._has_long_line:
            self._refuse(MalformedError(NO_SESSION))
            return
        self._upgrades = True
        self.flow.pause_reading()
        self._rounds.join(self._become_session, self._address)

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
        """Parse data, or store it while requests wait."""
        self._heard += 1
        if self._upgrades:
            return
        if not self._headed:
            self._owe()
        self._rest += data
        if self._strange or len(self._rest) > PIECE:
            self._take_turn()
        elif not self._waits:
            self._parse()

    def _take_turn(self) -> None:
        """Continue to parse at the next turn."""
        if not self._waits:
            self._waits = self.flow.held = True
            self.flow.pause_reading()
            self._rounds.join(self._go_on, self._address)

    def _parse(self) -> None:
        """Parse received bytes for one turn, in pieces that cannot exceed the bounds by much."""
        turn = Turn(self._rounds)
        rest, self._rest = memoryview(self._rest), b""
        while rest and not self.pipeline:
            piece = rest[: min(PIECE if self._headed else HEADS, MOST_HEADERS + 1 - self._beside)]
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
        """Continue to parse: the turn has come, or the earlier request is answered."""
        self._waits = self.flow.held = False
        if self._counted and not self.transport.is_closing():
            self.flow.resume_reading()
            self._parse()  # which pauses where a body waits to be taken

    def _start_asgi_task(self, *given: Any) -> None:
        self._rounds.join(partial(super()._start_asgi_task, *given), self._address)

    def on_message_begin(self) -> None:
        self._owe()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; raises `ValueError` above `MOST_LINES`."""
        if self._headed:
            return
        if len(self.headers) >= MOST_LINES:
            self._many = True
            raise ValueError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Count the bytes of the headers, and end their timeout."""
        before, self._headed = self.cycle, True
        self._head = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        super().on_headers_complete()
        if self.cycle is not before:  # otherwise it becomes a session, without a body
            self._owed = None

    def on_body(self, body: bytes) -> None:
        """Add a part of the body, and subtract it from the counted bytes."""
        self._beside = max(self._head, self._beside - len(body))
        super().on_body(body)

    def on_chunk_complete(self) -> None:
        """Count nothing for the size of a chunk: a body may have as many chunks as bytes."""
        self._beside = self._head

    def on_message_complete(self) -> None:
        self._beside, self._head, self._headed, self._owed = 0, 0, False, None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue after an answer, which may end before its request does."""
        super().on_response_complete()
        who = self.cycle.scope["state"].get("who")
        if who is not None and self._strange:
            self._become_known(who.user)
        if self.flow.held and not self.pipeline and not self._waits:
            self._go_on()
        if self._headed and self.cycle.response_complete:
            self._owe()

    def _become_known(self, user: str) -> None:
        """Count for a user from here on, unless too many others do."""
        known = nobody if self._know is nobody else self._strangers.know(user)
        if known is not None:
            self._know()
            self._know, self._strange = known, False

    def _owe(self) -> None:
        if self._owed is None:
            self._owed = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        """Answer that the bytes are no HTTP, or have too many headers."""
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
        document = problems.response(error)
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


STRAIGHT: Final = "rtfilter.straight"
"""Name of `Sessions.straight` among the extensions of a session's scope."""
KNOWN: Final = "rtfilter.known"
"""Name of `Sessions.know` there."""
STRANGE: Final = 64 * 2**10
"""Most bytes, with their frames, of an unauthenticated peer; also over TCP."""
STRANGE_FRAMES: Final = 100
"""Most frames of an unauthenticated peer."""
MUCH: Final = f"before CONNECT, at most {STRANGE} bytes and {STRANGE_FRAMES} frames may come"


class Sessions(_Admitted, WebSocketsSansIOProtocol):
    """WebSocket, for peers that authenticate soon, and read their messages.

    Frames are parsed in turns, and no further than the session takes messages and the peer takes answers.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.scope: Any = {"extensions": {}}  # until there is one
        self._rest = bytearray()  # what is not parsed yet
        self._bytes, self._frames = float(STRANGE), float(STRANGE_FRAMES)  # that may come

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._admit("websocket")

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the memory of a closed connection now, not at the next garbage collection."""
        super().connection_lost(exc)
        self.know()
        self._rest.clear()
        self.frames = []
        self.scope["extensions"].clear()

    def know(self) -> None:
        """Lift the bounds of a peer that has authenticated or gone."""
        self._bytes = self._frames = inf
        self._know()

    def data_received(self, data: bytes) -> None:
        """Parse frames, or store them until the session and the peer are ready; many wait for a turn."""
        self._rest += data
        if len(self._rest) > FRAMES and self._may_parse:
            self.transport.pause_reading()
            self._take_turn()
        else:
            self._parse()

    def _parse(self) -> None:
        """Parse received frames for one turn, unless a message or an answer waits."""
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
        """Continue to parse at the next turn."""
        if not self._waits:
            self._waits = True
            self._rounds.join(self._go_on, self._address)

    @property
    def _may_parse(self) -> bool:
        return not self.read_paused and self.writable.is_set()

    def _go_on(self) -> None:
        self._waits = False
        if not self.transport.is_closing():
            self._parse()

    def handle_events(self) -> None:
        self._frames -= len(self.conn.events)
        super().handle_events()

    def handle_cont(self, event: Frame) -> None:
        """Join the fragments of a message as they come: empty ones may come without end."""
        begun: Any = self.frames[0]
        if not isinstance(begun, bytearray):
            begun = bytearray(begun)
        begun += event.data
        self.frames = [bytes(begun) if event.fin else begun]
        if event.fin:
            self.send_receive_event_to_app()

    def _refuse(self) -> None:
        """Close the connection of an unauthenticated peer that exceeds a bound."""
        self._measures.refuse("websocket", "too-large")
        if self.conn.state is not State.OPEN:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.conn.fail(1008, MUCH)
            self.handle_parser_exception()

    async def receive(self) -> Any:
        """Return a message for the session; continue to parse if none is left."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._take_turn()
        return message

    def resume_writing(self) -> None:
        """Continue to parse: the peer reads answers again."""
        super().resume_writing()
        self._take_turn()

    def handle_connect(self, event: Request) -> None:
        """Begin a session, unless it is refused, and set its extensions."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[STRAIGHT], extensions[KNOWN] = self.straight, self.know

    def straight(self, messages: Sequence[bytes]) -> bool:
        """Send messages at once, as text, without a step of ASGI for each, which takes three times as long.

        Returns False, and sends none, if much waits for the peer already, or the peer has gone.
        """
        open = self.conn.state is State.OPEN and not self.transport.is_closing()
        if not open or not self.writable.is_set():
            return False
        for message in messages:
            self.conn.send_text(message)
        self.transport.write(b"".join(self.conn.data_to_send()))
        return True

    def shutdown(self) -> None:
        """Close the session when the server ends, also if the peer has begun to close it."""
        if self.handshake_complete and self.conn.state is not State.OPEN:
            self.transport.close()  # uvicorn would send a second close, which is an error
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
        """Close the session of a peer that answers no ping; it may read no bytes either."""
        super().keepalive_timeout()
        self.loop.call_later(CLOSE_WITHIN, self.transport.abort)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Close the connection of an ended session, within `CLOSE_WITHIN` seconds."""
        super().on_task_complete(task)
        self.loop.call_later(CLOSE_WITHIN, self.transport.abort)
