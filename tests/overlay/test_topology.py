"""Networks that are drawn to be simulated, and at which brokers clients are."""

from collections import Counter
from itertools import pairwise
from random import Random

import networkx as nx
import pytest

from experiments.simulation.topology import (
    LAN,
    NewClient,
    Weights,
    embedded,
    placed,
    random_tree,
    transit_stub,
    uniform,
)


def test_the_routers_are_connected_by_as_many_links_as_asked_and_stubs_hang_from_one_router():
    for seed in range(3):
        graph = transit_stub(Random(seed))
        assert (len(graph), graph.number_of_edges()) == (500, 730)
        assert nx.is_connected(graph)
        stubs = graph.subgraph([router for router, kind in graph.nodes(data="kind") if kind == "stub"])
        parts = list(nx.connected_components(stubs))
        assert Counter(map(len, parts)) == {8: 60}
        for part in parts:
            assert len(list(nx.edge_boundary(graph, part))) == 1
    with pytest.raises(ValueError, match="499 to"):
        transit_stub(Random(1), links=498)


@pytest.mark.parametrize("children", [1, 2, 4])
def test_a_tree_of_clusters_keeps_the_limit_of_children(children):
    rng = Random(children)
    for topology in (embedded(rng, transit_stub(rng), 60, 3, children), random_tree(rng, 60, 3, children)):
        tree = nx.Graph(list(topology.parents.items()))
        assert nx.is_tree(tree)
        assert len(tree) == 60
        assert max(Counter(topology.parents.values()).values()) == children
        assert len(topology.brokers) == 180
        assert topology.cluster_of[topology.brokers[0]] == topology.root


def test_each_cluster_joined_the_nearest_earlier_one_that_has_room():
    rng = Random(4)
    topology = embedded(rng, transit_stub(rng), 40, 1, children=3)
    below = Counter()
    for at, cluster in enumerate(topology.clusters[1:], 1):
        parent = topology.parents[cluster]
        for other in topology.clusters[:at]:
            nearer = topology.latencies[cluster, other] < topology.latencies[cluster, parent]
            assert not nearer or below[other] == 3
        below[parent] += 1


def test_ways_and_distances_are_those_of_the_tree():
    topology = random_tree(Random(5), 30)
    tree = nx.Graph(list(topology.parents.items()))
    for one, other in [("c00", "c29"), ("c29", "c07"), ("c12", "c12"), ("c05", "c00")]:
        way = topology.path(one, other)
        assert way == nx.shortest_path(tree, one, other)
        if one != other:
            links = [topology.latencies[pair] for pair in pairwise(way)]
            assert topology.latencies[one, other] == pytest.approx(sum(links))
            assert all(seconds > LAN for seconds in links)


def test_places_agree_with_each_other():
    topology = random_tree(Random(6), 12, brokers=3)
    places = {broker: topology.place(broker) for broker in topology.brokers}
    assert [place.cluster for place in places.values() if place.root] == [topology.root] * 3
    for broker, place in places.items():
        assert place.broker == broker in place.members
        assert place.leads == bool(place.links)
        assert place.designated == min(place.members)
        for other, designated in place.links.items():
            assert places[designated].links[place.cluster] == broker
            assert (place.parent == other) != (places[designated].parent == place.cluster)


def test_the_same_seed_draws_the_same_network():
    drawn = [embedded(Random(7), transit_stub(Random(8)), 20, 2) for _ in range(2)]
    assert drawn[0].parents == drawn[1].parents
    assert drawn[0].latencies == drawn[1].latencies


def test_no_tree_is_drawn_where_there_is_none():
    for clusters, brokers, children in [(0, 1, 8), (3, 0, 8), (3, 1, 0), (2, 1, 0)]:
        with pytest.raises(ValueError, match=r"at least one|no tree"):
            random_tree(Random(1), clusters, brokers, children)
    assert random_tree(Random(1), 1, children=0).parents == {}
    with pytest.raises(ValueError, match="600 clusters"):
        embedded(Random(1), transit_stub(Random(1)), 600)


def test_more_clients_stand_where_fewer_did():
    topology = random_tree(Random(1), 5, brokers=4)
    assert uniform(Random(9), topology, 50)[:20] == uniform(Random(9), topology, 20)
    assert set(uniform(Random(9), topology, 500)) == set(topology.brokers)


def test_clients_go_where_it_is_near_where_few_are_and_where_others_want_the_same():
    topology = random_tree(Random(1), 4, brokers=2)
    rng = Random(2)
    wishes = [NewClient(rng.choice(topology.clusters), rng.choice("ab")) for _ in range(80)]
    near = placed(topology, wishes, Weights(0, 1, 0))
    assert [topology.cluster_of[broker] for broker in near] == [wish.cluster for wish in wishes]
    even = placed(topology, wishes, Weights(0, 0, 1))
    assert Counter(even) == dict.fromkeys(topology.brokers, 10)
    alike = placed(topology, wishes, Weights(1, 0, 0.1))
    wanted = {cluster: {wish.interest for wish, at in zip(wishes, alike, strict=True)
                        if topology.cluster_of[at] == cluster} for cluster in topology.clusters}  # fmt: skip
    assert all(len(interests) < 2 for interests in wanted.values())
