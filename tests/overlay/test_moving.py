"""The tree changes while messages are under way; afterwards everything is as in a network built anew."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.simulation.event_router import EventRouter
from lengths import each_once
from overlay.networks import TYPES, Network, Tree
from overlay.test_hybrid import TO_S2, entries, publish, the_example
from overlay.test_routes import Model, some_condition
from rtfilter.overlay.broker_names import SubscriptionId
from rtfilter.overlay.strategies import STRATEGIES


class Changing:
    """A network whose tree changes at random, one broker hearing of it after the other."""

    def __init__(self, network: Network, rng: random.Random) -> None:
        self.network, self.tree, self._rng = network, network.tree, rng
        self.meanwhile: Callable[[], None] = lambda: None

    def hear(self) -> None:
        """Tell all brokers their places, in some order, with messages under way."""
        brokers = self.tree.brokers
        self._rng.shuffle(brokers)
        for broker in brokers:
            self.network.move(broker, self.tree.place(broker))
            self.network.run(self._rng.randrange(8))
            self.meanwhile()

    def cut(self, cluster: str) -> None:
        """Cut a cluster off, with all below it."""
        parent = self.tree.parents[cluster]
        self.network.sever(self.tree.members[cluster][0], self.tree.members[parent][0])
        self.network.run(self._rng.randrange(20))
        self.tree.parents[cluster] = ""
        self.hear()

    def join(self, cluster: str) -> None:
        """Let one that is cut off join somewhere."""
        above = sorted(self.tree.below(self.tree.root))
        parent = self.tree.parents[cluster] = self._rng.choice(above)
        self.network.broken.discard(frozenset((self.tree.members[cluster][0], self.tree.members[parent][0])))
        self.hear()

    def lose(self, broker: str) -> None:
        """Let a broker die, and the next one take over where it was the designated one."""
        self.network.lose(broker)
        cluster = next(c for c, members in self.tree.members.items() if broker in members)
        self.tree.members[cluster] = tuple(b for b in self.tree.members[cluster] if b != broker)
        if not self.tree.members[cluster]:
            del self.tree.members[cluster], self.tree.parents[cluster]
            orphans = [c for c, parent in self.tree.parents.items() if parent == cluster]
            for orphan in orphans:
                self.tree.parents[orphan] = ""
            if cluster == self.tree.root:
                self.tree.root = self._rng.choice(orphans)
        self.hear()

    def anything(self) -> None:
        """Cut, lose or elect, and mend."""
        cluster = self._rng.choice(sorted(self.tree.parents))
        what = self._rng.randrange(3)
        if what == 0 and cluster != self.tree.root:
            self.cut(cluster)
        elif what == 1 and len(self.tree.parents) > 2:
            self.lose(self.tree.members[cluster][0])
        else:
            self.tree.members[cluster] = self.tree.members[cluster][1:] + self.tree.members[cluster][:1]
            self.hear()
        self.mend()

    def mend(self) -> None:
        """Join whatever is cut off."""
        for cluster, parent in sorted(self.tree.parents.items()):
            if not parent and cluster != self.tree.root:
                self.join(cluster)


@pytest.mark.parametrize(("strategy", "covering"), each_once(list(STRATEGIES), [False, True]))
@given(seed=st.integers(0, 2**32), most_members=st.sampled_from((1, 3)))
@settings(max_examples=15)
def test_after_changes_all_is_as_in_a_network_built_anew(
    strategy: str, covering: bool, seed: int, most_members: int
) -> None:
    rng = random.Random(seed)
    make = partial(EventRouter, incarnation=1, types=TYPES, strategy=strategy, covering=covering)
    network = Network(Tree.random(rng, rng.randint(2, 7), most_members), seed=seed, make=make)
    changing = Changing(network, rng)
    subscribed: list[tuple[SubscriptionId, tuple[str, str, str]]] = []
    gone: set[SubscriptionId] = set()
    for _ in range(4):
        for _ in range(rng.randint(0, 5)):
            name = f"{rng.choice(network.tree.brokers)}/{rng.randrange(2)}"
            wanted = name, rng.choice(list(TYPES)), some_condition(rng)
            subscribed.append((network.subscribe(*wanted), wanted))
            if rng.random() < 0.3:
                (id, _) = rng.choice(subscribed)
                if id.origin in network.routers:
                    gone.add(id)
                    network.unsubscribe(id)
        changing.anything()
    network.run()

    fresh = Network(network.tree, make=make)
    model = Model(network, rng)
    for id, (name, type, condition) in subscribed:
        if id.origin in network.routers:
            assert fresh.subscribe(name, type, condition) == id
            model.add(id, name, type, condition)
    for id in gone & model.live.keys():
        fresh.unsubscribe(id)
        model.drop(id)
    fresh.run()
    if not covering:  # which depends on who came first
        assert network.tables() == fresh.tables()
    for first, *others in network.tree.members.values():
        shared = network.routers[first].strategy.shared
        for other in others:
            assert network.routers[other].replica.keys() == (network.replica_of(first) if shared else set())
        assert network.routers[first].replica == {}
    for _ in range(8):
        model.publish()
        network.run(rng.randrange(10))
    network.run()
    model.check()


def test_a_cluster_that_moved_is_reached_on_its_new_way() -> None:
    network = the_example()
    network.tree.parents["D4"] = ""
    network.settle()
    assert not entries(network, "D3")
    assert len(entries(network, "R")) == 1
    network.tree.parents["D4"] = "D5"
    network.settle()
    ways = publish(network, "D2")
    assert ways >= {("D2", "D5"), ("D5", "D4"), ("D4", "D4/s2"), ("D2", "R")}
    assert not ways & TO_S2 - {("D2", "R"), ("D4", "D4/s2")}
    fresh = Network(network.tree)
    fresh.subscribe("N2/s1", "alarm", "x > 0")
    fresh.subscribe("D4/s2", "alarm", "x > 0")
    fresh.run()
    assert network.tables() == fresh.tables()


def test_a_child_that_takes_the_root_over_is_told_what_its_parent_was() -> None:
    network = the_example()
    network.tree.parents["R"] = "D2"
    network.tree.parents["D2"] = ""
    network.tree.root = "D2"
    network.settle()
    assert {c.name for _, c in entries(network, "R")} == {"D3"}
    assert {c.name for _, c in entries(network, "D2")} == {"D1", "R"}
    assert publish(network, "D2") >= TO_S2
