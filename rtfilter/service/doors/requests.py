"""An id for each request, in its answer and in all that is logged meanwhile; and its line in the log."""

from __future__ import annotations

import logging
import re
import time
from random import getrandbits
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

HEADER: Final = b"x-request-id"
QUIET: Final = (
    "/events",
    "/match",
    "/deliveries",
    "/acknowledgements",
    "/statistics",
    "/status",
    "/healthz",
    "/readyz",
    "/metrics",
)
"""Ends of frequent paths: a good answer there is logged at the level DEBUG only."""
MOST_PATH: Final = 200
"""Characters of a path that are logged."""
_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_STARTS: Final = ("http.response.start", "websocket.accept", "websocket.http.response.start")
_log = logging.getLogger(__name__)


class Requests:
    """Gives each request an id: its own, by the header X-Request-Id, or a new one.

    Parameters
    ----------
    app : ASGI application
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log its outcome."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0
        id = _given(scope) or b"%016x" % getrandbits(64)
        bind_contextvars(request=id.decode())

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] in _STARTS:
                status = message.get("status", 101)
                message["headers"] = [*message.get("headers", ()), (HEADER, id)]
            await send(message)

        try:
            await self._app(scope, receive, named)
        finally:
            if scope["type"] == "http":
                _tell(scope, status, time.perf_counter() - begun)


def _given(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == HEADER:
            return value if _ID.fullmatch(value) else None
    return None


def _tell(scope: Scope, status: int, seconds: float) -> None:
    """Log a request: no query, no headers and no body, which may be secret. 0 is no answer at all."""
    good = 0 < status < 400
    level = logging.DEBUG if good and scope["path"].endswith(QUIET) else logging.INFO
    if not _log.isEnabledFor(level):
        return
    path = scope.get("raw_path", b"")[:MOST_PATH].decode("ascii", "backslashreplace")
    who = scope.get("state", {}).get("who")
    told = {"status": status, "ms": round(1000 * seconds, 2)}
    if who is not None:
        told["user"] = who.user
    _log.log(level, "%s %s", scope["method"], path, extra=told)
