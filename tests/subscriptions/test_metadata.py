"""Metadata: a small JSON object beside a subscription."""

import pickle

import pytest

from cases import cases
from kinds import EACH, KINDS, id_of
from rtfilter import EventFilter, Schema, UnknownSubscriptionError
from rtfilter.filter import part_of
from rtfilter.subscriptions.labels import LIMIT

SCHEMA = Schema({"x": float})
NOTE = {"team": "ops", "Grüße": ["é", 1, 2.5, None, True, {"a": {}}]}


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_metadata_is_kept_and_saved(kind, matcher, tmp_path):
    filter = EventFilter(SCHEMA, matcher=matcher)
    ids = [id_of(kind, number) for number in range(6)]
    filter.subscribe("x > 0", id=ids[0], metadata=NOTE)
    filter.subscribe_many(["x > 0", "FALSE"], ids=ids[1:3], metadata=[None, {"n": 1}])
    filter.subscribe_boxes([[0.0]] * 3, [[1.0]] * 3, ids=ids[3:], metadata=[{"n": 3}, None, {}])
    expected = [NOTE, None, {"n": 1}, {"n": 3}, None, None]
    filter.save(tmp_path / "filter")
    for own in (
        filter,
        EventFilter.load(tmp_path / "filter"),
        pickle.loads(pickle.dumps(filter)),
        part_of(filter, ids),
        EventFilter.load(tmp_path / "filter", matcher="hashes"),
    ):
        assert [own[id].metadata for id in ids] == expected
        own.update(ids[0], metadata={"x": 2})
        own.update(ids[2], metadata=None)
        own.unsubscribe(ids[3])
        own.subscribe("x > 0", id=ids[3])
        assert [own[id].metadata for id in ids] == [{"x": 2}, None, None, None, None, None]
        own.save(tmp_path / "again")
        again = EventFilter.load(tmp_path / "again")
        assert [again[id].metadata for id in ids] == [{"x": 2}, None, None, None, None, None]
        own.update(ids[0], metadata=NOTE)
        own.update(ids[2], metadata={"n": 1})
        own.update(ids[3], metadata={"n": 3})


def test_what_is_given_back_is_a_copy():
    filter, note = EventFilter(SCHEMA), {"a": [1]}
    id = filter.subscribe("x > 0", metadata=note)
    note["a"].append(2)
    filter[id].metadata["a"].append(3)
    assert filter[id].metadata == {"a": [1]}


def test_an_unknown_subscription_has_none():
    with pytest.raises(UnknownSubscriptionError):
        _ = EventFilter(SCHEMA)[3]


@cases(
    ("note", "error", "message"),
    [
        ([1], TypeError, "a dict"),
        ("text", TypeError, "a dict"),
        ({1: 2}, ValueError, "text as keys"),
        ({"a": (1, 2)}, ValueError, "would become"),
        ({"a": float("nan")}, ValueError, "JSON can hold"),
        ({"a": object()}, ValueError, "JSON can hold"),
        ({"a": "\ud800"}, ValueError, "JSON can hold"),
        ({"a": "x" * LIMIT}, ValueError, "4,104 bytes as JSON, and at most 4,096"),
    ],
)
def test_what_cannot_be_kept_is_refused(note, error, message):
    filter = EventFilter(SCHEMA)
    filter.subscribe("x > 0", metadata={"a": 1})
    for call in (
        lambda: filter.subscribe("x > 0", metadata=note),
        lambda: filter.update(0, "x > 1", metadata=note),
    ):
        with pytest.raises(error, match=message):
            call()
    with pytest.raises(error, match=r"^row 1, "):
        filter.subscribe_many(["x > 0"] * 2, metadata=[None, note])
    assert (len(filter), filter.stats()["version"], filter[0].metadata) == (1, 1, {"a": 1})


def test_there_is_one_for_each():
    with pytest.raises(ValueError, match="metadata has 1 rows for 2 subscriptions"):
        EventFilter(SCHEMA).subscribe_many(["x > 0"] * 2, metadata=[{}])
    with pytest.raises(TypeError, match="metadata must be a list with a value for each subscription"):
        EventFilter(SCHEMA).subscribe_many(["x > 0"] * 2, metadata={"a": 1})


def test_a_filter_iterates_over_its_ids_and_shows_each_subscription():
    filter = EventFilter(SCHEMA, ids=str, clock=lambda: 100.0)
    filter.subscribe("x > 1", "a", ttl=5, metadata={"k": 1})
    filter.subscribe("x > 2", "b")
    shown = {id: (str(filter[id].predicate), filter[id].metadata, filter[id].expires) for id in filter}
    assert shown == {"a": ("x > 1", {"k": 1}, 105.0), "b": ("x > 2", None, None)}
