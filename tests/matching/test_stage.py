"""The match step in a pipeline of someone else's."""

import pytest

from rtfilter import EventFilter, Schema, UnknownSubscriptionError
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.stage import RecipientStage


@pytest.fixture
def stage():
    return RecipientStage(EventFilter(Schema({"price": float})))


def test_an_event_comes_out_with_each_recipient_once(stage):
    stage.filter.subscribe("price > 0")  # of someone else
    stage.subscribe("ann", "price > 1")
    stage.subscribe("bob", "price > 2")
    stage.subscribe("ann", "price > 3")
    event = {"price": 4.0}
    handled = stage.handle(event)
    assert handled.event is event
    assert handled.recipients == ("ann", "bob")
    assert stage.handle({"price": 1.5}).recipients == ("ann",)
    assert stage.handle({"price": 0.5}).recipients == ()


def test_a_batch_gives_each_event_once(stage):
    for low in range(20):
        stage.subscribe(low % 3, f"price > {low}")
    events = [{"price": float(i)} for i in range(50)]
    handled = list(stage.handle_batch(events))
    assert sorted(one.event["price"] for one in handled) == [float(i) for i in range(50)]
    for event, recipients in handled:
        assert sorted(recipients) == sorted({low % 3 for low in range(20) if event["price"] > low})


def test_only_who_receives_is_a_recipient():
    there = {"ann"}
    stage = RecipientStage(EventFilter(Schema({"price": float})), there.__contains__)
    stage.subscribe("ann", "price > 0")
    stage.subscribe("bob", "price > 0")
    assert stage.handle({"price": 1.0}).recipients == ("ann",)
    there.add("bob")
    assert stage.handle({"price": 1.0}).recipients == ("ann", "bob")


def test_what_is_removed_matches_no_more(stage):
    id = stage.subscribe("ann", "price > 0")
    foreign = stage.filter.subscribe("price > 0")
    stage.unsubscribe(id)
    assert stage.handle({"price": 1.0}).recipients == ()
    for unknown in (id, foreign):
        with pytest.raises(UnknownSubscriptionError):
            stage.unsubscribe(unknown)
    assert foreign in stage.filter


def test_what_is_wrong_changes_nothing(stage):
    with pytest.raises(PredicateError):
        stage.subscribe("ann", "price >")
    with pytest.raises(EventError):
        stage.handle({"price": float("nan")})
    assert len(stage.filter) == 0
