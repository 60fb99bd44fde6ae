"""Free ports for servers that experiments and tests start."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port of the loopback address that no process has open now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port
