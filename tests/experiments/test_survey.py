"""The survey: which cases, one process each, what is kept, continued, compared and drawn."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import ResultError, output, peers
from experiments.output import keep, kept_rows
from experiments.speed import survey, trial
from experiments.speed.survey import FULL, QUICK, spread
from experiments.speed.trial import Case
from rtfilter.replay import machine

SMALL = FULL._replace(
    default=400,
    subscriptions=(300, 400),
    dimensions=(2, 12),
    sides=(0.25, 0.5),
    batches=(1, 50),
    few=(50,),
    workloads=("geo", "sparse"),
    repeats=2,
    build_seconds=5,
    ask_seconds=0.5,
)
FAKE = {"us": 2.0, "way": "x", "asked": 1, "matches": 0.0, "build_us": 1.0, "bytes": 8.0, "peak_bytes": 8}


def case(peer="NumPy", **changes):
    return Case(peer, "narrow", 300, 3, None, (1, 50), 1, 2, 5.0, 0.5)._replace(**changes)


def row(peer, us, subscriptions=300, batch=1):
    point = {
        "workload": "wide",
        "subscriptions": subscriptions,
        "dimensions": 12,
        "side": None,
        "batch": batch,
    }
    return {"peer": peer} | point | FAKE | {"us": us}


def test_a_plan_varies_each_variable_around_its_default():
    cases = SMALL.cases(["NumPy"], 7)
    assert sorted(c.key[1:] for c in cases if c.side is None) == sorted(
        [(w, n, 12, None) for w in ("wide", "narrow") for n in (300, 400)]
        + [(w, 400, 2, None) for w in ("wide", "narrow")]
        + [("geo", 400, 2, None), ("sparse", 400, 24, None)]
    )
    assert [c.side for c in cases if c.workload == "sided"] == [0.25, 0.5]
    assert {c.key[1:]: tuple(c.batches) for c in cases}["wide", 400, 12, None] == (1, 50)
    assert {tuple(c.batches) for c in cases if c.subscriptions == 300} == {(50,)}
    sizes = [c.subscriptions * c.dimensions for c in cases]
    assert sizes == sorted(sizes)
    assert {(c.seed, c.repeats, c.build_seconds, c.ask_seconds) for c in cases} == {(7, 2, 5, 0.5)}


@pytest.mark.parametrize("plan", [FULL, QUICK])
def test_every_index_of_a_plan_is_measured_once(plan):
    cases = plan.cases(list(peers.PEERS), 1)
    assert len({c.key for c in cases}) == len(cases)
    assert {c.peer for c in cases} == set(peers.PEERS)


@pytest.mark.parametrize("peer", ["rtfilter", "rtree packed 100/100", "bit masks"])
def test_a_case_has_a_row_for_each_batch_size(peer):
    rows = trial.measure(case(peer))
    assert [(r["peer"], r["workload"], r["subscriptions"], r["dimensions"]) for r in rows] == [
        (peer, "narrow", 300, 3)
    ] * 2
    assert [r["batch"] for r in rows] == [1, 50]
    for r in rows:
        assert len(r["rounds"]) == len(r["yardstick_rounds"]) == 2
        assert min(r["rounds"]) <= r["us"] <= max(r["rounds"])
        assert 1 <= r["asked"] <= r["batch"]
        assert r["matches"] > 0


@pytest.mark.slow
@pytest.mark.long
def test_a_case_runs_in_a_process_of_its_own():
    rows = trial.run(case("rtfilter", workload="sided", side=0.5, dimensions=2))
    assert [(r["batch"], r["side"]) for r in rows] == [(1, 0.5), (50, 0.5)]


@pytest.mark.slow
def test_what_a_peer_cannot_do_is_skipped_with_its_reason():
    assert trial.run(case("boostree", dimensions=5)) == [
        {"peer": "boostree", "workload": "narrow", "subscriptions": 300, "dimensions": 5, "side": None}
        | {"skipped": "takes 2 to 4 dimensions"}
    ]


def test_what_takes_too_long_is_skipped_but_never_ours():
    too_long = {"subscriptions": 3000, "build_seconds": 1e-9}
    assert trial.measure(case("NumPy", **too_long))[0]["skipped"] == "building would take 0 s"
    assert len(trial.measure(case("rtfilter", **too_long))) == 2


@pytest.mark.slow
@pytest.mark.long
def test_a_crash_is_a_reason():
    assert "failed with exit code 1: KeyError" in trial.run(case("nothing"))[0]["skipped"]


def test_wrong_answers_are_a_reason(monkeypatch):
    lossy = property(lambda self: {"lossy": lambda points: [[] for _ in points]})
    monkeypatch.setattr(peers.PEERS["NumPy"], "ways", lossy)
    assert trial.measure(case(subscriptions=3000))[0]["skipped"].startswith("wrong answers: lossy: event")


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path, monkeypatch):
    ran = []

    def run(this):
        ran.append(this.peer)
        if this.peer == "polars" and ran.count("polars") == 1:
            raise KeyboardInterrupt
        return [this.row() | FAKE | {"batch": 1}]

    monkeypatch.setattr(trial, "run", run)
    out, cases = tmp_path / "r.json", [case("NumPy"), case("polars"), case("perq")]
    with pytest.raises(KeyboardInterrupt):
        survey.survey(cases, out, {"seed": 1})
    rows = survey.survey(cases, out, {"seed": 1})
    assert ran == ["NumPy", "polars", "polars", "perq"]
    assert [r["peer"] for r in rows] == ["NumPy", "polars", "perq"]
    assert json.loads(out.read_text())["rows"] == rows
    assert survey.survey(cases, out, {"seed": 1}) == rows
    assert len(ran) == 4


def test_results_of_other_settings_are_not_continued(tmp_path, monkeypatch):
    out = tmp_path / "r.json"
    keep(out, "peers", {"seed": 1}, [])
    assert kept_rows(out, "peers", {"seed": 1}) == []
    with pytest.raises(ValueError, match="of another settings"):
        kept_rows(out, "peers", {"seed": 2})
    monkeypatch.setattr(machine, "_revision", lambda: "other")
    with pytest.raises(ValueError, match="of another machine"):
        kept_rows(out, "peers", {"seed": 1})
    assert kept_rows(tmp_path / "none.json", "peers", {}) == kept_rows(None, "peers", {}) == []


def test_peers_are_compared_at_each_point():
    rows = [
        row("rtree packed 100/100", 8.0),
        row("rtree inserted 10/20", 4.0),
        row("rtfilter", 2.0),
        row("NumPy", 3.0, subscriptions=400),
        {"peer": "perq", "skipped": "too slow"},
    ]
    found = [(r["peer"], r["to_fastest"], r["to_rtree"]) for r in survey.beside(rows)]
    assert found == [
        ("rtfilter", 1.0, 0.5),
        ("rtree inserted 10/20", 2.0, 1.0),
        ("rtree packed 100/100", 4.0, 2.0),
        ("NumPy", 1.0, None),
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=15).map(sorted))
def test_names_at_lines_do_not_lie_over_each_other(heights):
    found = np.array(spread(heights, 0.05))
    assert len(found) == len(heights)
    assert (np.diff(found) > 0.05 - 1e-9).all()
    assert np.mean(found) == pytest.approx(np.mean(heights))
    if (np.diff(heights) >= 0.05).all():
        assert found == pytest.approx(heights)


@pytest.mark.slow
@pytest.mark.long
def test_a_whole_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(survey, "QUICK", SMALL._replace(varied=("narrow",), workloads=("geo",)))
    monkeypatch.setattr(trial, "run", trial.measure)  # in this process: a fresh one takes a second each
    out, picture = tmp_path / "o" / "r.json", tmp_path / "p" / "r.png"
    arguments = [
        "--quick",
        "--peers",
        "rtfilter",
        "NumPy",
        "boostree",
        "--out",
        str(out),
        "--figure",
        str(picture),
    ]
    assert survey.main(arguments) == 0
    shown = capsys.readouterr().out
    assert machine.one_line() in shown
    assert machine.peers_line() in shown
    assert "skipped: boostree, sided, 400 x 12, side 0.25: takes 2 to 4 dimensions" in shown
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(json.loads(out.read_text())["rows"]) > 10
    with pytest.raises(SystemExit, match="2"):
        survey.main([*arguments, "--seed", "3"])
    assert "is of another settings" in capsys.readouterr().err


def test_a_kept_result_is_made_from_a_clean_tree(monkeypatch, tmp_path):
    monkeypatch.setattr(output, "REPORT", tmp_path)
    facts = machine.describe() | {"revision": "1a2b3c4-dirty"}
    with pytest.raises(ResultError, match="from a clean tree"):
        keep(tmp_path / "some" / "x.json", "x", {}, [], facts)
    assert not list(tmp_path.iterdir())
    keep(tmp_path / "some" / "x.json", "x", {}, [], facts | {"revision": "1a2b3c4"})
    assert (tmp_path / "some" / "x.json").exists()
