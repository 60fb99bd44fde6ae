"""The experiment on Spark: its jobs agree, and its arithmetic on made-up times. No time is asserted."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.spark import job
from experiments.spark import throughput as experiment
from experiments.spark.memory import Watch, descendants

SIZE = experiment.Size(2000, 3000, 100, (2,), 4000, 1)


def test_rows_are_compared_with_the_join_and_the_process_without_spark():
    def row(events_s, cores=2, largest=0.5):
        return {"events_s": events_s, "cores": cores, "largest": largest}

    rows = [row(1000, 1), row(10), row(1600), row(1500), row(2000, largest=5.0), row(400)]
    judged = experiment.judged(rows)[2:]
    assert [row["times"] for row in judged] == [160, 150, 200, 40]
    assert [row["overhead"] for row in judged] == pytest.approx([0.25, 1 / 3, 0, 4])
    assert [row["verdict"] for row in judged] == ["met", "NOT MET", "NOT MET", "NOT MET"]


def test_events_are_written_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "BLOCK", 7)
    values = np.arange(40).reshape(20, 2).astype(float)
    experiment.write_events(tmp_path / "e", lambda start, n: values[start : start + n], ["a", "b"], 20)
    assert pq.read_table(tmp_path / "e").to_pydict() == {
        "id": list(range(20)),
        "a": list(range(0, 40, 2)),
        "b": list(range(1, 40, 2)),
    }


def test_hot_spots_are_skewed():
    filter, events = experiment.hot_spots(1, 6000, 40_000)
    workload = filter.workload(events)
    chunks = [chunk.sum() for chunk in np.array_split(workload, 8)]
    assert max(chunks) > 1.3 * np.mean(chunks)
    id = experiment.always(filter)
    assert (filter.match_batch(events[:50]).pairs()[1] == id).sum() == 50


def test_flights_are_matched_by_all_and_have_microseconds(tmp_path):
    filter, events = experiment.flights(1, SIZE)
    id = experiment.always(filter)
    table = experiment.events_table(events, filter)
    assert (filter.match_batch(table).pairs()[1] == id).sum() == len(table)


def test_memory_of_descendants_is_seen():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    inner = "import time; held = b'x' * 200_000_000; print('ready', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code, inner], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        watch = Watch(lambda: child.pid)
        watch.look()
        assert watch.use.largest > 150_000_000
        assert watch.use.together > 150_000_000
        assert watch.use.name.startswith("python")
        found = descendants(os.getpid())
    finally:
        for pid in descendants(child.pid):
            os.kill(pid, 9)
        child.kill()
        child.wait()
        child.stdout.close()
    assert child.pid in found
    assert len(found) >= 2


def test_the_ways_find_the_same(spark, tmp_path, monkeypatch):
    data = experiment.prepare(tmp_path, "dense", 1, SIZE)
    files = {"events": str(data.events), "index": str(data.index), "repeats": 1, "master": "local[2]"}
    (alone,), _ = experiment.run({**files, "way": "alone"})
    (match,), watch = experiment.run({**files, "way": "match", "partitions": 3})
    assert match["shuffled"] > 0
    assert watch.use.largest > 50_000_000
    monkeypatch.setattr(job, "session", lambda job: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    boxes = {"boxes": str(data.boxes), "names": data.names, "sample": SIZE.events}
    (joined,) = job.joined({**files, **boxes, "partitions": 2})
    assert alone["matches"] == match["matches"] == joined["matches"] > 0


def test_the_picture_is_drawn(tmp_path):
    rows = [
        {"way": "one process", "events_s": 1e5, "events": 10},
        {"way": "join", "events_s": 10.0, "events": 5},
        *(
            {"way": way, "events_s": 1e4 * parts, "events": 10, "partitions": parts, "together": 1.0}
            for way in ("match_frame, local[1]", "match_frame, local[2]")
            for parts in (2, 8)
        ),
    ]
    skews = [{"events": "flights", "partitions": 2, "slowest": 1.0, "in_turn": 1.7}]
    experiment.save_picture(experiment.figure(rows, skews), tmp_path / "spark.png", dpi=40)
    assert (tmp_path / "spark.png").stat().st_size > 1000
    assert json.dumps(experiment.shown(rows)) == json.dumps(rows)
