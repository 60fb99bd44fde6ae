"""What uvicorn leaves open: connections of peers that send nothing, or take nothing, are closed."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

SILENT: Final = 30.0
"""Seconds without a byte, in either way, that a peer is waited for."""
CLOSE_WITHIN: Final = 10.0
"""Seconds that the last bytes of a session may take."""


class Http(HttpToolsProtocol):
    """HTTP, for peers that go on with what they began."""

    def connection_made(self, transport: Any) -> None:
        """Begin to watch."""
        super().connection_made(transport)
        self._heard, self._before = 0, (0, 0)
        self.loop.call_later(SILENT, self._look)

    def data_received(self, data: bytes) -> None:
        """Take note of it."""
        self._heard += 1
        super().data_received(data)

    def _look(self) -> None:
        transport = self.transport
        if transport.is_closing() or transport.get_protocol() is not self:  # or it is a session by now
            return
        unsent = transport.get_write_buffer_size()
        cycle = self.cycle
        ours = cycle is not None and not cycle.response_complete and not cycle.more_body and not unsent
        if not ours and self._before == (self._heard, unsent):
            transport.abort()
            return
        self._before = self._heard, unsent
        self.loop.call_later(SILENT, self._look)


class Sessions(WebSocketsSansIOProtocol):
    """WebSocket, without waiting for ever for a peer to take the last bytes."""

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The session is over."""
        super().on_task_complete(task)
        self.loop.call_later(CLOSE_WITHIN, self.transport.abort)
