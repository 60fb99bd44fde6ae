"""Events reach whom they shall, exactly once, by every strategy, whatever order messages arrive in."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.simulation.event_messages import EventId
from experiments.simulation.event_router import EventRouter
from experiments.simulation.topology import by_hash
from lengths import each_once
from overlay.networks import TYPES, Network, Tree
from rtfilter import EventFilter
from rtfilter.overlay.broker_names import SubscriptionId
from rtfilter.overlay.strategies import STRATEGIES, Rendezvous

TOLD: dict[str, dict[str, Any]] = {"all": {}, "not covered": {"covering": True}, "merged": {"slack": 0.5}}
"""What routers tell each other of subscriptions, and how to make such a router."""


def some_condition(rng: random.Random) -> str:
    low = rng.randint(0, 9)
    kind = rng.randrange(4)
    if kind == 0:
        return f"x BETWEEN {low} AND {low + rng.randint(0, 4)}"
    if kind == 1:
        return f"x >= {low}"
    return "x IS NOT NULL" if kind == 2 else f"x = {low} OR x > {low + 4}"


class Wish(NamedTuple):
    """A subscription of a client, and its id in the central filter of its event type."""

    client: str
    type: str
    condition: str
    central: int


class Model:
    """A network with clients, and what one central filter of each event type would have sent them."""

    def __init__(self, network: Network, rng: random.Random) -> None:
        self.network, self._rng = network, rng
        self.central = {type: EventFilter(schema, ids=int) for type, schema in TYPES.items()}
        self.live: dict[SubscriptionId, Wish] = {}
        self.expected: dict[str, list[EventId]] = {}

    def subscribe(self) -> None:
        broker = self._rng.choice(self.network.tree.brokers)
        name = f"{broker}/{self._rng.randrange(2)}"
        type = self._rng.choice(list(TYPES))
        condition = some_condition(self._rng)
        self.add(self.network.subscribe(name, type, condition), name, type, condition)

    def add(self, id: SubscriptionId, name: str, type: str, condition: str) -> None:
        """Expect what satisfies a subscription."""
        self.live[id] = Wish(name, type, condition, self.central[type].subscribe(condition))

    def drop(self, id: SubscriptionId) -> None:
        """Expect nothing more for it."""
        wish = self.live.pop(id)
        self.central[wish.type].unsubscribe(wish.central)

    def unsubscribe(self) -> None:
        if self.live:
            id = self._rng.choice(list(self.live))
            self.drop(id)
            self.network.unsubscribe(id)

    def publish(self) -> tuple[str, EventId, set[str]]:
        """Publish anywhere; return the broker, the event and the clients that match."""
        broker = self._rng.choice(self.network.tree.brokers)
        type = self._rng.choice(list(TYPES))
        values: dict[str, Any] = {"x": self._rng.randint(0, 14)}
        id = self.network.publish(broker, type, values)
        owners = {wish.central: wish.client for wish in self.live.values() if wish.type == type}
        clients = {owners[int(one)] for one in self.central[type].match(values)}
        for name in clients:
            self.expected.setdefault(name, []).append(id)
        return broker, id, clients

    def check(self) -> None:
        received = {name: sorted(ids) for name, ids in self.network.received.items() if ids}
        assert received == {name: sorted(ids) for name, ids in self.expected.items()}


@pytest.mark.parametrize(("strategy", "told"), each_once(list(STRATEGIES), list(TOLD)))
@given(seed=st.integers(0, 2**32), most_members=st.sampled_from((1, 3)))
@settings(max_examples=15)
def test_each_event_reaches_whom_it_matches_exactly_once(
    strategy: str, told: str, seed: int, most_members: int
) -> None:
    rng = random.Random(seed)
    tree = Tree.random(rng, rng.randint(1, 8), most_members)
    assigned = by_hash(TYPES, tree.parents.keys())

    def make(name: str) -> EventRouter:
        chosen = Rendezvous(assigned) if strategy == "rendezvous" else strategy
        return EventRouter(name, 1, TYPES, chosen, **TOLD[told])

    network = Network(tree, seed=seed, make=make)
    model = Model(network, rng)
    for _ in range(4):
        for _ in range(rng.randint(0, 6)):
            rng.choice((model.subscribe, model.subscribe, model.unsubscribe))()
            network.run(rng.randrange(10))
        network.run()
        for _ in range(5):
            model.publish()
            network.run(rng.randrange(10))
        network.run()
        model.check()
    while model.live:
        model.unsubscribe()
    network.run()
    assert not any(network.tables().values())
    assert not any(router.replica for router in network.routers.values())
