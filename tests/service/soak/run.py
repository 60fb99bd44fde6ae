"""Lives that are ended or killed, then one long life, under the same consumers."""

import random
import threading
import time
from collections import Counter
from contextlib import contextmanager
from math import inf
from pathlib import Path

from service.kills.knowledge import FaultError, Knowledge
from service.kills.process import Server
from service.kills.run import finish, work
from service.kills.workers import Subscriber
from service.relay import Relay
from service.soak.consumers import (
    Bulk,
    Digested,
    Ordered,
    OverTcp,
    Paced,
    Puller,
    Slow,
    Vanishing,
    VanishingOverTcp,
)
from service.soak.measures import Watch, require_flat, sample

STARTED = Path(__file__).parents[1] / "faults" / "started.py"
CONSUMERS = {
    "ann": Subscriber,
    "bob": OverTcp,
    "dig": Digested,
    "ora": Ordered,
    "sue": Slow,
    "van": Vanishing,
    "vic": VanishingOverTcp,
    "pat": Puller,
}
PUBLISHERS = {"carl": Paced, "dora": Paced, "bulk": Bulk}
SCHEMA = '{"attributes": {"price": "float", "serial": "int"}, "key": "price"}'
SHORT = 20.0
"""Seconds that deliveries are kept where the server is ended and killed: or more and more would wait."""
AGE = 4.0
"""Seconds that events and deliveries are kept in the long life."""
LATE = 10.0
"""Seconds that dropping what is too old may take beyond that."""


def run(folder, seed, restarts, steady, leak=None, most=100.0):
    """Have all at work; everything is compared after the restarts, and in the end.

    Parameters
    ----------
    folder : Path
    seed : int
        Threads take their turns as they like, so a seed does not repeat a run exactly.
    restarts : float
        Seconds in which the server is ended or killed again and again.
    steady : float
        Seconds that the last one lives.
    leak : int, optional
        Bytes that it is to keep of each event.
    most : float
        Bytes of memory that an entry of the log may leave behind.

    Returns
    -------
    Counter
        What was done, and what was measured.
    """
    chance, known = random.Random(seed), Knowledge(tuple(CONSUMERS))
    made = {
        name: kind(name, known, random.Random(f"{seed} {name}"))
        for name, kind in (CONSUMERS | PUBLISHERS).items()
    }
    workers, consumers = list(made.values()), [made[name] for name in CONSUMERS]
    publishers = [made[name] for name in PUBLISHERS]
    counts, end, known.age = Counter(), time.monotonic() + restarts, SHORT
    while time.monotonic() < end:
        counts[_life(folder, workers, chance)] += 1
    if counts:
        with _serving(folder, ("--backlog-age", SHORT)) as server:
            finish(server, known, consumers, publishers)  # all that is due is there
    flags = ("--retention", AGE, "--backlog-age", AGE)
    known.age = AGE
    with _serving(folder, flags, LEAK=None if leak is None else str(leak)) as server:
        measured = _live(server, folder, workers, steady, most)
        finish(server, known, consumers, publishers)
        _require_young(consumers)
    return counts + Counter(
        events=len(known.publish_of),
        deliveries=known.delivered,
        subscriptions=len(known.by_id),
        acknowledged=sum(map(len, known.acknowledged.values())),
        ended=sum(one.told for one in known.by_id.values()),
        **measured,
    )


@contextmanager
def _serving(folder, flags, **more):
    """A server that is there while the context is; `flags` and `more` as of `Server`."""
    given = {"PATIENCE": "20", "TRIM": "1", "TASKS": str(folder / "tasks"), **more}
    server = Server(folder, flags=("--tcp-port", 0, "--redeliver", 2, *flags), started=STARTED, **given)
    try:
        server.ask("PUT", "/filters/default", "admin", SCHEMA, Content_Type="application/json")
        yield server
    finally:
        server.end()


def _life(folder, workers, chance):
    """One that ends in good order or is killed; returns how."""
    with _serving(folder, ("--backlog-age", SHORT)) as server:
        how = chance.choice([server.stop, server.kill])
        later = threading.Timer(chance.uniform(1.0, 6.0), how)
        later.start()
        try:
            _work(server, workers, inf)
        finally:
            later.cancel()
        return "killed" if how == server.kill else "ended in good order"


def _work(server, workers, seconds):
    with Relay(server.port) as relay, Relay(server.tcp_port) as framed:
        vanishing = [worker for worker in workers if isinstance(worker, Vanishing)]
        for one in vanishing:
            one.relay = framed if isinstance(one, VanishingOverTcp) else relay
        try:
            work(server, workers, time.monotonic() + seconds)
        finally:
            for one in vanishing:
                one.relay = None


def _live(server, folder, workers, seconds, most):
    """The long life; returns what is measured."""
    take = lambda: sample(server, folder / "data", folder / "tasks")  # noqa: E731
    with Watch(take) as watch:
        _work(server, workers, seconds)
    return require_flat(watch.samples, most)


def _require_young(consumers):
    """Nothing waits that should have been dropped long ago."""
    for one in consumers:
        now = time.time()
        if old := [found for found in one.backlog(1000) if found["at"] + AGE + LATE < now]:
            raise FaultError(f"{len(old)} deliveries wait for {one.name} for too long, such as {old[0]}")
