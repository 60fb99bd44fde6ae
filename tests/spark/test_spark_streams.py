"""Streams give what batches give, once, with the subscriptions of the time."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import stream_driver
from experiments.ports import free_port
from lengths import long_but
from rtfilter import EventFilter, PredicateError, Schema, SnapshotError
from rtfilter.spark import ChangeStage, MatchStage, Once, ShardedIndex, build_sharded
from rtfilter.spark.watch import StreamMetrics
from spark_cases import temporary, wait

SCHEMA = Schema({"x": float})
BATCHES = 0, 3, 7
"""Hundreds of events in the files of a stream."""


def line(count, ids=None):
    """Subscriptions to the unit intervals [i, i + 1]."""
    filter = EventFilter(SCHEMA)
    low = np.arange(count, dtype=float)[:, None]
    filter.subscribe_boxes(low, low + 1, ids=ids)
    return filter


def conditions(spark, count):
    """The same, as a frame."""
    rows = [(i, f"x BETWEEN {i} AND {i + 1}") for i in range(count)]
    return spark.createDataFrame(rows, "id int, where string")


def events(n, first=0):
    """Events between the ends of the intervals."""
    return pa.table({"id": np.arange(first, first + n), "x": np.arange(first, first + n) % 50 + 0.5})


def of(result):
    return sorted(
        zip(result.column("id").to_pylist(), result.column("subscription").to_pylist(), strict=True)
    )


def stream(spark, files, stage, tmp_path, **options):
    source = spark.readStream.schema("id long, x double").option("maxFilesPerTrigger", 1)
    writer = source.parquet(str(files)).writeStream.foreachBatch(stage)
    return writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)


@pytest.fixture
def files(tmp_path):
    """Files of events, one of them empty."""
    (tmp_path / "events").mkdir()
    for k in BATCHES:
        pq.write_table(events(100 * k, 1000 * k), tmp_path / "events" / f"{k}.parquet")
    return tmp_path / "events"


@pytest.mark.parametrize("sharded", long_but([False, True], [False]))
def test_a_stream_gives_all_matches_once(spark, files, tmp_path, sharded):
    filter = line(50)
    if sharded:
        given = spark.createDataFrame(
            [(i, f"x BETWEEN {i} AND {i + 1}") for i in range(50)], "id int, where string"
        )
        build_sharded(given, tmp_path / "index", SCHEMA, shards=3)
    else:
        filter.save(tmp_path / "index")
    metrics = StreamMetrics()
    stop, unlisten = metrics.serve(free_port()), metrics.listen(spark)
    try:
        stage = MatchStage(tmp_path / "index", Once(tmp_path / "out"), metrics=metrics)
        query = stream(spark, files, stage, tmp_path).queryName("alerts").start()
        query.awaitTermination()
        wait(
            lambda: (
                metrics.registry.get_sample_value("rtfilter_spark_query_running", {"query": "alerts"}) == 0
            )
        )
    finally:
        unlisten()
        stop()
    found = pq.read_table(tmp_path / "out")
    expected = [(row["id"], int(s)) for k in BATCHES for row in events(100 * k, 1000 * k).to_pylist()
                for s in filter.match({"x": row["x"]})]  # fmt: skip
    assert of(found) == sorted(expected)
    value = metrics.registry.get_sample_value
    assert value("rtfilter_spark_events_total") == 1000
    assert value("rtfilter_spark_matches_total") == len(expected)
    assert value("rtfilter_spark_batches_total", {"size_class": "256"}) == 1
    assert value("rtfilter_spark_batch_seconds_count", {"size_class": "512"}) == 1
    assert value("rtfilter_spark_input_rows_total", {"query": "alerts"}) == 1000
    assert value("rtfilter_spark_phase_seconds_total", {"query": "alerts", "phase": "addBatch"}) > 0
    assert 0 < value("rtfilter_spark_last_offset_seconds") <= value("rtfilter_spark_offset_seconds_total")
    assert value("rtfilter_spark_index_subscriptions") == 50
    reason = {"dealt": "yes", "reason": "shards"} if sharded else {"dealt": "no", "reason": "cheap"}
    assert value("rtfilter_spark_decisions_total", reason) == 2  # one batch is empty


def test_metrics_are_scraped():
    metrics, port = StreamMetrics(), free_port()
    metrics.record(100, 0.5, 7, 1.5, 0.4)
    stop = metrics.serve(port)
    try:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    finally:
        stop()
    assert 'rtfilter_spark_batch_seconds_bucket{le="0.5",size_class="64"} 1.0' in text
    assert 'rtfilter_spark_batch_seconds_bucket{le="0.25",size_class="64"} 0.0' in text


@pytest.mark.long
def test_a_batch_sees_the_newest_version(spark, tmp_path):
    filter, seen = line(3), []
    filter.save(tmp_path / "index")
    stage = MatchStage(tmp_path / "index", lambda matches, n: seen.append((n, of(matches.toArrow()))))
    one = spark.createDataFrame([(7, 1.5)], "id long, x double")
    stage(one, 0)
    filter.update(1, "x < 0")
    filter.save(tmp_path / "index")
    stage(one, 1)
    filter.subscribe("x > 1", id=9)
    filter.save(tmp_path / "index")
    stage(one, 2)
    stage(one.limit(0), 3)
    assert seen == [(0, [(7, 1)]), (1, []), (2, [(7, 9)])]
    assert stage.subscriptions == 4


def test_a_snapshot_that_is_replaced_meanwhile_stays_readable(spark, tmp_path):
    filter = line(3)
    filter.save(tmp_path / "index")
    seen = []

    def sink(matches, number):
        filter.unsubscribe_many([0, 1, 2])
        filter.save(tmp_path / "index")
        from rtfilter.spark import leases

        leases._open.clear()
        seen.extend(of(matches.toArrow()))

    MatchStage(tmp_path / "index", sink)(spark.createDataFrame([(7, 1.5)], "id long, x double"), 0)
    assert seen == [(7, 1)]


@pytest.mark.parametrize(
    ("balance", "partitions"),
    [
        pytest.param(True, 2, marks=pytest.mark.long),
        (False, 3),
        pytest.param("auto", 3, marks=pytest.mark.long),
    ],
)
def test_every_way_to_balance_gives_the_same(spark, tmp_path, balance, partitions):
    line(50).save(tmp_path / "index")
    seen = []
    stage = MatchStage(
        tmp_path / "index",
        lambda matches, n: seen.append((matches.rdd.getNumPartitions(), of(matches.toArrow()))),
        balance=balance,
    )
    stage(spark.createDataFrame(events(100)).repartition(3), 0)
    assert seen == [(partitions, [(i, i % 50) for i in range(100)])]
    with pytest.raises(ValueError, match='balance is True, False or "auto", not 2'):
        MatchStage(tmp_path / "index", print, balance=2)


def test_a_batch_that_was_written_is_not_written_again(spark, tmp_path):
    line(3).save(tmp_path / "index")
    once = Once(tmp_path / "out")
    stage = MatchStage(tmp_path / "index", once)
    stage(spark.createDataFrame([(7, 1.5)], "id long, x double"), 0)
    stage(spark.createDataFrame([(8, 1.5)], "id long, x double"), 0)
    assert of(pq.read_table(tmp_path / "out")) == [(7, 1)]
    stage(spark.createDataFrame([(8, 1.5)], "id long, x double"), 1)
    assert of(pq.read_table(tmp_path / "out")) == [(7, 1), (8, 1)]


@pytest.mark.long
def test_the_directory_of_another_query_is_refused(spark, tmp_path):
    files = tmp_path / "events"
    files.mkdir()
    pq.write_table(events(10), files / "0.parquet")
    line(50).save(tmp_path / "index")
    stage = MatchStage(tmp_path / "index", Once(tmp_path / "out"))
    stream(spark, files, stage, tmp_path).start().awaitTermination()
    found = of(pq.read_table(tmp_path / "out"))
    stream(spark, files, stage, tmp_path).start().awaitTermination()  # goes on where it was
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(StreamingQueryException, match="has the results of another query"):
        stream(spark, files, stage, tmp_path).start().awaitTermination()
    assert of(pq.read_table(tmp_path / "out")) == found


def test_a_sink_is_callable(tmp_path):
    with pytest.raises(TypeError, match="or Once"):
        MatchStage(tmp_path / "index", "matches")


def test_a_query_without_an_index_says_what_is_missing(spark, files, tmp_path):
    stage = MatchStage(tmp_path / "index", Once(tmp_path / "out"))
    query = stream(spark, files, stage, tmp_path).start()
    with pytest.raises(StreamingQueryException, match=r"is no snapshot of an EventFilter"):
        query.awaitTermination()


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda matches: None, marks=pytest.mark.long),
        lambda matches: matches.foreachPartition(lambda rows: None),
        pytest.param(lambda matches: matches.collect(), marks=pytest.mark.long),
    ],
)
def test_metrics_do_not_depend_on_what_a_sink_does(spark, tmp_path, use):
    line(3).save(tmp_path / "index")
    metrics = StreamMetrics()
    stage = MatchStage(tmp_path / "index", lambda matches, n: use(matches), id="my.id", metrics=metrics)
    stage(spark.createDataFrame([(7, 1.5)], "`my.id` long, x double"), 0)
    assert metrics.registry.get_sample_value("rtfilter_spark_events_total") == 1
    assert metrics.registry.get_sample_value("rtfilter_spark_matches_total") == 1


def test_once_writes_a_batch_once_by_itself(spark, tmp_path):
    once = Once(tmp_path / "out")
    once(spark.range(1), 0)
    once(spark.range(5), 0)
    assert pq.read_table(tmp_path / "out").num_rows == 1


def test_a_batch_that_was_copied_in_part_is_written_again(spark, tmp_path):
    sink = Once(tmp_path / "out")
    sink(spark.range(3), 0)
    part = next((tmp_path / "out" / "batch=0").glob("part-*"))
    (tmp_path / "out" / ".spark-staging-killed" / "batch=0").mkdir(parents=True)
    part.rename(tmp_path / "out" / ".spark-staging-killed" / "batch=0" / part.name)
    sink(spark.range(3), 0)
    assert sorted(pq.read_table(tmp_path / "out")["id"].to_pylist()) == [0, 1, 2]


@pytest.mark.long
def test_old_versions_do_not_pile_up(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    filter = line(3)
    filter.save(tmp_path / "index")
    stage = MatchStage(tmp_path / "index", lambda matches, n: matches.collect())
    for number in range(2):
        filter.subscribe("x > 1")
        filter.save(tmp_path / "index")
        stage(spark.createDataFrame([(7, 1.5)], "id long, x double"), number)
    assert len(list(tmp_path.glob("rtfilter-*/held-*"))) == 1


# Changes


ONE_PIECE = pytest.mark.parametrize("index", long_but(["one piece", "shards"], ["one piece"]), indirect=True)
"""What is done before an index is looked for."""


@pytest.fixture(params=["one piece", "shards"])
def index(request, spark, tmp_path):
    """An index of the intervals 0 to 19, and what reads it."""
    path = tmp_path / "index"
    if request.param == "shards":
        given = spark.createDataFrame(
            [(i, f"x BETWEEN {i} AND {i + 1}") for i in range(20)], "id int, where string"
        )
        build_sharded(given, path, SCHEMA, shards=3)
    else:
        line(20).save(path)

    def content():
        """Subscriptions at the middles of the intervals."""
        places = {"x": np.arange(25) + 0.5}
        if request.param == "shards":
            leases = ShardedIndex.open(path).route().leases
            parts = [lease.load().match_batch(pa.table(places)).pairs() for lease in leases]
        else:
            parts = [EventFilter.load(path).match_batch(pa.table(places)).pairs()]
        return sorted((int(x), int(id)) for part in parts for x, id in part.T)

    return path, content


@pytest.mark.parametrize("index", long_but(["one piece", "shards"], ["shards"]), indirect=True)
def test_changes_are_applied_and_doing_so_again_changes_nothing(spark, index):
    path, content = index
    stage = ChangeStage(path)
    changes = spark.createDataFrame(
        [(3, "x BETWEEN 20 AND 22", False), (30, "x > 24", None), (5, None, True), (99, None, True)],
        "id int, where string, removed boolean",
    )
    expected = sorted([*((i, i) for i in range(20) if i not in (3, 5)), (20, 3), (21, 3), (24, 30)])
    for number in (0, 0, 1):
        stage(changes, number)
        assert content() == expected
    ChangeStage(path)(changes.where("removed"), 2)
    assert content() == expected


@ONE_PIECE
def test_the_last_change_of_a_batch_counts(spark, index):
    path, content = index
    changes = spark.createDataFrame(
        [(3, "x > 24", 2), (3, "x > 23 AND x < 24", 1), (4, "x > 24", 1)], "id int, where string, at int"
    )
    with pytest.raises(ValueError, match="subscription 3 occurs 2 times; name a column"):
        ChangeStage(path, on_error="raise")(changes.drop("at"), 0)
    before = content()
    assert before == [(i, i) for i in range(20)]
    ChangeStage(path, order="at")(changes, 0)
    assert content() == sorted([*((i, i) for i in range(20) if i not in (3, 4)), (24, 3), (24, 4)])


@pytest.mark.long
@ONE_PIECE
def test_removals_are_exact_and_have_ids(spark, index):
    path, content = index
    one = 2**60
    kinds = "id long, where string, removed boolean"
    ChangeStage(path)(spark.createDataFrame([(one, "x > 24", None), (one + 1, "x > 24", None)], kinds), 0)
    removals = spark.createDataFrame([(one + 1, None, True), (None, None, True)], kinds)
    with pytest.raises(ValueError, match="1 changes have no id"):
        ChangeStage(path, on_error="raise")(removals, 1)
    ChangeStage(path)(removals.dropna(subset="id"), 2)
    assert content()[-1] == (24, one)
    both = spark.createDataFrame([(3, "x > 24", False), (3, None, True)], kinds)
    with pytest.raises(ValueError, match="subscription 3 occurs 2 times"):
        ChangeStage(path, on_error="raise")(both, 3)


@ONE_PIECE
def test_a_change_that_cannot_be_applied_changes_nothing(spark, index):
    path, content = index
    stage = ChangeStage(path, on_error="raise")
    changes = spark.createDataFrame([(3, "x > 24"), (4, "x >")], "id int, where string")
    for _ in range(2):
        with pytest.raises(PredicateError, match=r"^subscription 4: "):
            stage(changes, 0)
        assert content() == [(i, i) for i in range(20)]
    stage(changes.where("id = 3"), 1)
    assert content() == sorted([*((i, i) for i in range(20) if i != 3), (24, 3)])


def test_changes_elsewhere_need_shards(spark):
    changes = spark.createDataFrame([(3, "x > 24")], "id int, where string")
    with pytest.raises(SnapshotError, match="only an index of build_sharded can be changed there"):
        ChangeStage("mock://nowhere/index")(changes, 0)


# Killed and started again


def wait_for_batches(home, count, alive):
    """Wait until so many batches are out."""
    deadline = time.monotonic() + 600
    while len(list((home / "out").glob("batch=*"))) < count:
        assert alive()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stopped_after(spark, home, count):
    """Run both queries in this session, and stop them after so many batches."""
    thread = threading.Thread(target=stream_driver.run, args=(spark, home, True))
    thread.start()
    try:
        wait_for_batches(home, count, thread.is_alive)
    finally:
        for query in spark.streams.active:
            query.stop()
        thread.join()


def killed_after(spark, home, count):
    """Run both queries in another process, and kill it, with its JVM and workers, after so many batches."""
    driver = [sys.executable, stream_driver.__file__, str(home), "--changes-first"]
    environment = {**os.environ, **temporary(home), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(driver, env=environment, stdout=subprocess.DEVNULL, start_new_session=True,
                               stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    try:
        wait_for_batches(home, count, lambda: process.poll() is None)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(list(home.glob("blockmgr-*"))) == 1  # a killed machine leaves its files


def put_events_and_changes(tmp_path):
    """Write what `stream_driver` reads: an index, events, and changes of the subscriptions 0 and 1."""
    line(50).save(tmp_path / "index")
    for name in ("events", "changes"):
        (tmp_path / name).mkdir()
    for k in range(4):
        pq.write_table(events(500, 500 * k), tmp_path / "events" / f"{k}.parquet")
    for k in range(2):
        added = {"id": [100 + k, k], "where": [f"x BETWEEN {k} AND {k + 1}", None], "removed": [False, True]}
        pq.write_table(pa.table(added), tmp_path / "changes" / f"{k}.parquet")


def require_all(tmp_path):
    """Check the result: all changes were there before the first event."""
    now = EventFilter.load(tmp_path / "index")
    assert sorted(now.ids()) == [*range(2, 50), *range(100, 102)]
    expected = [(i, 100 + i % 50 if i % 50 < 2 else i % 50) for i in range(2000)]  # one for each interval
    assert of(pq.read_table(tmp_path / "out")) == expected
    assert len(list((tmp_path / "out").glob("batch=*"))) == 4


@pytest.mark.parametrize("ended_after", long_but([stopped_after, killed_after], [stopped_after]))
def test_a_query_that_ended_anywhere_goes_on_and_loses_and_doubles_nothing(ended_after, spark, tmp_path):
    put_events_and_changes(tmp_path)
    ended_after(spark, tmp_path, 2)
    # As if it had been killed after the result was written, before Spark noted so.
    commits = tmp_path / "events-state" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in commits.glob(f"*{last}*"):
        file.unlink()
    kept = of(pq.read_table(tmp_path / "out" / f"batch={last}"))
    stream_driver.run(spark, tmp_path)
    assert of(pq.read_table(tmp_path / "out" / f"batch={last}")) == kept
    require_all(tmp_path)
    shutil.rmtree(tmp_path / "out")
