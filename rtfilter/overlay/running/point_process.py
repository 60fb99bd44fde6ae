"""The rendezvous point as a process."""

from __future__ import annotations

import msgspec

from rtfilter.overlay.broker import Out
from rtfilter.overlay.membership import (
    AskRoot,
    ClaimRoot,
    Dispatch,
    RendezvousPoint,
    RenewRoot,
    Root,
)
from rtfilter.overlay.running.client_messages import Description, Known
from rtfilter.overlay.running.clients import Work
from rtfilter.overlay.running.greeting import Hello
from rtfilter.overlay.running.keys import Key, Role
from rtfilter.overlay.running.links import Link
from rtfilter.overlay.running.process import Process, now
from rtfilter.overlay.running.settings import POINT, PointSettings
from rtfilter.overlay.sending import Message
from rtfilter.store.brokers import BrokerStore, Memory


class PointProcess(Process):
    """The rendezvous point.

    Parameters
    ----------
    settings : PointSettings
    key : Key
    store : BrokerStore
    address : str
    """

    def __init__(self, settings: PointSettings, key: Key, store: BrokerStore, address: str) -> None:
        super().__init__(settings, Hello(Role.BROKER, POINT, POINT, address), key, store)
        kept = store.memory()
        root = None if kept is None else msgspec.msgpack.decode(kept, type=Root)
        self.point = RendezvousPoint(settings.times, root, now())

    def linked(self, link: Link) -> None:
        """See `Hears`."""

    def lost(self, link: Link) -> None:
        """See `Hears`."""

    def hear(self, link: Link, message: Message) -> None:
        """See `Hears`."""
        if link.peer.role is not Role.BROKER:
            raise ValueError("the rendezvous point serves no clients; connect to a broker")
        if not link.peer.address:
            self._administer(link, message)
            return
        if not isinstance(message, AskRoot | ClaimRoot | RenewRoot):
            raise ValueError(f"nobody says {type(message).__name__} to the rendezvous point")
        before = self.point.root
        out = self.point.receive(message, link.peer.name, now())
        changed = self.point.root != before and self.point.root is not None
        changes = [Memory(msgspec.msgpack.encode(self.point.root))] if changed else []
        self.keeper.do(Work([*changes], [*out]))

    def _send(self, one: Out) -> None:
        self.counts[type(one.message).__name__] += 1
        assert isinstance(one, Dispatch)
        self.board.send(one.to.name, one.to.address, one.message)

    def _describe(self) -> Description:
        root = self.point.root
        links = () if root is None else (Known(*root.cluster.designated),)
        return Description(Known(POINT, POINT, self.board.own.address), links=links, refused=())
