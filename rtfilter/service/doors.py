"""The doors: HTTP and WebSocket, thin over the pipeline and over conversations."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from sqlalchemy.exc import SQLAlchemyError

from rtfilter.errors import RTFilterError, UnknownSubscriptionError
from rtfilter.service.conversation import Conversation
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.session import State

MOST_BYTES: Final = 16 * 2**20
"""Of the body of a request."""
MOST_PULLED: Final = 1000
"""Deliveries that one request may pull."""


class RequestError(ValueError):
    """A request that is refused, with the status of HTTP that says why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def application(make: Callable[[], Pipeline], started: Callable[[], None] = lambda: None) -> FastAPI:
    """The server as an ASGI application.

    Parameters
    ----------
    make : callable
        Makes the pipeline, on the event loop.
    started : callable
        Is called when the pipeline runs.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.pipeline = pipeline = make()
        await pipeline.start()
        started()
        try:
            yield
        finally:
            await pipeline.stop()

    app = FastAPI(title="rtfilter", lifespan=lifespan)
    for error in (RTFilterError, RequestError, PermissionError, SQLAlchemyError):
        app.add_exception_handler(error, _problem)
    app.add_api_route("/healthz", _health, methods=["GET"])
    app.add_api_route("/subscriptions", _subscribe, methods=["POST"], status_code=201)
    app.add_api_route("/events", _publish, methods=["POST"], status_code=202)
    app.add_api_route("/deliveries", _pull, methods=["GET"])
    app.add_api_route("/acknowledgements", _acknowledge, methods=["POST"], status_code=204)
    app.add_api_websocket_route("/session", _session)
    return app


def _user(request: Request) -> str:
    """Who asks, by the Basic scheme."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    try:
        name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        name = password = ""
    if scheme.lower() != "basic" or not name:
        raise PermissionError("say who you are: curl --user NAME:PASSWORD")
    return str(request.app.state.pipeline.authenticate(name, password))


def _pipeline(request: Request) -> Pipeline:
    found: Pipeline = request.app.state.pipeline
    return found


User = Annotated[str, Depends(_user)]
Served = Annotated[Pipeline, Depends(_pipeline)]


async def _health(pipeline: Served) -> Response:
    return Response(status_code=200 if pipeline.healthy else 503)


async def _subscribe(request: Request, user: User, pipeline: Served) -> Response:
    asked = await _json(request)
    return _answer({"subscription": await pipeline.subscribe(user, asked.get("where"))}, 201)


async def _publish(request: Request, user: User, pipeline: Served) -> Response:
    body = await _body(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    lines = kind in ("application/x-ndjson", "application/jsonl")
    events = pipeline.parse.lines(body) if lines else [pipeline.parse.one(body)]
    positions = await pipeline.publish(user, events, request.headers.get("idempotency-key"))
    return _answer({"positions": positions}, 202)


async def _pull(user: User, pipeline: Served) -> Response:
    found = [
        {"position": one.position, "subscriptions": one.subscriptions, "event": msgspec.Raw(one.body)}
        for one in pipeline.pending(user)[:MOST_PULLED]
    ]
    return _answer({"deliveries": found}, 200)


async def _acknowledge(request: Request, user: User, pipeline: Served) -> Response:
    positions = (await _json(request)).get("positions")
    if not isinstance(positions, list) or not all(type(one) is int for one in positions):
        raise RequestError(422, '"positions" is a list of positions of deliveries')
    await pipeline.acknowledge(user, positions)
    return Response(status_code=204)


async def _body(request: Request) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > MOST_BYTES:
            raise RequestError(413, f"a body has at most {MOST_BYTES} bytes; send several")
    return bytes(found)


async def _json(request: Request) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(await _body(request))
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(400, f"this is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestError(422, "the body is a JSON object")
    return found


def _answer(content: dict[str, Any], status: int, kind: str = "application/json") -> Response:
    return Response(msgspec.json.encode(content), status, media_type=kind)


async def _problem(_: Request, error: Exception) -> Response:
    """An error as a problem document (RFC 9457)."""
    detail = str(error)
    match error:
        case RequestError():
            status = error.status
        case PermissionError():
            status = 401
        case UnknownSubscriptionError():
            status = 404
        case RTFilterError():
            status = 422
        case _:
            status, detail = 503, "the log cannot be written; nothing of this request was kept"
    answer = _answer({"status": status, "detail": detail}, status, "application/problem+json")
    if status == 401:
        answer.headers["www-authenticate"] = "Basic"
    return answer


async def _session(socket: WebSocket) -> None:
    """A session over WebSocket: each message one directive."""
    await socket.accept()
    conversation = Conversation(socket.app.state.pipeline)
    writer = asyncio.create_task(_write(socket, conversation))
    try:
        while conversation.state is not State.DISCONNECTED:
            text = await socket.receive_text()
            await conversation.hear(text)
        await writer
        await socket.close()
    except (WebSocketDisconnect, KeyError):  # gone, or it sent bytes
        pass
    finally:
        conversation.lost()
        writer.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await writer


async def _write(socket: WebSocket, conversation: Conversation) -> None:
    while (message := await conversation.outbox.get()) is not None:
        await socket.send_text(message.decode())
