"""An event that was acknowledged has reached everyone, whatever broke meanwhile."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.simulation.event_messages import Acknowledge, EventId
from experiments.simulation.event_router import EventRouter
from lengths import each_once
from overlay.networks import TYPES, Network, Tree
from overlay.test_moving import Changing
from overlay.test_routes import TOLD, some_condition
from rtfilter.overlay.broker_names import Send, SubscriptionId
from rtfilter.overlay.routing_messages import Confirm
from rtfilter.overlay.strategies import STRATEGIES
from rtfilter.predicates.predicate import Predicate

pytestmark = pytest.mark.slow

GRACE = 1000.0


class Publishers(Network):
    """A network whose publishers send again what is not acknowledged, and which checks what is.

    Attributes
    ----------
    open : dict of EventId to tuple
        Events that were not acknowledged: broker, type, values, attempts so far, and whom they must reach.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        self.open: dict[EventId, tuple[str, str, dict[str, Any], int, set[SubscriptionId]]] = {}
        self.live: dict[SubscriptionId, tuple[str, str, Predicate]] = {}
        self.confirmed: set[SubscriptionId] = set()
        self.acknowledged = 0
        super().__init__(*given, **more)

    def join(self, name: str, type: str, condition: str) -> None:
        """Subscribe."""
        broker = name.partition("/")[0]
        id, sends = self.routers[broker].subscribe(name, type, condition, self.now)
        self.live[id] = name, type, Predicate.parse(condition, TYPES[type])
        self.take(broker, sends)

    def offer(self, broker: str, type: str, values: dict[str, Any]) -> None:
        """Publish, and expect it to reach all whose subscriptions are confirmed."""
        wanted = {
            id for id in self.confirmed & self.live.keys() if self.live[id][1] == type
            and self.live[id][2].matches(values)
        }  # fmt: skip
        id = EventId(f"{broker}/p", 1, self.acknowledged + len(self.open) + 1)
        self.open[id] = broker, type, values, 1, wanted
        self.publish(broker, type, values, id)

    def again(self) -> None:
        """Send what is not acknowledged again, from another broker where the first one is dead."""
        for id, (broker, type, values, attempts, wanted) in list(self.open.items()):
            if id in self.open:
                now_at = broker if broker in self.routers else min(self.routers)
                self.open[id] = now_at, type, values, attempts + 1, wanted
                self.publish(now_at, type, values, id, attempts + 1)

    def take(self, broker: str, sends: list[Send]) -> None:
        """Note what clients are told, in the order in which it is said."""
        for send in sends:
            super().take(broker, [send])
            if isinstance(send.message, Confirm) and send.to.kind == "client":
                self.confirmed.add(send.message.id)
            elif isinstance(send.message, Acknowledge) and send.to.kind == "client":
                self._check(send.message.id)

    def _check(self, id: EventId) -> None:
        if id not in self.open:
            return
        *_, wanted = self.open.pop(id)
        self.acknowledged += 1
        for one in wanted & self.live.keys():
            assert id in self.received[self.live[one][0]], f"{id} was acknowledged, and did not reach {one}"

    def lose(self, broker: str) -> None:
        """Clients of a broker that dies are gone."""
        super().lose(broker)
        self.live = {id: live for id, live in self.live.items() if id.origin != broker}

    def change(self, rng: random.Random) -> None:
        """Have clients subscribe and publish while the tree changes; then all has time to arrive."""
        self.wait(GRACE)
        changing = Changing(self, rng)

        def something() -> None:
            for _ in range(rng.randint(0, 4)):
                broker = rng.choice(sorted(self.routers))
                type = rng.choice(list(TYPES))
                if rng.random() < 0.5:
                    self.join(f"{broker}/{rng.randrange(3)}", type, some_condition(rng))
                else:
                    self.offer(broker, type, {"x": rng.randint(0, 14)})
                self.run(rng.randrange(15))

        changing.meanwhile = something
        for _ in range(5):
            something()
            changing.anything()
            self.again()
            self.run(rng.randrange(30))
        self.run()
        self.wait(GRACE)
        self.again()
        self.run()


@pytest.mark.parametrize(("strategy", "told"), each_once(list(STRATEGIES), list(TOLD)))
@given(seed=st.integers(0, 2**32), most_members=st.sampled_from((1, 3)))
@settings(max_examples=10)
def test_what_was_acknowledged_has_reached_everyone(
    strategy: str, told: str, seed: int, most_members: int
) -> None:
    rng = random.Random(seed)
    make = partial(EventRouter, incarnation=1, types=TYPES, strategy=strategy, grace=GRACE, **TOLD[told])
    network = Publishers(Tree.random(rng, rng.randint(2, 7), most_members), seed=seed, make=make)
    network.change(rng)
    assert not network.open, "not acknowledged at last"
    assert network.live.keys() <= network.confirmed, "not confirmed at last"
    assert all(router.uncertain == 0 for router in network.routers.values())


def test_who_joins_hears_its_parent_before_it_acknowledges() -> None:
    make = partial(EventRouter, incarnation=1, types=TYPES, strategy="profile_forwarding", grace=GRACE)
    tree = Tree({"a": "", "b": "a"})
    tree.parents["b"] = ""
    network = Publishers(tree, make=make)
    network.wait(GRACE)
    network.join("a/1", "alarm", "x > 0")
    network.run()
    assert network.confirmed
    tree.parents["b"] = "a"
    network.move("a", tree.place("a"))
    network.move("b", tree.place("b"))
    network.offer("b", "alarm", {"x": 1})
    assert network.open, "acknowledged by one that has not heard what others want"
    network.run()
    network.again()
    network.run()
    assert not network.open


def test_a_lost_link_that_is_back_is_in_suspense_no_longer() -> None:
    make = partial(EventRouter, incarnation=1, types=TYPES, strategy="hybrid", grace=GRACE)
    tree = Tree({"a": "", "b": "a"})
    network = Publishers(tree, make=make)
    network.wait(GRACE)
    network.join("b/1", "alarm", "x > 0")
    network.run()
    tree.parents["b"] = ""
    network.settle()
    network.offer("a", "alarm", {"x": 1})
    network.run()
    assert network.open
    assert network.routers["a"].uncertain == 1
    tree.parents["b"] = "a"
    network.settle()
    network.again()
    network.run()
    assert not network.open
    assert network.routers["a"].uncertain == 0


def test_what_does_not_come_back_is_forgotten_after_the_grace() -> None:
    make = partial(EventRouter, incarnation=1, types=TYPES, strategy="hybrid", grace=GRACE)
    tree = Tree({"a": "", "b": "a", "c": "b"})
    network = Publishers(tree, make=make)
    network.wait(GRACE)
    network.join("c/1", "alarm", "x > 0")
    network.run()
    network.lose("c")
    del tree.parents["c"], tree.members["c"]
    network.settle()
    network.offer("a", "alarm", {"x": 1})
    network.run()
    assert network.open
    network.wait(GRACE)
    network.again()
    network.run()
    assert not network.open
    assert not any(network.tables().values())
