"""Low mark and gaps, against a set of all that was acknowledged."""

from hypothesis import given
from hypothesis import strategies as st

from rtfilter.service.backlog import Backlog, Delivery
from rtfilter.service.log import Mark


def delivery(position, *subscriptions):
    return Delivery(position, subscriptions or ("s",), b"{}")


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)), st.integers(0, 8))
def test_after_a_restart_exactly_what_was_not_acknowledged_is_pending(order, acknowledged, known):
    backlog = Backlog()
    for position in order[:known]:
        backlog.add(delivery(position))
    backlog.acknowledge(acknowledged)
    settled = next((i for i in range(8) if i + 1 not in order[:known]), 8)
    mark = backlog.mark(settled)
    again = Backlog(mark)
    for position in range(1, 9):
        again.add(delivery(position))
    assert set(again.pending) == set(range(1, 9)) - (acknowledged & set(order[:known]))
    assert all(position > mark.low for position in mark.beyond)


def test_nothing_above_what_is_settled_is_taken_as_acknowledged():
    backlog = Backlog()
    backlog.add(delivery(5))
    backlog.acknowledge([5])
    assert backlog.mark(2) == Mark(2, frozenset({5}))
    assert backlog.mark(5) == Mark(5)


def test_a_removed_subscription_takes_its_deliveries_along():
    backlog = Backlog()
    backlog.add(delivery(1, "a"))
    backlog.add(delivery(2, "a", "b"))
    backlog.forget("a")
    assert [one.subscriptions for one in backlog.pending.values()] == [("b",)]
