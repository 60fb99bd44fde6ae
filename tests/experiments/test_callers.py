"""The comparison of ways to ask from coroutines: quick runs keep their rows. No time is asserted."""

import asyncio
import json

import pytest

from experiments.load import callers
from rtfilter import EventFilter, Schema


def test_each_way_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(callers, "CALLERS", (1, 3))
    out = tmp_path / "callers.json"
    assert callers.main(["--boxes", "50", "--bursts", "2", "--workloads", "narrow", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    ways = ["match", "to_thread(match)", "AsyncFilter.match"]
    assert [(row["callers"], row["way"]) for row in rows] == [
        (count, way) for count in (1, 3) for way in ways
    ]
    assert all(row["mean_us"] > 0 and row["events_per_s"] > 0 for row in rows)
    assert "mean response, us" in capsys.readouterr().out


def test_ways_that_do_not_agree_are_an_error():
    class Wrong(EventFilter):
        def match_batch(self, events, **options):
            self.subscribe("TRUE")
            return super().match_batch(events, **options)

    filter = Wrong(Schema({"x": float}))
    with pytest.raises(RuntimeError, match="the ways do not agree"):
        asyncio.run(callers.measure(filter, [{"x": 1.0}] * 4, 2, 2))
