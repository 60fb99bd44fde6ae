"""Options of connections."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""A peer whose machine is gone is noticed after two minutes."""


def keep_alive(connection: socket.socket, takes_within: float) -> None:
    """Have a peer noticed that is gone without a word, or takes nothing of what the system holds for it.

    Parameters
    ----------
    connection : socket.socket
    takes_within : float
        Seconds in which it has to take something.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**KEEPALIVE, "TCP_USER_TIMEOUT": int(1000 * takes_within)}.items():
        if hasattr(socket, name):  # as far as the system has it
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
