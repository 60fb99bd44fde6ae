"""The parts that all HTTP doors share: identity, limits of bodies, pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from inspect import signature
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, Security
from fastapi.openapi.models import HTTPBase
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.types import Message

from rtfilter.service.doors import bodies
from rtfilter.service.doors.admission import identity
from rtfilter.service.doors.bodies import JSON
from rtfilter.service.doors.problems import MediaTypeError
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import MOST_OF_A_PAGE
from rtfilter.service.roles import Identity, Role

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_ROLES: Final[dict[Callable[..., Any], Role]] = {}


class RequestLimits(NamedTuple):
    """The limits of one request.

    Attributes
    ----------
    body : int
        Most bytes of the body.
    nesting : int
        Most levels of objects and arrays in JSON.
    """

    body: int = 16 * 2**20
    nesting: int = 64


class Door(APIRoute):
    """Authenticates the client, checks its role, then reads the body within the limits.

    It reads no body for a function that takes neither a model of the body nor the request.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See `fastapi.routing.APIRoute`."""
        handle = super().get_route_handler()
        document = self.body_field is not None
        reads = document or "request" in signature(self.endpoint).parameters

        async def handled(request: Request) -> Response:
            try:
                return await answered(request)
            finally:
                _release(request)

        async def answered(request: Request) -> Response:
            body = await _enter(request, role_of(self.endpoint), reads, document)
            if body is None:
                return await handle(request)
            if document:
                if bodies.media_type(request) != JSON:
                    raise MediaTypeError(f"the header Content-Type is needed: {JSON}")
                # Python's own decoder accepts NaN, 1e999, and lone surrogates
                nesting = request.app.state.limits.nesting
                await bodies.worked(request, bodies.require_json, body, nesting)

            async def again() -> Message:
                return {"type": "http.request", "body": body, "more_body": False}

            return await handle(Request(request.scope, again))

        return handled


class QuickDoor(Door):
    """A door of one filter whose function checks all by itself: FastAPI only documents what it takes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See `fastapi.routing.APIRoute`."""
        keyed = "idempotency_key" in signature(self.endpoint).parameters

        async def handled(request: Request) -> Response:
            try:
                await _enter(request, role_of(self.endpoint))
                more = {"idempotency_key": request.headers.get("idempotency-key")} if keyed else {}
                name = request.path_params["filter"]
                answer: Response = await self.endpoint(
                    request, name, _who(request), _pipeline(request), **more
                )
                return answer
            finally:
                _release(request)

        return handled


def needs(role: Role) -> Callable[[_Endpoint], _Endpoint]:
    """Require a role before a door reads the body. The pipeline checks it again."""

    def mark(endpoint: _Endpoint) -> _Endpoint:
        _ROLES[endpoint] = role
        return endpoint

    return mark


def role_of(endpoint: Callable[..., Any]) -> Role | None:
    """Return the role that a door needs, or None."""
    return _ROLES.get(endpoint)


async def _enter(
    request: Request, role: Role | None, reads: bool = True, document: bool = False
) -> bytes | None:
    """Authenticate the client; then return the body, or None if the door reads none.

    The client is checked again after the body, which may take hours to arrive.
    """
    state, app = request.state, request.app.state
    state.arrived = time.perf_counter()
    state.who = await identity(app.pipeline.users, request)
    if role is not None:
        state.who.require(role)
    if request.method == "GET":
        await enter_answers(request)
    if not reads or request.method not in ("POST", "PUT"):
        return None
    most = min(app.limits.body, bodies.MOST_DOCUMENT) if document else app.limits.body
    state.leave.append(await app.rooms.enter(state.who.user, bodies.size_of(request, most)))
    state.body = body = await bodies.whole(request, most)
    state.read = time.perf_counter()
    app.pipeline.users.require_still(state.who)
    return body


def _release(request: Request) -> None:
    """Release the body: uvicorn's closed connection stays until the next garbage collection."""
    request.state.body = None


async def enter_answers(request: Request) -> None:
    """Wait while many answers of the user are written; a door whose answer may be long calls it."""
    state = request.state
    state.leave.append(await request.app.state.answers.enter(state.who.user, 1))


class _Scheme(SecurityBase):
    """An authentication scheme for OpenAPI only: `Door` does the check."""

    def __init__(self, scheme: str) -> None:
        self.scheme_name, self.model = scheme, HTTPBase(scheme=scheme)

    async def __call__(self) -> None:
        """Accept every request."""


def _pipeline(request: Request) -> Pipeline:
    found: Pipeline = request.app.state.pipeline
    return found


def _who(request: Request) -> Identity:
    found: Identity = request.state.who
    return found


Served = Annotated[Pipeline, Depends(_pipeline)]
Who = Annotated[Identity, Depends(_who)]
Name = Annotated[str, Path(alias="filter", description="Name of a filter.", examples=["default"])]
Id = Annotated[int, Path(ge=1, lt=2**63, description="Id of a subscription.", examples=[2])]
After = Annotated[int, Query(ge=0, lt=2**63, description="What comes after this one.", examples=[0])]
Limit = Annotated[int, Query(ge=1, le=MOST_OF_A_PAGE, description="How many at most.", examples=[100])]
IdempotencyKey = Annotated[
    str | None,
    Header(description="A request that is sent again with the same key is done once.", examples=["order-7"]),
]


def router() -> APIRouter:
    """Return a router for paths that need authentication."""
    return APIRouter(route_class=Door, dependencies=[Security(_Scheme("basic")), Security(_Scheme("bearer"))])


def link(request: Request, after: int) -> str:
    """Return the link to the next page, after a position or an id."""
    asked = {name: value for name, value in request.query_params.items() if name != "after"}
    return f"{request.url.path}?{urlencode({**asked, 'after': after})}"
