"""The common part of a broker and a rendezvous point as processes: a clock, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from rtfilter.overlay.broker_machine import Out
from rtfilter.overlay.broker_names import BrokerMessage
from rtfilter.overlay.running.broker_keys import Key
from rtfilter.overlay.running.broker_settings import Common
from rtfilter.overlay.running.client_messages import Describe, Description, LinkCut
from rtfilter.overlay.running.codec import Codec
from rtfilter.overlay.running.greeting import Hello
from rtfilter.overlay.running.keeping import Keeper
from rtfilter.overlay.running.links import BrokerLink, Switchboard
from rtfilter.store.broker_store import BrokerStore
from rtfilter.store.log import TakenError

TICKS: Final = 20
"""Ticks per heartbeat."""
_log = logging.getLogger(__name__)


class Process:
    """The common part of a broker and a rendezvous point.

    A wrong message ends its connection, with the reason. So does an error of the program while it processes a
    message, which the log has with its traceback: both ends then connect again and send each other all their
    subscriptions. Any other error of the program ends the process, with its traceback and exit status 1,
    before it sends anything further. Other brokers take its place, and after a restart it continues with its
    stored state.

    Parameters
    ----------
    settings : Common
    hello : Hello
        Its greeting, without the incarnation.
    key : Key
    store : BrokerStore

    Attributes
    ----------
    counts : Counter
        Sent messages, by the name of their class.
    """

    def __init__(self, settings: Common, hello: Hello, key: Key, store: BrokerStore) -> None:
        self.settings, self.store = settings, store
        own = msgspec.structs.replace(hello, incarnation=store.incarnation)
        self.codec = Codec()
        self.board = Switchboard(own, key, self, self.codec, settings.limits)
        self.keeper = Keeper(store)
        self.counts: Counter[str] = Counter()
        self._ended = asyncio.Event()
        self._error: BaseException | None = None

    def end(self) -> None:
        """End the process soon."""
        self._ended.set()

    async def run(self, bound: socket.socket, started: Callable[[], None]) -> int:
        """Run until a signal; return the exit code.

        Parameters
        ----------
        bound : socket.socket
            Socket to listen on.
        started : callable
            Called when others can connect.
        """
        await self._start()
        work = [asyncio.create_task(self.keeper.run()), asyncio.create_task(self._tick())]
        await self.board.listen(bound)
        started()
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait([*work, ended], return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done():
                self._error = self._error or task.exception()
        for one in (*work, ended):
            one.cancel()
        if isinstance(self._error, TakenError):
            _log.critical("the process ends: %s", self._error)
        elif self._error is not None:
            _log.critical("the process ends by an error of its own; start it again", exc_info=self._error)
        else:
            with suppress(TakenError):
                await self.keeper.flush()
        await self.board.close("this process ends")
        return 0 if self._error is None else 1

    def linked(self, link: BrokerLink) -> None:
        """See `Hears`."""
        raise NotImplementedError

    def lost(self, link: BrokerLink) -> None:
        """See `Hears`."""
        raise NotImplementedError

    def hear(self, link: BrokerLink, message: BrokerMessage) -> None:
        """See `Hears`."""
        raise NotImplementedError

    def broken(self, error: Exception) -> None:
        """See `Hears`."""
        self._error = self._error or error
        self.end()

    async def _start(self) -> None:
        """Prepare for connections."""

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat / TICKS)
            self._due(now())

    def _due(self, now: float) -> None:
        """Run the tick of the machine."""

    def _send(self, one: Out) -> None:
        raise NotImplementedError

    def _describe(self) -> Description:
        raise NotImplementedError

    def _administer(self, link: BrokerLink, message: BrokerMessage) -> None:
        """Process a message of an administrator."""
        match message:
            case Describe():
                pass
            case LinkCut(broker=broker, heal=True):
                self.board.refused.discard(broker)
            case LinkCut(broker=broker):
                self.board.refuse(broker)
            case _:
                raise ValueError(f"administrators do not send {type(message).__name__}")
        link.send(self._describe())


def now() -> float:
    """Return the time for the machines: seconds, monotonic."""
    return asyncio.get_running_loop().time()
