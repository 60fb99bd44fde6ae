"""Lists of objects in JSON text are read by columns, and match as the dicts would that they stand for."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from matching.test_json_text import narrow
from oracle import as_sets
from rtfilter import EventFilter, Schema
from rtfilter.events import json_text

SCHEMA = Schema(
    {"kind": str, "n": int, "way.at.x": float, "way.at.y": float, "way.at.name": str, "way.n": int}
)
RULES = [
    "way.at.x > 1 AND way.at.y < 2",
    "way.at.x > 1 OR way.at.name = 'abcdefgh'",
    "way.at.x IS NULL AND kind = 'a'",
    "NOT (way.at.x > 1)",
    "way.at.name LIKE '%defgh' AND way.n > 0",
    "way.at.x > way.at.y",
    "way.at.x = n",
    {"way": {"at": {"x": [{"anything-but": 2}], "name": [{"exists": False}]}}},
]
QUANTIFIED = ["ALL(way.at.x > 0)", "ANY(way.at.name IN ('abcdefgh', 'b'))"]
numbers = st.integers(0, 3) | st.sampled_from([-0.0, 1.5, 2**60 + 1, None])
points = st.fixed_dictionaries(
    {},
    optional={
        "x": numbers,
        "y": numbers,
        "name": st.sampled_from(["abcdefgh", "é" * 7, None]),
        "z": st.just([{"x": 9}]),
    },
)
odd = st.sampled_from(
    [{"x": "text"}, {"x": [1, 2]}, {"x": {"deep": 1}}, 5, None, [], [{"x": 2}], {"z": 1}, {}]
)
at = points | st.lists(points, max_size=4) | st.lists(points | odd, max_size=3) | odd
ways = st.fixed_dictionaries({}, optional={"at": at, "n": numbers})
events = st.fixed_dictionaries(
    {}, optional={"kind": st.sampled_from(["a", "b"]), "n": numbers, "way": ways | st.lists(ways, max_size=2)}
)
plain = st.fixed_dictionaries(
    {"kind": st.sampled_from(["a", "b"])},
    optional={
        "n": numbers,
        "way": st.fixed_dictionaries({"at": st.lists(points.filter(len), min_size=1, max_size=4)}),
    },
)


def filled(rules, **options):
    filter = EventFilter(SCHEMA, **options)
    filter.subscribe_many(rules)
    return narrow(filter)


@pytest.mark.parametrize("matcher", ["scan", "rtree"])
@given(
    batch=st.lists(plain, min_size=1, max_size=5) | st.lists(events, min_size=1, max_size=4),
    quantified=st.booleans(),
)
@example(
    batch=[{"way": {"at": [{"x": 2, "y": 1}, {"x": 0, "y": 3}]}}, {"way": {"at": {"x": 2}}}], quantified=True
)
@example(batch=[{"way": {"at": [{"x": 2}]}}, {"way": {"at": [{"y": 2}]}}], quantified=False)
@example(batch=[{"n": 1, "way": {"at": [{"x": 1}, {"x": 2**60 + 1}], "n": 1}}] * 2, quantified=True)
def test_lists_in_text_are_matched_as_those_of_dicts(matcher, batch, quantified):
    filter = filled(RULES + QUANTIFIED * quantified, matcher=matcher)
    wanted = as_sets(filter.match_batch(batch))
    texts = [json.dumps(event).encode() for event in batch]
    assert as_sets(filter.match_batch(texts)) == wanted
    assert as_sets([filter.match(text) for text in texts]) == wanted
    assert as_sets(filter.stream(texts).matches()) == wanted
    assert filter.match_batch(texts).any.tolist() == [bool(ids) for ids in wanted]
    assert [filter.explain(text, 0).matched for text in texts] == [0 in ids for ids in wanted]


@pytest.mark.parametrize(
    ("at", "by_columns"),
    [
        ([{"x": 2, "y": 1}, {"x": 0, "z": [1]}], True),
        ({"x": 2, "y": 1}, True),
        ([{"x": 2, "y": 1}, {"z": 5}, {}], True),  # an element without any of these gives no choice
        ([{"x": [2], "y": 1}], False),
        ([], True),
        ([None], False),
        ([[{"x": 2, "y": 1}]], False),
        ([{"x": 2, "y": 1}, {"x": "text"}], False),
        ([{"x": 2, "y": 1}] * 1000, True),
    ],
)
def test_lists_of_flat_objects_are_read_by_columns(monkeypatch, at, by_columns):
    taken, read = [], json_text.read_lists

    def counted(*given):
        table = read(*given)
        taken.append(table is not None)
        return table

    monkeypatch.setattr(json_text, "read_lists", counted)
    filter = filled(RULES[:1])
    texts = [json.dumps({"way": {"at": one}}).encode() for one in (at, [{"x": 2, "y": 1}], {"x": 0})]
    assert as_sets(filter.match_batch(texts)) == [{0} if at and at != [None] else set(), {0}, set()]
    assert any(taken) == by_columns


def test_only_lists_that_subscriptions_use_are_counted():
    filter = EventFilter(SCHEMA)
    filter.subscribe("n > 1")
    text = json.dumps({"n": 2, "way": {"at": [{"x": at} for at in range(1001)]}})
    for _ in range(json_text.LOOKED_AT + 1):  # the first events are read completely
        assert filter.match(text).tolist() == [0]
    assert filter.match_batch([text] * 2).counts.tolist() == [1, 1]


def test_too_many_elements_are_refused_as_ever():
    text = json.dumps({"way": {"at": [{"x": at} for at in range(1001)]}}).encode()
    filter = filled(RULES[:1])
    for ask in (filter.match, lambda text: filter.match_batch([text, text])):
        with pytest.raises(ValueError, match=r"the list 'way\.at' has 1,001 choices of elements"):
            ask(text)
