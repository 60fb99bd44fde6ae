"""A row that cannot be used is named by its id, and stops no stream."""

import logging
import os
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from lengths import long_but
from rtfilter import (
    Attribute,
    BadSubscription,
    EventError,
    EventFilter,
    PredicateError,
    Schema,
    SnapshotError,
)
from rtfilter.spark import ChangeStage, MatchStage, Once, build_sharded, match_frame, refusals, track_stream
from rtfilter.spark.refusals import NAMED, LeftOut, TaskEventReader, own_error
from rtfilter.spark.subscribing import SubscriptionReader
from rtfilter.spark.watch import StreamMetrics
from spark_cases import wait

SCHEMA = Schema({"x": float, "at.n": Attribute(int, low=0, high=9)})
INFINITE = "attribute 'x' is infinite or beyond float64; leave it out or clip it"


def table(xs, ns):
    """Events with the ids 0, 1, ... as text."""
    return pa.table({"id": [f"e{k}" for k in range(len(xs))], "x": xs, "at": [{"n": n} for n in ns]})


@pytest.fixture
def told(caplog):
    """What the log says."""
    caplog.set_level(logging.WARNING, "rtfilter")
    return lambda: [record.getMessage() for record in caplog.records]


# Events, in this process


def test_an_event_that_cannot_be_used_is_named_by_its_id():
    with pytest.raises(EventError, match=r"^event 'e1': attribute 'at\.n' is 12, outside") as caught:
        TaskEventReader(SCHEMA, ["x", "at"], "id").read(table([0.5, 0.5], [1, 12]))
    assert (caught.value.attribute, caught.value.row) == ("at.n", None)


@pytest.mark.parametrize("kind", ["table", "batch"])
def test_events_that_cannot_be_used_are_left_out(kind, told):
    events = table([0.5, np.inf, 0.5, np.nan, 0.5], [1, 1, 12, 12, None])
    events = events if kind == "table" else events.combine_chunks().to_batches()[0]
    reader, left_out = TaskEventReader(SCHEMA, ["x", "at"], "id", "skip"), LeftOut()
    found, read = reader.read(events, left_out)
    assert found.column("id").to_pylist() == ["e0", "e4"]
    assert read.points[:, 0].tolist() == [0.5, 0.5]
    left_out.tell()
    assert told() == [
        f"left out: event 'e1': {INFINITE}",
        "left out: event 'e2': attribute 'at.n' is 12, outside its domain [0, 9]",
        told()[2],
    ]
    assert told()[2].startswith("left out: event 'e3': attribute 'x' is NaN")


def test_the_log_names_the_first_and_counts_all_others(told):
    left_out = LeftOut()
    reader = TaskEventReader(SCHEMA, ["x"], "id", "skip")
    for _ in range(2):
        assert len(reader.read(table([np.inf] * 30, [1] * 30), left_out)[0]) == 0
    left_out.tell()
    assert told() == [*(f"left out: event 'e{k}': {INFINITE}" for k in range(NAMED)), "left out: 50 more"]


AT = Attribute("timestamp", high="2024-01-01")
FEW = Attribute(float, high=1)


@pytest.mark.parametrize("seen", [True, False], ids=["in columns", "by halves"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (AT, pa.array([0, 2 * 10**15, 1, 3 * 10**15, None], pa.timestamp("us"))),
        (AT, pa.array([1, 2 * 10**9, 1, 2 * 10**9, None], pa.timestamp("s", "UTC"))),
        (AT, pa.array(["2023-01-01", "2025-01-01", "no moment", "2025-01-01", None])),
        (FEW, pa.array([Decimal("0.5"), Decimal("1.5"), Decimal("0.5"), Decimal("1.5"), None])),
        (FEW, pa.array([0, 2, 1, 2, None], pa.int8())),
    ],
)
def test_values_outside_a_domain_are_left_out(kind, values, seen, monkeypatch):
    if not seen:
        monkeypatch.setattr(refusals, "_refused", lambda field, column: np.zeros(len(column), np.bool_))
    left_out = LeftOut()
    reader = TaskEventReader(Schema({"t": kind}), ["t"], "id", "skip")
    found, _ = reader.read(pa.table({"id": range(5), "t": values}), left_out)
    assert found.column("id").to_pylist() == [0, 2, 4]
    assert left_out.count == 2
    assert [one.partition(":")[0] for one in left_out.named] == ["event 1", "event 3"]


# Subscriptions, in this process


def test_subscriptions_that_cannot_be_used_are_found():
    conditions = pa.table(
        {
            "id": [1, None, -3, 4, 5, 6, 7],
            "where": ["x > 1", "x > 1", "x > 1", "x >", None, "z = 1", "x > 2"],
            "ttl": [None, None, None, None, None, None, 0.0],
        }
    )
    found = SubscriptionReader(SCHEMA).bad(conditions)
    assert sorted((str(one.id), one.reason.partition(";")[0]) for one in found) == [
        ("-3", "an id is an integer from 0 to 2**63 - 2, not -3"),
        ("4", next(one.reason for one in found if one.id == 4)),
        ("5", "a predicate is an SQL condition (str), an event pattern (mapping) or a Predicate"),
        ("6", "unknown attribute 'z'"),
        ("7", "a time to live is finite and above 0, not 0.0"),
        ("None", "this subscription has no id"),
    ]
    bounds = pa.table({"id": [7, 8, 9], "low.x": [1.0, 5.0, None], "high.x": [2.0, 4.0, np.nan]})
    found = SubscriptionReader(SCHEMA).bad(bounds)
    assert [(one.id, one.attribute) for one in found] == [(8, "x"), (9, "x")]
    assert str(found[0]) == "id 8: attribute 'x': low above high in [5.0, 4.0]"


# Errors of tasks


def test_the_error_of_a_task_is_found_in_that_of_spark():
    trace = "An exception was thrown from the Python worker:\nTraceback ...\n  File x\n"
    end = "\n SQLSTATE: 38000\n\tat org.apache.spark.Some(Some.scala:1)\n"
    found = own_error(f"{trace}rtfilter.basics.errors.EventError: event 7: bad{end}")
    assert (type(found), str(found)) == (EventError, "event 7: bad")
    place = "subscription 9: unknown\n    x > 1 AND z = 2\n              ^"
    found = own_error(f"{trace}rtfilter.basics.errors.PredicateError: {place}{end}")
    assert (type(found), str(found), found.source) == (PredicateError, place, "x > 1 AND z = 2")
    assert type(own_error(f"{trace}rtfilter.basics.errors.SnapshotError: gone")) is SnapshotError
    assert own_error(f"{trace}ValueError: other{end}") is None


# On Spark


KINDS = "id int, x double, at struct<n: int>"
ROWS = [(1, float("inf"), (1,)), (2, 0.5, (12,)), (3, 0.5, (1,)), (4, None, (1,))]


@pytest.fixture
def index(tmp_path):
    filter = EventFilter(SCHEMA)
    filter.subscribe_many(["x > 0", "at.n > 0"])
    filter.save(tmp_path / "index")
    return tmp_path / "index"


def test_frames_leave_out_what_they_are_told_to(spark, index):
    events = spark.createDataFrame(ROWS, KINDS)
    result = match_frame(events, index, balance=True, on_error="skip")
    assert sorted(result.collect()) == [(3, 0), (3, 1), (4, 1)]
    with pytest.raises(ValueError, match='on_error is "raise" or "skip", not None'):
        match_frame(events, index, on_error=None)


def test_events_that_spark_cannot_read_are_bad(spark, index, tmp_path, told):
    (tmp_path / "events").write_text('{"id": 1, "x": "much"}\n{"id": 3, "x": 0.5}\n')
    events = spark.read.schema(f"{KINDS}, _corrupt_record string").json(str(tmp_path / "events"))
    with pytest.raises(EventError, match=r"^event 1: Spark cannot read it: '.*much"):
        match_frame(events, index).collect()
    seen = []
    MatchStage(index, lambda matches, n: seen.extend(matches.collect()))(events, 0)
    assert seen == [(3, 0)]
    assert [text.partition(": '")[0] for text in told()] == ["left out: event 1: Spark cannot read it"]


@pytest.mark.parametrize("balance", long_but([False, True], [True]))
def test_a_stage_leaves_bad_events_out_and_counts_them(spark, index, told, balance):
    metrics, seen = StreamMetrics(), []
    stage = MatchStage(
        index, lambda matches, n: seen.extend(matches.collect()), balance=balance, metrics=metrics
    )
    stage(spark.createDataFrame(ROWS, KINDS), 0)
    assert sorted(seen) == [(3, 0), (3, 1), (4, 1)]
    assert metrics.registry.get_sample_value("rtfilter_spark_events_left_out_total") == 2
    assert sorted(told()) == [
        f"left out: event 1: {INFINITE}",
        "left out: event 2: attribute 'at.n' is 12, outside its domain [0, 9]",
    ]
    with pytest.raises(EventError, match=r"^event [12]: attribute"):
        MatchStage(index, lambda matches, n: matches.collect(), on_error="raise")(
            spark.createDataFrame(ROWS, KINDS), 1
        )


def test_a_stream_goes_on_after_a_bad_event(spark, index, tmp_path):
    """One that raises names the event, and goes on when that is mended or may be skipped."""
    good, bad = '{"id": 3, "x": 0.5, "at": {"n": 1}}\n', '{"id": 2, "x": 0.5, "at": {"n": 12}}\n'
    files = [tmp_path / "events" / f"{number}.json" for number in range(3)]
    files[0].parent.mkdir()
    for number, (file, text) in enumerate(zip(files, (good + bad, bad, good), strict=True)):
        file.write_text(text)
        os.utime(file, (10**9 + number, 10**9 + number))

    def run(on_error):
        source = spark.readStream.schema(KINDS).option("maxFilesPerTrigger", 1).json(str(files[0].parent))
        stage = MatchStage(index, Once(tmp_path / "out"), on_error=on_error)
        writer = source.writeStream.foreachBatch(stage).option("checkpointLocation", str(tmp_path / "state"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match=r"event 2: attribute 'at\.n' is 12, outside"):
        run("raise")
    files[0].write_text(good)
    with pytest.raises(StreamingQueryException, match="event 2: attribute"):
        run("raise")
    run("skip")
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.batch, row.id, row.subscription) for row in found) == [
        (batch, 3, subscription) for batch in (0, 2) for subscription in (0, 1)
    ]


@pytest.mark.long
def test_tracking_goes_on_after_a_bad_event(spark, index, tmp_path):
    spark.createDataFrame(ROWS[1:], KINDS).write.json(str(tmp_path / "events"))
    source = spark.readStream.schema(KINDS).json(str(tmp_path / "events"))

    metrics = StreamMetrics()
    unlisten = metrics.listen(spark)
    changes = track_stream(source, index, "id", order="x")
    query = changes.writeStream.format("memory").queryName("tracked").trigger(availableNow=True).start()
    query.awaitTermination()
    value = metrics.registry.get_sample_value
    wait(lambda: value("rtfilter_spark_query_running", {"query": "tracked"}) == 0)
    unlisten()
    assert value("rtfilter_spark_events_left_out_total") == 1
    found = spark.table("tracked").collect()
    assert sorted((row.id, row.subscription) for row in found) == [(3, 0), (3, 1), (4, 1)]


RULES = [
    (1, "x > 0", None),
    (2, "x >", None),
    (3, "x > 0", "no JSON"),
    (4, "x > 1", None),
    (4, "x > 2", None),
]
RULE = "id int, where string, metadata string"


@pytest.mark.long
def test_an_index_is_built_of_what_can_be_used(spark, tmp_path, told):
    rules, bad = spark.createDataFrame(RULES, RULE), []
    index = build_sharded(rules, tmp_path / "index", SCHEMA, shards=1, on_error=bad.append)
    assert len(index) == 1
    assert [(type(one), one.id, one.row) for one in sorted(bad, key=lambda one: one.id)] == [
        (BadSubscription, id, -1) for id in (2, 3, 4)
    ]
    index = index.append(rules.where("id < 3"), on_error="skip")
    assert len(index) == 1
    assert [text.partition(";")[0] for text in told()] == [
        told()[0],
        "left out: subscription 1: exists already",
    ]
    assert told()[0].startswith("left out: subscription 2: ")
    with pytest.raises(PredicateError, match=r"^subscription 3: metadata as text must be JSON"):
        index.update(rules.where("id = 3"))


@pytest.mark.long
def test_a_bad_change_leaves_what_it_would_replace(spark, tmp_path, told):
    filter = EventFilter(SCHEMA)
    filter.subscribe_many(["x > 0"] * 5)
    filter.save(tmp_path / "index")
    changes = spark.createDataFrame([*RULES, (None, "x > 0", None), (0, "x > 9", None)], RULE)
    metrics = StreamMetrics()
    ChangeStage(tmp_path / "index", metrics=metrics)(changes, 0)
    assert metrics.registry.get_sample_value("rtfilter_spark_changes_left_out_total") == 4
    assert EventFilter.load(tmp_path / "index").match({"x": 1.0}).tolist() == [1, 2, 3, 4]
    assert sorted(text.partition(";")[0].partition(": metadata ")[0] for text in told()) == [
        "left out: 1 changes have no id",
        next(text for text in told() if "subscription 2" in text),
        "left out: subscription 3",
        "left out: subscription 4: occurs 2 times",
    ]
