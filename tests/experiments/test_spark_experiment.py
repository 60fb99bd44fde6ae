"""The experiment on Spark: its jobs agree, and its arithmetic on made-up times. No time is asserted."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.spark import files, job
from experiments.spark import throughput as experiment
from experiments.spark.cluster import Watch, descendants
from experiments.spark.sharded import Workers
from rtfilter import EventFilter

SIZE = experiment.Size(2000, 3000, 100, 4000, 1)


def row(events_s, balance=None, place="local[2]", input="even", cores=2, **more):
    found = {"input": input, "place": place, "cores": cores, "balance": balance, "events_s": events_s}
    return {
        **found,
        "way": experiment.WAYS.get(balance, ""),
        "events": 10,
        "largest": 0.5,
        "together": 1.0,
        **more,
    }


ROWS = [
    row(1000, place="one process, no Spark", cores=1),
    row(10, place="join, local[2]"),
    row(1600, False),
    row(1000, True),
    row(1550, "auto"),
    row(500, place="one process, no Spark", input="uneven", cores=1),
    row(600, False, input="uneven", slowest=1.9),
    row(800, True, input="uneven", slowest=1.0),
    row(790, "auto", input="uneven", slowest=1.0),
]


def test_ways_are_compared_with_the_join_the_process_without_spark_and_the_better_way():
    judged = experiment.judged([dict(row) for row in ROWS])
    ways = [row for row in judged if row["balance"] is not None]
    assert [row["times"] for row in ways] == [160, 100, 155, 60, 80, 79]
    assert [row["overhead"] for row in ways] == pytest.approx(
        [0.25, 1, 2 / 1.55 - 1, 2 / 3, 0.25, 1 / 0.79 - 1]
    )
    assert [row.get("verdict") for row in ways] == [None, None, "met"] * 2


@pytest.mark.parametrize("worse", [{"events_s": 1500}, {"largest": 5.0}, {"slowest": 1.2}], ids=str)
def test_a_default_that_is_late_or_large_or_uneven_is_told(worse):
    changed = [*ROWS[:4], {**ROWS[4], **worse}, *ROWS[5:]]
    assert experiment.judged([dict(row) for row in changed])[4]["verdict"] == "NOT MET"


def test_events_are_written_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "BLOCK", 7)
    values = np.arange(40).reshape(20, 2).astype(float)
    experiment.write_events(tmp_path / "e", lambda start, n: values[start : start + n], ["a", "b"], 20)
    assert pq.read_table(tmp_path / "e").to_pydict() == {
        "id": list(range(20)),
        "a": list(range(0, 40, 2)),
        "b": list(range(1, 40, 2)),
    }


def test_uneven_events_are_much_work_first(tmp_path):
    data = experiment.prepare(tmp_path, "wide", 1, SIZE)
    events = pq.read_table(data.uneven)
    found = EventFilter.load(data.large).match_batch(events.select(data.names))
    assert (found.pairs()[1] == data.always).sum() == len(events) == 1500
    assert found.counts[:750].sum() > 900  # one of them is `always`
    assert found.counts[750:].sum() == 750


def test_memory_of_descendants_is_seen():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], 'pyspark.daemon'])"
    inner = "import sys; held = b'x' * 200_000_000; print('ready', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        child.stdout.readline()
        watch = Workers(lambda: child.pid)
        watch.look()
        assert watch.use.largest > 150_000_000
        assert watch.use.together > 150_000_000
        assert watch.use.name.startswith("python")
        assert watch.peak >= watch.own > 150_000_000
        found = descendants(os.getpid())
    finally:
        for pid in descendants(child.pid):
            os.kill(pid, 9)
        child.kill()
        child.wait()
        child.stdout.close()
        child.stdin.close()
    assert child.pid in found
    assert len(found) >= 2


def test_overheads_compare_the_turns_of_each_place():
    def turns(*seconds):
        return [files.Turn(7, one, 2 * one) for one in seconds]

    def ways(*seconds):
        return {files.ALONE: turns(1, 2, 4), files.FRAME: turns(2, 4, 8), files.FILES: turns(*seconds)}

    rows = files.judged({"local[1]": ways(1.1, 2.2, 9), "local[2]": ways(0.55, 1.2, 2.2)}, 10)
    tenth = pytest.approx(0.1)
    assert [row.get("overhead") for row in rows] == [None, 1, tenth, None, 3, tenth]
    assert [row.get("processor") for row in rows][:3] == [None, 1, tenth]
    assert [row.get("times") for row in rows] == [None, 1, 1, None, 1, pytest.approx(2.2 / 1.2)]
    assert [row.get("verdict") for row in rows] == [None, None, "met"] * 2
    slow = files.judged({"local[1]": ways(1, 2, 3), "local[2]": ways(0.7, 1.2, 2.2)}, 10)
    assert [row.get("verdict") for row in slow][2::3] == ["met", "NOT MET"]
    with pytest.raises(RuntimeError, match="the ways disagree"):
        files.judged({"local[1]": {**ways(1, 2, 3), files.FRAME: [files.Turn(8, 1, 1)] * 3}}, 10)


@pytest.mark.long
@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_ways_find_the_same(spark, tmp_path, monkeypatch, apart):
    """In this process, or each in one of its own as when they are measured."""
    size = SIZE if apart else SIZE._replace(boxes=300, events=1500)
    data = experiment.prepare(tmp_path, "dense", 1, size)
    common = {"events": str(data.events), "index": str(data.index), "repeats": 1, "master": "local[2]"}
    match_both = {**common, "way": "match", "balances": [True, False]}
    if apart:
        (alone,), _ = experiment.run({**common, "way": "alone"}, Watch())
        (match, left), watch = experiment.run(match_both, Watch())
        assert watch.use.largest > 50_000_000
    monkeypatch.setattr(job, "session", lambda job: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    if not apart:
        (alone,) = job.alone(common)
        match, left = job.matched(match_both)
    assert match["shuffled"] > 100 * left["shuffled"]  # the count of matches alone
    assert (match["reason"], left["reason"]) == ("deal out (asked)", "match where they are (asked)")
    turns = [(row["name"], row["matches"]) for row in job.turns(common)]
    assert turns == [(way, alone["matches"]) for way in (job.ALONE, job.FRAME, job.FILES)]
    boxes = {"boxes": str(data.boxes), "names": data.names, "sample": size.events}
    (joined,) = job.joined({**common, **boxes, "partitions": 2})
    assert alone["matches"] == match["matches"] == joined["matches"] > 0


@pytest.mark.long
@pytest.mark.slow
def test_the_picture_is_drawn(tmp_path):
    experiment.save_picture(experiment.figure(ROWS), tmp_path / "spark.png", dpi=40)
    assert (tmp_path / "spark.png").stat().st_size > 1000
    assert json.dumps(experiment.shown(ROWS)) == json.dumps(ROWS)
