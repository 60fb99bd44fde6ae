"""What need not be told, and what must be when that which covered it is gone."""

from __future__ import annotations

from overlay.networks import TYPES
from rtfilter.overlay.broker_names import SubscriptionId
from rtfilter.overlay.routing_messages import RouterSubscribe, RouterSubscription, RouterUnsubscribe
from rtfilter.overlay.suppressing import CoveringForwarding
from rtfilter.predicates.predicate import Predicate


def about(number: int, condition: str, type: str = "alarm") -> RouterSubscription:
    return RouterSubscription(SubscriptionId("a", 1, number), type, condition)


def told() -> CoveringForwarding:
    return CoveringForwarding(lambda s: Predicate.parse(s.condition, TYPES[s.type]))


def test_what_is_covered_is_not_told() -> None:
    link = told()
    wide, narrow, other = about(1, "x > 0"), about(2, "x > 3"), about(3, "x < 3")
    assert link.add(wide) == [RouterSubscribe(wide)]
    assert link.add(narrow) == []
    assert link.add(other) == [RouterSubscribe(other)]
    assert link.suppressed == 1
    assert list(link.sent()) == [wide, other]


def test_of_another_type_nothing_is_covered() -> None:
    link = told()
    link.add(about(1, "x > 0", "trade"))
    assert link.add(about(2, "x > 3")) != []
    assert link.remove(about(1, "").id) == [RouterUnsubscribe(about(1, "").id)]
    assert link.add(about(3, "x > 4")) == []


def test_what_was_suppressed_is_told_before_the_removal() -> None:
    link = told()
    wide, middle, narrow = about(1, "x > 0"), about(2, "x > 2"), about(3, "x > 3")
    for subscription in (wide, middle, narrow):
        link.add(subscription)
    assert link.remove(wide.id) == [RouterSubscribe(middle), RouterUnsubscribe(wide.id)]
    assert link.suppressed == 1
    assert link.remove(middle.id) == [RouterSubscribe(narrow), RouterUnsubscribe(middle.id)]
    assert link.remove(narrow.id) == [RouterUnsubscribe(narrow.id)]
    assert link.suppressed == 0


def test_another_one_that_covers_takes_over_in_silence() -> None:
    link = told()
    one, two, narrow = about(1, "x > 0"), about(2, "x BETWEEN -1 AND 9"), about(3, "x BETWEEN 3 AND 4")
    for subscription in (one, two, narrow):
        link.add(subscription)
    assert link.remove(one.id) == [RouterUnsubscribe(one.id)]
    assert link.remove(two.id) == [RouterSubscribe(narrow), RouterUnsubscribe(two.id)]


def test_of_equal_ones_one_is_told_and_the_lowest_id_is_next() -> None:
    link = told()
    equal = [about(number, "x > 0") for number in (5, 2, 3)]
    assert [len(link.add(subscription)) for subscription in equal] == [1, 0, 0]
    assert link.remove(equal[0].id) == [RouterSubscribe(equal[1]), RouterUnsubscribe(equal[0].id)]
    assert link.remove(equal[1].id) == [RouterSubscribe(equal[2]), RouterUnsubscribe(equal[1].id)]


def test_a_suppressed_one_may_go_unnoticed_and_twice_is_once() -> None:
    link = told()
    wide, narrow = about(1, "x > 0"), about(2, "x > 3")
    link.add(wide)
    link.add(narrow)
    assert link.add(narrow) == link.add(wide) == []
    assert link.remove(narrow.id) == link.remove(narrow.id) == []
    assert link.remove(wide.id) == [RouterUnsubscribe(wide.id)]
    assert link.remove(wide.id) == []
