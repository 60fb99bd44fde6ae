"""Scale: quick runs keep their rows, and the arithmetic on made-up times. No time is asserted."""

import json
import threading

import numpy as np
import pytest

from experiments.load import scale
from experiments.load.others import wait_for_quiet
from rtfilter.replay.workloads import workload

MILLION = 1_000_000


def laps(*triples):
    """Laps from (one, two, others)."""
    return [scale.Lap(one, two, 1.0, others) for one, two, others in triples]


@pytest.mark.parametrize("count", [1, 7, 23])
def test_boxes_drawn_in_blocks_are_those_of_the_workload(monkeypatch, count):
    monkeypatch.setattr(scale, "BLOCK", 7)
    made = workload("narrow", seed=5, dimensions=3)
    for ours, theirs in zip(scale.drawn(made, count), made.subscriptions(0, count), strict=True):
        assert np.array_equal(ours, theirs)


def test_the_quietest_laps_count():
    some = laps((1, 1, 0.9), (2, 1, 0.0), (3, 1, 0.04))
    assert scale.quietest(some, 2) == [some[1], some[2]]
    assert scale.enough(some, 2)
    assert not scale.enough(some, 3)
    assert scale.enough(some * scale.TRIES, 3)  # tried often enough


def test_a_lap_tells_time_and_work():
    calls = []
    one = scale.lap(lambda: calls.append("one") or 2.0, lambda: calls.append("two") or 3.0)
    assert calls == ["one", "two"]
    assert one.work == pytest.approx(1.5, rel=0.01)  # what the calls spent elsewhere dwarfs their own


def test_the_speed_up_is_the_median_of_the_ratios():
    row = scale.compare("wide", MILLION, 1000, "search", laps((4, 2, 0), (3, 2, 0.1), (9, 4, 0.2)))
    assert row["speed_ups"] == [2, 1.5, 2.25]
    assert (row["speed_up"], row["one_us"], row["two_us"], row["others"]) == (2, 4000, 2000, 0.1)
    assert (row["target"], row["verdict"]) == (">= 1.8", "met")
    slow = scale.compare("wide", MILLION, 1000, "search", laps((1, 1, 0)))
    assert slow["verdict"] == "NOT MET"
    for boxes, what in ((MILLION, scale.CEILING), (1000, "search")):
        assert "target" not in scale.compare("wide", boxes, 1000, what, laps((1, 1, 0)))


def test_peaks_and_growth_are_judged():
    def row(boxes, us, peak):
        return {"boxes": boxes, "batch_us": us, "peak_gib": peak}

    rows = scale.judged([row(MILLION, 2, 1), row(10 * MILLION, 20, 16), row(20 * MILLION, 50, 17)])
    assert [row["verdict"] for row in rows] == [
        "met",
        "met",
        "NOT MET: peak above 16 GiB, 2.5 times the time for 2.0 times the boxes",
    ]
    assert "verdict" not in scale.judged([row(1000, 2, 99)])[0]
    assert scale.judged([row(MILLION, 2, None)])[0]["verdict"] == "met"  # the system does not tell


def test_waiting_for_quiet_ends():
    wait_for_quiet(1000, 10)
    wait_for_quiet(-1, 0.01)


@pytest.mark.slow
@pytest.mark.long
def test_quick_runs_keep_their_rows_and_leave_nothing_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(scale.tempfile, "tempdir", None)
    monkeypatch.setattr(scale, "LAP", 0.001)
    out = tmp_path / "out" / "s.json"
    arguments = ["--quick", "--boxes", "700", "--sizes", "900", "300", "--workloads", "narrow"]
    assert scale.main([*arguments, "--out", str(out)]) == 0
    assert not [thread for thread in threading.enumerate() if "Executor" in type(thread).__name__]
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    kept = json.loads(out.read_text())
    assert kept["settings"]["sizes"] == [900, 300]
    threads, sizes = kept["rows"][:3], kept["rows"][3:]
    assert [row["what"] for row in threads] == ["match_batch", "search", scale.CEILING]
    assert [row["boxes"] for row in sizes] == [300, 900]
    for row in threads:
        assert row["boxes"] == 700
        assert row["speed_up"] > 0
    for row in sizes:
        assert set(scale.SIZES) - set(row) == {"verdict"}  # targets are for many boxes only
        assert row["given_gib"] * scale.GIB == pytest.approx(row["boxes"] * 12 * 2 * 8)
        assert 0 < row["before_gib"] <= row["peak_gib"]
        assert row["snapshot_gib"] > 0
    shown = capsys.readouterr().out
    assert all(heading in shown for heading in ("speed-up", "peak before", scale.CEILING))
