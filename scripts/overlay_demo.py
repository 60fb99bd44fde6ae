"""Seven sites in four clusters: flights are published while a link is cut, roots are killed, and one is away.

Every alert arrives at every site all the same; the script fails where one does not, or comes twice. Each site
reaches the others through a proxy of its own, so that a link between two of them can be cut.

Needs rtree-filter[service,replay]. The picture goes to the folder of the first argument, else to out; the
second one has the seconds of a phase.
"""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
from base64 import b64encode
from bisect import bisect
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import randrange
from statistics import median
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from rtfilter import EventFilter
from rtfilter.client import ClientError, UnreachableError, connect
from rtfilter.replay.output import table
from rtfilter.replay.workloads.flights import SCHEMA, load

SITES = {"accra": "africa", "lagos": "africa", "delhi": "asia", "tokyo": "asia"}
SITES |= {"oslo": "europe", "paris": "europe", "lima": "america"}
"""The clusters of sites; the first site is the rendezvous point."""
ALERTS = {
    "ann": "origin = 'JFK' AND dep_delay > 60",
    "bob": "carrier = 'UA' AND distance BETWEEN 2000 AND 3000",
    "eve": "dest LIKE 'M%' AND (arr_delay > 45 OR visib < 2)",
}
"""Users, who are at all sites, and what they want. Another one, zoe, logs in at a site now and then."""
ZOE = "air_time > 300"
FLIGHTS = SCHEMA.extended({"serial": int})
HEARTBEAT = 0.5
PAUSE = 0.2
"""Seconds between two flights that are published at a site."""
PATIENCE = 120.0
"""Seconds without any news after which the demo gives up."""
ROOT = re.compile(
    r"cluster (?P<root>(?P<cluster>\w+)) is the root of the tree now; (?P<site>\w+) stands for it"
)
BELOW = re.compile(
    r"the root of the tree is cluster (?P<root>\w+); "
    r"above cluster (?P<cluster>\w+), for which (?P<site>\w+) stands, is (?P<above>\w+)"
)


class DemoError(Exception):
    """The demo cannot go on."""


def free_ports():
    """Free ports below those that connections get, which could take one while its server is away."""
    for port in range(randrange(10_000, 25_000), 32_000):
        with suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            yield port


class Proxy:
    """The way of a site to all others: a proxy of HTTP, which refuses those that it is cut off from."""

    def __init__(self):
        self.cut, self.connections = set(), []

    async def start(self):
        self.server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    def cut_off(self, port):
        self.cut.add(port)
        for to, transport in self.connections:
            if to == port:
                transport.abort()

    async def _connect(self, reader, writer):
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._pass_on(reader, writer)
        finally:
            writer.close()

    async def _pass_on(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, rest = head.split(b" ", 2)
        tunnel = method == b"CONNECT"  # for a session; other requests have the whole URL
        url = urlsplit((b"//" + target if tunnel else target).decode())
        try:
            if url.port in self.cut:
                raise ConnectionRefusedError
            far, near = await asyncio.open_connection(url.hostname, url.port)
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        self.connections.append((url.port, near.transport))
        if tunnel:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            near.write(b" ".join([method, f"{url.path}?{url.query}".encode(), rest]))
        await asyncio.gather(_forward(reader, near), _forward(far, writer))


async def _forward(reader, writer):
    try:
        with suppress(OSError):
            while data := await reader.read(2**16):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


class Network:
    """The servers."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}
        self.ports = dict(zip(SITES, free_ports(), strict=False))
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
        self.proxies = {name: Proxy() for name in SITES}
        (folder / "flights.json").write_text(json.dumps(FLIGHTS.to_json()))

    async def start(self, name):
        """Start a server, and wait until it serves."""
        command = ["-m", "rtfilter", "serve", "--data", self.folder / name, "--port", self.ports[name]]
        command += ["--schema", self.folder / "flights.json", "--site", name, "--cluster", SITES[name]]
        command += ["--address", self.urls[name], "--rendezvous", next(iter(self.urls.values()))]
        proxied = os.environ | {"http_proxy": self.proxies[name].url, "no_proxy": ""}
        with self._log(name).open("w") as log:
            self.processes[name] = process = await asyncio.create_subprocess_exec(
                *map(str, [sys.executable, *command, "--heartbeat", HEARTBEAT]),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=proxied,
            )
        if b"serving" not in await process.stdout.readline():
            raise DemoError(f"{name} does not start:\n{self._log(name).read_text()}")

    async def start_all(self):
        await asyncio.gather(*(proxy.start() for proxy in self.proxies.values()))
        await asyncio.gather(*map(self.start, SITES))

    async def kill(self, name):
        self.processes[name].send_signal(signal.SIGKILL)
        await self.processes[name].wait()

    async def end(self):
        running = [one for one in self.processes.values() if one.returncode is None]
        for one in running:
            one.terminate()
        await asyncio.gather(*(one.wait() for one in running))

    def _log(self, name):
        return self.folder / f"{name}.log"

    def _tree(self):
        """The site that stands for the root, and the one above each other; empty while they disagree."""
        places = []
        for name, process in self.processes.items():
            if process.returncode is None:
                said = re.findall(r'"event": "(.* the tree.*?)"', self._log(name).read_text())[-1:] or [""]
                places.append(ROOT.match(said[0]) or BELOW.match(said[0]))
        if not all(places) or len({one["root"] for one in places}) > 1:
            return "", {}
        standing = {one["cluster"]: one["site"] for one in places}
        if len({*standing.values()}) < len({(one["cluster"], one["site"]) for one in places}):
            return "", {}
        root = standing.get(places[0]["root"], "")
        links = {one["site"]: standing.get(one["above"], "") for one in places if one["site"] != root}
        return root, links if all(links.values()) else {}

    async def tree(self, but=""):
        """Wait until all agree about the tree, with another site than `but` at the root."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            root, links = self._tree()
            if root and links and root != but:
                return root, links
            await asyncio.sleep(HEARTBEAT / 2)
        raise DemoError(f"the sites do not agree about the tree within {PATIENCE:.0f} seconds")


def flights():
    """The flights of 2013, as events."""
    rows = load().head(20_000).to_json(orient="records", date_format="iso")
    for serial, row in enumerate(json.loads(rows)):
        yield {"serial": serial} | {name: value for name, value in row.items() if value is not None}


@asynccontextmanager
async def session(url, user):
    """A client, once the server answers: where much else runs, a start may take long."""
    async with AsyncExitStack() as stack:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                client = await stack.enter_async_context(connect(url, user=user, patience=PATIENCE))
                break
            except UnreachableError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(HEARTBEAT)
        yield client


class Demo:
    """Publishers and subscribers, and what happens to the network meanwhile."""

    def __init__(self, network, phase):
        self.network, self.phase = network, phase
        self.flights, self.over = flights(), asyncio.Event()
        self.published = []  # each flight that is acknowledged, and when it was begun to publish it
        self.wanted = {}  # by site and user: when the subscription was known everywhere
        self.had = defaultdict(dict)  # by site and user: when each flight arrived, by serial and position
        self.twice = 0
        self.phases = []  # name and begin
        self.tasks = []
        self.coming = {}  # zoe's subscriptions by site, known or not

    async def subscribe(self, site, user, where):
        url = f"{self.network.urls[site]}/filters/default/subscriptions?everywhere=true"
        who = b64encode(f"{user}:".encode()).decode()
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Basic {who}",
            "Idempotency-Key": user,
        }
        request = Request(url, json.dumps({"where": where}).encode(), headers)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                (await asyncio.to_thread(urlopen, request, timeout=PATIENCE)).close()
                break
            except OSError as error:  # the site, or another one, is away
                if time.monotonic() > end:
                    raise DemoError(f"{user} cannot subscribe at {site}: {error}") from None
                await asyncio.sleep(HEARTBEAT)
        self.wanted[site, user] = time.monotonic()
        self.tasks.append(asyncio.create_task(self._collect(site, user)))

    def come(self, site):
        """Let zoe log in at a site; where she is already, another session could take what is hers."""
        if site not in self.coming:
            self.coming[site] = asyncio.create_task(self.subscribe(site, "zoe", ZOE))

    async def _collect(self, site, user):
        had = self.had[site, user]
        async with session(self.network.urls[site], user) as client:
            async for delivery in client:
                arrived = delivery.event["serial"], delivery.position
                self.twice += arrived in had and not delivery.redelivered
                had.setdefault(arrived, time.monotonic())

    async def publish(self, site):
        """Publish flights, each with a key: so it is published once, though the site is killed meanwhile."""
        async with session(self.network.urls[site], "airline") as client:
            while not self.over.is_set():
                flight, begun = next(self.flights), time.monotonic()
                await client.publish(flight, key=f"{site} {flight['serial']}")
                self.published.append((flight, begun))
                await asyncio.sleep(PAUSE)

    def begin(self, name, what):
        """Begin a phase."""
        self.phases.append((name, time.monotonic()))
        print(f"{name}: {what}", flush=True)

    async def run(self):
        """Go through the phases."""
        network = self.network
        root, _ = await network.tree()
        print(f"seven sites in four clusters; {root} stands for the root of the tree", flush=True)
        print(f"the page of a site, for any user: {network.urls['lima']}/", flush=True)
        await asyncio.gather(
            *(self.subscribe(site, user, where) for site in SITES for user, where in ALERTS.items())
        )
        publishing = [asyncio.create_task(self.publish(site)) for site in SITES]
        self.tasks += publishing
        self.begin("all is well", f"flights are published at {len(SITES)} sites")
        await asyncio.sleep(self.phase)

        child, parent = min((await network.tree())[1].items())
        self.begin("a link is cut", f"{child} and {parent}, above it, cannot reach each other")
        self.come(child)
        for one, other in ((child, parent), (parent, child)):
            network.proxies[one].cut_off(network.ports[other])
        await asyncio.sleep(self.phase)
        for one in (child, parent):
            network.proxies[one].cut.clear()

        for name in ("the root is killed", "the next root is killed"):
            former, _ = await network.tree()
            self.begin(name, f"{former}, which stands for the root")
            await network.kill(former)
            begun = time.monotonic()
            root, _ = await network.tree(but=former)
            print(f"  {root} stands for the root, after {time.monotonic() - begun:.1f} s", flush=True)
            await asyncio.sleep(begun + self.phase - time.monotonic())
            await network.start(former)
            self.come(former)

        root, _ = await network.tree()
        away = max(one for one in SITES if one not in (root, next(iter(SITES))))
        self.begin("a site is away", f"{away} for {2 * self.phase:.0f} s")
        await network.kill(away)
        await asyncio.sleep(2 * self.phase)
        await network.start(away)
        self.begin("all are there", "all sites run again")
        await asyncio.sleep(self.phase / 2)
        self.over.set()
        await asyncio.gather(*publishing, *self.coming.values())
        await self.arrived()
        self.ended = time.monotonic()

    def expected(self):
        """The serials that each user must have at each site."""
        central = EventFilter(FLIGHTS)
        rules = {central.subscribe(where): user for user, where in (ALERTS | {"zoe": ZOE}).items()}
        expected = {key: set() for key in self.wanted}
        for flight, begun in self.published:
            users = {rules[id] for id in central.match(flight)}
            for (site, user), known in self.wanted.items():
                if user in users and begun > known:
                    expected[site, user].add(flight["serial"])
        return expected

    def missing(self):
        """What has not arrived, as site, user and serial."""
        had = {key: {serial for serial, _ in self.had[key]} for key in self.wanted}
        return [(*key, serial) for key, all in self.expected().items() for serial in all - had[key]]

    async def arrived(self):
        """Wait until all has arrived, or nothing more comes."""
        last, since = -1, time.monotonic()
        while (missing := len(self.missing())) and time.monotonic() < since + PATIENCE:
            if missing != last:
                last, since = missing, time.monotonic()
            for task in self.tasks:
                if task.done():
                    task.result()  # raises its error
            await asyncio.sleep(0.5)

    def delays(self):
        """When each flight was published, and the seconds until all had it who were there before."""
        begun, last = {flight["serial"]: at for flight, at in self.published}, {}
        for key, had in self.had.items():
            for (serial, _), at in had.items():
                if begun.get(serial, 0) > self.wanted[key]:
                    last[serial] = max(at, last.get(serial, 0))
        return [(begun[serial], at - begun[serial]) for serial, at in last.items()]

    def rows(self):
        """A row of the table per phase."""
        begins = [at for _, at in self.phases]
        ends = [*begins[1:], self.ended]
        at = {flight["serial"]: bisect(begins, begun) - 1 for flight, begun in self.published}
        delays = defaultdict(lambda: [0.0])
        for begun, delay in self.delays():
            delays[bisect(begins, begun) - 1].append(delay)
        for number, (name, begun) in enumerate(self.phases):
            those = delays[number][1:] or [0.0]
            yield {
                "phase": name,
                "seconds": ends[number] - begun,
                "published": sum(one == number for one in at.values()),
                "delivered": sum(at.get(serial) == number for had in self.had.values() for serial, _ in had),
                "median": median(those),
                "max": max(those),
            }

    def draw(self, path):
        from matplotlib.figure import Figure

        drawn = Figure((9, 5), layout="constrained")
        above, below = drawn.subplots(2, sharex=True)
        begun = self.phases[0][1]
        times = [at - begun for had in self.had.values() for at in had.values()]
        above.hist(times, bins=range(int(max(times, default=1)) + 2), color="tab:blue")
        above.set_ylabel("deliveries in each second")
        below.plot(
            *zip(*((at - begun, delay) for at, delay in self.delays()), strict=True), ".", markersize=3
        )
        below.set_yscale("log")
        below.set_ylabel("seconds until all users have it")
        below.set_xlabel("seconds; flights below by their publication")
        for number, (name, at) in enumerate(self.phases):
            for axes in (above, below):
                axes.axvline(at - begun, color="tab:orange" if number else "none", linewidth=1)
                axes.spines[["top", "right"]].set_visible(False)
            above.text(at - begun, 1.02, name, fontsize=7, transform=above.get_xaxis_transform())
        drawn.savefig(path, dpi=100)


async def show(folder, path, phase):
    """Run the demo; returns whether each alert has arrived once."""
    network = Network(folder)
    demo = Demo(network, phase)
    try:
        await network.start_all()
        await demo.run()
    finally:
        for task in demo.tasks:
            task.cancel()
        await asyncio.gather(*demo.tasks, return_exceptions=True)
        await network.end()
    heads = {"phase": "", "seconds": "seconds", "published": "published", "delivered": "delivered"}
    heads |= {"median": "all have it after s (median)", "max": "(longest)"}
    print(f"\n{table(list(demo.rows()), heads)}\n")
    demo.draw(path)
    print(f"wrote {path}")
    missing = demo.missing()
    twice = demo.twice + sum(len(had) - len({serial for serial, _ in had}) for had in demo.had.values())
    print(
        f"{len(demo.published)} flights, {len(demo.wanted)} subscriptions of {len(ALERTS) + 1} users at "
        f"{len(SITES)} sites: {len(missing)} alerts lost, {twice} twice"
    )
    for site, user, serial in missing[:5]:
        print(f"lost: flight {serial} for {user} at {site}")
    return not missing and not twice


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    phase = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            right = asyncio.run(show(Path(folder), out / "overlay.png", phase))
        except (DemoError, ClientError, OSError) as error:
            raise SystemExit(f"the demo has failed: {error}") from None
    print(f"{time.monotonic() - begun:.0f} seconds")
    if not right:
        raise SystemExit("an alert was lost, or came twice")
    print("every alert has arrived at every site, once")


if __name__ == "__main__":
    main()
