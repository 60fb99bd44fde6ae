"""The short way to the doors on the path of events, without FastAPI's work for all others."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from rtfilter.service.doors import problems
from rtfilter.service.doors.shared import QuickDoor

_PATH: Final = re.compile(r"/filters/([^/]+)(/[a-z]+)")
_OF_ONE: Final = "/filters/{filter}"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Quick:
    """Answers requests for a `QuickDoor`, and passes all others on.

    Parameters
    ----------
    app : ASGI application
        It has these doors, too, and documents them.
    routes : iterable of BaseRoute
        The routes of the application.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._doors: dict[str, Handler] = {}
        for route in routes:
            if isinstance(route, QuickDoor):
                assert route.methods == {"POST"}
                self._doors[route.path.removeprefix(_OF_ONE)] = route.get_route_handler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None or scope["method"] != "POST" or found[2] not in self._doors:
            await self._app(scope, receive, send)
            return
        scope["app"], scope["path_params"] = self._app, {"filter": found[1]}
        request = Request(scope, receive)
        try:
            response = await self._doors[found[2]](request)
        except Exception as error:
            told = await problems.answer(request, error)
            await told(scope, receive, send)
            if not isinstance(error, problems.EXPECTED):
                raise  # so that the log has it
        else:
            await response(scope, receive, send)
