"""The experiment on NATS: its arithmetic on made-up rates, and a short run. No time is asserted."""

import pytest

from experiments.nats import run as experiment


def row(what, frame, events_s=0.0, **more):
    return {"what": what, "frame": frame, "workers": 1, "events_s": events_s, "cpu_us": 10.0, **more}


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (row("match", 1, 10_000, share=0.6), "met"),
        (row("match", 1, 9_999, share=0.6), "NOT MET"),
        (row("match", 1, 10_000, share=0.59), "NOT MET"),
        (row("match", 100, 99_999, share=0.9), "NOT MET"),
        (row("at a rate", 1, p99_ms=49.0), "met"),
        (row("at a rate", 1, p99_ms=51.0), "NOT MET"),
    ],
)
def test_targets(made, verdict):
    assert experiment.judged([made])[0]["verdict"] == verdict


@pytest.mark.parametrize(("second", "verdict"), [(170.0, "met"), (169.0, "NOT MET")])
def test_two_workers_are_compared_with_one(second, verdict):
    rows = experiment.judged([row("much to match", 100, 100.0), row("much to match", 100, second, workers=2)])
    assert rows[1]["verdict"] == verdict
    assert rows[1]["gain"] == second / 100


def test_the_picture():
    rows = [row(kind, frame, 1000.0) for frame in (1, 100) for kind in experiment.KINDS]
    left, right = experiment.figure(rows).axes
    assert len(left.patches) == len(right.patches) == 6


@pytest.mark.needs("nats")
def test_a_short_run(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "QUICK", experiment.Size(100, 1.0, 50, 5, 0.2, 20))
    assert experiment.main(["--quick", "--figure", str(tmp_path / "nats.png")]) == 0
    assert (tmp_path / "nats.png").stat().st_size > 5000
