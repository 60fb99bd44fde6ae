"""adaptive.costs: the formula of a batch, and its fit from the parts of reports."""

import numpy as np
import pytest

from cases import cases
from rtfilter.adaptive import Plan, Report
from rtfilter.adaptive.cost_model import CostModel, Line


def batch(plan, size, estimate, group, event, whole=0.0):
    """What a machine with these costs reports."""
    if plan.group is None or plan.group >= size:
        took = whole + event * size
        return Report(took, size, elapsed=took)
    sizes = np.diff([*range(0, size, plan.group), size])
    ends = estimate[0] + estimate[1] * size + np.cumsum(group + event * sizes)
    mean = float((ends * sizes).sum() / size)
    spent = estimate[0] + estimate[1] * size
    return Report(mean, size, elapsed=float(ends[-1]), estimation=spent, groups=len(sizes))


COSTS = {"estimate": (3e-5, 4e-7), "group": 2e-5, "event": 5e-6, "whole": 1e-5}


@pytest.fixture(scope="module")
def model():
    """Fitted to batches of other sizes and plans than those that are asked for."""
    model = CostModel()
    for _ in range(200):
        for size in (32, 128, 512, 2048):
            for plan in (Plan(0, None), Plan(0, 4), Plan(1, 16), Plan(1, 256)):
                if (plan.group or 0) < size:
                    model.fit(plan, batch(plan, size, **COSTS))
    return model


@pytest.mark.slow
@cases("plan", [Plan(0, None), Plan(1, 1), Plan(1, 16), Plan(2, 64)])
@cases("size", [64, 256, 1024])
def test_a_fitted_model_says_what_a_batch_takes(model, plan, size):
    real = batch(plan, size, **COSTS).mean_response
    assert model.response(plan, size) == pytest.approx(real, rel=0.03)


def test_a_group_as_large_as_the_batch_is_the_whole_batch():
    model = CostModel()
    assert model.response(Plan(1, 64), 64) == model.response(Plan(0, None), 64)


def test_reports_without_their_parts_teach_nothing():
    model = CostModel()
    before = model.state()
    model.fit(Plan(1, 16), Report(5.0, 64))
    model.fit(Plan(1, 16), Report(5.0, 64, unfinished=3, elapsed=6.0, estimation=1.0))
    assert model.state() == before


def test_a_line_follows_points_that_change():
    line = Line(1.0, 1.0)
    rng = np.random.default_rng(1)
    for x in rng.integers(1, 1000, 2000).tolist():
        line.add(x, 50.0 + 0.5 * x)
    assert (line.constant, line.slope) == pytest.approx((50.0, 0.5), rel=0.05)


def test_a_line_follows_a_machine_that_gets_a_thousand_times_slower():
    line = Line(2e-6, 1e-6)
    rng = np.random.default_rng(1)
    for factor in (1, 1000):
        for x in rng.integers(1, 1000, 3000).tolist():
            line.add(x, factor * (3e-6 + 1e-6 * x))
    assert line.slope == pytest.approx(1e-3, rel=0.2)


def test_a_line_never_falls_below_nothing():
    line = Line(1.0, 1.0)
    for x, y in [(1, 1000.0), (1000, 1.0)] * 500:
        line.add(x, y)
    assert line.constant >= 0
    assert line.slope >= 0
