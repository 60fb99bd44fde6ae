"""One box for many near ones: what it may cost, and that nothing is missed."""

from __future__ import annotations

import itertools
import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.simulation.event_router import EventRouter
from lengths import long_but
from overlay.networks import TYPES, Network, Tree
from overlay.test_suppressing import about
from rtfilter.overlay.broker_names import SubscriptionId
from rtfilter.overlay.routing_messages import RouterSubscribe, RouterSubscription, RouterUnsubscribe
from rtfilter.overlay.suppressing import MergingForwarding
from rtfilter.predicates.predicate import Predicate


def told(slack: float) -> MergingForwarding:
    numbers = itertools.count(1)
    return MergingForwarding(
        lambda s: Predicate.parse(s.condition, TYPES[s.type]),
        slack,
        lambda: SubscriptionId("own", 1, next(numbers)),
    )


def own(number: int, condition: str) -> RouterSubscription:
    return RouterSubscription(SubscriptionId("own", 1, number), "alarm", condition)


def test_near_boxes_become_one() -> None:
    link = told(0.2)
    one, two = about(1, "x BETWEEN 0 AND 4"), about(2, "x BETWEEN 5 AND 10")
    wide = own(1, "x BETWEEN 0.0 AND 10.0")
    assert link.add(one) == [RouterSubscribe(one)]
    assert link.add(two) == [RouterSubscribe(wide), RouterUnsubscribe(one.id)]
    assert list(link.sent()) == [wide]
    assert (link.suppressed, link.merged) == (2, 1)
    assert link.add(about(3, "x BETWEEN 4.2 AND 4.5")) == []


def test_far_boxes_and_open_ones_stay_apart() -> None:
    link = told(0.2)
    conditions = ("x BETWEEN 0 AND 1", "x BETWEEN 2 AND 3", "x > 9", "x IS NULL", "x = 7 OR x = 8")
    for number, condition in enumerate(conditions):
        assert link.add(about(number, condition)) == [RouterSubscribe(about(number, condition))]
    assert link.merged == 0


def test_when_a_part_goes_the_others_are_told_before() -> None:
    link = told(0.2)
    parts = [about(1, "x BETWEEN 0 AND 4"), about(2, "x BETWEEN 4 AND 8"), about(3, "x BETWEEN 8 AND 12")]
    for part in parts:
        link.add(part)
    (wide,) = link.sent()
    assert link.remove(parts[1].id) == [
        RouterSubscribe(parts[0]),
        RouterSubscribe(parts[2]),
        RouterUnsubscribe(wide.id),
    ]
    assert link.remove(parts[0].id) == [RouterUnsubscribe(parts[0].id)]
    assert link.remove(parts[2].id) == [RouterUnsubscribe(parts[2].id)]
    assert (link.suppressed, link.merged, list(link.sent())) == (0, 0, [])


def test_what_another_one_replaces_goes_without_a_word() -> None:
    link = told(0.2)
    former, near = about(1, "x BETWEEN 0 AND 4"), about(2, "x BETWEEN 5 AND 10")
    link.add(former)
    link.add(near)
    (wide,) = link.sent()
    grown = about(3, "x BETWEEN 0 AND 4.5")
    assert link.add(grown) == []
    assert link.remove(former.id) == []
    assert list(link.sent()) == [wide]
    assert (link.suppressed, link.merged) == (2, 1)
    assert link.remove(grown.id) == [RouterSubscribe(near), RouterUnsubscribe(wide.id)]
    assert link.remove(near.id) == [RouterUnsubscribe(near.id)]
    assert (link.suppressed, link.merged, list(link.sent())) == (0, 0, [])


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), slack=st.sampled_from((0.0, 0.1, 0.4, 0.9)))
@settings(max_examples=25)
def test_all_are_covered_and_little_is_empty(seed: int, slack: float) -> None:
    rng = random.Random(seed)
    link = told(slack)
    live: dict[SubscriptionId, Predicate] = {}
    known: dict[SubscriptionId, Predicate] = {}
    for number in range(25):
        messages = []
        if live and rng.random() < 0.3:
            id = rng.choice(list(live))
            del live[id]
            messages = link.remove(id)
        else:
            low, left = rng.randint(0, 30), rng.randint(0, 9)
            condition = f"x BETWEEN {low} AND {low + rng.randint(0, 6)} AND y BETWEEN {left} AND {left + 2}"
            new = RouterSubscription(SubscriptionId("a", 1, number), "trade", condition)
            live[new.id] = Predicate.parse(condition, TYPES["trade"])
            messages = link.add(new)
        for message in messages:  # as the neighbour hears them
            if isinstance(message, RouterSubscribe):
                condition = message.subscription.condition
                known[message.subscription.id] = Predicate.parse(condition, TYPES["trade"])
            elif isinstance(message, RouterUnsubscribe):
                del known[message.id]
            if not isinstance(message, RouterSubscribe):
                assert all(any(wide.covers(one) for wide in known.values()) for one in live.values())
        assert known.keys() == {sent.id for sent in link.sent()}
    for wide in known.values():
        low, high, bottom, top = (float(side.value) for side in wide.filters[0].constraints)
        events = [{"x": rng.uniform(low, high), "y": rng.uniform(bottom, top)} for _ in range(300)]
        for_nobody = sum(not any(one.matches(event) for one in live.values()) for event in events)
        assert for_nobody / len(events) <= slack + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", long_but(["profile_forwarding", "hybrid", "rendezvous"], ["hybrid"]))
def test_merging_takes_smaller_tables_for_more_messages(strategy: str) -> None:
    rng = random.Random(2)
    tree = Tree.random(rng, 8)
    boxes = [(rng.choice(tree.brokers), rng.uniform(0, 90), rng.uniform(0, 90)) for _ in range(30)]
    events = [(rng.choice(tree.brokers), rng.uniform(0, 100), rng.uniform(0, 100)) for _ in range(60)]
    rows = []
    for slack in (None, 0.0, 0.3, 0.6):
        make = partial(EventRouter, incarnation=1, types=TYPES, strategy=strategy, covering=True, slack=slack)
        network = Network(tree, make=make)
        for broker, x, y in boxes:
            condition = f"x BETWEEN {x} AND {x + 10} AND y BETWEEN {y} AND {y + 10}"
            network.subscribe(f"{broker}/1", "trade", condition)
        network.run()
        for broker, x, y in events:
            network.publish(broker, "trade", {"x": x, "y": y})
        network.run()
        delivered = {name: sorted(ids) for name, ids in network.received.items()}
        entries = sum(len(router.table) for router in network.routers.values())
        rows.append((entries, network.counts["Event"], delivered))
    entries, messages, delivered = zip(*rows, strict=True)
    assert delivered == (delivered[0],) * 4
    assert entries[0] == entries[1] > entries[2] > entries[3]
    assert messages[0] == messages[1] <= messages[2] <= messages[3]
