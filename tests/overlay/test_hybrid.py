"""Hybrid routing of Xue and Feng 2005: their routes, what a multicast saves, replicas, and who takes over."""

from __future__ import annotations

import random

import pytest

from lengths import long_but
from overlay.networks import Network, Tree
from rtfilter.overlay.broker_names import Connection, SubscriptionId, client, member

PARENTS = {"R": "", "D2": "R", "D3": "R", "D1": "D2", "D5": "D2", "D4": "D3"}


def the_example(strategy: str = "hybrid") -> Network:
    """The paper's: a cluster of three brokers, D1, N1 and N2, and five brokers alone."""
    network = Network(Tree(PARENTS, {"D1": ("D1", "N1", "N2")}), strategy)
    network.subscribe("N2/s1", "alarm", "x > 0")
    network.subscribe("D4/s2", "alarm", "x > 0")
    network.run()
    return network


def publish(network: Network, broker: str) -> set[tuple[str, str]]:
    """The ways that an event takes which all match."""
    network.route.clear()
    network.publish(broker, "alarm", {"x": 1})
    network.run()
    assert len(network.route) == len(set(network.route))
    return set(network.route)


TO_S2 = {("D2", "R"), ("R", "D3"), ("D3", "D4"), ("D4", "D4/s2")}


def test_an_event_of_a_member_goes_through_its_cluster_and_over_the_root() -> None:
    own = {("N1", "N2"), ("N1", "D1"), ("N2", "N2/s1"), ("D1", "D2")}
    assert publish(the_example(), "N1") == own | TO_S2


def test_an_event_goes_down_where_it_matches_and_up_to_the_root() -> None:
    down = {("D2", "D1"), ("D1", "N1"), ("D1", "N2"), ("N2", "N2/s1")}
    assert publish(the_example(), "D2") == down | TO_S2


def test_without_multicast_only_interested_members_hear_of_it() -> None:
    down = {("D2", "D1"), ("D1", "N2"), ("N2", "N2/s1")}
    assert publish(the_example("hierarchical"), "D2") == down | TO_S2
    own = {("N1", "D1"), ("D1", "N2"), ("N2", "N2/s1"), ("D1", "D2")}
    assert publish(the_example("hierarchical"), "N1") == own | TO_S2


def test_a_member_serves_its_own_clients_itself() -> None:
    network = the_example()
    network.subscribe("N1/s3", "alarm", "x > 0")
    network.run()
    assert ("N1", "N1/s3") in publish(network, "N1")


def test_equal_subscriptions_are_one_copy_until_the_last_is_gone() -> None:
    network = the_example()
    twice = [network.subscribe("D4/s2", "alarm", "x > 0") for _ in range(2)]
    network.run()
    assert publish(network, "D2") > TO_S2
    for id in twice:
        network.unsubscribe(id)
    network.run()
    assert publish(network, "D2") > TO_S2


def placed(seed: int, clusters: int = 6) -> tuple[Tree, list[str]]:
    """A tree, and where subscribers come one after the other."""
    rng = random.Random(seed)
    tree = Tree.random(rng, clusters, 4)
    return tree, rng.choices(tree.brokers, k=30)


def total_costs(tree: Tree, strategy: str, subscribers: list[str], publishers: list[str]) -> list[int]:
    """Messages that an event of each publisher costs between brokers."""
    network = Network(tree, strategy)
    for number, broker in enumerate(subscribers):
        network.subscribe(f"{broker}/{number}", "alarm", "x > 0")
    network.run()
    costs = []
    for publisher in publishers:
        before = network.counts["Event"]
        network.publish(publisher, "alarm", {"x": 1})
        network.run()
        costs.append(network.counts["Event"] - before)
    return costs


@pytest.mark.slow
@pytest.mark.parametrize("seed", long_but(range(4), [0]))
def test_hybrid_costs_no_more_than_hierarchical_and_equal_only_without_fellows(seed: int) -> None:
    tree, subscribers = placed(seed)
    for count in (0, 1, 3, 8, 30):
        some = subscribers[:count]
        hybrid = total_costs(tree, "hybrid", some, tree.brokers)
        hierarchical = total_costs(tree, "hierarchical", some, tree.brokers)
        for publisher, cost, unicast in zip(tree.brokers, hybrid, hierarchical, strict=True):
            saved = 0
            for members in tree.members.values():
                interested = len(set(members[1:]) & set(some) - {publisher})
                saved += interested if publisher in members[1:] else max(interested - 1, 0)
            assert unicast - cost == saved


@pytest.mark.parametrize("seed", long_but(range(4), [0]))
def test_more_subscribers_cost_no_less_and_never_more_than_every_link_and_cluster(seed: int) -> None:
    tree, subscribers = placed(seed)
    rows = [
        total_costs(tree, "hybrid", subscribers[:count], tree.brokers[:1])[0] for count in range(0, 31, 6)
    ]
    assert rows == sorted(rows)
    assert rows[-1] <= 2 * len(tree.parents) - 1


def test_members_hold_a_replica_of_the_table() -> None:
    rng = random.Random(5)
    network = Network(Tree.random(rng, 5, 4), seed=5)
    ids = []
    for number in range(40):
        ids.append(network.subscribe(f"{rng.choice(network.tree.brokers)}/{number}", "alarm", "x > 0"))
        if number % 3 == 0:
            network.unsubscribe(ids.pop(rng.randrange(len(ids))))
        network.run(rng.randrange(20))
    network.run()
    for first, *others in network.tree.members.values():
        for other in others:
            assert network.routers[other].replica.keys() == network.replica_of(first)


def entries(network: Network, broker: str) -> set[tuple[SubscriptionId, Connection]]:
    return {(subscription.id, connection) for subscription, connection in network.tables()[broker]}


def test_who_takes_over_routes_by_the_replica() -> None:
    network = the_example()
    mine = network.subscribe("N1/s3", "alarm", "x > 0")
    below = network.subscribe("D5/s4", "alarm", "x > 0")
    network.run()
    (s1,) = (id for id, connection in entries(network, "N2") if connection == client("N2/s1"))
    del network.routers["D1"]
    network.tree.members["D1"] = ("N1", "N2")
    network.settle()
    assert entries(network, "N1") == {(mine, client("N1/s3")), (s1, member("N2"))}
    assert (below, member("N1")) not in entries(network, "D2")
    assert publish(network, "D2") >= {("D2", "N1"), ("N1", "N2"), ("N2", "N2/s1"), ("N1", "N1/s3")}
    assert network.routers["N2"].replica.keys() == {(mine, member("N1")), (s1, member("N2"))}


def test_who_takes_over_asks_for_what_was_told_too_early() -> None:
    network = the_example()
    network.lose("D1")
    network.tree.members["D1"] = ("N1", "N2")
    network.move("N2", network.tree.place("N2"))
    late = network.subscribe("N2/s5", "alarm", "x > 0")
    network.run()  # N1 has not heard that it is the designated broker
    network.move("N1", network.tree.place("N1"))
    network.run()
    assert (late, member("N2")) in entries(network, "N1")


def test_who_steps_down_keeps_its_own_clients() -> None:
    network = the_example()
    mine = network.subscribe("D1/s3", "alarm", "x > 0")
    network.run()
    network.tree.members["D1"] = ("N2", "D1", "N1")
    network.settle()
    assert entries(network, "D1") == {(mine, client("D1/s3"))}
    assert ("D1", "D1/s3") in publish(network, "D2")
    fresh = Network(network.tree)
    assert {c for _, c in entries(network, "N2")} == {client("N2/s1"), member("D1")}
    assert not fresh.routers["N2"].table


def test_what_a_lost_member_wanted_is_forgotten() -> None:
    network = the_example()
    del network.routers["N2"]
    network.tree.members["D1"] = ("D1", "N1")
    network.settle()
    assert not entries(network, "D1")
    assert not entries(network, "D2")
    assert publish(network, "D2") == TO_S2
