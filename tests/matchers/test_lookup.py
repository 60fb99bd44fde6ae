"""Patterns with a long beginning or end, which a hash table finds where six bytes tell too little."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interrupts import Interrupt, Lines
from oracle import as_sets, subscribers
from rtfilter import EventFilter, Schema
from rtfilter.adaptive import FixedPlan
from rtfilter.matchers import equal_sides, lookup, rtree
from rtfilter.matchers.equal_sides import CROWDED
from rtfilter.matchers.lookup import AffixColumns
from rtfilter.predicates.boxes.affixes import BEGINNING, END, LONGEST, affix_of
from rtfilter.predicates.boxes.compiling import compile_predicate
from rtfilter.predicates.predicate import parse
from rtfilter.replay.rtree_peer import RtreePeer
from rtfilter.spark.subscribing import hulls

SCHEMA = Schema({"host": str, "path": str, "n": int})
TEXTS = [
    "",
    "a",
    "Site7.example.net",
    "site7.EXAMPLE.net",
    "ßite7.example.net",
    "x.site7.example.net",
    "é" * 9,
]
texts = st.one_of(
    st.sampled_from(TEXTS),
    st.builds("{}.site{}.example.net".format, st.sampled_from("abAB"), st.integers(0, 12)),
    st.builds("/shared/{}/{}".format, st.integers(0, 12), st.sampled_from(["", "index.html", "INDEX.html"])),
)
parts = st.builds(lambda text, at: text[at:], texts, st.integers(0, 9)) | texts
patterns = st.one_of(
    parts.map("{}%".format),
    parts.map("%{}".format),
    parts.map("%{}%".format),
    st.builds("{}%{}".format, parts, parts),
)
quoted = patterns.map(lambda pattern: "'" + pattern + "'")
conditions = st.one_of(
    st.builds("host LIKE {}".format, quoted),
    st.builds("path LIKE {}".format, quoted),
    st.builds("LOWER(host) LIKE {}".format, quoted.map(str.lower)),
    st.builds("host LIKE {} AND path LIKE {} AND n < {}".format, quoted, quoted, st.integers(0, 3)),
    st.builds("host LIKE {} OR host LIKE {}".format, quoted, quoted),
    st.builds("host NOT LIKE {} AND n = {}".format, quoted, st.integers(0, 3)),
    st.sampled_from(["host IS NOT NULL", "n > 1", "host = 'Site7.example.net'", "path IS NULL AND n = 1"]),
)
events = st.fixed_dictionaries(
    {}, optional={"host": texts, "path": texts | st.just(7), "n": st.integers(0, 3)}
)


@pytest.fixture(scope="module", autouse=True)
def all_crowds():
    """A single box is looked up as well as many that are alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rtree, "FEW", 0)
        yield


def candidates(filter):
    return filter.stats()["verified"]["candidates"]


def rules(count):
    return [f"host LIKE '%.site{number}.example.net'" for number in range(count)]


@pytest.mark.parametrize("matcher", ["rtree", "split", "scan"])
@given(
    first=st.lists(conditions, max_size=12),
    then=st.lists(conditions, max_size=4),
    given=st.lists(events, max_size=8),
)
def test_matches_are_those_of_the_predicates_after_any_change(matcher, first, then, given):
    filter = EventFilter(SCHEMA, matcher=matcher, max_unbounded=None, controller=FixedPlan(0, 2))
    filter.subscribe_many(first)
    held = dict(enumerate(first))
    for id, where in enumerate(then):
        if id in held:
            filter.update(id, where)
            held[id] = where
    for id in list(held)[1::3]:
        filter.unsubscribe(id)
        del held[id]
    predicates = {id: parse(where, SCHEMA) for id, where in held.items()}
    expected = subscribers(predicates, given)
    for one in (filter, pickle.loads(pickle.dumps(filter))):
        assert as_sets(one.match_batch(given)) == expected
        assert as_sets(one.stream(given).matches()) == expected
        assert [set(one.match(event).tolist()) for event in given] == expected


@pytest.mark.parametrize("matcher", ["rtree", "split"])
def test_events_try_those_that_ask_for_their_end(matcher):
    """All have the same last six bytes, so their boxes tell nothing."""
    filter = EventFilter(SCHEMA, matcher=matcher)
    filter.subscribe_many(rules(2000))
    assert filter.match({"host": "a.site77.example.net"}).tolist() == [77]
    assert candidates(filter) == 1
    assert filter.stats()["looked_up"] == 2000


@pytest.mark.parametrize("matcher", ["rtree", "split"])
def test_a_subscription_with_two_ends_is_found_once(matcher):
    filter = EventFilter(SCHEMA, matcher=matcher)
    filter.subscribe_many([*rules(9), "host LIKE '%.site1.example.net' OR host LIKE '%e1.example.net'"])
    assert sorted(filter.match({"host": "a.site1.example.net"}).tolist()) == [1, 9]


def test_a_filter_that_grows_copies_what_boxes_tell():
    filter = EventFilter(SCHEMA, matcher="scan")
    filter.subscribe_many(rules(200))
    copy = EventFilter(SCHEMA, matcher="rtree")
    copy._subscriptions.matcher.add(filter._subscriptions.matcher.content())
    assert copy.stats()["looked_up"] == 200


def test_a_snapshot_has_what_the_table_alone_knows(tmp_path):
    filter = EventFilter(SCHEMA, matcher="rtree")
    filter.subscribe_many([*rules(50), "host LIKE '%.site7.example.net' OR host LIKE '%.site8.example.net'"])
    filter.update(3, "host LIKE '%.site9.example.net'")
    filter.save(tmp_path / "index")
    loaded = EventFilter.load(tmp_path / "index")
    asked = [{"host": f"a.site{number}.example.net"} for number in range(50)]
    assert as_sets(loaded.match_batch(asked)) == as_sets(filter.match_batch(asked))
    own, other = (one._subscriptions.matcher.content().boxes() for one in (filter, loaded))
    for mine, its in zip(own, other, strict=True):
        assert np.array_equal(mine, its)


@pytest.mark.parametrize(
    ("ends", "looked_up"), [(["a.example"], 24), (["a.example", "b.network"], 8), (range(100000, 100040), 0)]
)
def test_few_boxes_that_are_alike_are_left_to_the_tree(monkeypatch, ends, looked_up):
    monkeypatch.setattr(rtree, "FEW", 16)
    filter = EventFilter(SCHEMA, matcher="rtree")
    for at in range(40):
        filter.subscribe(f"host LIKE '%.{at}{ends[at % len(ends)]}'")
    assert filter.stats().get("looked_up", 0) == looked_up
    assert filter.match({"host": f"x.7{ends[7 % len(ends)]}"}).tolist() == [7]


@pytest.mark.parametrize(
    ("where", "looked_up"),
    [
        ("host LIKE '%.example.net'", lookup.PIECE + 9),
        ("LOWER(host) LIKE 'a.example.%'", lookup.PIECE + 9),
        ("host LIKE 'a.example.%'", lookup.PIECE + 9),
        ("host LIKE '%.example.net' AND n < 3", lookup.PIECE),
        ("host LIKE 'a%.example.net'", lookup.PIECE),
        ("host LIKE 'a.example.%t'", lookup.PIECE),
    ],
)
def test_too_many_of_one_end_are_left_to_the_tree_if_it_knows_more_of_them(where, looked_up):
    filter = EventFilter(SCHEMA, matcher="rtree")
    filter.subscribe_many([where] * (lookup.PIECE + 9))
    assert filter.stats()["looked_up"] == looked_up >= CROWDED
    assert len(filter.match({"host": "a.example.net", "n": 1})) == lookup.PIECE + 9


@pytest.mark.parametrize(("more", "looked_up"), [("", 24), (" AND n = {}", 0)])
def test_boxes_that_span_either_case_are_alike(monkeypatch, more, looked_up):
    """Each spans nearly all texts, from the upper to the lower case of its first letter."""
    monkeypatch.setattr(rtree, "FEW", 16)
    filter = EventFilter(SCHEMA, matcher="rtree")
    for at in range(40):
        filter.subscribe(f"LOWER(host) LIKE 'site{at:03d}.%'" + more.format(at))
    assert filter.stats().get("looked_up", 0) == looked_up
    assert filter.match({"host": "Site007.example", "n": 7}).tolist() == [7]
    assert candidates(filter) <= 17


def test_boxes_with_other_beginnings_are_not_alike(monkeypatch):
    monkeypatch.setattr(rtree, "FEW", 16)
    filter = EventFilter(SCHEMA, matcher="rtree")
    for at in range(40):
        filter.subscribe(f"host LIKE 'u{at:02d}%.example.net'")
    assert filter.stats().get("looked_up", 0) == 0
    assert filter.match({"host": "u07.example.net"}).tolist() == [7]
    assert candidates(filter) == 1


def test_related_subscriptions_are_found_in_the_table():
    filter = EventFilter(SCHEMA, matcher="rtree")
    filter.subscribe_many(["host LIKE '%.site1.example.net'", "host LIKE '%.example.net'", "n = 1"])
    assert filter.related("host LIKE '%.b.site1.example.net'").covers.ids.tolist() == [0, 1]
    assert filter.related("host LIKE '%ple.net'").covered.ids.tolist() == [0, 1]
    assert filter.related("host LIKE '%.example.net'").equal.ids.tolist() == [1]


def test_boxes_are_selected_as_wide_as_they_are():
    filter = EventFilter(SCHEMA, matcher="rtree", max_unbounded=None)
    where = [
        "host LIKE '%.site1.example.net'",
        "path LIKE '/shared/%' AND host LIKE '%.site1.example.net'",
        "n = 1",
    ]
    filter.subscribe_many(where)
    for asked, how, found in (
        ("host = 'a.site1.example.net'", "intersect", [0, 1, 2]),
        ("host LIKE '%.b.site1.example.net'", "contain", [0]),
        ("host = 'a.site1.example.net'", "within", []),
    ):
        boxes = compile_predicate(parse(asked, SCHEMA), SCHEMA)
        hits = filter._subscriptions.matcher.search_boxes(boxes.low, boxes.high, how)
        assert hits.ids.tolist() == found
        assert hits.offsets.tolist() == [0, len(found)]


def test_boxes_are_shown_as_wide_as_they_are():
    """Shards and peers are built from the boxes of the tree."""
    filter = EventFilter(SCHEMA, matcher="rtree")
    filter.subscribe_many(["host LIKE '%.site1.example.net'", "path LIKE '/shared/%'"])
    points = SCHEMA.encode([{"host": "a.site1.example.net", "path": "/shared/1"}])
    _, low, high = hulls(filter)
    assert (low <= points).all()
    assert (points <= high).all()
    assert RtreePeer(filter).response(points)[1] == [{0, 1}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "where", ["host LIKE '%.site9.example.net'", "n = 2", "host LIKE '%.site8.example.net' OR n = 2"]
)
@pytest.mark.parametrize("before", ["host LIKE '%.site1.example.net'", "n = 1"])
def test_an_update_that_is_cut_short_leaves_all_or_nothing(before, where):
    asked = [{"host": f"a.site{number}.example.net", "n": number % 3} for number in range(10)]

    def ready():
        filter = EventFilter(SCHEMA, matcher="rtree")
        filter.subscribe_many([before, "host LIKE '%.example.net'"])
        return filter

    filter = ready()
    with Lines([equal_sides, lookup, rtree]) as lines:
        filter.update(0, where)
    expected = [as_sets(ready().match_batch(asked)), as_sets(filter.match_batch(asked))]
    for at in lines.ends():
        filter = ready()
        with Lines([equal_sides, lookup, rtree], at), pytest.raises(Interrupt):
            filter.update(0, where)
        found = filter.match_batch(asked)
        assert as_sets(found) in expected
        assert len(found.ids) == sum(map(len, as_sets(found)))  # none twice
        filter.update(0, where)
        assert as_sets(filter.match_batch(asked)) == expected[1]
        filter.unsubscribe(0)
        assert as_sets(filter.match_batch(asked)) == [{1}] * 10


@pytest.mark.parametrize(
    ("operator", "constant", "length", "kind"),
    [
        ("prefix", "abcdef", 0, BEGINNING),
        ("prefix", "abcdefg", 7, BEGINNING),
        ("like", "abcdefg%tuvwxyz0", 8, END),
        ("like", "%a%", 0, BEGINNING),
        ("ignore case", "abcdefg", 7, END),
        ("prefix", "a" * 999, LONGEST, BEGINNING),
    ],
)
def test_the_longer_of_beginning_and_end_is_told(operator, constant, length, kind):
    assert affix_of(operator, constant)[:2] == (length, kind)


def test_columns_return_the_boxes_they_were_given():
    columns = AffixColumns(SCHEMA)
    boxes = compile_predicate(parse("host LIKE '%.example.net' AND path LIKE '/shared/a%'", SCHEMA), SCHEMA)
    for side, same in zip(boxes, columns.plain(*columns.of_boxes(boxes.low, boxes.high)), strict=False):
        assert np.array_equal(side, same)
