"""A broker routes without compiled code, so that nobody waits for a compiler, not even at its start."""

import json
import signal
import subprocess
import sys

import pytest

import uncompiled
from rtfilter.overlay.running.broker_keys import Key

PROGRAM = """
import random
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import SubscriptionId, link
from rtfilter.overlay.broker_names import BrokerPlace
from rtfilter.overlay.router import Router
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
    router = Router("a", 1, types, grace=5.0, covering=True, slack=slack)
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
    router.stats()
"""


@pytest.mark.slow
def test_a_router_needs_no_compiler(tmp_path):
    env = uncompiled.environment(tmp_path)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_broker_is_ready_without_a_compiler(tmp_path):
    Key.new().write(tmp_path / "key")
    (tmp_path / "types.json").write_text(json.dumps({"trade": {"x": "float"}}))
    command = [sys.executable, "-m", "rtfilter", "broker", "run", "--name", "a", "--port", "0"]
    command += ["--rendezvous", "127.0.0.1:9"]  # nobody is there
    command += ["--key", tmp_path / "key", "--data", tmp_path / "data", "--schema", tmp_path / "types.json"]
    with subprocess.Popen(
        list(map(str, command)),
        env=uncompiled.environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        line = broker.stdout.readline()
        broker.send_signal(signal.SIGTERM)
        assert (broker.wait(20), bool(line)) == (0, True), broker.stderr.read()
