"""The server as an ASGI application: the way of a request to its door, and its line in the log."""

from __future__ import annotations

import logging
import re
import time
from random import getrandbits
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from rtfilter.service.doors import event_doors, management, page, problems
from rtfilter.service.doors.admission import require_own_host
from rtfilter.service.doors.bodies import RequestLimits, Rooms, ServerParts
from rtfilter.service.doors.door import openapi
from rtfilter.service.doors.problems import HostError, OriginError
from rtfilter.service.doors.server_metrics import PipelineCollector
from rtfilter.service.doors.streamed import MOST_ANSWERS
from rtfilter.service.doors.websocket import session
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.webhooks import Webhooks

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


def application(
    pipeline: Pipeline, metrics: PipelineCollector, limits: RequestLimits, loopback: bool, webhooks: Webhooks
) -> ASGIApp:
    """Return the server as an ASGI application.

    It gives each request an id, for its answer and for all that is logged meanwhile: its own, by the header
    X-Request-Id, or a new one.

    Parameters
    ----------
    pipeline : Pipeline
        A pipeline that runs.
    metrics : PipelineCollector
    limits : RequestLimits
    loopback : bool
        True if the server answers only to names of this machine's loopback; see `require_own_host`.
    webhooks : Webhooks
    """
    site = ServerParts(pipeline, webhooks, metrics, limits, Rooms(limits.body), Rooms(MOST_ANSWERS))
    doors = (*event_doors.DOORS, *management.DOORS, *page.DOORS)
    document = openapi(doors)

    async def show_document(request: Request) -> Response:
        return JSONResponse(document)

    shown = Route("/openapi.json", show_document)
    router = Router([*doors, shown, WebSocketRoute("/session", session)], redirect_slashes=False)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        begun, status = time.perf_counter(), 0
        id = _given(scope) or b"%016x" % getrandbits(64)
        bind_contextvars(request=id.decode())
        scope["app"] = site

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] in _STARTS:
                status = message.get("status", 101)
                message["headers"] = [*message.get("headers", ()), (HEADER, id)]
            await send(message)

        try:
            require_own_host(Headers(scope=scope), loopback)
            await router(scope, receive, named)
        except (HostError, OriginError, HTTPException) as error:
            if isinstance(error, HTTPException) and error.status_code == 405:
                methods = {one.method for one in doors if one.path_regex.fullmatch(scope["path"])}
                error.headers = {"Allow": ", ".join(sorted(methods or {"GET"}))}
            await problems.answer(error, pipeline.measures)(scope, receive, named)
        finally:
            if scope["type"] == "http":
                _tell(scope, status, time.perf_counter() - begun)

    return answer


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
    told = {"status": status, "ms": round(1000 * seconds, 2)}
    if (who := scope["state"].get("who")) is not None:
        told["user"] = who.user
    _log.log(level, "%s %s", scope["method"], path, extra=told)
