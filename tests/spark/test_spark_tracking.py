"""What a stream enters and leaves is what a tracker tells of the same batches, also after a restart."""

import os

import numpy as np
import pandas as pd
import pytest

from rtfilter import EventError, EventFilter, Schema, SnapshotError, Tracker
from rtfilter.basics.results import Matches
from rtfilter.spark import Once, build_sharded, track_stream
from rtfilter.spark.tracking import follower
from rtfilter.tracking.transitions import packed
from spark_cases import wait

SCHEMA = Schema({"x": float, "at.depth": int})
DEPTH = "struct<depth: int>"
KINDS = f"vehicle string, time timestamp, id long, x double, at {DEPTH}"


def line(count=20, name=int):
    """Subscriptions to the intervals [i, i + 1.5], and to depths; `name` makes their ids."""
    filter = EventFilter(SCHEMA)
    low = np.arange(count, dtype=float)
    filter.subscribe_many([f"x BETWEEN {x} AND {x + 1.5}" for x in low], ids=[name(k) for k in range(count)])
    filter.subscribe("at.depth >= 3", id=name(77))
    return filter


def batches(count, seed=3):
    """Batches of events of a few vehicles, in the order of their time; some have no vehicle."""
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2024-05-31T12:00:00Z")
    for batch in range(count):
        yield [
            {
                "vehicle": None if k % 9 == 0 else f"v{rng.integers(0, 6)}",
                "time": start
                + pd.Timedelta(seconds=100 * batch + k // 2),  # two at a time, the id tells which
                "id": 1000 * batch + k,
                "x": None if k % 7 == 0 else float(rng.uniform(0, 22)),
                "at": {"depth": int(rng.integers(0, 5))},
            }
            for k in range(40)
        ]


def expected(tracker, batch, inside=False):
    """Rows of the result, by a tracker."""
    own = [event for event in batch if event["vehicle"] is not None]
    rows = []
    for event, found in zip(own, tracker.match_batch(own), strict=True):
        for change, ids in found._asdict().items():
            if inside or change != "inside":
                rows += [(event["vehicle"], event["id"], id, change) for id in ids.tolist()]
    return rows


@pytest.fixture
def folder(tmp_path):
    """Puts batches there as files, each newer than the one before, with its events in any order."""

    def put(numbered):
        for number, batch in numbered:
            path = tmp_path / "events" / f"{number}.json"
            path.parent.mkdir(exist_ok=True)
            shuffled = pd.DataFrame(batch).sample(frac=1, random_state=number)
            shuffled.to_json(path, orient="records", lines=True, date_format="iso", date_unit="us")
            os.utime(path, (number + 10**9, number + 10**9))
        return str(path.parent)

    return put


def started(spark, folder, index, tmp_path, trigger, kinds=KINDS, **options):
    """The query, on files one by one."""
    source = spark.readStream.schema(kinds).option("maxFilesPerTrigger", 1).json(folder)
    changes = track_stream(source, index, "vehicle", order="time", id="id", **options)
    assert changes.columns == ["vehicle", "time", "id", "subscription", "change"]
    writer = changes.writeStream.foreachBatch(Once(tmp_path / "out")).outputMode("append")
    return writer.option("checkpointLocation", str(tmp_path / "state")).trigger(**trigger).start()


def run(spark, folder, index, tmp_path, **options):
    """Run the query until it has seen all files; all rows so far."""
    started(spark, folder, index, tmp_path, {"availableNow": True}, **options).awaitTermination()
    return rows_of(spark, tmp_path)


def rows_of(spark, tmp_path):
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    return sorted((row.vehicle, row.id, row.subscription, row.change) for row in rows)


@pytest.mark.long
def test_a_stream_that_goes_on_with_other_subscriptions(spark, folder, tmp_path):
    filter, given = line(), list(enumerate(batches(2)))
    filter.save(tmp_path / "index")
    tracker = Tracker(filter, "vehicle")
    rows = [row for _, batch in given[:1] for row in expected(tracker, batch)]
    assert run(spark, folder(given[:1]), tmp_path / "index", tmp_path) == sorted(rows)
    filter.unsubscribe_many([3, 4])
    filter.update(5, "x > 21")
    filter.subscribe("x < 9", id=90)
    filter.save(tmp_path / "index")
    rows += [row for _, batch in given[1:] for row in expected(tracker, batch)]
    assert {row[2] for row in rows} >= {3, 4, 5, 77, 90}
    assert run(spark, folder(given[1:]), tmp_path / "index", tmp_path) == sorted(rows)


def test_ids_that_are_text(spark, folder, tmp_path):
    """In shards; the query continues once."""
    filter, given = line(name="rule {}".format), list(enumerate(batches(2, seed=5)))
    rules = [(id, str(filter[id].predicate)) for id in filter]
    frame = spark.createDataFrame(rules, "id string, where string")
    build_sharded(frame, tmp_path / "index", SCHEMA, shards=2)
    tracker, rows = Tracker(filter, "vehicle"), []
    for one in given:
        rows += expected(tracker, one[1], inside=True)
        assert run(spark, folder([one]), tmp_path / "index", tmp_path, inside=True) == sorted(rows)


def test_events_with_lists(spark, folder, tmp_path):
    """Arrays of numbers, and of structs."""
    filter, (batch,) = line(), batches(1, seed=6)
    filter.subscribe_many(["ALL x < 15", "NONE at.depth = 2"])
    for event in batch:
        event["x"] = [event["x"], 3.25] if event["id"] % 3 else []
        event["at"] = [event["at"], {"depth": event["id"] % 4}]
    filter.save(tmp_path / "index")
    kinds = KINDS.replace("x double", "x array<double>").replace(f"at {DEPTH}", f"at array<{DEPTH}>")
    assert run(spark, folder([(0, batch)]), tmp_path / "index", tmp_path, kinds=kinds) == sorted(
        expected(Tracker(filter, "vehicle"), batch)
    )


@pytest.mark.long
def test_an_index_in_shards_and_what_stays_inside(spark, folder, tmp_path):
    filter, given = line(), list(enumerate(batches(1, seed=4)))
    rules = [(int(id), str(filter[id].predicate)) for id in filter.ids()]
    build_sharded(spark.createDataFrame(rules, "id long, where string"), tmp_path / "index", SCHEMA, shards=3)
    tracker = Tracker(filter, "vehicle")
    rows = [row for _, batch in given for row in expected(tracker, batch, inside=True)]
    assert {row[3] for row in rows} == {"entered", "inside", "left"}
    found = run(spark, folder(given), tmp_path / "index", tmp_path, inside=True)
    assert found == sorted(rows)


@pytest.mark.long
def test_a_key_without_events_is_forgotten(spark, folder, tmp_path):
    filter, batch = line(), next(batches(1))
    tracker = Tracker(filter, "vehicle")
    rows = expected(tracker, batch)
    query = started(
        spark, folder([(0, batch)]), filter, tmp_path, {"processingTime": "0 seconds"}, forget_after=0.5
    )
    try:
        wait(
            lambda: {len(tracker), 0} <= {one.stateOperators[0].numRowsTotal for one in query.recentProgress}
        )
    finally:
        query.stop()
    assert rows_of(spark, tmp_path) == sorted(rows)


class State:
    """As Spark's state of one key."""

    def __init__(self):
        self.value, self.hasTimedOut, self.timeout = None, False, None

    @property
    def exists(self):
        return self.value is not None

    @property
    def get(self):
        return self.value

    def update(self, value):
        self.value = value

    def remove(self):
        self.value = None

    def setTimeoutDuration(self, milliseconds):  # noqa: N802
        self.timeout = milliseconds


def test_a_key_is_forgotten_without_a_word():
    follow, state = follower(["c0", "c1"], inside=False, forget_after=1.5), State()

    def see(*lists):
        ids = np.array([id for ids in lists for id in ids], np.int64)
        data = packed(Matches(np.cumsum([0, *map(len, lists)]), ids), np.arange(len(lists)))
        frame = pd.DataFrame({"c0": "a", "c1": range(len(lists)), "matched": data})
        found = pd.concat(follow(("a",), iter([frame[1:], frame[:1]]), state))  # in any order
        return [tuple(row) for row in found.itertuples(index=False)]

    assert see([1, 2], [2]) == [("a", 0, 1, "entered"), ("a", 0, 2, "entered"), ("a", 1, 1, "left")]
    assert state.timeout == 1500
    state.hasTimedOut = True
    assert list(follow(("a",), iter([]), state)) == []
    assert not state.exists
    state.hasTimedOut = False
    assert see([2], []) == [("a", 0, 2, "entered"), ("a", 1, 2, "left")]
    assert not state.exists  # what is inside nothing takes no room


def test_what_stays_inside_is_told_where_that_is_asked_for():
    follow = follower(["c0", "c1"], inside=True, forget_after=None)
    ids = np.array([1, 2, 2], np.int64)
    data = packed(Matches(np.array([0, 2, 3]), ids), np.arange(2))
    frame = pd.DataFrame({"c0": "a", "c1": range(2), "matched": data})
    found = pd.concat(follow(("a",), iter([frame]), State()))
    rows = [tuple(row) for row in found.itertuples(index=False)]
    told = [("a", 0, 1, "entered"), ("a", 0, 2, "entered"), ("a", 1, 1, "left"), ("a", 1, 2, "inside")]
    assert sorted(rows) == told


def test_what_cannot_be_tracked_says_so(spark, tmp_path):
    filter = line()
    stream = spark.readStream.schema(f"{KINDS}, subscription int, other string").json(str(tmp_path))
    for events, options, error, message in (
        ([], {}, TypeError, "events are a DataFrame of Spark, not list"),
        (spark.range(1), {}, ValueError, "events are a stream, of spark.readStream"),
        (stream, {"key": "plate"}, ValueError, "events have no column 'plate'"),
        (stream, {"id": "subscription"}, ValueError, "the result has a column 'subscription' of its own"),
        (stream, {"order": "vehicle"}, ValueError, "cannot order the events of a key"),
        (stream, {"forget_after": 0}, ValueError, "forget_after is a number of seconds"),
        (stream, {"index": tmp_path / "none"}, SnapshotError, "is no snapshot of an EventFilter"),
        (stream.select("vehicle", "time"), {}, EventError, "none of the attributes"),
    ):
        with pytest.raises(error, match=message):
            track_stream(events, **{"index": filter, "key": "vehicle", "order": "time", **options})
