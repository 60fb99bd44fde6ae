"""Webhooks that hang, more of them than requests may be under way, beside one that works."""

import json
import random
from collections import Counter
from pathlib import Path

from rtfilter.service.webhooks.sending import AT_ONCE
from service.faults.load import until
from service.faults.world import serving
from service.kills.knowledge import FaultError
from service.webhooks.target import target

HANGING = AT_ONCE + 10
"""Users whose webhooks hang."""
SIZE = 8000
"""Bytes of an event, about."""
SOME = 20
"""Events of a request."""
MOST = 48 * 2**20
"""Bytes by which the server may grow: much less than if each user had a copy of each event."""
ONE, LINES = {"Content_Type": "application/json"}, {"Content_Type": "application/x-ndjson"}


def run(folder, seed, rounds=30):
    """Have webhooks hang while events are published, and then work again; returns what was done.

    They say nothing, or drip, by turns of seeds. No request ends before they work again: so who waits for
    one of them waits for ever.
    """
    kind, chance = ("hang", "drip")[seed % 2], random.Random(seed)
    flags = ("--schema", folder / "given.json", "--webhook-private", "--webhook-tries", 1000)
    tasks = folder / "tasks"
    with (
        target() as good,
        target(kind) as bad,
        serving(folder, flags=flags, ANSWER="3600", TASKS=str(tasks)) as server,
    ):
        users = [f"user{number}" for number in range(HANGING)]
        arrived, missed = Taken(good), Taken(bad)
        _hook(server, "ann", good.url)
        arrived.wait_for(_publish(server, 1))  # so it is known to be quick
        until(lambda: tasks.exists(), "tasks are counted")
        counted = int(tasks.read_text())
        ids = {_hook(server, user, bad.url) for user in users}
        places = _publish(server, 1)
        bad.wait(AT_ONCE)
        grown = _memory(server)
        for _ in range(rounds):
            new = _publish(server, chance.randint(1, SOME))
            arrived.wait_for(new)
            places += new
        grown = _memory(server) - grown
        if grown > MOST:
            raise FaultError(f"the server grows by {grown >> 20} MiB while webhooks hang")
        if (now := int(tasks.read_text())) > counted + 2 * HANGING:
            raise FaultError(f"the server has {now} tasks while webhooks hang, and had {counted}")
        bad.free()
        missed.wait_for(places, ids)
        for user in users:
            until(
                lambda u=user: not _ask(server, "GET", "/deliveries", u)["deliveries"], "all is acknowledged"
            )
    return Counter({f"webhooks that {kind}": HANGING, "events for webhooks": len(places)})


def _hook(server, user, url):
    """Give a user a subscription, whose id it returns, and a webhook."""
    made = _ask(server, "POST", "/filters/default/subscriptions", user, {"where": "price >= 0"})
    _ask(server, "PUT", "/webhook", user, {"url": url})
    return made["subscription"]


def _publish(server, count):
    """Publish, which is answered however many hang; returns the positions."""
    line = json.dumps({"price": 1, "serial": 1, "more": "x" * SIZE})
    body = "\n".join([line] * count)
    return server.ask("POST", "/filters/default/events", "carl", body, **LINES)[1]["positions"]


def _ask(server, method, path, user, body=None):
    return server.ask(method, path, user, None if body is None else json.dumps(body), **ONE)[1]


class Taken:
    """What a target has confirmed; each body is read once."""

    def __init__(self, told):
        self._told, self._read, self._found = told, 0, {}

    def wait_for(self, places, ids=frozenset()):
        """Wait until it has events, for each of the subscriptions, or for any."""
        until(lambda: self._has(places, ids), f"{len(places)} events arrive where they should")

    def _has(self, places, ids):
        while self._read < len(self._told.taken):
            for one in json.loads(self._told.taken[self._read])["deliveries"]:
                self._found.setdefault(one["position"], set()).update(one["subscriptions"])
            self._read += 1
        return all(position in self._found and self._found[position] >= ids for position in places)


def _memory(server):
    """Bytes of the server."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
