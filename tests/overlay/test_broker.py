"""Brokers put together of routing and membership: who is meant, and what a lost connection does."""

from itertools import count

import pytest
from whole_network import Network

from experiments.simulation.event_messages import Event, EventId, Notify
from rtfilter.overlay.membership.contacts import Audience, Dispatch
from rtfilter.overlay.membership.multicast import GivenUp, Missed
from rtfilter.overlay.routing_messages import RouterSubscriptions

NUMBERS = count(1)


def settled(*names, strategy="hybrid", first="a1", **router):
    """A network that has found together; the cluster of the first is the root."""
    network = Network(first, strategy=strategy, **router)
    network.run(6)
    for name in names:
        network.start(name)
    network.run(20)
    return network


def test_brokers_with_filter_nodes_and_with_counting_route_alike():
    alerts = []
    for matchers in ({}, {"trade": "filter-nodes"}, {"trade": "counting"}):
        network = settled("a2", "b1", "c1", matchers=matchers)
        for broker, low in {"a1": 1, "a2": 2, "b1": 3, "c1": 5}.items():
            network.subscribe(broker, f"at {broker}", f"x > {low}")
        network.run(2)
        alerts.append([publish(network, broker, x) for broker in ("a2", "b1") for x in (1.5, 4, 9)])
    assert alerts[1:] == alerts[:1] * 2
    assert any(alerts[0])


def publish(network, broker, x):
    network.publish(broker, x, EventId("p", 1, next(NUMBERS)))
    network.run(1)
    return network.alerts()


STRATEGIES = ["hybrid", "hierarchical", "profile_forwarding", "event_forwarding"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_alerts_come_from_broker_to_broker_once(strategy):
    network = settled("a2", "a3", "b1", "b2", "c1", strategy=strategy)
    wants = {"a1": 1, "a2": 2, "b1": 3, "b2": 4, "c1": 5}
    for broker, low in wants.items():
        network.subscribe(broker, f"at {broker}", f"x > {low}")
    network.run(2)
    for broker in network.brokers:
        for x in (0.5, 2.5, 9.0):
            found = publish(network, broker, x)
            assert found == {(f"at {name}", x): 1 for name, low in wants.items() if x > low}


def test_who_stands_for_a_cluster_is_found_again_after_its_crash():
    network = settled("b1", "b2", "c1")
    network.subscribe("b1", "ann", "x > 1")
    network.subscribe("c1", "bob", "x > 1")
    network.run(2)
    assert network.brokers["b1"].place.designated == "b2"
    network.crash("b2")
    network.run(20)
    assert network.brokers["b1"].place.leads
    assert network.brokers["a1"].place.links["b"] == "b1"
    assert publish(network, "c1", 3.0) == {("ann", 3.0): 1, ("bob", 3.0): 1}


def test_a_link_is_told_to_routing_only_while_there_is_a_connection():
    network = settled("b1")
    network.subscribe("b1", "ann", "x > 1")
    network.run(2)
    one, other = network.brokers["a1"], network.brokers["b1"]
    assert (one.place.links, other.place.links) == ({"b": "b1"}, {"a": "a1"})
    assert len(one.router.table) == 1
    network.disconnect("a1", "b1")
    assert (one.place.links, other.place.links) == ({}, {})
    assert other.place.parent == ""
    assert one.membership.place.links == {"b": "b1"}
    network.run(3)
    assert other.place.parent == "a"
    assert publish(network, "a1", 2.0) == {("ann", 2.0): 1}


def test_what_a_lost_connection_has_swallowed_is_said_again():
    network = settled("b1")
    network.run(2)
    network.subscribe("b1", "ann", "x > 1")
    network.disconnect("a1", "b1")  # with the subscription on its way
    network.run(3)
    assert publish(network, "a1", 2.0) == {("ann", 2.0): 1}


def test_two_that_are_cut_off_find_another_way():
    network = settled("b1", "c1", "d1")  # of which the root takes two
    (below,) = [name for name, one in network.brokers.items() if one.place.parent not in ("", "a")]
    network.subscribe(below, "ann", "x > 1")
    (above,) = network.brokers[below].place.links.values()
    network.separate(below, above)
    network.run(30)
    (now_above,) = network.brokers[below].place.links.values()
    assert now_above != above
    assert publish(network, above, 2.0) == {("ann", 2.0): 1}


def test_multicasts_that_are_lost_for_good_make_both_sides_say_all_again():
    network = settled("a2")
    leader = network.brokers["a1"]
    assert leader.place.leads
    out = leader.receive(GivenUp("a2", 1, 100), "a2", "a", network.now)
    assert [one.to.name for one in out if isinstance(one.message, RouterSubscriptions)] == ["a2"]


def test_multicasts_that_were_lost_are_repaired():
    network = settled("a2", "a3")
    network.subscribe("a1", "ann", "x > 1")
    network.run(2)
    network.lost.add("Numbered")
    network.publish("a2", 2.0, EventId("p", 1, next(NUMBERS)))
    network.run(0.1)
    network.lost.clear()
    network.run(5)
    assert network.alerts() == {("ann", 2.0): 1}


def test_a_broker_that_does_not_stand_for_its_cluster_is_not_heard():
    network = settled("b1", "b2")
    a1 = network.brokers["a1"]
    event = Event(EventId("p", 1, next(NUMBERS)), "trade", {"x": 1.0})
    network.subscribe("a1", "ann", "x > 0")
    assert a1.receive(event, "b1", "b", network.now) == []
    assert a1.receive(event, "c1", "c", network.now) == []
    assert len(a1.receive(event, "b2", "b", network.now)) == 1


@pytest.mark.parametrize(
    "message", [Notify(EventId("p", 1, 1), "trade", {}, ()), Missed("b1")], ids=["to a client", "inner"]
)
def test_what_no_broker_says_is_refused(message):
    network = settled("b1")
    with pytest.raises(ValueError, match=type(message).__name__):
        network.brokers["a1"].receive(message, "b1", "b", network.now)


def test_messages_for_a_cluster_go_to_the_address_of_who_stands_for_it():
    network = settled("b1", "b2")
    _, out = network.brokers["b2"].subscribe("ann", "trade", "x > 1", network.now)
    (up,) = [one for one in out if isinstance(one, Dispatch) and one.to.audience is Audience.BROKER]
    assert (up.to.name, up.to.address) == ("a1", "at a1")
    a1 = network.brokers["a1"]
    to = [one.to.name for one in a1.lost("b2", network.now) + a1.linked("b2", network.now)]
    assert to == ["b2"]


def test_a_new_link_asks_for_all_that_is_wanted():
    network = settled("b1")
    a1 = network.brokers["a1"]
    a1.lost("b1", network.now)
    (asked,) = a1.linked("b1", network.now)
    assert isinstance(asked.message, RouterSubscriptions)
    assert asked.message.ask


@pytest.mark.parametrize(
    "body",
    [GivenUp("a2", 1, 1), {"no": "message"}, Event(EventId("p", 1, 1), "tirade", {})],
    ids=["not of routers", "none", "type"],
)
def test_a_multicast_that_no_router_takes_ends_nothing(body, caplog):
    network = settled("a2")
    network.subscribe("a1", "ann", "x > 1")
    a1, a2 = network.brokers["a1"], network.brokers["a2"]
    (sent,) = a2.membership.multicast(body, network.now)
    a1.receive(sent.message, "a2", "A", network.now)
    assert "a multicast of a2 is dropped" in caplog.text
    assert publish(network, "a2", 3.0) == {("ann", 3.0): 1}
