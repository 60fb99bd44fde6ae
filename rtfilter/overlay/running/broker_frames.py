"""The protocol of a connection: frames that prove their sender, messages in them, and the greeting before.

A frame is a length, a code, and a message. The length, 4 bytes with the highest first, counts the rest of the
frame. The code, 16 bytes, is computed under a key of this connection and direction over the number of the
frame and the message: so a frame that was changed, left out, repeated, or taken from another connection is
detected. Frames are not encrypted: see the page on brokers. A message is MessagePack, with the name of its
class.

By the greeting two processes prove to each other that they have the key, without showing it. Each side sends
its name and role, with a random number; then each side sends a code, computed under the key over all these
messages. The codes of a connection's frames are computed from the same, so they are not valid for another
connection. The called side sends its code first; a caller with another key then sends an invalid code, which
reports the difference.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

import msgspec

from rtfilter.basics.errors import RTFilterError
from rtfilter.overlay.broker_names import BrokerMessage, Whole
from rtfilter.overlay.membership.multicast import Numbered
from rtfilter.overlay.running.broker_keys import Key, KeyRole, mac

LENGTH: Final = 4
"""Bytes of the length."""
CODE: Final = 16
"""Bytes of the code."""
MOST_BYTES: Final = 16 * 2**20
"""Default limit of the bytes of a message."""
SPARE: Final = 1000
"""Bytes of a message in addition to its event or condition: ids, and the names of brokers and types."""
PROTOCOL: Final = 4
"""Version of the protocol. It changes with greetings and messages, so that different versions report it."""
MOST_GREETING: Final = 2048
"""Most bytes of a message of the greeting."""
NAME: Final = 100
"""Most characters of a name."""
WITHIN: Final = 5.0
"""Seconds for the whole greeting."""
_NONCE: Final = 16


class LinkError(RTFilterError):
    """The end of a connection: it brought no valid frame or message, or a side has the wrong key."""


class LostError(LinkError):
    """The other side has closed the connection, or is gone."""


class Seal:
    """Computes the codes of one direction of a connection under a secret, frame after frame."""

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
    """Return the next frame, without its length. Raises `LinkError`.

    A frame with more or fewer bytes than allowed is refused once its length is known.
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


_encoder: Final = msgspec.msgpack.Encoder()


def encoded(message: BrokerMessage) -> bytes:
    """Return a message as bytes."""
    return _encoder.encode(message)


class Codec:
    """A decoder of some message classes; by default of all in the modules loaded so far."""

    def __init__(self, *kinds: type[BrokerMessage]) -> None:
        self.kinds = kinds or tuple(_below(BrokerMessage))
        self._any: Any = reduce(or_, self.kinds)
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(self._any)

    def decoded(self, data: bytes) -> BrokerMessage:
        """Return the message. Raises `LinkError` if the data are no message."""
        try:
            found: BrokerMessage = self._decoder.decode(data)
            if isinstance(found, Numbered):
                found = msgspec.structs.replace(found, body=msgspec.convert(found.body, self._any))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LinkError(f"this is no message: {error}") from None
        return found


def _below(kind: type[BrokerMessage]) -> Iterator[type[BrokerMessage]]:
    """Yield the message classes of the package without subclasses."""
    for one in kind.__subclasses__():
        below = list(_below(one))
        if below:
            yield from below
        elif one.__module__.startswith("rtfilter.overlay."):
            yield one


class Hello(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first message of a process: its name, role and settings.

    The settings are those that must be the same at all brokers; others, and the rendezvous point, send none.
    """

    role: KeyRole
    """Role whose key it proves to have."""
    name: str
    cluster: str = ""
    address: str = ""
    """The address of a broker for others; empty for clients and administrators."""
    incarnation: Whole = 0
    """Of a broker: higher at each start. Of a client: different for each program."""
    strategy: str = ""
    """The first strategy of the network."""
    types: str = ""
    """A digest of the event types."""
    assigned: str = ""
    """A digest of the rendezvous clusters of event types; empty if there are none."""
    message: Whole = 0
    """Most bytes of a message that it accepts."""
    grace: float = 0.0
    heartbeat: float = 0.0
    missed: Whole = 0
    again: bool = False
    """True if a client reconnects by itself after the loss of its connection."""
    nonce: bytes = b""
    """Random bytes for this connection."""
    protocol: int = 1
    """Version of the protocol; the first version did not send it."""

    @property
    def is_broker(self) -> bool:
        """True for a broker or the rendezvous point, and not for clients and administrators."""
        return self.role is KeyRole.BROKER and bool(self.address)


class ProtocolVersionError(LinkError):
    """The two sides have different versions of the protocol."""


class Greeted(NamedTuple):
    """The peer of a connection, and the codes of both directions."""

    peer: Hello
    sends: Seal
    receives: Seal


_hello: Final = msgspec.msgpack.Decoder(Hello)


async def call(reader: StreamReader, writer: StreamWriter, own: Hello, key: Key) -> Greeted:
    """Greet the called process. Raises `LinkError`, in particular if it does not have the key."""
    async with _soon():
        ours = said(own)
        writer.write(plain(ours))
        try:
            theirs = await read(reader, MOST_GREETING)
        except LostError:
            raise LinkError(
                "the other side closes the connection without an answer; if it is a broker of an older "
                f"version than {PROTOCOL} of the protocol, install the same rtree-filter at both"
            ) from None
        peer = _understood(theirs, own)
        secret = _secret(key, own.role, ours, theirs)
        shown, code = await read(reader, MOST_GREETING), mac(secret, b"called")
        if not hmac.compare_digest(shown, code):
            writer.write(plain(bytes(32)))
            raise _another_key(peer, own)
        writer.write(plain(mac(secret, b"calls")))
        return Greeted(peer, Seal(mac(secret, b"from the caller")), Seal(mac(secret, b"to the caller")))


async def answer(reader: StreamReader, writer: StreamWriter, own: Hello, key: Key) -> Greeted:
    """Greet a calling process. Raises `LinkError`."""
    async with _soon():
        theirs = await read(reader, MOST_GREETING)
        ours = said(own)
        try:
            peer = _understood(theirs, own)
        except ProtocolVersionError:
            writer.write(plain(ours))  # so that the other side reports it, too
            raise
        secret = _secret(key, peer.role, theirs, ours)
        writer.write(plain(ours) + plain(mac(secret, b"called")))
        if not hmac.compare_digest(await read(reader, MOST_GREETING), mac(secret, b"calls")):
            raise _another_key(peer, own)
        return Greeted(peer, Seal(mac(secret, b"to the caller")), Seal(mac(secret, b"from the caller")))


@asynccontextmanager
async def _soon() -> AsyncIterator[None]:
    """Raise `LinkError` if the block takes too long."""
    try:
        async with asyncio.timeout(WITHIN):
            yield
    except TimeoutError:
        raise LinkError(f"no greeting within {WITHIN:g} seconds") from None


def said(own: Hello, protocol: int = PROTOCOL) -> bytes:
    """Return the first message of a greeting."""
    nonce = secrets.token_bytes(_NONCE)
    return msgspec.msgpack.encode(msgspec.structs.replace(own, nonce=nonce, protocol=protocol))


def _understood(data: bytes, own: Hello) -> Hello:
    try:
        peer = _hello.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise LinkError("this is no greeting") from None
    if peer.protocol != PROTOCOL:
        raise ProtocolVersionError(
            f"{peer.name!r:.120} speaks version {peer.protocol} of the protocol, and {own.name} version "
            f"{PROTOCOL}; install the same rtree-filter at both"
        )
    if not 0 < len(peer.name) <= NAME or "\0" in peer.name or len(peer.nonce) != _NONCE:
        raise LinkError("this is no greeting")
    return peer


def _secret(key: Key, role: KeyRole, caller: bytes, called: bytes) -> bytes:
    """Return the secret of a connection."""
    own = key.of(role)
    if own is None:
        raise LinkError(f"the key of a {key.role} is not enough for a {role}")
    return own.derived("connection", caller, called)


def _another_key(peer: Hello, own: Hello) -> LinkError:
    """Return the error of both sides for different keys. It quotes the peer's name, which is not proved."""
    advice = "give both the same --key FILE"
    if KeyRole.CLIENT in (peer.role, own.role):
        advice = "make that of the client from that of the network: rtfilter broker key CLIENT --of NETWORK"
    return LinkError(f"{peer.name!r:.120} has another key than {own.name}; {advice}")
