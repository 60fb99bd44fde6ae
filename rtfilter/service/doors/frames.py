"""Frames of a session over TCP: bytes in, frames out, no I/O.

A frame is the length of what follows it, 4 bytes, the highest first; the directive, 1 byte; and a JSON object
in UTF-8, which may be left out where it is empty. The length counts the directive and the JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from rtfilter.service.messages import without_mark
from rtfilter.service.service_errors import DirectiveError, ServiceError

LENGTH: Final = 4
"""Bytes of the length."""
MOST_BYTES: Final = 16 * 2**20
"""Most bytes of a frame, without its length."""


class ClientDirective(IntEnum):
    """The directives of a client."""

    CONNECT = 1
    SUBSCRIBE = 2
    UNSUBSCRIBE = 3
    READY = 4
    STOP = 5
    GET = 6
    DISCONNECT = 7
    ACK = 8
    CREDIT = 9
    PUBLISH = 10
    REPLACE = 11
    LIST = 12
    MATCH = 13
    EXPLAIN = 14
    SITE = 15


class ServerDirective(IntEnum):
    """The directives of the server."""

    CONNECTED = 65
    ACK = 66
    ERROR = 67
    EVENT = 68
    DIGEST = 69
    ENDED = 70


class FrameError(ServiceError):
    """Bytes that are no frame. The bytes after them cannot be read either, so the connection ends."""

    kind = "frame"


class Frame(NamedTuple):
    """A frame; `body` is not decoded."""

    directive: ClientDirective | ServerDirective
    body: bytes


class Reader:
    """Makes frames of bytes, however they are cut: `feed` some, then iterate over the frames they complete.

    After bytes that are no frame, every iteration raises the same `FrameError`, and new bytes are dropped.

    Parameters
    ----------
    side : type
        The side that sends these frames: `ClientDirective` or `ServerDirective`.
    most : int
        Bytes of a frame, without its length. A longer one is refused when its length is known.
    """

    def __init__(
        self, side: type[ClientDirective] | type[ServerDirective] = ClientDirective, most: int = MOST_BYTES
    ) -> None:
        self._side, self._most = side, most
        self._held = bytearray()
        self._error: FrameError | None = None

    @property
    def held(self) -> int:
        """Bytes of an incomplete frame; after an iteration, fewer than those of a frame with its length."""
        return len(self._held)

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self._error is None:
            self._held += data

    def __iter__(self) -> Iterator[Frame]:
        """Yield the complete frames. Raises `FrameError` after the last one before wrong bytes."""
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if self._error is not None:
            raise self._error
        held = self._held
        if len(held) < LENGTH:
            return None
        length = int.from_bytes(held[:LENGTH], "big")
        if not 1 <= length <= self._most:
            self._refuse(f"a frame of {length} bytes: 1 to {self._most} are allowed, directive and JSON")
        if len(held) == LENGTH:
            return None
        try:
            directive = self._side(held[LENGTH])
        except ValueError:
            known = ", ".join(f"{one.value} {one.name}" for one in self._side)
            self._refuse(f"{held[LENGTH]} is no directive; there are {known}")
        if len(held) < LENGTH + length:
            return None
        body = bytes(held[LENGTH + 1 : LENGTH + length])
        del held[: LENGTH + length]
        return Frame(directive, body)

    def _refuse(self, why: str) -> None:
        self._held.clear()
        self._error = FrameError(why)
        raise self._error


def write(directive: ClientDirective | ServerDirective, body: bytes = b"") -> bytes:
    """Return a frame as bytes."""
    return (1 + len(body)).to_bytes(LENGTH, "big") + bytes((directive,)) + body


_FIRST: Final = b'{"directive":"'
_NAMED: Final = {one.name.encode(): bytes((one,)) for one in ServerDirective}
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def message_of(frame: Frame) -> bytes:
    """Return the message for a `Conversation` that a client's frame contains.

    Raises
    ------
    DirectiveError
        The JSON has a directive of its own, or is not UTF-8.
    """
    try:
        frame.body.decode()  # so that wrong UTF-8 has one error, whatever decodes it later
        said = _object.decode(without_mark(frame.body) or b"{}")
    except UnicodeDecodeError as error:
        raise DirectiveError(f"this is not JSON: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        return frame.body  # the conversation says what is wrong with it
    if "directive" in said:
        raise DirectiveError('the directive is in the frame; leave "directive" out of its JSON')
    return msgspec.json.encode({"directive": frame.directive.name, **said})


def frame_of(message: bytes) -> bytes:
    """Return a message of a `Conversation`, whose directive comes first, as a frame."""
    name, _, rest = message.removeprefix(_FIRST).partition(b'"')
    if rest == b"}":
        return write(ServerDirective[name.decode()])
    return (1 + len(rest)).to_bytes(LENGTH, "big") + _NAMED[name] + b"{" + rest[1:]
