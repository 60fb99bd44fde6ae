"""Answers that are written in parts, as the peer takes them, and never in memory as a whole."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rtfilter.basics.results import Matches
from rtfilter.service.doors.bodies import JSON
from rtfilter.service.records import Sending, UserDelivery, pulled

IDS: Final = 5_000
"""Ids of a delivery, or of an event with many matches, that are written at once."""
MATCHES: Final = 50_000
"""Most matches of several events that are written at once."""
PART: Final = 64 * 2**10
"""Bytes that are written at once, about."""
MOST_ANSWERS: Final = 16
"""Answers of one user that are written at the same time, of doors whose answers may be long."""
_encode: Final = msgspec.json.Encoder().encode


async def respond(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an answer; return when its peer has taken most of it."""

    async def slowly(message: Message) -> None:
        if len(message.get("body", b"")) > PART and not message.get("more_body", False):
            await send({**message, "more_body": True})
            message = {"type": "http.response.body"}  # which waits until the peer has read
        await send(message)

    await response(scope, receive, slowly)


class PartsResponse(Response):
    """An answer in parts.

    Parameters
    ----------
    request : Request
    parts : async iterator of bytes
    media_type : str
    """

    def __init__(self, request: Request, parts: AsyncIterator[bytes], media_type: str) -> None:
        self._request, self._parts = request, parts
        super().__init__(media_type=media_type)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the parts, until the peer leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            if await self._request.is_disconnected():
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def answered(request: Request, parts: AsyncIterator[bytes]) -> Response:
    """Return the answer in JSON: as a whole if it is short, else in parts."""
    first = await anext(parts)
    second = await anext(parts, None)
    if second is None:
        return Response(first, media_type=JSON)
    return PartsResponse(request, _again([first, second], parts), JSON)


async def _again(known: Iterable[bytes], parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for one in known:
        yield one
    async for one in parts:
        yield one


async def matches_as_json(parts: AsyncIterator[Matches], more: dict[str, Any]) -> AsyncIterator[bytes]:
    """Yield matches in the form of `rtfilter.service.doors.models.MatchedIds`, with the fields of `more`."""
    held, before = b'{"matches":[', b""
    async for found in parts:
        if not len(found):
            continue
        held += before
        before = b","
        for text in _matches(found):
            held += text
            if len(held) >= PART:
                yield held
                held = b""
    yield held + b"]" + (b"," + _encode(more)[1:] if more else b"}")


def _matches(found: Matches) -> Iterator[bytes]:
    """Yield the lists of ids of some events."""
    if len(found.ids) <= MATCHES:
        yield _encode(found.lists())[1:-1]
        return
    for row, ids in enumerate(found):
        yield b",[" if row else b"["
        for first in range(0, len(ids), IDS):
            yield (b"," if first else b"") + _encode(ids[first : first + IDS].tolist())[1:-1]
        yield b"]"


async def matches_as_arrow(parts: AsyncIterator[Matches], name: str) -> AsyncIterator[bytes]:
    """Yield matches as a stream of Arrow's with one column."""
    import pyarrow as pa

    sink = _Sink()
    schema = pa.schema([(name, pa.large_list(pa.int64()))])
    with pa.ipc.new_stream(sink, schema) as writer:
        async for found in parts:
            writer.write_batch(pa.record_batch([found.to_arrow()], schema=schema))
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Add bytes; return their number."""
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def taken(self) -> bytes:
        """Return all bytes since the last call."""
        found = b"".join(self._parts)
        self._parts.clear()
        return found


async def deliveries_as_json(
    found: Iterable[tuple[UserDelivery, Sending]], following: str | None
) -> AsyncIterator[bytes]:
    """Yield a page of deliveries in the form of `rtfilter.service.doors.models.DeliveriesShown`."""
    held, before = [b'{"deliveries":['], b""
    size = 0
    for one, sending in found:
        for part in (before, *_delivery(one, sending)):
            held.append(part)
            size += len(part)
            if size >= PART:
                yield b"".join(held)
                held.clear()
                size = 0
        before = b","
    yield b"".join(held) + b'],"next":' + _encode(following) + b"}"


def _delivery(one: UserDelivery, sending: Sending) -> Iterable[bytes]:
    if one.ended is not None or len(one.subscriptions) <= IDS:
        yield _encode(pulled(one, sending))
        return
    empty = b'"subscriptions":['
    head, _, tail = _encode(pulled(msgspec.structs.replace(one, subscriptions=()), sending)).partition(empty)
    yield head + empty
    for first in range(0, len(one.subscriptions), IDS):
        yield (b"," if first else b"") + _encode(one.subscriptions[first : first + IDS])[1:-1]
    yield tail
