"""Whole brokers in simulated time: through crashes and cuts they come to one tree, and route on it."""

from collections import Counter
from functools import partial
from random import Random

import networkx as nx
import pytest

from experiments.simulation.event_router import EventRouter
from experiments.simulation.network import Fault, Losses, What, drawn
from experiments.simulation.topology import random_tree
from lengths import long_but
from overlay.broker_network import BrokerNetwork
from rtfilter.events.schema import Schema

TYPES = {"alarm": Schema({"x": float})}


def published_to_all(network, at):
    """Let a client at each broker publish, and say how often each event reached each client since then."""
    ids = [
        network.publish(at + number / 100, broker, f"p{number}", "alarm", {"x": 1.0})
        for number, broker in enumerate(network.topology.brokers)
    ]
    network.run(at + 20)
    return ids, Counter((each.client, each.message.id) for each in network.deliveries if each.at >= at)


@pytest.mark.slow
@pytest.mark.parametrize("seed", long_but(range(4), [0]))
def test_after_all_faults_there_is_one_tree_and_each_event_comes_once(seed):
    rng = Random(seed)
    topology = random_tree(rng, 4, brokers=3)
    network = BrokerNetwork(topology, TYPES, seed=seed, losses=Losses(multicast=0.02), jitter=0.01)
    network.suffer(drawn(rng, topology, 6, 15.0, 40.0, longest=15.0, spare=seed % 2))
    for number, broker in enumerate(topology.brokers):
        network.subscribe(5.0, broker, f"s{number}", "alarm", "x > 0")
    network.run(110.0)
    for number, broker in enumerate(topology.brokers):  # a client whose broker was gone comes back
        if network.stations[broker].incarnation > 1:
            network.subscribe(111.0, broker, f"s{number}", "alarm", "x > 0")
    ids, got = published_to_all(network, 130.0)
    places = [network.machine(broker).place for broker in topology.brokers]
    leading = {place.cluster: place for place in places if place.leads}
    assert sorted(leading) == topology.clusters
    assert {place.designated for place in places} == {place.broker for place in leading.values()}
    (root,) = [cluster for cluster, place in leading.items() if place.root]
    links = nx.DiGraph([(cluster, place.parent) for cluster, place in leading.items() if cluster != root])
    assert nx.is_arborescence(links.reverse())
    clients = [f"s{number}" for number in range(len(topology.brokers))]
    assert got == {(client, id): 1 for client in clients for id in ids}


@pytest.mark.slow
@pytest.mark.parametrize("seed", long_but(range(3), [0]))
def test_an_event_that_was_acknowledged_has_reached_all_whose_subscription_was_confirmed(seed):
    rng = Random(f"surely {seed}")
    topology = random_tree(rng, 4, brokers=3)
    schedule = drawn(rng, topology, 6, 70.0, 100.0, longest=10.0, spare=1)
    failing = {name for fault in schedule if fault.what is What.CRASH for name in fault.names}
    sound = [broker for broker in topology.brokers if broker not in failing]
    network = BrokerNetwork(topology, TYPES, router=partial(EventRouter, grace=40.0), seed=seed, jitter=0.01)
    network.suffer(schedule)
    for number, broker in enumerate(sound):
        network.subscribe(10.0, broker, f"s{number}", "alarm", "x > 0")
    network.run(69.0)
    assert len(network.confirmed) == len(sound)
    ids = [
        network.publish_surely(
            70.0 + number, [broker, rng.choice(sound)], "p", "alarm", {"x": 1.0}, again=3.0
        )
        for number, broker in enumerate(rng.choices(topology.brokers, k=40))
    ]
    network.run(300.0)
    assert network.acknowledged.keys() == set(ids)
    first = {}
    for each in network.deliveries:
        first.setdefault((each.client, each.message.id), each.at)
    for id, at in network.acknowledged.items():
        for client in network.confirmed:
            assert first[client, id] <= at


@pytest.mark.slow
def test_clusters_that_are_cut_off_go_on_by_themselves():
    topology = random_tree(Random(3), 4, brokers=2)
    network = BrokerNetwork(topology, TYPES, seed=1)
    cut = frozenset(topology.clusters[2:])
    network.suffer([Fault(20.0, What.CUT, cut)])
    for number, broker in enumerate(topology.brokers):
        network.subscribe(5.0, broker, f"s{number}", "alarm", "x > 0")
    ids, got = published_to_all(network, 90.0)
    for publisher, id in zip(topology.brokers, ids, strict=True):
        heard = {topology.brokers[int(client[1:])] for client, own in got if own == id}
        assert topology.cluster_of[publisher] in {topology.cluster_of[broker] for broker in heard}
        sides = {topology.cluster_of[broker] in cut for broker in heard}
        assert sides == {topology.cluster_of[publisher] in cut}
    assert set(got.values()) == {1}


@pytest.mark.slow
def test_the_same_seed_plays_the_same_run():
    def play(seed):
        topology = random_tree(Random(1), 3, brokers=2)
        network = BrokerNetwork(topology, TYPES, seed=seed, losses=Losses(0.1, 0.0), jitter=0.02)
        network.suffer(drawn(Random(seed), topology, 3, 5.0, 10.0, longest=5.0))
        network.subscribe(3.0, topology.brokers[-1], "s", "alarm", "x > 0")
        network.run(40.0)
        return network.messages, network.lost, [network.machine(broker).place for broker in topology.brokers]

    assert play(1) == play(1)
    assert play(1) != play(2)
