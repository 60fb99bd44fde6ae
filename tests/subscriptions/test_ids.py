"""Ids that are text and UUIDs: taken and given by every call, of one type a filter."""

import enum
import pickle
from uuid import UUID

import numpy as np
import pytest

from kinds import EACH, KINDS, id_of, require_sound
from oracle import as_sets
from rtfilter import EventFilter, Schema, SnapshotError, UnknownSubscriptionError
from rtfilter.filter import part_of
from rtfilter.matching import updates
from rtfilter.snapshots import arrays as snapshot

SCHEMA = Schema({"x": float})
NAMED = [kind for kind in KINDS.values() if kind is not int]


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request):
    return request.param


def three(kind, **options):
    """Ids 1, 2 and 3 of a type, for x at least as much."""
    filter = EventFilter(SCHEMA, **options)
    ids = [id_of(kind, number) for number in (1, 2, 3)]
    filter.subscribe_many([f"x >= {number}" for number in (1, 2, 3)], ids=ids)
    return filter, *ids


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
def test_every_call_takes_and_gives_the_ids_that_were_given(kind, matcher):
    filter, a, b, c = three(kind, matcher=matcher)
    assert filter.ids().tolist() == [a, b, c]
    assert [a in filter, id_of(kind, 9) in filter, len(filter)] == [True, False, 3]
    assert str(filter[b].predicate) == "x >= 2"
    assert filter.explain({"x": 1.0}, a).matched
    assert set(filter.match({"x": 2.0}).tolist()) == {a, b}
    events = [{"x": 1.0}, {"x": 0.0}, {"x": 3.0}]
    found = filter.match_batch(events)
    assert as_sets(found) == [{a}, set(), {a, b, c}]
    assert found.counts.tolist() == [1, 0, 3]
    rows, ids = found.pairs().tolist()
    assert sorted(zip(rows, map(str, ids), strict=True)) == sorted(
        [(0, str(a)), *((2, str(id)) for id in (a, b, c))]
    )
    streamed = {row: set(ids.tolist()) for row, ids, _ in filter.stream(events)}
    assert streamed == dict(enumerate(as_sets(found)))
    assert as_sets(filter.stream(events).matches()) == as_sets(found)
    assert filter.match_batch(events).any.tolist() == [True, False, True]
    assert filter.match_batch(events).counts.tolist() == [1, 0, 3]
    filter.update(c, "x < 0")
    assert set(filter.match({"x": 3.0}).tolist()) == {a, b}
    assert filter.unsubscribe(b)
    assert not filter.unsubscribe(b)
    assert filter.unsubscribe_many([c, b, c]).tolist() == [True, False, False]
    assert filter.subscribe("x = 7", id=b) == b
    part = part_of(filter, [b, id_of(kind, 9)])
    assert part.ids().tolist() == part.match({"x": 7.0}).tolist() == [b]
    assert type(filter.match({"x": 7.0}).tolist()[0]) is kind


@pytest.mark.parametrize("copy", ["pickle", "snapshot", *EACH])
def test_a_copy_has_the_ids(kind, copy, tmp_path):
    filter, a, b, c = three(kind)
    filter.unsubscribe(a)
    if copy == "pickle":
        again = pickle.loads(pickle.dumps(filter))
    else:
        filter.save(tmp_path / "filter")
        again = EventFilter.load(tmp_path / "filter", matcher=None if copy == "snapshot" else copy)
    assert set(again.match({"x": 3.0}).tolist()) == {b, c}
    again.subscribe("x >= 1", id=a)
    assert again.ids().tolist() == [a, b, c]
    with pytest.raises(ValueError, match="exists already"):
        again.subscribe("x >= 1", id=b)
    require_sound(again)


def test_changes_are_told_by_id(kind):
    filter, a, b, _ = three(kind)
    with filter.changes() as changes:
        filter.update(a, "x = 4")
        filter.unsubscribe_many([b, id_of(kind, 9)])
        filter.subscribe("x = 5", id=b)
        told = [(one.added.ids.tolist(), one.removed.tolist()) for one in changes]
    assert told == [([a], [a]), ([], [b]), ([b], [])]


def test_the_ids_of_an_arrow_list_have_their_type(kind):
    pa = pytest.importorskip("pyarrow")
    filter, *ids = three(kind)
    types = {int: pa.int64(), str: pa.large_string(), UUID: pa.binary(16)}
    for events in ([{"x": 9.0}], [{"x": 0.0}], []):
        made = filter.match_batch(events).to_arrow()
        assert made.type == pa.large_list(types[kind])
        plain = [id.bytes for id in ids] if kind is UUID else ids
        assert sorted(x for row in made.to_pylist() for x in row) == (plain if events == [{"x": 9.0}] else [])


def test_ids_may_be_columns_of_others():
    pa, pd = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    columns = [
        np.array(["a", "b"]),
        np.array(["a", "b"], object),
        np.array(["a", "b"], np.dtypes.StringDType()),
        pd.Series(["a", "b"]),
        pd.Series(["a", "b"], dtype="string"),
        pa.array(["a", "b"]),
        ("a", "b"),
    ]
    for column in columns:
        filter = EventFilter(SCHEMA)
        assert filter.subscribe_many(["x > 1", "x > 2"], ids=column).tolist() == ["a", "b"]
        assert [type(id) for id in filter.match({"x": 3.0})] == [str, str]
        assert filter.unsubscribe_many(column).all()


def test_text_of_a_subclass_becomes_text():
    class Rule(enum.StrEnum):
        FIRST = "first"

    filter = EventFilter(SCHEMA)
    filter.subscribe("x > 1", id=Rule.FIRST)
    filter.subscribe("x > 1", id=np.str_("second"))
    assert sorted(filter.match({"x": 3.0}).tolist()) == ["first", "second"]
    assert {type(id) for id in filter.match({"x": 3.0})} == {str}
    assert Rule.FIRST in filter


def test_ids_are_made_up_for_integers_only(kind):
    filter, *_ = three(kind)
    if kind is int:
        assert filter.subscribe("x > 1") == 4
        return
    for call in (lambda: filter.subscribe("x > 1"), lambda: filter.subscribe_many(["x > 1"] * 99)):
        with pytest.raises(ValueError, match=r"^the ids of this filter are (text|UUIDs): give each"):
            call()
    assert len(filter) == 3


@pytest.mark.parametrize("count", [1, 99])
def test_an_id_of_another_type_is_refused(kind, count):
    for other in KINDS.values():
        filter, *_ = three(kind)
        ids = [id_of(other, number) for number in range(50, 50 + count)]
        if other is kind:
            continue
        with pytest.raises(TypeError, match=r"^the ids of this filter are .* use one type"):
            filter.subscribe_many(["x > 1"] * count, ids=ids)
        with pytest.raises(TypeError, match=r"integers|the ids of this filter are"):
            filter.unsubscribe_many(ids)
        with pytest.raises(TypeError):
            part_of(filter, ids)
        assert ids[0] not in filter
        for call in (filter.__getitem__, lambda id, own=filter: own.update(id, "x > 1")):
            with pytest.raises(UnknownSubscriptionError):
                call(ids[0])
        assert len(filter) == 3
        assert filter.stats()["version"] == 1


@pytest.mark.parametrize("ids", [["a", 1], [1, "a"], ["a", None], ["a", UUID(int=1)], [UUID(int=1), "a"]])
def test_ids_of_several_types_are_refused(ids):
    filter = EventFilter(SCHEMA)
    with pytest.raises(TypeError, match=r"ids must be of one type: row 0 has .*, row "):
        filter.subscribe_many(["x > 1"] * 2, ids=ids)
    assert filter.subscribe("x > 1") == 0  # nothing is settled


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "a"], "distinct: 'a' occurs twice"),
        (["a"], "1 ids for 2 subscriptions"),
        (["a", "\ud800"], "UTF-8"),
    ],
)
def test_unusable_ids_are_refused(ids, message):
    filter = EventFilter(SCHEMA)
    with pytest.raises(ValueError, match=message):
        filter.subscribe_many(["x > 1"] * 2, ids=ids)
    assert len(filter) == filter.stats()["version"] == 0


@pytest.mark.parametrize("count", [2, 99], ids=["small", "large"])
def test_an_id_in_use_among_new_ones_changes_nothing(kind, count, monkeypatch):
    monkeypatch.setattr(updates, "ASIDE", -1)
    filter, a, b, c = three(kind)
    ids = [id_of(kind, number) for number in range(50, 49 + count)]
    with pytest.raises(ValueError, match="exists already"):
        filter.subscribe_many(["x > 1"] * count, ids=[*ids, b])
    assert filter.ids().tolist() == [a, b, c]
    assert filter.stats()["version"] == 1
    filter.subscribe_many(["x > 1"] * (count - 1), ids=ids)
    assert len(filter) == 2 + count
    require_sound(filter)


@pytest.mark.parametrize("boolean", [True, np.True_])
def test_a_boolean_is_no_id(boolean):
    filter, *_ = three(int)
    with pytest.raises(TypeError, match="id must be an integer, text or a UUID, not"):
        filter.subscribe("x > 1", id=boolean)
    for ids in ([boolean], [boolean, 7], np.array([True])):
        with pytest.raises(ValueError, match="ids must be integers, not bool"):
            filter.subscribe_many(["x > 1"] * len(ids), ids=ids)
        with pytest.raises(TypeError, match="ids must be integers, not bool"):
            filter.unsubscribe_many(ids)
    assert boolean not in filter
    for call in (filter.__getitem__, lambda id: filter.update(id, "x > 1")):
        with pytest.raises(UnknownSubscriptionError):
            call(boolean)
    assert filter.stats()["version"] == 1


@pytest.mark.parametrize("id", [np.int64(3), np.uint8(3), np.array(3)])
def test_an_integer_of_numpy_is_an_id(id):
    filter = EventFilter(SCHEMA)
    assert filter.subscribe("x > 1", id=id) == 3
    assert int(id) in filter
    assert filter.unsubscribe_many(id).tolist() == [True]


def test_the_type_can_be_said_before(kind):
    filter = EventFilter(SCHEMA, ids=kind)
    found = filter.match_batch([{"x": 1.0}])
    assert found.kind is kind
    assert found.ids.dtype == (np.int64 if kind is int else object)
    other = str if kind is not str else UUID
    with pytest.raises(TypeError, match="use one type"):
        filter.subscribe("x > 1", id=id_of(other, 1))
    assert not filter.unsubscribe(id_of(kind, 1))
    filter.subscribe("x > 1", id=id_of(kind, 1))


@pytest.mark.parametrize("kind", [bytes, "str", 3])
def test_other_types_of_ids_are_refused(kind):
    with pytest.raises(TypeError, match=r"^ids is int, str or uuid\.UUID"):
        EventFilter(SCHEMA, ids=kind)


def test_an_empty_filter_knows_no_ids():
    filter = EventFilter(SCHEMA)
    for id in (3, "a", UUID(int=4)):
        assert id not in filter
        assert not filter.unsubscribe(id)
        assert len(part_of(filter, [id])) == 0
    assert filter.subscribe("x > 1", id="a") == "a"


def test_the_type_stays_when_all_are_gone(kind, tmp_path):
    filter, *ids = three(kind)
    filter.unsubscribe_many(ids)
    filter.save(tmp_path / "filter")
    for own in (filter, EventFilter.load(tmp_path / "filter"), pickle.loads(pickle.dumps(filter))):
        with pytest.raises(TypeError, match="use one type"):
            own.subscribe("x > 1", id="a" if kind is not str else 5)


def test_an_unknown_text_is_quoted():
    filter, *_ = three(str)
    with pytest.raises(UnknownSubscriptionError, match=r"^there is no subscription 'x'$"):
        _ = filter["x"]


# -- handles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NAMED)
def test_keys_are_given_out_again(kind):
    filter = EventFilter(SCHEMA)
    for number in range(60):
        filter.subscribe("x > 1", id=id_of(kind, number))
        if number >= 5:
            filter.unsubscribe(id_of(kind, number - 5))
    assert filter._subscriptions.next_id == 6
    filter.subscribe_many(["x > 1"] * 99, ids=[id_of(kind, number) for number in range(100, 199)])
    assert filter._subscriptions.next_id == 104
    require_sound(filter)


@pytest.mark.parametrize("aside", [False, True], ids=["bits", "aside"])
def test_keys_of_a_large_removal_are_given_out_again(aside, monkeypatch, tmp_path):
    monkeypatch.setattr(updates, "ASIDE", 10**9 if aside else -1)
    filter = EventFilter(SCHEMA)
    for first in (0, 100, 200):
        ids = [f"{number}" for number in range(first, first + 90)]
        filter.subscribe_many(["x > 1"] * 90, ids=ids)
        filter.unsubscribe_many(ids[5:])
        require_sound(filter)
    assert filter._subscriptions.next_id == 100
    filter.save(tmp_path / "filter")
    again = EventFilter.load(tmp_path / "filter")
    again.subscribe_many(["x > 1"] * 85, ids=[f"new {number}" for number in range(85)])
    again.subscribe("x > 1", id="last")
    assert again._subscriptions.next_id == 101
    assert len(again.match({"x": 2.0})) == 101
    require_sound(again)


@pytest.mark.parametrize("kind", NAMED)
def test_a_stream_gives_the_ids_of_its_version_whoever_has_their_handles_by_then(kind):
    filter, *ids = three(kind)
    matched = filter.match_batch([{"x": 9.0}] * 3)
    stream = filter.stream([{"x": 9.0}] * 3)
    filter.unsubscribe_many(ids)
    filter.subscribe_many(["x > 1"] * 3, ids=[id_of(kind, number) for number in (7, 8, 9)])
    assert filter._subscriptions.next_id == 3
    assert [set(own.tolist()) for _, own, _ in stream] == [set(ids)] * 3
    assert as_sets(matched) == [set(ids)] * 3


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("aside", [False, True], ids=["bits", "aside"])
def test_handles_of_a_large_change_that_failed_stay_while_they_are_hidden(kind, aside, monkeypatch):
    for name, value in {"AT_ONCE": 4, "BIT": 2, "LONG": -1, "ASIDE": 10**9 if aside else -1}.items():
        monkeypatch.setattr(updates, name, value)
    filter, *_ = three(kind)
    matcher = type(filter._subscriptions.matcher)
    add, left = matcher.add, [2 if aside else 3]

    def failing(self, filters):
        left[0] -= 1
        if left[0] == 0:
            raise MemoryError
        add(self, filters)

    with monkeypatch.context() as patch:
        patch.setattr(matcher, "add", failing)
        with pytest.raises(MemoryError):
            filter.subscribe_many(["x > 1"] * 9, ids=[id_of(kind, number) for number in range(20, 29)])
    others = [filter.subscribe("x = 6", id=id_of(kind, number)) for number in range(40, 50)]
    assert set(filter.match({"x": 6.0}).tolist()) == {*(id_of(kind, number) for number in (1, 2, 3)), *others}
    filter.subscribe_many(["x > 1"] * 9, ids=[id_of(kind, number) for number in range(20, 29)])
    assert len(filter) == 22
    require_sound(filter)


def test_a_part_does_not_keep_room_for_the_handles_of_others():
    filter = EventFilter(SCHEMA)
    filter.subscribe_many(["x > 1"] * 400 + ["FALSE"], ids=[f"{number}" for number in range(401)])
    part = part_of(filter, ["399", "400"])
    assert part._subscriptions.next_id == 2
    assert part.ids().tolist() == ["399", "400"]
    assert part.match({"x": 2.0}).tolist() == ["399"]
    assert str(part["400"].predicate) == "FALSE"
    require_sound(part)


# -- snapshots -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [{}, {"id": "a"}, {"ttl": 5}, {"metadata": {"a": 1}}], ids=str)
def test_versions_that_know_no_labels_open_only_what_they_do_not_misread(label, tmp_path):
    """They need the fact `next_id`."""
    filter = EventFilter(SCHEMA)
    filter.subscribe("x > 1", **label)
    filter.save(tmp_path / "filter")
    known = "next_id" in snapshot.read(tmp_path / "filter", "rtfilter.filter").meta
    assert known == ("id" not in label and "ttl" not in label)
    assert len(EventFilter.load(tmp_path / "filter")) == 1


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("name_handles", lambda handles: handles[::-1]),
        ("name_handles", lambda handles: handles + 1),
        ("name_offsets", lambda offsets: offsets[:-1]),
        ("name_text", lambda text: np.full_like(text, 255)),
    ],
)
def test_ids_that_cannot_have_been_saved_are_noticed(name, change, tmp_path):
    filter, *_ = three(str)
    filter.save(tmp_path / "filter")
    found = snapshot.read(tmp_path / "filter", "rtfilter.filter")
    snapshot.write(
        tmp_path / "other", "rtfilter.filter", found.meta, {**found.arrays, name: change(found.arrays[name])}
    )
    with pytest.raises(SnapshotError, match="has content that `save` does not write"):
        EventFilter.load(tmp_path / "other")
