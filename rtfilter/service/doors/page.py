"""The page at `/`, for people; it asks the other doors for all that it shows."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from rtfilter import __version__
from rtfilter.service.doors import models
from rtfilter.service.doors.admission import identity
from rtfilter.service.doors.shared import Served
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.roles import ALL, Identity, Role

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The content security policy of the page: it may ask this server, and nothing else."""
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # browsers ask again each time, and get a file that has changed
}
FILES: Final = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""File and type by path. None of them has anything of the server's data."""


def _door(name: str, kind: str) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    content = (files("rtfilter.service") / "page" / name).read_bytes()
    headers = {**HEADERS, "etag": f'"{sha256(content).hexdigest()[:32]}"'}

    async def show(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)

    return show


async def watcher(request: Request, pipeline: Pipeline) -> Identity:
    """Return the identity of an admin who looks at the server; of anyone if it has no users."""
    if pipeline.users.open:
        return Identity("admin", ALL)
    who = await identity(pipeline.users, request)
    who.require(Role.ADMIN)
    return who


async def status(request: Request, response: Response, pipeline: Served) -> models.Status:
    """Return the present numbers, and counts that only rise. For admins, if the server has users."""
    who = await watcher(request, pipeline)
    response.headers["cache-control"] = "no-store"
    found = await pipeline.status.of_server(who)
    return models.Status(version=__version__, open=pipeline.users.open, ready=pipeline.ready, **found)


def doors() -> APIRouter:
    """Return the routes of the page, its files and its numbers."""
    router = APIRouter()
    for path, (name, kind) in FILES.items():
        router.add_api_route(path, _door(name, kind), methods=["GET"], include_in_schema=False)
    router.add_api_route("/status", status, methods=["GET"])
    return router
