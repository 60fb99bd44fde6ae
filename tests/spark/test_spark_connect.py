"""Spark Connect, whose driver is another process, gives what classic Spark gives."""

import shutil

import pytest
import test_spark_refusals as refusals
import test_spark_streams as streams
import test_spark_tracking as tracking
from pyspark.errors import PySparkException, PySparkPicklingError
from test_spark import (  # noqa: F401
    test_columns_may_have_any_names,
    test_columns_of_arrays_are_lists,
    test_events_of_all_types,
    test_ids_that_are_no_integers_are_text,
    test_mistakes_are_named_before_anything_runs,
    test_what_the_filter_is_at_the_call_counts,
)
from test_spark_refusals import (  # noqa: F401
    test_a_stage_leaves_bad_events_out_and_counts_them,
    test_frames_leave_out_what_they_are_told_to,
)
from test_spark_spelling import (  # noqa: F401
    filter,
    test_exact_names_count_where_case_does,
    test_frames_resolve_names_as_spark_does,
)

import stream_driver
from rtfilter import Tracker
from rtfilter.spark import MatchStage, Once, build_sharded, leases, match_frame
from rtfilter.spark.watch import StreamMetrics
from spark_cases import expected, frame, pairs

index, told, folder = refusals.index, refusals.told, tracking.folder
"""Fixtures of these tests."""


def patient(start):
    """Return `start` of a query, repeated while the server waits too short for its Python process."""

    def repeated(writer):
        while True:
            try:
                return start(writer)
            except PySparkException as error:
                if "failed to connect back" not in str(error):
                    raise

    return repeated


@pytest.fixture(scope="module")
def spark(spark):
    """A session at a server of Spark Connect in the machine of Java that the other tests use."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    server = spark._jvm.org.apache.spark.sql.connect.SparkConnectPlugin().driverPlugin()
    server.init(spark.sparkContext._jsc.sc(), None)
    port = spark.conf.get("spark.connect.grpc.binding.port")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        patch.setattr(SparkContext, "_active_spark_context", None)  # a client has none
        patch.setattr(SparkSession, "_instantiatedSession", None)
        from pyspark.sql.connect.session import SparkSession as Client
        from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

        patch.setattr(DataStreamWriter, "start", patient(DataStreamWriter.start))
        client = Client.builder.remote(f"sc://127.0.0.1:{port}").create()
        yield client
        client.stop()
    server.shutdown()


@pytest.mark.parametrize("options", [{}, {"balance": False}, {"partitions": 3, "details": True}], ids=str)
def test_pairs_are_those_of_the_filter(spark, alerts, rows, options):
    result = match_frame(frame(spark, rows), alerts, **options)
    assert result.columns == ["id", "subscription", *(["workload", "offset"] if "details" in options else [])]
    assert pairs(result) == expected(alerts, rows)


def test_an_index_in_shards_goes_through_all_its_versions(spark, alerts, rows, tmp_path):
    def rules(ids):
        conditions = [(id, str(alerts[id].predicate)) for id in ids]
        return spark.createDataFrame(conditions, "id long, where string")

    ids = [int(id) for id in alerts.ids()]
    made = build_sharded(rules(ids[:-9]), tmp_path / "index", alerts.schema, shards=3)
    made = made.append(rules(ids[-9:-1])).remove(ids[:2])
    made = made.update(rules([ids[0], ids[-1]]), removed=[ids[2]]).append(rules(ids[1:3]))
    assert made.expire() == 4
    assert pairs(match_frame(frame(spark, rows), made)) == expected(alerts, rows)


def test_a_decision_needs_a_quick_look(spark, alerts, rows, tmp_path):
    events = frame(spark, rows)
    events.write.json(str(tmp_path / "json"))
    events.coalesce(2).write.parquet(str(tmp_path / "parquet"))
    kept = events.persist()
    for given, decision in (
        (kept, "cheap"),
        (spark.read.parquet(str(tmp_path / "parquet")), "cheap"),
        (spark.read.schema(events.schema).json(str(tmp_path / "json")), "unseen"),
    ):
        assert f"({decision}" in match_frame(given, alerts)._explain_string()
    kept.unpersist()


def test_executors_that_do_not_see_an_index_are_sent_it(spark, alerts, rows, tmp_path, monkeypatch):
    alerts.save(tmp_path / "index")
    monkeypatch.setattr(leases, "_all_see", lambda *_: False)
    result = match_frame(frame(spark, rows), tmp_path / "index")
    shutil.rmtree(tmp_path / "index")
    assert pairs(result) == expected(alerts, rows)


def test_streams_of_events_and_of_changes_give_all_matches_once(spark, tmp_path):
    streams.put_events_and_changes(tmp_path)
    stream_driver.run(spark, tmp_path, changes_first=True)
    streams.require_all(tmp_path)


@pytest.mark.long
def test_a_query_that_ended_goes_on(spark, tmp_path):
    again = streams.test_a_query_that_ended_anywhere_goes_on_and_loses_and_doubles_nothing
    again(streams.stopped_after, spark, tmp_path)


def test_keys_are_tracked(spark, folder, tmp_path):
    rules, batch = tracking.line(), next(tracking.batches(1))
    rules.save(tmp_path / "index")
    wanted = sorted(tracking.expected(Tracker(rules, "vehicle"), batch))
    assert tracking.run(spark, folder([(0, batch)]), tmp_path / "index", tmp_path) == wanted


@pytest.mark.long
def test_a_stream_goes_on_after_a_bad_event(spark, index, tmp_path):
    refusals.test_a_stream_goes_on_after_a_bad_event(spark, index, tmp_path)


def test_results_of_another_query_are_refused_where_they_can_be_known(spark, tmp_path):
    once = Once(tmp_path / "out")
    for number in range(3):
        once(spark.range(number), number)
    assert [spark.read.parquet(f"{tmp_path}/out/batch={number}").count() for number in range(3)] == [0, 1, 2]
    Once(tmp_path / "out")(spark.range(9), 2)
    assert spark.read.parquet(f"{tmp_path}/out").count() == 3
    with pytest.raises(ValueError, match="has the results of another query"):
        Once(tmp_path / "out")(spark.range(9), 1)


def test_metrics_of_another_process_are_refused(spark, tmp_path):
    stage = MatchStage(tmp_path / "index", Once(tmp_path / "out"), metrics=StreamMetrics())
    writer = spark.readStream.schema("id int, x double").json(str(tmp_path)).writeStream
    with pytest.raises(PySparkPicklingError) as caught:
        writer.foreachBatch(stage)
    assert "metrics.listen(spark)" in str(caught.value.__context__)
