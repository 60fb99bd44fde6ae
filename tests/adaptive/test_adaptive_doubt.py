"""adaptive.doubt: what ends a settled phase."""

import numpy as np
import pytest

from rtfilter.adaptive import LevelController, PlanController, Report, Shape, exact
from rtfilter.adaptive.papers.doubt import Doubt, SettledDrift
from rtfilter.adaptive.papers.stopping import Rule

BOXES = Shape(height=5, boxes=1000)
tuning = pytest.mark.parametrize("kind", [LevelController, PlanController])


def valley(best):
    return lambda plan: 1.0 + 0.5 * abs(plan.level - best)


def run(controller, cost, batches=10_000):
    """Batches until its mode changes, or None if it does not; each batch takes `cost(plan)`."""
    mode = None
    for batch in range(batches):
        ticket = controller.plan(64, BOXES)
        if mode is None:
            mode = ticket.episode > 0
        if (ticket.episode > 0) != mode:
            return batch
        controller.report(ticket, Report(cost(ticket.plan), 64))
    return None


def settled(kind, best=3, **options):
    controller = kind(**{"rounds": 16} | options)
    assert run(controller, valley(best)) is not None
    assert controller.plan(64, BOXES).plan.level == best
    return controller


# Through a controller


@tuning
def test_a_quarter_of_the_boxes_is_enough_to_doubt(kind):
    controller = settled(kind)
    controller.on_update(249)
    assert controller.plan(64, BOXES).episode == 0
    controller.on_update(1)
    assert controller.plan(64, BOXES).episode == 2


@tuning
def test_an_index_that_was_built_anew_is_doubted(kind):
    controller = settled(kind)
    assert controller.plan(64, BOXES._replace(packed=1)).episode == 2


@tuning
@pytest.mark.parametrize("factor", [3.0, 0.3])
def test_a_response_that_changes_begins_a_search(kind, factor):
    controller = settled(kind)
    assert run(controller, lambda plan: factor, 20) is not None


@tuning
def test_after_a_drift_it_finds_the_best_level_anew(kind):
    controller = settled(kind, best=3)
    assert run(controller, valley(0), 20) is not None
    run(controller, valley(0))
    assert controller.plan(64, BOXES).plan.level == 0


@tuning
@pytest.mark.parametrize("factor", [1.09, 0.92])
def test_a_response_that_changes_by_less_than_a_tenth_is_no_drift(kind, factor):
    controller = settled(kind)
    assert run(controller, lambda plan: factor, 1000) is None


@tuning
def test_one_pause_of_the_machine_is_no_drift(kind):
    controller = settled(kind)
    controller.report(controller.plan(64, BOXES), Report(1000.0, 64))
    assert run(controller, lambda plan: 1.0, 100) is None


@pytest.mark.slow
def test_noise_is_hardly_ever_drift():
    """50 % log-normal noise, 20 seeds with about 950 settled batches each."""
    sigma, searches = np.log1p(0.25) ** 0.5, 0
    for seed in range(20):
        noise = np.exp(sigma * np.random.default_rng(seed).standard_normal(1000)).tolist()
        controller = LevelController(rounds=16, tolerance=0.5)
        for value in noise:
            ticket = controller.plan(64, BOXES)
            controller.report(ticket, Report(valley(2)(ticket.plan) * value, 64))
        searches += controller.snapshot()["classes"]["64"]["episode"] - 1
    assert searches <= 10  # one in 2,000 batches


def test_the_rule_of_the_paper_doubts_after_exactly_threshold_updates_and_nothing_else():
    controller = settled(
        LevelController, rounds=4, threshold=1000, share=None, drift=False, seed=None, size_class=exact
    )
    controller.on_update(999)
    assert run(controller, lambda plan: 100.0, 100) is None
    assert controller.plan(64, BOXES._replace(packed=3)).episode == 0
    controller.on_update(1)
    asked = []
    for _ in range(12):
        ticket = controller.plan(64, BOXES)
        asked.append(ticket.plan.level)
        controller.report(ticket, Report(valley(3)(ticket.plan), 64))
    assert asked == [3, 2, 4] * 4
    assert controller.plan(64, BOXES).episode == 0


# The cumulative sum


def until_alarm(drift, value, limit=1000):
    return next(batch for batch in range(1, limit) if drift.alarm(value))


@pytest.mark.parametrize("value", [1.3, 1 / 1.3])
def test_the_limit_is_8_times_the_scatter(value):
    # Each batch adds log(1.3) - 0.1 = 0.162, of which 2 x 0.05 count; the limit is 8 x 0.05.
    assert until_alarm(SettledDrift([1.0] * 16), value) == 5
    assert until_alarm(SettledDrift([1.0] * 16, factor=2), value) == 9


def test_changes_below_the_step_add_up():
    # Each batch adds log(1.15) - 0.1 = 0.0398.
    assert until_alarm(SettledDrift([1.0] * 16), 1.15) == 11


def test_a_wide_scatter_allows_more():
    values = [0.5, 2.0] * 32  # the scatter of their logarithms is 0.699
    assert until_alarm(SettledDrift(values), 2.0) == 17  # each adds 0.344, the limit is 5.59


@pytest.mark.parametrize(("spread", "enough"), [(1.01, 16), (3.0, 64)])
def test_too_few_samples_are_completed_by_the_first_settled_ones(spread, enough):
    values = [spread, 1 / spread] * (enough // 2)
    assert until_alarm(SettledDrift(values), 1000.0) == 5
    completed = SettledDrift(values[:2])
    assert not any(completed.alarm(value) for value in values[2:])
    assert until_alarm(completed, 1000.0) == 5


def test_a_lower_bound_shows_only_that_it_is_slower():
    assert not any(SettledDrift([1.0] * 16).alarm(0.01, bound=True) for _ in range(100))
    slower = SettledDrift([1.0] * 16)
    assert [slower.alarm(3.0, bound=True) for _ in range(5)] == [False] * 4 + [True]


def test_a_response_of_zero_tells_nothing():
    assert not any(SettledDrift([0.0, 1.0] * 16).alarm(0.0) for _ in range(100))


# Hysteresis


def alarm_after(doubt):
    return next(batch for batch in range(1, 1000) if doubt.drifted(1.15, bound=False))


def test_alarms_that_are_no_use_become_rarer_until_the_position_moves():
    doubt, ones = Doubt(Rule(), packed=0), [1.0] * 16
    doubt.settle("here", 0, ones)
    after = []
    for _ in range(5):
        after.append(alarm_after(doubt))
        doubt.settle("here", 0, ones)
    assert after == [11, 21, 41, 81, 81]
    doubt.settle("there", 0, ones)
    assert alarm_after(doubt) == 11


def test_a_search_for_another_reason_leaves_the_limit():
    doubt, ones = Doubt(Rule(), packed=0), [1.0] * 16
    for _ in range(3):
        doubt.settle("here", 0, ones)
    assert alarm_after(doubt) == 11
