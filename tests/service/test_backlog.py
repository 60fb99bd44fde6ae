"""Low mark, gaps, rows and bounds, against a set of all that was acknowledged."""

from hypothesis import given
from hypothesis import strategies as st

from rtfilter.service.backlog import BESIDE, Backlog, Bounds, Policy
from rtfilter.service.records import Delivery
from rtfilter.store.tables import Mark


def delivery(position, *subscriptions, at=0.0):
    return Delivery(position, subscriptions or (7,), b"{}", at=at)


@given(
    st.permutations(range(1, 9)),
    st.lists(st.one_of(st.just("write"), st.just("know"), st.integers(1, 8)), max_size=30),
)
def test_after_a_restart_exactly_what_was_not_acknowledged_is_pending(order, steps):
    """What is written at one moment is all that a restart has: a mark, rows, and what is settled."""
    backlog, rows, known, acknowledged = Backlog(), {}, [], set()
    written = Mark(), 0, set()
    for step in [*steps, "write"]:
        if step == "know" and len(known) < len(order):
            known.append(order[len(known)])
            backlog.add(delivery(known[-1]))
        elif type(step) is int:
            backlog.acknowledge([step])
            acknowledged |= {step} & set(known)
        elif step == "write":
            settled = next((i for i in range(8) if i + 1 not in known), 8)
            mark, row = backlog.mark(settled), backlog.unwritten("ann")
            if row is not None:
                rows[row.number] = row
            for number in backlog.emptied():
                rows.pop(number, None)
            written = mark, settled, set(acknowledged)
    mark, settled, acknowledged = written
    again = Backlog(mark=mark)
    for number, row in rows.items():
        again.restore(number, [delivery(position) for position, _, _ in row.deliveries])
    for position in range(settled + 1, 9):
        if not again.knows(position):
            again.add(delivery(position))
    assert set(again.pending) == set(range(1, 9)) - acknowledged
    assert all(position > mark.low for position in mark.beyond)


def test_nothing_above_what_is_settled_is_taken_as_acknowledged():
    backlog = Backlog()
    backlog.add(delivery(5))
    backlog.acknowledge([5])
    assert backlog.mark(2) == Mark(2, frozenset({5}))
    assert backlog.mark(5) == Mark(5)


def test_a_row_goes_when_nothing_is_left_of_it():
    backlog = Backlog()
    for position in (1, 2):
        backlog.add(delivery(position))
    assert backlog.unwritten("ann").deliveries == [(1, (7,), None), (2, (7,), None)]
    assert backlog.unwritten("ann") is None
    backlog.acknowledge([1])
    assert backlog.emptied() == []
    backlog.acknowledge([2])
    assert (backlog.emptied(), backlog.emptied()) == ([1], [])


def test_a_removed_subscription_takes_its_deliveries_along():
    backlog = Backlog()
    backlog.add(delivery(1, 3))
    backlog.add(delivery(2, 3, 4))
    backlog.add(delivery(5, 3)._replace(ended="expired"))
    backlog.forget(3)
    assert [one.subscriptions for one in backlog.pending.values()] == [(4,), (3,)]


@given(st.lists(st.integers(0, 400), max_size=20), st.sampled_from(Policy), st.integers(1, 5))
def test_bounds_hold(sizes, policy, count):
    most = 3 * BESIDE + 500
    backlog, kept = Backlog(Bounds(count, most, policy=policy)), []
    for position, size in enumerate(sizes, 1):
        one = Delivery(position, (7,), b"x" * size)
        full = len(kept) >= count or sum(len(one.body) + BESIDE for one in kept) >= most
        assert backlog.full == full
        dropped = backlog.add(one)
        if policy == Policy.DROP_NEWEST and full:
            assert dropped == [position]
            continue
        kept.append(one)
        if policy == Policy.DROP_OLDEST:
            gone = []
            while len(kept) > count or sum(len(one.body) + BESIDE for one in kept) > most:
                gone.append(kept.pop(0).position)
            assert dropped == gone
        assert list(backlog.pending) == [one.position for one in kept]


def test_age_is_a_bound():
    backlog = Backlog(Bounds(age=10))
    for position, at in enumerate([0.0, 5.0, 9.0], 1):
        backlog.add(delivery(position, at=at))
    assert (backlog.expire(14.9), list(backlog.pending)) == (1, [2, 3])
    assert (backlog.expire(15.0), list(backlog.pending)) == (1, [3])
