"""What need not be told, and what must be when that which covered it is gone."""

from __future__ import annotations

from overlay.networks import TYPES
from rtfilter.overlay.covering import CoveringForwarding
from rtfilter.overlay.names import SubscriptionId
from rtfilter.overlay.routing_messages import Subscribe, Subscription, Unsubscribe
from rtfilter.predicates.model import Predicate


def about(number: int, condition: str, type: str = "alarm") -> Subscription:
    return Subscription(SubscriptionId("a", 1, number), type, condition)


def told() -> CoveringForwarding:
    return CoveringForwarding(lambda s: Predicate.parse(s.condition, TYPES[s.type]))


def test_what_is_covered_is_not_told() -> None:
    link = told()
    wide, narrow, other = about(1, "x > 0"), about(2, "x > 3"), about(3, "x < 3")
    assert link.add(wide) == [Subscribe(wide)]
    assert link.add(narrow) == []
    assert link.add(other) == [Subscribe(other)]
    assert link.suppressed == 1
    assert list(link.sent()) == [wide, other]


def test_of_another_type_nothing_is_covered() -> None:
    link = told()
    link.add(about(1, "x > 0", "trade"))
    assert link.add(about(2, "x > 3")) != []
    assert link.remove(about(1, "").id) == [Unsubscribe(about(1, "").id)]
    assert link.add(about(3, "x > 4")) == []


def test_what_was_suppressed_is_told_before_the_removal() -> None:
    link = told()
    wide, middle, narrow = about(1, "x > 0"), about(2, "x > 2"), about(3, "x > 3")
    for subscription in (wide, middle, narrow):
        link.add(subscription)
    assert link.remove(wide.id) == [Subscribe(middle), Unsubscribe(wide.id)]
    assert link.suppressed == 1
    assert link.remove(middle.id) == [Subscribe(narrow), Unsubscribe(middle.id)]
    assert link.remove(narrow.id) == [Unsubscribe(narrow.id)]
    assert link.suppressed == 0


def test_another_one_that_covers_takes_over_in_silence() -> None:
    link = told()
    one, two, narrow = about(1, "x > 0"), about(2, "x BETWEEN -1 AND 9"), about(3, "x BETWEEN 3 AND 4")
    for subscription in (one, two, narrow):
        link.add(subscription)
    assert link.remove(one.id) == [Unsubscribe(one.id)]
    assert link.remove(two.id) == [Subscribe(narrow), Unsubscribe(two.id)]


def test_of_equal_ones_one_is_told_and_the_lowest_id_is_next() -> None:
    link = told()
    equal = [about(number, "x > 0") for number in (5, 2, 3)]
    assert [len(link.add(subscription)) for subscription in equal] == [1, 0, 0]
    assert link.remove(equal[0].id) == [Subscribe(equal[1]), Unsubscribe(equal[0].id)]
    assert link.remove(equal[1].id) == [Subscribe(equal[2]), Unsubscribe(equal[1].id)]


def test_a_suppressed_one_may_go_unnoticed_and_twice_is_once() -> None:
    link = told()
    wide, narrow = about(1, "x > 0"), about(2, "x > 3")
    link.add(wide)
    link.add(narrow)
    assert link.add(narrow) == link.add(wide) == []
    assert link.remove(narrow.id) == link.remove(narrow.id) == []
    assert link.remove(wide.id) == [Unsubscribe(wide.id)]
    assert link.remove(wide.id) == []
