"""Seven brokers in processes: flights are published while a link is cut and the root is killed.

Every alert arrives all the same; the script fails where one does not, or comes twice. A link is cut by
telling both of its brokers not to talk to each other: no right to change the network is needed for that.

Needs rtree-filter[overlay,replay]. With an argument, the pictures go to that folder; else to out.
"""

import asyncio
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from rtfilter import EventFilter
from rtfilter.overlay.running.broker_client import BrokerClient, asked
from rtfilter.overlay.running.broker_frames import LinkError
from rtfilter.overlay.running.broker_keys import Key, KeyRole
from rtfilter.overlay.running.client_messages import LinkCut
from rtfilter.overlay.running.map import as_text, draw, survey
from rtfilter.replay.workloads.flights import SCHEMA, load

BROKERS = {"hub1": "hub", "hub2": "hub", "east1": "east", "east2": "east"}
BROKERS |= {"north": "", "south": "", "west": ""}
"""Seven brokers and their clusters; those of no cluster are one by themselves."""
ALERTS = {
    "ann": ("hub2", "origin = 'JFK' AND dep_delay > 60"),
    "bob": ("north", "carrier = 'UA' AND distance BETWEEN 2000 AND 3000"),
    "cyd": ("east1", "dest LIKE 'M%' AND (arr_delay > 45 OR visib < 2)"),
    "dan": ("west", "air_time > 300"),
    "eve": ("south", "dep_time IS NULL"),
}
"""Subscribers, the broker that each begins at, and what they want."""
HEARTBEAT = 0.25


class Network:
    """The processes."""

    def __init__(self, folder):
        self.folder, self.processes, self.addresses = folder, {}, {}
        self.key = Key.new()
        self.key.write(folder / "network.key")
        (folder / "types.json").write_text(json.dumps({"flights": SCHEMA.to_json()}))

    async def start(self, name, action, *given):
        """Start a process, and wait until others can connect."""
        command = ["broker", action, "--key", self.folder / "network.key", "--data", self.folder / name]
        command += ["--heartbeat", HEARTBEAT, "--log-level", "error", *given]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rtfilter", *map(str, command), stdout=asyncio.subprocess.PIPE
        )
        self.processes[name] = process
        line = await process.stdout.readline()
        self.addresses[name] = line.decode().split()[-1]

    async def start_all(self):
        await self.start("rendezvous", "rendezvous")
        await self.broker("hub1")
        await asyncio.sleep(8 * HEARTBEAT)  # so that its cluster is the root
        later = ["hub2", "east2"]  # they are told of the other brokers of their clusters
        await asyncio.gather(*(self.broker(name) for name in BROKERS if name not in ("hub1", *later)))
        await asyncio.gather(*map(self.broker, later))

    async def broker(self, name):
        fellows = [one for one in BROKERS if BROKERS[one] and BROKERS[one] == BROKERS[name] and one != name]
        await self.start(
            name,
            "run",
            *("--name", name, "--cluster", BROKERS[name] or name, "--schema", self.folder / "types.json"),
            *("--rendezvous", self.addresses["rendezvous"], "--children", 2, "--again", 0.5, "--grace", 4),
            *(f"--peer={one}={self.addresses[one]}" for one in fellows if one in self.addresses),
        )

    async def kill(self, name):
        self.processes[name].send_signal(signal.SIGKILL)
        await self.processes[name].wait()

    async def end(self):
        for one in self.processes.values():
            if one.returncode is None:
                one.terminate()
        await asyncio.gather(*(one.wait() for one in self.processes.values()))

    async def tree(self):
        return await survey(self.addresses["rendezvous"], self.key)

    async def whole(self, brokers, seconds=30):
        """Wait until so many brokers are in one tree; returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = await self.tree()
            if len(found.brokers) == brokers and found.tree()[""] and len(found.tree()[""]) == 1:
                return found
            await asyncio.sleep(HEARTBEAT)
        raise SystemExit(f"no whole tree within {seconds} seconds:\n{as_text(found)}")


def flights(count):
    """The first flights of 2013, as events."""
    rows = json.loads(load().head(count).to_json(orient="records", date_format="iso"))
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


class Subscriber:
    """Collects what is delivered."""

    def __init__(self, network, name):
        begins, self.condition = ALERTS[name]
        others = [one for one in BROKERS if one != begins and BROKERS[one] == BROKERS[begins] != ""]
        others += [one for one in BROKERS if one not in others and one != begins]
        addresses = [network.addresses[one] for one in (begins, *others)]
        self.client = BrokerClient(addresses, name, network.key.of(KeyRole.CLIENT))
        self.name, self.had = name, []

    async def collect(self):
        async for delivery in self.client:
            self.had.append(delivery.id)


async def publish(client, events, times, pause):
    """Publish events one after another; returns their ids when all have arrived."""
    ids, waiting = [], []
    for event in events:
        begun = time.monotonic()
        id, arrived = await client.start("flights", event)
        arrived.add_done_callback(lambda _, begun=begun: times.append(time.monotonic() - begun))
        ids.append(id)
        waiting.append(arrived)
        await asyncio.sleep(pause)
    await asyncio.gather(*waiting)
    return ids


async def demo(folder, out):
    network = Network(folder)
    try:
        await network.start_all()
        before = await network.whole(len(BROKERS))
        print(f"seven brokers, and the tree that they have made:\n\n{as_text(before)}\n", flush=True)
        await story(network, out)
    finally:
        await network.end()


async def story(network, out):
    subscribers = [Subscriber(network, name) for name in ALERTS]
    addresses = list(network.addresses.values())
    publisher = BrokerClient([network.addresses["east2"], *addresses[1:]], "airline", network.key)
    for one in (*subscribers, publisher):
        await one.client.__aenter__() if isinstance(one, Subscriber) else await one.__aenter__()
    await asyncio.gather(*(one.client.subscribe("flights", one.condition) for one in subscribers))
    collecting = [asyncio.create_task(one.collect()) for one in subscribers]

    events, times, published = flights(1200), [], []

    async def batch(first, last, what):
        del times[:]
        ids = await publish(publisher, events[first:last], times, 0.01)
        published.extend(zip(ids, events[first:last], strict=True))
        print(f"{what}: {len(ids)} flights published; acknowledged after {1000 * median(times):.0f} ms "
              f"(median), {1000 * max(times):.0f} ms (longest)", flush=True)  # fmt: skip

    await batch(0, 300, "all is well")
    found = await network.tree()
    draw(found, out / "overlay-before.png", "before")
    child = found.designated(lowest(found))
    (parent,) = [one for one in child.links if one.cluster == child.parent]
    print(f"\nthe link between {child.itself.name} and {parent.name} is cut, while flights are published",
          flush=True)  # fmt: skip
    flying = asyncio.create_task(batch(300, 600, "a link is cut"))
    await asyncio.sleep(0.5)
    await asked(child.itself.address, network.key, LinkCut(parent.name))
    await asked(parent.address, network.key, LinkCut(child.itself.name))
    await flying
    print(f"\n{as_text(await network.whole(len(BROKERS)))}\n\nthe link is whole again", flush=True)
    await asked(child.itself.address, network.key, LinkCut(parent.name, heal=True))
    await asked(parent.address, network.key, LinkCut(child.itself.name, heal=True))

    for number, (first, what) in enumerate([(600, "the root is killed"), (900, "and the next root")], 1):
        root = next(one.itself.name for one in (await network.tree()).brokers.values() if one.root
                    and one.designated == one.itself.name)  # fmt: skip
        print(f"the process of {root}, which stands for the root, is killed", flush=True)
        flying = asyncio.create_task(batch(first, first + 300, what))
        await asyncio.sleep(0.5)
        await network.kill(root)
        await flying
        after = await network.whole(len(BROKERS) - number)
        print(f"\n{as_text(after)}\n", flush=True)
    draw(after, out / "overlay-after.png", "after")
    await asyncio.sleep(0.5)
    for task in collecting:
        task.cancel()
    await publisher.__aexit__()
    await asyncio.gather(*(one.client.__aexit__() for one in subscribers))
    judge(subscribers, published, out)


def lowest(found):
    """A cluster with the root not right above it: who is cut off from the root itself waits for it."""
    tree = found.tree()
    (root,) = tree[""]
    return max(cluster for above in tree[root] for cluster in tree.get(above, []))


def judge(subscribers, published, out):
    """Hold what was delivered against one filter that has all subscriptions."""
    central, failed = EventFilter(SCHEMA), False
    numbers = {one.name: central.subscribe(one.condition) for one in subscribers}
    print("who  alerts  arrived  twice  missing")
    for one in subscribers:
        wanted = {id for id, event in published if numbers[one.name] in central.match(event)}
        twice, missing = len(one.had) - len(set(one.had)), len(wanted - set(one.had))
        failed |= bool(twice or missing or set(one.had) - wanted)
        print(f"{one.name}  {len(wanted):6}  {len(one.had):7}  {twice:5}  {missing:7}")
    print(f"\npictures of the tree: {out}/overlay-before.png, {out}/overlay-after.png")
    if failed:
        raise SystemExit("an alert is missing, or has come twice, or to nobody who wanted it")
    print("every alert has arrived, once")


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(demo(Path(folder), out))
        except LinkError as error:
            raise SystemExit(f"a broker that should answer does not: {error}") from None
    print(f"{time.monotonic() - begun:.0f} seconds")


if __name__ == "__main__":
    main()
