"""Low mark, gaps, rows and bounds, against a set of all that was acknowledged."""

from collections import Counter
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rtfilter.service.backlog import BESIDE, OF_ID, SMALL, Backlog, BacklogLimits, Policy
from rtfilter.service.records import UserDelivery
from rtfilter.store.log_tables import Acknowledged

WRITES = "write", "write a part"
STEPS = "know", *WRITES, "start"


def delivery(position, *subscriptions, at=0.0):
    return UserDelivery(position, subscriptions or (7,), b"{}", at=at)


@given(
    st.permutations(range(1, 9)),
    st.lists(st.one_of(st.just("know"), st.sampled_from(STEPS), st.integers(-8, 7)), max_size=30),
    st.sampled_from(WRITES),
    st.sampled_from([0, SMALL]),
)
def test_after_a_restart_exactly_what_was_not_acknowledged_is_pending(order, steps, last, small):
    """What is written at one moment is all that a restart has: a mark, rows, and what is settled.

    A part of what is to be written does not say what is settled. A negative step is an acknowledgement that
    could not be written, and was refused.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rtfilter.service.backlog.SMALL", small)  # of so few deliveries, all rows are small
        _restarts(order, [*steps, last, "start"], small)


def _restarts(order, steps, small):
    backlog, rows, known, acknowledged = Backlog(), {}, [], set()
    written, durable = (Acknowledged(), set()), 0
    left = {}, []  # what could not be written, and comes with what is written next
    for step in steps:
        if step == "know" and len(known) < len(order):
            known.append(order[len(known)])
            if not backlog.knows(known[-1]):
                backlog.add(delivery(known[-1]))
        elif type(step) is int and step < 0 and known:
            taken = backlog.acknowledge([known[step % len(known)]])
            _, new, gone = backlog.written(settled(known), durable)
            left = left[0] | new, left[1] + gone
            backlog.not_written()
            backlog.put_back(taken)
        elif type(step) is int and known:
            place = known[step % len(known)]
            backlog.acknowledge([place])
            acknowledged.add(place)
        elif step in WRITES:
            mark, new, gone = backlog.written(settled(known), durable)
            rows |= left[0] | new
            for number in left[1] + gone:
                rows.pop(number, None)
            left = {}, []
            written = mark, set(acknowledged)
            within = {position for row in rows.values() for position, _, _ in row}
            assert all(mark.low < position for position in mark.beyond)
            assert all(position > durable or position in within for position in mark.beyond)
            assert all(len(row) <= small or 2 * pending(row, backlog) > len(row) for row in rows.values())
            durable = settled(known) if step == "write" else durable
        elif step == "start":
            (mark, acknowledged), left = (written[0], set(written[1])), ({}, [])
            backlog, known = Backlog(mark=mark), [one for one in order if one <= durable]
            for number, row in sorted(rows.items()):
                held = [delivery(position) for position, _, _ in row]
                backlog.restore(number, held, len(row))
                known += (one.position for one in held if one.position not in known)
            order = [*known, *(one for one in order if one not in known)]
    for position in range(1, 9):
        if position > durable and not backlog.knows(position):
            backlog.add(delivery(position))
    assert set(backlog.pending) == set(range(1, 9)) - acknowledged


def settled(known):
    return next((i for i in range(8) if i + 1 not in known), 8)


def forget(backlog, subscriptions):
    backlog.forget(subscriptions)
    for _ in backlog.forgetting():
        pass


def pending(row, backlog):
    return sum(position in backlog.pending for position, _, _ in row)


@pytest.mark.parametrize("size", [1, 5, 100])
def test_one_that_is_never_acknowledged_costs_little(size):
    backlog = Backlog()
    for first in range(1, 10_000, size):
        for position in range(first, first + size):
            backlog.add(delivery(position))
        mark, rows, _ = backlog.written(first + size - 1, first - 1)
        backlog.acknowledge(range(max(first, 2), first + size))
        assert len(mark.beyond) <= max(size, SMALL)
        assert sum(map(len, rows.values())) <= size + SMALL


def test_what_a_refused_acknowledgement_was_about_is_as_it_was():
    backlog = Backlog(BacklogLimits(most=3))
    for position in range(1, 5):
        backlog.add(delivery(position))
    sent = backlog.note_sent(2)
    backlog.put_back(backlog.acknowledge([2]))
    assert sent.dropped == backlog.untold == 1
    assert backlog.note_sent(2) == (1, 1)
    assert list(backlog.pending) == [2, 3, 4]


def test_nothing_above_what_is_settled_is_taken_as_acknowledged():
    backlog = Backlog()
    backlog.add(delivery(5))
    backlog.acknowledge([5])
    assert backlog.written(2, 2).mark == Acknowledged(2, frozenset({5}))
    assert backlog.written(5, 5).mark == Acknowledged(5)


def test_what_was_dropped_is_told_until_that_is_acknowledged():
    backlog = Backlog(BacklogLimits(most=2))
    for position in range(1, 6):
        backlog.add(delivery(position))
    assert [backlog.note_sent(position) for position in (4, 5)] == [(0, 3), (0, 0)]
    assert backlog.note_sent(4) == (1, 3)
    backlog.add(delivery(6))  # which drops the one that has told
    assert backlog.note_sent(5) == (1, 4)
    mark = backlog.written(6, 6).mark
    assert (mark.dropped, backlog.dropped) == (4, 4)
    again = Backlog(BacklogLimits(most=2), mark)
    again.add(delivery(7))
    assert again.note_sent(7) == (0, 4)
    again.acknowledge([7])
    assert (again.untold, again.written(7, 7).mark.dropped) == (0, 0)


def test_what_is_too_old_is_told_as_dropped():
    backlog = Backlog(BacklogLimits(age=5.0))
    backlog.add(delivery(1, at=1.0))
    backlog.add(delivery(2, at=3.0))
    assert backlog.note_sent(1) == (0, 0)
    assert backlog.expire(7.0) == 1
    assert backlog.note_sent(2) == (0, 1)
    backlog.leave()
    assert backlog.untold == 0


def test_what_the_log_does_not_have_as_settled_stays_acknowledged():
    backlog = Backlog()
    for position in (1, 2):
        backlog.add(delivery(position))
    backlog.acknowledge([2])
    assert backlog.written(2, 0).mark == Acknowledged(0, frozenset({2}))
    assert backlog.written(2, 2).mark == Acknowledged(0)


def test_a_row_goes_when_nothing_is_left_of_it():
    backlog = Backlog()
    for position in (1, 2):
        backlog.add(delivery(position))
    assert backlog.written(2, 2).rows == {1: [(1, (7,), None), (2, (7,), None)]}
    assert backlog.written(2, 2).rows == {}
    backlog.acknowledge([1])
    assert backlog.written(2, 2).gone == []
    backlog.acknowledge([2])
    assert (backlog.written(2, 2).gone, backlog.written(2, 2).gone) == ([1], [])


def test_a_removed_subscription_takes_its_deliveries_along():
    backlog = Backlog()
    backlog.add(delivery(1, 3))
    backlog.add(delivery(2, 3, 4))
    backlog.add(replace(delivery(5, 3), ended="expired"))
    forget(backlog, {3})
    assert [one.subscriptions for one in backlog.pending.values()] == [(4,), (3,)]


def test_ids_take_room_until_their_subscriptions_are_removed():
    backlog = Backlog(BacklogLimits(bytes=100 * OF_ID))
    assert backlog.add(delivery(1, *range(60))) == []
    assert backlog.add(delivery(2, *range(60))) == [1]
    before = backlog.bytes
    forget(backlog, range(50))
    assert backlog.bytes == before - 50 * OF_ID
    forget(backlog, range(50, 60))
    assert backlog.bytes == 0


def test_an_emptied_backlog_takes_as_little_memory_as_a_new_one():
    counts = Counter()
    backlog = Backlog(counts=counts)
    for position in range(1, 1001):
        backlog.add(delivery(position))
        backlog.note_sent(position)
        if position == 500:
            backlog.written(0, 0)
    backlog.acknowledge(range(1, 1001))
    backlog.written(1000, 0)
    assert sizes(backlog) == sizes(Backlog(counts=counts))


def sizes(backlog):
    return {name: getsizeof(value) for name, value in vars(backlog).items() if isinstance(value, dict | set)}


def test_positions_that_may_have_to_be_taken_back_take_little_memory():
    backlog = Backlog()
    for position in range(1, 1001):
        backlog.add(delivery(position))
    backlog.acknowledge(range(1, 1001))
    backlog.written(1000, 0)
    assert sum(map(getsizeof, backlog._before)) < 10 * 1000


@given(st.lists(st.integers(0, 400), max_size=20), st.sampled_from(Policy), st.integers(1, 5))
def test_bounds_hold(sizes, policy, count):
    most = 3 * (BESIDE + OF_ID) + 500
    backlog, kept = Backlog(BacklogLimits(count, most, policy=policy)), []
    for position, size in enumerate(sizes, 1):
        one = UserDelivery(position, (7,), b"x" * size)
        full = len(kept) >= count or sum(len(one.body) + BESIDE + OF_ID for one in kept) >= most
        assert backlog.full == full
        dropped = backlog.add(one)
        if policy == Policy.DROP_NEWEST and full:
            assert dropped == [position]
            continue
        kept.append(one)
        if policy == Policy.DROP_OLDEST:
            gone = []
            while len(kept) > count or sum(len(one.body) + BESIDE + OF_ID for one in kept) > most:
                gone.append(kept.pop(0).position)
            assert dropped == gone
        assert list(backlog.pending) == [one.position for one in kept]


def test_age_is_a_bound():
    backlog = Backlog(BacklogLimits(age=10))
    for position, at in enumerate([0.0, 5.0, 9.0], 1):
        backlog.add(delivery(position, at=at))
    assert (backlog.expire(14.9), list(backlog.pending)) == (1, [2, 3])
    assert (backlog.expire(15.0), list(backlog.pending)) == (1, [3])
