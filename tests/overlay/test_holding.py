"""Whom an event waits for that is not acknowledged, as its broker tells."""

from __future__ import annotations

from functools import partial

import pytest

from overlay.networks import TYPES, Network, Tree
from rtfilter.overlay.broker_names import EventId
from rtfilter.overlay.router import Router
from rtfilter.overlay.routing_messages import Event

GRACE = 10.0


def made(tree: Tree) -> Network:
    """A network that is sure of all that it knows."""
    make = partial(Router, incarnation=1, types=TYPES, strategy="profile_forwarding", grace=GRACE)
    network = Network(tree, make=make)
    network.wait(GRACE)
    return network


def offered(network: Network, broker: str) -> Event:
    """An event that nobody has heard yet."""
    id = EventId("p", 1, 1)
    network.publish(broker, "trade", {"x": 2.0}, id)
    return Event(id, "trade", {"x": 2.0})


def holds(network: Network, broker: str, event: Event, since: float) -> list[tuple[str, float]]:
    """What the broker tells of it."""
    found = network.routers[broker].wait_reasons(event, since, network.now)
    return [(hold.what, pytest.approx(hold.seconds, abs=0.1)) for hold in found]


def test_the_cluster_is_named_that_has_not_acknowledged() -> None:
    network = made(Tree({"a": "", "b": "a", "c": "a"}, {"b": ("b1", "b2")}))
    network.subscribe("b1/s", "trade", "x > 1")
    network.run()
    since = network.now
    event = offered(network, "a")
    network.now += 3
    assert holds(network, "a", event, since) == [
        ("cluster b (broker b1), which has not acknowledged it", 3.0)
    ]
    network.run()
    assert holds(network, "a", event, since) == []


def test_the_cluster_is_named_that_was_lost_and_since_when() -> None:
    network = made(Tree({"a": "", "b": "a", "c": "a"}))
    network.subscribe("b/s", "trade", "x > 1")
    network.subscribe("c/s", "trade", "x > 100")
    network.run()
    for lost in "bc":
        place = network.routers["a"].at
        links = {cluster: broker for cluster, broker in place.links.items() if cluster != lost}
        network.move("a", place._replace(links=links))
        network.now += 2
    event = offered(network, "a")
    assert holds(network, "a", event, network.now) == [
        ("cluster b, whose connection was lost", 4.0),
        ("cluster c, whose connection was lost", 2.0),
    ]
    other = Event(EventId("p", 1, 2), "trade", {"x": 0.0})
    network.publish("a", "trade", other.values, other.id)
    assert holds(network, "a", other, network.now) == []  # neither wanted that


def test_a_broker_says_that_it_has_just_taken_over_or_that_nobody_stands_for_its_cluster() -> None:
    network = made(Tree({"a": "", "b": "a"}, {"b": ("b1", "b2")}))
    alone = network.routers["b2"].at._replace(designated="")
    network.move("b2", alone)
    event = offered(network, "b2")
    assert holds(network, "b2", event, network.now - 1) == [("a broker to stand for cluster b", 1.0)]
    network.move("b2", alone._replace(designated="b2", members=frozenset({"b2"}), links={"a": "a"}))
    network.now += 1
    later = Event(EventId("p", 1, 2), "trade", {"x": 2.0})
    network.publish("b2", "trade", later.values, later.id)
    assert holds(network, "b2", later, network.now) == [
        ("cluster a, which has not said yet what it wants", 0.0),
        ("b2, which has just come to stand for its cluster, or for the root", 1.0),
    ]
