"""A connection: the address of a server with a user, and a WebSocket with an open session."""

from __future__ import annotations

import asyncio
import ssl as tls
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from urllib.request import Request

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

from rtfilter.basics.session_states import Directive
from rtfilter.basics.text import shown
from rtfilter.client.client_errors import ClientError, ProtocolError, RefusedError, UnreachableError
from rtfilter.client.protocol import Connected, Error, Message, Protocol

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
OPENING: Final = 10.0
"""Seconds within which a connection and its session must be open."""
MOST_BYTES: Final = 64 * 2**20
"""Most bytes of a message of the server."""

RUBBISH: Final = frozenset({CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_DATA, CloseCode.MESSAGE_TOO_BIG})
"""Codes with which this side closes because of an invalid message of the server."""


@dataclass(frozen=True)
class Address:
    """A server and one of its users; the parameters are those of `rtfilter.client.connect`.

    Raises `ClientError` if the URL is wrong, there is no user or token, or `ssl` is given for ``ws``.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ssl: tls.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in _SCHEMES and parts.hostname and (parts.port is None or parts.port)
            known = known and self.url.isprintable() and bool((parts.hostname or "").encode("idna"))
        except ValueError:
            known = False
        if not known:
            raise ClientError(f"{shown(self.url)} is not the URL of a server, such as ws://127.0.0.1:8080")
        if parts.username is not None or parts.password is not None:
            raise ClientError("give user and password beside the URL, not in it")
        path = parts.path if parts.path not in ("", "/") else "/session"
        full = urlunsplit((_SCHEMES[parts.scheme], parts.netloc, path, parts.query, ""))
        object.__setattr__(self, "url", full)
        if self.secure and self.ssl is None:
            object.__setattr__(self, "ssl", tls.create_default_context())
        elif self.ssl is not None and not self.secure:
            raise ClientError(f"ssl is for wss:// and https://; the URL is {self.url}")
        if (self.user is None) == (self.token is None):
            raise ClientError("say who you are: either user, with password, or token")
        try:
            "".join(self.credentials.values()).encode()
        except UnicodeEncodeError:
            raise ClientError("user, password or token is not UTF-8") from None

    @property
    def secure(self) -> bool:
        """True if the connection uses TLS."""
        return self.url.startswith("wss:")

    def request(self, path: str) -> Request:
        """Return the HTTP request for a path of the server; open it with `ssl`."""
        parts = urlsplit(self.url)
        scheme, path = "https" if self.secure else "http", parts.path.removesuffix("/session") + path
        who = f"Bearer {self.token}"
        if self.token is None:
            who = "Basic " + b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
        return Request(urlunsplit((scheme, parts.netloc, path, "", "")), headers={"Authorization": who})

    @property
    def credentials(self) -> dict[str, str]:
        """The body of CONNECT."""
        if self.token is not None:
            return {"token": self.token}
        return {"user": self.user or "", "password": self.password or ""}


class Link:
    """A connection with its protocol, whose CONNECT is confirmed; messages to send wait in a queue."""

    def __init__(self, socket: ClientConnection, protocol: Protocol, connected: Connected) -> None:
        self._socket, self.protocol, self.connected = socket, protocol, connected
        self.outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._why = ""
        self.too_large = False
        """True if the connection was lost because a message was too large for the server."""

    async def run(self, hear: Callable[[Message], None]) -> str:
        """Send and receive until the connection is lost; return the reason. Errors of `hear` are raised.

        Raises `ProtocolError` if the server's message is not understood: the next connection would not help.
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
            try:
                await asyncio.gather(writer, return_exceptions=True)
                await self.close()
            finally:
                self._socket.transport.abort()  # it is open still where this is cancelled

    async def _write(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                await self._socket.send((await self.outgoing.get()).decode())

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


def addresses_of(urls: str, *who: Any) -> list[Address]:
    """Return the addresses of one server, or of several whose URLs have commas between; see `Address`."""
    return [Address(one.strip(), *who) for one in urls.split(",")]


async def join(addresses: Sequence[Address]) -> Link:
    """Open a session with the first server that opens one; all are asked at once.

    Raises `UnreachableError`, `RefusedError`, and `ProtocolError`; of several errors, one that does not pass,
    such as a wrong password, or else that of a server that is there.
    """
    asked = [asyncio.create_task(_join(address)) for address in addresses]
    errors: list[ClientError] = []
    link: Link | None = None
    try:
        for answer in asyncio.as_completed(asked):
            try:
                link = await answer
                return link
            except ClientError as error:
                errors.append(error)
    finally:
        for one in asked:
            one.cancel()
            one.add_done_callback(partial(_drop_others, link))
    passing = [error for error in errors if isinstance(error, RefusedError) and error.passing]
    away = [error for error in errors if isinstance(error, UnreachableError)]
    if len(away) == len(errors):
        raise UnreachableError("; ".join(map(str, away)))
    raise next((error for error in errors if error not in passing and error not in away), *passing[:1])


def _drop_others(link: Link | None, asked: asyncio.Task[Link]) -> None:
    if not asked.cancelled() and asked.exception() is None and asked.result() is not link:
        asked.result().drop("another server was faster")


async def _join(address: Address) -> Link:
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
    except (OSError, ImportError, WebSocketException) as error:
        raise UnreachableError(f"{address.url} {_reason(error, address.secure)}") from None


def _reason(error: Exception, secure: bool) -> str:
    match error:
        case TimeoutError():
            return f"does not answer within {OPENING:g} s"
        case ImportError():
            return f"is behind a proxy: {error}; see the variable no_proxy"
        case tls.SSLCertVerificationError():
            return (
                f"has a certificate that is not trusted: {error.verify_message}; "
                "to trust one of your own, name its file in the variable SSL_CERT_FILE"
            )
        case tls.SSLError():
            return f"failed to speak TLS: {error.reason or error}; the URL of a server without TLS has ws://"
        case OSError():
            return f"cannot be reached: {error.strerror or error}; is the server started?"
        case InvalidURI():
            return f"is no URL of a server: {error}"
        case InvalidMessage():
            return f"does not speak HTTP: {error}" + ("" if secure else "; with TLS it is wss://")
        case InvalidStatus() if place := error.response.headers.get("Location"):
            return f"opens no session: the session is at {shown(place)}; give that as the URL"
    return f"opens no session: {error}"


async def _greet(socket: ClientConnection, address: Address) -> Link:
    protocol = Protocol()
    await socket.send(protocol.ask(Directive.CONNECT, 0, **address.credentials).decode())
    answer = protocol.hear(await socket.recv())
    if isinstance(answer, Error):
        raise RefusedError(answer.error, answer.kind, answer.retry_after, answer.row)
    if not isinstance(answer, Connected):
        raise ProtocolError(f"the server sent {shown(answer)} before CONNECTED")
    return Link(socket, protocol, answer)
