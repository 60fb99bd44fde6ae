"""Links of sessions, over WebSocket and over TCP: `send` a message, and `recv` one."""

import json
import socket
import time
from contextlib import contextmanager

from websockets.sync.client import connect

from rtfilter.service.doors.frames import ClientDirective, Reader, ServerDirective, write


def over_websocket(port):
    """All that comes is read, so that pings are answered, however slowly messages are taken."""
    waits = {"max_size": None, "max_queue": None, "ping_interval": None, "close_timeout": 0.1}
    return connect(f"ws://127.0.0.1:{port}/session", compression=None, **waits)


@contextmanager
def over_tcp(port):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        yield _Frames(link)


class _Frames:
    def __init__(self, link):
        self._link, self._reader = link, Reader(ServerDirective)

    def send(self, text):
        said = json.loads(text)
        self._link.sendall(write(ClientDirective[said.pop("directive")], json.dumps(said).encode()))

    def recv(self, timeout):
        """The next message. Raises `TimeoutError`, and `EOFError` where the link is closed."""
        end = time.monotonic() + timeout
        while (frame := next(iter(self._reader), None)) is None:
            self._link.settimeout(max(0.001, end - time.monotonic()))
            data = self._link.recv(2**16)
            if not data:
                raise EOFError
            self._reader.feed(data)
        return json.dumps({"directive": frame.directive.name, **json.loads(frame.body or b"{}")})
