"""The talk of one cluster that joins, message by message."""

import pytest

from rtfilter.overlay.membership import Contact, Membership
from rtfilter.overlay.membership.contacts import RENDEZVOUS_POINT, Neighbour
from rtfilter.overlay.membership.joining import JoinAnswer, JoinRequest, Ping, Pong
from rtfilter.overlay.membership.recovery import LinkHeartbeat, Probe, Probed, Unlinked
from rtfilter.overlay.membership.rendezvous_point import AskRoot, ClaimRoot, Root, RootIs

ME = Contact("c1", "c")


def cluster(name):
    contact = Contact(f"{name}1", name)
    return Neighbour(name, contact, (contact,), 1)


def said(dispatches):
    """What was sent about the join, to whom."""
    kinds = (AskRoot, ClaimRoot, Probe, Ping, JoinRequest, Unlinked)
    return [(to.name, message) for to, message in dispatches if isinstance(message, kinds)]


class Joiner:
    """A cluster of one, which leads at 4 seconds and has asked who is the root."""

    def __init__(self):
        self.broker = Membership(ME)
        self.now = 4.0
        self.broker.tick(0.0)
        self.broker.tick(self.now)
        assert said(self.broker.tick(self.now)) == [("", AskRoot(ME))]

    def hear(self, message, source="r1", after=0.0):
        self.now += after
        return said(self.broker.receive(message, source, self.now))

    def look(self):
        """Go on until the root is asked for its children, and give the ping."""
        root = Root(cluster("r"), 1)
        assert self.hear(RootIs(root), RENDEZVOUS_POINT) == [("r1", Probe(ME))]
        ((to, ping),) = self.hear(Probed(Contact("r1", "r"), cluster("r")))
        assert (to, type(ping)) == ("r1", Ping)
        return ping

    def request(self):
        """Go on until the root is asked to be the parent, and give the request."""
        ((to, request),) = self.hear(Pong(Contact("r1", "r"), self.look().walk, ()))
        assert (to, type(request)) == ("r1", JoinRequest)
        return request

    @property
    def parent(self):
        return self.broker.place.parent


def accepted(request):
    return JoinAnswer(request.attempt, parent=cluster("r"), path=("r",))


def heartbeat():
    return LinkHeartbeat(cluster("r"), "", ("c",), ("r",))


def test_a_cluster_that_is_accepted_has_a_parent_and_a_path():
    joiner = Joiner()
    assert joiner.hear(accepted(joiner.request())) == []
    assert joiner.parent == "r"
    assert joiner.broker.place.links == {"r": "r1"}


def test_an_acceptance_that_its_heartbeat_overtakes_counts():
    joiner = Joiner()
    request = joiner.request()
    assert joiner.hear(heartbeat()) == []
    joiner.hear(accepted(request))
    assert joiner.parent == "r"


def test_an_acceptance_that_comes_too_late_is_no_link_and_the_other_is_told():
    joiner = Joiner()
    request = joiner.request()
    joiner.now += 1.0
    joiner.broker.tick(joiner.now)
    joiner.hear(accepted(request))
    assert joiner.parent == ""
    assert joiner.hear(heartbeat()) == [("r1", Unlinked("c"))]


def test_who_was_linked_before_is_asked_again_at_once():
    joiner = Joiner()
    request = joiner.request()
    ((to, other),) = joiner.hear(JoinAnswer(request.attempt, "linked before", again=True))
    assert to == "r1"
    assert other.attempt > request.attempt
    joiner.hear(accepted(request))
    assert joiner.parent == ""  # that was an answer to the first
    joiner.hear(accepted(other))
    assert joiner.parent == "r"


def test_the_nearer_child_is_looked_at_and_one_that_does_not_answer_is_not():
    joiner = Joiner()
    walk = joiner.look().walk
    children = tuple(Contact(f"{name}1", name) for name in "xyc")  # itself is no candidate
    pings = joiner.hear(Pong(Contact("r1", "r"), walk, children), after=0.2)
    assert [to for to, _ in pings] == ["x1", "y1"]
    assert joiner.hear(Pong(Contact("y1", "y"), walk, ()), "y1", after=0.1) == []
    joiner.now += 0.4  # x does not answer
    ((to, request),) = said(joiner.broker.tick(joiner.now))
    assert (to, type(request)) == ("y1", JoinRequest)


def test_an_answer_to_an_earlier_walk_is_no_distance():
    joiner = Joiner()
    walk = joiner.look().walk
    assert joiner.hear(Pong(Contact("r1", "r"), walk - 1, ())) == []
    assert len(joiner.hear(Pong(Contact("r1", "r"), walk, ()))) == 1


def test_a_root_that_does_not_answer_is_claimed_after_a_while():
    joiner = Joiner()
    root = Root(cluster("r"), 7)
    joiner.hear(RootIs(root), RENDEZVOUS_POINT)
    talk = []
    while not talk or not isinstance(talk[-1][1], ClaimRoot):
        joiner.now += 0.05
        talk = said(joiner.broker.tick(joiner.now))
        assert joiner.now < 4 + 3 * 0.5 + 1 + 0.1  # three probes, and a random wait
    mine = Neighbour("c", ME, (ME,), 1)
    assert talk == [("", ClaimRoot(mine, "r", 7))]
    joiner.hear(RootIs(Root(mine, 8)), RENDEZVOUS_POINT)
    assert joiner.broker.place.root


def test_a_claim_that_comes_second_leads_to_the_new_root():
    joiner = Joiner()
    joiner.hear(RootIs(None), RENDEZVOUS_POINT)
    assert joiner.hear(RootIs(Root(cluster("s"), 1)), RENDEZVOUS_POINT) == [("s1", Probe(ME))]


@pytest.mark.parametrize("silence", [1, 5])
def test_the_rendezvous_point_is_asked_until_it_answers(silence):
    joiner = Joiner()
    asked = []
    for _ in range(silence * 4):
        joiner.now += 0.25
        asked += said(joiner.broker.tick(joiner.now))
    assert asked == [("", AskRoot(ME))] * silence


@pytest.fixture
def left():
    """A cluster whose parent, of two members, is silent, and so is the rendezvous point."""
    joiner = Joiner()
    members = Contact("r1", "r"), Contact("r2", "r")
    parent = Neighbour("r", members[0], members, 1)
    joiner.hear(JoinAnswer(joiner.request().attempt, parent=parent, path=("r",)))
    while joiner.parent:
        joiner.now += 0.25
        joiner.broker.tick(joiner.now)
    return joiner


def until(joiner, kind):
    """All that is said until a message of a kind."""
    talk = []
    while not talk or not isinstance(talk[-1][1], kind):
        joiner.now += 0.25
        talk += said(joiner.broker.tick(joiner.now))
        assert joiner.now < 60
    return talk


def test_without_the_rendezvous_point_the_walk_begins_at_the_former_parent(left):
    assert until(left, Probe) == [("", AskRoot(ME))] * 3 + [("r2", Probe(ME))]
    contact = Contact("r2", "r")
    now = Neighbour("r", contact, (contact,), 2)
    ((to, ping),) = left.hear(Probed(contact, now), "r2")
    assert (to, type(ping)) == ("r2", Ping)
    ((to, request),) = left.hear(Pong(contact, ping.walk, ()), "r2")
    assert (to, type(request)) == ("r2", JoinRequest)
    left.hear(JoinAnswer(request.attempt, parent=now, path=("r",)), "r2")
    assert left.parent == "r"


def test_the_rendezvous_point_is_asked_again_where_the_former_parent_is_dead(left):
    until(left, Probe)
    talk = until(left, AskRoot)
    assert {type(message) for _, message in talk} == {Probe, AskRoot}  # and it claims nothing
    assert left.hear(RootIs(Root(cluster("s"), 2)), RENDEZVOUS_POINT) == [("s1", Probe(ME))]
