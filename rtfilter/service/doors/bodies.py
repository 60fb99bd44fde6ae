"""Bodies of requests: within limits, and as events."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from fastapi import Request

from rtfilter.service.doors import arrow
from rtfilter.service.doors.problems import MediaTypeError, SilentError
from rtfilter.service.errors import NotJSONError, RequestError, TooLargeError
from rtfilter.service.nesting import require_shallow
from rtfilter.service.parse import Parse

JSON: Final = "application/json"
LINES: Final = ("application/x-ndjson", "application/jsonl", "application/ndjson")
ARROW: Final = "application/vnd.apache.arrow.stream"
SILENT: Final = 30.0
"""Seconds without a byte of a body after which the peer is given up."""
MOST_EVENTS: Final = 100_000
"""Of one request."""
MOST_DOCUMENT: Final = 2**20
"""Bytes of JSON that is no event: of a filter, a subscription, a question."""
LARGE: Final = 64 * 2**10
"""Bytes from which a body is read beside the event loop."""


async def whole(request: Request, most: int) -> bytes:
    """Return the body of a request.

    Raises
    ------
    TooLargeError
        More than `most` bytes; no more than that is taken in.
    MediaTypeError
        It is compressed.
    SilentError
        It does not arrive.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise MediaTypeError("send the body without Content-Encoding")
    told = request.headers.get("content-length", "0")
    if told.isdecimal():
        require_small(int(told), most, "a body")
    found = bytearray()
    parts = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(SILENT):
                part = await anext(parts, None)
        except TimeoutError:
            raise SilentError(f"nothing more of the body came for {SILENT:.0f} seconds") from None
        if part is None:
            return bytes(found)
        found += part
        require_small(len(found), most, "a body")


def require_small(size: int, most: int, what: str) -> None:
    """Refuse what has more bytes than `most`. Raises `TooLargeError`."""
    if size > most:
        raise TooLargeError(f"{what} has at most {most} bytes; send several")


def media_type(request: Request) -> str:
    """The type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def decoded(body: bytes, kind: Any = Any) -> Any:
    """Return JSON as a type of msgspec's.

    Raises
    ------
    NotJSONError, RequestError
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise RequestError(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJSONError(f"this is not JSON: {error}") from None


async def events(request: Request, body: bytes, parse: Parse, nesting: int) -> list[bytes]:
    """Return the events of a body, as the parse stage does.

    Raises
    ------
    EventError, NotJSONError, MediaTypeError, TooLargeError
    """
    kind = media_type(request)
    if len(body) < LARGE:
        return _events(kind, body, parse, nesting)
    return await asyncio.to_thread(_events, kind, body, parse, nesting)


def _events(kind: str, body: bytes, parse: Parse, nesting: int) -> list[bytes]:
    if kind == ARROW:
        return parse.objects(arrow.rows(body, MOST_EVENTS))
    if kind == JSON:
        require_shallow(body, nesting)
        return [parse.one(body)]
    if kind in LINES:
        if body.count(b"\n") > MOST_EVENTS:
            raise TooLargeError(f"a request has at most {MOST_EVENTS} events; send several")
        require_shallow(body, nesting)
        return parse.lines(body)
    raise MediaTypeError(f"the header Content-Type is needed: {JSON}, {LINES[0]} or {ARROW}")
