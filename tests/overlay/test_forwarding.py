"""How many messages and entries each of Bittner's strategies takes, exactly."""

from __future__ import annotations

import random

import pytest

from experiments.simulation.event_router import EventRouter
from experiments.simulation.topology import by_hash
from overlay.networks import TYPES, Network, Tree
from rtfilter.overlay.strategies import EventForwarding, ProfileForwarding, Rendezvous, Strategy

TREES = [Tree.random(random.Random(seed), 2 + seed % 9) for seed in range(10)]


def subscribed(tree: Tree, strategy: str, meeting: str, subscribers: list[str]) -> Network:
    def make(name: str) -> EventRouter:
        made: Strategy = Rendezvous({"alarm": meeting}) if strategy == "rendezvous" else ProfileForwarding()
        return EventRouter(name, 1, TYPES, EventForwarding() if strategy == "event_forwarding" else made)

    network = Network(tree, make=make)
    for number, broker in enumerate(subscribers):
        network.subscribe(f"{broker}/{number}", "alarm", f"x = {number % 3}")
    network.run()
    return network


@pytest.mark.parametrize("tree", TREES)
def test_messages_and_entries_of_each_strategy(tree: Tree) -> None:
    rng = random.Random(3)
    meeting, subscribers = rng.choice(tree.brokers), rng.choices(tree.brokers, k=rng.randint(0, 6))
    networks = {
        strategy: subscribed(tree, strategy, meeting, subscribers)
        for strategy in ("profile_forwarding", "event_forwarding", "rendezvous")
    }
    entries = {s: sum(map(len, network.tables().values())) for s, network in networks.items()}
    assert entries == {
        "event_forwarding": len(subscribers),
        "profile_forwarding": len(subscribers) * len(tree.brokers),
        "rendezvous": sum(len(tree.path(broker, meeting)) for broker in subscribers),
    }
    for publisher in tree.brokers:
        for x in range(3):
            costs = {}
            for strategy, network in networks.items():
                before = network.counts["Event"]
                network.publish(publisher, "alarm", {"x": x})
                network.run()
                costs[strategy] = network.counts["Event"] - before
            matching = {broker for number, broker in enumerate(subscribers) if number % 3 == x}
            way_up = len(tree.path(publisher, meeting)) - 1
            assert costs == {
                "event_forwarding": len(tree.brokers) - 1,
                "profile_forwarding": len(tree.edges({publisher, *matching})),
                "rendezvous": way_up + len(tree.edges({meeting, *matching})),
            }


def test_types_are_assigned_to_clusters_by_hash() -> None:
    types = [f"t{i}" for i in range(200)]
    assigned = by_hash(types, ["a", "b", "c"])
    assert all(list(assigned.values()).count(cluster) > 40 for cluster in "abc")
    fewer = by_hash(types, ["a", "b"])
    assert all(fewer[type] == cluster for type, cluster in assigned.items() if cluster != "c")
