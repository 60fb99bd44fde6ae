"""A network of sites as processes, and what is published and delivered there."""

import json
import random
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress

from service.kills.knowledge import FaultError
from service.kills.process import BusyError, GoneError, Server

HEARTBEAT = 0.5
ONE = {"Content_Type": "application/json"}
CALM = 120.0
"""Seconds in which all must have arrived once all sites run, on a busy machine."""


def free():
    """A free port, for a server that is started again."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class Network:
    """Sites in clusters, `started` and killed; the first one is the rendezvous point."""

    def __init__(self, folder, clusters, strategy="hybrid", more=()):
        self.folder, self.strategy, self.more = folder, strategy, more
        self.ports = {name: free() for name in clusters}
        self.clusters = clusters
        self.servers = {}

    def start(self, name):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        address = f"http://127.0.0.1:{self.ports[name]}"
        first = next(iter(self.clusters))
        flags = ["--port", self.ports[name], "--schema", folder / "given.json", "--site", name]
        flags += ["--cluster", self.clusters[name], "--address", address, "--strategy", self.strategy]
        flags += ["--rendezvous", f"http://127.0.0.1:{self.ports[first]}", "--heartbeat", HEARTBEAT]
        self.servers[name] = Server(folder, flags=[*flags, *self.more], patient=True)

    def start_all(self):
        for name in self.clusters:
            self.start(name)

    def end(self):
        for server in self.servers.values():
            with suppress(ProcessLookupError):
                server.process.send_signal(signal.SIGCONT)
            server.end()


class Checker:
    """Publishes and subscribes at all sites, and compares what arrives with what must."""

    def __init__(self, network, seed):
        self.network, self.random = network, random.Random(seed)
        self.lock = threading.Lock()
        self.serial = 0
        self.published = {}  # serial: price, when answered
        self.began = {}  # serial: when it was asked for
        self.wants = []  # site, user, low, high, id, when it was confirmed everywhere
        self.got, self.places = {}, {}  # by site and user: how often each serial came; positions
        self.counts = Counter()

    def ask(self, site, method, path, user, body=None, **headers):
        while True:
            try:
                return self.network.servers[site].ask(method, path, user, body, **headers)[1]
            except BusyError:
                time.sleep(0.05)

    def subscribe(self, site):
        low = self.random.randrange(100)
        high = low + self.random.randrange(1, 40)
        user, key = f"ann{self.random.randrange(2)}", f"{site} {self.random.random()}"
        body = json.dumps({"where": f"price >= {low} AND price < {high}"})
        path = "/filters/default/subscriptions?everywhere=true"
        found = self.ask(site, "POST", path, user, body, Idempotency_Key=key, **ONE)
        with self.lock:
            self.wants.append((site, user, low, high, found["subscription"], time.monotonic()))

    def publish(self, site):
        with self.lock:
            first = self.serial
            self.serial += (count := self.random.choice([1, 1, 5, 20]))
            prices = {first + k: self.random.randrange(100) for k in range(count)}
            self.began |= dict.fromkeys(prices, time.monotonic())
        key = f"{site} {first}"
        lines = "\n".join(json.dumps({"price": price, "serial": serial}) for serial, price in prices.items())
        self.ask(
            site,
            "POST",
            "/filters/default/events",
            "carl",
            lines,
            Content_Type="application/x-ndjson",
            Idempotency_Key=key,
        )
        with self.lock:
            self.published |= prices

    def pull(self, site, user):
        """Take what waits for a user, and acknowledge it."""
        found = self.ask(site, "GET", "/deliveries?limit=1000", user)["deliveries"]
        with self.lock:
            got, places = self.got.setdefault((site, user), {}), self.places.setdefault((site, user), set())
            for one in found:
                if one["position"] not in places:
                    places.add(one["position"])
                    serial = one["event"]["serial"]
                    got[serial] = got.get(serial, 0) + 1
            self.counts["deliveries"] += len(found)
        if found:
            body = json.dumps({"positions": [one["position"] for one in found]})
            self.ask(site, "POST", "/acknowledgements", user, body, **ONE)

    def missing(self):
        """What must have arrived, and has not."""
        with self.lock:
            return [
                (site, user, serial)
                for site, user, low, high, _, when in self.wants
                for serial, price in self.published.items()
                if low <= price < high
                and self.began[serial] > when
                and not self.got.get((site, user), {}).get(serial)
            ]

    def check(self):
        """Wait until all has arrived; nothing is twice or for nobody."""
        end = time.monotonic() + CALM
        while missing := self.missing():
            if time.monotonic() > end:
                raise FaultError(f"{len(missing)} lost, such as {missing[:5]}")
            for site in self.network.clusters:
                for user in ("ann0", "ann1"):
                    self.pull(site, user)
            time.sleep(0.2)
        for (site, user), serials in self.got.items():
            ranges = [one[2:4] for one in self.wants if one[:2] == (site, user)]
            for serial, count in serials.items():
                if count > 1:
                    raise FaultError(f"{user} at {site} got {serial} {count} times")
                price = self.published.get(serial)
                if price is not None and not any(low <= price < high for low, high in ranges):
                    raise FaultError(f"{user} at {site} got {serial}, which nobody there wants")


def run(folder, seconds, seed, clusters=None, strategy="hybrid"):
    """Kill and hold sites for so long, while all work; then compare.

    Returns
    -------
    Counter
        What was done.
    """
    clusters = clusters or {f"s{k}": f"s{k}" for k in range(5)}
    network = Network(folder, clusters, strategy)
    checker = Checker(network, seed)
    chance, faults, stop = random.Random(f"{seed} faults"), [], threading.Event()

    def work(site):
        while not stop.is_set():
            try:
                for _ in range(3):
                    checker.publish(site)
                checker.pull(site, checker.random.choice(["ann0", "ann1"]))
                time.sleep(0.02)
            except GoneError:
                time.sleep(0.1)
            except BaseException as error:
                faults.append(error)
                stop.set()

    try:
        network.start_all()
        for site in [*clusters] * 3:
            checker.subscribe(site)
        threads = [threading.Thread(target=work, args=(site,)) for site in clusters]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not stop.is_set():
            time.sleep(chance.uniform(0.5, 3))
            site = chance.choice([*clusters])
            server = network.servers[site]
            if chance.random() < 0.5:
                server.kill()
                server.end()
                time.sleep(chance.choice([0, 0, 2, 4]))
                network.start(site)
                checker.counts["killed"] += 1
            else:
                server.process.send_signal(signal.SIGSTOP)
                time.sleep(chance.choice([0.5, 1, 3]))
                server.process.send_signal(signal.SIGCONT)
                checker.counts["held"] += 1
        stop.set()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        checker.check()
        return checker.counts + Counter(events=len(checker.published), subscriptions=len(checker.wants))
    finally:
        stop.set()
        network.end()
