"""A network of sites as processes, and what is published and delivered there."""

import asyncio
import json
import random
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from math import inf
from pathlib import Path

from rtfilter.overlay.strategies import STRATEGIES
from service.kills.knowledge import FaultError
from service.kills.process import BusyError, GoneError, Server

HEARTBEAT = 0.5
ONE = {"Content_Type": "application/json"}
CALM = 120.0
"""Seconds in which all must have arrived once all sites run, on a busy machine."""


def _demo():
    """The module of ``make overlay-demo``, whose proxies cut links."""
    spec = spec_from_file_location("overlay_demo", Path(__file__).parents[3] / "scripts" / "overlay_demo.py")
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def free():
    """A free port, for a server that is started again."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class Links:
    """The ways of sites to each other, which can be cut: each site connects through a proxy of its own."""

    def __init__(self, ports):
        self._ports, self._proxies = ports, {name: _demo().Proxy() for name in ports}
        started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._serve(started)])
        self._thread.start()
        assert started.wait(60)

    async def _serve(self, started):
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as servers:
            for one in self._proxies.values():
                await one.start()
                await servers.enter_async_context(one.server)
            started.set()
            await self._ended.wait()

    def environment(self, name):
        """The variables of the process of a site."""
        return {"http_proxy": self._proxies[name].url, "no_proxy": ""}

    def cut(self, name, other):
        """Cut the connections that a site has, or makes, to another one; the other way stays."""
        self._loop.call_soon_threadsafe(self._proxies[name].cut_off, self._ports[other])

    def heal(self):
        """Let all connections be made again."""
        for one in self._proxies.values():
            self._loop.call_soon_threadsafe(one.cut.clear)

    def end(self):
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()


class Network:
    """Sites in clusters, `started` and killed; the first one is the rendezvous point.

    With `links`, links can be cut.
    """

    def __init__(self, folder, clusters, strategy="hybrid", more=(), links=False):
        self.folder, self.strategy, self.more = folder, strategy, more
        self.ports = {name: free() for name in clusters}
        self.clusters = clusters
        self.servers = {}
        self.links = Links(self.ports) if links else None

    def start(self, name):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        address = f"http://127.0.0.1:{self.ports[name]}"
        first = next(iter(self.clusters))
        flags = ["--port", self.ports[name], "--schema", folder / "given.json", "--site", name]
        flags += ["--cluster", self.clusters[name], "--address", address, "--strategy", self.strategy]
        flags += ["--rendezvous", f"http://127.0.0.1:{self.ports[first]}", "--heartbeat", HEARTBEAT]
        proxied = {} if self.links is None else self.links.environment(name)
        self.servers[name] = Server(folder, flags=[*flags, *self.more], patient=True, **proxied)

    def start_all(self):
        for name in self.clusters:
            self.start(name)

    def end(self):
        for server in self.servers.values():
            with suppress(ProcessLookupError):
                server.process.send_signal(signal.SIGCONT)
            server.end()
        if self.links is not None:
            self.links.end()


@dataclass
class Want:
    """A subscription to a range of prices, which is known everywhere `since` a time."""

    site: str
    user: str
    low: int
    high: int
    id: int | None = None
    since: float = inf

    def takes(self, price):
        return self.low <= price < self.high


class Checker:
    """Publishes and subscribes at all sites, and compares what arrives with what must."""

    def __init__(self, network, seed):
        self.network, self.random = network, random.Random(seed)
        self.lock = threading.Lock()
        self.serial = 0
        self.published = {}  # serial: price, when answered
        self.began = {}  # serial: when it was asked for
        self.wants = []
        self.got, self.places = {}, {}  # by site and user: how often each serial came; positions
        self.counts = Counter()

    def ask(self, site, method, path, user, body=None, **headers):
        """The answer; it is asked again where a site is busy or killed."""
        while True:
            try:
                return self.network.servers[site].ask(method, path, user, body, **headers)[1]
            except (BusyError, GoneError):
                time.sleep(0.05)

    def subscribe(self, site):
        low = self.random.randrange(100)
        want = Want(site, f"ann{self.random.randrange(2)}", low, low + self.random.randrange(1, 40))
        with self.lock:
            self.wants.append(want)  # now: events may come before the answer
        body = json.dumps({"where": f"price >= {want.low} AND price < {want.high}"})
        path, key = "/filters/default/subscriptions?everywhere=true", f"{site} {self.random.random()}"
        found = self.ask(site, "POST", path, want.user, body, Idempotency_Key=key, **ONE)
        want.id, want.since = found["subscription"], time.monotonic()
        self.counts["subscriptions"] += 1

    def unsubscribe(self):
        """Remove a subscription; what waits for it is dropped."""
        want = self.random.choice(self.wants)
        if want.since < inf:
            want.since = inf
            self.ask(want.site, "DELETE", f"/subscriptions/{want.id}", want.user, allowed=(404,))
            self.counts["unsubscribed"] += 1

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
                (want.site, want.user, serial)
                for want in self.wants
                for serial, price in self.published.items()
                if want.takes(price)
                and self.began[serial] > want.since
                and not self.got.get((want.site, want.user), {}).get(serial)
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
            wants = [one for one in self.wants if (one.site, one.user) == (site, user)]
            for serial, count in serials.items():
                if count > 1:
                    raise FaultError(f"{user} at {site} got {serial} {count} times")
                price = self.published.get(serial)
                if price is not None and not any(one.takes(price) for one in wants):
                    raise FaultError(f"{user} at {site} got {serial}, which nobody there wants")


class Faults:
    """What befalls the sites of a network, one after the other; cut links stay cut meanwhile."""

    def __init__(self, network, checker, seed):
        self.network, self.checker, self.random = network, checker, random.Random(f"{seed} faults")
        self.kinds = [self.kill, self.kill, self.hold, self.cut, self.cut, self.switch]

    def strike(self):
        time.sleep(self.random.uniform(0.5, 3))
        if self.random.random() < 0.5:
            self.network.links.heal()
        kind = self.random.choice(self.kinds)
        kind(self.random.choice([*self.network.clusters]))
        self.checker.counts[f"{kind.__name__} of a site"] += 1

    def kill(self, site):
        """Kill a site; sometimes its indexes, which are a cache, are lost."""
        server = self.network.servers[site]
        server.kill()
        server.end()
        if self.random.random() < 0.3:
            shutil.rmtree(self.network.folder / site / "data" / "indexes")
        time.sleep(self.random.choice([0, 0, 2, 4]))
        self.network.start(site)

    def hold(self, site):
        process = self.network.servers[site].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.random.choice([0.5, 1, 3]))
        process.send_signal(signal.SIGCONT)

    def cut(self, site):
        """Cut the links to another site, or to all; sometimes only in one direction."""
        others = [one for one in self.network.clusters if one != site]
        far = others if self.random.random() < 0.2 else [self.random.choice(others)]
        for other in far:
            self.network.links.cut(site, other)
            if self.random.random() < 0.7:
                self.network.links.cut(other, site)

    def switch(self, site):
        """Change the strategy, where this site is the root and no change is under way."""
        wanted = json.dumps({"strategy": self.random.choice([*STRATEGIES])})
        with suppress(BusyError):
            self.network.servers[site].ask("PUT", "/site/strategy", "admin", wanted, (409,), **ONE)


def run(folder, seconds, seed, clusters=None, strategy="hybrid"):
    """Kill and hold sites and cut links for so long, while all work; then compare.

    Returns
    -------
    Counter
        What was done.
    """
    clusters = clusters or {f"s{k}": f"s{k}" for k in range(5)}
    network = Network(folder, clusters, strategy, links=True)
    checker, failed, stop = Checker(network, seed), [], threading.Event()
    faults = Faults(network, checker, seed)

    def publish(site):
        for _ in range(3):
            checker.publish(site)
        checker.pull(site, checker.random.choice(["ann0", "ann1"]))

    def change(_):
        checker.subscribe(checker.random.choice([*clusters]))
        checker.unsubscribe()
        time.sleep(0.5)

    def work(step, site):
        try:
            while not stop.is_set():
                step(site)
                time.sleep(0.02)
        except BaseException as error:
            failed.append(error)
            stop.set()

    try:
        network.start_all()
        for site in [*clusters] * 3:
            checker.subscribe(site)
        steps = [*((publish, site) for site in clusters), (change, None)]
        threads = [threading.Thread(target=work, args=given) for given in steps]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not stop.is_set():
            faults.strike()
        network.links.heal()
        stop.set()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        checker.check()
        return checker.counts + Counter(events=len(checker.published))
    finally:
        stop.set()
        network.links.heal()
        network.end()
