"""Kill the server again and again, with all workers at work; in the end everything is compared."""

import random
import threading
import time
from collections import Counter

from service.kills.knowledge import FaultError, Knowledge
from service.kills.process import GoneError, Server
from service.kills.started import POINTS
from service.kills.workers import Publisher, Subscriber

USERS = ("ann", "bob", "eve")
PUBLISHERS = ("carl", "dora")
TRIES = 20
LONGEST = 30.0
"""Seconds that a server lives that is to kill itself at a point, and does not come there."""


def run(folder, kills, seed, url=None, kill_at=None, fault=None):
    """Kill so often, then compare everything.

    Parameters
    ----------
    folder : Path
    kills, seed : int
        Threads take their turns as they like, so a seed does not repeat a run exactly.
    url : str, optional
        Of the database; SQLite by default.
    kill_at : str, optional
        One of `POINTS`, with a number if that matters, for all kills; otherwise random ones and moments.
    fault : str, optional
        Of `started`, that the server has.

    Returns
    -------
    Counter
        What was done.
    """
    chance, counts, people = random.Random(seed), Counter(), People(seed)
    for _ in range(kills):
        point, delay = _how(chance, kill_at)
        server = Server(folder, url, delay, point, fault)
        try:
            if server.port is not None:
                work(server, people.workers)
        finally:
            itself = server.end()
        counts["killed while starting" if server.port is None else "killed in work"] += 1
        if itself:
            counts[f"killed {point.partition(':')[0]}"] += 1
    server = Server(folder, url, None, None, fault)
    try:
        people.finish(server)
    finally:
        server.end()
    return counts + people.counts


class People:
    """All workers, and what they know."""

    def __init__(self, seed):
        self.known = Knowledge(USERS)
        self._subscribers = [Subscriber(name, self.known, random.Random(f"{seed} {name}")) for name in USERS]
        self._publishers = [
            Publisher(name, self.known, random.Random(f"{seed} {name}")) for name in PUBLISHERS
        ]
        self.workers = [*self._subscribers, *self._publishers]

    def finish(self, server):
        """Let all work until something was delivered, then compare everything."""
        for _ in range(TRIES):
            work(server, self.workers, time.monotonic() + 0.3)
            if self.known.delivered:  # on a slow machine nothing may have been so far
                break
        finish(server, self.known, self._subscribers, self._publishers)

    @property
    def counts(self):
        """What was done."""
        known = self.known
        return Counter(
            events=len(known.publish_of),
            deliveries=known.delivered,
            subscriptions=len(known.by_id),
            acknowledged=sum(map(len, known.acknowledged.values())),
            ended=sum(one.told for one in known.by_id.values()),
        )


def _how(chance, kill_at):
    """The point with its number, or None, and the delay."""
    if kill_at is not None:
        return kill_at if ":" in kill_at else f"{kill_at}:{chance.choice([1, 2, 3])}", LONGEST
    if chance.random() < 0.4:
        return f"{chance.choice(POINTS)}:{chance.choice([1, 2, 5, 20])}", 1.2
    if chance.random() < 0.25:
        return None, -chance.uniform(0.02, 0.6)
    return None, chance.uniform(0.02, 0.8)


def work(server, workers, deadline=None):
    """Let all work until the server is gone, or until then; raises the first fault."""
    faults = []

    def work(worker):
        try:
            worker.work(server, deadline)
        except BaseException as error:
            faults.append(error)
            server.kill()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def finish(server, known, subscribers, publishers):
    """Compare everything, once all that is open is answered."""
    try:
        for worker in publishers:
            worker.server = server
            worker.resume()
            worker.leave()
        for worker in subscribers:
            worker.server = server
            worker.repeat()
        end = time.monotonic() + 60
        while server.ask("GET", "/readyz", "ann", allowed=(503,))[0] != 200:
            if time.monotonic() > end:
                raise FaultError("the server does not get ready")
            time.sleep(0.02)
        _check_log(server, known)
        time.sleep(_longest_ttl(known))
        for one in subscribers:
            one.finish(server)
    except GoneError:
        raise FaultError("the server is gone, and nobody killed it") from None


def _longest_ttl(known):
    """Seconds until all that ends by itself has ended, and is told."""
    last = [one.versions[-1] for one in known.by_id.values() if one.brief]
    ends = [version.last_at + version.ttl for version in last]
    return max(0.0, max(ends, default=0.0) - time.time()) + 0.5


def _check_log(server, known):
    """Each event that was answered is stored once, and every other one once at most."""
    stored, after = [], 0
    while True:
        _, page = server.ask("GET", f"/filters/default/events?after={after}&limit=1000", "ann")
        stored += page["events"]
        if len(page["events"]) < 1000:
            break
        after = stored[-1]["position"]
    at = Counter(one["event"]["serial"] for one in stored)
    if again := [serial for serial, count in at.items() if count > 1]:
        raise FaultError(f"the events {again[:5]} are stored more than once")
    for one in stored:
        serial = one["event"]["serial"]
        if known.position_of.setdefault(serial, one["position"]) != one["position"]:
            raise FaultError(f"event {serial} is stored at {one['position']}, and not as told")
    for publish in known.publish_of.values():
        if publish.places is not None and not set(publish.events) <= at.keys() and known.kept(publish):
            raise FaultError(f"not stored: {publish}")
