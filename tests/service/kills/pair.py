"""Two servers on one database: the one that serves is killed, and the other one takes over, in turn."""

import random
import time
from collections import Counter
from itertools import count

from service.kills.knowledge import FaultError
from service.kills.process import GoneError, Server
from service.kills.run import LONGEST, People, work
from service.kills.started import POINTS

PATIENCE = 60.0
"""Seconds until a standby must have taken over, on a busy machine."""


def run(folder, kills, seed, url):
    """Kill the server that serves so often, and now and then its standby; then compare everything.

    Returns
    -------
    Counter
        What was done, with the longest take-over in milliseconds.
    """
    chance, counts, people = random.Random(seed), Counter(), People(seed)
    names, longest = count(), 0.0

    def start(point=None):
        place = folder / "ab"[next(names) % 2]
        place.mkdir(exist_ok=True)
        flags = ("--standby", "--schema", place / "given.json")
        return Server(place, url, None, point, flags=flags)

    first = start()
    for left in reversed(range(kills)):
        itself = left and chance.random() < 0.4  # the last one stays
        second = start(f"{chance.choice(POINTS)}:{chance.choice([1, 2, 5, 20])}" if itself else None)
        if chance.random() < 0.2:
            work(first, people.workers, time.monotonic() + chance.uniform(0.02, 0.3))
            second.end()
            next(names)  # in the same folder
            second = start()
            counts["killed standing by"] += 1
        first.kill_after(chance.uniform(0.02, 0.8))
        try:
            work(first, people.workers, time.monotonic() + LONGEST)
        finally:
            first.end()
        counts["killed serving"] += 1
        begun = time.monotonic()
        try:
            _wait(second)
        except GoneError:  # it has killed itself meanwhile
            second.end()
            counts["both killed"] += 1
            second = start()
        else:
            longest = max(longest, time.monotonic() - begun)
        first = second
    try:
        people.finish(first)
    finally:
        first.end()
    return counts + people.counts + Counter({"longest take-over, ms": round(1000 * longest)})


def _wait(server):
    """Wait until a server serves."""
    end = time.monotonic() + PATIENCE
    while server.ask("GET", "/readyz", "ann", allowed=(503,))[0] != 200:
        if time.monotonic() > end:
            raise FaultError("the standby does not take over")
        time.sleep(0.01)
