"""Metrics of several processes add up."""

import multiprocessing
import os

import numpy as np
import pytest
from prometheus_client import generate_latest

import forks
from lengths import long_but
from rtfilter import EventFilter, Schema
from rtfilter.filter import inside
from rtfilter.watch.metrics import Metrics
from rtfilter.watch.processes import STALE, Together, share

CHILD = """
import sys
import numpy as np
from rtfilter import EventFilter, Schema
from rtfilter.watch.metrics import Metrics
from rtfilter.watch.processes import share

metrics = Metrics()
filter = EventFilter(Schema({"x": float}), metrics=metrics)
share(metrics, sys.argv[1])
filter.subscribe_boxes(np.zeros((int(sys.argv[2]), 1)), np.ones((int(sys.argv[2]), 1)))
filter.match_batch(np.full((int(sys.argv[3]), 1), 0.5))
"""


@pytest.mark.slow
def test_counters_are_summed_and_gauges_are_the_greatest(tmp_path):
    program = tmp_path / "child.py"
    program.write_text(CHILD)
    for boxes, events in ((3, 100), (5, 70)):
        assert forks.python(program, tmp_path, boxes, events).wait(60) == 0
    filter = EventFilter(Schema({"x": float}), metrics=Metrics())
    stop = share(inside(filter).metrics, tmp_path)
    filter.match_batch(np.full((7, 1), 0.5))
    stop()
    together = Together(tmp_path)
    value = together.registry.get_sample_value
    assert value("rtfilter_events_total") == 177
    assert value("rtfilter_matches_total") == 3 * 100 + 5 * 70
    assert value("rtfilter_response_seconds_count", {"size_class": "64"}) == 170
    assert value("rtfilter_response_seconds_bucket", {"size_class": "64", "le": "+Inf"}) == 170
    assert value("rtfilter_index_subscriptions") == 5
    for file in tmp_path.glob("*.prom"):
        os.utime(file, (0, file.stat().st_mtime - 2 * STALE))
    assert value("rtfilter_events_total") == 177
    assert value("rtfilter_index_subscriptions") is None
    assert b"# TYPE rtfilter_response_seconds histogram" in generate_latest(together.registry)


def count(directory):
    filter = EventFilter(Schema({"x": float}), metrics=Metrics())
    share(inside(filter).metrics, directory)
    filter.match_batch(np.full((100, 1), 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("method", long_but(["fork", "spawn"], ("fork",)))
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_children_of_multiprocessing_write_before_they_end(tmp_path, method):
    child = multiprocessing.get_context(method).Process(target=count, args=(tmp_path,))
    child.start()
    child.join()
    assert Together(tmp_path).registry.get_sample_value("rtfilter_events_total") == 100


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    filter = EventFilter(Schema({"x": float}), metrics=Metrics())
    with pytest.raises(OSError, match="file"):
        share(inside(filter).metrics, tmp_path / "file")
