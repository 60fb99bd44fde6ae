"""An open loop: requests are sent when they are due, whether or not earlier ones are answered.

One thread holds all connections. A response is counted from the moment at which its request was due, so
waiting in the generator, in the sockets and in the server all count.
"""

from __future__ import annotations

import gc
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, thread_time
from typing import Final

import numpy as np

from experiments.service.wires import Http, Kind, Wire, pong
from rtfilter.basics.dtypes import FloatArray

ACKNOWLEDGE: Final = 100
"""Deliveries after which a listener acknowledges them."""
LATEST: Final = 1.0
"""Seconds after which it does so at the latest."""
DEPTH: Final = 16
"""Requests of one connection that are under way; beyond it they wait in the generator, and that counts."""


class Line:
    """A connection."""

    def __init__(self, port: int, wire: Wire, host: str = "127.0.0.1") -> None:
        self.wire, self._place = wire, (host, port)
        self._connect()
        self.waiting: deque[int] = deque()
        self.unsent = b""
        self.received = self.acknowledged = 0

    def _connect(self) -> None:
        self.socket = socket.create_connection(self._place, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def renew(self) -> None:
        """Connect again: servers close connections of HTTP that rest. Raises `ConnectionError` for others."""
        self.socket.close()
        if not isinstance(self.wire, Http):
            raise ConnectionError("the server closed a connection")
        self.unsent, self.wire = b"", Http()
        self._connect()
        self.socket.setblocking(False)

    def ask(self, request: bytes) -> bytes:
        """Send one request and wait for its answer, as before a measurement. Raises `ConnectionError`."""
        self.socket.setblocking(True)
        self.socket.settimeout(120)
        self.socket.sendall(request)
        while True:
            data = self.socket.recv(2**18)
            if not data:
                raise ConnectionError("the server closed the connection")
            for kind, body in self.wire.feed(data):
                if kind == Kind.REFUSED:
                    raise ConnectionError(f"refused: {body[:300]!r}")
                if kind == Kind.PING:
                    self.socket.sendall(pong(body))
                if kind == Kind.ANSWER:
                    return body

    def close(self) -> None:
        """Close it."""
        self.socket.close()


@dataclass
class Offered:
    """The results of a step. Moments are in seconds from its start; NaN where something did not come.

    Attributes
    ----------
    due, sent, done : float64 (n,)
        Of each request.
    refused : list of int
        Requests that were answered with an error.
    answers : list of bytes
        By request; empty where there is none, or none was kept.
    deliveries : list of (float, bytes)
        In the order in which they came.
    window : float
        Seconds in which requests were due.
    lasted : float
        Seconds until all were answered and delivered, or were given up.
    worked : float
        CPU seconds of the generator.
    """

    due: FloatArray
    sent: FloatArray
    done: FloatArray
    window: float
    refused: list[int] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    deliveries: list[tuple[float, bytes]] = field(default_factory=list)
    lasted: float = 0.0
    worked: float = 0.0


def offer(
    lines: Sequence[Line],
    requests: Sequence[bytes],
    due: FloatArray,
    window: float,
    listeners: Sequence[Line] = (),
    depth: int = DEPTH,
    patience: float = 20.0,
    expected: Callable[[int], int] | None = None,
    keep: bool = True,
    stop_at_end: bool = False,
) -> Offered:
    """Offer load.

    Parameters
    ----------
    lines : sequence of Line
        Requests go to those that have the fewest under way.
    requests : sequence of bytes
        The i-th arrival sends ``requests[i % len(requests)]``.
    due : float64 (n,)
        Seconds from the start, ascending.
    window : float
    listeners : sequence of Line
        Receive deliveries and acknowledge them; lines may be among them.
    depth : int
        Requests under way on one connection.
    patience : float
        Seconds after the window in which what is under way may still come.
    expected : callable, optional
        Number of deliveries of a number of requests, for which it waits.
    keep : bool
        True if answers are kept.
    stop_at_end : bool
        Send nothing any more when the window ends: a closed loop.
    """
    count = len(due)
    found = Offered(due, np.full(count, np.nan), np.full(count, np.nan), window)
    sent, done, refused, deliveries = [0.0] * count, [np.nan] * count, found.refused, found.deliveries
    answers = [b""] * count if keep else []
    moments = due.tolist()
    everyone = list({id(line): line for line in (*lines, *listeners)}.values())
    poll = select.epoll()
    of = {}
    for line in everyone:
        line.socket.setblocking(False)
        of[line.socket.fileno()] = line
        poll.register(line.socket.fileno(), select.EPOLLIN)
    free = deque(lines)
    kinds, total = len(requests), count
    following = answered = 0
    unacknowledged: set[Line] = set()
    collecting = gc.isenabled()
    gc.disable()
    worked = thread_time()
    begun = perf_counter()
    acknowledge_at = LATEST
    try:
        while True:
            now = perf_counter() - begun
            while following < total and moments[following] <= now and free:
                line = free[0]
                if len(line.waiting) >= depth:
                    break
                free.rotate(-1)
                sent[following] = now
                line.waiting.append(following)
                _send(line, requests[following % kinds], poll)
                following += 1
                now = perf_counter() - begun
            if now >= window:
                if stop_at_end:
                    total = following
                arrived = expected is None or len(deliveries) >= expected(total)
                if (answered >= total and following >= total and arrived) or now >= window + patience:
                    break
            wait = 0.01
            if following < total and len(free[0].waiting) < depth:
                wait = min(wait, max(moments[following] - now, 0.0))
            if wait > 0:
                select.select([poll], [], [], wait)  # to the microsecond, which epoll alone is not
            for number, what in poll.poll(0):
                line = of[number]
                if what & select.EPOLLOUT:
                    _send(line, b"", poll)
                if not what & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                    continue
                try:
                    data = line.socket.recv(2**18)
                except ConnectionResetError:
                    data = b""
                now = perf_counter() - begun
                if not data:
                    line.renew()
                    del of[number]
                    of[line.socket.fileno()] = line
                    poll.register(line.socket.fileno(), select.EPOLLIN)
                    _send(line, b"".join(requests[which % kinds] for which in line.waiting), poll)
                    continue
                for kind, body in line.wire.feed(data):
                    if kind == Kind.DELIVERY:
                        deliveries.append((now, body))
                        line.received += 1
                        unacknowledged.add(line)
                    elif kind == Kind.PING:
                        _send(line, pong(body), poll)
                    elif kind != Kind.ACKNOWLEDGED:
                        which = line.waiting.popleft()
                        done[which] = now
                        answered += 1
                        if keep:
                            answers[which] = body
                        if kind == Kind.REFUSED:
                            refused.append(which)
                if line.received - line.acknowledged >= ACKNOWLEDGE:
                    _acknowledge(line, poll)
                    unacknowledged.discard(line)
            if now >= acknowledge_at:
                acknowledge_at = now + LATEST
                for line in unacknowledged:
                    _acknowledge(line, poll)
                unacknowledged.clear()
    finally:
        found.worked = thread_time() - worked
        if collecting:
            gc.enable()
        poll.close()
    found.lasted = perf_counter() - begun
    for line in unacknowledged:
        line.socket.setblocking(True)
        line.socket.sendall(line.unsent + line.wire.acknowledgement(line.received))
        line.unsent, line.acknowledged = b"", line.received
    found.due, found.sent = due[:total], np.array(sent[:total])
    found.done, found.answers = np.array(done[:total]), answers[:total]
    return found


def _send(line: Line, data: bytes, poll: select.epoll) -> None:
    """Send what can be sent now; the rest when the socket takes it."""
    if line.unsent:
        data = line.unsent + data
    try:
        count = line.socket.send(data)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):  # of the last two, `recv` tells
        count = 0
    before, line.unsent = line.unsent, data[count:]
    if line.unsent and not before:
        poll.modify(line.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
    elif before and not line.unsent:
        poll.modify(line.socket.fileno(), select.EPOLLIN)


def _acknowledge(line: Line, poll: select.epoll) -> None:
    _send(line, line.wire.acknowledgement(line.received), poll)
    line.acknowledged = line.received
