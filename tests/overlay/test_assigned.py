"""Rendezvous clusters that are assigned to event types stay so, and are found wherever the tree has them."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.simulation.event_router import EventRouter
from experiments.simulation.topology import by_hash
from overlay.networks import TYPES, Network, Tree
from overlay.test_acknowledging import GRACE, Publishers
from rtfilter.overlay.strategies import Rendezvous

TREE = Tree({"a": "", "b": "a", "c": "a"})


def meeting(name: str, incarnation: int = 1) -> EventRouter:
    return EventRouter(name, incarnation, TYPES, Rendezvous({"alarm": "c"}))


def met(network: Network, type: str, broker: str = "b") -> list[tuple[str, str]]:
    """The way of an event from a broker to itself, by which it is seen where the type has its rendezvous."""
    network.subscribe(f"{broker}/1", type, "x > 0")
    network.run()
    network.route.clear()
    network.publish(broker, type, {"x": 1.0})
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


def test_a_router_that_is_told_them_uses_them_from_the_start_or_once_it_meets_there() -> None:
    for first in ("rendezvous", "hybrid"):
        make = partial(EventRouter, incarnation=1, types=TYPES, strategy=first, assigned={"alarm": "c"})
        network = Network(TREE, make=make)
        network.take("a", network.routers["a"].switch("rendezvous", network.now))
        network.run()
        assert met(network, "alarm") == UP_TO_C


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


def test_a_way_that_is_lost_is_not_believed_of_one_that_does_not_know_it_yet() -> None:
    tree = Tree({"a": "", "b": "a", "d": "a", "c": "d"})
    network = Network(tree, make=meeting)
    network.sever("d", "a")
    tree.parents["d"] = ""
    network.move("d", tree.place("d"))
    tree.parents["d"] = "b"  # which still goes by a
    for broker in "dbac":
        network.move(broker, tree.place(broker))
        network.run()
    assert met(network, "alarm", "a") == [
        (one, other) for one, other in zip("abdcdb", "bdcdba", strict=True)
    ] + [("a", "a/1")]


def test_a_cluster_whose_broker_is_another_one_now_is_found() -> None:
    tree = Tree({"a": "", "b": "a", "c": "a"}, {"a": ("a1", "a2"), "c": ("c1", "c2")})
    network = Network(tree, make=meeting)
    for cluster in "ac":
        first, second = tree.members[cluster]
        network.lose(first)
        tree.members[cluster] = (second,)
        network.settle()
    assert met(network, "alarm") == [("b", "a2"), ("a2", "c2"), ("c2", "a2"), ("a2", "b"), ("b", "b/1")]


def test_a_way_over_a_cluster_whose_broker_died_with_what_it_knew_is_taken_for_lost() -> None:
    tree = Tree({"a": "", "b": "a", "d": "a", "c": "d"}, {"d": ("d1", "d2")})
    network = Network(tree, make=meeting)
    network.lose("d1")
    tree.members["d"] = ("d2",)
    tree.parents["c"] = "b"
    network.settle()
    assert met(network, "alarm", "a") == [("a", "b"), ("b", "c"), ("c", "b"), ("b", "a"), ("a", "a/1")]


@given(seed=st.integers(0, 2**32), most_members=st.sampled_from((1, 3)))
@pytest.mark.slow
@settings(max_examples=25)
def test_what_was_acknowledged_has_reached_everyone(seed: int, most_members: int) -> None:
    rng = random.Random(seed)
    tree = Tree.random(rng, rng.randint(2, 7), most_members)
    assigned = by_hash(TYPES, tree.parents.keys())
    network = Publishers(
        tree, seed=seed, make=lambda name: EventRouter(name, 1, TYPES, Rendezvous(assigned), grace=GRACE)
    )
    network.change(rng)
    there = {type for type, cluster in assigned.items() if cluster in tree.parents}
    assert not [event for event in network.open.values() if event[1] in there], "not acknowledged at last"
    live = {id for id, (_, type, _) in network.live.items() if type in there}
    assert live <= network.confirmed, "not confirmed at last"
