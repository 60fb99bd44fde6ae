"""Connections that are dead, though nobody has closed them: a relay between stops forwarding."""

import json
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from service.faults.load import until
from service.faults.world import serving
from service.kills.knowledge import FaultError
from service.kills.links import over_tcp, over_websocket
from service.relay import Relay

LARGE = 50_000
"""Bytes of an event; some of them fill all that lies between the server and the relay."""
SOME = 20
LINES = {"Content_Type": "application/x-ndjson"}


def run(folder, seed, times=3):
    """Have connections die, over TCP and over WebSocket by turns of seeds; returns what was done."""
    with serving(folder, flags=_flags(folder), patient=False, PATIENCE="1") as server:
        link, port = ((over_websocket, server.port), (over_tcp, server.tcp_port))[seed % 2]
        chance, places, before = random.Random(seed), [], _sockets(server)
        wish = json.dumps({"where": "price >= 0"})
        _ask(server, "/filters/default/subscriptions", wish, Content_Type="application/json")
        with Relay(port) as relay:
            dead = [_die(server, relay, link, chance, places) for _ in range(times)]
            until(lambda: _sockets(server) <= before, "the server closes what is dead")
        for one in dead:
            one.close()
        found, path = [], "/deliveries?limit=1000"
        while path is not None:
            page = server.ask("GET", path, "ann")[1]
            found += [one["position"] for one in page["deliveries"]]
            path = page["next"]
        if found != places:
            raise FaultError(f"{places} were published, and {found} wait")
    return Counter({f"dead {link.__name__.replace('_', ' ')}": times})


def _die(server, relay, link, chance, places):
    """A connection dies while it receives; the next one has what it did not acknowledge."""
    taken, got = [], []
    dead = server.session("ann", taken.append, link, relay.port)
    dead.say("READY")
    places += _publish(server, 1)
    until(lambda: dead.listen(0.1) < 0 or taken, "a delivery comes")
    relay.stall()
    places += _publish(server, SOME)
    time.sleep(chance.uniform(0.0, 0.5))
    alive = server.session("ann", got.append)
    alive.say("READY")
    wanted = set(places[-1 - SOME :])
    until(
        lambda: alive.listen(0.1) < 0 or wanted <= {one["position"] for one in got},
        "what a dead connection was sent comes on the next one",
    )
    alive.close()
    return dead  # which stays open


def _publish(server, count):
    line = json.dumps({"price": 1, "serial": 1, "more": "x" * LARGE})
    return _ask(server, "/filters/default/events", "\n".join([line] * count), **LINES)["positions"]


def _ask(server, path, body, **headers):
    return server.ask("POST", path, "ann", body, **headers)[1]


def _sockets(server):
    """How many sockets the server has open. Files it opens when it needs them."""
    count = 0
    for one in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed just now
            count += one.readlink().name.startswith("socket:")
    return count


def _flags(folder):
    return ("--schema", folder / "given.json", "--tcp-port", 0)
