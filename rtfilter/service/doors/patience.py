"""What uvicorn leaves open: peers that send nothing, take nothing, or send headers without end are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import State

from rtfilter.service.doors.problems import HeadersError, MalformedError, told
from rtfilter.service.errors import ServiceError
from rtfilter.service.measures import Measures

SILENT: Final = 30.0
"""Seconds without a byte, in either way, that a peer is waited for; and until all headers have come."""
MOST_HEADERS: Final = 64 * 2**10
"""Bytes of the headers of a request, about."""
CLOSE_WITHIN: Final = 10.0
"""Seconds that the last bytes of a session may take."""


class Http(HttpToolsProtocol):
    """HTTP, for peers that go on with what they began.

    Parameters
    ----------
    measures : Measures
    given, more
        As of uvicorn.
    """

    def __init__(self, measures: Measures, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._measures, self._counted = measures, False

    def connection_made(self, transport: Any) -> None:
        """Begin to watch."""
        super().connection_made(transport)
        self._measures.connections["http"] += 1
        self._counted = True
        self._heard, self._before, self._headers = 0, (0, 0), 0
        self._begun = self.loop.time()
        self.loop.call_later(SILENT, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        super().connection_lost(exc)
        self._leave()

    def handle_websocket_upgrade(self) -> None:
        """It becomes a session."""
        super().handle_websocket_upgrade()
        self._leave()

    def _leave(self) -> None:
        self._measures.connections["http"] -= self._counted
        self._counted = False

    def data_received(self, data: bytes) -> None:
        """Take note of it."""
        self._heard += 1
        super().data_received(data)
        if self._headers >= 0:
            self._headers += len(data)
            if self._headers > MOST_HEADERS:
                self._refuse(HeadersError(f"headers have at most {MOST_HEADERS} bytes"))

    def on_message_begin(self) -> None:
        """Headers begin."""
        self._headers, self._begun = 0, self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Headers have come."""
        self._headers = -1
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Say that this is no HTTP."""
        self._refuse(MalformedError("this is no request of HTTP/1.1"))

    def _refuse(self, error: ServiceError) -> None:
        if self.transport.is_closing():
            return
        self._measures.refuse("http", error.kind)
        document = told(error).response()
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nconnection: close\r\n"
        lines = b"".join(b"%s: %s\r\n" % one for one in document.raw_headers)
        self.transport.write(head.encode() + lines + b"\r\n" + bytes(document.body))
        self.transport.close()

    def _look(self) -> None:
        transport = self.transport
        if transport.is_closing() or transport.get_protocol() is not self:  # or it is a session by now
            return
        unsent = transport.get_write_buffer_size()
        cycle = self.cycle
        ours = cycle is not None and not cycle.response_complete and not cycle.more_body and not unsent
        slow = self._headers >= 0 and self.loop.time() - self._begun >= SILENT
        if slow or (not ours and self._before == (self._heard, unsent)):
            transport.abort()
            return
        self._before = self._heard, unsent
        self.loop.call_later(SILENT, self._look)


STRAIGHT: Final = "rtfilter.straight"
"""Of a session's scope, the extension that is `Sessions.straight`."""


class Sessions(WebSocketsSansIOProtocol):
    """WebSocket, without waiting for ever for a peer to take the last bytes."""

    def handle_connect(self, event: Request) -> None:
        """A session begins, if it may."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[STRAIGHT] = self.straight

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

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The session is over."""
        super().on_task_complete(task)
        self.loop.call_later(CLOSE_WITHIN, self.transport.abort)
