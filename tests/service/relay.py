"""A relay between clients and a server, which can stop forwarding without a word: both ends stay open."""

import socket
import threading
from contextlib import suppress

FEW = 4096
"""Bytes that wait unread in the relay, about: so a server soon sees that nothing is taken."""


class Relay:
    """Forwards connections to a port of this machine; a context manager.

    Attributes
    ----------
    port : int
        Where to connect.
    """

    def __init__(self, to):
        self._to, self._pairs, self._lock = to, [], threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # or a thread would wait for ever
        self._listening.close()
        self.reset()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.socket()
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FEW)
                try:
                    far.connect(("127.0.0.1", self._to))
                except OSError:
                    near.close()
                    far.close()
                    continue
                pair = _Pair(near, far)
                with self._lock:
                    self._pairs.append(pair)

    def stall(self):
        """Forward nothing more of the connections that are there. New ones are forwarded."""
        with self._lock:
            for pair in self._pairs:
                pair.stalled = True

    def reset(self):
        """Close all connections."""
        with self._lock:
            for pair in self._pairs:
                pair.close()
            self._pairs.clear()


class _Pair:
    def __init__(self, near, far):
        self.near, self.far, self.stalled = near, far, False
        for one in (near, far):
            one.settimeout(0.05)  # so that it is soon seen that nothing is to be forwarded
        for given in ((near, far), (far, near)):
            threading.Thread(target=self._forward, args=given, daemon=True).start()

    def _forward(self, source, target):
        with suppress(OSError):
            while not self.stalled:
                try:
                    data = source.recv(2**16)
                except TimeoutError:
                    continue
                if not data:
                    break
                self._send(target, data)
        if not self.stalled:
            self.close()

    def _send(self, target, data):
        while data and not self.stalled:
            with suppress(TimeoutError):
                data = data[target.send(data) :]

    def close(self):
        for one in (self.near, self.far):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
