"""What brokers tell each other of subscriptions when they are linked, in messages of a bounded length."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import msgspec
import pytest

from experiments.simulation.event_router import EventRouter
from lengths import long_but
from overlay.networks import TYPES, Network, Tree
from rtfilter.overlay.broker_names import Send, SubscriptionId, member
from rtfilter.overlay.routing_messages import Replica, RouterEntry, RouterSubscription, RouterSubscriptions

LONGEST, MANY = 20_000, 12


class Counting(Network):
    """Notes what tells all subscriptions."""

    sent: tuple[RouterSubscriptions | Replica, ...] = ()

    def take(self, broker: str, sends: list[Send]) -> None:
        """Note it."""
        self.sent = (
            *self.sent,
            *(one.message for one in sends if isinstance(one.message, RouterSubscriptions | Replica)),
        )
        super().take(broker, sends)


@pytest.mark.parametrize("length", long_but([0, 1000, 6000], [0, 1000]))
def test_many_or_long_conditions_go_in_messages_that_a_neighbour_takes(length: int) -> None:
    """Else it would end the link, which would be made anew, and tell them again, for ever."""
    make = partial(EventRouter, incarnation=1, types=TYPES, strategy="profile_forwarding", longest=LONGEST)
    tree = Tree({"a": "", "b": "a"}, {"a": ("a1", "a2")})
    network = Counting(tree, make=make)
    for number in range(MANY):
        excluded = ", ".join(str(one) for one in range(10_000, 10_000 + length // 3))
        network.subscribe("a1/s", "trade", f"x > {number}" + (f" AND y IN ({excluded})" if length else ""))
    network.run()
    network.sent = ()
    network.lose("b")
    network.lose("a2")
    network.move("a1", tree.place("a1")._replace(links={}, members=frozenset({"a1"})))
    for broker in ("a2", "b"):
        network.routers[broker] = make(broker)
    network.settle()
    assert len(network.tables()["b"]) == MANY
    assert len(network.routers["a2"].replica) == MANY
    assert all(len(msgspec.msgpack.encode(one)) <= LONGEST for one in network.sent)
    for name, kind in (("subscriptions", RouterSubscriptions), ("entries", Replica)):
        told = [one for one in network.sent if isinstance(one, kind) and getattr(one, name)]
        assert length == 0 or len(told) > 1
        assert (told[0].first, told[-1].last) == (True, True)
        assert all(later.first == former.last for former, later in pairwise(told))


def test_a_replica_has_what_its_last_parts_have_and_nothing_of_before() -> None:
    router = EventRouter("a2", 1, TYPES)
    router.place(Tree({"a": ""}, {"a": ("a1", "a2")}).place("a2"), 0.0)
    one, two, three = (
        RouterEntry(RouterSubscription(SubscriptionId("a1", 1, number), "trade", "x > 0"), member("a1"))
        for number in (1, 2, 3)
    )
    for part in (Replica((one,)), Replica((two,), last=False), Replica((three,), first=False)):
        router.receive(part, member("a1"), 0.0)
    assert list(router.replica.values()) == [two, three]
    router.receive(Replica((one,)), member("a3"), 0.0)  # not the designated broker
    assert list(router.replica.values()) == [two, three]
