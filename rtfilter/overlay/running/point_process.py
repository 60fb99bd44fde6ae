"""The rendezvous point as a process."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import Final

import msgspec

from rtfilter.overlay.broker_names import BrokerMessage
from rtfilter.overlay.membership import Contact, RendezvousPoint
from rtfilter.overlay.membership.contacts import Dispatch
from rtfilter.overlay.membership.rendezvous_point import AskRoot, ClaimRoot, RenewRoot, Root
from rtfilter.overlay.running.broker_frames import Hello
from rtfilter.overlay.running.broker_keys import Key, KeyRole
from rtfilter.overlay.running.broker_settings import POINT, PointSettings
from rtfilter.overlay.running.client_messages import Description
from rtfilter.overlay.running.links import BrokerLink
from rtfilter.overlay.running.process import Job, Process, now
from rtfilter.store.broker_store import BrokerMemory, BrokerStore

WAITING: Final = 10_000
"""Most messages that wait while another root is stored."""
_log = logging.getLogger(__name__)


class PointProcess(Process):
    """The rendezvous point as a process."""

    def __init__(self, settings: PointSettings, key: Key, store: BrokerStore, address: str) -> None:
        super().__init__(settings, Hello(KeyRole.BROKER, POINT, POINT, address), key, store)
        kept = store.memory()
        root = None if kept is None else msgspec.msgpack.decode(kept, type=Root)
        self.point = RendezvousPoint(settings.times, root, now())
        self._root = root  # without a claim that is not stored yet
        self._waiting: deque[tuple[AskRoot | ClaimRoot | RenewRoot, str]] = deque()
        self._busy = False

    def linked(self, link: BrokerLink) -> None:
        """Do nothing: brokers ask again by themselves."""

    lost = linked

    def hear(self, link: BrokerLink, message: BrokerMessage) -> None:
        if link.peer.role is not KeyRole.BROKER:
            raise ValueError("the rendezvous point serves no clients; connect to a broker")
        if not link.peer.address:
            self._administer(link, message)
            return
        if not isinstance(message, AskRoot | ClaimRoot | RenewRoot):
            raise ValueError(f"the rendezvous point does not accept {type(message).__name__}")
        self.point.require(message)
        if len(self._waiting) < WAITING:  # otherwise dropped: they ask again
            self._waiting.append((message, link.peer.name))
        if not self._busy:
            self._go_on()

    def _go_on(self) -> None:
        """Answer waiting messages until one changes the root: the change is stored before the next answer."""
        self._busy = False
        while self._waiting and not self._busy:
            message, name = self._waiting.popleft()
            try:
                out = self.point.receive(message, name, now())
            except ValueError as error:  # its root could not be stored
                _log.warning("a message of %s is dropped: %s", name, error)
                continue
            if self.point.root == self._root:
                self._answer(out)
                continue
            kept = BrokerMemory(msgspec.msgpack.encode(self.point.root))
            if isinstance(message, RenewRoot):  # a later one has the same content
                self._is_root()
                self.keeper.keep(Job([kept]))
                self._answer(out)
                continue
            self._busy = True
            self.keeper.keep(Job([kept], partial(self._kept, out), self._not_kept))

    def _is_root(self) -> None:
        """Accept the root as stored; log it if the designated broker is another one."""
        former, self._root = self._root, self.point.root
        if self._root and (not former or former.cluster.designated != self._root.cluster.designated):
            cluster, designated = self._root.cluster.cluster, self._root.cluster.designated.name
            _log.info(
                "cluster %s is the root of the tree now; its designated broker is %s", cluster, designated
            )

    def _kept(self, out: list[Dispatch]) -> None:
        self._is_root()
        self._answer(out)
        self._go_on()

    def _not_kept(self) -> None:
        """Restore the former root, without an answer: the broker will repeat its claim."""
        self.point.root = self._root
        self._go_on()

    def _answer(self, out: list[Dispatch]) -> None:
        for one in out:
            self._send(one)

    def _send(self, one: Dispatch) -> None:
        self.board.send(one.to.name, one.to.address, one.message)

    def _describe(self) -> Description:
        root = self.point.root
        links = [] if root is None else list(dict.fromkeys((root.cluster.designated, *root.cluster.members)))
        if not any(one.name in self.board.brokers for one in links):  # the root is gone: all brokers
            peers = (link.peer for link in self.board.brokers.values())
            links += [Contact(peer.name, peer.cluster, peer.address) for peer in peers]
        itself = Contact(POINT, POINT, self.board.own.address)
        return Description(itself, links=tuple(links), refused=tuple(sorted(self.board.refused)))
