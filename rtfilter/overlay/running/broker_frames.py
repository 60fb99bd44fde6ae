"""Frames on a connection: a length, a code that proves the sender, and a message.

The length, 4 bytes with the highest first, counts the rest of the frame. The code, 16 bytes, is computed
under a key of this connection and direction over the number of the frame and the message: so a frame that was
changed, left out, repeated, or taken from another connection is detected. Frames are not encrypted: see the
page on brokers.
"""

from __future__ import annotations

import hmac
from asyncio import IncompleteReadError, StreamReader
from typing import Final

from rtfilter.errors import RTFilterError
from rtfilter.overlay.running.broker_keys import mac

LENGTH: Final = 4
"""Bytes of the length."""
CODE: Final = 16
"""Bytes of the code."""
MOST_BYTES: Final = 16 * 2**20
"""Default limit of the bytes of a message."""
SPARE: Final = 1000
"""Bytes of a message in addition to its event or condition: ids, and the names of brokers and types."""


class LinkError(RTFilterError):
    """The end of a connection: it brought no valid frame or message, or a side has the wrong key."""


class LostError(LinkError):
    """The other side has closed the connection, or is gone."""


class Seal:
    """Computes the codes of one direction, frame after frame.

    Parameters
    ----------
    secret : bytes
        Secret of the connection and direction.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0

    def code(self, message: bytes) -> bytes:
        """Return the code of the next frame."""
        self._number += 1
        return mac(self._secret, self._number.to_bytes(8, "big") + message)[:CODE]

    def closed(self, message: bytes) -> bytes:
        """Return the next frame as bytes, with its length."""
        return (CODE + len(message)).to_bytes(LENGTH, "big") + self.code(message) + message

    def opened(self, frame: bytes) -> bytes:
        """Return the message of the next frame, given without its length. Raises `LinkError`."""
        message = frame[CODE:]
        if not hmac.compare_digest(frame[:CODE], self.code(message)):
            raise LinkError("a message was changed on its way, or its sender does not have the key")
        return message


async def read(reader: StreamReader, most: int, least: int = 0) -> bytes:
    """Return the next frame, without its length.

    Parameters
    ----------
    reader : asyncio.StreamReader
    most, least : int
        Most and least bytes of a frame. Others are refused once their length is known.

    Raises
    ------
    LinkError
        The frame is too long or too short.
    LostError
    """
    try:
        length = int.from_bytes(await reader.readexactly(LENGTH), "big")
        if not least <= length <= most:
            raise LinkError(f"a message of {length} bytes; from {least} to {most} are allowed")
        return await reader.readexactly(length)
    except (IncompleteReadError, OSError) as error:
        raise LostError("the other side has closed the connection") from error


def plain(message: bytes) -> bytes:
    """Return a frame without a code, for messages before there is a key for it."""
    return len(message).to_bytes(LENGTH, "big") + message
