"""A server of its own for tests, in a thread."""

import asyncio
import base64
import http.client
import json
import ssl
import threading
from contextlib import contextmanager

from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.service import server
from rtfilter.service.settings import settings

SCHEMA = Schema({"price": float, "symbol": str})


class Answer:
    """Of a request: `status`, `headers` and `body`, which is read where it is JSON."""

    def __init__(self, response):
        self.status, self.headers, self.bytes = response.status, response.headers, response.read()
        kind = self.headers.get("content-type", "")
        self.body = json.loads(self.bytes) if "json" in kind and self.bytes else self.bytes


class Running:
    """A server that runs; `pipeline` is its own, and belongs to its thread."""

    def __init__(self, opened, loop):
        self.pipeline, self.port, self.opened, self._loop = opened.pipeline, opened.port, opened, loop

    def ask(self, method, path, body=None, *, user="ann", kind=None, **headers):
        """Ask as a user; what is no bytes is sent as JSON."""
        if body is not None and not isinstance(body, bytes):
            body, kind = json.dumps(body).encode(), kind or "application/json"
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if kind is not None:
            given["Content-Type"] = kind
        if user is not None:
            given.setdefault("Authorization", "Basic " + base64.b64encode(f"{user}:".encode()).decode())
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if self.opened.settings.certificate is not None:
            context = ssl.create_default_context(cafile=self.opened.settings.certificate)
            link = http.client.HTTPSConnection("localhost", self.port, timeout=60, context=context)
        try:
            link.request(method, path, body, given)
            return Answer(link.getresponse())
        finally:
            link.close()

    def run(self, work):
        """The result of a coroutine, on the loop of the server."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def settle(self):
        """Wait until it is known what all events match."""
        self.run(self.pipeline.settled(self.pipeline.status.counts["head"]))


@contextmanager
def running(folder, schema=SCHEMA, ended=0, **flags):
    """Run a server with a filter of a schema or a definition; `ended` is the exit code that is expected."""
    definition = Definition(schema) if isinstance(schema, Schema) else schema
    told, found, failed = threading.Event(), [], []

    def opened(one):
        found.append((one, asyncio.get_running_loop()))
        told.set()

    def run():
        try:
            with asyncio.Runner(loop_factory=server._loop_factory()) as runner:
                given = settings(data=folder, **{"port": 0, **flags})
                failed.append(runner.run(server._serve(given, definition, opened)))
        except BaseException as error:
            failed.append(error)
        finally:
            told.set()

    thread = threading.Thread(target=run)
    thread.start()
    told.wait()
    if not found:
        thread.join()
        raise failed[0]
    one, loop = found[0]
    try:
        yield Running(one, loop)
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(one.end)
        thread.join()
    assert failed == [ended]
