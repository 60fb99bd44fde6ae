"""The greeting by which two processes prove to each other that they have the key, without showing it.

Each side sends its name and role, with a random number; then each side sends a code, computed under the key
over all these messages. The codes of a connection's frames are computed from the same, so they are not valid
for another connection. The called side sends its code first; a caller with another key then sends an invalid
code, which reports the difference.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec

from rtfilter.overlay.broker_names import Whole
from rtfilter.overlay.running.broker_frames import LinkError, LostError, Seal, plain, read
from rtfilter.overlay.running.broker_keys import Key, KeyRole, mac

PROTOCOL: Final = 4
"""Version of the protocol. It changes with greetings and messages, so that different versions report it."""
MOST: Final = 2048
"""Most bytes of the first message."""
NAME: Final = 100
"""Most characters of a name."""
WITHIN: Final = 5.0
"""Seconds for the whole greeting."""
_NONCE: Final = 16
_NO_CODE: Final = bytes(32)


class Hello(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first message of a process: its name, role and settings.

    Attributes
    ----------
    role : KeyRole
        Role whose key it proves to have.
    name : str
        Name of the broker or client.
    cluster, address : str
        Of a broker: its cluster, and its address for others.
    incarnation : int
        Of a broker: higher at each start. Of a client: different for each program.
    strategy, types : str
        Of a broker: the first strategy of its network, and a digest of the event types. Empty for the
        rendezvous point.
    assigned : str
        Of a broker: a digest of the rendezvous clusters of event types; empty if there are none.
    message : int
        Most bytes of a message that it accepts; 0 for a client.
    grace, heartbeat : float
    missed : int
        Of a broker: see `BrokerSettings`; 0 for others.
    again : bool
        True if a client reconnects by itself after the loss of its connection.
    nonce : bytes
        Random bytes for this connection.
    protocol : int
        Version of the protocol; the first version did not send it.
    """

    role: KeyRole
    name: str
    cluster: str = ""
    address: str = ""
    incarnation: Whole = 0
    strategy: str = ""
    types: str = ""
    assigned: str = ""
    message: Whole = 0
    grace: float = 0.0
    heartbeat: float = 0.0
    missed: Whole = 0
    again: bool = False
    nonce: bytes = b""
    protocol: int = 1


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
            theirs = await read(reader, MOST)
        except LostError:
            raise LinkError(
                "the other side closes the connection without an answer; if it is a broker of an older "
                f"version than {PROTOCOL} of the protocol, install the same rtree-filter at both"
            ) from None
        peer = _understood(theirs, own)
        secret = _secret(key, own.role, ours, theirs)
        shown, code = await read(reader, MOST), mac(secret, b"called")
        if not hmac.compare_digest(shown, code):
            writer.write(plain(_NO_CODE))
            raise _another_key(peer, own)
        writer.write(plain(mac(secret, b"calls")))
        return Greeted(peer, Seal(mac(secret, b"from the caller")), Seal(mac(secret, b"to the caller")))


async def answer(reader: StreamReader, writer: StreamWriter, own: Hello, key: Key) -> Greeted:
    """Greet a calling process. Raises `LinkError`."""
    async with _soon():
        theirs = await read(reader, MOST)
        ours = said(own)
        try:
            peer = _understood(theirs, own)
        except ProtocolVersionError:
            writer.write(plain(ours))  # so that the other side reports it, too
            raise
        secret = _secret(key, peer.role, theirs, ours)
        writer.write(plain(ours) + plain(mac(secret, b"called")))
        if not hmac.compare_digest(await read(reader, MOST), mac(secret, b"calls")):
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
