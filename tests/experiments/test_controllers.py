"""experiments.controllers: logs, bandits, and what a contest says of made-up logs."""

import numpy as np
import pytest

from experiments import ResultError
from experiments.controllers import cases, contest, logs
from experiments.controllers.logs import SECONDS, UNITS, Log
from experiments.controllers.rivals import DiscountedThompson, DiscountedUCB
from rtfilter.adaptive import GROUPS, FixedPlan, Plan, Report, Shape, plans_of

PLANS = [Plan(0, None), Plan(0, 1), Plan(0, 4), Plan(1, 1), Plan(1, 4)]


def made(batches=60, seed=1, sizes=(8,)):
    """A log in which (1, 4) is best in the first half, and the whole batch in the second."""
    rng = np.random.default_rng(seed)
    size = np.array([sizes[at % len(sizes)] for at in range(batches)])
    second = np.arange(batches) >= batches // 2
    cost = np.where(second[:, None], [1.0, 4.0, 3.0, 4.0, 2.0], [2.0, 4.0, 3.0, 4.0, 1.0])
    response = cost * size[:, None] * np.exp(0.01 * rng.standard_normal(cost.shape))
    response[size[:, None] <= np.array([0, 1, 4, 1, 4])] = np.nan
    many = response.shape
    return Log(
        {"case": "made", "title": "made up", "phases": ["first", "second"], "machine": {"revision": "1"}},
        np.array([(plan.level, plan.group or 0) for plan in PLANS]),
        size, np.full(batches, 2), np.full(batches, 1000), np.ones(batches, int), np.where(second, 0, 5),
        second.astype(int), second, response, 1.5 * response, 0.1 * response, np.full(many, 70),
        np.full(many, 8), 100 * response,
    )  # fmt: skip


def test_a_log_comes_back_from_its_file(tmp_path):
    log = made()
    log.write(tmp_path / "made.npz")
    again = Log.read(tmp_path / "made.npz")
    assert again.about == log.about
    assert again.response == pytest.approx(log.response, rel=6e-3, nan_ok=True)
    for name in ("plans", "size", "height", "boxes", "packed", "updates", "phase", "moving", "visits"):
        assert (getattr(again, name) == getattr(log, name)).all()
    assert [path.name for path in tmp_path.iterdir()] == ["made.npz"]


@pytest.mark.parametrize("content", [b"", b"no zip file", None])
def test_what_is_no_log_is_refused_with_its_name(tmp_path, content):
    path = tmp_path / "made.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ResultError, match=r"made\.npz is no log of batches"):
        Log.read(path)


def test_groups_that_are_no_smaller_than_the_batch_are_the_whole_batch():
    log = made(sizes=(8, 3))
    assert log.place(0, Plan(1, 4)) == PLANS.index(Plan(1, 4))
    assert log.place(1, Plan(1, 4)) == log.place(1, Plan(1, None)) == 0


def test_a_report_is_what_the_log_says():
    log = made()
    report = log.report(3, Plan(0, 4))
    assert (report.mean_response, report.size, report.groups) == (log.response[3, 2], 8, 2)
    assert (report.elapsed, report.estimation) == (log.elapsed[3, 2], log.estimation[3, 2])
    assert (report.visits, report.estimation_visits) == (70, 8)
    assert log.report(3, Plan(0, 4), UNITS) == Report(log.units[3, 2], 8)


def test_the_references_of_a_log():
    costs = contest.Costs(made(), SECONDS)
    assert costs.best in (Plan(0, None), Plan(1, 4))
    assert np.exp(costs.fixed) == pytest.approx(np.full(60, 8.0), rel=0.05)  # the best of each half
    assert (costs.oracle <= costs.fixed + 1e-12).all()


def test_a_constant_loses_nothing_to_itself_and_what_it_must_to_the_best_of_a_phase():
    log = made()
    own, _ = contest.play(log, FixedPlan(1, 4), SECONDS)
    costs = contest.Costs(log, SECONDS)
    assert contest.lost(own, costs.fixed, ~log.moving) == pytest.approx(0.0, abs=1e-12)
    assert contest.lost(own, costs.fixed, log.moving) == pytest.approx(1.0, abs=0.02)
    assert contest.lost(own, costs.fixed, np.zeros(60, bool)) is None


def test_settled_is_a_phase_without_its_first_quarter():
    log = made(80, sizes=(8, 32))
    assert np.flatnonzero(contest.settled(log)).tolist() == list(range(10, 40))


@pytest.mark.slow
def test_the_contest_has_a_row_for_every_entrant_and_a_table():
    log = made(120)
    rows = contest.measure(log, SECONDS) + contest.measure(log, UNITS)
    names = [*contest.ENTRANTS, "best constant", "middle constant", "whole batch"]
    assert [row["controller"] for row in rows] == names * 2
    own = next(row for row in rows if row["controller"] == contest.OURS)
    assert own["still"] < 0.3
    text = contest.text(rows)
    assert all(name in text for name in names)
    assert max(map(len, text.splitlines())) <= 100
    assert "made, seconds, settled" in contest.verdicts(rows)


@pytest.mark.parametrize("kind", [DiscountedUCB, DiscountedThompson])
def test_bandits_find_the_best_arm_and_follow_it(kind):
    bandit = kind(seed=1)
    used = []
    for turn in range(800):
        ticket = bandit.plan(64, Shape(2))
        best = Plan(1, 16) if turn < 400 else Plan(0, 4)
        bandit.report(ticket, Report(1.0 if ticket.plan == best else 1.5 + 0.01 * (turn % 3), 64))
        used.append(ticket.plan)
    assert used[200:400].count(Plan(1, 16)) > 120
    assert used[600:].count(Plan(0, 4)) > 120


@pytest.mark.parametrize("name", ["widening", "sizes", "paper"])
@pytest.mark.slow
def test_recording_a_case_runs_every_batch_by_every_plan(name):
    case = cases.CASES[name](1, 0.01)
    log = logs.record(case, 1)
    assert log.about["case"] == name
    for row in range(len(log)):
        possible = plans_of(int(log.size[row]), int(log.height[row]), GROUPS)
        known = {plan for plan, at in log.column.items() if not np.isnan(log.response[row, at])}
        assert known == set(possible)
        for plan in possible:
            report = log.report(row, plan)
            assert 0 < report.mean_response <= report.elapsed
            assert log.units[row, log.place(row, plan)] > 0
    assert log.updates.sum() > 0 or name != "widening"
