"""The experiment on bursts: what it keeps, and its arithmetic on made-up numbers. No time is asserted."""

import json

import numpy as np
import pytest

from experiments.response import bursts, estimates
from experiments.response.estimates import Work
from rtfilter import EventFilter, RStarTree
from rtfilter.adaptive import FixedPlan, Plan
from rtfilter.filter import inside
from rtfilter.replay import machine
from rtfilter.replay.workloads import workload


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bursts")
    out, figure = folder / "b" / "b.json", folder / "p" / "b.png"
    arguments = ["--quick", "--workloads", "narrow", "sparse", "--out", str(out), "--figure", str(figure)]
    assert bursts.main(arguments) == 0
    return folder


@pytest.mark.slow
@pytest.mark.xdist_group("bursts")
def test_a_run_keeps_rows_settings_and_machine(quick):
    kept = json.loads((quick / "b" / "b.json").read_text())
    assert kept["experiment"] == "bursts"
    assert kept["settings"] == bursts.QUICK._asdict() | {"workloads": ["narrow", "sparse"], "seed": 1}
    assert kept["machine"] == machine.describe()
    for name in ("narrow", "sparse"):
        own = [row for row in kept["rows"] if row["workload"] == name]
        responses = {row["name"]: row for row in own if row["kind"] == "response"}
        fixed = [f"{level}/{group}" for level in (0, 1) for group in (1, 4, 16, 32, 40)]
        assert set(responses) == {"whole burst", "arrival order", "adaptive", *fixed}
        assert responses["1/16"]["level"] == 1
        assert responses["1/16"]["group"] == 16
        assert all(len(row["seconds"]) == bursts.QUICK.repeats for row in responses.values())
        quality = [(row["level"], row["unit"]) for row in own if row["kind"] == "estimate"]
        assert quality == [(0, "visits"), (0, "seconds"), (1, "visits"), (1, "seconds")]
        (verdict,) = (row for row in own if row["kind"] == "verdict")
        assert set(bursts.VERDICTS) <= set(verdict)
        assert verdict["best_plan"] in fixed
        assert verdict["alone_plan"] in ("0/1", "1/1")
        assert verdict["bursts"] is None or 0 < verdict["bursts"] < bursts.QUICK.settle


@pytest.mark.slow
@pytest.mark.xdist_group("bursts")
def test_a_run_draws_a_picture(quick):
    assert (quick / "p" / "b.png").read_bytes().startswith(b"\x89PNG")


def judged(**changed):
    """The verdict on three rounds, the second on a machine of half the speed."""
    taken = {"whole burst": 32.0, "adaptive": 20.5, "1/1": 36.0, "1/16": 20.0, "0/16": 20.4} | changed
    rounds = {name: [ms, 2 * ms, ms] for name, ms in taken.items()}
    return bursts.judge(rounds, ["1/16", "0/16"], "1/1", "0/16")


def test_a_verdict_compares_with_the_best_plan_the_whole_burst_and_groups_of_one():
    row = judged()
    assert (row["best_plan"], row["alone_plan"]) == ("1/16", "1/1")
    assert row["adaptive_plan"] == "0/16"
    assert row["over_best"] == pytest.approx(20.5 / 20)
    assert row["over_twin"] == pytest.approx(20.5 / 20.4)
    assert row["over_better"] == pytest.approx(20.5 / 32)
    assert (row["gain_whole"], row["gain_alone"]) == pytest.approx((32 / 20.5, 36 / 20.5))
    assert row["possible"] == "1.6, 1.8"
    assert [row[f"verdict_{what}"] for what in ("best", "better", "gain")] == ["met"] * 3
    assert judged(**{"1/1": 31.0})["over_better"] == pytest.approx(20.5 / 31)


@pytest.mark.parametrize(
    ("adaptive", "best", "better", "gain"),
    [
        (20.99, "met", "met", "met"),
        (21.01, "NOT MET", "met", "met"),
        (21.5, "NOT MET", "met", "NOT MET"),
        (33.5, "NOT MET", "met", "NOT MET"),
        (33.7, "NOT MET", "NOT MET", "NOT MET"),
    ],
)
def test_targets(adaptive, best, better, gain):
    row = judged(adaptive=adaptive)
    assert [row[f"verdict_{what}"] for what in ("best", "better", "gain")] == [best, better, gain]


def test_a_gain_that_no_plan_reaches_is_out_of_reach():
    assert judged(**{"whole burst": 29.0})["verdict_gain"] == "out of reach"


def test_ratios_are_those_of_one_round():
    assert bursts.ratio([2.0, 30.0, 8.0], [1.0, 10.0, 8.0]) == 2.0


def test_ranks_are_those_beside_the_others_of_a_round():
    taken = {"a": [2.0, 20.0, 20.0], "b": [3.0, 30.0, 19.0], "c": [9.0, 90.0, 90.0], "d": [9.0, 90.0, 90.0]}
    assert bursts.ranking(taken) == ["a", "b", "c", "d"]  # though b has the smallest median


def test_fixed_plans_end_with_the_whole_burst():
    assert bursts.fixed_plans(2, 20) == [Plan(level, group) for level in (0, 1) for group in (1, 4, 16, 20)]
    assert bursts.label(Plan(1, None), 20) == bursts.label(Plan(1, 20), 20) == "1/20"


def test_rounds_give_all_the_same_burst_in_another_order():
    asked = []
    calls = {name: lambda events, name=name: asked.append((name, events)) or 9.0 for name in "abcd"}
    assert bursts.in_turns(calls, iter("xyz"), 3, lambda text: None) == {name: [9.0] * 3 for name in "abcd"}
    assert [events for _, events in asked] == [*"xxxx", *"yyyy", *"zzzz"]
    orders = ["".join(name for name, events in asked if events == burst) for burst in "xyz"]
    assert {"".join(sorted(order)) for order in orders} == {"abcd"}
    assert len(set(orders)) > 1


def test_short_calls_are_repeated():
    times = iter([0.01, 0.02, 9.0])
    assert bursts.warmed(lambda events: next(times), None) == 0.02
    assert bursts.warmed(lambda events: next(times), None) == 9.0


def test_settling_is_over_when_bursts_teach_nothing():
    made = workload("wide", seed=2, dimensions=3)
    target = EventFilter(made.schema, matcher="rtree")
    made.subscribe(target, 0, 50)
    arriving = bursts.bursts(made, 8)
    adaptive = bursts.Listener(inside(target).controller)
    assert bursts.settle(target, bursts.Listener(FixedPlan(0, 4)), arriving, bursts.CALM + 1) == 0
    assert bursts.settle(target, adaptive, arriving, bursts.CALM) is None
    assert bursts.settle(target, adaptive, arriving, 2000) >= 0
    assert adaptive.settled
    assert adaptive.response > 0


# estimates


def test_rank_correlation_of_made_up_data():
    workloads = np.array([1, 2, 3, 4])
    assert estimates.correlation(workloads, np.array([1.0, 10.0, 100.0, 1000.0])) == pytest.approx(1)
    assert estimates.correlation(workloads, np.array([4.0, 3.0, 2.0, 1.0])) == pytest.approx(-1)
    assert estimates.correlation(workloads, np.array([2.0, 1.0, 4.0, 3.0])) == pytest.approx(0.6)
    assert estimates.correlation(workloads, np.ones(4)) is None
    assert estimates.correlation(np.ones(4, np.int64), workloads) is None


def test_an_estimate_is_judged_by_the_mean_response():
    alone = np.array([4.0, 2.0, 1.0])  # true cost: released at 1, 3, 7; in random order at 7/3, 14/3, 7
    row = estimates.judge(Work("visits", np.array([9, 2, 5]), alone - 0.5, 1.5), alone)
    released = (1.5 + 1.5, 1.5 + 1.5 + 0.5, 1.5 + 1.5 + 0.5 + 3.5)
    assert row["by_estimate"] == pytest.approx(sum(released) / 3)
    assert row["by_true"] == pytest.approx((1 + 3 + 7) / 3)
    assert row["fifo"] == pytest.approx((7 / 3 + 14 / 3 + 7) / 3)
    assert row["over_true"] == pytest.approx(row["by_estimate"] / row["by_true"])
    assert row["over_fifo"] == pytest.approx(row["by_estimate"] / row["fifo"])
    assert row["true_over_fifo"] == pytest.approx(row["by_true"] / row["fifo"])
    assert row["correlation"] == pytest.approx(0.5)


def test_works_count_every_visit_once():
    made = workload("narrow", seed=2, dimensions=3)
    tree = RStarTree.bulk_load(*made.subscriptions(0, 800), capacity=(4, 8))
    points = made.events(0, 30)
    for level in range(tree.height):
        visits, seconds = estimates.works(tree, points, level, 2)
        frontier = tree.frontier(points, level)
        assert (visits.workload == frontier.workload).all()
        assert (visits.cost == tree.resume(frontier).visits).all()
        assert (visits.unit, visits.estimation) == ("visits", frontier.visits)
        assert (seconds.unit, seconds.cost.shape) == ("seconds", (30,))
    found = estimates.measure(tree, points, 1)
    assert [row["level"] for row in found] == [level for level in range(tree.height) for _ in "vs"]
    best = [row for row in found if row["unit"] == "visits"][-1]
    assert best["correlation"] > 0.5
