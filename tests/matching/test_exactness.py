"""What matches is exact, for numbers beyond float64 too, and `explain` says the same as `match`."""

import math
import pickle
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from kinds import EACH, EACH_TAKEN_OVER
from limits import sources_within
from oracle import as_sets
from predicate_cases import events, schemas, truth
from rtfilter import EventFilter, Schema
from rtfilter.filter import part_of
from rtfilter.predicates.stored import predicate_store
from rtfilter.subscriptions import drafts

INF = math.inf
BIG = 2**53
INTEGERS = [0, 7, BIG - 1, BIG, BIG + 1, BIG + 2, 10**18 - 1, 10**18, 10**18 + 1, 1_700_000_000_000_000_001]
INTEGERS += [2**63 - 1025, 2**63 - 513, 2**63 - 512, 2**63 - 1]
INTEGERS += [-value for value in INTEGERS] + [-(2**63)]
UNSIGNED = [0, 7, BIG + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1025, 2**64 - 1024, 2**64 - 1]
FLOATS = [0.5, float(BIG), float(BIG) + 2, 1e18, 2.0**63, 2.0**64, 1e300]
WHOLE = [2**64, 2**64 + 1, 2**70 + 1, 2**70]  # no integers of NumPy


def columns_of(ends, dtype):
    """An array of objects with the ends, of a dtype if one is given."""
    return np.array(ends, object) if dtype is None else np.array(ends, dtype)


EVENT_FORMS = {
    "dicts": lambda rows, dtype: [dict(zip("ab", row, strict=True)) for row in rows],
    "array": lambda rows, dtype: columns_of(rows, dtype),
    "masked": lambda rows, dtype: np.ma.array(columns_of(rows, dtype), mask=False),
    "pandas": lambda rows, dtype: pd.DataFrame(columns_of(rows, dtype), columns=["a", "b"]),
}
BOUND_FORMS = {
    "array": columns_of,
    "list": lambda ends, dtype: ends,
    "mapping": lambda ends, dtype: dict(zip("ab", columns_of(ends, dtype).T, strict=True)),
    "pandas": lambda ends, dtype: pd.DataFrame(columns_of(ends, dtype), columns=["a", "b"]),
}
DTYPES = st.sampled_from([(np.int64, INTEGERS), (np.uint64, UNSIGNED), (None, INTEGERS + FLOATS + WHOLE)])


@pytest.mark.parametrize("matcher", EACH)
@settings(max_examples=40)
@given(data=st.data())
def test_numbers_compare_exactly(matcher, data):
    """Bounds and events of every integer type and form; brute force compares Python's integers."""
    dtype, pool = data.draw(DTYPES)
    ends = st.tuples(st.sampled_from(pool), st.sampled_from(pool)).map(sorted)
    intervals = data.draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=8))
    if dtype is None and data.draw(st.booleans()):
        intervals = [(a, [-INF, b[1]]) for a, b in intervals] + [([-INF, INF], b) for _, b in intervals]
    low, high = ([[side[k] for side in row] for row in intervals] for k in (0, 1))
    form = BOUND_FORMS[data.draw(st.sampled_from(sorted(BOUND_FORMS)))]
    filter = EventFilter(Schema({"a": int, "b": float}), matcher=matcher)
    filter.subscribe_boxes(form(low, dtype), form(high, dtype))

    event_type, values = data.draw(DTYPES)
    rows = data.draw(st.lists(st.tuples(*[st.sampled_from(values)] * 2), min_size=1, max_size=8))
    batch = EVENT_FORMS[data.draw(st.sampled_from(sorted(EVENT_FORMS)))](rows, event_type)
    wanted = [
        {
            id
            for id, sides in enumerate(intervals)
            if all(low <= value <= high for value, (low, high) in zip(row, sides, strict=True))
        }
        for row in rows
    ]
    assert as_sets(filter.match_batch(batch)) == wanted
    assert as_sets(filter.stream(batch).matches()) == wanted
    assert filter.match_batch(batch).any.tolist() == [bool(ids) for ids in wanted]
    for row, ids in zip(rows, wanted, strict=True):
        event = dict(zip("ab", row, strict=True))
        assert {id for id in range(len(intervals)) if filter.explain(event, id).matched} == ids


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
@settings(max_examples=24)
@given(data=st.data())
def test_explain_and_match_agree_on_conditions_and_patterns(matcher, data):
    """All types, operators, matchers of patterns and values, also of other types and missing."""
    types = data.draw(schemas())
    drawn = data.draw(st.lists(sources_within(types), min_size=1, max_size=4))
    batch = data.draw(st.lists(events(types), min_size=1, max_size=4))
    filter = EventFilter(Schema(types), matcher=matcher)
    filter.subscribe_many([source for source, _ in drawn])
    for event, ids in zip(batch, filter.match_batch(batch), strict=True):
        found = set(ids.tolist())
        assert found == {id for id, (_, meaning) in enumerate(drawn) if truth(meaning, event, types)}
        assert found == {id for id in range(len(drawn)) if filter.explain(event, id).matched}


MOMENTS = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 5, 31, 12),
    datetime(2500, 1, 1),
    datetime(9999, 1, 1),
]
MOMENTS = [moment.replace(tzinfo=UTC) + timedelta(microseconds=us) for moment in MOMENTS for us in (-1, 0, 1)]
TYPES = {"x": float, "n": int, "flag": bool, "t": datetime, "s": str}
ENDS = {
    "x": [None, -1, 0.5, 2.0**53, 1e300],
    "n": [None, 5, BIG, BIG + 1, 2**63],
    "flag": [None, False, True, 0, 1],
    "t": [None, *MOMENTS, *(np.datetime64(moment.replace(tzinfo=None), "us") for moment in MOMENTS)],
    "s": [None],
}
VALUES = {"x": [0.5, BIG, "odd"], "n": [5, BIG, BIG + 1, 2**63, 2**63 + 1, True], "flag": [False, True, 1]}
VALUES |= {"t": [*MOMENTS, "2024-05-31T12:00:00Z", np.datetime64(1, "ns"), 5], "s": ["a", 1]}


def moment(value):
    return value.item().replace(tzinfo=UTC) if isinstance(value, np.datetime64) else value


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
@settings(max_examples=40)
@given(data=st.data())
def test_explain_and_match_agree_on_bounds_of_all_types(matcher, data):
    rows = []
    for _ in range(data.draw(st.integers(1, 5))):
        pairs = [[data.draw(st.sampled_from(ENDS[name])) for _ in range(2)] for name in TYPES]
        rows.append([pair if None in pair else sorted(pair, key=moment) for pair in pairs])
    low, high = (np.array([[pair[k] for pair in row] for row in rows], object) for k in (0, 1))
    filter = EventFilter(Schema(TYPES), matcher=matcher)
    filter.subscribe_boxes(low, high)
    values = {name: st.none() | st.sampled_from(pool) for name, pool in VALUES.items()}
    batch = data.draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=4))
    batch += [dict(zip(TYPES, [moment(end) for end in side[0]], strict=True)) for side in (low, high)]
    for event, ids in zip(batch, filter.match_batch(batch), strict=True):
        explained = {id for id in range(len(rows)) if filter.explain(event, id).matched}
        assert set(ids.tolist()) == set(filter.match(event).tolist()) == explained


FINER = {"as": 10**12, "fs": 10**9, "ps": 10**6, "ns": 1000}
"""Units below a microsecond, and how many of them it has."""


@pytest.mark.slow
@cases("unit", [*FINER, "us", "ms", "s", "m", "h", "D", "W", "M", "Y"])
def test_bounds_of_every_unit_of_datetime64(unit):
    """Brute force in the unit itself: an event of whole microseconds inside the bounds matches."""
    span = 400 * FINER.get(unit, 1)
    counts = np.sort(np.random.default_rng(5).integers(-span, span, (60, 2)), axis=1)
    ends = counts.view(f"datetime64[{unit}]")
    whole = ends.astype("datetime64[us]")
    ends = ends[whole[:, 0] < whole[:, 1]]  # others may hold no microsecond, and are refused
    filter = EventFilter(Schema({"t": datetime}))
    filter.subscribe_boxes(ends[:, :1], ends[:, 1:])
    moments = np.unique(np.concatenate([whole, whole + 1, whole - 1]))
    wanted = [set(np.flatnonzero((ends[:, 0] <= at) & (at <= ends[:, 1])).tolist()) for at in moments]
    assert any(wanted)
    assert as_sets(filter.match_batch(moments[:, np.newaxis])) == wanted
    for at, ids in zip(moments[:4], wanted, strict=False):
        assert {id for id in range(len(ends)) if filter.explain({"t": at}, id).matched} == ids


def nanoseconds(count, seed=3):
    """Intervals of int64 around now in nanoseconds, which float64 tells apart in steps of 256."""
    rng = np.random.default_rng(seed)
    low = 1_700_000_000_000_000_000 + rng.integers(0, 3000, count)
    return low, low + rng.integers(0, 600, count)


def between(low, high, at):
    return [set(np.flatnonzero((low <= t) & (t <= high)).tolist()) for t in at.tolist()]


def kept(filter, path):
    filter.save(path)
    return EventFilter.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
@pytest.mark.parametrize(
    "copy",
    [
        lambda filter, path: filter,
        kept,
        lambda filter, path: pickle.loads(pickle.dumps(filter)),
        lambda filter, path: part_of(filter, np.arange(150)),
        lambda filter, path: kept(kept(filter, path / "a"), path / "b"),
    ],
)
def test_copies_keep_exact_ends_and_live_on(matcher, copy, tmp_path):
    low, high = nanoseconds(150)
    original = EventFilter(Schema({"t": int, "x": float}), matcher=matcher)
    original.subscribe_boxes({"t": low[:100]}, {"t": high[:100]})
    for row in range(100, 150):
        original.subscribe_boxes({"t": low[row : row + 1]}, {"t": high[row : row + 1]})
    filter = copy(original, tmp_path)
    events = np.stack([nanoseconds(200, 4)[0], np.zeros(200, np.int64)], axis=1)
    wanted = between(low, high, events[:, 0])
    assert as_sets(filter.match_batch(events)) == wanted
    assert str(filter[5].predicate) == f"t >= {low[5]} AND t <= {high[5]}"

    gone = np.arange(0, 150, 3)
    assert filter.unsubscribe_many(gone).all()
    filter.update(1, "x > 1")
    filter.subscribe_many(["x = 0"], ids=[0])  # an id that had ends has none now
    again = filter.subscribe_boxes({"t": low[3:4]}, {"t": high[3:4]}, ids=[3])
    left = {0, 1, *again.tolist(), *set(range(150)) - set(gone.tolist())}
    wanted = [(ids & left - {0, 1}) | {0} for ids in wanted]
    assert as_sets(filter.match_batch(events)) == wanted
    assert as_sets(filter.stream(events).matches()) == wanted


@pytest.mark.parametrize(("matcher", "other"), EACH_TAKEN_OVER)
def test_another_matcher_takes_exact_ends_over(matcher, other, tmp_path):
    low, high = nanoseconds(60)
    filter = EventFilter(Schema({"t": int}), matcher=matcher)
    filter.subscribe_boxes(low[:, np.newaxis], high[:, np.newaxis])
    filter.save(tmp_path / "kept")
    loaded = EventFilter.load(tmp_path / "kept", matcher=other)
    events = nanoseconds(100, 4)[0][:, np.newaxis]
    assert as_sets(loaded.match_batch(events)) == between(low, high, events[:, 0])


@pytest.mark.parametrize(("matcher", "method"), [("rtree", "replace"), ("masks", "add")])
def test_a_failed_update_keeps_exact_ends(monkeypatch, matcher, method):
    filter = EventFilter(Schema({"t": int}), matcher=matcher)
    filter.subscribe_boxes([[BIG + 1]], [[BIG + 1]])
    made = filter._subscriptions.matcher
    monkeypatch.setattr(made, method, fails_once(getattr(made, method)))
    with pytest.raises(RuntimeError, match="once"):
        filter.update(0, "t > 1")
    assert [filter.match({"t": BIG + k}).tolist() for k in range(3)] == [[], [0], []]


def fails_once(method):
    calls = []

    def called(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("once")
        return method(*arguments)

    return called


def test_exact_ends_ask_no_predicate(monkeypatch):
    """They are compared in columns: no object a hit."""
    low, high = nanoseconds(200)
    filter = EventFilter(Schema({"t": int}))
    filter.subscribe_boxes(low[:, np.newaxis], high[:, np.newaxis])

    def asked(*_):
        raise AssertionError("a predicate was asked")

    monkeypatch.setattr("rtfilter.predicates.predicate.Predicate.matches", asked)
    monkeypatch.setattr("rtfilter.subscriptions.content.Subscriptions.get", asked)
    events = low[:, np.newaxis]
    for form in (events, pa.table({"t": low}), pd.DataFrame({"t": low})):
        assert as_sets(filter.match_batch(form)) == between(low, high, low)


@pytest.mark.parametrize("other", ["split", "hem"])
def test_another_matcher_of_boxes_takes_them_as_they_are(monkeypatch, other, tmp_path):
    """To read the predicates anew takes 30 times as long."""
    filter = EventFilter(Schema({"x": float, "s": str}))
    filter.subscribe_many(["x > 1", "x < 3 AND s = 'a'", "s LIKE '%b'", "x > 5 OR x < -5", "x < 1 AND x > 1"])
    filter.subscribe_boxes({"x": [2.0]}, {"x": [9.0]})
    filter.save(tmp_path / "saved")
    monkeypatch.setattr(drafts, "of_sources", None)
    loaded = EventFilter.load(tmp_path / "saved", matcher=other)
    events = [{"x": x, "s": s} for x in (-6.0, 0.0, 2.0, 6.0) for s in ("a", "ab")]
    assert as_sets(loaded.match_batch(events)) == as_sets(filter.match_batch(events))
    assert [str(loaded[id].predicate) for id in range(6)] == [str(filter[id].predicate) for id in range(6)]


@pytest.mark.parametrize("other", [None, "split"])
def test_a_loaded_predicate_is_parsed_once_by_a_copy_too(monkeypatch, other, tmp_path):
    filter = EventFilter(Schema({"s": str}))
    filter.subscribe("s LIKE '%b'")
    filter.save(tmp_path / "saved")
    loaded = EventFilter.load(tmp_path / "saved", matcher=other)
    if other is None:
        loaded.repack()
    parsed = []
    decoded = predicate_store._decoded
    monkeypatch.setattr(predicate_store, "_decoded", lambda text: parsed.append(text) or decoded(text))
    for _ in range(3):
        assert loaded.match({"s": "ab"}).tolist() == [0]
    assert len(parsed) == 1
