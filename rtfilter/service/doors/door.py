"""The doors of HTTP: each a path with a method, and its part of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from inspect import Parameter, getdoc, signature
from typing import Annotated, Any, Final, NamedTuple, get_type_hints
from urllib.parse import urlencode

import msgspec
from msgspec import Meta
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rtfilter import __version__
from rtfilter.service.doors import bodies, problems
from rtfilter.service.doors.admission import identity
from rtfilter.service.doors.bodies import JSON, Call
from rtfilter.service.doors.streamed import respond
from rtfilter.service.records import MOST_OF_A_PAGE
from rtfilter.service.roles import Role
from rtfilter.service.service_errors import RequestError, StandbyError

Name = Annotated[str, Meta(description="Name of a filter.", examples=["default"])]
Id = Annotated[int, Meta(ge=1, le=2**63 - 1, description="Id of a subscription.", examples=[2])]
After = Annotated[int, Meta(ge=0, le=2**63 - 1, description="What comes after this one.", examples=[0])]
Limit = Annotated[int, Meta(ge=1, le=MOST_OF_A_PAGE, description="How many at most.", examples=[100])]
IdempotencyKey = Annotated[
    str | None,
    Meta(description="A request that is sent again with the same key is done once.", examples=["order-7"]),
]
_encode: Final = msgspec.json.Encoder().encode


class _Parameter(NamedTuple):
    """A parameter of a door: its name in Python and in the request, its place there, type and default."""

    field: str
    name: str
    place: str
    kind: Any
    default: Any

    def read(self, call: Call) -> Any:
        """Return the value in a request. Raises `RequestError`."""
        of: Mapping[str, str] = call.query_params
        if self.place != "query":
            of = call.path_params if self.place == "path" else call.headers
        given = of.get(self.name)
        if given is None:
            return self.default
        try:
            return msgspec.convert(given, self.kind, strict=False)
        except msgspec.ValidationError as error:
            raise RequestError(f"{self.place}.{self.name}: {error}") from None


class Door(Route):
    """Authenticates the client, checks its role, reads the body within the limits, and calls a function.

    Parameters
    ----------
    method, path : str
    function : callable
        Gets the `Call`; parameters of path, query and header by their names; and as `wanted` the JSON body.
        Returns a `Response`, an object for JSON, or None. Its docstring describes the door.
    role : Role, optional
        Required before the body is read. The pipeline checks it again.
    status : int
        Of good answers.
    answers : dict, optional
        The good answers by status, if the return annotation does not name the type: a type, or by media type
        a type or OpenAPI's description.
    takes : dict, optional
        The same of a body that the function reads itself, as `Call.content`.
    long : bool
        True if the JSON body may be as long as events.
    open : bool
        True if the door authenticates nobody, or does so itself.
    standby : bool, optional
        True if a standby has the answer; by default where the method is GET or HEAD.
    documented : bool
    """

    def __init__(
        self,
        method: str,
        path: str,
        function: Callable[..., Awaitable[Any]],
        role: Role | None = None,
        *,
        status: int = 200,
        answers: dict[int, Any] | None = None,
        takes: dict[str, Any] | None = None,
        long: bool = False,
        open: bool = False,
        standby: bool | None = None,
        documented: bool = True,
    ) -> None:
        super().__init__(path, function, include_in_schema=documented)
        self.app, self.method, self.methods = self._serve, method, {method}
        self._function, self._role, self._status, self._open = function, role, status, open
        hints = get_type_hints(function, include_extras=True)
        self._wanted = hints.pop("wanted", None)
        self._takes, self._long = takes, long
        self._standby = method in ("GET", "HEAD") if standby is None else standby
        self._answers = {status: hints.pop("return")} if answers is None else answers
        self._parameters = [
            _Parameter(one.name, *self._place(one.name, hints[one.name]), hints[one.name], one.default)
            for one in list(signature(function).parameters.values())[1:]
            if one.name != "wanted"
        ]

    def _place(self, name: str, kind: object) -> tuple[str, str]:
        """Return the name of a parameter in the request, and its place."""
        if kind is IdempotencyKey:
            return name.replace("_", "-"), "header"
        return name, "path" if f"{{{name}}}" in self.path else "query"

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(scope, receive)
        try:
            try:
                answer = await self._answer(call)
            except ClientDisconnect:
                return
            except Exception as error:
                call.content = b""
                await respond(problems.answer(error, call.pipeline.measures), scope, receive, send)
                if not isinstance(error, problems.EXPECTED):
                    raise  # so that the log has it
            else:
                call.content = b""  # uvicorn's closed connection stays until the next garbage collection
                await respond(answer, scope, receive, send)
        finally:
            call.leave()

    async def _answer(self, call: Call) -> Response:
        if not self._standby and call.pipeline.standby is not None:
            raise StandbyError
        if not self._open:
            call.who = call.scope["state"]["who"] = await identity(call.pipeline.users, call)
            if self._role is not None:
                call.who.require(self._role)
            if call.method == "GET":
                await call.enter_answers()
        given = {one.field: one.read(call) for one in self._parameters}
        if self._wanted is not None:
            await call.take_body(None if self._long else bodies.MOST_DOCUMENT)
            given["wanted"] = await call.document(self._wanted)
        elif self._takes is not None:
            await call.take_body()
        answer = await self._function(call, **given)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=self._status)
        return Response(_encode(answer), self._status, media_type=JSON)

    def operation(self, schema: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the operation for OpenAPI; `schema` returns the JSON schema of a type."""
        found: dict[str, Any] = {
            "operationId": self.name,
            "summary": self.name.replace("_", " ").title(),
            "description": getdoc(self._function),
            "parameters": [
                {
                    "name": one.name,
                    "in": one.place,
                    "required": one.default is Parameter.empty,
                    "schema": schema(one.kind),
                }
                for one in self._parameters
            ],
            "responses": {
                **{str(status): _response(schema, status, of) for status, of in self._answers.items()},
                "default": {
                    "description": "What is wrong",
                    "content": _content(schema, {problems.MEDIA: problems.Problem}),
                },
            },
        }
        takes = self._takes if self._wanted is None else {JSON: self._wanted}
        if takes is not None:
            found["requestBody"] = {"required": True, "content": _content(schema, takes)}
        if not self._open:
            found["security"] = [{"basic": []}, {"bearer": []}]
        return found


def _response(schema: Callable[[Any], dict[str, Any]], status: int, of: Any) -> dict[str, Any]:
    described = {"description": HTTPStatus(status).phrase}
    if of is type(None):
        return described
    return {**described, "content": _content(schema, of if isinstance(of, dict) else {JSON: of})}


def _content(schema: Callable[[Any], dict[str, Any]], of: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for media, one in of.items():
        found[media] = one if isinstance(one, dict) else {"schema": schema(one)}
        if examples := getattr(one, "EXAMPLES", None):
            found[media]["examples"] = {str(place): {"value": value} for place, value in enumerate(examples)}
    return found


def openapi(doors: Iterable[Door]) -> dict[str, Any]:
    """Return the OpenAPI document of doors."""
    components: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}

    def schema(kind: Any) -> dict[str, Any]:
        (found,), named = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
        components.update(named)
        return found

    for door in doors:
        if door.include_in_schema:
            paths.setdefault(door.path, {})[door.method.lower()] = door.operation(schema)
    schemes = {name: {"type": "http", "scheme": name} for name in ("basic", "bearer")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rtfilter",
            "summary": "Subscribe, publish, deliver",
            "description": "Errors are problem documents (RFC 9457). Sessions over WebSocket: `/session`.",
            "version": __version__,
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": schemes},
    }


def link(call: Call, after: int) -> str:
    """Return the link to the next page, after a position or an id."""
    asked = {name: value for name, value in call.query_params.items() if name != "after"}
    return f"{call.url.path}?{urlencode({**asked, 'after': after})}"
