"""A silent neighbour's members are probed, the highest first, until one answers as designated."""

import pytest

from rtfilter.overlay.membership import Contact, MembershipSettings
from rtfilter.overlay.membership.contacts import Neighbour
from rtfilter.overlay.membership.recovery import LinkHeartbeat, Links, Probe, Probed, Search, Unlinked

SETTINGS = MembershipSettings()
ME = Contact("me", "m")


def cluster(name, *digits, designated=None, term=1):
    contacts = tuple(Contact(f"{name}{digit}", name) for digit in digits)
    return Neighbour(name, Contact(f"{name}{designated or digits[-1]}", name), contacts, term)


def probed(search, seconds, answer=lambda name: None):
    """Whom a search asks, tick by tick; `answer` gives what a member says."""
    asked = []
    now = 0.0
    while now < seconds and not search.failed:
        for to, message in search.tick(now):
            assert isinstance(message, Probe)
            asked.append(to.name)
            if answer(to.name) == "not yet":
                search.not_yet(Contact(to.name, search.cluster), now)
        now += 0.25
    return asked


def test_each_is_asked_three_times_the_highest_first_and_then_the_link_is_lost():
    search = Search("a", cluster("a", 1, 2, 3).members, SETTINGS, ME)
    assert probed(search, 10) == ["a3"] * 3 + ["a2"] * 3 + ["a1"] * 3
    assert search.failed


def test_who_is_not_yet_designated_is_asked_again_after_the_others():
    """The cluster lives, so it is about to elect; that it never does is a loss, too."""
    search = Search("a", cluster("a", 1, 2, 3).members, SETTINGS, ME)
    asked = probed(search, 40, lambda name: "not yet" if name == "a2" else None)
    assert asked == (["a3"] * 3 + ["a2"] + ["a1"] * 3) * 4
    assert search.failed


def linked():
    """A root with the child "a"."""
    links = Links(ME, SETTINGS)
    links.be_root(1)
    links.add_child(cluster("a", 1, 2), 0.0)
    return links


def mine():
    return Neighbour("m", ME, (ME,), 1)


def beat(neighbour, parent="m", children=(), path=("m", "a")):
    return LinkHeartbeat(neighbour, parent, children, path)


def test_a_link_with_heartbeats_stays():
    links = linked()
    for second in range(20):
        assert all(not isinstance(m, Probe) for _, m in links.tick(mine(), float(second)))
        links.heartbeat(beat(cluster("a", 1, 2)), second)
    assert links.linked("a")


def test_whoever_answers_as_designated_takes_the_place_behind_the_link():
    links = linked()
    links.tick(mine(), 3.0)
    links.probed(Probed(Contact("a1", "a"), cluster("a", 1, designated=1, term=2)), 3.1)
    (child,) = links.standing.children
    assert child.designated.name == "a1"
    assert all(to.name == "a1" for to, _ in links.tick(mine(), 3.2))


def test_a_member_that_is_not_designated_does_not_take_the_place():
    links = linked()
    links.tick(mine(), 3.0)
    links.probed(Probed(Contact("a1", "a"), None), 3.1)
    assert links.standing.children[0].designated.name == "a2"


def test_a_heartbeat_of_a_new_designated_broker_needs_no_probe():
    links = linked()
    links.heartbeat(beat(cluster("a", 1, 2, designated=1, term=2)), 1.0)
    assert links.standing.children[0].designated.name == "a1"


def test_a_heartbeat_of_a_lesser_term_is_of_one_that_is_no_longer_designated():
    links = linked()
    links.heartbeat(beat(cluster("a", 1, 2, designated=1, term=2)), 1.0)
    assert links.heartbeat(beat(cluster("a", 1, 2, term=1)), 1.1) == []
    assert links.standing.children[0].designated.name == "a1"


def test_a_cluster_that_is_silent_for_good_is_dropped():
    links = linked()
    now = 0.0
    while links.linked("a"):
        links.tick(mine(), now)
        now += 0.25
    assert 3 + 2 * 3 * SETTINGS.answer <= now <= 3 + 2 * 3 * SETTINGS.answer + 1


@pytest.mark.parametrize("parent", ["", "x"])
def test_a_child_with_another_parent_is_dropped(parent):
    links = linked()
    assert links.heartbeat(beat(cluster("a", 1, 2), parent=parent), 1.0) == []
    assert not links.linked("a")


def test_who_thinks_that_it_is_linked_is_told_that_it_is_not():
    links = linked()
    for message in (beat(cluster("b", 1)), beat(cluster("b", 1), parent="x", children=("m",))):
        ((to, answer),) = links.heartbeat(message, 1.0)
        assert (to.name, answer) == ("b1", Unlinked("m"))
    assert links.heartbeat(beat(cluster("b", 1), parent="x"), 1.0) == []


def test_a_path_that_leads_through_itself_is_a_circle():
    links = Links(ME, SETTINGS)
    links.add_parent(cluster("p", 1), ("r", "p"), 0.0)
    assert links.standing.path == ("r", "p", "m")
    below = beat(cluster("p", 1), parent="m", children=("m",), path=("r", "m", "p"))
    ((_, answer),) = links.heartbeat(below, 1.0)
    assert answer == Unlinked("m")
    assert links.standing.parent is None


def test_a_parent_without_a_way_to_the_root_is_no_way_to_the_root():
    links = Links(ME, SETTINGS)
    links.add_parent(cluster("p", 1), ("r", "p"), 0.0)
    links.heartbeat(beat(cluster("p", 1), parent="", children=("m",), path=()), 1.0)
    assert links.standing.path == ()
    assert links.standing.parent is not None
    links.heartbeat(beat(cluster("p", 1), parent="r", children=("m",), path=("r", "p")), 2.0)
    assert links.standing.path == ("r", "p", "m")


def test_a_heartbeat_of_a_term_that_no_elections_lead_to_is_refused():
    links = linked()
    with pytest.raises(
        ValueError,
        match=r"the term 9223372036854775807 of a is refused: no elections .* from 1",
    ):
        links.heartbeat(beat(cluster("a", 1, 2, term=2**63 - 1)), 1.0)
    links.heartbeat(beat(cluster("a", 1, 2)), 2.5)
    assert all(not isinstance(m, Probe) for _, m in links.tick(mine(), 4.0))
