"""A router needs no compiled code, so that nobody waits for a compiler."""

import subprocess
import sys

import pytest

import uncompiled

PROGRAM = """
import random
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import SubscriptionId, link
from rtfilter.overlay.broker_names import BrokerPlace
from experiments.simulation.event_router import EventRouter
from rtfilter.overlay.routing_messages import RouterSubscribe, RouterSubscription

CONDITIONS = [
    "x > {0}", "x BETWEEN {0} AND {0} + 0.1 AND y < {0}", "s LIKE 'a long text%' AND x < {0}",
    "x < {0} OR y > {0}", "n = 3 AND b = true", "s IN ('a', 'b') AND x > {0}",
]
chance = random.Random(1)

def condition():
    return chance.choice(CONDITIONS).replace("{0} + 0.1", "0.9").format(chance.random() * 0.9)

types = {"t": Schema({"x": float, "y": float, "s": str, "b": bool, "n": int})}
for slack in (None, 0.3):
    router = EventRouter("a", 1, types, grace=5.0, covering=True, slack=slack)
    router.place(BrokerPlace("a", "a", "a", frozenset({"a"}), "p", {"p": "p1", "c": "c1"}), 0.0)
    ids = []
    for number in range(150):
        ids.append(router.subscribe(f"c{number % 9}", "t", condition(), 1.0)[0])
        if number % 30 == 0:
            router.publish("z", "t", {"x": 0.5, "y": 0.5, "s": "a", "n": 3, "b": True}, 1.0)
        router.publish("z", "t", {"x": 0.5, "y": 0.5, "s": "a long text", "n": 3, "b": True}, 1.0)
    for number in range(60):
        wanted = RouterSubscription(SubscriptionId("b", 1, number), "t", condition())
        router.receive(RouterSubscribe(wanted), link("c"), 1.0)
    router.publish("z", "t", {"x": 0.5}, 1.0)
    chance.shuffle(ids)
    for number, id in enumerate(ids):
        router.unsubscribe(id, 2.0)
        if number % 50 < 3:
            router.publish("z", "t", {"x": 0.5}, 2.0)
    router.place(BrokerPlace("a", "a", "a", frozenset({"a"}), "", {"c": "c1"}, True), 3.0)
    router.tick(20.0)
    len(router.table)
"""


@pytest.mark.slow
def test_a_router_needs_no_compiler(tmp_path):
    env = uncompiled.environment(tmp_path)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
