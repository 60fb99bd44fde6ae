"""What subscriptions, events and deliveries cost a server: memory, disk, processor, and time at a start.

Needs Linux and rtree-filter[service]. With an argument, so many subscriptions are there; else 100,000, of two
ranges each. Events of some 60 bytes come in requests of 1,000. Writes JSON beside itself.
"""

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from restart_time import Server, load

from rtfilter.replay.machine import one_line

EVENTS, DELIVERIES = 50_000, 9_000
TOGETHER = 1_000
OUT = Path(__file__).with_suffix(".json")


def memory(server):
    """Bytes that it holds."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", text)[1])


def processor(server):
    """Seconds that it has used, of all its threads."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def publish(server, count):
    """Publish, and wait until all is matched; returns the seconds of the processor."""
    rng, before = random.Random(3), processor(server)
    for _ in range(count // TOGETHER):
        rows = (
            {"price": rng.random() * 1000, "size": rng.random() * 1000, "symbol": "ACME"}
            for _ in range(TOGETHER)
        )
        body = "\n".join(map(json.dumps, rows)).encode()
        assert server.ask("POST", "/filters/default/events", body, "application/x-ndjson")[0] == 202
    while True:
        counts = json.loads(server.ask("GET", "/statistics")[1])["server"]
        if not counts["waiting_entries"] and counts["settled"] >= counts["head"]:
            return processor(server) - before
        time.sleep(0.05)


def measure(count):
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")

        def ended(server):
            """Bytes of the database that are in use, once all is written."""
            server.end(signal.SIGTERM)
            with closing(sqlite3.connect(data / "log.sqlite")) as database:
                names = ("page_count", "freelist_count", "page_size")
                pages, free, size = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
            return (pages - free) * size

        server = Server(folder)
        idle = memory(server)
        load(server, count)
        publish(server, TOGETHER)
        held, filled = memory(server), ended(server)

        server = Server(folder)
        fresh, with_index = memory(server), server.seconds
        used = publish(server, EVENTS)
        with_events = ended(server)

        server = Server(folder)
        body = json.dumps({"where": "price >= 0"}).encode()
        assert server.ask("POST", "/filters/default/subscriptions", body)[0] == 201
        used_delivering = publish(server, DELIVERIES)
        with_deliveries = ended(server)

        shutil.rmtree(data / "indexes")
        server = Server(folder)
        without_index = server.seconds
        server.end(signal.SIGTERM)
    event = (with_events - filled) / EVENTS
    return {
        "machine": one_line(),
        "subscriptions": count,
        "idle_bytes": idle,
        "memory_bytes_per_subscription": (held - idle) / count,
        "memory_bytes_per_subscription_after_a_start": (fresh - idle) / count,
        "disk_bytes_per_subscription": filled / count,
        "disk_bytes_per_event": event,
        "disk_bytes_per_delivery": (with_deliveries - with_events) / DELIVERIES - event,
        "processor_microseconds_per_event": 1e6 * used / EVENTS,
        "processor_microseconds_per_event_with_a_delivery": 1e6 * used_delivering / DELIVERIES,
        "start_seconds_with_indexes": with_index,
        "start_seconds_without_indexes": without_index,
    }


if __name__ == "__main__":
    found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    print(OUT.read_text())
