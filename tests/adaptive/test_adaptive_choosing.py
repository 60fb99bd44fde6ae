"""adaptive.choosing: what the default controller chooses, on costs that the tests make up."""

import math
from collections import Counter

import numpy as np
import pytest

from cases import cases
from rtfilter.adaptive import CostController, Plan, Report, Shape, replay
from rtfilter.adaptive.learner import Learner

SHAPE = Shape(height=3, boxes=10_000)


def valley(level, group, steep=0.3):
    """Costs by plan: the best is at a level and a group; the whole batch is as bad as any."""

    def cost(plan):
        if plan.group is None:
            return math.exp(steep * 3)
        return math.exp(steep * (abs(plan.level - level) + abs(math.log(plan.group / group, 4))))

    return cost


def grows(cost):
    """As `cost` for 64 events; of n events proportional to n + g, as where groups take equal time."""

    def response(plan, size):
        group = size if plan.group is None else min(plan.group, size)
        return cost(plan) * (size + group) / (64 + min(group, 64))

    return response


def run(controller, response, batches, size=64, shape=SHAPE, noise=0.05, seed=1):
    """Plans of so many batches."""
    rng = np.random.default_rng(seed)
    used = []
    for turn in range(batches):
        n = size if isinstance(size, int) else size[turn % len(size)]
        ticket = controller.plan(n, shape)
        value = response(ticket.plan, n) * math.exp(noise * rng.standard_normal())
        controller.report(ticket, Report(value, n))
        used.append(ticket.plan)
    return used


def regret(used, cost, best):
    return np.mean([cost(plan) for plan in used]) / cost(best) - 1


def tries(controller, label=64):
    return controller.snapshot()["classes"][str(label)]["tries"]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("group", [4, 16])
def test_it_finds_the_best_plan_within_60_batches_and_stays(level, group):
    cost, best = valley(level, group), Plan(level, group)
    controller = CostController()
    run(controller, lambda plan, n: cost(plan), 60)
    later = run(controller, lambda plan, n: cost(plan), 500, seed=2)
    assert regret(later, cost, best) < 0.02
    assert Counter(later)[best] > 450


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_wrong_start_is_left_within_600_batches(level):
    """The model expects groups of 1 to cost three times as much as the best plan; here they are the best.

    Whoever is nearly certain tries seldom: the longer it has been calm, the more unlikely plans are tried.
    """
    cost, best = valley(level, 1), Plan(level, 1)
    controller = CostController()
    early = run(controller, lambda plan, n: cost(plan), 600)
    later = run(controller, lambda plan, n: cost(plan), 300, seed=2)
    assert regret(early[60:], cost, best) < 0.4
    assert regret(later, cost, best) < 0.02


def test_where_it_is_certain_it_tries_nothing():
    cost = valley(1, 4, steep=1.0)
    controller = CostController()
    run(controller, lambda plan, n: cost(plan), 100)
    before = tries(controller)
    run(controller, lambda plan, n: cost(plan), 500, seed=2)
    assert tries(controller) - before < 15


@pytest.mark.slow
@cases("factor", [0.1, 3.0, 10.0, 100.0])
@cases("best", [Plan(0, 16), Plan(2, 1), Plan(2, 4)])
def test_an_odd_first_batch_is_forgotten(factor, best):
    cost = valley(best.level, best.group)
    for seed in range(3):
        controller = CostController(seed=seed)
        ticket = controller.plan(64, SHAPE)
        controller.report(ticket, Report(factor * cost(ticket.plan), 64))
        run(controller, lambda plan, n: cost(plan), 600, seed=seed)
        assert regret(run(controller, lambda plan, n: cost(plan), 100, seed=9), cost, best) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "most"),
    [pytest.param(0.5, 1, marks=pytest.mark.long), (0.7, 3), pytest.param(1.0, 3, marks=pytest.mark.long)],
)
def test_strong_noise_does_not_settle_it_on_a_plan_that_takes_twice_as_long(noise, most):
    costs, wrong = {None: 1.5, 4: 2.6, 1: 3.0}, 0
    for seed in range(60):
        controller, rng, used = CostController(), np.random.default_rng(seed), []
        for _ in range(240):
            ticket = controller.plan(16, Shape(2, 20_000))
            used.append(ticket.plan.group)
            cost = costs[ticket.plan.group]
            value = cost * math.exp(noise * rng.standard_normal())
            grouped = {"estimation": 0.3 * cost, "groups": 16 // ticket.plan.group} if used[-1] else {}
            controller.report(ticket, Report(value, 16, elapsed=1.5 * value, **grouped))
            controller.on_update(100)
        wrong += used[-40:].count(None) < 20
    assert wrong <= most


def test_a_plan_that_becomes_better_unseen_is_found():
    """The responses of the plan that runs stay what they were."""
    cost, better = valley(2, 4), Plan(0, 16)
    controller = CostController()
    run(controller, lambda plan, n: cost(plan), 2000)

    def now(plan):
        return 0.5 if plan == better else cost(plan)

    run(controller, lambda plan, n: now(plan), 256 * 14)
    assert regret(run(controller, lambda plan, n: now(plan), 200, seed=2), now, better) < 0.05


# Batches that do not report


def test_a_plan_that_is_given_up_gets_next_to_nothing():
    """A consumer gives up after a deadline; only the plans at level 1 meet it."""
    controller, used = CostController(), []
    for _ in range(600):
        ticket = controller.plan(64, SHAPE)
        response = 2.0 if ticket.plan.level == 1 else 20.0
        late = response > 5
        controller.report(ticket, Report(5.0 if late else response, 64, unfinished=60 if late else 0))
        used.append(ticket.plan)
    assert Counter(plan.level == 1 for plan in used[100:])[False] < 25


def test_a_plan_that_never_reports_is_left_and_the_others_go_on():
    cost = valley(2, 16)
    controller, used = CostController(), []
    for turn in range(800):
        ticket = controller.plan(64, SHAPE)
        used.append(ticket.plan)
        if ticket.plan.level != 2:
            noise = 1 + 0.01 * (turn % 3)
            controller.report(ticket, Report(cost(ticket.plan) * noise, 64))
    counts = Counter(plan.level for plan in used[-500:])
    assert counts[2] < 50
    assert counts[1] > 400


def test_nobody_ever_reports():
    controller = CostController()
    used = [controller.plan(64, SHAPE).plan for _ in range(1000)]
    assert len(set(used)) > 1
    assert controller.snapshot()["lost_batches"] == 1000 - 256


def test_a_consumer_that_reads_10_of_64_does_not_keep_it_trying():
    cost = valley(1, 16)
    controller = CostController()

    def batches(count):
        for turn in range(count):
            ticket = controller.plan(64, SHAPE)
            whole = cost(ticket.plan) * (1 + 0.02 * (turn % 5))
            done = min(-(-10 // (ticket.plan.group or 64)) * (ticket.plan.group or 64), 64)
            elapsed = whole * 2 * done / (64 + (ticket.plan.group or 64))
            bound = elapsed * (1 - done / 128)
            controller.report(ticket, Report(bound, 64, unfinished=64 - done, elapsed=elapsed))

    batches(200)
    before = tries(controller)
    batches(400)
    assert tries(controller) - before < 40


def test_a_plan_that_finishes_nothing_is_no_good():
    """A deadline that the whole batch never meets, while groups finish some of their events."""
    controller, used = CostController(), []
    for _ in range(600):
        ticket = controller.plan(64, SHAPE)
        used.append(ticket.plan)
        if ticket.plan.group is None:
            controller.report(ticket, Report(1.0, 64, unfinished=64, elapsed=1.0, groups=0))
        else:
            controller.report(ticket, Report(0.9, 64, unfinished=40, elapsed=1.0))
    assert used[-300:].count(Plan(0, None)) < 15


@pytest.mark.slow
@pytest.mark.parametrize("together", [300, 1000])
def test_as_many_batches_may_be_under_way_as_they_like(together):
    cost, best = valley(2, 4), Plan(2, 4)
    controller, open_tickets, used = CostController(), [], []
    rng = np.random.default_rng(1)
    for _ in range(12 * together):
        open_tickets.append(controller.plan(64, SHAPE))
        used.append(open_tickets[-1].plan)
        if len(open_tickets) > together:
            done = open_tickets.pop(0)
            controller.report(done, Report(cost(done.plan) * math.exp(0.05 * rng.standard_normal()), 64))
    assert regret(used[-2 * together :], cost, best) < 0.1


def test_reports_of_another_controller_teach_nothing():
    one, other = CostController(), CostController()
    for _ in range(50):
        foreign = other.plan(500, SHAPE)
    own = [one.plan(64, SHAPE) for _ in range(50)][-1]
    assert foreign.serial == own.serial
    before = one.snapshot()["classes"]
    one.report(foreign, Report(1.0, 500))
    assert (one.snapshot()["classes"], one.snapshot()["stale_reports"]) == (before, 1)


@pytest.mark.parametrize(
    "report", [Report(0.0, 64, elapsed=1e-3), Report(1e-200, 64, elapsed=1e-200), Report(0.0, 64)]
)
def test_responses_of_next_to_nothing_are_taken(report):
    controller = CostController()
    for _ in range(50):
        controller.report(controller.plan(64, SHAPE), report)
    assert (
        regret(run(controller, lambda plan, n: valley(2, 4)(plan), 600)[-100:], valley(2, 4), Plan(2, 4))
        < 0.1
    )


# Sizes


@pytest.mark.parametrize("order", [(96, 127, 64), (127, 64, 96), (64, 96, 127), (64, 127), (65, 66, 127, 64)])
def test_sizes_in_turn_do_not_alias_with_what_it_tries(order):
    cost, best = valley(1, 16, steep=0.15), Plan(1, 16)
    controller = CostController()
    run(controller, grows(cost), 150, size=order, noise=0.0)
    later = run(controller, grows(cost), 400, size=order, noise=0.0)
    assert regret(later, cost, best) < 0.02


def test_classes_of_sizes_learn_for_themselves_and_begin_with_what_their_neighbour_knows():
    """What it loses in the first ten batches, against one that knows nothing."""
    cost, best = valley(2, 4, steep=0.5), Plan(2, 4)
    lost, lost_anew = [], []
    for seed in range(5):
        controller = CostController(seed=seed)
        run(controller, grows(cost), 200, size=128)
        lost.append(regret(run(controller, grows(cost), 10, size=256), cost, best))
        assert set(controller.snapshot()["classes"]) == {"128", "256"}
        lost_anew.append(regret(run(CostController(seed=seed), grows(cost), 10, size=256), cost, best))
    assert np.mean(lost) < 0.1 * np.mean(lost_anew)


def test_plans_are_judged_by_batches_as_large_as_those_that_come():
    """The best plan for 1000 events is not the best for 512, with which their class begins."""
    cost = {None: 1.37, 1: 1.63, 4: 1.34, 16: 1.15, 64: 1.15, 256: 1.0}
    lost = []
    for seed in range(10):
        controller, rng = CostController(seed=seed), np.random.default_rng(seed)
        for turn in range(130):
            plan = (ticket := controller.plan(1000, Shape(2, 10**6))).plan
            value = cost[plan.group] * (1.0 if plan.level else 1.08) * math.exp(0.05 * rng.standard_normal())
            groups = {"groups": -(-1000 // plan.group), "estimation": 0.02 * value} if plan.group else {}
            controller.report(ticket, Report(value, 1000, elapsed=1.7 * value, **groups))
            if turn >= 90:
                lost.append(cost[plan.group] - 1)
    assert np.mean(lost) < 0.02


# Doubt


def settled(**options):
    controller = CostController(**options)
    run(controller, lambda plan, n: valley(1, 4)(plan), 600)
    return controller


def test_a_height_that_flips_every_100_batches_settles_at_both():
    controller = CostController()
    for turn in range(20):
        cost = valley(1, 4) if turn % 2 else valley(2, 16)
        used = run(controller, lambda plan, n, cost=cost: cost(plan), 100, shape=Shape(3 + turn % 2, 10_000))
        if turn >= 2:
            assert regret(used, cost, Plan(1, 4) if turn % 2 else Plan(2, 16)) < 0.03


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda c: run(c, lambda plan, n: valley(1, 4)(plan), 100, shape=Shape(3, 10_000, 1)), id="packed"
        ),
        pytest.param(
            lambda c: [
                (c.on_update(10_000), run(c, lambda plan, n: valley(1, 4)(plan), 10)) for _ in range(10)
            ],
            id="updated",
        ),
    ],
)
def test_it_tries_again_when_the_index_has_changed(change):
    controller, unchanged = settled(), settled()
    before = tries(controller)
    change(controller)
    run(unchanged, lambda plan, n: valley(1, 4)(plan), 100)
    assert tries(controller) - before > tries(unchanged) - before + 1


def test_updates_count_as_a_share_of_the_index():
    few, many = settled(), settled()
    many.on_update(10_000)
    few.on_update(10)
    known = [c._classes[64, 3].doubt for c in (few, many)]
    assert known[1] == pytest.approx(1000 * known[0])


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0])
def test_an_index_that_was_packed_anew_may_be_another_one(factor):
    moved = valley(2, 16)
    for seed in range(4):
        controller = settled(seed=seed)
        shape = Shape(3, 10_000, 1)
        run(controller, lambda plan, n: factor * moved(plan), 300, shape=shape, seed=seed)
        used = run(controller, lambda plan, n: factor * moved(plan), 100, shape=shape, seed=9)
        assert regret(used, moved, Plan(2, 16)) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
def test_an_index_that_always_changes_and_costs_the_same_is_not_doubted_for_ever(share):
    cost, controller, used = valley(1, 4), CostController(), []
    for turn in range(1500):
        controller.on_update(int(share * 10_000))
        used += run(controller, lambda plan, n: cost(plan), 1, seed=turn)
    assert regret(used[500:], cost, Plan(1, 4)) < 0.04


def test_updates_of_an_index_of_unknown_size_are_no_reason_to_doubt():
    controller = CostController()
    run(controller, lambda plan, n: valley(1, 4)(plan), 100, shape=Shape(3))
    before = tries(controller)
    for turn in range(500):
        controller.on_update(1000)
        run(controller, lambda plan, n: valley(1, 4)(plan), 1, shape=Shape(3), seed=turn)
    assert tries(controller) - before < 30


@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_when_the_best_plan_moves_it_follows_within_80_batches(slower):
    """Nothing tells it but the responses."""
    controller = settled()
    moved = valley(2, 16)
    run(controller, lambda plan, n: slower * moved(plan), 80, seed=3)
    used = run(controller, lambda plan, n: slower * moved(plan), 200, seed=4)
    assert regret(used, moved, Plan(2, 16)) < 0.05


def test_a_machine_that_gets_slower_as_a_whole_costs_few_tries():
    controller = settled()
    before = tries(controller)
    for turn in range(10):
        pace = 2.0 if turn % 2 else 1.0
        used = run(controller, lambda plan, n, pace=pace: pace * valley(1, 4)(plan), 50, seed=turn)
        assert Counter(used)[Plan(1, 4)] > 40
    assert tries(controller) - before < 60


def test_it_scales_with_the_unit_of_time():
    def seen(unit):
        return run(CostController(), lambda plan, n: unit * valley(2, 4)(plan), 300)

    assert seen(1.0)[30:] == seen(1e-6)[30:]


# Batches at the same time


def test_a_plan_that_is_being_tried_is_not_tried_by_another_batch_meanwhile():
    controller = CostController()
    run(controller, lambda plan, n: valley(1, 4)(plan), 5)
    tickets = [controller.plan(64, SHAPE) for _ in range(30)]
    tried = Counter(ticket.plan for ticket in tickets if ticket.episode)
    assert max(tried.values(), default=1) == 1


def test_a_plan_whose_batch_was_dropped_is_tried_again_at_once():
    def next_try(controller):
        while not (ticket := controller.plan(64, SHAPE)).episode:
            controller.report(ticket, Report(1.0, 64))
        return ticket

    controller, other = CostController(), CostController()
    tried = next_try(controller)
    assert next_try(other).plan == tried.plan
    controller.drop(tried)
    assert next_try(controller).plan == tried.plan
    assert next_try(other).plan != tried.plan


def test_reports_out_of_order_teach_the_same():
    cost = valley(2, 16)
    controller, open_tickets, used = CostController(), [], []
    rng = np.random.default_rng(5)
    for _ in range(600):
        ticket = controller.plan(64, SHAPE)
        used.append(ticket.plan)
        open_tickets.append(ticket)
        if len(open_tickets) > 20:
            done = open_tickets.pop(int(rng.integers(len(open_tickets))))
            controller.report(done, Report(cost(done.plan) * math.exp(0.05 * rng.standard_normal()), 64))
    assert regret(used[200:], cost, Plan(2, 16)) < 0.03


def test_it_decides_when_it_is_told_and_not_when_a_batch_waits(monkeypatch):
    decide, asked, told = Learner.decide, [0], [0]
    counted = asked

    def counting(self, horizon):
        counted[0] += 1
        return decide(self, horizon)

    monkeypatch.setattr(Learner, "decide", counting)
    controller, cost = CostController(), valley(1, 16)
    for _ in range(300):
        counted = asked
        ticket = controller.plan(64, SHAPE)
        counted = told
        controller.report(ticket, Report(cost(ticket.plan), 64))
    assert asked == [1]  # of the first batch, before anything was told
    assert told[0] > 10


def test_a_report_counts_once():
    controller = CostController()
    ticket = controller.plan(64, SHAPE)
    controller.report(ticket, Report(1.0, 64))
    controller.report(ticket, Report(1.0, 64))
    assert controller.snapshot()["stale_reports"] == 1


def test_a_decision_for_another_plan_is_in_the_log_and_replays():
    log = []
    controller = CostController(log=log.append)
    run(controller, grows(valley(2, 1)), 100, size=(64, 200))
    assert any(entry["kind"] == "decision" for entry in log)
    again = CostController()
    replay(log, again)
    assert again.snapshot() == controller.snapshot()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon is a number of batches above 0"),
        ({"horizon": float("nan")}, "horizon is a number of batches above 0"),
        ({"groups": (4, 1)}, "strictly increasing sizes"),
        ({"groups": (0, 1)}, "strictly increasing sizes"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        CostController(**options)
