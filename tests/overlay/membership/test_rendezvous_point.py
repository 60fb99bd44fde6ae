"""The rendezvous point: one root, whoever claims, in whatever order."""

from itertools import permutations

import msgspec
import pytest

from rtfilter.overlay.membership import Contact, MembershipSettings, RendezvousPoint
from rtfilter.overlay.membership.contacts import Neighbour
from rtfilter.overlay.membership.rendezvous_point import AskRoot, ClaimRoot, RenewRoot, Root, RootIs

SETTINGS = MembershipSettings()


def cluster(name, *members):
    contacts = tuple(Contact(member, name) for member in (members or (f"{name}1",)))
    return Neighbour(name, contacts[-1], contacts, term=1)


def told(dispatches):
    """The root that a broker is told, and which broker that is."""
    (dispatch,) = dispatches
    assert isinstance(dispatch.message, RootIs)
    return dispatch.to.name, dispatch.message.root


def test_the_first_cluster_ever_becomes_the_root():
    point = RendezvousPoint(SETTINGS)
    assert told(point.receive(AskRoot(Contact("a1", "a")), "a1", 0.0)) == ("a1", None)
    first = Root(cluster("a"), 1)
    assert told(point.receive(ClaimRoot(cluster("a"), "", 0), "a1", 0.1)) == ("a1", first)
    assert told(point.receive(ClaimRoot(cluster("b"), "", 0), "b1", 0.1)) == ("b1", first)


def test_of_claims_at_once_the_first_wins_and_all_are_told_the_same():
    failed = Root(cluster("r"), 3)
    for order in permutations("abcd"):
        point = RendezvousPoint(SETTINGS, failed)
        answers = {told(point.receive(ClaimRoot(cluster(c), "r", 3), f"{c}1", 9.0))[1] for c in order}
        assert answers == {Root(cluster(order[0]), 4)} == {point.root}, order


def test_a_claim_against_a_root_of_the_past_is_not_granted():
    point = RendezvousPoint(SETTINGS, Root(cluster("r"), 3))
    for failed, term in (("r", 2), ("q", 3), ("", 0)):
        point.receive(ClaimRoot(cluster("a"), failed, term), "a1", 9.0)
        assert point.root == Root(cluster("r"), 3)


def test_a_claim_that_is_repeated_is_granted_once():
    """The answer was lost: the winner asks again, and is told that it is the root."""
    point = RendezvousPoint(SETTINGS, Root(cluster("r"), 3))
    claim = ClaimRoot(cluster("a"), "r", 3)
    assert point.receive(claim, "a1", 9.0) == point.receive(claim, "a1", 10.0)
    assert point.root == Root(cluster("a"), 4)


def test_a_root_that_renews_is_not_taken_over():
    point = RendezvousPoint(SETTINGS, Root(cluster("r"), 3))
    assert point.receive(RenewRoot(Root(cluster("r"), 3)), "r1", 8.0) == []
    claim = ClaimRoot(cluster("a"), "r", 3)
    assert told(point.receive(claim, "a1", 8.0 + 2.9))[1].cluster.cluster == "r"
    assert told(point.receive(claim, "a1", 8.0 + 3.0))[1].cluster.cluster == "a"


def test_a_root_that_was_taken_over_is_told_so():
    point = RendezvousPoint(SETTINGS, Root(cluster("a"), 4))
    to, root = told(point.receive(RenewRoot(Root(cluster("r"), 3)), "r1", 8.0))
    assert (to, root) == ("r1", Root(cluster("a"), 4))


def test_a_renewal_brings_the_members_up_to_date():
    point = RendezvousPoint(SETTINGS, Root(cluster("r"), 3))
    now = Root(cluster("r", "r1", "r2"), 3)
    point.receive(RenewRoot(now), "r2", 1.0)
    assert point.root == now


def test_a_point_that_lost_its_root_learns_it_from_a_renewal():
    point = RendezvousPoint(SETTINGS)
    point.receive(RenewRoot(Root(cluster("r"), 3)), "r1", 1.0)
    assert point.root == Root(cluster("r"), 3)


def test_the_root_goes_over_a_wire_and_back_and_survives_a_restart():
    root = Root(cluster("r", "r1", "r2"), 3)
    kept = msgspec.json.encode(root)
    point = RendezvousPoint(SETTINGS, msgspec.json.decode(kept, type=Root), now=50.0)
    assert point.root == root
    # it may have renewed meanwhile: it gets the time of one silence
    claim = ClaimRoot(cluster("a"), "r", 3)
    assert told(point.receive(claim, "a1", 52.9))[1] == root
    assert told(point.receive(claim, "a1", 53.0))[1].cluster.cluster == "a"


@pytest.mark.parametrize("known", [None, Root(cluster("r"), 3)], ids=["none", "one"])
def test_a_term_that_no_take_overs_lead_to_is_refused(known):
    """Taken, it would leave no numbers for further roots."""
    point = RendezvousPoint(SETTINGS, known)
    for message in (RenewRoot(Root(cluster("r"), 2**63 - 1)), ClaimRoot(cluster("a"), "r", 2**63 - 1)):
        with pytest.raises(ValueError, match="no elections can have reached it"):
            point.receive(message, "r1", 9.0)
        assert point.root == known
