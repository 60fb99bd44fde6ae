"""Protocols as the generator speaks them: requests made ahead as bytes, and answers cut out of what comes.

A wire belongs to one connection. It does no I/O. To cost the generator little, it looks only at what tells
where an answer ends and whether it is one; contents are read after the measurement.
"""

from __future__ import annotations

import base64
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import IntArray


class Kind(IntEnum):
    """The kinds of messages from a server."""

    ANSWER = 0
    REFUSED = 1
    DELIVERY = 2
    ACKNOWLEDGED = 3
    """The answer to an acknowledgement."""
    PING = 4
    """A question whether anyone is there, to be answered by `pong`."""


class Heard(NamedTuple):
    """A message from a server."""

    kind: Kind
    body: bytes


class Wire(ABC):
    """The protocol of a connection."""

    def __init__(self) -> None:
        self.held = bytearray()

    def feed(self, data: bytes) -> list[Heard]:
        """Add received bytes, which may be cut anywhere; return the complete messages."""
        self.held += data
        return self._cut()

    @abstractmethod
    def _cut(self) -> list[Heard]:
        """Remove the complete messages from `held` and return them."""

    def acknowledgement(self, upto: int) -> bytes:
        """Return the bytes that acknowledge the deliveries of this connection up to a number."""
        raise NotImplementedError


class Http(Wire):
    """HTTP/1.1, kept alive and pipelined."""

    _length: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
    _chunked: Final = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)

    def _cut(self) -> list[Heard]:
        held, found, at = self.held, [], 0
        while (end := held.find(b"\r\n\r\n", at)) >= 0:
            if self._chunked.search(held, at, end):
                body, last = _chunks(held, end + 4)
            else:
                told = self._length.search(held, at, end)
                last = end + 4 + (0 if told is None else int(told[1]))
                body = bytes(held[end + 4 : last])
            if not end < last <= len(held):
                break
            kind = Kind.ANSWER if held[at + 9 : at + 10] == b"2" else Kind.REFUSED
            found.append(Heard(kind, body))
            at = last
        del held[:at]
        return found


def _chunks(held: bytearray, at: int) -> tuple[bytes, int]:
    """Return a body in chunks that begins at a place, and the place behind it; -1 if its end is missing."""
    parts = list[bytes]()
    while (end := held.find(b"\r\n", at)) >= 0:
        size = int(held[at:end], 16)
        at = end + 2 + size + 2
        if at > len(held):
            break
        if size == 0:
            return b"".join(parts), at
        parts.append(bytes(held[end + 2 : at - 2]))
    return b"", -1


def post(path: str, kind: str, body: bytes, user: str, accept: str = "*/*") -> bytes:
    """Return a request of HTTP."""
    who = base64.b64encode(f"{user}:".encode()).decode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic {who}\r\nContent-Type: {kind}\r\n"
        f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


NUMBERS: Final[Mapping[str, int]] = {"CONNECT": 1, "READY": 4, "ACK": 8, "PUBLISH": 10}
"""Of the directives of a session over TCP; see docs/protocol.md."""
_ACK, _ERROR, _EVENT = 66, 67, 68


class Tcp(Wire):
    """Sessions over TCP. After an acknowledgement, the next answer is its."""

    def _cut(self) -> list[Heard]:
        held, found, at, size = self.held, [], 0, len(self.held)
        while size - at >= 5:
            length = int.from_bytes(held[at : at + 4], "big")
            if size - at < 4 + length:
                break
            number, body = held[at + 4], bytes(held[at + 5 : at + 4 + length])
            found.append(Heard(_kind(number == _EVENT, number == _ERROR, body), body))
            at += 4 + length
        del held[:at]
        return found

    def acknowledgement(self, upto: int) -> bytes:
        """Return ACK; the tag identifies its answer."""
        return said_tcp("ACK", b'{"upto":%d,"tag":0}' % upto)


def said_tcp(directive: str, body: bytes) -> bytes:
    """Return a message of a session over TCP."""
    return (1 + len(body)).to_bytes(4, "big") + bytes((NUMBERS[directive],)) + body


def _kind(event: bool, error: bool, body: bytes) -> Kind:
    if event:
        return Kind.DELIVERY
    if b'"tag":0' in body[-24:] or b'"tag":0' in body[:40]:
        return Kind.ACKNOWLEDGED
    return Kind.REFUSED if error else Kind.ANSWER


_TEXT, _PING = 0x81, 0x89


class WebSocket(Wire):
    """Sessions over WebSocket, without compression."""

    def __init__(self) -> None:
        super().__init__()
        self._open = False

    def _cut(self) -> list[Heard]:
        held, found, at = self.held, [], 0
        if not self._open:
            end = held.find(b"\r\n\r\n")
            if end < 0:
                return []
            if b" 101 " not in held[:end]:
                raise ConnectionError(f"the server opens no WebSocket: {bytes(held[:end])!r}")
            self._open = True
            del held[: end + 4]
            found.append(Heard(Kind.ANSWER, b""))
        size = len(held)
        while size - at >= 2:
            length, head = held[at + 1] & 127, 2
            if length >= 126:
                head = 4 if length == 126 else 10
                length = int.from_bytes(held[at + 2 : at + head], "big")
            if size - at < head + length:
                break
            body = bytes(held[at + head : at + head + length])
            if held[at] == _PING:
                found.append(Heard(Kind.PING, body))
            elif held[at] == _TEXT:
                event, error = (
                    body.startswith(b'{"directive":"EVENT"'),
                    body.startswith(b'{"directive":"ERROR"'),
                )
                found.append(Heard(_kind(event, error, body), body))
            at += head + length
        del held[:at]
        return found

    def acknowledgement(self, upto: int) -> bytes:
        """Return ACK; the tag identifies its answer."""
        return said_websocket("ACK", b'{"upto":%d,"tag":0}' % upto)


def pong(body: bytes) -> bytes:
    """Return the answer to a ping of WebSocket; without it, a server closes the connection after a while."""
    return bytes((0x8A, 0x80 | len(body))) + bytes(4) + body


def said_websocket(directive: str, body: bytes) -> bytes:
    """Return a message of a session over WebSocket. It is masked with zeros, which cost nothing."""
    text = b'{"directive":"%s"' % directive.encode() + (b"," + body[1:] if len(body) > 2 else b"}")
    size = len(text)
    if size < 126:
        head = bytes((0x81, 0x80 | size))
    elif size < 2**16:
        head = bytes((0x81, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x81, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + bytes(4) + text


def opening(path: str) -> bytes:
    """Return the request that opens a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return f"{lines}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()


def positions(body: bytes) -> list[int]:
    """Return the positions in an answer to a publisher."""
    found: list[int] = json.loads(body)["positions"]
    return found


_POSITION: Final = re.compile(rb'"position":(\d+)')


def delivered(bodies: list[bytes]) -> IntArray:
    """Return the position of each delivery."""
    return np.array([int(_POSITION.search(body)[1]) for body in bodies], np.int64)  # type: ignore[index]
