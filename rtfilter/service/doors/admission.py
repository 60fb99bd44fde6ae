"""The admission of clients: users by name or token, no pages of other hosts, few unknown peers at a time."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from ipaddress import IPv4Network, IPv6Network
from ssl import SSLContext
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from rtfilter.basics.sockets import bare, network
from rtfilter.service.access import Access
from rtfilter.service.doors.problems import HostError, OriginError
from rtfilter.service.roles import Identity
from rtfilter.service.service_errors import NotAuthenticatedError

HOW: Final = "say who you are: curl --user NAME:PASSWORD, or the header Authorization: Bearer TOKEN"


async def identity(users: Access, request: Request) -> Identity:
    """Return the identity of a request, by its header Authorization. Raises `NotAuthenticatedError`."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            return await users.token(given.strip())
        case "basic":
            try:
                name, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError, ValueError):
                raise NotAuthenticatedError(HOW) from None
            return await users.password(name, password, request.client.host if request.client else "")
    raise NotAuthenticatedError(HOW)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is the loopback of this machine."""
    host = bare(host).rstrip(".").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


MOST_STRANGERS: Final = 500
"""Most unauthenticated connections of one address."""
MOST_OF_A_USER: Final = 500
"""Most connections of one user over HTTP beside those that stay unauthenticated."""


HANDSHAKE: Final = 10.0
"""Seconds that a handshake may take."""
NO_ROOM: Final = 1.0
"""Seconds after which connections are taken again where the process may have no more files."""


class Strangers:
    """Connections: unauthenticated ones by address, at most `MOST_STRANGERS` of each; the others by user.

    Parameters
    ----------
    proxies : sequence of networks
        Their connections over HTTP are not counted: each has one address for many peers.
    """

    def __init__(self, proxies: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        self._open, self._known = Counter[str](), Counter[str]()
        self._proxies = proxies

    def come_over_http(self, host: str) -> Callable[[], object] | None:
        """Count a connection over HTTP as `come` does, unless it is that of a proxy."""
        if self._proxies and any(
            ipaddress.ip_address(host.partition("%")[0]) in one for one in self._proxies
        ):
            return nobody
        return self.come(host)

    def come(self, host: str) -> Callable[[], object] | None:
        """Count a connection of an address; return None if it is one too many.

        Call the returned function when the peer has authenticated, and when it has gone; one call counts.
        """
        return _counted(self._open, network(host), MOST_STRANGERS)

    def know(self, user: str) -> Callable[[], object] | None:
        """Count a connection of a user, as `come` does; call the returned function when it has gone."""
        return _counted(self._known, user, MOST_OF_A_USER)


def _counted(open: Counter[str], name: str, most: int) -> Callable[[], object] | None:
    if open[name] >= most:
        return None
    open[name] += 1
    return cache(partial(_uncount, open, name))


def _uncount(open: Counter[str], name: str) -> None:
    open[name] -= 1
    if not open[name]:  # so that old names take no room
        del open[name]


def nobody() -> None:
    """Do nothing, for a peer that is not counted."""


class Handshakes:
    """Takes connections until it is closed; each counts as a stranger until its handshake ends.

    Parameters
    ----------
    bound : socket.socket
        Where to listen.
    context : ssl.SSLContext
    make : callable
        Makes the protocol of a connection.
    come : callable
        Counts an address, as `Strangers.come`.
    refused : callable
        To be called for a connection that is one too many.
    """

    def __init__(
        self,
        bound: socket.socket,
        context: SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        come: Callable[[str], Callable[[], object] | None],
        refused: Callable[[], object],
    ) -> None:
        self._bound, self._context, self._make = bound, context, make
        self._come, self._refused = come, refused
        bound.setblocking(False)
        bound.listen(socket.SOMAXCONN)
        self._tasks = {asyncio.create_task(self._accept())}

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._bound)
            except OSError:
                await asyncio.sleep(NO_ROOM)
                continue
            left = self._come(address[0])
            if left is None:
                self._refused()
                connection.close()
                continue
            task = loop.create_task(self._shake_hands(connection, left))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, connection: socket.socket, left: Callable[[], object]) -> None:
        try:
            with suppress(OSError):
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._make, connection, ssl=self._context, ssl_handshake_timeout=HANDSHAKE
                )
        finally:
            left()

    def close(self) -> None:
        """Take no more connections, and end those whose handshake is not complete."""
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until that is done."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def require_own_host(headers: Headers, loopback: bool) -> None:
    """Refuse a request that a browser sends for a page of another host. Raises `HostError`, `OriginError`.

    With `loopback` the server listens for this machine only. Then it answers only to names of the loopback: a
    page can give its own host name that address, and the browser would see no other host.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if loopback and not is_loopback(_name(host)):
        raise HostError("this server listens for this machine only; call it localhost or 127.0.0.1")
    if origin is not None and _authority(origin) != host.lower():
        raise OriginError("a page of another host sent this request; programs send no header Origin")


def _name(host: str) -> str:
    """Return a host without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
