"""The targets that webhooks may have: URLs, and addresses of the network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

MOST: Final = 2000
"""Characters of a URL."""
THREADS: Final = 16
"""Names that are resolved at once."""
_REMEDY: Final = "in a network that you trust, start the server with --webhook-private"
Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a name, for a port. Raises `OSError`."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ALSO: Final = [
    ip_network(one)
    for one in (
        "168.63.129.16/32",  # of Azure's own services, for each machine there
        "192.88.99.0/24",  # relays of 6to4
        "64:ff9b:1::/48",  # NAT64 of a site
        "fec0::/10",  # sites, as they were once
    )
]
"""Networks that are not public, beside those that the standard library names."""


class TargetError(ValueError):
    """The URL may not be a webhook; the message has the reason, and no resolved address."""


def check(url: str, private: bool) -> tuple[str, int]:
    """Return host and port of a URL.

    Parameters
    ----------
    url : str
    private : bool
        True if it may be in a private network, and without TLS.

    Raises
    ------
    TargetError
    """
    if len(url) > MOST or not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>'):
        raise TargetError(f"a URL has at most {MOST} characters of ASCII, no spaces, quotes and backslashes")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise TargetError("this is no URL") from None
    if parts.scheme not in ("https", "http") or not host or port == 0:
        raise TargetError("a webhook is at https://host/path")
    if parts.scheme == "http" and not private:
        raise TargetError(f"a webhook needs https, since others could read the events on the way; {_REMEDY}")
    if "@" in parts.netloc:
        raise TargetError("leave user and password out of the URL: the signature proves who sends")
    if "#" in url:
        raise TargetError("leave the fragment, from # on, out of the URL")
    return host, port or (443 if parts.scheme == "https" else 80)


def public(address: Address) -> bool:
    """Return whether an address, or the one that it embeds, is one of the public internet."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return public(inner)
    strange = address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    also = any(address.version == one.version and address in one for one in _ALSO)
    return address.is_global and not strange and not also


class NameResolver:
    """Resolves names in threads of its own, so that a slow name delays no other work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "rtfilter-names")

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return the addresses of a name; see `Resolve`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port)

    def close(self) -> None:
        """Stop the threads; waiting calls get no answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


async def addresses(host: str, port: int, resolve: Resolve, private: bool) -> list[str]:
    """Return the addresses to connect to, all of them checked.

    Raises
    ------
    TargetError
        The name cannot be resolved, or one of its addresses is not public.
    """
    try:
        found = [str(ip_address(host))]
    except ValueError:
        try:
            found = await resolve(host, port)
        except (OSError, UnicodeError):
            found = []
    if not found:
        raise TargetError("the name of its host cannot be resolved")
    if not private and not all(public(ip_address(one)) for one in found):
        raise TargetError(
            f"its address is not a public one, and this server sends to public ones only; {_REMEDY}"
        )
    return found
