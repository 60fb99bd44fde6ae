"""Connections over TLS: their peers are strangers before the handshake, which asyncio counts nowhere."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext
from typing import Final

HANDSHAKE: Final = 10.0
"""Seconds that a handshake may take."""
NO_ROOM: Final = 1.0
"""Seconds after which connections are taken again where the process may have no more files."""


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
