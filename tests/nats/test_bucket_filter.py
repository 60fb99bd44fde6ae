"""Changes of a bucket in a filter, and snapshots."""

import functools
import itertools
import json
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.nats.bucket_entries import BucketChange
from rtfilter.nats.bucket_filter import BucketFilter
from rtfilter.nats.subjects import DEFINITION, MARK, BucketShard

PRICES = Definition(Schema({"price": float, "symbol": str}))


def value(where, user="ann", **more):
    return json.dumps({"where": where, "user": user, **more}).encode()


def put(key, revision, where="price < 10", created=1000.0, **more):
    return BucketChange(key, revision, value(where, **more), created)


def removed(key, revision):
    return BucketChange(key, revision, None, 1000.0)


def made(shard=None, **more):
    clock = [1000.0]
    held = BucketFilter(PRICES, shard or BucketShard(), clock=lambda: clock[0], **more)
    held.moment = clock
    return held


def matches(held, price=5):
    return sorted(held.filter.match({"price": price}).tolist())


def test_changes_are_applied_in_order():
    held = made()
    assert held.apply([put("a", 1), put("b", 2, "price > 3", user="bob"), put("c", 3)]) == []
    assert held.users == {"a": "ann", "b": "bob", "c": "ann"}
    assert matches(held) == ["a", "b", "c"]
    held.apply([put("a", 4, "price > 8"), removed("b", 5), removed("c", 6), put("c", 7, user="eve")])
    assert matches(held) == ["c"]
    assert held.users == {"a": "ann", "c": "eve"}
    assert (held.revision, held.keys, held.changed) == (7, 3, 7)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no object"),
        (b"[]", "no object"),
        (b"\xff", "no object"),
        (b'{"user": "ann"}', "where"),
        (b'{"where": 5, "user": "ann"}', "where"),
        (b'{"where": "price <", "user": "ann"}', "not an SQL condition"),
        (b'{"where": "cost < 1", "user": "ann"}', "cost"),
        (b'{"where": "price < 1"}', '"user" is missing'),
        (b'{"where": "price < 1", "user": "ann", "tll": 5}', "tll"),
        (b'{"where": "price < 1", "user": "ann", "ttl": 0}', "ttl"),
        (b'{"where": "price < 1", "user": "ann", "ttl": 1e300}', "ttl"),
        (b'{"where": "price < 1", "user": "ann", "metadata": 5}', "metadata"),
    ],
)
def test_a_wrong_value_is_refused_and_replaces(body, why):
    held = made()
    held.apply([put("a", 1), put("b", 2)])
    (refusal,) = held.apply([BucketChange("a", 3, body, 1000.0)])
    assert (refusal.key, refusal.revision) == ("a", 3)
    assert why in refusal.reason
    assert matches(held) == ["b"]
    assert list(held.refused) == ["a"]
    assert held.keys == 2
    assert held.apply([put("a", 4)]) == []
    assert held.refused == {}
    assert matches(held) == ["a", "b"]


def test_too_many_unbounded_subscriptions_are_refused():
    schema = Schema({"bid": float, "ask": float})
    held = BucketFilter(Definition(schema, max_unbounded=2), BucketShard())
    refusals = held.apply([put(f"k{i}", i + 1, "bid >= ask") for i in range(4)])
    assert len(refusals) == 2
    assert len(held.users) == 2


def test_patterns_and_metadata():
    held = made()
    assert not held.apply([put("a", 1, {"price": [{"numeric": ["<", 10]}]}, metadata={"x": [1]})])
    assert matches(held) == ["a"]


def test_a_time_to_live_counts_from_the_engine():
    held = made()
    held.moment[0] = 1005.0
    held.apply([put("a", 1, ttl=4), put("b", 2, ttl=6), put("c", 3, ttl=60, created=1004)])
    assert matches(held) == ["b", "c"]
    held.moment[0] = 1007.0
    assert matches(held) == ["c"]
    assert held.keys == 3
    held.apply([put("a", 4, ttl=60, created=1007)])
    assert matches(held) == ["a", "c"]


def test_the_bucket_may_limit_the_age_of_all():
    held = made()
    held.apply([put("a", 1, ttl=100), put("b", 2, ttl=5), put("c", 3)], max_age=10)
    held.moment[0] = 1006.0
    assert matches(held) == ["a", "c"]
    held.moment[0] = 1011.0
    assert matches(held) == []


def test_keys_of_workers_are_no_subscriptions():
    held = made()
    assert held.apply([put(DEFINITION, 1), BucketChange(MARK, 2, None, 1000.0)]) == []
    assert (held.users, held.keys, held.revision) == ({}, 2, 2)


def test_shards_share_the_subscriptions():
    shards = [made(BucketShard(number, 3)) for number in (1, 2, 3)]
    for held in shards:
        held.apply([put(f"k{i}", i + 1) for i in range(60)] + [removed("k7", 61)])
    found = [matches(held) for held in shards]
    assert sorted(functools.reduce(operator.iadd, found, [])) == sorted(f"k{i}" for i in range(60) if i != 7)
    assert all(found)


def test_keys_that_are_gone_without_a_message():
    held = made()
    held.apply([put("a", 1), put("b", 2), removed("c", 3), BucketChange("d", 4, b"", 1000.0)])
    assert held.keep_only({"b", "x"}) == 1
    assert (matches(held), held.keys, held.refused) == (["b"], 1, {})


def test_a_snapshot_is_loaded(tmp_path):
    held = made(bucket="then")
    held.apply([put("a", 1), put("b", 2, user="bob"), removed("c", 3), BucketChange("d", 4, b"", 1000.0)])
    held.save(tmp_path, held.table())
    assert held.changed == 0
    held.apply([put("e", 5)])
    held.save(tmp_path, held.table())
    assert [path.name for path in tmp_path.iterdir()] == ["5"]
    again = made(bucket="then")
    assert again.load(tmp_path, 9)
    assert (again.users, again.revision, again.keys) == (held.users, 5, 5)
    assert again.refused == held.refused
    assert again.refused.keys() == {"d"}
    assert matches(again) == ["a", "b", "e"]
    again.apply([removed("a", 6)])
    assert matches(again) == ["b", "e"]


def test_an_index_may_be_newer_than_its_table(tmp_path):
    held = made()
    held.apply([put("a", 1), put("b", 2)])
    table = held.table()
    later = [removed("a", 3), put("c", 4), put("b", 5, "price > 8", user="bob")]
    held.apply(later)
    held.save(tmp_path, table)
    again = made()
    assert again.load(tmp_path, 5)
    assert again.revision == 2
    again.apply(later)
    assert (matches(again), again.users) == (["c"], {"c": "ann", "b": "bob"})


@pytest.mark.parametrize(
    "change",
    [
        {"bucket": "another"},
        {"needs_user": False},
        {"last": 1},
        {"definition": Definition(Schema({"price": float}))},
    ],
)
def test_a_snapshot_of_another_bucket_is_not_used(tmp_path, change):
    held = made()
    held.apply([put("a", 1), put("b", 2)])
    held.save(tmp_path, held.table())
    last = change.pop("last", 9)
    given = {"definition": PRICES, "shard": BucketShard()} | change
    other = BucketFilter(given.pop("definition"), given.pop("shard"), **given)
    assert not other.load(tmp_path, last)
    assert (other.revision, len(other.filter)) == (0, 0)


@pytest.mark.parametrize("damage", ["table", "index/manifest.json"])
def test_a_damaged_snapshot_is_not_used(tmp_path, damage):
    held = made()
    held.apply([put("a", 1)])
    held.save(tmp_path, held.table())
    (tmp_path / "1" / damage).write_bytes(b"\x00")
    assert not made().load(tmp_path, 9)
    assert not made().load(tmp_path / "nothing", 9)


KEYS = st.sampled_from("abcde")
STEPS = st.lists(st.tuples(KEYS, st.sampled_from([None, 3, 10, -1])), max_size=30)


@given(STEPS, st.lists(st.integers(0, 30), max_size=4))
def test_any_changes_in_any_chunks_leave_the_last_ones(steps, cuts):
    changes = [
        BucketChange(
            key, at + 1, None if limit is None else value(f"price < {limit}" if limit > 0 else "x"), 1000.0
        )
        for at, (key, limit) in enumerate(steps)
    ]
    held, ends = made(), sorted({0, *(min(cut, len(steps)) for cut in cuts), len(steps)})
    for first, after in itertools.pairwise(ends):
        held.apply(changes[first:after])
    last = dict(steps)
    assert matches(held) == sorted(key for key, limit in last.items() if limit == 10)
    assert set(held.users) == {key for key, limit in last.items() if limit in (3, 10)}
    assert set(held.refused) == {key for key, limit in last.items() if limit == -1}
    assert held.keys == len(last)
