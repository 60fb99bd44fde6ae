"""Connections to other sites, which carry the messages of the machines. Events have sessions of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple

from rtfilter.basics.session_states import Directive
from rtfilter.client.client_errors import ClientError, RefusedError, UnreachableError
from rtfilter.client.link import Link, addresses_of, join
from rtfilter.client.protocol import Error, Message
from rtfilter.overlay.broker_names import BrokerMessage
from rtfilter.overlay.codec import encoded

AGAIN: Final = 0.5
"""Seconds without a call after one that failed."""
WAITING: Final = 1000
"""Most messages that wait for a connection; the machines send lost ones again."""
_log = logging.getLogger(__name__)


class Credentials(NamedTuple):
    """The user that a site is at others; its password is empty where these have no users."""

    user: str
    password: str = ""


class Hello(BrokerMessage, frozen=True):
    """The first message of a connection: the settings that must be the same at all sites."""

    strategy: str
    heartbeat: float
    rendezvous_for: Mapping[str, str]


class Complaints:
    """Logs why a site does not work with this one, each reason once, after `what`, such as "no answer of"."""

    def __init__(self, what: str, name: str) -> None:
        self._what, self._name = what, name
        self._last: ClientError | None = None

    def note(self, error: ClientError) -> None:
        """Log an error, unless it was the last one: a warning where the site answers."""
        if str(error) != str(self._last):
            self._last = error
            passes = error.passing if isinstance(error, RefusedError) else isinstance(error, UnreachableError)
            _log.log(logging.INFO if passes else logging.WARNING, "%s %s: %s", self._what, self._name, error)

    def reached(self) -> None:
        """Note that the site can be reached, so that it is logged when it cannot again."""
        if isinstance(self._last, UnreachableError):
            self._last = None


class _Peer:
    def __init__(self, name: str, address: str) -> None:
        self.address, self.complaints = address, Complaints("no connection to", name)
        self.link: Link | None = None
        self.waiting: list[tuple[BrokerMessage, str]] = []
        self.tag = 0
        self.task: asyncio.Task[None] | None = None
        self.not_before = 0.0


class Peers:
    """The connections of a site by the name of the other one.

    `up` and `down` are called with a name when a connection is there, and when it is lost.
    """

    def __init__(
        self,
        cluster: str,
        name: str,
        credentials: Credentials,
        hello: Hello,
        up: Callable[[str], None],
        down: Callable[[str], None],
    ) -> None:
        self._cluster, self._name, self._credentials, self._hello = cluster, name, credentials, hello
        self._up, self._down = up, down
        self._peers: dict[str, _Peer] = {}

    @property
    def connected(self) -> list[str]:
        """The names of sites with a connection."""
        return [name for name, peer in self._peers.items() if peer.link is not None]

    def send(self, name: str, address: str, message: BrokerMessage, site: str = "") -> None:
        """Send a message, after connecting where there is no connection; it may be lost.

        `site` is the sender, by default this site.
        """
        peer = self._peers.get(name)
        if peer is None or peer.address != address:
            if peer is not None and peer.task is not None:
                peer.task.cancel()
            peer = self._peers[name] = _Peer(name, address)
        if peer.link is not None:
            self._put(peer, peer.link, message, site)
            return
        if peer.task is None or peer.task.done():
            if monotonic() < peer.not_before:
                return
            peer.waiting.clear()
            peer.task = asyncio.create_task(self._run(name, peer))
        if len(peer.waiting) < WAITING:
            peer.waiting.append((message, site))

    def _put(self, peer: _Peer, link: Link, message: BrokerMessage, site: str) -> None:
        peer.tag += 1
        body = {"site": site or self._name, "cluster": self._cluster, "message": encoded(message)}
        link.outgoing.put_nowait(link.protocol.ask(Directive.SITE, peer.tag, **body))

    async def _run(self, name: str, peer: _Peer) -> None:
        try:
            peer.link = link = await join(addresses_of(peer.address, *self._credentials))
        except ClientError as error:
            peer.not_before = monotonic() + AGAIN
            peer.complaints.note(error)
            return
        peer.complaints.reached()
        self._put(peer, link, self._hello, "")
        self._up(name)
        waiting, peer.waiting = peer.waiting, []
        for message, site in waiting:
            self._put(peer, link, message, site)
        try:
            await link.run(self._hear)
        except ClientError as error:
            peer.complaints.note(error)
        finally:
            peer.link, peer.not_before = None, monotonic() + AGAIN / 5
            self._down(name)

    def _hear(self, answer: Message) -> None:
        if isinstance(answer, Error):
            raise RefusedError(answer.error, answer.kind)

    async def close(self) -> None:
        """End all connections."""
        tasks = [peer.task for peer in self._peers.values() if peer.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
