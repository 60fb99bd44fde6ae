"""A newcomer's first minutes: how programs are started and read, and what is made of their costs."""

import json
import os

import pytest

from experiments import ResultError
from experiments.minutes import run
from experiments.minutes.figures import FIGURES, Figure
from experiments.minutes.place import Cost, Place


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_a_program_runs_to_its_end_with_an_empty_cache(place):
    show = "echo one; echo $NUMBA_CACHE_DIR; ls $NUMBA_CACHE_DIR"
    first, second = (place.run(["sh", "-c", show]) for _ in range(2))
    assert first.said[0] == "one"
    assert len(first.said) == 2
    assert first.said[1] != second.said[1]
    assert first.wall > 0
    assert os.environ.get("NUMBA_CACHE_DIR") != first.said[1]


def test_a_program_that_stays_is_asked_to_end_when_it_is_ready(place):
    cost = place.run(["sh", "-c", "echo begins; echo serving here; exec sleep 600"], ready="serving")
    assert cost.said == ["begins", "serving here"]
    assert cost.wall < 60


@pytest.mark.parametrize(
    ("code", "ready"), [("echo why >&2; exit 3", None), ("echo why >&2", "serving"), ("kill -9 $$", None)]
)
def test_a_program_that_fails_is_shown(place, code, ready):
    with pytest.raises(ResultError, match=r"failed \(exit code"):
        place.run(["sh", "-c", code], ready=ready)


def test_medians_stand_beside_the_target():
    figure = Figure(lambda place: Cost(0, 0), "a step", 2.0)
    costs = [Cost(1.0, 5.0, 60.0), Cost(9.0, 6.0), Cost(2.0, 7.0, 80.0)]
    found = run.row("step", figure, costs)
    assert (found["value"], found["cpu_s"], found["memory_mb"], found["met"]) == (2.0, 6.0, 70.0, "met")
    assert run.row("step", figure._replace(what="cpu"), costs)["met"] == "NOT MET"
    nothing = run.row("step", figure._replace(what="memory"), [Cost(1.0, 1.0)])
    assert (nothing["value"], nothing["met"]) == (None, "NOT MET")


def grown(longest):
    call = {"calls": 9, "median_ms": 0.1, "p99_9_ms": 1.0, "max_ms": longest, "max_cpu_ms": 1.0}
    call |= {"max_without_gc_ms": 1.0, "max_at": 7}
    facts = {"subscribe": call, "match": {**call, "max_ms": 3.0}, "collected_s": 0.5, "collected_max_ms": 2.0}
    return Cost(1.0, 1.0, 90.0, ["progress", json.dumps(facts)])


def test_a_filter_that_grows_counts_by_its_longest_call():
    rows = [run.row("growing", FIGURES["growing"], [grown(120.0), grown(2.0), grown(90.0)])]
    assert (rows[0]["value"], rows[0]["met"]) == (90.0, "met")
    assert run.calls(rows).count("subscribe ") == 3
    assert run.calls([{"figure": "help"}]) == ""


def test_the_figures_are_chosen_by_name_and_kept(monkeypatch, tmp_path, capsys):
    stub = Figure(lambda place: Cost(0.2, 0.1, 20.0), "rtfilter --help", 0.3)
    monkeypatch.setitem(FIGURES, "help", stub)
    monkeypatch.setattr(Place, "install", lambda self, extras: Cost(1.0, 1.0))
    out = tmp_path / "minutes.json"
    assert run.main(["help", "--runs", "2", "--out", str(out)]) == 0
    assert "rtfilter --help" in capsys.readouterr().out
    kept = json.loads(out.read_text())
    assert [one["figure"] for one in kept["rows"]] == ["help"]
    assert kept["settings"] == {"figures": ["help"], "runs": 2}
    monkeypatch.setitem(FIGURES, "help", stub._replace(target=0.1))
    assert run.main(["help"]) == 1


def test_what_takes_minutes_is_measured_only_where_it_is_named(monkeypatch, place):
    for name, figure in FIGURES.items():
        monkeypatch.setitem(FIGURES, name, figure._replace(measure=lambda place: Cost(1.0, 1.0)))
    installed = []
    monkeypatch.setattr(Place, "install", lambda self, extras: installed.append(extras) or Cost(1.0, 1.0))
    costs = run.measured(place, ["demo"], 3)
    assert {name: len(found) for name, found in costs.items()} == {"demo": 1}
    assert not installed
    assert {"demo", "check", "test"} == {name for name, figure in FIGURES.items() if figure.long}
