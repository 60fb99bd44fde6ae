"""The paper's evaluation: counts of visits, the work of plans, figures, claims, and what is kept."""

import gc
import json
import re
import shutil
import sys
from functools import partial, partialmethod
from itertools import cycle
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import ResultError
from experiments import __main__ as experiments
from experiments.paper import (
    confidence,
    counting,
    fig4a,
    fig4b,
    fig4c,
    fig4d,
    live,
    page,
    plans,
    report,
    runner,
    times,
    timing,
)
from experiments.paper.index import GrowingFilter, GrowingPoints, Levels, growing
from experiments.paper.papers import MODULES, WANG, Paper
from experiments.paper.runner import Experiment
from experiments.paper.settings import CI, FULL, MEDIUM, SETTINGS, Setting
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import Work, by_level, by_plan, work
from experiments.peers.own import Counting
from experiments.response.bursts import label
from lengths import long_but
from rtfilter import EventFilter
from rtfilter.adaptive import FixedPlan, LevelController, Plan, PlanController, Shape, WangController
from rtfilter.index.tree import RStarTree
from rtfilter.replay import machine
from rtfilter.replay.output import Row
from rtfilter.replay.workloads import BOXES
from rtfilter.scheduler import expected_random_response, relative_gain, shortest_first_response

pytestmark = pytest.mark.xdist_group("paper")  # `measured` and `grown` are made once

REPORT = Path(report.__file__).parents[1] / "report"
READING = REPORT / report.READING

TINY = CI.divided(10)._replace(
    sizes=CI.divided(10).sizes[::3],
    batch_sizes=(1, 8, 32),
    batch=8,
    batches=5,
    repeats=2,
    timed_sizes=(1, 8),
    timed=2,
    first=1,
    searches=2,
    rounds=(1, 2),
    compared=(100,),
    workloads=("nested",),
)


RUN = {
    name: [one for one in ("paper", "modern", "transform") if one in report.settings(name)]
    for name in WANG.modules
}
"""Experiments, and settings in which they are run."""
QUICK = ("fig4a", "fig4b", "fig4c", "fig4d")


@pytest.fixture(scope="module", params=long_but(SETTINGS, ["paper", "modern", "transform"]))
def grown(request):
    setting = SETTINGS[request.param]
    index = growing(setting, 3)
    index.grow(900)
    return setting, index


# who visits what


def test_an_index_grows_as_asked(grown):
    _, index = grown
    assert index.size == 900
    if isinstance(index, GrowingFilter):
        assert len(index.filter) == 900


def test_the_paper_s_trees_are_inserted_into_and_not_packed():
    index = GrowingFilter(SETTINGS["paper"], 1)
    index.grow(700)
    inserted = RStarTree(12, (10, 20))
    boxes = BOXES["wide"](1).subscriptions(0, 700)
    inserted.insert_many(np.arange(700), *boxes)
    for level in range(inserted.height):
        for own, other in zip(
            index.filter.tree.boxes_at_level(level), inserted.boxes_at_level(level), strict=True
        ):
            assert np.array_equal(own, other)


@pytest.mark.parametrize(
    "grown",
    long_but([n for n in SETTINGS if not SETTINGS[n].transformed], ["paper", "modern"]),
    indirect=True,
)
def test_visits_are_those_of_the_search_itself(grown):
    _, index = grown
    tree, points = index.filter.tree, index.points(5, 60)
    visits = index.levels().visits(points)
    for level in range(tree.height):
        frontier = tree.frontier(points, level)
        assert np.array_equal(visits[:, level], frontier.workload)
        assert visits[:, :level].sum() == frontier.visits
    assert np.array_equal(visits.sum(axis=1), tree.hits(points).visits)


def test_who_reaches_which_node_adds_up_to_the_visits(grown):
    _, index = grown
    levels, points = index.levels(), index.points(0, 40)
    reached = levels.reached(points)
    assert np.array_equal(np.stack([nodes.sum(axis=1) for nodes in reached], axis=1), levels.visits(points))


def test_points_of_six_intervals_are_found_where_boxes_say():
    index = GrowingPoints(SETTINGS["transform"], 2)
    index.grow(400)
    low, high = BOXES["wide"](2, 6).subscriptions(0, 400)
    events = np.concatenate([index.points(0, 20), (low[:20] + high[:20]) // 2])
    leaves = index.levels().reached(events)[-1]
    node_low, node_high = index._tree.boxes_at_level(index._tree.height - 1)
    for row, event in enumerate(events):
        matching = ((low <= event) & (event <= high)).all(axis=1)
        for k in np.flatnonzero(matching):
            point = np.empty(12)
            point[0::2], point[1::2] = low[k], high[k]
            holding = ((node_low <= point) & (point <= node_high)).all(axis=1)
            assert leaves[row][holding].any()
    assert (index.levels().visits(events)[:, 0] == 1).all()


def test_an_event_outside_of_everything_visits_the_root_alone():
    levels = Levels.of(RStarTree.bulk_load([[0.0], [5.0]], [[1.0], [6.0]]))
    assert levels.visits(np.array([[99.0]])).tolist() == [[1]]
    assert levels.reached(np.array([[99.0]]))[0].tolist() == [[True]]


# work


def released(index, plan, events):
    """Mean response in visits, from a real stream."""
    index.filter.configure(controller=FixedPlan(plan.level, plan.group))
    stream = index.filter.stream(events)
    visits = stream.visits
    return stream.estimation_visits + np.cumsum(visits[stream.order]).mean(), stream.estimation_visits


def test_work_by_level_is_that_of_real_streams():
    index = GrowingFilter(SETTINGS["paper"], 4)
    index.grow(1500)
    events = index.events(0, 48)
    found = work(SETTINGS["paper"], index.levels(), events.points.reshape(3, 16, -1))
    assert found.plans == [Plan(level, 1) for level in range(index.filter.tree.height)]
    assert len(found.plans) >= 3
    for p, plan in enumerate(found.plans):
        for b in range(3):
            real = released(index, plan, events.rows(range(16 * b, 16 * b + 16)))
            assert (found.response[b, p], found.estimation[b, p]) == pytest.approx(real)


def test_random_and_perfect_order_are_those_of_the_scheduler():
    visits = np.array([[[1, 2, 3], [1, 0, 0], [1, 5, 9], [1, 1, 2]]])
    found, cost = by_level(visits), visits[0].sum(axis=1)
    assert found.random == pytest.approx([expected_random_response(cost)])
    assert found.perfect == pytest.approx([shortest_first_response(cost)])
    assert found.law == pytest.approx([relative_gain(cost)])


def test_work_in_groups_counts_a_node_once_per_group_and_once_per_event():
    # Two leaves below the root: event 0 reaches both, event 1 none, events 2 and 3 the second.
    reached = [np.ones((4, 1), bool), np.array([[1, 1], [0, 0], [0, 1], [0, 1]], bool)]
    plans = [Plan(0, None), Plan(0, 2), Plan(0, 1), Plan(1, 1), Plan(1, 2)]
    found = by_plan(reached, plans)
    whole = 4 + 1 + 4 + 2  # events at the root, the root, events at leaves, leaves
    pairs = (2 + 1 + 2 + 2, 2 + 1 + 2 + 1)  # events 0 and 1, then 2 and 3
    alone = np.array([6, 2, 4, 4])
    expected = [
        whole,
        (pairs[0] * 2 + sum(pairs) * 2) / 4,
        np.cumsum(alone).mean(),
        # The estimate is the root; event 1 is done with it, then 2, 3, 0.
        5 + np.array([0, 2, 4, 8]).mean(),
        5 + np.array([0, 3, 3, 7]).mean(),
    ]
    assert found.response[0] == pytest.approx(expected)
    assert found.estimation[0].tolist() == [0, 0, 0, 5, 5]
    assert found.random == pytest.approx([expected_random_response(alone)])


def test_groups_of_one_cost_twice_what_their_visits_are(grown):
    _, index = grown
    points = index.points(0, 16)
    visits = index.levels().visits(points)
    found = by_plan(index.levels().reached(points), [Plan(0, 1)])
    assert found.response[0, 0] == pytest.approx(2 * by_level(visits[np.newaxis]).response[0, 0])


# figures


def response(*curves):
    """Responses (b, p), a batch a row."""
    return np.array(curves, float)


def test_plans_are_compared_batch_by_batch():
    # Batches differ tenfold; on each, the second plan is better by 10 %, the third by 10.5 %.
    scale = np.array([1.0, 10.0, 100.0, 3.0])
    row = fig4a.by_plan(["0/1", "1/1", "2/1"], np.outer(scale, [1, 0.9, 0.895]), confidence.mean)
    assert (row["all"]["best"], row["all"]["votes"]) == ("2/1", 1.0)
    assert (row["all"]["equal"], row["all"]["unknown"]) == (["1/1", "2/1"], [])
    assert row["low"][0] < row["mean"][0] < row["high"][0]


def test_the_paper_cannot_reach_the_leaf_level():
    row = fig4a.by_plan(["0/1", "1/1", "2/1"], response([3, 2, 1], [3, 2, 1]), confidence.mean)
    assert (row["all"]["best"], row["judged"]["best"]) == ("2/1", "1/1")
    assert plans.judged(["0/1", "0/4", "1/1", "1/4"], 2) == ["0/1", "0/4", "1/1", "1/4"]  # not the paper's
    assert plans.within(["0/1"], 1) == ["0/1"]


def test_plans_that_noise_hides_are_not_told_apart():
    rng = np.random.default_rng(1)
    own = np.stack([np.full(30, 2.0), np.full(30, 1.0), 1.02 * rng.uniform(0.5, 2, 30)], axis=1)
    found = fig4a.best_of(["0/1", "1/1", "2/1"], own, confidence.middle, ["0/1", "1/1", "2/1"])
    assert found["equal"] == [found["best"]]
    assert found["unknown"] == [{"1/1": "2/1", "2/1": "1/1"}[found["best"]]]


def best_rows(*levels, equal=(), unknown=(), kind="visits"):
    found = [
        {"best": f"{level}/1", "equal": [f"{level}/1", *equal], "unknown": list(unknown), "votes": 1}
        for level in levels
    ]
    return [
        {
            "kind": kind,
            "size": 100 * (k + 1),
            "batch": 8,
            "height": 9,
            "plans": ["0/1"],
            "judged": own,
            "all": own,
            "share": [0.1 / (k + 1)] * 9,
        }
        for k, own in enumerate(found)
    ]


def test_the_best_level_moves_slowly_or_not():
    def moved(*levels, **more):
        return fig4a.moves(best_rows(*levels, **more), fig4a.level_of, "judged")

    assert moved(2, 2, 3, 3) == ([0, 1, 0], 0)
    assert moved(2, 2, 3, 3, equal=["2/1"]) == ([0, 0, 0], 0)
    assert moved(2, 2, 3, 3, unknown=["2/1"]) == ([], 3)
    slow, _, falling = fig4a.claims(best_rows(2, 2, 2, 2, 3))
    assert (slow.units.verdict, falling.units.verdict) == ("holds", "holds")
    assert slow.time.verdict == falling.time.verdict == "does not apply"
    assert fig4a.claims(best_rows(1, 2, 3))[0].units.verdict == "partly"
    assert fig4a.claims(best_rows(1, 3))[0].units.verdict == "fails"
    assert fig4a.claims(best_rows(1))[0].units.verdict == "does not apply"


@pytest.mark.parametrize(
    ("levels", "verdict"),
    [
        ((7, 7, 7, 7), "cannot be judged"),  # the last level that a tree of nine allows
        ((6, 7, 7, 7, 7), "holds"),
        ((7,), "does not apply"),
    ],
)
def test_a_level_that_the_range_holds_says_nothing_of_moves(levels, verdict):
    rows = [row | {"plans": [f"{level}/1" for level in range(9)]} for row in best_rows(*levels)]
    assert fig4a.claims(rows)[0].units.verdict == verdict


@pytest.mark.parametrize("how", ["unknown", "equal"])
def test_a_size_that_is_not_told_apart_shows_no_move_from_the_end(how):
    rows = best_rows(7, 7, 7) + best_rows(3, **{how: ["7/1"]})
    rows = [row | {"plans": [f"{level}/1" for level in range(9)]} for row in rows]
    assert fig4a.claims(rows)[0].units.verdict == "cannot be judged"


def test_times_that_contradict_get_a_verdict_of_their_own():
    rows = best_rows(2, 2, 2, 2, 2) + best_rows(2, 4, 1, 3, 5, kind="seconds")
    slow = fig4a.claims(rows)[0]
    assert (slow.units.verdict, slow.time.verdict) == ("holds", "fails")
    rows = best_rows(2, 2, 2, 2, 2) + best_rows(2, 2, 2, unknown=["2/1"], kind="seconds")
    found = fig4a.claims(rows)[0].time
    assert found == ("moved in 0 of 2 steps, 2 not told apart", "partly")


def test_rungs_of_groups():
    assert [plans.rung_of(f"0/{group}") for group in (1, 4, 16, 64, 512)] == [0, 1, 2, 3, 4]


def made_work(gain, n=8):
    """Batches whose best plan saves a share of 100 units in random order; 8 % of it is the estimate."""
    own = 100 * (1 - gain)
    base = response(*[[200, own, 300]] * 3)
    estimation = np.zeros((3, 3))
    estimation[:, 1] = 0.08 * own
    plans = [Plan(0, 1), Plan(1, 1), Plan(2, 1)]
    return Work(plans, base, estimation, np.full(3, 100.0), np.full(3, 100 * (1 - gain - 0.1)))


def test_gain_and_share_of_a_batch_size():
    row = fig4b.in_units(made_work(0.4), 8)
    assert (row["best"]["plan"], row["judged"]["plan"]) == ("1/1", "1/1")
    assert row["judged"]["gain"].value == pytest.approx(0.4)
    assert row["judged"]["share"].value == pytest.approx(0.08)
    assert row["law"] == pytest.approx(0.5)
    assert row["whole"] is None


def gains(*shares):
    return [
        {"kind": "visits", "batch": 2 << k, **fig4b.in_units(made_work(share), 8)}
        for k, share in enumerate(shares)
    ]


def verdicts(claims):
    return [claim.units.verdict for claim in claims]


def test_claims_on_gains_fail_when_they_should():
    found = verdicts(fig4b.claims(gains(0.2, 0.3, 0.4, 0.45)))
    assert found == ["holds", "holds", "holds", "partly", "does not apply", "holds"]
    assert verdicts(fig4b.claims(gains(0.3, 0.3, 0.2, 0.1)))[1:3] == ["fails", "fails"]
    assert verdicts(fig4b.claims(gains(0.05, 0.3)))[0] == "partly"
    assert verdicts(fig4b.claims(gains(0.0)))[0] == "fails"


def test_without_an_estimate_its_cost_is_not_judged():
    idle = made_work(0.4)._replace(estimation=np.zeros((3, 3)))
    rows = [{"kind": "visits", "batch": 8, **fig4b.in_units(idle, 8)}]
    assert verdicts(fig4b.claims(rows))[3] == "does not apply"


def timed_row(batch, seconds, estimating=0.0):
    """A row of times of `timing.measured` without noise; the first round is like the second."""
    plans = [name for name in seconds if name.endswith("/1")]
    taken = {name: [value * (1 + 0.01 * k) for k in range(30)] for name, value in seconds.items()}
    return {
        "kind": "seconds", "batch": batch, "height": 3, "plans": plans,
        "first": {name: taken[name] for name in plans}, "times": taken,
        "estimates": {name: [estimating * value for value in own] for name, own in taken.items()},
    }  # fmt: skip


def in_time(batch, inner, leaf, fifo=1.0, longest=1.0, estimating=0.0):
    """Times by level: 1 at the root, `inner` within the paper's range, `leaf` at the leaves."""
    seconds = {"0/1": 1.0, "1/1": inner, "2/1": leaf, f"0/{batch}": 1.0}
    for name in ("1/1", "2/1"):
        seconds |= {f"{name} in arrival order": fifo, f"{name} longest first": longest}
    return timed_row(batch, seconds, estimating)


def test_the_best_plan_is_compared_in_three_orders():
    row = in_time(8, 0.6, 0.4, fifo=0.8, longest=1.2)
    judged, best = timing.compared(row, "judged"), timing.compared(row, "best")
    assert (judged["plan"], best["plan"]) == ("1/1", "2/1")
    assert judged["gain"] == pytest.approx((0.4, 0.4, 0.4))
    assert judged["fifo"] == pytest.approx((0.2, 0.2, 0.2))
    assert judged["longest"] == pytest.approx((-0.2, -0.2, -0.2))
    assert judged["order"] == pytest.approx((0.25, 0.25, 0.25))


def test_time_is_judged_by_itself():
    units = gains(0.3, 0.4, 0.45)
    fast = [in_time(batch, 0.6, 0.4, fifo=0.7, longest=0.8, estimating=0.7) for batch in (2, 4, 8)]
    better, _, half, estimate, order, _ = fig4b.claims(units + fast)
    assert (better.time.verdict, half.time.verdict) == ("holds", "holds")  # by the paper's range
    assert "60 % (60..60) at 2 events" in half.time.ours  # with all levels
    assert (estimate.units.verdict, estimate.time.verdict) == ("partly", "fails")
    assert "70.0 %" in estimate.time.ours
    assert order.time.verdict == "fails"  # longest first gains 20 %, so work is shared
    slow = [in_time(batch, 0.98, 0.98) for batch in (2, 4, 8)]
    assert fig4b.claims(units + slow)[0].time.verdict == "fails"
    assert fig4b.claims(units)[0].time == ("not timed", "does not apply")
    none = [in_time(batch, 1.1, 1.2) for batch in (2, 4, 8)]  # no batch search is best
    assert fig4b.claims(units + none)[3].time == ("no plan with an estimate is best", "does not apply")
    assert fig4b.claims(units + none)[0].time.verdict == "fails"


def test_what_a_valley_is():
    assert fig4c.is_valley([3, 2, 1, 2])
    assert fig4c.is_valley([1, 2, 2, 3])
    assert fig4c.is_valley([3, 2, 2, 1])
    assert not fig4c.is_valley([3, 2, 2.5, 1])


def test_without_noise_different_events_give_the_same_curve():
    names = ["0/1", "1/1", "2/1", "3/1"]
    rows = fig4c.drawn_curves("visits", names, np.tile([3.0, 1.0, 2.0, 9.0], (30, 1)), (1, 4, 16), 3, 1)
    assert [(row["events"], row["rounds"]) for row in rows] == [
        ("same", 30), ("different", 1), ("different", 4)
    ]  # fmt: skip
    for row in rows[1:]:
        own = row["all"]
        assert (own["off"].value, own["turned"], own["ragged"], own["wrong"]) == (0, 0, 0, 0)
    noisy = np.array([[3.0, 0.0, 1.0, 9.0], [3.0, 4.0, 1.0, 9.0]] * 30)  # 3, 2, 1 in the mean
    wild, tame = fig4c.drawn_curves("visits", names, noisy, (1, 12), 50, 1)[1:]
    assert wild["judged"]["off"].value > 2 * tame["judged"]["off"].value > 0
    assert wild["judged"]["turned"] > 0.2 > tame["judged"]["turned"]


@pytest.mark.parametrize(
    ("line", "noise", "verdict"),
    [
        ([5, 3, 1, 3, 9], 0, "holds"),
        ([5, 3, 2, 1, 0.5], 0, "fails"),  # the last of the range is best
        ([5, 1, 3, 2, 9], 0, "partly"),  # inside, but no valley
        ([1.05, 1.02, 1, 1.05, 9], 0.9, "partly"),  # not told apart from the ends
    ],
)
def test_the_best_level_is_inside_of_the_paper_s_range(line, noise, verdict):
    # Each level has the same noise, on other batches.
    waves = np.array([np.roll(np.tile([1 + noise, 1 / (1 + noise)], 30), k) for k in range(5)]).T
    rows = fig4c.drawn_curves("seconds", [f"{level}/1" for level in range(5)], waves * line, (1,), 2, 1)
    assert fig4c._valley(rows[0]).verdict == verdict


def test_few_curves_do_not_say_whether_they_are_ragged():
    def rows(**curves):
        shares = {"1": 0.5, "4": 0.9, "16": 0.9, "64": 0.0}
        return [{"kind": "seconds", "rounds": int(n), "events": "different", "curves": curves.get(f"n{n}", 8),
                 "judged": {"ragged": share}} for n, share in shares.items()]  # fmt: skip

    assert fig4c._ragged(rows()).verdict == "holds"
    few = fig4c._ragged(rows(n64=2))
    assert few.verdict == "partly"  # whether they merge is not known
    assert "0 % of 2 (N = 64)" in few.ours
    assert fig4c._ragged(rows(n1=2, n4=2, n16=2, n64=2)).verdict == "cannot be judged"


def test_no_batch_is_used_twice_for_different_events():
    rng = np.random.default_rng(1)
    batches = np.arange(12.0)[:, np.newaxis] * np.ones(3)
    assert fig4c._different(batches, 4, rng).sum() * 4 == pytest.approx(np.arange(12).sum())


VALLEY = Work(
    [Plan(level, 1) for level in range(4)],
    response(*[[8, 6, 5, 7]] * 6),
    np.zeros((6, 4)),
    np.full(6, 10.0),
    np.full(6, 4.0),
)


def test_an_episode_ends_where_the_valley_does():
    own = WangController(rounds=2, threshold=10)
    found = fig4d.episode(own, VALLEY, cycle([3, 1, 5]), 16)
    assert VALLEY.plans[found.settled] == Plan(2, 1)
    assert found.batches[:4] == [3, 1, 5, 3]
    assert len(found.batches) == len(found.plans) == 12  # two loops of three levels


def test_without_a_choice_one_batch_is_run():
    alone = VALLEY._replace(plans=[Plan(0, 1)], response=VALLEY.response[:, :1])
    found = fig4d.episode(WangController(rounds=2), alone, cycle([3]), 16)
    assert (found.batches, found.plans, found.settled) == ([3], [0], 0)


def walk(*curves):
    """Follow a controller through steps with a curve by level each; the rows of sizes, and of the run."""
    base, steps = np.full(6, 10.0), []
    for k, curve in enumerate(curves):
        taken = np.tile(np.array(curve, float), (6, 1))
        found = Work([Plan(level, 1) for level in range(len(curve))], taken, 0 * taken, base, base)
        steps.append(fig4d.Step(100 * (k + 1), found))
    profile = TINY._replace(rounds=(2,), batch=16)
    middle = fig4d.middle_plan(SETTINGS["paper"], steps[0].height, 16)
    rows = fig4d.follow(SETTINGS["paper"], steps, middle, profile, 1)
    *sizes, whole = [row for row in rows if row["who"] == fig4d.PAPER]
    return sizes, whole


def test_a_controller_is_compared_with_constants():
    (first, second), whole = walk([8, 6, 5, 7], [8, 4, 5, 7])
    assert (whole["constant_plan"], whole["middle_plan"]) == ("1/1", "1/1")
    assert (first["constant"].value, first["middle"].value, second["constant"].value) == (6, 6, 4)
    assert (first["best"], second["best"]) == ("2/1", "1/1")
    assert first["possible"].value == first["fixed"].value == 5
    adaptive = (first["adaptive"].value + second["adaptive"].value) / 2
    assert whole["over_constant"].value == pytest.approx(adaptive / 5 - 1)
    assert whole["gain"].value == pytest.approx(1 - adaptive / 10)


def test_a_constant_that_wins_is_said_to_win():
    sizes, whole = walk(*[[8, 6, 5, 7]] * 4)
    rows = [{"kind": "visits", "among": "judged", **row} for row in (*sizes, whole)]
    claims = {claim.claim: claim.units for claim in fig4d.claims(rows)}
    adapting = claims["adapting is better than the best constant plan, known afterwards"]
    assert adapting.verdict == "fails"
    assert "above it" in adapting.ours


def test_the_paper_s_range_has_no_leaf_level():
    step = fig4d.Step(9, VALLEY)
    assert [plan.level for plan in fig4d.in_range(step).work.plans] == [0, 1, 2]
    assert fig4d.in_range(step).work.response.shape == (6, 3)


def test_batches_of_a_pool_come_in_another_order_each_time():
    order = fig4d.shuffled(np.random.default_rng(1), 6)
    first, second = ([next(order) for _ in range(6)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(6))
    assert first != second  # so plans that take turns do not always get the same batches


def test_where_plans_have_groups_the_controller_looks_for_both():
    made = {
        (name, who): type(fig4d.controller(SETTINGS[name], who, 4, 9))
        for name in ("paper", "modern") for who in (fig4d.PAPER, fig4d.OURS)
    }  # fmt: skip
    assert list(made.values()) == [WangController, LevelController, PlanController, PlanController]


# live


def contest(curve, monkeypatch, most, *contestants, searches=2, room=99):
    """Let contestants search on batches that take what a curve by level says; the step."""

    def run_batch(index, plan, order, events):
        return timing.Timed(curve[plan.level], 0.0)

    monkeypatch.setattr(live, "run_batch", run_batch)
    step = live.Step(9, len(curve), [f"{level}/1" for level in range(len(curve))])
    fixed = {name: partial(run_batch, None, Plan(int(name[0]), 1), "") for name in step.fixed}
    for each in contestants:
        each.begin(Shape(len(curve), 9), 16, searches, room)
    live._at(step, None, fixed, contestants, iter(range(most)), most, 1)
    for each in contestants:
        each.end()
    return step


def wang(rounds):
    return live.Contestant("paper", rounds, WangController(rounds=rounds, threshold=10), 10)


def test_a_controller_searches_live_until_it_settles_and_again(monkeypatch):
    own = wang(2)
    contest([8, 6, 5, 7], monkeypatch, 50, own)
    first, second = own.searches
    assert (first.settled, second.settled) == ("2/1", "2/1")
    assert (first.batches, second.batches) == (list(range(12)), list(range(12, 18)))  # the first from level 1
    assert np.round(first.seconds[:6]).tolist() == [6, 8, 5] * 2  # its own choice takes no second
    assert first.seconds[0] > 6


def test_no_search_begins_that_has_no_room(monkeypatch):
    own = wang(2)
    contest([8, 5, 7], monkeypatch, 50, own, room=11)
    assert [search.batches for search in own.searches] == [list(range(6))]


def test_a_search_without_an_end_goes_on_at_the_next_size(monkeypatch):
    own = wang(2)
    contest([8, 6, 5, 7], monkeypatch, 5, own)
    assert [search.settled for search in own.searches] == [""]
    contest([8, 6, 5, 7], monkeypatch, 50, own, searches=1)
    assert own.searches[0].settled == "2/1"
    assert len(own.searches[0].batches) == 12 - 5


def test_only_batches_that_all_ran_are_compared(monkeypatch):
    own = wang(7)
    step = contest([8, 5, 7], monkeypatch, 30, own, searches=1)
    known = [*range(live.FIRST), 10, 20]
    assert [list(taken) for taken in step.fixed.values()] == [known] * 3
    seconds, fixed = step.compared(own.searches)
    assert fixed.tolist() == [[8, 5, 7]] * len(known)
    assert np.round(seconds).tolist() == [[5, 8, 7][number % 3] for number in known]
    assert (step.best, step.column("1/1"), step.column("9/1")) == (1, 1, 2)


def test_an_outlier_spoils_one_block():
    other = np.ones(50)
    own = 1.5 * other
    own[7] = 1000
    assert live.ratio(own, other) == pytest.approx((0.5, 0.5, 0.5))
    assert live.middle(own) == pytest.approx((1.5, 1.5, 1.5))


# counting


@pytest.mark.parametrize("name", BOXES)
def test_increments_are_the_satisfied_constraints(name):
    made = BOXES[name](2)
    boxes, points = made.subscriptions(0, 200), made.events(0, 9)
    peer = Counting(boxes)
    peer.ask(points)
    constrained = np.isfinite(boxes.low) | np.isfinite(boxes.high)
    satisfied = sum(((boxes.low <= p) & (p <= boxes.high) & constrained).sum() for p in points)
    assert peer.increments == satisfied


def test_counting_with_open_equal_and_absent_constraints():
    low = np.array([[-np.inf], [-np.inf], [3.0], [3.0], [3.0], [-np.inf]])
    high = np.array([[3.0], [np.inf], [np.inf], [3.0], [5.0], [2.0]])
    peer = Counting(BOXES["wide"](1).subscriptions(0, 1)._replace(low=low, high=high))
    found = peer.ask(np.array([[3.0], [2.0], [4.0], [9.0]]))
    assert [sorted(ids) for ids in found] == [[0, 1, 2, 3, 4], [0, 1, 5], [1, 2, 4], [1, 2]]


# confidence


def test_intervals():
    assert confidence.mean([2.0]) == (2, 2, 2)
    value, low, high = confidence.mean([1.0, 2.0, 3.0])
    assert (value, 2 - low) == (2, pytest.approx(high - 2))
    assert 2.4 < high - 2 < 2.6  # 4.303 standard errors of 0.577
    assert confidence.mean([1.0, 2.0, 3.0], 0).low == 0
    share = confidence.saved([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert share == pytest.approx((0.5, 0.5, 0.5))
    slower, faster = (call([4.0, 4.0], [2.0, 2.0]) for call in (confidence.slower, confidence.faster))
    assert (slower, faster) == (pytest.approx((1, 1, 1)), pytest.approx((-1, -1, -1)))


def test_intervals_of_medians_are_between_values_and_keep_their_level():
    assert confidence.middle(range(30)) == (14.5, 9, 20)  # the 10th and the 21st of 30: 95.7 %
    assert confidence.middle([1.0, 2.0, 50.0]) == (2, 1, 50)
    rng = np.random.default_rng(1)
    found = [confidence.middle(rng.lognormal(0, 1, 30)) for _ in range(400)]
    assert np.mean([low <= 1 <= high for _, low, high in found]) > 0.93


def test_few_times_with_an_outlier_have_a_possible_interval():
    gain = confidence.faster([1.0, 1.1, 0.9, 9.0], [2.0, 2.0, 2.0, 2.0])
    assert (gain.low, gain.high) == pytest.approx((-3.5, 0.55))  # what was seen, and never above 1
    excess = confidence.slower([1.0, 1.1, 0.9, 9.0], [2.0, 2.0, 2.0, 2.0])
    assert (excess.low, excess.high) == pytest.approx((-0.55, 3.5))


# timing


def test_all_calls_are_timed_alike_on_the_same_batches():
    made = []

    def call(name):
        def run(events):
            made.append((name, events))
            return timing.Timed(1.0, 0.5)

        return run

    taken = timing.in_turns(
        {name: call(name) for name in "abc"}, iter([1, 2, 3]), lambda _: 3, lambda _: None
    )
    assert [len(own) for own in taken.values()] == [3, 3, 3]
    for k, events in enumerate((1, 2, 3)):
        warm, *counted = made[4 * k : 4 * k + 4]
        assert {each[1] for each in (warm, *counted)} == {events}
        assert sorted(name for name, _ in counted) == ["a", "b", "c"]
        assert warm == counted[-1]  # so that each counted call follows another plan


@pytest.mark.slow
def test_nothing_measured_is_dropped(tmp_path):
    run = runner.Run("times", SETTINGS["paper"], TINY, 1, tmp_path / "times-paper.json")
    times.measure(run)
    first = times.by_size(run.rows, TINY.sizes)[0]
    assert set(first["first"]) == set(first["plans"])
    assert {"0/1", *first["plans"], timing.whole(TINY.batch)} <= set(first["times"])
    best = timing.best_plans(first["first"], first["height"]).values()
    assert {timing.ordered(name, order) for name in best for order in timing.ORDERS} <= set(first["times"])
    assert all(len(own) >= TINY.timed for own in first["times"].values())
    assert set(first["estimates"]) == set(first["times"])
    assert timing.response(first).shape == (len(first["times"]["0/1"]), len(first["plans"]))


# running, keeping and reporting


def test_an_interrupted_run_goes_on(tmp_path):
    path = tmp_path / "x.json"
    first = runner.Run("x", SETTINGS["paper"], TINY, 1, path)
    for piece in first.pieces({"a": 1, "b": 2}):
        first.keep(piece, [{"value": 1 / 3}])
        break
    second = runner.Run("x", SETTINGS["paper"], TINY, 1, path)
    assert list(second.pieces({"a": 1, "b": 2})) == ["b"]
    assert second.of("a") == [{"piece": "a", "value": 0.33333}]
    with pytest.raises(ResultError, match=r"another settings \(seed\): delete it or choose another --out"):
        runner.Run("x", SETTINGS["paper"], TINY, 2, path)


def test_a_run_of_another_revision_begins_anew_and_of_an_upgrade_is_refused(tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.json"
    made_on = {"revision": "a", "versions": {"numpy": "1"}}
    monkeypatch.setattr(machine, "describe", lambda: dict(made_on))

    def run():
        return runner.Run("x", SETTINGS["paper"], TINY, 1, path, machine=machine.describe())

    first = run()
    for piece in first.pieces({"a": 1}):
        first.keep(piece, [])
    made_on["revision"] = "b"
    second = run()
    assert f"{path} is of revision a: it begins anew, by b" in capsys.readouterr().err
    assert [second.keep(piece, [{}]) for piece in second.pieces({"a": 1, "b": 1})] == [None, None]
    assert json.loads(path.read_text())["machine"]["revision"] == "b"
    made_on["versions"] = {"numpy": "2"}
    with pytest.raises(ResultError, match=r"of another machine \(versions\)"):
        run()


def test_a_run_goes_on_whatever_cores_it_is_kept_to(tmp_path, monkeypatch):
    cores = {0, 1}
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(cores))
    monkeypatch.setattr("os.sched_setaffinity", lambda _, wanted: (cores.clear(), cores.update(wanted)))
    pieces = []

    def measure(run):
        for piece in run.pieces({"a": 1}):
            run.keep(piece, [{}])
            pieces.append(piece)

    experiment = fig4a.EXPERIMENT._replace(measure=measure)
    for _ in range(2):
        runner.measure(experiment, SETTINGS["paper"], TINY, tmp_path, 1)
    assert pieces == ["a"]


def test_profiles_have_the_paper_s_sizes_or_a_share_of_them():
    assert (FULL.sizes[0], FULL.sizes[-1], len(FULL.sizes)) == (500_000, 2_600_000, 8)
    assert (FULL.middle, FULL.threshold, FULL.rounds) == (1_500_000, 300_000, (1, 4, 16, 64))
    assert (MEDIUM.sizes[0], MEDIUM.threshold, CI.sizes[-1], CI.threshold) == (50_000, 30_000, 26_000, 3000)


def test_a_long_run_says_how_long_it_takes(tmp_path):
    revision = machine.describe()["revision"]
    parts = [report.Part(name, "paper", FULL, tmp_path, revision) for name in ("times", "fig4a")]
    total = report.span(sum(part.seconds for part in parts))
    assert report.summary(parts).startswith(f"2 parts, about {total} in all, {total} left.")
    run = runner.Run("times", SETTINGS["paper"], TINY, 1, parts[0].path)
    for piece in run.pieces({"a": 3, "b": 1}):
        run.keep(piece, [{}])
        break
    assert parts[0].left == pytest.approx(0.25 * parts[0].seconds)
    assert report.Part("times", "paper", FULL, tmp_path, "another").left == parts[0].seconds  # begins anew
    assert [report.span(seconds) for seconds in (0, 20, 600, 8400)] == [
        "nothing", "less than a minute", "10 min", "2 h 20 min"
    ]  # fmt: skip
    known = {(name, setting) for name, own in report.FULL.items() for setting in own}
    assert known == {(name, s) for name in report.FULL for s in report.settings(name)}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with small results, without pictures."""
    folder = tmp_path_factory.mktemp("measured")
    for name in ("fig4a", "fig4b", "fig4c", "fig4d"):
        for setting in ("paper", "modern"):
            runner.measure(report.experiment(name), SETTINGS[setting], TINY, folder, 1)
    return folder


SAVE = Figure.savefig


def save(figure, path, dpi, drawn):
    """Save a picture that has the suffix `drawn`; of another one, a file without content."""
    if path.suffix == drawn:
        SAVE(figure, path, dpi=dpi)
    else:
        path.touch()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        pytest.param(
            name, setting, marks=[] if name in QUICK and at % len(settings) == place else pytest.mark.long
        )
        for at, (name, settings) in enumerate(RUN.items())
        for place, setting in enumerate(settings)
    ],
)
def test_every_experiment_runs_is_drawn_and_continued(name, setting, measured, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(runner.PROFILES, "ci", TINY)
    monkeypatch.setattr(Figure, "savefig", partialmethod(save, drawn=".svg" if name == "fig4a" else ".png"))
    if name != "times" and (times_of := measured / f"times-{setting}.json").exists():
        shutil.copy(times_of, tmp_path)  # which all experiments would measure again
    arguments = [name, "--setting", setting, "--out", str(tmp_path)]
    assert experiments.main(arguments) == 0
    shown = capsys.readouterr().out
    assert report.experiment(name).title in shown
    assert {path.suffix for path in tmp_path.glob(f"{name}-*")} == {".json", ".png", ".svg"}
    assert gc.get_freeze_count() == 0
    kept = (tmp_path / f"{name}-{setting}.json").read_text()
    monkeypatch.setattr(runner.Run, "keep", None)  # nothing is left to do
    monkeypatch.setattr(runner, "picture", lambda *_: None)  # the same pictures again, which take long
    assert experiments.main(arguments) == 0
    assert capsys.readouterr().out == shown
    report.write(tmp_path, tmp_path / "page")
    details = (tmp_path / "page" / page.DETAILS).read_text()
    for claim in report.experiment(name).claims(json.loads(kept)["rows"]):
        assert claim.units.ours in details
        assert claim.time.ours in details


@pytest.fixture(scope="module")
def pages(measured):
    """The two pages of these results."""
    found = report.results(measured)
    return page.first_page(found, "paper", READING.read_text()), page.details(found, "paper")


@pytest.mark.slow
def test_the_first_page_is_one_page(pages):
    first, _ = pages
    # The machine's noise may make what is said of times longer.
    lines = [line for line in first.splitlines() if not line.startswith("    - Time:")]
    words = [word for line in lines for word in line.split() if any(sign.isalnum() for sign in word)]
    assert len(words) <= 780  # the full results have more settings, and more digits
    for name, claim in page.TEN[:-1] + page.ASKED:  # counting was not measured
        assert f"1. {claim[0].upper()}{claim[1:]}: [{name}](paper/{name}-paper.png)." in first


@pytest.mark.slow
def test_the_first_page_has_a_slot_for_generators(measured, monkeypatch):
    monkeypatch.setattr(page, "brief", lambda rows: "a table of generators")
    found = report.results(measured)
    made = found[0].experiment._replace(name="generators")
    page_with = page.first_page([*found, found[0]._replace(experiment=made)], "paper", "")
    assert '## What "12-d" is\n\n```text\na table of generators\n```' in page_with


@pytest.mark.parametrize("setting", ["paper", "modern"])
@pytest.mark.slow
def test_intervals_of_results_are_possible(measured, setting):
    rows = json.loads((measured / f"fig4b-{setting}.json").read_text())["rows"]
    found = [timing.compared(row, which) for row in fig4b.of(rows, "seconds") for which in ("judged", "best")]
    intervals = [row[key] for row in found for key in ("gain", "order", "fifo", "longest", "share", "own")]
    assert intervals
    for value, low, high in intervals:
        assert low <= value <= high
    assert all(high < 1 for row in found for _, _, high in (row["gain"], row["longest"]))
    assert all(low >= 0 and high <= 1 for row in found for _, low, high in [row["share"]])


@pytest.mark.slow
def test_best_plans_are_drawn_in_three_orders(measured):
    for name in ("times", "fig4b", "fig4c"):
        rows = json.loads((measured / f"{name}-paper.json").read_text())["rows"]
        figure = report.experiment(name).draw(rows, "title")
        labels = " ".join(str(line.get_label()) for axes in figure.axes for line in axes.get_lines())
        assert "arrival order" in labels, name
        assert "longest first" in labels, name


@pytest.mark.parametrize("name", ["evaluation.md", "details.md"])
def test_tables_fit_100_columns(name):
    """Of the kept pages: how wide a table of a short run is depends on how much its times scatter."""
    text = (REPORT / name).read_text()
    tables = [block.partition("```")[0] for block in text.split("```text\n")[1:]]
    assert tables
    wide = [line for block in tables for line in block.splitlines() if len(line) > 100]
    assert wide == []


@pytest.mark.slow
def test_all_numbers_of_the_pages_come_from_the_rows(pages):
    assert not re.search(r"\d %(?! intervals)", READING.read_text())
    assert "in the paper's own unit" not in "".join(pages)


def test_ten_claims_are_claims():
    row = {"workload": "wide", "subscriptions": 9}
    timed = [row | {"kind": "time", "peer": peer, "batch": batch, "us": 1.0}
             for peer in counting.PEERS for batch in counting.BATCHES]  # fmt: skip
    counted = counting.claims([row | {"kind": "counts"}, *timed])
    assert {claim for name, claim in page.TEN if name == "counting"} <= {each.claim for each in counted}
    assert len(page.TEN) == 10


@pytest.mark.parametrize("name", ["times", "fig4a", "fig4c"])
@pytest.mark.slow
def test_figures_by_level_mark_the_paper_s_range(measured, name):
    rows = json.loads((measured / f"{name}-paper.json").read_text())["rows"]
    figure = report.experiment(name).draw(rows, "title")
    marked = [axes for axes in figure.axes if any(text.get_text() == plans.OUTSIDE for text in axes.texts)]
    assert marked
    for axes in marked:
        ticks = axes.get_xticks() if axes.get_xlabel() == "level" else axes.get_yticks()
        assert all(float(tick).is_integer() for tick in ticks)


OTHER = Experiment(
    "other",
    "another paper's figure",
    lambda run: [run.keep(piece, [{"count": run.sizes["many"]}]) for piece in run.pieces({"all": 1})],
    lambda rows: f"count {rows[0]['count']}",
    lambda rows: [Claim("a|b", "3", Finding(f"{rows[0]['count']}", "holds"), NOT_TIMED)],
    lambda rows, title: Figure(),
    {"own": Setting("own", "own subscriptions")},
    {"ci": {"many": 7}, "medium": {"many": 8}},
)


@pytest.fixture
def other(monkeypatch):
    """Another paper with one experiment, which has its own settings and sizes."""
    module = ModuleType("experiments.other")
    module.EXPERIMENT, module.SETTING_NAMES = OTHER, ("own",)
    module.main = partial(runner.main, OTHER, ("own",))
    monkeypatch.setitem(sys.modules, "experiments.other", module)
    paper = Paper("Another paper", "other.md", "What it measured.", {"other": "other"})
    monkeypatch.setitem(report.PAPERS, "other", paper)
    monkeypatch.setitem(report.MODULES, "other", "other")
    monkeypatch.setitem(experiments.EXPERIMENTS, "other", experiments.Experiment("other", "another"))


def test_another_paper_has_a_page_of_its_own(other, tmp_path, capsys):
    assert experiments.main(["all", "--paper", "other", "--out", str(tmp_path)]) == 0
    assert f"page {tmp_path / 'other.md'}" in capsys.readouterr().out
    assert not (tmp_path / WANG.page).exists()
    text = (tmp_path / "other.md").read_text()
    assert text.startswith("# Another paper\n\nWhat it measured.\n")
    assert "`python -m experiments other --setting own --profile ci` (own subscriptions; revision " in text
    assert r"| a\|b | 3 | **holds**: 7 | not timed |" in text
    assert "](./other-own.png)" in text
    assert "```text\ncount 7\n```" in text


def test_a_result_of_other_sizes_is_not_continued(other, tmp_path, capsys):
    assert experiments.main(["other", "--out", str(tmp_path)]) == 0
    with pytest.raises(SystemExit):
        experiments.main(["other", "--profile", "medium", "--out", str(tmp_path)])
    assert "is of another settings (profile)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["bittner", "mohapatra", "xue"])
def test_the_page_of_a_paper_begins_with_what_it_is_worth(name):
    told = report.PAPERS[name].introduction
    rebuilt, changed, limits = re.split(r"\n## .*\n", told)[1:]
    assert re.findall(r"\n## (.*)\n", told) == [
        "What was rebuilt", "What was changed, and why", "What limits the conclusions most"
    ]  # fmt: skip
    assert rebuilt.count("\n- ") >= 3
    assert changed.count("\n- ") >= 3
    assert re.findall(r"^\d\.", limits, re.MULTILINE) == ["1.", "2.", "3."]


def test_every_experiment_of_a_paper_has_a_command():
    for name, module in MODULES.items():
        assert experiments.EXPERIMENTS[name].module == module
        assert experiments.EXPERIMENTS[name].goes_on
        assert set(report.settings(name)) <= report.experiment(name).settings.keys()


def test_a_setting_that_no_chosen_paper_has_is_refused(other, tmp_path, capsys):
    with pytest.raises(SystemExit):
        experiments.main(["all", "--paper", "other", "--setting", "paper", "--out", str(tmp_path)])
    assert "--setting paper is none of --paper other" in capsys.readouterr().err


def test_a_page_needs_results(tmp_path, capsys):
    with pytest.raises(SystemExit):
        experiments.main(["report", str(tmp_path)])
    assert "holds no results: python -m experiments all" in capsys.readouterr().err
    (tmp_path / "fig4a-paper.json").write_text('{"rows": ')
    with pytest.raises(SystemExit):
        experiments.main(["report", str(tmp_path)])
    assert "is no result of an experiment" in capsys.readouterr().err
    own = runner.Run("fig4a", SETTINGS["paper"], TINY, 1, tmp_path / "again" / "fig4a-paper.json")
    for piece in own.pieces({"a": 1, "b": 1}):
        own.keep(piece, [{}])
        break
    with pytest.raises(SystemExit):
        experiments.main(["report", str(tmp_path / "again")])
    assert (
        "is not complete: go on with python -m experiments fig4a --setting paper" in capsys.readouterr().err
    )


def test_arguments_are_checked_before_anything_is_measured(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        experiments.main(["fig4a", "--out", str(tmp_path / "file")])
    assert "is no folder to write to" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        experiments.main(["fig4a", "--seed", "-1"])
    assert "argument --seed: must be 0 or more, not -1" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long
def test_the_paper_s_claims_hold_in_work_units_on_small_indexes():
    setting = SETTINGS["paper"]
    index = growing(setting, 1)
    rows = []
    for size in CI.sizes:
        index.grow(size)
        for batch in (8, 64):
            points = index.points(0, CI.batches * batch).reshape(CI.batches, batch, -1)
            row = fig4a.summary(batch, work(setting, index.levels(), points))
            rows.append({"kind": "visits", "size": size, **row})
    assert verdicts(fig4a.claims(rows)) == ["holds", "observed", "partly"]
    rows = []
    for batch in (2, 8, 32, 128, 256):
        points = index.points(0, CI.batches * batch).reshape(CI.batches, batch, -1)
        row = fig4b.in_units(work(setting, index.levels(), points), batch)
        rows.append({"kind": "visits", "batch": batch, **row})
    assert verdicts(fig4b.claims(rows))[:4] == ["partly", "holds", "fails", "holds"]
    assert 0.3 < rows[-1]["judged"]["gain"].value < 0.45
    points = index.points(0, 400 * 64).reshape(400, 64, -1)
    found = work(setting, index.levels(), points)
    names = [label(plan, 64) for plan in found.plans]
    merged = fig4c.claims(fig4c.drawn_curves("visits", names, found.response, (1, 4, 16, 64), 10, 1))
    assert [verdicts(merged)[k] for k in (0, 2)] == ["holds"] * 2  # a few levels are seldom ragged
    episode = fig4d.episode(WangController(rounds=64), found, cycle(range(400)), 64)
    regret_of = found.response[episode.batches, episode.plans].mean() / found.response.min(axis=1).mean() - 1
    assert regret_of < 0.1


def test_what_wins_where_is_told():
    def time(peer, batch, us) -> Row:
        return {
            "kind": "time",
            "workload": "wide",
            "subscriptions": 9,
            "peer": peer,
            "batch": batch,
            "us": us,
        }

    others = [peer for peer in counting.PEERS if peer != "counting"]
    counts = dict.fromkeys(("increments", "visits", "paper_visits", "matches"), 1)
    rows: list[Row] = [
        {"kind": "counts", "workload": "wide", "subscriptions": 9, **counts},
        *(time(peer, batch, 10.0) for peer in others for batch in counting.BATCHES),
        time("counting", 1, 40.0),
        time("counting", 1000, 5.0),
    ]
    claims = counting.claims(rows)
    assert [claim.time.verdict for claim in claims] == ["partly", "fails", "observed"] * 2
    assert claims[0].time.ours == ("0.5 to 4 times, 9 subscriptions; batch 1: wide 4; batch 1000: wide 0.5")
    assert claims[2].time.ours == "wide 9, batch 1000: counting 2 times"


def test_filters_hold_what_was_grown():
    index = GrowingFilter(SETTINGS["weather"], 1)
    index.grow(300)
    assert isinstance(index.filter, EventFilter)
    assert index.filter.match_batch(index.events(0, 200)).counts.sum() > 0
