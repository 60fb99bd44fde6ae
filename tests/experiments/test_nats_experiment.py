"""The experiment on NATS: its arithmetic on made-up rates, and a short run. No time is asserted."""

import pytest

from experiments.nats import run as experiment
from experiments.nats import simulation


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


def test_a_worker_without_much_load_answers_after_its_own_work():
    mean, late = simulation.simulate(rate=1000.0, event=1e-6, batch=0.001, seed=1)
    assert mean == pytest.approx(0.0011, rel=0.1)
    assert mean <= late < 0.003
    calm, busy = (simulation.simulate(rate, 1e-6, 0.0001, 1)[0] for rate in (90_000.0, 900_000.0))
    assert busy > calm


def test_shards_divide_memory_and_multiply_load():
    costs = simulation.Costs(1e-6, 0.0, simulation.power([10, 1000], [1e-6, 1e-6]))
    rows = simulation.compare(4, 1e6, 1e5, costs, 1)
    assert [row["shards"] for row in rows] == [1, 2, 4]
    assert [row["memory_gb"] for row in rows] == pytest.approx([0.4, 0.2, 0.1])
    assert [row["load"] for row in rows] == pytest.approx([0.05, 0.1, 0.2])
    assert len(simulation.figure(rows).axes) == 2


def test_the_simulation_runs(tmp_path):
    out = tmp_path / "out.json"
    given = ["--workers", "2", "--subscriptions", "1000", "--sizes", "100", "1000", "--out", str(out)]
    assert simulation.main(given) == 0
    assert out.stat().st_size > 500
