"""Matching on a real cluster: a master and two workers, each in a process of its own, on this machine."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spark_cases
from experiments.spark.cluster import cluster
from rtfilter import EventFilter, Schema

pytestmark = [*spark_cases.marks, pytest.mark.long]


def test_a_killed_executor_loses_nothing_and_the_index_is_sent_once(tmp_path):
    low = np.random.default_rng(2).random((5000, 3))
    filter = EventFilter(Schema(dict.fromkeys("xyz", float)))
    filter.subscribe_boxes(low, low + 0.02)
    filter.save(tmp_path / "index")
    with cluster(tmp_path / "cluster") as (url, environment):
        driver = [sys.executable, Path(__file__).parents[1] / "cluster_driver.py", url, tmp_path / "index"]
        run = subprocess.run(
            driver, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900
        )
    expected = [*["killed True pairs True"] * 2, "homes 1"]
    assert run.stdout.splitlines()[-3:] == expected, run.stderr[-8000:]
