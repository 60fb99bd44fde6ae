"""The server of `started`."""

from contextlib import contextmanager
from pathlib import Path

from service.kills.process import Server

STARTED = Path(__file__).with_name("started.py")


@contextmanager
def serving(folder, url=None, flags=(), patient=True, **more):
    """A server that lives while the context does, and is killed then; parameters as of `Server`."""
    server = Server(folder, url, flags=flags, started=STARTED, patient=patient, **more)
    try:
        yield server
    finally:
        server.end()
