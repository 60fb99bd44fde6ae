"""Publishers and subscribers at work, while something goes wrong beside them."""

import json
import random
import time

from service.kills.knowledge import FaultError, Knowledge
from service.kills.run import finish, work
from service.kills.workers import LINES, Publisher, Subscriber

USERS = ("ann", "bob")
WITHIN = 60.0
"""Seconds in which a server has to see that something is wrong, or good again."""
OFTEN = 0.02
"""Seconds between two looks."""


class Load:
    """Workers that know everything, as of `service.kills`.

    Attributes
    ----------
    known : Knowledge
    """

    def __init__(self, seed):
        self.known = Knowledge(USERS)
        self._subscribers = [Subscriber(name, self.known, random.Random(f"{seed} {name}")) for name in USERS]
        self._publishers = [Publisher("carl", self.known, random.Random(f"{seed} carl"))]

    def run(self, server, fault, seconds):
        """Have them work for so many seconds; `fault` comes and goes meanwhile, and longer if it has to."""
        work(server, [fault, *self._subscribers, *self._publishers], time.monotonic() + seconds)

    def finish(self, server):
        """Compare everything, once all has ended that ends by itself."""
        for worker in self._subscribers:  # an end that could not be written is tried again a while later
            worker.server = server
            worker.repeat()
            for one in self.known.subscriptions[worker.name]:
                if one.brief:
                    path = f"/subscriptions/{one.id}"
                    until(lambda p=path, w=worker: w.ask("GET", p, None, (404,))[0] == 404, f"{one} ends")
        finish(server, self.known, self._subscribers, self._publishers)

    @property
    def refused(self):
        """How often they were told to try again."""
        return sum(one.refused for one in [*self._subscribers, *self._publishers])


class Fault:
    """Something that goes wrong again and again, and what is to be seen of it.

    Parameters
    ----------
    known : Knowledge
    random : random.Random

    Attributes
    ----------
    works : tuple of str
        Paths that are answered all the same.
    times : int
        How often it came.
    """

    works = ("/healthz", "/readyz")

    def __init__(self, known, random):
        self.known, self.random, self.times = known, random, 0

    def work(self, server, deadline):
        """As of a worker; at least once."""
        self.server = server
        while not self.times or time.monotonic() < deadline:
            self.begin()
            try:
                self.meanwhile()
            finally:
                self.end()
            until(lambda: self.publish() == 202, "events are taken again")
            self.times += 1
            time.sleep(self.random.uniform(0.0, 0.3))

    def publish(self, size=10):
        """Publish what nobody has subscribed to, of so many bytes; returns the status."""
        one = self.known.publishing("erin", None, [1000], "lines")
        (serial,) = one.events
        body = json.dumps({"price": 1000, "serial": serial, "more": "x" * size})
        path = "/filters/default/events"
        status, answer = self.server.ask("POST", path, "erin", body, (503,), **LINES)
        if status == 202:
            self.known.published(one, answer["positions"])
        return status

    def require_works(self):
        """What needs no database is done, and the server says that it lives."""
        for path in self.works:
            self.server.ask("GET", path, "ann")


def until(done, what):
    """Wait until it is done. Raises `FaultError`."""
    end = time.monotonic() + WITHIN
    while not done():
        if time.monotonic() > end:
            raise FaultError(f"not within {WITHIN:.0f} s: {what}")
        time.sleep(OFTEN)
