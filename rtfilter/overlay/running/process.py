"""What a broker and the rendezvous point have in common as processes: a clock, and an end in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from rtfilter.overlay.broker import Out
from rtfilter.overlay.running.client_messages import Cut, Describe, Description
from rtfilter.overlay.running.codec import Codec
from rtfilter.overlay.running.greeting import Hello
from rtfilter.overlay.running.keeping import Keeper
from rtfilter.overlay.running.keys import Key
from rtfilter.overlay.running.links import Link, Switchboard
from rtfilter.overlay.running.settings import Common
from rtfilter.overlay.sending import Message
from rtfilter.store.brokers import BrokerStore
from rtfilter.store.log import TakenError

TICKS: Final = 20
"""Ticks in the time of a heartbeat."""
_log = logging.getLogger(__name__)


class Process:
    """What both have in common.

    Parameters
    ----------
    settings : Common
    hello : Hello
        Who this is, but for its incarnation.
    key : Key
    store : BrokerStore

    Attributes
    ----------
    counts : Counter
        Messages sent, by the name of their class.
    """

    def __init__(self, settings: Common, hello: Hello, key: Key, store: BrokerStore) -> None:
        self.settings, self.store = settings, store
        own = msgspec.structs.replace(hello, incarnation=store.incarnation)
        self.codec = Codec()
        self.board = Switchboard(own, key, self, self.codec, settings.limits)
        self.keeper = Keeper(store)
        self.counts: Counter[str] = Counter()
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End soon."""
        self._ended.set()

    async def run(self, bound: socket.socket, started: Callable[[], None]) -> int:
        """Run until told to end; returns the exit code.

        Parameters
        ----------
        bound : socket.socket
            Where to listen.
        started : callable
            Called when others can connect.
        """
        await self._start()
        work = [asyncio.create_task(self.keeper.run()), asyncio.create_task(self._tick())]
        await self.board.listen(bound)
        started()
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait([*work, ended], return_when=asyncio.FIRST_COMPLETED)
        failed = [one for one in work if one.done()]
        for one in (*work, ended):
            one.cancel()
        for one in failed:
            error = one.exception()
            _log.critical("the process ends: %s", getattr(error, "orig", None) or error)
        if not failed:
            with suppress(SQLAlchemyError, TakenError):
                await self.keeper.flush()
        await self.board.close("this process ends")
        return 1 if failed else 0

    def linked(self, link: Link) -> None:
        """See `Hears`."""
        raise NotImplementedError

    def lost(self, link: Link) -> None:
        """See `Hears`."""
        raise NotImplementedError

    def hear(self, link: Link, message: Message) -> None:
        """See `Hears`."""
        raise NotImplementedError

    async def _start(self) -> None:
        """Begin."""

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat / TICKS)
            self._due(now())

    def _due(self, now: float) -> None:
        """Do what is due."""

    def _send(self, one: Out) -> None:
        raise NotImplementedError

    def _describe(self) -> Description:
        raise NotImplementedError

    def _administer(self, link: Link, message: Message) -> None:
        """Take a message of whoever administers."""
        match message:
            case Describe():
                pass
            case Cut(broker=broker, heal=True):
                self.board.refused.discard(broker)
            case Cut(broker=broker):
                self.board.refuse(broker)
            case _:
                raise ValueError(f"nobody who administers says {type(message).__name__}")
        link.send(self._describe())


def now() -> float:
    """The time of the machines: seconds, monotonic."""
    return asyncio.get_running_loop().time()
