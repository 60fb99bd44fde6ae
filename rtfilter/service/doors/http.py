"""The doors: HTTP and WebSocket, thin over the pipeline and over conversations."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, FastAPI, Request, Response, WebSocket, WebSocketDisconnect

from rtfilter.errors import RTFilterError
from rtfilter.service.conversation import Conversation
from rtfilter.service.errors import NotAuthenticatedError, RequestError, ServiceError, TooLargeError
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import Wish
from rtfilter.service.roles import Identity
from rtfilter.service.session import State

MOST_BYTES: Final = 16 * 2**20
"""Of the body of a request."""
MOST_PULLED: Final = 1000
"""Deliveries that one request may pull."""


def application(
    make: Callable[[], Awaitable[Pipeline]], started: Callable[[], None] = lambda: None
) -> FastAPI:
    """The server as an ASGI application.

    Parameters
    ----------
    make : callable
        Makes and starts the pipeline, on the event loop.
    started : callable
        Is called when the pipeline runs.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.pipeline = pipeline = await make()
        started()
        try:
            yield
        finally:
            await pipeline.stop()

    app = FastAPI(title="rtfilter", lifespan=lifespan)
    app.add_exception_handler(RTFilterError, _problem)
    app.add_api_route("/healthz", _health, methods=["GET"])
    app.add_api_route("/filters/{filter}/subscriptions", _subscribe, methods=["POST"], status_code=201)
    app.add_api_route("/filters/{filter}/events", _publish, methods=["POST"], status_code=202)
    app.add_api_route("/deliveries", _pull, methods=["GET"])
    app.add_api_route("/acknowledgements", _acknowledge, methods=["POST"], status_code=204)
    app.add_api_websocket_route("/session", _session)
    return app


async def _who(request: Request) -> Identity:
    """Who asks, by the Basic scheme."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    try:
        name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        name = password = ""
    if scheme.lower() != "basic" or not name:
        raise NotAuthenticatedError("say who you are: curl --user NAME:PASSWORD")
    pipeline: Pipeline = request.app.state.pipeline
    return await pipeline.users.password(name, password)


def _pipeline(request: Request) -> Pipeline:
    found: Pipeline = request.app.state.pipeline
    return found


Who = Annotated[Identity, Depends(_who)]
Served = Annotated[Pipeline, Depends(_pipeline)]


async def _health(pipeline: Served) -> Response:
    return Response(status_code=200 if pipeline.healthy else 503)


async def _subscribe(filter: str, request: Request, who: Who, pipeline: Served) -> Response:
    wish = Wish((await _json(request)).get("where"))
    return _answer({"subscription": await pipeline.subscribe(who, filter, wish)}, 201)


async def _publish(filter: str, request: Request, who: Who, pipeline: Served) -> Response:
    body = await _body(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    parse = pipeline.parse(filter)
    events = parse.lines(body) if kind in ("application/x-ndjson", "application/jsonl") else [parse.one(body)]
    positions = await pipeline.publish(who, filter, events, request.headers.get("idempotency-key"))
    return _answer({"positions": positions}, 202)


async def _pull(who: Who, pipeline: Served, after: int = 0) -> Response:
    found = [
        {"position": one.position, "subscriptions": one.subscriptions, "event": msgspec.Raw(one.body)}
        for one, _ in pipeline.pull(who, MOST_PULLED, after)
    ]
    return _answer({"deliveries": found}, 200)


async def _acknowledge(request: Request, who: Who, pipeline: Served) -> Response:
    positions = (await _json(request)).get("positions")
    if not isinstance(positions, list) or not all(type(one) is int for one in positions):
        raise RequestError('"positions" is a list of positions of deliveries')
    await pipeline.acknowledge(who, positions)
    return Response(status_code=204)


async def _body(request: Request) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > MOST_BYTES:
            raise TooLargeError(f"a body has at most {MOST_BYTES} bytes; send several")
    return bytes(found)


async def _json(request: Request) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(await _body(request))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"this is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestError("the body is a JSON object")
    return found


def _answer(content: dict[str, Any], status: int, kind: str = "application/json") -> Response:
    return Response(msgspec.json.encode(content), status, media_type=kind)


async def _problem(_: Request, error: Exception) -> Response:
    """An error as a problem document (RFC 9457)."""
    detail, status = str(error), error.status if isinstance(error, ServiceError) else 422
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
        conversation.sent()
