"""Keys, subjects, shards and message ids."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.nats import id_of, key_of
from rtfilter.nats.subjects import (
    RESERVED,
    BucketShard,
    Subject,
    message_id,
    origin_of,
    shard_of,
    token_of,
)

KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")
"""The keys that clients of NATS accept; none begins or ends with a dot, or has two in a row."""
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


@given(TEXTS | st.text("a./=2E \u00e9", min_size=1))
def test_each_text_has_a_key_that_leads_back(id):
    key = key_of(id)
    assert KEY.fullmatch(key)
    assert ".." not in key
    assert key.strip(".") == key
    assert key not in RESERVED
    assert id_of(key) == id


@pytest.mark.parametrize("key", ["=4", "YWJj=", "a=zz", "=definition", "=FF", "=61"])
def test_a_key_of_others_stands_for_itself(key):
    assert id_of(key) == key


def test_an_empty_id_has_no_key():
    with pytest.raises(ValueError, match="not empty"):
        key_of("")


@given(TEXTS, TEXTS)
def test_users_have_different_tokens(one, other):
    assert re.fullmatch(r"[-=\w]+", token_of(one), re.ASCII)
    assert (token_of(one) == token_of(other)) == (one == other)


@pytest.mark.parametrize(
    ("template", "field", "wildcard", "subject"),
    [
        ("matches.{user}", "user", "matches.*", "matches.a=2Eb=20c"),
        ("a.{user}.b", "user", "a.*.b", "a.a=2Eb=20c.b"),
        ("m.{subscription}", "subscription", "m.>", "m.a.b c"),
        ("all", None, "all", "all"),
    ],
)
def test_a_subject_has_a_receiver(template, field, wildcard, subject):
    made = Subject(template)
    assert (made.field, made.wildcard, made.of("a.b c")) == (field, wildcard, subject)


@pytest.mark.parametrize(
    "template",
    [
        "",
        "a b",
        "a.>",
        "*",
        "a..b",
        ".a",
        "{",
        "{}",
        "{user!r}",
        "{user:5}",
        "{x}",
        "a{user}",
        "{subscription}.b",
        "{user}.{user}",
        "a.\n",
    ],
)
def test_a_wrong_subject_is_refused(template):
    with pytest.raises(ValueError, match=r"subject|braces|dots around|last"):
        Subject(template)


@given(TEXTS, st.integers(1, 9))
def test_each_key_is_in_one_shard(key, count):
    shards = [BucketShard(number, count) for number in range(1, count + 1)]
    assert [shard.has(key) for shard in shards].count(True) == 1


def test_shards_stay_the_same():
    assert [shard_of(key, 5) for key in ("a", "b", "ann.1", "\u00e9")] == [2, 1, 0, 1]
    assert BucketShard.of("2/5").suffix == "-2-5"
    assert BucketShard.of("1/1").suffix == ""


@pytest.mark.parametrize("text", ["0/5", "6/5", "1", "a/b", "-1/5", "1/0", "1/5 "])
def test_a_wrong_shard_is_refused(text):
    with pytest.raises(ValueError, match="shard"):
        BucketShard.of(text)


ROWS = st.tuples(st.integers(1, 99), st.integers(0, 99), TEXTS)


@given(ROWS, ROWS)
def test_matches_have_different_ids(one, other):
    origin = origin_of("trades", BucketShard(), "events", "2026-11-27")
    assert (message_id(origin, *one) == message_id(origin, *other)) == (one == other)


def test_shards_and_streams_have_different_origins():
    streams = [("a", "2026"), ("a", "2027"), ("b", "2026")]
    shards = [BucketShard(), BucketShard(1, 2), BucketShard(2, 2)]
    found = {origin_of("trades", shard, *stream) for shard in shards for stream in streams}
    assert len(found) == 9
