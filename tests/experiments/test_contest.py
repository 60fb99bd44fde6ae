"""The contest: which cells, one process each, what is kept, continued, compared, shown and drawn."""

import json

import numpy as np
import pytest

from experiments import ResultError
from experiments.contest import cell, run, tables
from experiments.contest.cell import ENTRANTS, FULL, QUICK, Case
from lengths import each_once
from rtfilter.basics.results import Hits
from rtfilter.matchers import MATCHERS
from rtfilter.matchers.masks import MasksMatcher
from rtfilter.matchers.papers.eventwise import NaiveMatcher
from rtfilter.replay.workloads import WORKLOADS

NUMBERS = {
    "build_us": 1.5, "bytes": 80.0, "own_bytes": 70.0, "asked": {"1": 9, "1000": 1000}, "matches": 2.0,
    "visits": 7.0, "unit": "things", "subscribe_us": 3.0, "subscribe_most_us": 9.0,
    "unsubscribe_us": 4.0, "unsubscribe_most_us": 5.0, "changes": 5,
}  # fmt: skip


def case(matcher="masks", workload="geo", subscriptions=200, **changes):
    return Case(matcher, workload, subscriptions, (1, 50), 1, 2, 5.0, 0.2)._replace(**changes)


def row(matcher, us, one=None, workload="geo", subscriptions=1000):
    at = {"matcher": matcher, "workload": workload, "subscriptions": subscriptions}
    return at | NUMBERS | {"us": {"1": us if one is None else one, "1000": us}}


def test_every_matcher_meets_every_workload_small_ones_first():
    cases = FULL.cases(ENTRANTS, 7)
    assert len({one.key for one in cases}) == len(cases) == len(MATCHERS) * len(WORKLOADS) * 4
    assert [one.subscriptions for one in cases] == sorted(one.subscriptions for one in cases)
    assert {(one.seed, one.repeats, one.build_seconds, one.ask_seconds) for one in cases} == {(7, 5, 120, 10)}
    assert len(QUICK.cases(ENTRANTS, 7)) <= 3 * len(MATCHERS)


@pytest.mark.parametrize(("workload", "name"), each_once(["sparse", "strings"], list(MATCHERS)))
@pytest.mark.slow
def test_every_matcher_is_measured_or_refuses(name, workload):
    found = cell.measure(case(name, workload, 30, ask_seconds=0.02))
    assert "failed" not in found
    if "refused" not in found and "gave_up" not in found:
        assert {"1", "50"} == found["us"].keys() == found["asked"].keys()
        assert min(found["us"].values()) > 0
        assert found["changes"] > 0
    json.dumps(found)


@pytest.mark.slow
@pytest.mark.long
def test_a_cell_runs_in_a_process_of_its_own():
    found = cell.run(case("naive", subscriptions=50))
    assert found["unit"] == "constraints"
    assert 50 <= found["visits"] <= 200  # each has four constraints, and is asked until one does not hold


def test_who_is_slow_large_or_python_gives_up(monkeypatch):
    monkeypatch.setattr(cell, "LEAST", 100)
    assert "building would take" in cell.measure(case(build_seconds=1e-9))["gave_up"]
    assert "an event takes" in cell.measure(case(ask_seconds=1e-9))["gave_up"]
    monkeypatch.setattr(cell, "ROOM", -1)
    assert "it would need" in cell.measure(case("naive"))["gave_up"]
    monkeypatch.setattr(cell, "PYTHON_MOST", 100)
    assert "it is Python" in cell.measure(case("naive"))["gave_up"]
    assert "it is Python" not in str(cell.measure(case("masks")))


class Few(NaiveMatcher):
    takes = NaiveMatcher.takes._replace(operators=frozenset(("=",)))


class Losing(MasksMatcher):
    def match(self, events):
        hits = super().match(events)
        return Hits(np.zeros_like(hits.offsets), hits.ids[:0], None, hits.visits)


class Forgetting(MasksMatcher):
    def remove(self, ids):
        super().remove(np.arange(1000))
        return super().remove(ids)


@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [
        (Few, "refused", "does not take the operator '>='"),
        (Losing, "failed", "wrong answers: 0 matches, but"),
        (Forgetting, "failed", "other answers after as many subscriptions went as came"),
    ],
)
def test_who_takes_less_is_refused_and_who_is_wrong_has_failed(monkeypatch, kind, key, message):
    make = cell.make_matcher

    def made(name, schema):
        return kind(schema) if name == "own" else make(name, schema)

    monkeypatch.setattr(cell, "make_matcher", made)
    assert message in cell.measure(case("own", workload="dense"))[key]


def test_a_run_goes_on_and_takes_in_new_matchers(tmp_path, monkeypatch):
    asked = []

    def measured(one):
        asked.append(one.key)
        return one.row() | ({"gave_up": "too slow"} if one.matcher == "naive" else row("", 1.0) | one.row())

    monkeypatch.setattr(cell, "run", measured)
    plan, out = FULL._replace(workloads=("geo",), subscriptions=(10, 20)), tmp_path / "c.json"
    settings = plan.settings(1)
    run.contest(plan.cases(["masks", "naive"], 1), out, settings)
    assert asked == [("masks", "geo", 10), ("naive", "geo", 10), ("masks", "geo", 20)]
    rows = run.contest(plan.cases(["masks", "naive", "rein"], 1), out, settings)
    assert asked[3:] == [("rein", "geo", 10), ("rein", "geo", 20)]
    assert [one["since"] for one in rows if "since" in one] == [10]
    run.contest(plan.cases(["masks", "rein"], 1), out, settings, again=["masks"])
    assert asked[5:] == [("masks", "geo", 10), ("masks", "geo", 20)]
    with pytest.raises(ResultError, match="another settings \\(seed\\)"):
        run.contest([], out, plan.settings(2))


ROWS = [
    row("a", 1.0, 30.0),
    row("b", 1.05, 10.0),
    row("c", 5.0),
    row("a", 9.0, subscriptions=10_000),
    {"matcher": "b", "workload": "geo", "subscriptions": 10_000, "gave_up": "an event takes 12 s"},
    {"matcher": "c", "workload": "geo", "subscriptions": 10_000, "failed": "wrong answers"},
    {"matcher": "d", "workload": "geo", "subscriptions": 1000, "refused": "it does not take x; choose"},
]


def test_who_is_fastest_shares_it_with_who_is_as_fast():
    assert tables.best(ROWS, "geo", 1000, "1000") == (["a", "b"], 1.0, "c", 5.0)
    assert tables.best(ROWS, "geo", 1000, "1") == (["c"], 5.0, "b", 2.0)
    assert tables.best(ROWS, "geo", 10_000, "1") == (["a"], 9.0, None, None)
    assert tables.best(ROWS, "geo", 7, "1") is None
    shown = tables.fastest(ROWS)
    assert "| geo | **a, b** 1 (c 5 times) | **a** 9 |" in shown
    assert "| geo | **c** 5 (b 2 times) | **a** 9 |" in shown


def test_all_that_happened_is_told():
    lines = tables.lines(ROWS, "geo")
    assert [line["matcher"] for line in lines] == ["a", "b", "c", "d"]
    assert lines[0]["1000 10000"] == 9.0
    assert [line.get("why") for line in lines] == [
        None,
        "gave up at 10,000: an event takes 12 s",
        "failed: wrong answers",
        "refused: it does not take x",
    ]
    assert "- c, geo, 10,000: wrong answers" in tables.failures(ROWS)
    assert tables.failures(ROWS[:4]).startswith("All answers were right")
    wins = tables.wins(ROWS)
    assert "| a | 2 | 2 | 1 | 1 | 6 |" in wins
    assert "an event takes 12 s" in tables.text(ROWS)


def test_the_picture_is_as_wide_as_a_page_shows_it(tmp_path):
    tables.draw(ROWS, tmp_path / "c.png")
    from matplotlib.image import imread

    assert imread(tmp_path / "c.png").shape[1] == 960
