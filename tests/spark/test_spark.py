"""Matching on Spark equals matching here, for any partitioning."""

import importlib
import json
import os
import shutil
import sys
import types
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf

from rtfilter import EventError, EventFilter, Schema, SnapshotError
from rtfilter.cli import main
from rtfilter.filter import inside
from rtfilter.spark import leases, match_frame
from rtfilter.spark.blocks import Layout
from rtfilter.spark.data_frames import dealt
from rtfilter.spark.sessions import TRACING, require_java
from spark_cases import expected, frame, pairs
from spark_tasks import matched_here


@pytest.mark.parametrize(
    ("saved", "partitions"), [(True, None), pytest.param(False, 1, marks=pytest.mark.long), (False, 3)]
)
def test_pairs_are_those_of_the_filter(spark, alerts, rows, tmp_path, saved, partitions):
    if saved:
        alerts.save(tmp_path / "index")
    result = match_frame(frame(spark, rows), tmp_path / "index" if saved else alerts, partitions=partitions)
    assert result.columns == ["id", "subscription"]
    assert pairs(result) == expected(alerts, rows)
    assert result.rdd.getNumPartitions() == (partitions or 2)


@pytest.mark.long
@pytest.mark.parametrize("events", [0, 1, 7])
def test_more_partitions_than_events(spark, alerts, rows, events):
    result = match_frame(frame(spark, rows[:events]), alerts, partitions=9)
    assert pairs(result) == expected(alerts, rows[:events])


@pytest.mark.long
def test_plans_that_spark_changes_find_the_same(spark, alerts, rows):
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, True)  # which is the default; the session of short tests has it off
    try:
        assert pairs(match_frame(frame(spark, rows), alerts, partitions=3)) == expected(alerts, rows)
    finally:
        spark.conf.set(name, before)


def test_what_the_filter_is_at_the_call_counts(spark, rows):
    filter = EventFilter(Schema({"price": float}))
    empty = match_frame(frame(spark, rows), filter)
    filter.subscribe("price >= 50")
    before = match_frame(frame(spark, rows), filter)
    old = expected(filter, rows)
    filter.subscribe("price < 50")
    assert pairs(empty) == []
    assert pairs(before) == old
    assert pairs(match_frame(frame(spark, rows), filter)) == expected(filter, rows)


@pytest.mark.parametrize(
    ("made", "partitions"),
    [
        pytest.param("rule-{}".format, 3, marks=pytest.mark.long),
        (lambda number: UUID(int=number), None),
        pytest.param("rule-{}".format, None, marks=pytest.mark.long),
        pytest.param(lambda number: UUID(int=number), 3, marks=pytest.mark.long),
    ],
    ids=["text", "UUIDs", "text where it is", "UUIDs dealt out"],
)
def test_ids_that_are_no_integers_are_text(spark, rows, made, partitions):
    filter = EventFilter(Schema({"price": float}))
    filter.subscribe_many(["price >= 50", "price < 60", "price > 0"], ids=[made(n) for n in range(3)])
    result = match_frame(frame(spark, rows), filter, partitions=partitions)
    assert dict(result.dtypes)["subscription"] == "string"
    wanted = sorted((row["id"], str(id)) for row in rows for id in filter.match(row))
    assert pairs(result) == wanted


@pytest.mark.long
def test_deadlines_are_held_against_the_moment_of_the_call(spark, rows):
    filter = EventFilter(Schema({"price": float}))
    filter.subscribe("price >= 0")
    filter.subscribe("price >= 0", ttl=10**6)
    filter.subscribe("price >= 0", ttl=1e-9)
    before = match_frame(frame(spark, rows), filter)
    filter.update(1, ttl=1e-9)
    assert {id for _, id in pairs(before)} == {0, 1}
    assert {id for _, id in pairs(match_frame(frame(spark, rows), filter))} == {0}


def test_columns_may_have_any_names(spark):
    filter = EventFilter(Schema({"x": float, "a`b": float}))
    filter.subscribe_boxes([[0, 0]], [[1, 1]])
    events = spark.createDataFrame(
        [(7, 0.5, 9.0, 0.5, None)], "`the``id` int, x double, `x.y` double, `a``b` double, n void"
    )
    assert match_frame(events, filter, id="the`id").collect() == [(7, 0)]


def test_columns_without_an_order_of_their_own_are_taken(spark):
    filter = EventFilter(Schema({"x.a": float}))
    filter.subscribe_boxes([[0]], [[1]])
    kinds = "id map<string, int>, x struct<a: double, rest: map<string, int>>"
    events = spark.createDataFrame([({"n": 7}, (0.5, {"b": 1}))], kinds).repartition(2)
    assert [(row.id, row.subscription) for row in match_frame(events, filter).collect()] == [({"n": 7}, 0)]


@pytest.mark.parametrize("partitions", [3, pytest.param(None, marks=pytest.mark.long)])
def test_columns_of_arrays_are_lists(spark, partitions):
    filter = EventFilter(Schema({"tags": str, "staff.name": str, "staff.pay": float}))
    filter.subscribe_many(
        [
            "tags = 'a'",
            "ANY tags = 'a' AND ANY tags = 'b'",
            "NONE tags = 'a'",
            "staff.name = 'Ann' AND staff.pay > 5",
            "ALL staff.pay > 5",
        ]
    )
    rows = [
        {"id": "0", "tags": ["a", "b"], "staff": [{"name": "Ann", "pay": 1.0}, {"name": "Bob", "pay": 9.0}]},
        {"id": "1", "tags": ["b", None], "staff": [{"name": "Ann", "pay": 6.0}]},
        {"id": "2", "tags": [], "staff": None},
    ]
    kinds = "id string, tags array<string>, staff array<struct<name: string, pay: double>>"
    events = spark.createDataFrame([tuple(row.values()) for row in rows], kinds).repartition(2)
    wanted = [("0", 0), ("0", 1), ("1", 2), ("1", 3), ("1", 4)]
    assert pairs(match_frame(events, filter, partitions=partitions)) == wanted == expected(filter, rows)


def test_events_of_all_types(spark):
    """Timestamps with and without a zone, whole numbers of several widths, booleans, strings."""
    types = {"at": datetime, "local": datetime, "small": int, "long": int, "real": float, "live": bool}
    filter = EventFilter(Schema({**types, "name": str}))
    filter.subscribe_many(
        [
            "at > '2024-01-01T12:00:00Z'",
            "local > '2024-01-01T12:00:00Z'",
            "small = 7 AND real > 1.5",
            f"long = {2**53 + 1}",
            "live = TRUE AND name LIKE 'a%'",
        ]
    )
    late, early = datetime(2024, 1, 1, 13, tzinfo=UTC), datetime(2024, 1, 1, 11, tzinfo=UTC)
    rows = [
        (1, late, None, 7, 2**53, 2.0, False, "a"),
        (2, early, late.replace(tzinfo=None), None, 2**53 + 1, 2.0, True, "ab"),
    ]
    kinds = "at timestamp, local timestamp_ntz, small short, long long, real float, live boolean, name string"
    events = spark.createDataFrame(rows, f"id int, {kinds}")
    assert pairs(match_frame(events, filter)) == [(1, 0), (1, 2), (2, 1), (2, 3), (2, 4)]


@pytest.mark.long
def test_rows_that_were_shuffled_are_dealt_in_an_order_of_their_own(spark, rows, tmp_path, compiled):
    def carried(events, names):
        return Layout.of(events, names, "id").carried(events)

    shuffled = carried(frame(spark, rows, 2), ["price", "id", "at"])
    parts = {0: [], 1: []}
    for part, price, id in shuffled.select(sf.spark_partition_id(), "c0", "c1").collect():
        parts[part].append(((price is not None, price or 0), id))
    for keys in parts.values():
        assert len(keys) > 50
        assert keys == sorted(keys)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    for plan in (
        frame(spark, rows, 2).limit(9),
        frame(spark, rows, 2).orderBy("price").limit(9),
    ):
        assert "Sort " in carried(plan, ["price", "id"])._jdf.queryExecution().executedPlan().toString()
    read = carried(spark.read.parquet(str(tmp_path / "rows.parquet")), ["price", "id"])
    assert "Sort" not in read._jdf.queryExecution().executedPlan().toString()


@pytest.fixture
def compiled(spark):
    """Spark compiles its plans, as it does by itself, and shows them so."""
    spark.conf.set("spark.sql.codegen.wholeStage", True)
    yield
    spark.conf.set("spark.sql.codegen.wholeStage", False)


def skewed():
    """A filter with a hot corner, and events of which the first third is hot; all match something."""
    rng = np.random.default_rng(6)
    low = np.concatenate([rng.random((4000, 3)) * 0.05, rng.random((400, 3))])
    filter = EventFilter(Schema(dict.fromkeys("xyz", float)), matcher={"name": "rtree", "capacity": (8, 16)})
    filter.subscribe_boxes(low, low + 0.02)
    filter.subscribe_boxes(np.full((1, 3), -np.inf), np.full((1, 3), np.inf))
    filter.repack()  # as the copies that tasks get
    return filter, np.concatenate([rng.random((500, 3)) * 0.1, rng.random((1000, 3))])


def test_partitions_have_the_same_work_and_do_the_least_first(tmp_path):
    filter, points = skewed()
    filter.save(tmp_path / "index")
    workload = inside(filter).matcher.workload(filter.schema.read(points))
    contiguous = workload.reshape(3, -1).sum(axis=1)
    assert contiguous.max() > 1.5 * contiguous.mean()
    events = pa.table({"id": range(len(points)), **{name: points[:, k] for k, name in enumerate("xyz")}})
    parts = matched_here(tmp_path / "index", [events[:700], events[700:]], 3)
    found = pa.concat_tables(parts)
    assert sorted(zip(found["id"].to_pylist(), found["subscription"].to_pylist(), strict=True)) == sorted(
        map(tuple, filter.match_batch(points).pairs().T.tolist())
    )
    assert set(zip(found["id"].to_pylist(), found["workload"].to_pylist(), strict=True)) == set(
        enumerate(workload.tolist())
    )
    work = np.array([workload[np.unique(part["id"])].sum() for part in parts])
    assert work.max() <= 1.15 * work.mean()
    for part in parts:
        order = list(zip(part["workload"].to_pylist(), part["offset"].to_pylist(), strict=True))
        assert order == sorted(order)
    alone = matched_here(tmp_path / "index", [events[:1]], 9)
    assert sum(map(len, alone)) == filter.match_batch(points[:1]).counts.sum()


def test_dealing_evens_out_from_batch_to_batch():
    rng = np.random.default_rng(7)
    loads = np.zeros(7, np.int64)
    total = np.zeros(7, np.int64)
    for _ in range(30):
        workload = rng.zipf(1.5, 50).clip(max=1000)
        np.add.at(total, dealt(workload, loads), workload)
    assert (total == loads).all()
    assert total.max() - total.min() <= 2 * 1000


def test_mistakes_are_named_before_anything_runs(spark, alerts, rows, tmp_path):
    events = frame(spark, rows)
    with pytest.raises(ValueError, match="no column 'key' to name them; their columns are id, price"):
        match_frame(events, alerts, id="key")
    with pytest.raises(ValueError, match="'id' and 'id' are both 'id' to Spark"):
        match_frame(events.withColumnRenamed("other", "id"), alerts)
    with pytest.raises(TypeError, match="events are a DataFrame of Spark, not EventFilter"):
        match_frame(alerts, events)
    with pytest.raises(ValueError, match="at least 1 partition, not 0"):
        match_frame(events, alerts, partitions=0)
    with pytest.raises(ValueError, match="rename"):
        match_frame(events.withColumnRenamed("id", "workload"), alerts, id="workload")
    with pytest.raises(EventError, match="none of the attributes price, symbol"):
        match_frame(events.select("id", "other"), alerts)
    for column, kind, family in (("price", "string", "number"), ("symbol", "int", "str")):
        with pytest.raises(EventError, match=f"column '{column}' is {kind}, but the attribute is a {family}"):
            match_frame(events.withColumn(column, sf.lit(None).cast(kind)), alerts)
    with pytest.raises(EventError, match=r"column 'at.depth' is string, but the attribute is a number"):
        match_frame(events.withColumn("at", sf.struct(sf.lit("a").alias("depth"))), alerts)
    with pytest.raises(SnapshotError, match=r"no snapshot of an EventFilter; make one with EventFilter.save"):
        match_frame(events, tmp_path / "nothing")


# The command line


@pytest.fixture
def files(alerts, rows, tmp_path, monkeypatch):
    """A saved index and events as Parquet and JSON lines, in the present directory."""
    monkeypatch.chdir(tmp_path)
    alerts.save("index")
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, "events.parquet")
    Path("events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = table.rename_columns(["name", *table.column_names[1:]])
    pq.write_table(named, "named.parquet")
    Path("named.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named.to_pylist()))


@pytest.mark.parametrize(
    ("source", "options"),
    [
        pytest.param("events.parquet", [], marks=pytest.mark.long),
        pytest.param("events.jsonl", ["--partitions", "3"], marks=pytest.mark.long),
        pytest.param("named.parquet", ["--id", "name", "--details"], marks=pytest.mark.long),
        ("named.jsonl", ["--id", "name", "--partitions", "3", "--details"]),
    ],
)
def test_the_command_writes_all_matches(spark, files, alerts, rows, source, options, capsys):
    here = Path.cwd()  # not that of the session
    assert main(["spark-match", "index", str(here / source), "--out", str(here / "matches"), *options]) == 0
    found = pq.read_table("matches").to_pylist()
    name = "name" if "--id" in options else "id"
    assert sorted((row[name], row["subscription"]) for row in found) == expected(alerts, rows)
    assert ("offset" in found[0]) == ("--details" in options)
    assert f"rtfilter: {len(found):,} matches in " in capsys.readouterr().err


def test_the_command_tells_of_attributes_without_a_column(spark, files, capsys):
    here = Path.cwd()
    (here / "few.jsonl").write_text('{"id": "e", "prise": 5, "symbol": "AB"}\n')
    assert main(["spark-match", "index", str(here / "few.jsonl"), "--out", str(here / "few")]) == 0
    said = capsys.readouterr().err
    assert "events have no column price, at.depth: counts as missing" in said


def test_failures_of_the_command_say_what_to_do(spark, files, capsys):
    Path("broken.jsonl").write_text('{"id": 1, "price": 2.0}\n{"id":\n')
    Path("damaged.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    Path("infinite.jsonl").write_text('{"id": 1, "price": 1e400, "symbol": "A", "at": {"depth": 1}}\n')
    for (index, events, out), message in {
        (
            "nothing",
            "events.parquet",
            "new",
        ): "nothing: is no saved index; make one with rtfilter index build",
        ("index", "nothing.parquet", "new"): "nothing.parquet",
        ("index", "named.parquet", "new"): "events have no column 'id' with their ids",
        ("index", "infinite.jsonl", "new"): "error: event 1: attribute 'price' is infinite",
        (
            "index",
            "damaged.parquet",
            "new",
        ): "damaged.parquet: corrupted file: the footer index is not within",
        ("index", "broken.jsonl", "new"): "broken.jsonl: holds a line that is no JSON object\n",
        ("index", "events.parquet", "index"): "already exists",
    }.items():
        paths = [str(Path.cwd() / name) for name in (events, out)]
        assert main(["spark-match", index, paths[0], "--out", paths[1]]) == 2
        said = capsys.readouterr().err
        assert said.startswith("rtfilter: error: ")
        assert message in said
        assert said.count("\n") == 1


def test_the_command_lets_nobody_log_traces(spark, files):
    log4j = spark._jvm.org.apache.logging.log4j
    spark.sparkContext.setLogLevel("WARN")
    Path("typed.jsonl").write_text('{"id": 1, "price": true}\n')
    try:
        assert main(["spark-match", "index", str(Path.cwd() / "typed.jsonl"), "--out", "new"]) == 2
        for name in TRACING:
            assert str(log4j.LogManager.getLogger(f"org.apache.spark.{name}").getLevel()) == "OFF"
    finally:
        spark.sparkContext.setLogLevel("OFF")


@pytest.mark.parametrize(
    ("java", "message"),
    [
        (None, "which is not at JAVA_HOME="),
        ('openjdk version "1.8.0_302"', "needs Java 17 or newer, not openjdk version"),
        ("", "needs Java 17 or newer"),
    ],
)
def test_a_missing_or_old_java_is_named(java, message, tmp_path, monkeypatch):
    if java is not None:
        script = tmp_path / "bin" / "java"
        script.parent.mkdir()
        script.write_text(f"#!/bin/sh\necho '{java}' >&2\n")
        script.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match=message) as caught:
        require_java()
    assert "install Java 17 or newer" in str(caught.value)


@pytest.mark.parametrize(
    ("version", "message"),
    [("4.0.2", "needs PySpark 4.1 or newer, not 4.0.2"), (None, r"pip install .*\[spark\]'$")],
)
def test_a_missing_or_old_spark_is_named(version, message, monkeypatch):
    old = types.ModuleType("pyspark")
    old.__version__ = version
    monkeypatch.setitem(sys.modules, "pyspark", old if version else None)
    monkeypatch.delitem(sys.modules, "rtfilter.spark")
    with pytest.raises(ImportError, match=message):
        importlib.import_module("rtfilter.spark")


# Leases, for which no machine of Java is needed


class Session:
    """All that leases ask of a classic session."""

    def __init__(self, master="local[2]"):
        self.conf, self.sent, self._jsparkSession = {"spark.master": master}, [], None

    def addArtifacts(self, *files, file):  # noqa: N802
        self.sent += files


LOCAL = Session()


def homes(tmp_path):
    """Directories of fetched indexes."""
    own = tmp_path / f"rtfilter-{os.getuid()}"
    return [path.name for path in own.iterdir() if path.is_dir()]


def test_a_lease_holds_nothing_of_the_index(alerts):
    lease = leases.lend(LOCAL, alerts)
    assert len(lease.manifest) < 20_000
    assert leases.lend(LOCAL, alerts) == lease
    assert lease.open() is lease.open()


def test_executors_have_the_matcher_of_a_filter_with_its_options():
    filter = EventFilter(Schema({"price": float}), matcher={"name": "filter-nodes", "bit_lists": 0.5})
    filter.subscribe_many(["price < 10", "price > 5"])
    held = leases.lend(LOCAL, filter).open()._subscriptions
    assert (held.name, dict(held.matcher.options)) == ("filter-nodes", {"bit_lists": 0.5})


def test_files_that_spark_sent_are_put_together_once(alerts, rows, tmp_path, monkeypatch):
    alerts.save(tmp_path / "index")
    lease = leases.lend(LOCAL, tmp_path / "index")
    shutil.copytree(tmp_path / "index", tmp_path / "sent")
    shutil.rmtree(tmp_path / "index")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("pyspark.SparkFiles.get", lambda name: str(tmp_path / "sent" / name))
    found = lease.open()
    assert [sorted(found.match(row)) for row in rows] == [sorted(alerts.match(row)) for row in rows]
    shutil.rmtree(tmp_path / "sent")
    leases._open.clear()
    assert lease.open().ids().tolist() == alerts.ids().tolist()
    assert homes(tmp_path) == [lease.digest]


@pytest.mark.parametrize("lost", ["manifest.json", "a file"])
def test_what_a_cleaner_left_is_put_together_again(alerts, tmp_path, monkeypatch, lost):
    alerts.save(tmp_path / "sent")
    lease = leases.lend(LOCAL, tmp_path / "sent")
    lease = leases.Lease(str(tmp_path / "elsewhere"), lease.manifest)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("pyspark.SparkFiles.get", lambda name: str(tmp_path / "sent" / name))
    assert len(lease.open()) == len(alerts)
    home = tmp_path / f"rtfilter-{os.getuid()}" / lease.digest
    (home / lost if lost == "manifest.json" else next(home.glob("*.bin"))).unlink()
    leases._open.clear()
    assert len(lease.open()) == len(alerts)


@pytest.mark.parametrize("kind", ["link", "open to all"])
def test_a_directory_that_others_can_write_to_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = tmp_path / f"rtfilter-{os.getuid()}"
    if kind == "link":
        (tmp_path / "other").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "other")
    else:
        place.mkdir()
        place.chmod(0o777)
    with pytest.raises(SnapshotError, match="not a directory of this user alone"):
        leases._own_directory()


def test_an_index_that_is_gone_or_another_is_named(alerts, tmp_path, monkeypatch):
    alerts.save(tmp_path / "index")
    lease = leases.lend(LOCAL, tmp_path / "index")
    monkeypatch.setattr("pyspark.SparkFiles.get", lambda name: str(tmp_path / "sent" / name))
    alerts.save(tmp_path / "index")  # the same content, but the files that the lease names are gone
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SnapshotError, match="has changed since match_frame was called"):
        lease.open()
    assert homes(tmp_path) == []


def test_a_cluster_is_sent_the_files_of_an_index_once(alerts, tmp_path, monkeypatch):
    monkeypatch.setattr("pyspark.SparkFiles.get", lambda name: str(tmp_path / "nowhere" / name))
    alerts.save(tmp_path / "index")
    session = Session("spark://there:7077")
    for _ in range(2):
        leases.lend(session, tmp_path / "index")
    names = sorted(os.path.basename(file) for file in session.sent)
    assert names == sorted(file.name for file in (tmp_path / "index").glob("*.bin"))
    shutil.rmtree(tmp_path / "index")
    assert all(os.path.exists(file) for file in session.sent)
