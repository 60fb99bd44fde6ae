"""The strategy changes while events are under way, and no event is lost or doubled."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.simulation.choosing import choose, costs
from experiments.simulation.event_messages import NetworkLoad
from experiments.simulation.event_router import EventRouter
from lengths import long_but
from overlay.networks import TYPES, Network, Tree
from overlay.test_routes import Model
from rtfilter.overlay.strategies import STRATEGIES


def root_of(network: Network) -> EventRouter:
    return network.routers[network.tree.members[network.tree.root][0]]


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32),
    most_members=st.sampled_from((1, 3)),
    pair=st.permutations(list(STRATEGIES)).map(lambda names: names[:3]),
    covering=st.booleans(),
)
@settings(max_examples=60)
def test_switching_loses_and_doubles_nothing(
    seed: int, most_members: int, pair: list[str], covering: bool
) -> None:
    rng = random.Random(seed)
    tree = Tree.random(rng, rng.randint(1, 7), most_members)
    make = partial(EventRouter, incarnation=1, types=TYPES, strategy=pair[0], covering=covering)
    network = Network(tree, seed=seed, make=make)
    model = Model(network, rng)
    for _ in range(8):
        model.subscribe()
    network.run()
    root = root_of(network)
    for name in pair[1:]:
        network.take(root.name, root.switch(name, network.now))
        for _ in range(15):
            network.run(rng.randrange(12))
            model.publish()
        network.run()
        assert {router.strategy.name for router in network.routers.values()} == {name}
        fresh = Network(tree, make=partial(make, strategy=name))
        for wish in model.live.values():
            fresh.subscribe(wish.client, wish.type, wish.condition)
        fresh.run()
        if not covering:
            assert sizes(network) == sizes(fresh)
    network.run()
    model.check()


def sizes(network: Network) -> dict[str, int]:
    return {name: len(router.table) for name, router in network.routers.items()}


def test_who_joins_later_learns_of_the_strategy() -> None:
    network = Network(Tree({"a": "", "b": "a", "c": "b"}), "hybrid")
    network.tree.parents["b"] = ""
    network.settle()
    network.take("a", network.routers["a"].switch("event_forwarding", network.now))
    network.run()
    network.tree.parents["b"] = "a"
    network.settle()
    assert {router.strategy.name for router in network.routers.values()} == {"event_forwarding"}


def test_the_next_root_ends_what_the_former_one_began() -> None:
    tree = Tree({"a": "", "b": "a", "c": "b", "d": "a"}, {"a": ("a1", "a2")})
    network = Network(tree, "hybrid")
    network.subscribe("c/1", "alarm", "x > 0")
    network.run()
    network.take("a1", network.routers["a1"].switch("profile_forwarding", network.now))
    network.run(9)
    network.lose("a1")
    tree.members["a"] = ("a2",)
    network.settle()
    assert {router.strategy.name for router in network.routers.values()} == {"profile_forwarding"}
    assert all(len(router.table) == 1 for router in network.routers.values())


@pytest.mark.parametrize("arrived", long_but([0, 4, 8, 12, 16, 100], [4, 12, 100]))
@pytest.mark.parametrize("name", ["event_forwarding", "profile_forwarding", "rendezvous"])
def test_a_root_that_is_started_again_at_once_goes_on_where_it_was(name: str, arrived: int) -> None:
    """Nobody has taken its place; by the strategy it was started with it would lose what it acknowledges."""
    tree = Tree({"a": "", "b": "a", "c": "a"})
    make = partial(EventRouter, types=TYPES, strategy="hybrid", grace=5.0)
    network = Network(tree, make=partial(make, incarnation=1))
    network.wait(5)
    network.subscribe("b/s", "trade", "x > 0")
    network.run()
    network.take("a", network.routers["a"].switch(name, network.now))
    network.run(arrived)
    kept = network.routers["a"].switched
    network.lose("a")
    for one in "bc":
        network.move(one, tree.place(one)._replace(parent="", links={}))
    network.run()
    root = network.routers["a"] = make("a", incarnation=2)
    root.resume(kept)
    network.settle()
    network.wait(6)
    network.wait(6)
    assert {router.strategy.name for router in network.routers.values()} == {name}
    assert network.publish("a", "trade", {"x": 1.0}) not in network.received["b/s"]
    network.run()
    assert len(network.received["b/s"]) == 1
    network.take("a", root.switch("hybrid", network.now))
    network.run()
    assert {router.strategy.name for router in network.routers.values()} == {"hybrid"}


def test_what_was_kept_under_another_first_strategy_is_not_gone_on_with() -> None:
    network = Network(Tree({"a": ""}), "hybrid")
    network.take("a", network.routers["a"].switch("rendezvous", network.now))
    kept = network.routers["a"].switched
    network.lose("a")
    network.routers["a"] = EventRouter("a", 2, TYPES, "event_forwarding")
    network.routers["a"].resume(kept)
    network.settle()
    assert network.routers["a"].strategy.name == "event_forwarding"


def test_only_the_root_switches_one_at_a_time() -> None:
    network = Network(Tree({"a": "", "b": "a"}), "hybrid")
    with pytest.raises(ValueError, match="only the root"):
        network.routers["b"].switch("event_forwarding", 0)
    with pytest.raises(ValueError, match="unknown strategy"):
        network.routers["a"].switch("flooding", 0)
    network.take("a", network.routers["a"].switch("event_forwarding", 0))
    with pytest.raises(ValueError, match="try again soon"):
        network.routers["a"].switch("hybrid", 0)


def chain(clusters: int, events: int, served: int, changes: int = 0) -> NetworkLoad:
    return NetworkLoad(tuple(range(1, clusters + 1)), events, served, changes)


def test_costs_are_those_of_the_strategies() -> None:
    load = chain(5, 10, 0)
    found = costs(load)
    assert found["event_forwarding"] == 4
    assert found["profile_forwarding"] == 0.25
    assert found["hybrid"] == pytest.approx(found["rendezvous"]) == pytest.approx(2 + 0.25 * 3)
    everyone = costs(chain(5, 10, 50))
    assert everyone["profile_forwarding"] == pytest.approx(4 + 0.25 * 5)


def test_few_matches_want_profiles_forwarded_and_many_events() -> None:
    assert choose(chain(20, 100, 10), "hybrid") == "profile_forwarding"
    assert choose(chain(20, 100, 2_000), "profile_forwarding") == "event_forwarding"
    assert choose(chain(20, 100, 10, changes=200), "profile_forwarding") != "profile_forwarding"


def test_a_small_gain_changes_nothing() -> None:
    load = chain(20, 100, 10)
    found = costs(load)
    better = min(found, key=lambda name: found[name])
    assert choose(load, better) == better
    assert choose(NetworkLoad(), "hybrid") == "hybrid"


@pytest.mark.slow
def test_a_network_chooses_by_what_it_has_seen() -> None:
    tree = Tree({f"c{i}": f"c{(i - 1) // 2}" if i else "" for i in range(12)})
    make = partial(EventRouter, incarnation=1, types=TYPES, strategy="hybrid", choose_every=10.0)
    network = Network(tree, make=make)
    network.subscribe("c7/1", "alarm", "x > 7")
    for broker in tree.brokers:
        for x in range(4, 9):
            network.publish(broker, "alarm", {"x": x})
    network.run()
    network.wait(10.0)
    assert {router.strategy.name for router in network.routers.values()} == {"profile_forwarding"}
    for broker in tree.brokers:
        network.subscribe(f"{broker}/2", "alarm", "x IS NOT NULL")
    network.run()
    for _ in range(20):
        for broker in tree.brokers:
            network.publish(broker, "alarm", {"x": 1})
    network.run()
    network.wait(10.0)
    assert {router.strategy.name for router in network.routers.values()} == {"event_forwarding"}
