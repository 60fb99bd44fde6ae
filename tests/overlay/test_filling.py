"""What a new neighbour gets at once, where there is too much to look for covering subscriptions."""

import pytest

from rtfilter import Schema
from rtfilter.overlay import suppressing
from rtfilter.overlay.broker_names import SubscriptionId
from rtfilter.overlay.routing_messages import RouterSubscribe, RouterSubscription, RouterUnsubscribe
from rtfilter.overlay.suppressing import CoveringForwarding
from rtfilter.predicates.predicate import Predicate

SCHEMA = Schema({"x": int})


def subscription(number, low):
    return RouterSubscription(SubscriptionId("b", 1, number), "trade", f"x > {low}")


def read(one):
    return Predicate.parse(one.condition, SCHEMA)


@pytest.mark.parametrize(("few", "sent"), [(100, 1), (5, 10)])
def test_many_subscriptions_are_sent_though_others_cover_them(few, sent, monkeypatch):
    monkeypatch.setattr(suppressing, "FEW", few)
    made, all = CoveringForwarding(read), [subscription(number, number) for number in range(10)]
    made.fill([*all, all[0]])
    assert len(made.sent()) == sent
    assert made.suppressed == 10 - sent
    later = subscription(11, 20)
    assert made.add(later) == []  # a covering one is known
    assert made.is_confirmed(later.id) == made.is_confirmed(made._waiting[later.id][1])


def test_what_was_sent_together_can_be_removed(monkeypatch):
    monkeypatch.setattr(suppressing, "FEW", 1)
    made, (wide, narrow) = CoveringForwarding(read), (subscription(1, 0), subscription(2, 5))
    made.fill([wide, narrow])
    later = subscription(3, 9)
    made.add(later)
    first = made._waiting[later.id][1]
    other = {wide.id, narrow.id} - {first}
    assert made.remove(first)[-1] == RouterUnsubscribe(first)
    assert made._waiting[later.id][1] in other
    assert made.remove(other.pop())[0] == RouterSubscribe(later)
