"""The doors for people and for monitoring: the page at `/`, the state of the server, and its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

from rtfilter.service.doors.admission import identity
from rtfilter.service.doors.bodies import JSON, Call
from rtfilter.service.doors.door import Door
from rtfilter.service.roles import ALL, Identity, Role
from rtfilter.service.sites.shown import SiteShown
from rtfilter.service.status import Status

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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


class Health(msgspec.Struct):
    """The state of the server."""

    status: Literal["ok", "starting", "standby", "busy", "stopping", "failed"]


def _file(name: str, kind: str) -> Callable[[Call], Awaitable[Response]]:
    content = (files("rtfilter.service") / "page" / name).read_bytes()
    headers = {**HEADERS, "etag": f'"{sha256(content).hexdigest()[:32]}"'}

    async def show(call: Call) -> Response:
        if call.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)

    return show


async def _watcher(call: Call, role: Role = Role.ADMIN) -> Identity:
    """Return the identity of an admin, or of a user with the role; of anyone if the server has no users."""
    users = call.pipeline.users
    if users.open:
        return Identity("admin", ALL)
    who = await identity(users, call)
    who.require(role)
    return who


async def status(call: Call) -> Response:
    """Return the present numbers, and counts that only rise. For admins, if the server has users."""
    pipeline = call.pipeline
    standby, site = pipeline.standby is not None, pipeline.site and pipeline.site.shown
    found = await pipeline.status.of_server(await _watcher(call), pipeline.ready, standby, site)
    return Response(msgspec.json.encode(found), headers={"cache-control": "no-store"}, media_type=JSON)


async def site(call: Call) -> Any:
    """Return the place of this server among the sites of its network. For admins and other sites."""
    await _watcher(call, Role.SITE)
    return call.pipeline.require_site().shown


async def health(call: Call) -> Response:
    """Return whether the server works."""
    return _state("ok" if call.pipeline.healthy else "failed")


async def ready(call: Call) -> Response:
    """Return whether the start is complete and the database answers."""
    pipeline = call.pipeline
    if pipeline.stopping:
        return _state("stopping")
    if pipeline.standby is not None:
        return _state("standby")
    if pipeline.stuck:
        return _state("busy")
    return _state("ok" if pipeline.ready else "starting" if pipeline.healthy else "failed")


def _state(status: Literal["ok", "starting", "standby", "busy", "stopping", "failed"]) -> Response:
    return Response(msgspec.json.encode(Health(status)), 200 if status == "ok" else 503, media_type=JSON)


async def metrics(call: Call) -> Response:
    """Return the metrics for Prometheus. If the server has users, only admins may read them."""
    await _watcher(call)
    return Response(await call.site.metrics.text(), media_type=CONTENT_TYPE_LATEST)


DOORS: Final = (
    *(
        Door(method, path, show, answers={200: Health}, open=True, documented=method == "GET")
        for path, show in (("/healthz", health), ("/readyz", ready))
        for method in ("GET", "HEAD")  # as probes ask
    ),
    Door(
        "GET", "/metrics", metrics, answers={200: {"text/plain": {"schema": {"type": "string"}}}}, open=True
    ),
    Door("GET", "/status", status, answers={200: Status}, open=True),
    Door("GET", "/site", site, answers={200: SiteShown}, open=True, standby=False),
    *(Door("GET", path, _file(*file), open=True, documented=False) for path, file in FILES.items()),
)
