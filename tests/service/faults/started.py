"""`service.kills.started`, in a world that a test changes while it runs. The environment says how:

CLOCK    a file with the seconds by which the clock is wrong, read again every few milliseconds; in a new
         Python, since modules take the clock as they are imported
PAGES    a file; while it is there, the database of SQLite cannot grow
PATIENCE seconds that doors wait for peers, instead of half a minute
TRIM     seconds after which the log is trimmed again, and old deliveries are looked for
TASKS    a file into which the number of tasks of the event loop is written
LEAK     bytes that are kept of each event for ever
ANSWER   seconds that a webhook may take to answer
"""

import os
import runpy
import time
from pathlib import Path

GIVEN = {
    name: os.environ.get(name) for name in ("CLOCK", "PAGES", "PATIENCE", "TRIM", "TASKS", "LEAK", "ANSWER")
}
OFTEN = 0.005
"""Seconds between two looks at a file."""


def wrong_clock(file):
    """Have `time.time` be wrong, for all modules that are imported after this."""
    true, seen = time.time, [0.0, 0.0]

    def wrong():
        now = time.monotonic()
        if now > seen[0]:
            seen[:] = now + OFTEN, float(file.read_text() or seen[1])
        return true() + seen[1]

    time.time = wrong


def few_pages(file):
    """Have SQLite refuse to let the file grow, as where the disk is full."""
    from rtfilter.store import database

    inner = database._begin

    def begin(connection):
        # at least as many as there are; the rest are those that a transaction may put in
        connection.exec_driver_sql(f"PRAGMA max_page_count = {1 if file.exists() else 2**30}")
        inner(connection)

    database._begin = begin


def short_timeouts(seconds):
    """Have peers closed soon that take or answer nothing."""
    from rtfilter.service import server
    from rtfilter.service.doors import tcp, timeouts, websocket

    inner = server._config

    def config(*given):
        made = inner(*given)
        made.ws_ping_interval = made.ws_ping_timeout = seconds
        return made

    server._config = config
    timeouts.SILENT = timeouts.CLOSE_WITHIN = websocket.SEND_WITHIN = seconds
    plain, idle = tcp.listen, tcp.Timeouts(write=seconds)
    tcp.listen = lambda *given, **more: plain(*given, **more, timeouts=idle)


def trimmed_often(seconds):
    """Have the log trimmed often, and old deliveries dropped."""
    from rtfilter.service import deliver, upkeep

    upkeep.TRIM = deliver.SWEEP = seconds


def webhooks_may_take(seconds):
    """Have requests to webhooks last so long, where nothing ends them before."""
    from rtfilter.service import server

    inner = server.Sender
    server.Sender = lambda private: inner(private, timeout=seconds)


def count_tasks(file):
    """Write how many tasks there are."""
    import asyncio

    from rtfilter.service import server

    inner, kept = server._greet, []

    async def write():
        while True:
            aside = file.with_suffix(".new")
            aside.write_text(str(len(asyncio.all_tasks())))
            aside.rename(file)
            await asyncio.sleep(0.2)

    def greet(opened):
        kept.append(asyncio.create_task(write()))
        inner(opened)

    server._greet = greet


def leak(size):
    """Keep some bytes of each event."""
    from rtfilter.service import log_matcher

    inner, kept = log_matcher.LogMatcher.put, []

    def put(self, logged):
        logged = list(logged)
        kept.extend(os.urandom(size) for _ in logged)
        inner(self, logged)

    log_matcher.LogMatcher.put = put


if __name__ == "__main__":
    faults = {"CLOCK": wrong_clock, "PAGES": few_pages, "TASKS": count_tasks}
    numbers = {"PATIENCE": short_timeouts, "TRIM": trimmed_often, "ANSWER": webhooks_may_take}
    for name, fault in faults.items():  # the clock first: modules take `time.time` as they are imported
        if GIVEN[name] is not None:
            fault(Path(GIVEN[name]))
    for name, change in numbers.items():
        if GIVEN[name] is not None:
            change(float(GIVEN[name]))
    if GIVEN["LEAK"] is not None:
        leak(int(GIVEN["LEAK"]))
    runpy.run_path(str(Path(__file__).parents[1] / "kills" / "started.py"), run_name="__main__")
