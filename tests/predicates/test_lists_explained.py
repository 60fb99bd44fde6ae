"""Predicates and explanations on events with lists, beside the choices of the oracle."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import choices, satisfied
from predicate_cases import conditions, sql
from rtfilter import EventError, EventFilter, Predicate, PredicateError, Schema
from rtfilter.events.elements import MAX_CHOICES

SCHEMA = Schema({"x": float, "tags": str, "staff.name": str, "staff.role": str, "staff.pay": float})
TYPES = {"x": float, "tags": str, "staff.name": str, "staff.pay": float}
TEXTS = st.sampled_from(["a", "ab", "b", None, 7])
NUMBERS = st.sampled_from([0, 1, 7, 2.5, None, "7"])


def some(one):
    """A value, or a list of values and lists."""
    return one | st.lists(one | st.lists(one, max_size=2), max_size=3)


STAFF = st.fixed_dictionaries({}, optional={"name": some(TEXTS), "role": TEXTS, "pay": some(NUMBERS)})
PLAIN = st.fixed_dictionaries({}, optional={"x": some(NUMBERS), "tags": some(TEXTS)})
EVENTS = st.fixed_dictionaries(
    {}, optional={"x": some(NUMBERS), "tags": some(TEXTS), "staff": STAFF | st.lists(STAFF, max_size=3)}
)
NULLS = st.sampled_from(["staff.role IS NULL", "staff.name IS NULL", "x IS NULL", "staff.role IS NOT NULL"])


WORDS = ("x < 5", "x < 2", "x = 7", "tags = 'a'", "tags LIKE 'a%'", "tags <> 'b'", "staff.name = 'a'")


@st.composite
def predicates(draw):
    """Predicates, of which many ask for missing attributes beside others."""
    simple = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(" AND ".join)
    text = draw(simple | conditions(TYPES).map(sql))
    if draw(st.booleans()):
        text = f"({text}) AND {draw(NULLS)}"
    try:
        return Predicate.parse(text, SCHEMA)
    except PredicateError:
        return Predicate.parse("x < 5 AND tags = 'a' AND staff.role IS NULL", SCHEMA)


@pytest.mark.slow
@settings(max_examples=120)
@given(predicates(), EVENTS)
def test_matches_and_explain_tell_what_the_choices_say(predicate, event):
    filter = EventFilter(SCHEMA, max_unbounded=None)
    filter.subscribe(predicate)
    wanted = satisfied(predicate, event)
    assert predicate.matches(event) is wanted
    assert (filter.match(event).tolist() == [0]) is wanted
    explanation = filter.explain(event, 0)
    assert explanation.matched is wanted
    table = filter.explain([event])
    assert (table.matched == 1) is wanted
    for one, own in zip(predicate.filters, explanation.filters, strict=True):
        rows = [{name: value for name, (value, _) in choice.items()} for choice in choices(event)]
        if not any(getattr(test, "operator", "") == "is null" for test in one.constraints):
            fewest = min(sum(not test.matches(row) for test in one.constraints) for row in rows)
            assert len(own.failing) == fewest
        for each in own.constraints:
            for path in filter_paths(each.element):
                assert element(event, path) is not None


def asks_for_none(predicate):
    tests = [test for one in predicate.filters for test in one.constraints]
    return any(getattr(test, "operator", "") == "is null" for test in tests)


@pytest.mark.slow
@settings(max_examples=150)
@given(predicates(), predicates(), st.lists(EVENTS, min_size=1, max_size=6), PLAIN)
def test_what_covers_does_so_for_lists_too(one, two, batch, plain):
    """Without IS NULL in the one that covers, or without objects in lists."""
    if one.covers(two):
        for event in [plain] if asks_for_none(one) else [*batch, plain]:
            assert satisfied(one, event) or not satisfied(two, event)


def test_what_covering_does_not_tell_of_lists():
    role, ann = (
        Predicate.parse(text, SCHEMA)
        for text in ("staff.role IS NULL", "staff.name = 'Ann' AND staff.role IS NULL")
    )
    event = {"staff": [{"name": "Ann"}, {"role": "bass"}]}
    assert role.covers(ann)
    assert (role.matches(event), ann.matches(event)) == (False, True)
    low, high = (Predicate.parse(text, SCHEMA) for text in ("x < 2", "x > 8"))
    assert low.intersects(high) is False
    assert low.matches({"x": [1, 9]})
    assert high.matches({"x": [1, 9]})


def filter_paths(text):
    """The elements that an explanation names."""
    return text.split(", ") if text else []


def element(event, path):
    """The value at a path such as ``staff[1].name[0]``."""
    for part in path.replace("]", "").replace("[", ".").split("."):
        event = event[int(part)] if part.isdigit() else event[part]
    return event


def explained(condition, event, schema=SCHEMA):
    filter = EventFilter(schema)
    filter.subscribe(condition)
    return filter.explain(event, 0)


def told(condition, event):
    """The lines of constraints of a report."""
    return [str(one) for own in explained(condition, event).filters for one in own.constraints]


def test_the_matching_element_is_told():
    assert told("tags = 'c'", {"tags": ["a", "b", "c"]}) == ["yes  tags = 'c': tags[2] is 'c'"]
    assert told("x > 5 AND x < 10", {"x": [100, [1, 7]]}) == [
        "yes  x > 5: x[1][1] is 7",
        "yes  x < 10: x[1][1] is 7",
    ]


def test_the_nearest_element_is_told():
    assert told("x = 5", {"x": [100, 7, -9]}) == ["no   x = 5: x[1] is 7, too high by 2"]
    event = {"staff": [{"name": "Ann", "pay": 1}, {"name": "Bob", "pay": [9, 4]}]}
    assert told("staff.name = 'Bob' AND staff.pay = 5", event) == [
        "yes  staff.name = 'Bob': staff[1].name is 'Bob'",
        "no   staff.pay = 5: staff[1].pay[1] is 4, too low by 1",
    ]


def test_an_element_that_must_be_missing_is_told():
    event = {"staff": [{"name": "Ann"}, {"name": "Bob", "role": "bass"}]}
    assert told("staff.role IS NULL", event) == [
        "no   staff.role IS NULL: staff[1].role is 'bass', must be missing"
    ]
    assert told("staff.name = 'Ann' AND staff.role IS NULL", event) == [
        "yes  staff.name = 'Ann': staff[0].name is 'Ann'",
        "yes  staff.role IS NULL: missing",
    ]


def test_comparisons_tell_their_elements():
    schema = Schema({"legs.bid": float, "legs.ask": float, "x": float})
    event = {"legs": [{"bid": 9, "ask": 1}, {"bid": 5, "ask": 4}], "x": 1}
    report = explained("legs.bid < legs.ask", event, schema)
    assert "legs.ask is 4 (of legs[1].bid, legs[1].ask), too high by 1" in str(report)
    assert "(of legs[1].bid)" in str(explained("legs.bid < x", event, schema))


def test_tables_tell_elements():
    filter = EventFilter(SCHEMA)
    filter.subscribe_many(["tags = 'c'", "x = 5"])
    found = filter.explain([{"tags": ["a", "b"], "x": [1, 6]}, {"tags": ["b", "c"], "x": 5}])
    assert (found.pairs, found.matched) == (4, 2)
    assert [(row.event, row.subscription, row.element) for row in found] == [
        (0, 1, "x[1]"),
        (0, 0, "tags[0]"),
    ]
    assert "6 (x[1])" in str(found)


def test_choices_are_counted(monkeypatch):
    filter = EventFilter(SCHEMA)
    filter.subscribe_many(["tags = 'c'", "x = 5"])
    monkeypatch.setattr("rtfilter.predicates.explanations.misses.MAX_PAIRS", 6)
    assert filter.explain([{"tags": list("ab")}, {"tags": "c"}]).pairs == 4
    with pytest.raises(ValueError, match="4 choices of elements and 2 subscriptions are more than 6 pairs"):
        filter.explain([{"tags": list("abc")}, {}])


def test_equal_elements_are_one_choice():
    tags = ["a"] * (2 * MAX_CHOICES) + ["b"]
    assert told("tags = 'b'", {"tags": tags}) == [f"yes  tags = 'b': tags[{2 * MAX_CHOICES}] is 'b'"]
    assert Predicate.parse("tags = 'b'", SCHEMA).matches({"tags": tags})


def test_too_many_choices_are_refused():
    with pytest.raises(EventError, match="1,001 choices"):
        Predicate.parse("tags = 'b'", SCHEMA).matches({"tags": [str(one) for one in range(1001)]})


def as_array(event):
    return np.array([[*event.values(), None, None, None]], object)


def as_frame(event):
    return pd.DataFrame([event])


def as_arrow(event):
    return pa.Table.from_pylist([event])


@pytest.mark.parametrize("form", [as_array, as_frame, as_arrow])
def test_only_lists_in_columns_that_subscriptions_use_are_counted(form):
    filter = EventFilter(SCHEMA)
    filter.subscribe("x > 1")
    table = form({"x": 2, "tags": [str(one) for one in range(1001)]})
    assert filter.match_batch(table).counts.tolist() == [1]
    assert filter.explain(table, 0).matched
    short = filter._road.reader.many(form({"x": 2, "tags": ["a", "b"]}))
    filter.subscribe("tags = 'b'")
    assert filter.match_batch(short).counts.tolist() == [2]  # it is read again
    for ask in (filter.match_batch, lambda table: filter.explain(table, 1)):
        with pytest.raises(EventError, match="1,001 choices"):
            ask(table)


@pytest.mark.parametrize("form", [dict, json.dumps, lambda event: json.dumps(event).encode()])
def test_explain_counts_only_lists_that_its_subscriptions_use(form):
    filter = EventFilter(SCHEMA)
    filter.subscribe_many(["x > 1", "tags = 'b'"])
    event = form({"x": 2, "tags": [str(one) for one in range(1001)]})
    assert filter.explain(event, 0).matched
    assert filter.explain([event], ids=[0]).matched == 1
    for asked in ({"id": 1}, {"ids": [0, 1]}, {}):
        with pytest.raises(EventError, match="1,001 choices"):
            filter.explain(event if "id" in asked else [event], **asked)


def test_objects_are_read_as_a_filter_reads_them():
    predicate = Predicate.parse("staff.name = 'Ann'", SCHEMA)
    assert predicate.matches({"staff": {"name": "Ann"}})
    assert predicate.matches({"staff.name": "Ann"})
    assert predicate.matches({"staff": [{"name": "Bob"}, {"name": ["Ann"]}]})
    assert not predicate.matches({"staff": []})
