"""Elections: the highest live member after a crash, one designated broker after any faults."""

from random import Random

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from lengths import long_but
from overlay.membership.simulated import Network
from rtfilter.overlay.membership import Contact, Membership, MembershipSettings
from rtfilter.overlay.membership.contacts import AHEAD, LEAP, TO_CLUSTER, Standing, to_broker
from rtfilter.overlay.membership.election import Election, Heartbeat, Member, Registration
from rtfilter.overlay.membership.multicast import Numbered

SETTINGS = MembershipSettings()
MEMBERS = ["a1", "a2", "a3", "a4"]


def designated(network):
    """Whom each live broker follows."""
    return {name: place.designated for name, place in network.places_now().items()}


def follow(network, name):
    return designated(network) == dict.fromkeys(network.brokers, name)


def election(name, *others, term=0, incarnation=1):
    """A member that has begun at time 0, and knows of others, but not of a designated broker."""
    machine = Election(Contact(name, "a"), SETTINGS, Random(1), incarnation, term)
    machine.tick(0.0)
    for other in others:
        machine.receive(Registration(Member(Contact(other, "a"), 1)), 0.0)
    return machine


def heartbeat(name, term, *members):
    return Heartbeat(Contact(name, "a"), term, tuple(Member(Contact(m, "a"), 1) for m in members), Standing())


def test_who_is_alone_leads_at_once_after_its_time_out():
    network = Network(["a1"])
    network.run(2.9)
    assert not network.places_now()["a1"].leads
    network.run(0.4)
    assert network.places_now()["a1"].leads
    network.run(1)
    assert network.problems() == []


def test_the_highest_of_those_that_start_together_leads():
    network = Network(MEMBERS)
    network.run(4)
    assert follow(network, "a4")


def test_nobody_claims_under_a_term_that_is_not_kept():
    """Who could not keep it, and was started again, would claim the same once more."""
    machine = election("a2", "a1", term=4)
    machine.stored_term = 4
    for now in (4.0, 4.1, 9.0):
        assert not [one for one in machine.tick(now) if isinstance(one.message, Heartbeat)]
        assert (machine.leads, machine.view.term, machine.wanted) == (False, 4, 5)
    machine.stored_term = 5
    claims = [one.message for one in machine.tick(9.1) if isinstance(one.message, Heartbeat)]
    assert [(one.term, one.contact.name) for one in claims] == [(5, "a2")]


def test_who_cannot_keep_a_term_follows_another_one():
    machine = election("a2", "a1", term=4)
    machine.stored_term = 4
    machine.tick(4.0)
    machine.receive(heartbeat("a1", 5, "a1", "a2"), 4.5)
    machine.stored_term = 5
    machine.tick(4.6)
    assert machine.view.claim == (5, "a1")


@pytest.mark.parametrize("number", long_but(range(10), [0, 1]))
def test_after_each_crash_the_highest_live_member_leads(number):
    """Up to the last one; whoever comes back joins as a member, however high."""
    network = Network(MEMBERS, number)
    network.run(6)
    for dead, next_one in (("a4", "a3"), ("a3", "a2"), ("a2", "a1")):
        network.crash(dead)
        network.run(4)
        assert follow(network, next_one)
    for back in ("a4", "a2", "a3"):
        network.start(back)
        network.run(1)
        assert follow(network, "a1")
    network.crash("a1")
    network.run(4)
    assert follow(network, "a4")
    network.run(6)
    assert network.problems() == []


@pytest.mark.parametrize("number", long_but(range(10), [0, 1]))
def test_where_the_next_ones_are_dead_too_the_one_after_them_leads(number):
    network = Network(MEMBERS, number)
    network.run(6)
    for dead in ("a4", "a3", "a2"):
        network.crash(dead)
    network.run(3.25 + 3 + 0.2)
    assert follow(network, "a1")


def test_a_designated_broker_that_was_only_slow_steps_down():
    """It hears nothing and is not heard for a while; then there are two, and the later term stays."""
    network = Network(MEMBERS)
    network.run(6)
    network.reaches = lambda one, other: (one == "a4") == (other == "a4")
    network.run(6)
    assert designated(network) == {"a1": "a3", "a2": "a3", "a3": "a3", "a4": "a4"}
    network.reaches = lambda one, other: True
    network.run(1.5)
    assert follow(network, "a3")
    network.run(1.5)
    assert network.places_now()["a1"].members == set(MEMBERS)


def test_a_designated_broker_that_restarts_at_once_is_not_waited_for():
    """What it led is lost with its memory; the others have the replica, so one of them goes on."""
    network = Network(MEMBERS)
    network.run(6)
    network.crash("a4")
    network.start("a4")
    network.run(0.7)
    assert follow(network, "a3")


def test_a_member_that_restarts_leaves_before_it_is_a_member_again():
    """So routing takes its subscriptions for gone."""
    network = Network(["a1", "a2"])
    network.run(6)
    network.crash("a1")
    network.start("a1")
    network.run(2)
    members = [sorted(place.members) for at, place in network.places["a2"] if at > 6]
    assert members == [["a2"], ["a1", "a2"]]


def test_the_greater_term_wins_and_of_equal_ones_the_higher_name():
    machine = election("a2", "a1", "a3")
    for sender, term, followed in (("a1", 1, "a1"), ("a3", 1, "a3"), ("a1", 1, "a3"), ("a1", 2, "a1")):
        machine.receive(heartbeat(sender, term, "a1", "a2", "a3"), 0.0)
        assert machine.view.designated == followed


@pytest.mark.parametrize(("rival", "term", "stays"), [("a1", 1, True), ("a3", 1, False), ("a1", 2, False)])
def test_of_two_that_lead_one_steps_down(rival, term, stays):
    machine = election("a2")
    machine.tick(4.0)
    assert machine.leads
    assert machine.view.term == 1
    answers = machine.receive(heartbeat(rival, term, rival), 4.0)
    assert machine.leads == stays
    ((to, message),) = answers
    assert to == to_broker(Contact(rival, "a"))
    assert isinstance(message, Heartbeat if stays else Registration)


def test_two_views_become_one():
    """A member that only the one that steps down has known is known to the one that stays."""
    machine = election("a3", "a1")
    machine.tick(4.0)
    machine.receive(heartbeat("a2", 1, "a2", "a4"), 4.0)
    assert [member.contact.name for member in machine.view.members] == ["a1", "a2", "a3", "a4"]


def test_what_a_new_one_knows_is_from_the_last_heartbeat():
    machine = election("a2")
    machine.receive(heartbeat("a3", 5, "a1", "a2", "a3", "a4"), 0.0)
    machine.tick(3.5)
    assert not machine.leads  # a4 is first
    machine.tick(4.5)
    assert machine.leads
    assert machine.view.term == 6
    assert [member.contact.name for member in machine.view.members] == ["a1", "a2"]


def test_a_term_kept_over_a_restart_is_not_claimed_again():
    machine = election("a1", term=7, incarnation=2)
    to, message = machine.tick(4.0)[-1]
    assert to == TO_CLUSTER
    assert message.term == 8


def test_members_that_are_silent_are_dropped():
    network = Network(MEMBERS)
    network.run(6)
    network.crash("a1")
    network.run(5.2)
    assert network.places_now()["a4"].members == {"a2", "a3", "a4"}
    network.run(0.2)
    assert network.places_now()["a2"].members == {"a2", "a3", "a4"}


FAULT = st.one_of(
    st.tuples(st.just("crash"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("start"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("cut"), st.sets(st.sampled_from(MEMBERS))),
    st.tuples(st.just("loss"), st.sampled_from([0.0, 0.3, 0.9])),
    st.tuples(st.just("slow"), st.sampled_from([0.2, 1.0, 4.0])),
)


@seed(2)
@given(st.integers(0, 2**32), st.lists(st.tuples(FAULT, st.floats(0, 6)), max_size=8))
def test_after_any_faults_one_member_leads(number, faults):
    """Crashes, returns, cuts, losses, and heartbeats that are late by seconds."""
    network = Network(MEMBERS, number)
    for (what, which), pause in faults:
        if what == "crash":
            network.crash(which)
        elif what == "start" and which not in network.brokers:
            network.start(which)
        elif what == "cut":
            network.reaches = lambda one, other, side=which: (one in side) == (other in side)
        elif what == "loss":
            network.loss = which
        elif what == "slow":
            network.slowest = which
        network.run(pause)
    network.reaches = lambda one, other: True
    network.loss, network.slowest = 0.0, 0.2
    network.run(4)  # the slowest message has arrived
    network.run(12)
    assert [problem for problem in network.problems() if problem.startswith("a")] == []
    before = designated(network)
    network.run(5)
    assert designated(network) == before


@pytest.mark.parametrize("sender", ["a2", "a9", "a1"], ids=["another", "a stranger", "a former self"])
def test_a_term_that_no_elections_lead_to_is_refused(sender):
    """Taken, it would leave no numbers for further claims."""
    machine = election("a1", "a2", term=4)
    before = machine.view
    for term in (2**63 - 1, 4 + LEAP + 1):
        with pytest.raises(
            ValueError,
            match=f"the term {term} of {sender} is refused: no elections .* from 4",
        ):
            machine.receive(heartbeat(sender, term, "a1", sender), 1.0)
    assert machine.view == before
    machine.receive(heartbeat("a2", 4 + LEAP, "a1", "a2"), 1.0)
    assert machine.view.claim == (4 + LEAP, "a2")


@pytest.mark.parametrize("kind", ["heartbeat", "registration", "multicast"])
def test_an_incarnation_ahead_of_the_clock_shuts_no_member_out(kind):
    """Whoever has the key could say it of another one, which would be taken for a former one of itself."""
    machine = Membership(Contact("a1", "a"), SETTINGS, incarnation=1000)
    machine.tick(0.0)
    machine.receive(Registration(Member(Contact("a2", "a"), 1000)), "a2", 1.0)

    def said(ahead):
        member = Member(Contact("a2", "a"), 1000 + AHEAD + ahead)
        return {
            "heartbeat": Heartbeat(Contact("a3", "a"), 1, (member,), Standing()),
            "registration": Registration(member),
            "multicast": Numbered("a2", member.incarnation, 1, None),
        }[kind]

    with pytest.raises(ValueError, match="of a2 is refused: it is a day ahead of the clock here"):
        machine.receive(said(11), "a3", 11.0)
    assert machine.election.view.member("a2").incarnation == 1000
    machine.receive(said(10), "a3", 11.0)  # since it began, it may have been started so often
