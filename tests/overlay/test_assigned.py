"""Rendezvous clusters that are assigned to event types stay so, whatever strategy comes between."""

from __future__ import annotations

import pytest

from overlay.networks import TYPES, Network, Tree
from rtfilter.overlay.router import Router
from rtfilter.overlay.strategies.rendezvous import Rendezvous

TREE = Tree({"a": "", "b": "a", "c": "a"})


def meeting(name: str, incarnation: int = 1) -> Router:
    return Router(name, incarnation, TYPES, Rendezvous({"alarm": "c"}))


def met(network: Network, type: str) -> list[tuple[str, str]]:
    """The way of an event from b to b, by which it is seen where the type has its rendezvous."""
    network.subscribe("b/1", type, "x > 0")
    network.run()
    network.route.clear()
    network.publish("b", type, {"x": 1.0})
    network.run()
    return network.route


UP_TO_C = [("b", "a"), ("a", "c"), ("c", "a"), ("a", "b"), ("b", "b/1")]
UP_TO_THE_ROOT = [("b", "a"), ("a", "b"), ("b", "b/1")]


@pytest.mark.parametrize("between", ["hybrid", "event_forwarding"])
def test_another_strategy_and_back_keeps_the_rendezvous_clusters(between: str) -> None:
    network = Network(TREE, make=meeting)
    for name in (between, "rendezvous"):
        network.take("a", network.routers["a"].switch(name, network.now))
        network.run()
    assert met(network, "alarm") == UP_TO_C
    assert met(network, "trade") == UP_TO_THE_ROOT


def test_a_root_that_is_started_again_keeps_them() -> None:
    network = Network(TREE, make=meeting)
    for name in ("hybrid", "rendezvous"):
        network.take("a", network.routers["a"].switch(name, network.now))
        network.run()
    kept = network.routers["a"].switched
    network.lose("a")
    for one in "bc":
        network.move(one, TREE.place(one)._replace(parent="", links={}))
    network.routers["a"] = meeting("a", 2)
    network.routers["a"].resume(kept)
    network.settle()
    assert met(network, "alarm") == UP_TO_C
