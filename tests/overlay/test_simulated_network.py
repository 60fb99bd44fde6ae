"""The simulated network by itself, with machines that only pass on what they get."""

from random import Random

import pytest

from experiments.simulation.network import Fault, Losses, Network, SimulatedCosts, What, drawn
from experiments.simulation.topology import random_tree
from rtfilter.overlay.broker_names import CLUSTER, BrokerMessage, ConnectionKind, Send, client, link

TREE = random_tree(Random(1), 5, brokers=3)


class Ping(BrokerMessage):
    number: int = 0


class Relay:
    """Tells a client of each message, and passes it on to all links and to its cluster."""

    def __init__(self, name, incarnation):
        self.place, self.incarnation = TREE.place(name), incarnation
        self.ticks = []

    def receive(self, message, source, now):
        sends = [Send(client(str(self.incarnation)), message)]
        sends += [Send(link(other), message) for other in self.place.links if link(other) != source]
        if self.place.leads and source.kind is not ConnectionKind.MEMBER:
            sends.append(Send(CLUSTER, message))
        return sends

    def tick(self, now):
        self.ticks.append(now)
        return []


def ping(number=0):
    return lambda machine, now: machine.receive(Ping(number), client("me"), now)


def heard(network):
    return [(each.broker, each.message.number, each.at) for each in network.deliveries]


def test_a_message_takes_the_time_of_its_sender_and_of_its_link():
    network = Network(TREE, Relay, costs=SimulatedCosts(message=0.25, delivery=0.5, lan=0.125))
    network.ask(1.0, "c0b0", ping())
    network.run()
    at = {broker: at for broker, _, at in heard(network)}
    assert at["c0b0"] == 1.5
    links = list(TREE.place("c0b0").links)
    for order, other in enumerate(links, 1):
        assert at[f"{other}b0"] == pytest.approx(1.5 + 0.25 * order + TREE.latencies["c0", other] + 0.5)
    assert at["c0b1"] == at["c0b2"] == 1.5 + 0.25 * (len(links) + 1) + 0.125 + 0.5
    assert len(network.deliveries) == len(TREE.brokers)


def test_a_broker_does_one_thing_after_the_other():
    network = Network(TREE, Relay, costs=SimulatedCosts(delivery=1.0))
    for number in range(3):
        network.ask(2.0, "c1b1", ping(number))
    network.run()
    assert [each for each in heard(network) if each[0] == "c1b1"] == [
        ("c1b1", 0, 3.0), ("c1b1", 1, 4.0), ("c1b1", 2, 5.0)]  # fmt: skip


def test_messages_are_counted_by_kind_and_line_and_a_multicast_once():
    network = Network(TREE, Relay)
    network.ask(0.0, "c0b0", ping())
    network.run()
    assert network.sent() == network.sent("Ping") == 4 + 5
    assert network.sent("Pong") == 0
    for cluster, parent in TREE.parents.items():
        assert network.messages["Ping", f"{parent}b0", f"{cluster}b0"] == 1
    assert all(network.messages["Ping", f"{cluster}b0", cluster] == 1 for cluster in TREE.clusters)


@pytest.mark.parametrize("jitter", [0.0, 0.5])
def test_messages_of_a_link_stay_in_order(jitter):
    network = Network(TREE, Relay, jitter=jitter, seed=3)
    for number in range(30):
        network.ask(0.01 * number, "c0b0", ping(number))
    network.run()
    for broker in TREE.brokers:
        assert [number for name, number, _ in heard(network) if name == broker] == list(range(30))


def test_each_receiver_of_a_multicast_can_lose_it():
    network = Network(TREE, Relay, losses=Losses(multicast=0.5), seed=1)
    for number in range(200):
        network.ask(number, "c0b0", ping(number))
    network.run()
    got = {broker: sum(name == broker for name, *_ in heard(network)) for broker in TREE.brokers}
    for broker, count in got.items():
        assert count == 200 if broker.endswith("b0") else 60 < count < 140
    assert network.lost["Ping"] == 15 * 200 - sum(got.values())
    network = Network(TREE, Relay, losses=Losses(unicast=1.0))
    network.ask(0.0, "c0b0", ping())
    network.run()
    assert {name for name, *_ in heard(network)} == {"c0b0", "c0b1", "c0b2"}


def test_a_crash_loses_what_was_not_read_and_what_was_under_way():
    network = Network(TREE, Relay, costs=SimulatedCosts(delivery=1.0))
    for number in range(5):
        network.ask(0.0, "c1b1", ping(number))
    network.suffer(
        [Fault(2.5, What.CRASH, frozenset({"c1b1"})), Fault(4.0, What.RETURN, frozenset({"c1b1"}))]
    )
    network.ask(3.0, "c1b1", ping(8))
    network.ask(5.0, "c1b1", ping(9))
    network.run()
    assert [(each.client, each.message.number) for each in network.deliveries] == [
        ("1", 0),
        ("1", 1),
        ("2", 9),
    ]
    network = Network(TREE, Relay)
    network.ask(0.0, "c0b0", ping())
    network.suffer([Fault(0.0001, What.CRASH, frozenset({"c0b1"}))])  # sooner than the LAN is
    network.run()
    assert {"c0b0", "c0b1", "c0b2"} & {name for name, *_ in heard(network)} == {"c0b0", "c0b2"}
    assert network.lost["Ping"] == 1


def test_clusters_that_are_cut_off_hear_each_other_alone():
    cut = frozenset(["c0", "c1"])
    network = Network(TREE, Relay)
    network.suffer([Fault(1.0, What.CUT, cut), Fault(2.0, What.HEAL, cut)])
    for number in (0, 1, 2):
        network.ask(number + 0.5, "c0b0", ping(number))
    network.run()
    assert TREE.parents["c1"] == "c0"
    got = [{name for name, number, _ in heard(network) if number == wanted} for wanted in (0, 1, 2)]
    assert len(got[0]) == len(got[2]) == 15
    assert got[1] == {"c0b0", "c0b1", "c0b2", "c1b0", "c1b1", "c1b2"}


def test_machines_tick_while_they_live():
    network = Network(TREE, Relay, interval=1.0, seed=5)
    first = network.machine("c2b0")
    network.suffer(
        [Fault(5.0, What.CRASH, frozenset({"c2b0"})), Fault(7.0, What.RETURN, frozenset({"c2b0"}))]
    )
    network.run(until=10.0)
    assert len(first.ticks) == 5
    assert first.ticks[-1] < 5 < 7 < network.machine("c2b0").ticks[0]
    assert len(network.machine("c2b0").ticks) in (2, 3)
    assert network.machine("c2b0").incarnation == 2


def test_the_same_seed_plays_the_same_run():
    def play(seed):
        schedule = drawn(Random(seed), TREE, 8, 1, 20, longest=3)
        network = Network(TREE, Relay, losses=Losses(0.2, 0.1), jitter=0.01, seed=seed, interval=0.5)
        network.suffer(schedule)
        for number in range(40):
            network.ask(0.5 * number, TREE.brokers[number % 15], ping(number))
        network.run(until=30)
        return schedule, heard(network), network.messages, network.lost

    assert play(1) == play(1)
    assert play(1) != play(2)


def test_a_drawn_schedule_ends_all_that_it_begins():
    for seed in range(20):
        schedule = drawn(Random(seed), TREE, 12, 5, 10, longest=4, spare=1)
        assert [fault.at for fault in schedule] == sorted(fault.at for fault in schedule)
        begun = {fault.names: fault.at for fault in schedule if fault.what in (What.CRASH, What.CUT)}
        ended = {fault.names: fault.at for fault in schedule if fault.what in (What.RETURN, What.HEAL)}
        assert len(begun) == len(ended) == 12
        assert all(5 <= at <= 10 and at <= ended[names] <= at + 4 for names, at in begun.items())
        crashed = {name for fault in schedule if fault.what is What.CRASH for name in fault.names}
        assert all(set(own) - crashed for own in TREE.members.values())
