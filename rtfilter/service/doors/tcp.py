"""The door for sessions over TCP: each connection one conversation, in frames.

The end of a connection is None in its outbox, so that the messages before it are still sent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext
from typing import Final, NamedTuple

from structlog.contextvars import bind_contextvars

from rtfilter.basics.session_states import State
from rtfilter.basics.sockets import keep_alive
from rtfilter.service.conversation import Conversation
from rtfilter.service.doors.admission import Handshakes, Strangers
from rtfilter.service.doors.frames import MOST_BYTES, FrameError, Reader, frame_of, message_of
from rtfilter.service.doors.timeouts import MUCH, STRANGE, STRANGE_FRAMES
from rtfilter.service.service_errors import DirectiveError, NotAuthenticatedError, ServiceError, TooLargeError

LITTLE: Final = 2**15
"""Bytes that may wait for a peer before its writer pauses: half of asyncio's own limit."""
_log = logging.getLogger(__name__)


class Timeouts(NamedTuple):
    """The times that the door waits, in seconds.

    Attributes
    ----------
    connect : float
        Until the client has authenticated, without the time that the server takes for the check.
    write : float
        While a peer does not take a byte.
    end : float
        For a peer to take what was to be sent, and to close.
    """

    connect: float = 10.0
    write: float = 30.0
    end: float = 2.0


@asynccontextmanager
async def listen(
    make_conversation: Callable[[], Conversation],
    bound: socket.socket,
    strangers: Strangers,
    ssl: SSLContext | None = None,
    most_bytes: int = MOST_BYTES,
    timeouts: Timeouts = Timeouts(),  # noqa: B008  # immutable
) -> AsyncIterator[None]:
    """Accept connections until the context ends; then close all of them in order.

    Parameters
    ----------
    make_conversation : callable
        Makes the conversation of a connection.
    bound : socket.socket
        The socket to listen on.
    strangers : Strangers
    ssl : SSLContext, optional
    most_bytes : int
        Most bytes of a frame.
    timeouts : Timeouts
    """
    peers: dict[_Peer, asyncio.Task[None]] = {}

    def refuse() -> None:
        conversation = make_conversation()
        conversation.refused("limit")
        conversation.lost()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        known = strangers.come(writer.get_extra_info("peername")[0])
        if known is None:
            refuse()
            writer.transport.abort()
            return
        conversation = make_conversation()
        peer = _Peer(conversation, reader, writer, most_bytes, timeouts, known)
        bind_contextvars(connection=conversation.id)
        peers[peer] = task
        try:
            with suppress(asyncio.CancelledError):  # by `listen`, at the end; asyncio would log an error
                await peer.run()
        finally:
            del peers[peer]

    def make() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), accept)

    server: asyncio.Server | Handshakes
    if ssl is None:
        server = await asyncio.start_server(accept, sock=bound)
    else:
        server = Handshakes(bound, ssl, make, strangers.come, refuse)
    try:
        yield
    finally:
        server.close()
        for peer in peers:
            peer.end()
        if peers:
            _, late = await asyncio.wait(peers.values(), timeout=timeouts.end)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await server.wait_closed()


class _Peer:
    """A connection."""

    def __init__(
        self,
        conversation: Conversation,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        most_bytes: int,
        timeouts: Timeouts,
        known: Callable[[], object],
    ) -> None:
        self.conversation = conversation
        self._turn, self._known = conversation.turn, known
        self._reader, self._writer, self._timeouts = reader, writer, timeouts
        self._frames = Reader(most=most_bytes)
        self._left, self._since = timeouts.connect, 0.0  # until CONNECT; by the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        conversation.meet(str((writer.get_extra_info("peername") or [""])[0]), self._straight)
        keep_alive(writer.get_extra_info("socket"), timeouts.write)

    def end(self, why: ServiceError | None = None) -> None:
        """Close the connection after the waiting messages; with `why`, send that error first."""
        if why is not None:
            self.conversation.refuse(why)
        self.conversation.lost()
        self.conversation.outbox.put_nowait(None)

    async def run(self) -> None:
        """Serve the connection until it is closed."""
        reading = asyncio.create_task(self._read())
        self._await_connect()
        try:
            await self._write()
            reading.cancel()
            await asyncio.wait([reading])
            await self._close()
        except (OSError, TimeoutError):  # it is gone, or does not take its bytes
            pass
        finally:
            self._stop_clock()
            reading.cancel()
            self.conversation.lost()
            self._known()
            self._writer.transport.abort()

    def _await_connect(self) -> None:
        """Start the timeout for CONNECT, unless it has come."""
        if self.conversation.state is State.PRE_CONNECTED and self._timer is None:
            loop = asyncio.get_running_loop()
            self._since, self._timer = loop.time(), loop.call_later(self._left, self._late)

    def _stop_clock(self) -> None:
        """Stop the timeout for CONNECT while the server works."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= asyncio.get_running_loop().time() - self._since

    def _late(self) -> None:
        self.end(NotAuthenticatedError(f"no CONNECT within {self._timeouts.connect:g} seconds"))

    async def _read(self) -> None:
        """Read and handle frames, one after another, in turns with all other peers."""
        conversation, why = self.conversation, None
        size, count = STRANGE, STRANGE_FRAMES  # bounds before authentication
        try:
            while conversation.state is not State.DISCONNECTED and (data := await self._reader.read(2**16)):
                self._turn.begin()
                await self._turn.pause(len(data))
                self._frames.feed(data)
                size -= len(data)
                for frame in self._frames:
                    count -= 1
                    self._require_few(count)
                    await self._turn.pause(len(frame.body))
                    await conversation.room()
                    try:
                        message = message_of(frame)
                    except DirectiveError as error:
                        conversation.refuse(error)
                    else:
                        self._stop_clock()
                        await conversation.hear(message)
                        self._await_connect()
                    if conversation.state is not State.PRE_CONNECTED:
                        self._known()
                self._require_few(size)
        except (FrameError, TooLargeError) as error:
            why = error
        except OSError:
            pass
        except Exception:
            _log.exception("a connection is closed after an error of the server")
        self.end(why)

    def _require_few(self, left: int) -> None:
        """Raise `TooLargeError` if a bound before CONNECT is exceeded."""
        if left < 0 and self.conversation.state is State.PRE_CONNECTED:
            raise TooLargeError(MUCH)

    async def _write(self) -> None:
        """Send waiting messages until None."""
        while True:
            messages = await self.conversation.unsent()
            if self._writer.transport.is_closing():
                raise ConnectionResetError  # uvloop would have an error of its own for it
            self._writer.write(b"".join(frame_of(message) for message in messages if message is not None))
            await self._taken()
            if messages[-1] is None:
                return
            self.conversation.sent()

    def _straight(self, messages: Sequence[bytes]) -> bool:
        """Send messages at once, unless many bytes wait for the peer; return whether they were sent."""
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() >= LITTLE:
            return False
        transport.write(b"".join(map(frame_of, messages)))
        return True

    async def _taken(self) -> None:
        """Wait while too many bytes wait for the peer. Raises `TimeoutError` if it takes none."""
        if self._writer.transport.get_write_buffer_size() < LITTLE:
            return
        left = self._writer.transport.get_write_buffer_size()
        while True:
            try:
                async with asyncio.timeout(self._timeouts.write):
                    return await self._writer.drain()
            except TimeoutError:
                before, left = left, self._writer.transport.get_write_buffer_size()
                if left >= before:
                    raise

    async def _close(self) -> None:
        """Close after the peer has read all. Closed earlier, a peer that still sends could lose the end."""
        async with asyncio.timeout(self._timeouts.end):
            if self._writer.can_write_eof() and not self._writer.transport.is_closing():  # it may be gone
                self._writer.write_eof()
                while await self._reader.read(2**16):
                    pass
            self._writer.close()
            await self._writer.wait_closed()
