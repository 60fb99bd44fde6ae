"""Cluster multicasts arrive whole, once and in order, whatever the network loses, doubles and reorders."""

from collections import defaultdict
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from rtfilter.overlay.broker_names import BrokerMessage
from rtfilter.overlay.membership import Contact, MembershipSettings
from rtfilter.overlay.membership.contacts import Audience
from rtfilter.overlay.membership.election import Member
from rtfilter.overlay.membership.multicast import STREAMS, Lacking, Missed, Multicast, Numbered

SETTINGS = MembershipSettings()


class Note(BrokerMessage, frozen=True):
    text: str


def note(number):
    return Note(f"{number}")


class Cluster:
    """Senders and receivers by name, in simulated time; `faults` decides on each message."""

    def __init__(self, names, faults, settings=SETTINGS):
        self.machines = {name: Multicast(Contact(name, "c"), settings) for name in names}
        self.faults = faults
        self.got = defaultdict(list)
        self.now = 0.0
        self.queue, self.count = [], count()
        for name in names:
            self.tell(name)

    def tell(self, name, incarnation=1):
        """All hear in a heartbeat which number it has sent last."""
        member = Member(Contact(name, "c"), incarnation, self.machines[name].number)
        for other, machine in self.machines.items():
            if other != name:
                self.do(other, machine.note_number(member, self.now))

    def send(self, name, message):
        self.do(name, self.machines[name].send(message))

    def do(self, name, dispatches):
        for to, message in dispatches:
            if to.audience is Audience.ROUTER:
                self.got[name, to.name].append(message)
                continue
            targets = [to.name] if to.audience is Audience.BROKER else set(self.machines) - {name}
            for target in sorted(targets):
                for delay in self.faults():
                    heappush(self.queue, (self.now + delay, next(self.count), target, message))

    def run(self, seconds):
        until = self.now + seconds
        while self.now < until:
            due = min(machine.due for machine in self.machines.values())
            self.now = max(self.now, min(until, due, self.queue[0][0] if self.queue else until))
            while self.queue and self.queue[0][0] <= self.now:
                _, _, target, message = heappop(self.queue)
                self.do(target, self.machines[target].receive(message, self.now))
            for name, machine in self.machines.items():
                self.do(name, machine.tick(self.now))


def random_faults(chance, loss, doubled, slowest):
    def faults():
        copies = 1 + (chance.random() < doubled)
        return [chance.uniform(0, slowest) for _ in range(copies) if chance.random() >= loss]

    return faults


@seed(1)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.1, 2.0]),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.01, 1.0])), max_size=40),
)
def test_all_arrive_once_and_in_order(number, loss, doubled, slowest, schedule):
    cluster = Cluster("abc", random_faults(Random(number), loss, doubled, slowest))
    sent = defaultdict(list)
    for sender, pause in schedule:
        message = note(len(sent[sender]))
        sent[sender].append(message)
        cluster.send(sender, message)
        cluster.run(pause)
    for _ in range(60):  # a heartbeat a second
        for name in "abc":
            cluster.tell(name)
        cluster.run(1.0)
    for sender in "abc":
        for receiver in set("abc") - {sender}:
            assert cluster.got[receiver, sender] == sent[sender]


def test_nothing_is_asked_for_where_nothing_is_lost():
    asked = []
    cluster = Cluster("ab", lambda: [0.01])
    for number in range(10):
        cluster.send("a", note(number))
        cluster.run(0.1)
    cluster.tell("a")
    asked += [m for _, _, _, m in cluster.queue if isinstance(m, Lacking)]
    cluster.run(5)
    assert cluster.machines["b"].due == float("inf")
    assert asked == []


def test_the_last_one_is_missed_only_by_the_heartbeat():
    losses = iter([[], *[[0.0]] * 10])
    cluster = Cluster("ab", lambda: next(losses))
    cluster.send("a", note(1))
    cluster.run(5)
    assert cluster.got["b", "a"] == []
    cluster.tell("a")
    cluster.run(1)
    assert cluster.got["b", "a"] == [note(1)]


def test_what_is_no_longer_kept_is_said_and_the_rest_goes_on():
    lost = [[]] * 10 + [[0.0]] * 100
    faults = iter(lost)
    cluster = Cluster("ab", lambda: next(faults), MembershipSettings(repairs=4))
    for number in range(1, 11):
        cluster.send("a", note(number))
    cluster.send("a", note(11))
    cluster.run(2)
    assert cluster.got["b", "a"] == [Missed("a"), *(note(number) for number in range(8, 12))]


def test_a_member_that_comes_later_is_told_that_it_has_missed_something():
    receiver = Multicast(Contact("b", "c"), SETTINGS)
    dispatches = receiver.receive(Numbered("a", 1, 5, note(5)), 0.0)
    assert [(to.name, m) for to, m in dispatches] == [("a", Missed("a")), ("a", note(5))]
    assert receiver.receive(Numbered("a", 1, 4, note(4)), 0.1) == []


def test_a_sender_that_starts_again_is_heard_from_its_first_on():
    receiver = Multicast(Contact("b", "c"), SETTINGS)
    receiver.note_number(Member(Contact("a", "c"), 1, 0), 0.0)
    receiver.receive(Numbered("a", 1, 1, note(1)), 0.0)
    assert receiver.receive(Numbered("a", 2, 2, note(2)), 0.1) == []  # its first is to come
    assert [m for _, m in receiver.receive(Numbered("a", 2, 1, note(1)), 0.2)] == [note(1), note(2)]
    assert receiver.receive(Numbered("a", 1, 2, note(2)), 0.3) == []  # of its former life


def test_what_a_dead_member_cannot_repair_is_given_up():
    receiver = Multicast(Contact("b", "c"), SETTINGS)
    receiver.note_number(Member(Contact("a", "c"), 1, 0), 0.0)
    receiver.receive(Numbered("a", 1, 2, note(2)), 0.0)
    assert [m for _, m in receiver.left("a")] == [Missed("a"), note(2)]
    assert receiver.due == float("inf")
    assert receiver.left("a") == []


def test_a_receiver_that_lacks_much_holds_little():
    receiver = Multicast(Contact("b", "c"), MembershipSettings(repairs=10))
    receiver.note_number(Member(Contact("a", "c"), 1, 0), 0.0)
    for number in range(2, 100):
        receiver.receive(Numbered("a", 1, number, note(number)), 0.0)
    assert len(receiver._streams["a"].held) == 10
    received = receiver.receive(Numbered("a", 1, 1, note(1)), 0.0)
    assert [m for _, m in received] == [note(number) for number in range(1, 12)]


@pytest.mark.parametrize("incarnation", [0, 2])
def test_only_what_this_incarnation_has_sent_is_repaired(incarnation):
    sender = Multicast(Contact("a", "c"), SETTINGS)
    sender.send(note(1))
    assert sender.receive(Lacking(Contact("b", "c"), incarnation, 1, 1), 0.0) == []
    assert len(sender.receive(Lacking(Contact("b", "c"), 1, 1, 1), 0.0)) == 1


def test_so_many_senders_are_known_and_no_more():
    machine = Multicast(Contact("a", "c"), SETTINGS)
    heard = []
    for number in range(1, STREAMS + 50):
        machine.receive(Numbered(f"b{number}", 1, 1, note(number)), 0.0)
        heard += machine.receive(Numbered("b", 1, number, note(number)), 0.0)
    assert len(machine._streams) <= STREAMS
    assert [one.message for one in heard] == [note(number) for number in range(1, STREAMS + 50)]
