"""A network of memberships comes to one designated broker per cluster, one tree, and one root registered.

Within `BOUND` heartbeats after the last fault, for networks of up to six clusters of up to three brokers
whose live brokers reach each other and the rendezvous point; from then on, no place changes.
"""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from lengths import long_but
from overlay.membership.simulated import Network
from rtfilter.overlay.membership import Contact, MembershipSettings
from rtfilter.overlay.membership.contacts import Neighbour
from rtfilter.overlay.membership.joining import JoinRequest
from rtfilter.overlay.membership.recovery import LinkHeartbeat, Probed
from rtfilter.overlay.membership.rendezvous_point import Root

BROKERS = ["a1", "a2", "a3", "b1", "b2", "c1", "d1", "d2", "e1", "f1"]
BOUND = 60


def assert_converged(network):
    """It has, and stays as it is."""
    assert network.problems() == []
    places = network.places_now()
    network.run(10)
    assert network.places_now() == places


def assert_links_are_told_apart(network):
    """No broker's place turns a link from parent to child, or back, without a place between that lacks it."""
    for places in network.places.values():
        for (_, before), (_, after) in pairwise(places):
            for cluster in set(before.links) & set(after.links):
                assert (before.parent == cluster) == (after.parent == cluster)


@pytest.mark.parametrize("number", long_but(range(5), [0]))
def test_a_new_network_becomes_one_tree(number):
    network = Network(BROKERS, number)
    network.run(10)
    assert_converged(network)


@pytest.mark.parametrize("children", [1, 2, 8])
def test_no_cluster_takes_more_children_than_it_may(children):
    """With one child each, the tree is a chain: all but the last one are full."""
    network = Network([f"{c}1" for c in "abcdefghij"], 3, MembershipSettings(children=children))
    network.run(BOUND)
    assert_converged(network)


@pytest.mark.parametrize("number", long_but(range(5), [0]))
def test_a_new_broker_and_a_new_cluster_enter_a_running_network(number):
    network = Network(["a1", "b1", "c1"], number)
    network.run(12)
    for name in ("b2", "z1", "z2"):
        network.incarnations[name] = network.terms[name] = 0
        network.places[name] = []
        network.start(name)
    network.run(12)
    assert network.places_now()["z1"].designated == "z2"
    assert network.places_now()["b2"].designated == "b1"
    assert_converged(network)


@pytest.mark.parametrize("number", long_but(range(5), [0]))
def test_the_root_cluster_fails_and_one_of_its_children_takes_over(number):
    network = Network(BROKERS, number)
    network.run(15)
    root, term = network.point.root.cluster.cluster, network.point.root.term
    below = {p.cluster for p in network.places_now().values() if p.parent == root}
    for name in BROKERS:
        if name.startswith(root):
            network.crash(name)
    network.run(BOUND)
    assert_converged(network)
    assert network.point.root.term == term + 1
    assert network.point.root.cluster.cluster in below


@pytest.mark.parametrize("number", long_but(range(5), [0]))
def test_the_designated_broker_of_the_root_fails_and_the_cluster_stays_the_root(number):
    """Its neighbours only replace the broker behind the link; no route changes."""
    network = Network(["a1", "a2", "b1", "c1"], number)
    network.point.root = None
    for name in ("b1", "c1"):
        network.crash(name)
    network.run(8)
    for name in ("b1", "c1"):
        network.start(name)
    network.run(12)
    links = {name: set(place.links) for name, place in network.places_now().items() if place.leads}
    network.crash("a2")
    began = network.now
    network.run(BOUND)
    assert_converged(network)
    places = network.places_now()
    assert places["a1"].root
    assert places["a1"].leads
    assert set(places["a1"].links) == links["a2"]
    for name in ("b1", "c1"):
        assert all(set(place.links) == links[name] for at, place in network.places[name] if at > began)


@pytest.mark.parametrize("number", long_but(range(5), [0]))
def test_a_cluster_between_root_and_leaves_fails_and_what_is_below_it_moves(number):
    network = Network([f"{c}1" for c in "abcdefg"], number, MembershipSettings(children=2))
    network.run(20)
    inner = [p for p in network.places_now().values() if p.parent and len(p.links) > 1]
    network.crash(inner[0].broker)
    network.run(BOUND)
    assert_converged(network)


def planted(parents, distances):
    """A network with this tree, of brokers alone; distances are delays, 0.09 where none is given."""
    network = Network([])
    network.cluster_of = lambda name: name
    network.delay = lambda one, other: distances.get(frozenset((one, other)), 0.09)
    for name, parent in parents.items():
        network.incarnations[name] = network.terms[name] = 0
        network.places[name] = []
        for other, broker in network.brokers.items():
            broker.accepts = other == parent
        network.start(name)
        network.run(12)
        assert network.places_now()[name].parent == parent
    for broker in network.brokers.values():
        broker.accepts = True
    return network


def rejoin_of_the_paper(cut):
    """The paper's tree; D4 is nearest to D3, D1, D5, D2 and REB, in this order; `cut` is what happens.

    Gives the network, and whom D4 has asked.
    """
    parents = {"REB": "", "D2": "REB", "D3": "REB", "D1": "D2", "D5": "D2", "D4": "D3"}
    delays = {"D3": 0.01, "D1": 0.03, "D5": 0.05, "D2": 0.07}
    network = planted(parents, {frozenset(("D4", name)): delay for name, delay in delays.items()})
    network.brokers["D1"].accepts = False
    began = network.now
    cut(network)
    network.run(20)
    requests = [
        to for at, name, to, message in network.sent if at > began and isinstance(message, JoinRequest)
    ]
    return network, requests


def test_the_papers_example_of_a_rejoin():
    """The link between D3 and D4 fails; D4 goes by D2 to D1, which refuses, and to D5, which accepts."""

    def cut(network):
        network.reaches = lambda one, other: {one, other} != {"D3", "D4"}

    network, requests = rejoin_of_the_paper(cut)
    assert requests == ["D1", "D5"]
    places = network.places_now()
    assert places["D4"].parent == "D5"
    assert dict(places["D5"].links) == {"D2": "D2", "D4": "D4"}
    assert dict(places["D3"].links) == {"REB": "REB"}


def test_a_parent_that_fails_is_replaced_in_the_same_way():
    network, requests = rejoin_of_the_paper(lambda network: network.crash("D3"))
    assert requests == ["D1", "D5"]
    assert network.problems() == []


def test_two_that_are_cut_off_do_not_join_below_each_other():
    """A and B lose the root R; each is nearest to what is below the other, which has not heard of it yet.

    Both are accepted. The circle is found as soon as paths go round it.
    """
    near = {frozenset("AY"): 0.01, frozenset("BX"): 0.01, frozenset("AB"): 0.05}
    network = planted({"R": "", "A": "R", "B": "R", "X": "A", "Y": "B"}, near)
    lost = {("R", "A"), ("R", "B")}
    network.reaches = lambda one, other: (one, other) not in lost
    while any(network.brokers[name].place.parent for name in "AB"):
        network.run(0.05)
        lost |= {(one, other) for one, other in ("AX", "BY") if not network.brokers[one].place.parent}
    silent = lost  # but only to heartbeats, now
    lost = set()
    network.swallows = lambda one, other, message: (
        (one, other) in silent and isinstance(message, LinkHeartbeat)
    )
    until = network.now + 2.9
    while network.now < until and not all(network.brokers[name].place.parent for name in "AB"):
        network.run(0.05)
    places = network.places_now()
    assert [places[name].parent for name in "AYBX"] == ["Y", "B", "X", "A"]  # as if all were well
    silent = set()
    network.run(BOUND)
    assert_converged(network)


def test_a_cluster_does_not_take_one_that_it_is_below():
    network = planted({"R": "", "A": "R", "B": "A"}, {})
    request = JoinRequest(Neighbour("A", Contact("A", "A"), (Contact("A", "A"),)), 1)
    ((_, answer),) = network.brokers["B"].receive(request, "A", network.now)
    assert answer.reason == "below the one that asks"


def test_a_cluster_without_a_way_to_the_root_takes_nobody():
    network = planted({"R": "", "A": "R", "B": "A"}, {})
    network.crash("R")
    network.reaches = lambda one, other: other
    network.run(8)
    request = JoinRequest(Neighbour("C", Contact("C", "C"), (Contact("C", "C"),)), 1)
    for name in "AB":
        ((_, answer),) = network.brokers[name].receive(request, "C", network.now)
        assert answer.reason == "cut off"


def test_the_tree_lives_without_the_rendezvous_point():
    """What needs no new parent is repaired; who does waits."""
    network = Network(["a1", "a2", "b1", "b2", "c1"], 1)
    network.run(15)
    places = network.places_now()
    network.reaches = lambda one, other: one and other
    network.crash("b2")
    network.run(20)
    others = {name: place for name, place in network.places_now().items() if place.cluster != "b"}
    assert {n: (p.parent, set(p.links)) for n, p in others.items()} == {
        n: (places[n].parent, set(places[n].links)) for n in others
    }
    assert network.places_now()["b1"].links.keys() == places["b2"].links.keys()
    network.crash("c1")
    network.start("c1")
    network.run(30)
    assert network.places_now()["c1"].parent == ""
    network.reaches = lambda one, other: True
    network.run(BOUND)
    assert_converged(network)


@pytest.mark.parametrize("number", long_but(range(5), [0]))
def test_a_network_that_was_cut_in_two_has_one_root_again(number):
    """Meanwhile the half with the rendezvous point has one tree, and a new root if it lacked the old one."""
    network = Network(BROKERS, number)
    network.run(15)
    chance = Random(number)
    side = {name: chance.randrange(2) for name in [*"abcdef", ""]}
    network.reaches = lambda one, other: side[one[:1]] == side[other[:1]]
    network.run(BOUND)
    reached = {name: place for name, place in network.places_now().items() if side[name[0]] == side[""]}
    assert len({place.cluster for place in reached.values() if place.root}) == bool(reached)
    assert all(place.root or place.parent for place in reached.values())
    network.reaches = lambda one, other: True
    network.run(BOUND)
    assert_converged(network)
    assert_links_are_told_apart(network)


def test_a_link_that_only_one_side_took_for_lost_is_made_anew_on_both():
    """The child hears no sign of its parent, is heard, and joins it again: the same parent, by a new link."""
    network = Network(["a1", "b1"])
    network.run(12)
    root, child = ("a1", "b1") if network.places_now()["a1"].root else ("b1", "a1")
    began = network.now
    broker = network.brokers[child]
    network.swallows = lambda one, other, message: (
        other == child
        and (isinstance(message, LinkHeartbeat) or (isinstance(message, Probed) and broker.place.parent))
    )
    while broker.place.parent:
        network.run(0.1)
    while not broker.place.parent:
        network.run(0.1)
    network.swallows = lambda one, other, message: False
    network.run(BOUND)
    assert_converged(network)
    above = [set(place.links) for at, place in network.places[root] if at > began]
    below = [place.parent for at, place in network.places[child] if at > began]
    assert set() in above
    assert "" in below


def test_a_cluster_that_nobody_takes_asks_again_more_rarely():
    """A root that refuses all: those cut off stay so, and say so by their place."""
    network = Network(["a1", "b1"])
    network.run(4.5)
    network.run(12)
    root, other = ("a1", "b1") if network.places_now()["a1"].root else ("b1", "a1")
    network.crash(other)
    network.brokers[root].accepts = False
    network.run(12)
    network.start(other)
    began = network.now
    network.run(60)
    place = network.places_now()[other]
    assert (place.parent, place.root, place.leads) == ("", False, True)
    times = [at for at, _, _, message in network.sent if at > began and isinstance(message, JoinRequest)]
    assert 5 < len(times) < 20
    network.brokers[root].accepts = True
    network.run(12)
    assert_converged(network)


def test_a_tie_of_the_rendezvous_point_to_a_database_is_enough():
    """It starts again with nothing but the root that was kept: nothing changes."""
    network = Network(BROKERS)
    network.run(15)
    places = network.places_now()
    kept = network.point.root
    network.point = type(network.point)(network.settings, kept, network.now)
    network.run(20)
    assert network.places_now() == places


def test_a_cluster_that_is_registered_as_the_root_without_knowing_becomes_it():
    """The answer to its claim was lost with its designated broker; meanwhile it is below the old root."""
    network = planted({"R": "", "A": "R", "B": "A"}, {})
    contact = Contact("B", "B", "at B")
    network.point.root = Root(Neighbour("B", contact, (contact,)), 2)
    network.run(BOUND)
    assert_converged(network)
    assert network.places_now()["B"].root


@pytest.mark.parametrize("keep", [True, False])
def test_all_brokers_start_again_at_once(keep):
    """As after a power cut: with the terms that they kept, or without."""
    network = Network(BROKERS, 5)
    network.run(15)
    for name in BROKERS:
        network.crash(name)
        if not keep:
            network.terms[name] = 0
    for name in BROKERS:
        network.start(name)
    network.run(BOUND)
    assert_converged(network)


def faults(network, chance):
    """A few faults at random, some of them at once."""
    for _ in range(chance.randrange(1, 8)):
        kind = chance.random()
        dead = sorted(set(BROKERS) - set(network.brokers))
        if kind < 0.4 and network.brokers:
            network.crash(chance.choice(sorted(network.brokers)))
        elif kind < 0.7 and dead:
            network.start(chance.choice(dead))
        elif kind < 0.9:
            whole = chance.random() < 0.5  # clusters stay whole
            groups = {name: chance.randrange(2) for name in [*BROKERS, *"abcdef", ""]}
            side = {name: groups[name[:1] if whole else name] for name in [*BROKERS, ""]}
            network.reaches = lambda one, other, side=side: side[one] == side[other]
        else:
            network.reaches = lambda one, other: True
        network.run(chance.uniform(0, 8))


def converges(number, loss):
    """One random history, after which all is well within the bound; gives the heartbeats that it took."""
    chance = Random(number)
    limits = MembershipSettings(children=chance.choice([1, 2, 3, 8]))
    network = Network(BROKERS, number, limits, loss=loss, doubled=loss)
    network.run(chance.uniform(0, 12))
    faults(network, chance)
    network.reaches = lambda one, other: True
    network.loss = network.doubled = 0.0
    took = 0
    while took < BOUND and network.problems():
        network.run(1)
        took += 1
    network.run(BOUND - took)
    assert_converged(network)
    assert_links_are_told_apart(network)
    return took


@seed(3)
@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.3]))
def test_after_any_faults_there_is_one_tree(number, loss):
    """Crashes, returns, partitions within and between clusters, losses and duplicates."""
    converges(number, loss)
