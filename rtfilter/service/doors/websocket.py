"""The door of sessions over WebSocket: each message one directive."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect
from structlog.contextvars import bind_contextvars

from rtfilter.basics.session_states import State
from rtfilter.service.conversation import Conversation
from rtfilter.service.doors.timeouts import KNOWN, STRAIGHT

CONNECT_WITHIN: Final = 10.0
"""Seconds until a peer must have authenticated, without the time that the server takes for the check."""
SEND_WITHIN: Final = 30.0
"""Seconds in which a peer must take a message."""
POLICY: Final = 1008
"""The close code of WebSocket for a violated policy."""


class _Closed(Exception):  # noqa: N818  # it is no error
    """The end of a session, with a reason if the peer must know it."""

    def __init__(self, reason: str = "", code: int = 1000) -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


async def session(socket: WebSocket) -> None:
    """Serve a session until the peer or the server ends it."""
    await socket.accept()
    site = socket.app
    conversation = Conversation(site.pipeline, site.limits.nesting, "websocket")
    straight = socket.scope.get("extensions", {}).get(STRAIGHT)
    conversation.meet(socket.client.host if socket.client else "", straight)
    bind_contextvars(connection=conversation.id)
    works = [asyncio.create_task(work(socket, conversation)) for work in (_hear, _say)]
    try:
        done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        with suppress(WebSocketDisconnect, TimeoutError, RuntimeError):  # gone, or it takes nothing
            await _end(socket, done)
    except asyncio.CancelledError:
        pass  # by the server, which ends: uvicorn would log an error
    finally:
        conversation.lost()
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


async def _end(socket: WebSocket, done: set[asyncio.Task[None]]) -> None:
    for work in done:
        try:
            work.result()
        except _Closed as closed:
            async with asyncio.timeout(1):
                await socket.close(closed.code, closed.reason)
            return


async def _hear(socket: WebSocket, conversation: Conversation) -> None:
    clock, left = asyncio.get_running_loop().time, CONNECT_WITHIN
    known = socket.scope.get("extensions", {}).get(KNOWN, lambda: None)
    try:
        async with asyncio.timeout(left) as timeout:
            while True:
                await conversation.room()
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    raise WebSocketDisconnect(message["code"])
                end = timeout.when()
                if end is not None:
                    left = end - clock()
                    timeout.reschedule(None)
                said = message.get("text") or message.get("bytes") or b""
                conversation.turn.begin()
                await conversation.turn.pause(len(said))
                await conversation.hear(said)
                if conversation.state is State.PRE_CONNECTED:
                    timeout.reschedule(clock() + left)
                elif end is not None:
                    known()
    except TimeoutError:
        conversation.refused("unauthenticated")
        raise _Closed(f"send CONNECT within {CONNECT_WITHIN:.0f} seconds", POLICY) from None


async def _say(socket: WebSocket, conversation: Conversation) -> None:
    while True:
        for message in await conversation.unsent():
            if message is None:
                raise _Closed
            async with asyncio.timeout(SEND_WITHIN):
                await socket.send_text(message.decode())
        conversation.sent()
