"""A connection: a WebSocket with an open session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLCertVerificationError, SSLError
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)
from websockets.frames import CloseCode

from rtfilter.client.address import Address
from rtfilter.client.client_errors import ProtocolError, RefusedError, UnreachableError
from rtfilter.client.protocol import Protocol
from rtfilter.client.server_messages import Connected, Error, Message
from rtfilter.session_states import Directive
from rtfilter.text import shown

OPENING: Final = 10.0
"""Seconds within which a connection and its session must be open."""
MOST_BYTES: Final = 64 * 2**20
"""Most bytes of a message of the server."""

RUBBISH: Final = frozenset({CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_DATA, CloseCode.MESSAGE_TOO_BIG})
"""Codes with which this side closes because of an invalid message of the server."""


class Link:
    """A connection with its protocol. Outgoing messages wait in a queue, so that sending never blocks.

    Parameters
    ----------
    socket : websockets.asyncio.client.ClientConnection
    protocol : Protocol
        A protocol with a confirmed CONNECT.
    """

    def __init__(self, socket: ClientConnection, protocol: Protocol, connected: Connected) -> None:
        self._socket, self.protocol, self.connected = socket, protocol, connected
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._why = ""
        self.too_large = False
        """True if the connection was lost because a message was too large for the server."""

    def send(self, message: bytes) -> None:
        """Append a message to the queue of outgoing ones."""
        self._outgoing.put_nowait(message)

    async def run(self, hear: Callable[[Message], None]) -> str:
        """Send and receive until the connection is lost; return the reason. Errors of `hear` are raised.

        Raises
        ------
        ProtocolError
            The server's message is not understood; the next connection would not help.
        """
        writer = asyncio.create_task(self._write())
        try:
            while True:
                hear(self.protocol.hear(await self._socket.recv()))
        except ConnectionClosed as closed:
            self.too_large = closed.rcvd is not None and closed.rcvd.code == CloseCode.MESSAGE_TOO_BIG
            if closed.sent is not None and not closed.rcvd_then_sent and closed.sent.code in RUBBISH:
                raise ProtocolError(
                    f"the server sent a message that this client does not accept: {closed.sent}"
                ) from None
            return self._why or str(closed)
        finally:
            writer.cancel()
            with suppress(asyncio.CancelledError):
                await writer
            await self.close()

    async def _write(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                await self._socket.send((await self._outgoing.get()).decode())

    def drop(self, why: str) -> None:
        """Close the connection from this side, with a reason."""
        self._why = why
        self._socket.transport.abort()

    async def close(self) -> None:
        """Close the connection."""
        await self._socket.close()


class _Opening(open_socket):
    """A connection to the given server only, without redirects, because a password follows."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


async def join(address: Address) -> Link:
    """Open a session.

    Raises
    ------
    UnreachableError
        The server does not answer, or speaks another protocol.
    RefusedError
        The server refuses this user.
    ProtocolError
        The server is of another kind.
    """
    try:
        async with asyncio.timeout(OPENING):
            socket = await _Opening(
                address.url,
                ssl=address.ssl,
                max_size=MOST_BYTES,
                compression=None,
                close_timeout=1,
                open_timeout=None,
            )
            try:
                return await _greet(socket, address)
            except BaseException:
                socket.transport.abort()  # does not wait for a silent server
                raise
    except TimeoutError:
        raise UnreachableError(f"{address.url} does not answer within {OPENING:g} s") from None
    except InvalidURI as error:
        raise UnreachableError(f"{address.url} is no URL of a server: {error}") from None
    except ImportError as error:
        raise UnreachableError(
            f"{address.url} is behind a proxy: {error}; see the variable no_proxy"
        ) from None
    except SSLCertVerificationError as error:
        raise UnreachableError(
            f"{address.url} has a certificate that is not trusted: {error.verify_message}; "
            "to trust one of your own, name its file in the variable SSL_CERT_FILE"
        ) from None
    except SSLError as error:
        raise UnreachableError(
            f"{address.url} failed to speak TLS: {error.reason or error}; the URL of a server without TLS has ws://"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreachableError(f"{address.url} cannot be reached: {reason}; is the server started?") from None
    except InvalidMessage as error:
        hint = "" if address.secure else "; with TLS it is wss://"
        raise UnreachableError(f"{address.url} does not speak HTTP: {error}{hint}") from None
    except InvalidStatus as error:
        place = error.response.headers.get("Location")
        told = str(error) if place is None else f"the session is at {shown(place)}; give that as the URL"
        raise UnreachableError(f"{address.url} opens no session: {told}") from None
    except WebSocketException as error:
        raise UnreachableError(f"{address.url} opens no session: {error}") from None


async def _greet(socket: ClientConnection, address: Address) -> Link:
    protocol = Protocol()
    await socket.send(protocol.ask(Directive.CONNECT, 0, **address.credentials).decode())
    answer = protocol.hear(await socket.recv())
    if isinstance(answer, Error):
        raise RefusedError(answer.error, answer.kind, answer.retry_after, answer.row)
    if not isinstance(answer, Connected):
        raise ProtocolError(f"the server sent {shown(answer)} before CONNECTED")
    return Link(socket, protocol, answer)
