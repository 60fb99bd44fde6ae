"""Messages within a cluster by UDP multicast: each datagram proves its sender, and counts once.

A datagram has a code, 32 bytes, then its sender, the sender's incarnation, its number, and a message. Lost
datagrams are not repeated here: the machines repair the loss.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from rtfilter.basics.errors import RTFilterError
from rtfilter.overlay.broker_names import BrokerMessage, Whole
from rtfilter.overlay.membership.contacts import most_incarnation, require_possible
from rtfilter.overlay.running.broker_frames import Codec, LinkError, encoded
from rtfilter.overlay.running.broker_keys import BYTES, Key, mac
from rtfilter.overlay.running.links import Notices

MOST: Final = 60_000
"""Most bytes of a datagram; a longer message goes to each member separately."""
SENDERS: Final = 1000
"""Most known senders; the sender that was silent for longest is removed."""
WINDOW: Final = 64
"""Most numbers by which a datagram may be late."""
_log = logging.getLogger(__name__)


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    sender: str
    incarnation: Whole
    number: Whole
    body: bytes


_envelope: Final = msgspec.msgpack.Decoder(_Envelope)


class _Seen:
    """The received numbers of a sender: the highest, and those shortly below."""

    def __init__(self) -> None:
        self._incarnation, self._highest, self._bits = -1, 0, 0

    def takes(self, incarnation: int, number: int) -> bool:
        """Record a number; return whether it is new."""
        if incarnation > self._incarnation:
            self._incarnation, self._highest, self._bits = incarnation, number, 1
            return True
        behind = self._highest - number
        if incarnation < self._incarnation or behind >= WINDOW or (behind >= 0 and self._bits >> behind & 1):
            return False
        if behind >= 0:
            self._bits |= 1 << behind
        else:
            self._highest = number
            self._bits = (self._bits << min(-behind, WINDOW) | 1) & ((1 << WINDOW) - 1)
        return True


class Datagrams:
    """Writes and reads the datagrams of a cluster, at one broker; no I/O."""

    def __init__(self, key: Key, cluster: str, broker: str, incarnation: int, codec: Codec) -> None:
        self._secret = key.derived("datagrams", cluster)
        self._broker, self._incarnation, self._codec = broker, incarnation, codec
        self._number, self._begun = 0, time.monotonic()
        self._seen: dict[str, _Seen] = {}

    def write(self, message: BrokerMessage) -> bytes:
        """Return a message of this broker as a datagram."""
        self._number += 1
        envelope = _Envelope(self._broker, self._incarnation, self._number, encoded(message))
        text = msgspec.msgpack.encode(envelope)
        return mac(self._secret, text) + text

    def read(self, datagram: bytes) -> tuple[str, BrokerMessage] | None:
        """Return the sender and the message; None for an own datagram, or one received before.

        Raises `LinkError` if the sender does not have the key, or the datagram has no message, and
        `ValueError` if no start of the sender can have had its incarnation.
        """
        text = datagram[BYTES:]
        if not hmac.compare_digest(datagram[:BYTES], mac(self._secret, text)):
            raise LinkError(
                "the sender does not have the key, or is of another cluster; give all brokers the same "
                "--key, and each cluster a --group of its own"
            )
        try:
            found = _envelope.decode(text)
        except msgspec.DecodeError as error:
            raise LinkError(f"this is no datagram: {error}") from None
        if found.sender == self._broker:
            return None
        most = most_incarnation(self._incarnation, time.monotonic() - self._begun)
        require_possible(found.sender, found.incarnation, most)
        seen = self._seen.pop(found.sender, None) or _Seen()
        self._seen[found.sender] = seen  # now the most recent one
        if len(self._seen) > SENDERS:
            del self._seen[next(iter(self._seen))]
        if not seen.takes(found.incarnation, found.number):
            return None
        return found.sender, self._codec.decoded(found.body)


class MulticastGroup(asyncio.DatagramProtocol):
    """A multicast group that a broker is in; `hear` is called with each sender and message.

    The interface is an address of this machine, on the network of the cluster.
    """

    def __init__(
        self,
        datagrams: Datagrams,
        hear: Callable[[str, BrokerMessage], None],
        address: str,
        port: int,
        interface: str = "0.0.0.0",
    ) -> None:
        self._datagrams, self._hear = datagrams, hear
        self._group, self._interface = (address, port), interface
        self._transport: asyncio.DatagramTransport | None = None
        self._notices = Notices()
        self.refused = 0  # number of refused datagrams

    async def join(self) -> None:
        """Open the socket. Raises `OSError` if this machine has no multicast."""
        address, port = self._group
        bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for several brokers on one machine
            own = socket.inet_aton(self._interface)
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            bound.bind((address, port))
            member = struct.pack("4s4s", socket.inet_aton(address), own)
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            bound.setblocking(False)
            loop = asyncio.get_running_loop()
            self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=bound)
        except BaseException:
            bound.close()
            raise

    def send(self, message: BrokerMessage) -> bool:
        """Send a message to all members; return False if it is too long for a datagram, or not joined."""
        datagram = self._datagrams.write(message)
        if self._transport is None or len(datagram) > MOST:
            return False
        self._transport.sendto(datagram, self._group)
        return True

    def leave(self) -> None:
        """Close the socket."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Process a datagram; count an invalid one, and change nothing."""
        try:
            found = self._datagrams.read(data)
        except (LinkError, ValueError) as error:
            self.refused += 1
            if self._notices.news(str(error), ""):  # there may be many senders
                _log.warning("datagrams are refused, from %s among others: %s", addr[0], error)
            return
        if found is None:
            return
        try:
            self._hear(*found)
        except (RTFilterError, ValueError) as error:  # a wrong message of a sender with the key
            self.refused += 1
            _log.warning("a datagram of %s is dropped: %s", found[0], error)

    def error_received(self, exc: Exception) -> None:
        """Log the error: the machines repair the loss."""
        _log.debug("a datagram was not sent: %s", exc)
