"""A network of brokers with multicast, of which a link is cut; run by `test_running_multicast.py`.

It is started in network and mount namespaces of its own, and makes one more for each broker, joined by a
bridge. So nothing of the machine's own network is touched, and all of it is gone with the process. Says what
it has found as JSON, on its last line.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from processes import Processes, Subscriber

BROKERS = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "c1": "c", "d1": "d"}
GROUP = "239.17.4.71:17473"
HERE = "10.77.0.1"


def ip(*given, inside=""):
    command = ["ip", "netns", "exec", inside] if inside else []
    subprocess.run([*command, "ip", *given], check=True, capture_output=True)


def address(name):
    """Of a broker."""
    return f"10.77.0.{10 + list(BROKERS).index(name)}"


def join_by_a_bridge():
    """Give each broker a namespace with a network card."""
    ip("link", "set", "lo", "up")
    ip("link", "add", "name", "br0", "type", "bridge", "mcast_snooping", "0")
    ip("addr", "add", f"{HERE}/24", "dev", "br0")
    ip("link", "set", "br0", "up")
    for name in BROKERS:
        ip("netns", "add", name)
        ip("link", "add", "name", f"to-{name}", "type", "veth", "peer", "name", "card", "netns", name)
        ip("link", "set", f"to-{name}", "master", "br0", "up")
        ip("link", "set", "lo", "up", inside=name)
        ip("addr", "add", f"{address(name)}/24", "dev", "card", inside=name)
        ip("link", "set", "card", "up", inside=name)


def cut(one, other):
    """Let two brokers not reach each other, without a word to either."""
    ip("route", "add", "blackhole", address(other), inside=one)
    ip("route", "add", "blackhole", address(one), inside=other)


async def publish_and_wait(network, x, publisher, within=60):
    async with network.client("bob", publisher) as bob:
        await asyncio.wait_for(bob.publish("trade", {"x": float(x)}), within)


async def story(network):
    for name in BROKERS:
        network.start(
            name,
            *("--cluster", BROKERS[name], "--group", GROUP, "--interface", address(name), "--children", "2"),
            prefix=("ip", "netns", "exec", name),
            host=address(name),
        )
        if name == "a3":
            await network.whole("a1", "a2", "a3")
    found = await network.whole(*BROKERS)
    told = {"members": len(found.brokers["a1"].members)}
    below = next(one for one in found.brokers.values() if one.parent not in ("", "a"))
    name = below.itself.name
    (above,) = [one.name for one in below.links if one.cluster == below.parent]
    async with (
        Subscriber(network.client("ann", name)) as ann,
        Subscriber(network.client("cyd", "a2", "a1", "a3")) as cyd,
    ):
        for one in (ann, cyd):
            await one.client.subscribe("trade", "x >= 0")
        await publish_and_wait(network, 1, "a1")
        cut(name, above)
        await publish_and_wait(network, 2, "a3")
        found = await network.whole(*BROKERS)
        told["moved"] = found.brokers[name].parent not in ("", below.parent)
        designated = found.designated("a").itself.name
        network.kill(designated)
        left = [one for one in BROKERS if one != designated]
        await publish_and_wait(network, 3, left[0])
        await network.whole(*left)
        told["ann"], told["cyd"] = ann.values, cyd.values
    return told


def main():
    join_by_a_bridge()
    with tempfile.TemporaryDirectory() as folder:
        network = Processes(Path(folder))
        try:
            network.start("point", host=HERE)
            told = asyncio.run(story(network))
        finally:
            for name in list(network.running):
                network.kill(name)
            for log in sorted(Path(folder).glob("*.log")):
                print(log.name, log.read_text(), file=sys.stderr)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
