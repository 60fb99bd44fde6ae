"""Bound sockets, and options of connections."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from typing import Final

KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Options with which the system notices after two minutes that the machine of a peer is gone."""

OTHER_FILES: Final = 100
"""Files that a process may have open in addition to its connections."""
NETWORK: Final = 8
"""Bytes of an IPv6 address that name a network, of which one peer may have all addresses."""


def bound(host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to an address; nobody can connect before it listens. Port 0 is any free one.

    The host is a name, an IPv4 address, or an IPv6 address, such as ``::1`` or ``[::1]``, which takes no IPv4
    connections. An `OSError` names host, port and reason.
    """
    host = bare(host)
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if ":" in host:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if os.name == "posix":  # elsewhere, SO_REUSEADDR would let other programs take the port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise OSError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return made


def bare(host: str) -> str:
    """Return a host without the brackets that an IPv6 address has before a port."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def network(host: str) -> str:
    """Return the address of a peer; of IPv6 that of its network."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or address.packed[:NETWORK].hex())


def shown(host: str) -> str:
    """Return a host as addresses show it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def keep_alive(connection: socket.socket, takes_within: float) -> None:
    """Set options so that the system ends a connection whose peer is gone.

    The peer must acknowledge data within `takes_within` seconds.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**KEEPALIVE, "TCP_USER_TIMEOUT": int(1000 * takes_within)}.items():
        if hasattr(socket, name):  # the system may not have the option
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def make_room(connections: int) -> None:
    """Raise the limit of open files for a number of connections, as far as the system permits."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    needed = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
