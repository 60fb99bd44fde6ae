"""The clients of a broker, as a machine: what is kept, confirmed, delivered, and sent again."""

from itertools import count, pairwise

import msgspec
import pytest

from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_machine import Broker
from rtfilter.overlay.broker_names import EventId
from rtfilter.overlay.membership import Contact, Membership
from rtfilter.overlay.membership.contacts import Dispatch, to_broker
from rtfilter.overlay.router import Router
from rtfilter.overlay.routing_messages import Acknowledge
from rtfilter.overlay.running import publications
from rtfilter.overlay.running.broker_settings import BrokerSettings, settings
from rtfilter.overlay.running.client_messages import (
    Ask,
    AskSchema,
    ClientDeliver,
    ClientPublish,
    Drop,
    EventArrived,
    Goodbye,
    HasSchema,
    Have,
    Hint,
    Leave,
    Refused,
    Stored,
    Waits,
    Want,
    Wanted,
)
from rtfilter.overlay.running.clients import Clients
from rtfilter.overlay.running.publications import UNKEPT, ClientLimits, ClientWork
from rtfilter.store.broker_store import ClientSubscription, Gone, Publication, Settled

CLIENT_LIMITS = ClientLimits(
    again=1.0,
    longest=4.0,
    linger=10.0,
    unacknowledged=3,
    deliveries=2,
    clients=3,
    subscriptions=2,
    bytes=1000,
)
NUMBERS = count(1)


class Alone:
    """The clients of one broker that is the root, or of one that is cut off."""

    def __init__(self, cut_off=False):
        membership = Membership(Contact("a", "a", "here"))
        router = Router("a", 1, {"trade": Schema({"x": float})}, grace=5.0)
        self.clients = Clients(Broker(router, membership), 1000, CLIENT_LIMITS)
        self.now, self.kept, self.full = 0.0, [], False
        root = membership.place._replace(designated="a", root=not cut_off)
        router.place(root, self.now)
        self.pass_(CLIENT_LIMITS.linger + 5)  # it is not sure of anything in the beginning

    def pass_(self, seconds):
        """Let time pass; returns what clients were sent."""
        end, told = self.now + seconds, []
        while self.now < end:
            self.now += 0.5
            self.clients.broker.router.tick(self.now)
            told += self.do(self.clients.tick(self.now))
        return told

    def do(self, work):
        work = self.clients.passed(work, self.now)
        self.kept += work.changes
        told = [(one.to.name, one.message) for one in work.out]
        for asked in work.asked:
            if self.full:
                told += self.do(asked.refused(self.now))
            else:
                self.kept.append(asked.change)
                told += self.do(asked.kept(self.now))
        return told

    def says(self, name, message):
        return self.do(self.clients.hear(name, message, self.now))

    def joins(self, name, program=1):
        return self.do(self.clients.joined(name, program, self.now))

    def leaves(self, name):
        self.clients.left(name, self.now)


def event(x, of="bob"):
    return ClientPublish(EventId(f"client {of}", 1, next(NUMBERS)), "trade", {"x": x})


def deliver(publish, *keys):
    return ClientDeliver(publish.id, "trade", publish.values, keys)


ANY = Want("any", "trade", "x > 0")


@pytest.fixture
def site():
    """Ann wants all above 0."""
    site = Alone()
    site.joins("ann")
    assert ("ann", Wanted("any")) in site.says("ann", ANY)
    return site


def test_a_subscription_is_kept_and_confirmed(site):
    assert site.kept == [ClientSubscription("ann", "any", "trade", "x > 0")]
    assert site.says("ann", ANY) == [("ann", Wanted("any"))]
    assert len(site.kept) == 1


def test_a_subscription_takes_the_place_of_one_of_the_same_key(site):
    site.says("ann", Want("any", "trade", "x > 5"))
    assert ("ann", deliver(one := event(6.0), "any")) in site.says("bob", one)
    assert not [what for who, what in site.says("bob", event(1.0)) if who == "ann"]
    kept = {(one.client, one.key): one for one in site.kept if isinstance(one, ClientSubscription)}
    assert kept["ann", "any"].predicate == "x > 5"
    assert Gone("ann", "any") not in site.kept[site.kept.index(kept["ann", "any"]) :]


@pytest.mark.parametrize(
    ("want", "reason"),
    [
        (Want("k", "trade", "y > 0"), "y"),
        (Want("k", "trade", "x >"), "x >"),
        (Want("k", "tirade", "x > 0"), "tirade"),
        (Want("k", "trade", "x > 0 /*\0*/"), "character 0"),
    ],
    ids=["attribute", "syntax", "type", "not kept"],
)
def test_a_subscription_that_cannot_be_is_refused_with_the_reason(site, want, reason):
    ((who, refused),) = site.says("ann", want)
    assert (who, refused.key) == ("ann", "k")
    assert reason in refused.reason
    assert len(site.kept) == 1


def test_a_refused_change_leaves_the_former_subscription(site):
    site.says("ann", Want("any", "trade", "y > 0"))
    assert ("ann", deliver(one := event(6.0), "any")) in site.says("bob", one)


def test_an_event_is_stored_delivered_and_arrives_when_the_client_has_it(site):
    one = event(3.0)
    assert site.says("bob", one) == [("ann", deliver(one, "any")), ("bob", Stored(one.id))]
    assert isinstance(site.kept[-1], Publication)
    assert site.says("ann", Have(one.id)) == [("bob", EventArrived(one.id))]
    assert site.kept[-1] == Settled(*one.id)
    assert site.clients.publications.delays == [0.0]
    assert site.pass_(60) == []


def test_an_event_that_nobody_wants_arrives_at_once(site):
    one = event(-3.0)
    assert site.says("bob", one) == [("bob", EventArrived(one.id)), ("bob", Stored(one.id))]
    assert [type(kept) for kept in site.kept[1:]] == [Publication, Settled]


def test_an_event_that_cannot_be_read_is_refused(site):
    of_another = ClientPublish(EventId("client ann", 1, 1), "trade", {"x": 1.0})
    unknown = ClientPublish(EventId("client bob", 9, 1), "tirade", {})
    for wrong in (event(float("nan")), unknown, of_another):
        ((who, refused),) = site.says("bob", wrong)
        assert (who, type(refused), refused.id) == ("bob", Refused, wrong.id)
    assert len(site.kept) == 1


def test_what_is_not_acknowledged_is_sent_again_ever_more_seldom():
    site = Alone(cut_off=True)
    site.says("bob", event(1.0))
    begun = site.clients.publications.resent
    times = []
    for _ in range(40):
        site.pass_(0.5)
        if site.clients.publications.resent > begun:
            begun = site.clients.publications.resent
            times.append(site.now)
    assert [later - now for now, later in pairwise(times)] == [2.0, 4.0, 4.0, 4.0, 4.0]


def repeats(site, seconds):
    """When something is sent again, in seconds from now."""
    found, begun = [], site.now
    while site.now < begun + seconds:
        former = site.clients.publications.resent
        site.pass_(0.5)
        found += [site.now - begun] * (site.clients.publications.resent - former)
    return found


def test_what_is_sent_again_is_not_ever_more_seldom():
    site = Alone(cut_off=True)
    told = settings(BrokerSettings, name="a", key="k", data="d", schema="t", rendezvous="point:1", again=2)
    site.clients.publications.limits = told.client_limits
    site.says("bob", event(1.0))
    assert repeats(site, 50) == [2.0, 6.0, 14.0, 24.0, 34.0, 44.0]


@pytest.mark.parametrize(("rate", "pauses"), [(1.0, {4.0}), (0.5, {6.0}), (0.01, {30.0})])
def test_the_more_wait_the_more_seldom_each_is_sent_again(monkeypatch, rate, pauses):
    monkeypatch.setattr(publications, "REPEATS", rate)
    site = Alone(cut_off=True)
    for _ in range(3):
        site.says("bob", event(1.0))
    times = repeats(site, 200)[15:]
    assert {later - now for now, later in pairwise(times[::3])} == pauses


def test_what_is_sent_again_is_delivered_once(site):
    one = event(3.0)
    site.says("bob", one)
    assert site.pass_(8) == []  # ann has been sent it, and has not said that she has it
    assert site.clients.publications.resent > 2
    assert set(site.says("ann", Have(one.id))) == {("bob", EventArrived(one.id))}


def test_an_event_that_is_published_twice_is_stored_once(site):
    one = event(3.0)
    site.says("bob", one)
    assert site.says("bob", one) == [("bob", Stored(one.id))]
    assert sum(isinstance(kept, Publication) for kept in site.kept) == 1


def test_so_many_may_be_unacknowledged_and_no_more(site):
    found = [site.says("bob", event(3.0))[-1][1] for _ in range(4)]
    assert [type(one) for one in found] == [Stored, Stored, Stored, Refused]
    assert type(site.says("cyd", event(3.0, of="cyd"))[-1][1]) is Stored


def test_a_client_that_was_away_gets_what_it_missed(site):
    site.leaves("ann")
    one = event(3.0)
    assert site.says("bob", one) == [("bob", Stored(one.id))]
    site.pass_(3)
    assert site.joins("ann") == [("ann", deliver(one, "any"))]
    site.leaves("ann")
    assert site.joins("ann") == [("ann", deliver(one, "any"))]
    assert ("bob", EventArrived(one.id)) in site.says("ann", Have(one.id))
    site.leaves("ann")
    assert site.joins("ann") == []


def test_who_does_not_come_back_is_not_waited_for(site):
    one = event(3.0)
    site.says("bob", one)
    site.leaves("ann")
    told = site.pass_(CLIENT_LIMITS.linger + 5)
    assert ("bob", EventArrived(one.id)) in told
    assert Gone("ann", "any") in site.kept
    other = event(3.0)
    assert ("bob", EventArrived(other.id)) in site.says("bob", other)


def test_who_ends_is_not_waited_for(site):
    site.says("ann", Want("more", "trade", "x > 2"))
    one = event(3.0)
    site.says("bob", one)
    assert ("bob", EventArrived(one.id)) in site.says("ann", Leave())
    assert site.kept[-3:-1] == [Gone("ann", "any"), Gone("ann", "more")]
    site.leaves("ann")
    other = event(3.0)
    assert ("bob", EventArrived(other.id)) in site.says("bob", other)
    assert site.joins("ann") == []


def test_who_ends_while_its_subscription_is_being_kept_has_none_then(site):
    work = site.clients.hear("ann", Want("late", "trade", "x > 0"), site.now)
    site.says("ann", Leave())
    site.leaves("ann")
    (asked,) = work.asked
    site.do(asked.kept(site.now))
    site.pass_(1)
    assert Gone("ann", "late") in site.kept
    one = event(3.0)
    assert ("bob", EventArrived(one.id)) in site.says("bob", one)


@pytest.mark.parametrize("away", [False, True])
def test_a_later_program_has_what_it_says_again_and_for_a_while_all(site, away):
    site.says("ann", Want("other", "trade", "x > 0"))
    if away:
        site.leaves("ann")
        site.pass_(1)
    site.joins("ann", program=2)
    site.pass_(1)
    assert site.says("ann", ANY) == [("ann", Wanted("any"))]
    one = event(3.0)
    assert ("ann", deliver(one, "any", "other")) in site.says("bob", one)
    site.says("ann", Have(one.id))
    site.pass_(CLIENT_LIMITS.linger)
    assert site.kept[-1] == Gone("ann", "other")
    one = event(3.0)
    assert ("ann", deliver(one, "any")) in site.says("bob", one)


def test_a_program_that_is_connected_again_keeps_what_it_wants(site):
    site.leaves("ann")
    site.joins("ann")
    site.pass_(CLIENT_LIMITS.linger + 1)
    one = event(3.0)
    assert ("ann", deliver(one, "any")) in site.says("bob", one)


def test_who_is_there_and_takes_nothing_is_taken_for_gone(site):
    one = event(3.0)
    site.says("bob", one)
    site.pass_(CLIENT_LIMITS.linger - 1)
    assert type(site.says("bob", event(3.0))[-1][1]) is Stored
    told = site.pass_(1)
    assert [type(what) for who, what in told if who == "ann"] == [Goodbye]
    assert ("bob", EventArrived(one.id)) in told
    assert Gone("ann", "any") in site.kept


def test_who_takes_something_now_and_then_is_waited_for(site):
    events = [event(3.0), event(4.0)]
    for one in events:
        site.says("bob", one)
    site.pass_(CLIENT_LIMITS.linger - 1)
    site.says("ann", Have(events[0].id))
    assert not [what for who, what in site.pass_(CLIENT_LIMITS.linger - 1) if who == "ann"]
    assert ("bob", EventArrived(events[1].id)) in site.says("ann", Have(events[1].id))
    assert not [what for who, what in site.pass_(3 * CLIENT_LIMITS.linger) if who == "ann"]


def test_an_event_for_which_a_client_has_no_room_comes_later(site):
    events = [event(3.0) for _ in range(3)]
    told = [message for one in events for who, message in site.says("bob", one) if who == "ann"]
    assert told == [deliver(one, "any") for one in events[:2]]
    site.pass_(8)
    site.says("ann", Have(events[0].id))
    told = site.pass_(8)
    assert ("ann", deliver(events[2], "any")) in told
    assert ("bob", EventArrived(events[2].id)) not in told
    assert ("bob", EventArrived(events[2].id)) in site.says("ann", Have(events[2].id))


def test_acknowledgements_to_brokers_are_held_as_well(site):
    one = event(3.0)
    site.says("bob", one)
    other = Dispatch(to_broker(Contact("b", "b", "there")), Acknowledge(one.id, 7))
    assert site.do(ClientWork([], [other])) == []
    assert ("b", other.message) in site.says("ann", Have(one.id))
    assert site.do(ClientWork([], [other])) == [("b", other.message)]


def test_a_dropped_subscription_is_no_more(site):
    site.says("ann", Drop("any"))
    assert site.kept[-1] == Gone("ann", "any")
    one = event(3.0)
    assert ("bob", EventArrived(one.id)) in site.says("bob", one)
    assert site.says("ann", Drop("never there")) == []


def test_a_later_incarnation_goes_on(site):
    one = event(3.0)
    site.says("bob", one)
    subscriptions = [kept for kept in site.kept if isinstance(kept, ClientSubscription)]
    publications = [kept for kept in site.kept if isinstance(kept, Publication)]
    later = Alone()
    later.do(later.clients.restore(subscriptions, publications, later.now))
    assert later.kept == []
    later.pass_(2)
    assert later.joins("ann") == [("ann", deliver(one, "any"))]
    assert later.says("ann", ANY) == [("ann", Wanted("any"))]
    assert ("bob", EventArrived(one.id)) in later.says("ann", Have(one.id))
    assert later.kept == [Settled(*one.id)]


def test_what_was_stored_under_other_types_is_dropped_and_ends_nothing(caplog):
    site = Alone()
    stored = Publication("client bob", 1, 1, "bob", "tirade", msgspec.msgpack.encode({"x": 1.0}))
    wish = ClientSubscription("ann", "k", "tirade", "x > 0")
    site.do(site.clients.restore([wish], [stored], site.now))
    ((who, refused),) = site.pass_(2)
    assert (who, refused.id) == ("bob", EventId("client bob", 1, 1))
    assert site.kept == [Settled("client bob", 1, 1)]
    assert "bob is dropped, and was not acknowledged: unknown event type 'tirade'" in caplog.text
    assert site.clients.stats()["unacknowledged"] == 0


def test_what_no_client_says_is_refused(site):
    with pytest.raises(ValueError, match="EventArrived"):
        site.says("ann", EventArrived(EventId("p", 1, 1)))


def test_of_what_cannot_be_kept_nothing_follows(site):
    site.full = True
    one = event(3.0)
    assert site.says("bob", one) == [("bob", Refused("", UNKEPT, one.id, later=True))]
    assert site.says("cyd", Want("k", "trade", "x > 0")) == [("cyd", Refused("k", UNKEPT, later=True))]
    assert site.says("ann", Want("any", "trade", "x > 5")) == [("ann", Refused("any", UNKEPT, later=True))]
    assert (len(site.kept), site.clients.stats()["subscriptions"]) == (1, 1)
    assert site.pass_(10) == []
    site.full = False
    assert site.says("bob", one) == [("ann", deliver(one, "any")), ("bob", Stored(one.id))]
    assert ("cyd", Wanted("k")) in site.says("cyd", Want("k", "trade", "x > 0"))


def test_what_must_not_be_kept_goes_on_though_nothing_can_be(site):
    one = event(3.0)
    site.says("bob", one)
    site.full = True
    assert site.says("ann", Have(one.id)) == [("bob", EventArrived(one.id))]
    site.says("ann", Drop("any"))
    assert site.clients.stats()["subscriptions"] == 0
    assert site.kept[-2:] == [Settled(*one.id), Gone("ann", "any")]  # as soon as they can be


def test_what_is_refused_does_not_count(site):
    site.full = True
    for _ in range(5):
        assert site.says("bob", event(3.0))[-1][1].reason == UNKEPT
    site.full = False
    assert [type(site.says("bob", event(3.0))[-1][1]) for _ in range(4)] == [Stored, Stored, Stored, Refused]


def test_an_event_that_comes_again_while_it_is_stored_is_stored_once(site):
    one = event(3.0)
    first = site.clients.hear("bob", one, site.now)
    assert site.clients.hear("bob", one, site.now) == ClientWork([], [])
    assert ("bob", Stored(one.id)) in site.do(first)
    assert sum(isinstance(kept, Publication) for kept in site.kept) == 1


def broken(*given):
    raise KeyError("nothing has this key")


def test_a_subscription_after_which_there_is_an_error_ends_nothing_at_each_start_again(
    site, monkeypatch, caplog
):
    monkeypatch.setattr(site.clients.broker, "subscribe", broken)
    told = site.says("cyd", Want("k", "trade", "x > 0"))
    assert told == [("cyd", Refused("k", "an error of this broker; see its log"))]
    assert site.kept[-1] == Gone("cyd", "k")
    site.says("ann", Want("any", "trade", "x > 5"))
    assert site.kept[-1] == ClientSubscription("ann", "any", "trade", "x > 0")
    site.do(site.clients.restore([ClientSubscription("cyd", "k", "trade", "x > 0")], [], site.now))
    assert len(caplog.records) == 3


def test_the_log_names_each_kept_subscription_that_other_event_types_end(site, caplog):
    kept = [ClientSubscription("cyd", key, "trade", f"{key} > 0") for key in ("y", "x", "z")]
    site.do(site.clients.restore([*kept, ClientSubscription("dan", "k", "gone", "x > 0")], [], site.now))
    said = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert [level for level, _ in said] == ["WARNING"] * 3
    for (_, message), begin, reason in zip(
        said,
        ["client cyd to trade, 'y > 0'", "client cyd to trade, 'z > 0'", "client dan to gone, 'x > 0'"],
        ["y", "z", "gone"],
        strict=True,
    ):
        assert message.startswith(f"a subscription of {begin}, is not taken up: ")
        assert reason in message.rpartition(" up: ")[2]


def test_an_event_after_which_there_is_an_error_is_tried_again(site, monkeypatch, caplog):
    one = event(3.0)
    with monkeypatch.context() as patched:
        patched.setattr(site.clients.broker, "publish", broken)
        assert site.says("bob", one) == [("bob", Stored(one.id))]
        assert site.pass_(1) == []
    assert len(caplog.records) == 2
    assert ("ann", deliver(one, "any")) in site.pass_(8)


def test_a_client_has_so_many_subscriptions_and_no_more(site):
    """A change of one is none more, and what is refused, or dropped, does not count."""
    site.says("ann", Want("other", "trade", "x > 0"))
    ((_, refused),) = site.says("ann", Want("third", "trade", "x > 0"))
    assert "you have 2 subscriptions, the most of a client; remove some" in refused.reason
    assert ("ann", Wanted("any")) in site.says("ann", Want("any", "trade", "x > 1"))
    site.says("ann", Drop("other"))
    assert ("ann", Wanted("third")) in site.says("ann", Want("third", "trade", "x > 0"))
    assert ("cyd", Wanted("first")) in site.says("cyd", Want("first", "trade", "x > 0"))


def test_the_subscriptions_of_a_client_are_so_long_and_no_longer(site):
    long = " OR ".join(["x > 0"] * 70)
    for _ in range(3):
        assert ("ann", Wanted("long")) in site.says("ann", Want("long", "trade", long))
        ((_, refused),) = site.says("ann", Want("any", "trade", long + " OR x > 7" * 50))
        assert "at most 1,000 are allowed: remove some" in refused.reason
        site.full = True
        assert site.says("ann", Want("long", "trade", long[:-1] + "1"))[0][1].reason == UNKEPT
        site.full = False
        site.says("ann", Drop("long"))
    assert site.clients._clients["ann"].bytes == len("any" + ANY.condition)


@pytest.mark.parametrize("key", ["k" * 201], ids=["long"])
def test_a_key_that_no_index_takes_is_refused(site, key):
    ((_, refused),) = site.says("ann", Want(key, "trade", "x > 0"))
    assert "at most 200 characters" in refused.reason


def test_so_many_bytes_may_be_unacknowledged_and_no_more():
    site = Alone(cut_off=True)
    long = [ClientPublish(event(1.0).id, "trade", {"x": 1.0, "note": "n" * 600}) for _ in range(2)]
    assert type(site.says("bob", long[0])[-1][1]) is Stored
    for one in (long[1], long[1]):
        refused = site.says("bob", one)[-1][1]
        assert "1 events of yours, 6" in refused.reason
        assert refused.later
    assert type(site.says("bob", event(1.0))[-1][1]) is Stored
    assert site.clients.publications._bytes.total() == sum(len(one.event) for one in site.kept)


def test_so_many_bytes_may_be_undelivered_to_a_client_and_no_more(site):
    long = [ClientPublish(event(1.0).id, "trade", {"x": 1.0, "note": "n" * 600})] * 2
    assert ("ann", deliver(long[0], "any")) in site.says("bob", long[0])
    other = ClientPublish(event(1.0, of="cyd").id, "trade", long[1].values)
    assert not [what for who, what in site.says("cyd", other) if who == "ann"]
    site.says("ann", Have(long[0].id))
    assert ("ann", deliver(other, "any")) in site.pass_(8)
    site.says("ann", Have(other.id))
    assert (site.clients._clients["ann"].missing_bytes, site.clients._sizes) == (0, {})


def test_an_event_longer_than_may_wait_is_delivered_alone(site):
    one = ClientPublish(event(1.0).id, "trade", {"x": 1.0, "note": "n" * 1000})
    site.clients.limits = CLIENT_LIMITS._replace(bytes=500)
    told = site.do(ClientWork([], site.clients.broker.publish("b", "trade", one.values, site.now, one.id)))
    assert ("ann", deliver(one, "any")) in told


def test_so_many_clients_are_known_and_no_more(site):
    for name in ("bob", "cyd"):
        assert site.clients.has_room(name)
        site.joins(name)
    assert site.clients.has_room("ann")
    assert not site.clients.has_room("dan")
    site.leaves("cyd")
    assert not site.clients.has_room("dan")
    site.pass_(CLIENT_LIMITS.linger + 1)
    assert site.clients.has_room("dan")


def test_nothing_is_remembered_of_clients_that_have_gone(site):
    for number in range(20):
        name = f"client {number}"
        site.joins(name)
        site.says(name, Want("k", "trade", "x > 0"))
        site.says(name, one := event(-1.0, of=name))
        assert ("ann", EventArrived(one.id)) not in site.says(name, Have(one.id))
        site.leaves(name)
    site.pass_(CLIENT_LIMITS.linger + 1)
    clients = site.clients
    assert set(clients._clients) == {"ann"}
    left = clients.publications._counts, clients.publications._bytes, clients._awaited, clients._sizes
    assert not any(left)
    (index,) = clients.broker.router.table._indexes.values()
    assert len(index._connections) <= 21
    for number in range(20):
        site.says(f"later {number}", Want("k", "trade", "x > 0"))
    assert len(index._connections) <= 21


def test_an_event_that_one_has_no_room_for_is_not_acknowledged_when_another_one_has_it(site):
    site.joins("eve")
    site.says("eve", Want("any", "trade", "x > 5"))
    for _ in range(2):
        site.says("bob", event(3.0))  # ann has no more room
    one = event(6.0)
    assert ("eve", deliver(one, "any")) in site.says("bob", one)
    assert ("bob", EventArrived(one.id)) not in site.says("eve", Have(one.id))
    site.pass_(8)
    for other in list(site.clients._clients["ann"].missing):
        site.says("ann", Have(other))
    told = site.pass_(8)
    assert ("ann", deliver(one, "any")) in told
    assert ("bob", EventArrived(one.id)) in told + site.says("ann", Have(one.id)) + site.pass_(8)


def test_who_had_no_room_and_is_gone_is_not_waited_for(site):
    for _ in range(3):
        site.says("bob", event(3.0))
    site.leaves("ann")
    site.pass_(CLIENT_LIMITS.linger + 8)
    assert site.clients.stats()["unacknowledged"] == 0
    assert not site.clients._untaken


def test_a_client_is_told_the_schema_of_an_event_type(site):
    ((name, answer),) = site.says("bob", AskSchema("trade"))
    assert (name, answer) == ("bob", HasSchema("trade", [{"name": "x", "type": "float"}]))
    ((_, answer),) = site.says("bob", AskSchema("tirade"))
    assert answer.schema == []
    assert answer.reason == "unknown event type 'tirade'; the types of this broker are trade"


def waits(site, one, of="bob"):
    """What a publisher is told that an event waits for."""
    ((name, answer),) = site.says(of, Ask(one.id))
    assert (name, type(answer), answer.id) == (of, Waits, one.id)
    return list(map(tuple, answer.holds))


def test_who_publishes_is_told_which_clients_here_it_waits_for(site):
    one = event(3.0)
    site.says("bob", one)
    site.pass_(2)
    assert waits(site, one) == [("client ann, which has not acknowledged it", 2.0)]
    site.leaves("ann")
    site.pass_(1)
    assert waits(site, one) == [("client ann, which is not connected", 1.0)]
    site.joins("ann")
    two, three = event(3.0), event(3.0)
    site.says("bob", two)
    site.says("bob", three)
    assert [what for what, _ in waits(site, three)] == ["client ann, which has no room for more"]
    assert waits(site, three, of="cyd") == []  # which is none of its business
    site.says("ann", Have(one.id))
    assert waits(site, one) == []


def test_who_publishes_is_told_that_its_broker_is_cut_off():
    site = Alone(cut_off=True)
    site.says("bob", one := event(1.0))
    site.pass_(0.5)
    assert waits(site, one) == [("a cluster above this one", 0.5)]


@pytest.mark.parametrize(
    ("values", "hints"),
    [
        ({"x": 1.0}, []),
        ({"x": None}, []),
        ({"x": [1.0, 2.0]}, []),
        ({"x": ["1", 2.0]}, ["trade: attribute 'x' is a number, and '1' is none"]),
        ({"X": 1.0}, ["trade: unknown attribute 'X'; did you mean 'x'? (it is delivered, but no"]),
        ({"x": 1.0, "y": {"z": 1}}, ["trade: unknown attribute 'y'"]),
        ({"x": "1"}, ["trade: attribute 'x' is a number, and '1' is none. It satisfies nothing"]),
        ({"x": "1", "y": 1}, ["trade: unknown attribute 'y'", "trade: attribute 'x'"]),
    ],
    ids=str,
)
def test_who_publishes_what_may_not_be_meant_is_told_once_and_it_is_taken(site, values, hints):
    """As a filter takes it."""
    for attempt in range(2):
        one = ClientPublish(event(0.0).id, "trade", values)
        told = site.says("bob", one)
        assert ("bob", Stored(one.id)) in told
        found = [what.text for who, what in told if isinstance(what, Hint)]
        assert len(found) == (0 if attempt else len(hints))
        for text, begins in zip(found, hints, strict=False):
            assert text.startswith(begins)


def test_so_many_hints_are_given_to_a_client_and_no_more(site):
    told = site.says("bob", ClientPublish(event(0.0).id, "trade", {f"y{i}": 1 for i in range(100)}))
    assert sum(isinstance(what, Hint) for _, what in told) == 20
    told = site.says("cyd", ClientPublish(event(0.0, of="cyd").id, "trade", {"y": 1}))
    assert sum(isinstance(what, Hint) for _, what in told) == 1


def test_what_no_message_between_brokers_can_hold_is_refused_and_not_tried_again(site):
    long = ClientPublish(event(1.0).id, "trade", {"x": 1.0, "note": "n" * 500})
    assert type(site.says("bob", long)[-1][1]) is Stored
    site.clients.limits = site.clients.publications.limits = CLIENT_LIMITS._replace(event=400)
    (refused,) = [what for who, what in site.pass_(8) if who == "bob"]  # as after a start with less
    assert (refused.id, site.clients.stats()["unacknowledged"]) == (long.id, 0)
    ((_, refused),) = site.says("bob", other := ClientPublish(event(1.0).id, "trade", long.values))
    assert (refused.id, refused.later) == (other.id, False)
    assert "is 520 bytes long; at most 400, see --message of the brokers" in refused.reason
    ((_, refused),) = site.says("ann", Want("k", "trade", " OR ".join(["x > 0"] * 50)))
    assert "the condition is 446 bytes long; at most 400" in refused.reason
