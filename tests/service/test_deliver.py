"""What is to be written of deliveries comes in parts, none of which says too much."""

from collections import Counter

import numpy as np

from rtfilter.matching.stream import CompletedGroup
from rtfilter.service import deliver, log_matcher
from rtfilter.service.deliver import FEWEST, MOST_PARTS, STEP, Deliver, MatchedEvent, Owned
from rtfilter.service.owners import Owners
from rtfilter.store.log_tables import Acknowledged, Entry, Kind, Logged, Row

EVENT = Entry(Kind.EVENT, "default", "carl", b"{}", at=1.0)


def deliver_to(users):
    """Each user has the subscription of their number, and has been told of an event at position 1."""
    made = Deliver({number: Owned(number, f"u{number}", "default") for number in range(users)})
    tell(made, 1, range(users))
    return made


def tell(made, position, ids):
    for _ in made.tell([MatchedEvent(Logged(position, EVENT), np.array(ids), None)]):
        pass


def test_an_event_from_before_the_end_of_a_subscription_is_told_after_it():
    owners = Owners()
    made = Deliver(owners, owners.expired)
    owners.put(Owned(1, "ann", "default", 5.0, digest=60.0, ordered=True))
    owners.expire(1, 3)
    assert owners.ordered["default"] == 1
    made.begin("ann", None)  # it is not called before the digest is due
    tell(made, 2, [1])
    assert [one.position for one in made.backlog("ann").pending.values()] == [2]
    owners.settle(3)
    assert (owners.ordered["default"], owners.expired) == (0, {})


def test_expired_deliveries_are_searched_for_in_steps(monkeypatch):
    """Thousands of users may have some that expire at the same time."""
    monkeypatch.setattr(deliver, "SEARCH", 0.0)
    made = deliver_to(3)
    for left in (2, 1, 0):
        made.tick(2e9)
        assert sum(bool(made.backlog(f"u{id}").pending.values()) for id in range(3)) == left


def rounds(made, settled):
    """Parts up to the one that says what is settled."""
    parts = [made.progress(settled, False)]
    while parts[-1].settled is None:
        parts.append(made.progress(settled + 1, False))
    return parts


def test_many_users_are_written_in_parts_and_each_once():
    made = deliver_to(100)
    parts = rounds(made, 1)
    assert Counter(user for part in parts for user in part.marks) == Counter(f"u{id}" for id in range(100))
    assert max(len(part.marks) for part in parts) == FEWEST
    assert [part.settled for part in parts] == [None] * (len(parts) - 1) + [1]
    assert sum(len(part.rows) for part in parts) == 100
    assert made.progress(2, False) == (2, {}, [], [])


def test_a_round_of_many_more_users_has_no_more_parts():
    assert len(rounds(deliver_to(1000), 1)) == MOST_PARTS


def test_few_users_are_one_part():
    (part,) = rounds(deliver_to(FEWEST), 1)
    assert part.settled == 1


def test_what_comes_in_the_middle_of_a_round_counts_with_the_next_one():
    made = deliver_to(FEWEST + 1)
    first = made.progress(1, False)
    (late,) = {f"u{id}" for id in range(FEWEST + 1)} - first.marks.keys()
    again = min(first.marks)
    tell(made, 2, [int(again[1:])])
    assert made.owes(again)
    assert made.owes(late)
    last = made.progress(2, False)
    assert (last.settled, last.marks) == (1, {late: Acknowledged(0)})
    assert made.owes(again)
    following = made.progress(2, False)
    assert (following.settled, following.marks.keys()) == (2, {again})
    assert [row.deliveries for row in following.rows] == [[(2, (int(again[1:]),), None)]]
    assert not made.owes(again)


def test_what_is_acknowledged_meanwhile_comes_with_the_part_of_its_user():
    made = deliver_to(FEWEST + 1)
    first = made.progress(1, False)
    (late,) = {f"u{id}" for id in range(FEWEST + 1)} - first.marks.keys()
    made.acknowledge(late, [1])
    last = made.progress(2, False)
    assert last == (1, {late: Acknowledged(1)}, [], [])
    assert not made.owes(late)


def test_a_part_keeps_what_is_acknowledged_until_what_is_settled_is_written():
    made = deliver_to(FEWEST + 1)
    tell(made, 2, [0])
    made.acknowledge("u0", [2])
    first = made.progress(2, False)
    assert (first.settled, first.marks["u0"]) == (None, Acknowledged(0, frozenset({2})))
    assert made.progress(3, False).settled == 2
    made.acknowledge("u0", [])
    assert made.progress(3, False) == (3, {"u0": Acknowledged(0)}, [], [])


def test_what_is_settled_counts_as_written_only_once_it_is():
    made = deliver_to(1)
    tell(made, 2, [0])
    made.acknowledge("u0", [2])
    for _ in range(3):
        failed = made.progress(2, False)
        assert (failed.settled, failed.marks) == (2, {"u0": Acknowledged(0, frozenset({2}))})
        made.not_written(failed)


def test_a_part_that_was_not_written_comes_again_before_the_round_ends():
    made = deliver_to(FEWEST + 1)
    first = made.progress(1, False)
    made.not_written(first)
    parts = [made.progress(5, False), made.progress(5, False)]
    assert [part.settled for part in parts] == [None, 1]
    assert parts[0].marks.keys() == first.marks.keys()
    assert len([row for part in parts for row in part.rows]) == FEWEST + 1


def test_a_round_that_is_begun_anew_has_all_until_then_in_parts():
    made = deliver_to(2 * FEWEST + 5)
    first = made.progress(1, False)
    tell(made, 2, [0])
    parts = [made.progress(2, True), made.progress(3, False)]
    assert [part.settled for part in parts] == [None, 2]
    assert max(len(part.marks) for part in parts) == FEWEST
    rest = {user for part in parts for user in part.marks}
    assert "u0" in rest
    assert rest | first.marks.keys() == {f"u{id}" for id in range(2 * FEWEST + 5)}
    assert made.progress(3, False) == (3, {}, [], [])


def told_between(change):
    """An event with many matches, and a change of owners after the first step; what is pending then."""
    owners = {number: Owned(number, f"u{number % 2}", "default") for number in range(3 * STEP)}
    made = Deliver(owners)
    steps = made.tell([MatchedEvent(Logged(1, EVENT), np.arange(3 * STEP), None)])
    next(steps)
    change(owners, made)
    count = 1 + sum(1 for _ in steps)
    return made, count


def test_an_event_with_many_matches_is_told_in_steps():
    made, count = told_between(lambda owners, made: None)
    assert count >= 3
    assert [
        len(one.subscriptions) for user in ("u0", "u1") for one in made.backlog(user).pending.values()
    ] == [3 * STEP / 2] * 2


def test_what_is_removed_between_two_steps_is_not_told():
    def remove(owners, made):
        for id in range(0, 3 * STEP, 2):
            del owners[id]
        del owners[1]
        made.forget("u0", range(0, 3 * STEP, 2))
        made.forget("u1", [1])

    made, _ = told_between(remove)
    assert not made.backlog("u0").pending.values()
    assert next(iter(made.backlog("u1").pending.values())).subscriptions == tuple(range(3, 3 * STEP, 2))


def test_an_id_is_kept_once_for_all_deliveries():
    id = int("1000")
    made = Deliver({id: Owned(id, "ann", "default")})
    for position in (1, 2):
        tell(made, position, [int("1000")])
    assert all(one.subscriptions[0] is id for one in made.backlog("ann").pending.values())


def test_events_that_match_alike_share_their_ids():
    made = Deliver({number: Owned(number, "ann", "default") for number in range(1000, 1003)})
    tell(made, 1, [1000, 1001])
    tell(made, 2, [1001, 1000])
    tell(made, 3, [1000, 1002])
    first, second, third = made.backlog("ann").pending.values()
    assert first.subscriptions is second.subscriptions
    assert third.subscriptions == (1000, 1002)


def test_users_with_many_deliveries_are_written_in_more_parts(monkeypatch):
    monkeypatch.setattr(deliver, "MOST_WRITTEN", 5)
    made = deliver_to(FEWEST)
    for position in range(2, 5):
        tell(made, position, range(FEWEST))
    parts = rounds(made, 4)
    assert [sum(len(row.deliveries) for row in part.rows) for part in parts] == [8] * (FEWEST // 2)


class Hashed(int):
    """An id that counts how often one of its kind is looked up."""

    times = 0

    def __hash__(self):
        Hashed.times += 1
        return int(self)


def test_a_removed_subscription_leaves_a_large_backlog_in_steps():
    """A user with thousands of subscriptions and deliveries has millions of ids in the backlog."""
    ids = [Hashed(id) for id in range(1, 501)]
    made = Deliver({id: Owned(id, "ann", "default") for id in ids})
    for position in range(1, 101):
        tell(made, position, [int(id) for id in ids])
    Hashed.times = 0
    made.forget("ann", ids[:1])
    assert Hashed.times < 20_000 < 100 * len(ids)
    assert all(made.backlog("ann").get(position).subscriptions == tuple(ids[1:]) for position in (1, 100))
    while made.forgetting:
        Hashed.times = 0
        made.forget_some()
        assert Hashed.times < 20_000
    assert {one.subscriptions for one in made.backlog("ann").pending.values()} == {tuple(ids[1:])}


class Compared(int):
    """An id that counts how often one of its kind is compared."""

    times = 0

    def __lt__(self, other):
        Compared.times += 1
        return int(self) < int(other)


class LookedUp(dict):
    """Owners that count how often one is looked up."""

    times = 0

    def get(self, *given):
        self.times += 1
        return super().get(*given)


def test_an_event_with_many_matches_of_one_user_is_told_in_steps():
    """A user may have a million subscriptions of their own, and all with digests."""
    ids = [Compared(id) for id in range(5 * STEP)]
    owners = LookedUp({id: Owned(id, "ann", "default", digest=60.0) for id in ids})
    made, work = Deliver(owners), []
    made.begin("ann", None)  # it is not called before the digest is due
    for _ in made.tell([MatchedEvent(Logged(1, EVENT), np.arange(len(ids)), None)]):
        work.append(owners.times + Compared.times)
        owners.times = Compared.times = 0
    assert sum(work) >= len(ids)
    assert max([*work, owners.times + Compared.times]) <= STEP
    assert made.backlog("ann").get(1).subscriptions == tuple(ids)


def test_many_ids_of_an_event_are_sorted_in_the_thread_that_finds_them():
    ids = np.arange(STEP + 1)
    group = CompletedGroup([0], np.array([0, len(ids)]), ids[::-1].copy(), 0.0)
    (one,) = log_matcher._found([Logged(1, EVENT)], group, None, 0.0)
    assert one.ids.tolist() == ids.tolist()


def test_a_delivery_to_another_site_has_its_origin_though_it_was_restored():
    entry = Entry(Kind.EVENT, "default", "s1", b"{}", at=1.0)
    made = Deliver({1: Owned(1, "s1", "default", site=True)}, site="here")
    made.restore(Row("s1", 0, [(7, (1,), None)]), {7: Logged(7, entry)}, lambda entry: None)
    assert made.backlogs["s1"].pending[7].source == "s1:here:7:1.0:"


def test_an_event_goes_to_another_site_but_where_it_came_from():
    owners = {id: Owned(id, f"s{id}", "default", site=True) for id in (1, 2)}
    for user, wanted in (("s1", ["s1", "s2"]), ("ann:s3:7:1.5:s1", ["s2"])):
        made = Deliver(owners, site="here")
        event = Logged(9, Entry(Kind.EVENT, "default", user, b"{}", at=1.0))
        for _ in made.tell([MatchedEvent(event, np.array([1, 2]), None)]):
            pass
        assert sorted(name for name, one in made.backlogs.items() if one.pending) == wanted
