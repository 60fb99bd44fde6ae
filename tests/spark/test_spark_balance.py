"""Events are dealt out only where that pays, and the plan says why."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf

from rtfilter import EventFilter, Schema
from rtfilter.filter import inside
from rtfilter.spark import MatchStage, balance, match_frame
from rtfilter.spark.balance import decide, slowest
from rtfilter.spark.refusals import LeftOut
from rtfilter.spark.reports import BatchReport, TaskReport
from rtfilter.spark.routes import ENOUGH, Work, seen
from rtfilter.spark.watch import StreamMetrics
from spark_cases import frame, pairs

NAMES = "xyz"
SCHEMA = Schema(dict.fromkeys(NAMES, float))


def work(events, visits, hits=0):
    return Work(np.array(events, float), np.array(visits, float), np.array(hits, float))


# The rule


def test_cores_take_one_partition_after_the_other():
    assert slowest(np.array([3.0, 1.0, 1.0, 2.0]), 2) == 4  # 3; 1 + 1 + 2
    assert slowest(np.array([3.0]), 8) == 3
    assert slowest(np.empty(0), 2) == 0


@pytest.mark.parametrize(
    ("events", "visits", "cores", "reason"),
    [
        ([1e6, 1e6], [18e6, 18e6], 2, "even"),
        ([1e6, 1e6], [18e6, 22e6], 2, "even"),
        ([1e6] * 3 + [1.2e6] * 5, [18e6] * 3 + [21.6e6] * 5, 2, "even"),  # the fourth makes up for the first
        ([], [], 2, "even"),
        ([1e6, 1e6], [18e6, 26e6], 2, "cheap"),  # 7 % are saved, which dealing costs
        ([1e6, 1e6], [2e6, 1e6], 1, "even"),  # one core has nobody to wait for
        ([2e6, 0], [1e6, 0], 2, "cheap"),  # half of the cores rest, but there is little to do
        ([1e6, 1e6], [18e6, 54e6], 2, "skewed"),
        ([1e6], [60e6], 8, "skewed"),
        ([1e3], [60e3], 8, "cheap"),  # over before a second round of tasks begins
    ],
)
def test_dealing_has_to_pay(events, visits, cores, reason):
    found = decide(work(events, visits), cores)
    assert (found.reason, found.dealt) == (reason, reason == "skewed")


@pytest.mark.parametrize(
    ("hits", "reason"),
    [([1e8, 1e8], "even"), ([0, 2e7], "cheap"), ([0, 1e8], "skewed"), ([1e8, 0], "skewed")],
)
def test_matches_are_work(hits, reason):
    assert decide(work([1e6, 1e6], [1e6, 1e6], hits), 2).reason == reason


def test_a_decision_says_what_was_seen():
    assert str(decide(work([1e6, 1e6], [18e6, 18e6]), 2)) == (
        "match where they are (even, slowest core 1.00 times the mean)"
    )
    assert str(decide(work([1e6, 1e6], [0, 180e6]), 2)) == (
        "deal out (skewed, slowest core 1.90 times the mean)"
    )


# Data frames


@pytest.fixture(scope="module")
def crowd():
    """A filter with many boxes in one corner, and one box that matches all events."""
    rng = np.random.default_rng(6)
    filter = EventFilter(SCHEMA, matcher={"name": "rtree", "capacity": (8, 16)})
    low = rng.random((3000, 3)) * 0.1
    filter.subscribe_boxes(low, low + 0.05)
    filter.subscribe_boxes(np.full((1, 3), -np.inf), np.full((1, 3), np.inf))
    filter.repack()  # as the copies that tasks get
    return filter


def points(hot, cold, seed=7):
    """Events inside the corner, then others."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.random((hot, 3)) * 0.15, 0.5 + rng.random((cold, 3)) / 2])


def written(path, *parts):
    """Files of events, each of which Spark reads as one partition."""
    path.mkdir()
    first = 0
    for k, values in enumerate(parts):
        columns = {name: values[:, place] for place, name in enumerate(NAMES)}
        table = pa.table({"id": np.arange(first, first + len(values)), **columns})
        pq.write_table(table, path / f"{k}.parquet", compression="none")
        first += len(values)
    return str(path)


def plan(result):
    return result._jdf.queryExecution().executedPlan().toString()


@pytest.mark.long
def test_even_events_stay_where_they_are(spark, crowd, tmp_path):
    values = points(300, 300)
    events = spark.read.parquet(written(tmp_path / "events", values[::2], values[1::2]))
    result = match_frame(events, crowd)
    assert "Exchange" not in plan(result)
    assert "match where they are (even, slowest core 1.0" in plan(result)
    found = crowd.match_batch(values[np.r_[0:600:2, 1:600:2]]).pairs()
    assert pairs(result) == sorted(map(tuple, found.T.tolist()))


def test_skewed_events_are_dealt_out_and_partitions_then_have_the_same_work(
    spark, crowd, tmp_path, monkeypatch
):
    monkeypatch.setattr(balance, "ROUND", 0.0)
    values = points(400, 400)
    events = spark.read.parquet(written(tmp_path / "events", values[:400], values[400:]))
    result = match_frame(events, crowd, details=True)
    assert "Exchange" in plan(result)
    assert "deal out (skewed, slowest core 1." in plan(result)
    everywhere = result.where(sf.col("subscription") == 3000)  # a row for each event
    parts = everywhere.groupBy(sf.spark_partition_id()).agg(sf.sum("workload"), sf.count("*")).collect()
    visits = [row[1] for row in parts]
    assert sum(visits) == inside(crowd).matcher.workload(crowd.schema.read(values)).sum()
    assert sum(row[2] for row in parts) == 800
    assert max(visits) < 1.1 * np.mean(visits)


def test_what_the_caller_says_counts(spark, crowd):
    events = spark.range(9).select("id", *(sf.col("id").alias(name) for name in NAMES))
    for options, told in (
        ({"balance": True}, "deal out (asked)"),
        ({"partitions": 3}, "deal out (asked)"),
        ({"balance": False}, "match where they are (asked)"),
        ({"balance": False, "partitions": 3}, "match where they are (asked)"),
    ):
        assert told in plan(match_frame(events, crowd, **options))
    with pytest.raises(ValueError, match="balance is True, False or \"auto\", not 'yes'"):
        match_frame(events, crowd, balance="yes")


@pytest.mark.long
def test_events_that_would_all_be_computed_are_dealt_out_unseen(spark, alerts, rows, tmp_path):
    events = frame(spark, rows, 4)
    told = "deal out (unseen)"
    assert told in plan(match_frame(events, alerts))
    assert told in plan(match_frame(events.orderBy("price"), alerts))
    assert told in plan(match_frame(events.limit(9), alerts))
    assert told in plan(match_frame(spark.createDataFrame([(1, 5.0)], "id int, price double"), alerts))
    assert "(even, " in plan(match_frame(events.persist(), alerts))
    events.unpersist()
    (tmp_path / "live").mkdir()
    live = spark.readStream.schema(events.schema).json(str(tmp_path / "live"))
    match_frame(live, alerts)  # as a stream can only be matched where it is, this would fail when it is used


# A look at some events


def looked(events, filter):
    """What `look` estimates of events in a frame."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            balance, "decide", lambda work, cores: seen.append(work) or balance.DealDecision(False, "")
        )
        match_frame(events, filter)
    return seen[0]


@pytest.mark.long
def test_the_first_events_of_a_partition_stand_for_it(spark, crowd, tmp_path, monkeypatch):
    monkeypatch.setattr(balance, "LOOK", 20)
    monkeypatch.setattr(balance, "FEW", 0)
    values = points(300, 100)
    events = spark.read.parquet(written(tmp_path / "events", values[:300], values[300:310]))
    visits, hits = inside(crowd).matcher.workload(crowd.schema.read(values)), crowd.match_batch(values).counts
    found = looked(events, crowd)
    assert found.events.tolist() == [balance.MANY, 10]  # Spark cuts files into parts of about the same size
    assert found.visits.tolist() == [visits[:20].mean() * balance.MANY, visits[300:310].sum()]
    assert found.hits.tolist() == [hits[:20].mean() * balance.MANY, hits[300:310].sum()]
    found = looked(events.persist(), crowd)  # and knows the sizes of what it keeps
    events.unpersist()
    assert found.events.tolist() == [300, 10]
    assert found.visits.tolist() == [visits[:20].mean() * 300, visits[300:310].sum()]
    assert looked(events.where("id < 7"), crowd).events.tolist() == [7, 0]


@pytest.fixture
def no_jobs(monkeypatch):
    """Looks may not run a job of Spark."""
    monkeypatch.setattr(balance, "look_by_job", lambda *_: pytest.fail("a job was run to look"))


@pytest.fixture
def cut_small(spark):
    """Partitions of files have 2000 bytes."""
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    for name in names:
        spark.conf.set(name, 2000)
    yield
    for name in names:
        spark.conf.unset(name)


def test_the_driver_looks_into_parquet_files_itself(spark, crowd, tmp_path, no_jobs):
    values = points(300, 100)
    events = spark.read.parquet(written(tmp_path / "events", values[:300], values[300:310]))
    for chosen in (events, events.select("x", "z", "id", "y"), events.drop("y")):
        found = looked(chosen, crowd)
        assert found.events.tolist() == [300, 10]
    at = pa.table({name: values[:, place] for place, name in enumerate(NAMES)})
    found, visits, hits = (
        looked(events, crowd),
        inside(crowd).matcher.workload(crowd.schema.read(at)),
        crowd.match_batch(at).counts,
    )
    assert found.visits.tolist() == [visits[:300].sum(), visits[300:310].sum()]
    assert found.hits.tolist() == [hits[:300].sum(), hits[300:310].sum()]


def test_the_driver_knows_which_row_groups_each_partition_reads(spark, crowd, tmp_path, no_jobs, cut_small):
    """Files of several row groups, which are cut anywhere; a partition may read several files, or nothing."""
    values = points(900, 0)
    table = pa.table({"id": np.arange(900), **{name: values[:, k] for k, name in enumerate(NAMES)}})
    (tmp_path / "events").mkdir()
    for first, size in ((0, 30), (400, 7), (500, 400), (890, 1)):
        pq.write_table(table[first : first + 100], tmp_path / f"events/{first}.parquet", row_group_size=size)
    events = spark.read.parquet(str(tmp_path / "events"))
    rows = events.groupBy(sf.spark_partition_id()).count().collect()
    found = looked(events, crowd).events
    assert len(found) > 4
    assert {part: number for part, number in enumerate(found.tolist()) if number} == dict(rows)


def test_a_look_into_files_sees_all_of_a_partition(spark, crowd, tmp_path, no_jobs):
    values = points(200, 600)
    table = pa.table({"id": np.arange(800), **{name: values[:, k] for k, name in enumerate(NAMES)}})
    pq.write_table(table, tmp_path / "events", row_group_size=200)
    found = looked(spark.read.parquet(str(tmp_path / "events")), crowd)
    assert found.visits.tolist() == [inside(crowd).matcher.workload(crowd.schema.read(values)).sum()]


@pytest.mark.long
def test_a_job_looks_where_the_driver_would_read_something_else(spark, crowd, tmp_path, monkeypatch):
    path = written(tmp_path / "events", points(30, 10))
    filter = EventFilter(Schema({"x": float, "y": float, "X": float, "w": float}))
    whole, asked = spark.read.parquet(path), []
    monkeypatch.setattr(balance, "look_by_job", lambda *_: asked.append(1))
    others = {
        "a condition": whole.where("x > 0.1"),
        "a changed column": whole.withColumn("x", sf.col("x") + 1),
        "other names": whole.select("id", sf.col("x").alias("y"), sf.col("y").alias("x")),
        "another case": spark.read.schema("id long, X double").parquet(path).select("id", "X"),
        "a column that is not there": spark.read.schema("id long, w double, x double").parquet(path),
        "what is kept": whole.select("*").persist(),
    }
    for name, events in others.items():
        asked.clear()
        match_frame(events, filter)
        events.unpersist()
        assert asked == [1], name


def test_one_core_needs_no_look(spark, crowd, tmp_path, no_jobs, monkeypatch):
    monkeypatch.setattr(balance, "cores_of", lambda events: 1)
    monkeypatch.setattr(balance, "look", None)
    events = spark.read.parquet(written(tmp_path / "events", points(3, 3)))
    assert "match where they are (even, slowest core 1.00" in plan(match_frame(events, crowd))


def test_matches_are_counted_until_there_are_enough():
    filter = EventFilter(Schema({"x": float}))
    filter.subscribe_boxes(np.full((5000, 1), -np.inf), np.full((5000, 1), np.inf))
    filter.subscribe("x = 0")
    route = SimpleNamespace(
        leases=[SimpleNamespace(open=lambda: filter)],
        schema=filter.schema,
        find=lambda events: (None, None, inside(filter).matcher.workload(filter.schema.read(events))),
    )
    values = np.zeros(200)
    values[100:] = 1  # which is no longer looked at
    found = seen(route, route.schema.read(pa.table({"x": values})))
    assert found.tolist() == [
        200,
        inside(filter).matcher.workload(filter.schema.read(values[:, None])).sum(),
        200 * 5001,
    ]
    assert ENOUGH < 64 * 5000
    assert seen(route, route.schema.read(pa.table({"x": values[:0]}))).tolist() == [0, 0, 0]


@pytest.mark.long
def test_events_with_many_matches_are_dealt_out(spark, tmp_path, monkeypatch):
    """Each event visits the one leaf, but half of them match everything."""
    monkeypatch.setattr(balance, "ROUND", 0.0)
    filter = EventFilter(SCHEMA)
    filter.subscribe_boxes(np.full((500, 3), -np.inf), np.full((500, 3), 0.4))
    values = points(300, 300)
    parts = written(tmp_path / "events", values[:300], values[300:])
    result = match_frame(spark.read.parquet(parts), filter)
    assert "deal out (skewed, slowest core 1.9" in plan(result)
    rows = result.groupBy(sf.spark_partition_id()).count().collect()
    assert [row["count"] for row in rows] == [75_000, 75_000]


def test_a_look_computes_no_more_than_the_first_events(spark):
    first = balance._first(spark.range(0, 100, 1, 4), 3)
    assert [row.id for row in first.collect()] == [0, 1, 2, 25, 26, 27, 50, 51, 52, 75, 76, 77]
    assert "LocalLimit 3" in plan(first)
    assert "GlobalLimit" not in plan(first)


# Streams


def reports(told):
    """What tasks reported: events, visits and hits by partition."""
    return BatchReport({part: TaskReport(part, *found, LeftOut()) for part, found in told.items()})


def test_a_batch_is_expected_to_be_like_the_one_before():
    assert reports({}).work(np.array([5.0])) is None
    assert reports({0: (0, 0, 0)}).work(np.array([5.0])) is None
    told = {0: (10, 40, 0), 2: (10, 0, 10), 3: (0, 0, 0), 7: (20, 20, 30)}
    found = reports(told).work(np.array([1.0, 10, 100, 1000]))
    assert found.events.tolist() == [1, 10, 100, 1000]
    assert found.visits.tolist() == [4, 15, 0, 1500]  # partitions without events before are as all: 60 / 40
    assert found.hits.tolist() == [0, 10, 100, 1000]


@pytest.mark.parametrize("dealt", [False, True])
def test_tasks_report_what_they_saw(spark, crowd, tmp_path, dealt):
    crowd.save(tmp_path / "index")
    values = points(40, 30)
    events = spark.read.parquet(written(tmp_path / "events", values[:40], values[40:]))
    stage = MatchStage(tmp_path / "index", lambda matches, number: matches.count(), balance="auto")
    stage._decide = lambda *_: balance.DealDecision(dealt, "")
    stage(events, 0)
    told = {part: (task.events, task.visits, task.hits) for part, task in stage._before.tasks.items()}
    visits, hits = inside(crowd).matcher.workload(crowd.schema.read(values)), crowd.match_batch(values).counts
    assert told == {
        0: (40, visits[:40].sum(), hits[:40].sum()),
        1: (30, visits[40:].sum(), hits[40:].sum()),
    }


@pytest.mark.long
def test_a_stream_learns_from_the_batch_before(spark, crowd, tmp_path, monkeypatch):
    monkeypatch.setattr(balance, "ROUND", 0.0)
    crowd.save(tmp_path / "index")
    values = points(300, 300)
    skewed = spark.read.parquet(written(tmp_path / "skewed", values[:300], values[300:]))
    even = spark.read.parquet(written(tmp_path / "even", values[::2], values[1::2]))
    looked, plans, metrics = [], [], StreamMetrics()
    look = balance.look
    monkeypatch.setattr(balance, "look", lambda *given: looked.append(1) or look(*given))

    def sink(matches, number):
        plans.append("Exchange" in plan(matches))
        assert matches.count() > 0

    stage = MatchStage(tmp_path / "index", sink, metrics=metrics)
    for number, batch in enumerate((skewed, even, even)):
        stage(batch, number)
    assert len(looked) == 1
    assert plans == [True, True, False]
    value = metrics.registry.get_sample_value
    assert value("rtfilter_spark_decisions_total", {"dealt": "yes", "reason": "skewed"}) == 2
    assert value("rtfilter_spark_decisions_total", {"dealt": "no", "reason": "even"}) == 1
    assert 1 <= value("rtfilter_spark_skew") < 1.1
