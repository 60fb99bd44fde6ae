"""How soon a server is ready again: after it ended by itself, and after kill -9.

Needs rtree-filter[service]. With an argument, so many subscriptions are there; else 1,000,000. The time is
from the start of the process to the first 200 of /readyz, which is when all is computed that was not. For
comparison, the same subscriptions are made in a process of their own, from predicates as text.
"""

import base64
import http.client
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from rtfilter import EventFilter, Schema
from rtfilter.replay.machine import one_line

SCHEMA = {"price": "float", "size": "float", "symbol": "str"}
CHUNK = 10_000
WAYS = (
    (signal.SIGKILL, "kill -9 at once", 1),
    (signal.SIGTERM, "SIGTERM", 3),
    (signal.SIGKILL, "kill -9", 3),
)


def wishes(count):
    """Two ranges each, so narrow that an event matches about one of a million."""
    rng = random.Random(1)
    for _ in range(count):
        low, least = rng.random() * 1000, rng.random() * 1000
        yield f"price BETWEEN {low:.3f} AND {low + 1:.3f} AND size BETWEEN {least:.3f} AND {least + 1:.3f}"


class Server:
    """A server on any free port."""

    def __init__(self, folder):
        schema = Path(folder, "schema.json")
        schema.write_text(json.dumps(SCHEMA))
        flags = ["--data", str(Path(folder, "data")), "--schema", str(schema), "--port", "0"]
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rtfilter", "serve", *flags], stdout=subprocess.PIPE, text=True
        )
        line = next(line for line in self.process.stdout if " at http://" in line)
        self.link = http.client.HTTPConnection("127.0.0.1", int(line.rpartition(":")[2]), timeout=600)
        while self.ask("GET", "/readyz")[0] != 200:
            time.sleep(0.02)
        self.seconds = time.perf_counter() - begun

    def ask(self, method, path, body=None, kind="application/json"):
        headers = {"Authorization": "Basic " + base64.b64encode(b"admin:").decode(), "Content-Type": kind}
        self.link.request(method, path, body, headers)
        answer = self.link.getresponse()
        return answer.status, answer.read()

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait()
        self.link.close()
        self.process.stdout.close()


def load(server, count):
    """Subscribe in bulk; returns the seconds that it took."""
    rows, begun = wishes(count), time.perf_counter()
    with tqdm(total=count, desc="subscribing", unit="sub", leave=False) as shown:
        for first in range(0, count, CHUNK):
            chunk = [next(rows) for _ in range(min(CHUNK, count - first))]
            body = "\n".join(json.dumps({"where": where}) for where in chunk).encode()
            status, answer = server.ask(
                "POST", "/filters/default/subscriptions", body, "application/x-ndjson"
            )
            assert status == 200, answer
            shown.update(len(chunk))
    return time.perf_counter() - begun


def publish(server, count=1000):
    """Events that wait for the subscriber when the server ends."""
    rng = random.Random(2)
    rows = ({"price": rng.random() * 1000, "size": rng.random() * 1000} for _ in range(count))
    body = "\n".join(map(json.dumps, rows)).encode()
    status, answer = server.ask("POST", "/filters/default/events", body, "application/x-ndjson")
    assert status == 202, answer


def measure(folder, count):
    """Print a line for each way to end."""
    server = Server(folder)
    try:
        print(f"{'subscribed over HTTP, kept and made':<42} {load(server, count):6.1f} s", flush=True)
        for how, name, times in WAYS:
            seconds = []
            for _ in range(times):
                publish(server)
                server.end(how)
                server = Server(folder)
                seconds.append(server.seconds)
            print(f"{'ready after ' + name:<42} {', '.join(f'{one:6.1f}' for one in seconds)} s", flush=True)
        there = json.loads(server.ask("GET", "/statistics")[1])
        print(f"{there['subscriptions']} subscriptions, {there['pending']} deliveries wait")
    finally:
        server.end(signal.SIGTERM)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(one_line())
    begun = time.perf_counter()
    EventFilter(Schema.from_json(SCHEMA)).subscribe_many(list(wishes(count)))
    print(f"{'made in one process, from text':<42} {time.perf_counter() - begun:6.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        measure(folder, count)


if __name__ == "__main__":
    main()
