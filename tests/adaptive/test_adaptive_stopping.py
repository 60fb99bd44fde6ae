"""adaptive.stopping: mean and variance, the sequential test, and what it saves."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr
from scipy.stats import ttest_ind

from cases import cases
from lengths import long_but
from rtfilter.adaptive import EarlyStop, LevelController, Plan, PlanController, Report, Shape
from rtfilter.adaptive.papers.stopping import Samples, lower_tail

numbers = st.lists(st.floats(0, 1e6), min_size=2, max_size=30)


def samples(values):
    result = Samples()
    for value in values:
        result.add(float(value))
    return result


@given(numbers)
def test_samples_are_the_usual_moments(values):
    result = samples(values)
    assert result.count == len(values)
    assert result.mean == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-9)
    variance = statistics.variance(values) / len(values)
    assert result.variance_of_mean == pytest.approx(variance, rel=1e-6, abs=1e-6)


def test_one_sample_has_no_variance():
    assert samples([1.0]).variance_of_mean == float("inf")


@cases("seed", range(20))
@cases("factor", [1.0, 1.1])
def test_sign_is_the_one_sided_welch_test(seed, factor):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(10, 1, rng.integers(3, 20)), rng.normal(9, 3, rng.integers(3, 20))
    difference = a.mean() - factor * b.mean()
    side = "greater" if difference > 0 else "less"
    p = ttest_ind(a, factor * b, equal_var=False, alternative=side).pvalue
    test = EarlyStop()
    assert test.sign(samples(a), samples(b), factor, p * 1.001) == np.sign(difference)
    assert test.sign(samples(a), samples(b), factor, p * 0.999) == 0


def test_without_noise_the_means_decide():
    one, two = samples([1.0, 1.0]), samples([2.0, 2.0])
    test = EarlyStop()
    assert [test.sign(a, b, 1.0, 0.01) for a, b in ((one, two), (two, one), (one, one))] == [-1, 1, 0]


@given(numbers, numbers)
def test_sign_is_antisymmetric(a, b):
    test = EarlyStop()
    assert test.sign(samples(a), samples(b), 1.0, 0.1) == -test.sign(samples(b), samples(a), 1.0, 0.1)


@cases(("rounds", "looks"), [(4, 0), (8, 0), (9, 1), (16, 1), (17, 2), (64, 3), (65, 4)])
def test_looks_double(rounds, looks):
    assert EarlyStop(minimum=8).looks(rounds) == looks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minimum": 1}, "minimum must be at least 2 samples"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 0.5}, "alpha"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        EarlyStop(**options)


@cases("freedom", [0.5, 1, 1.37, 2, 5.5, 30, 1234.5, 1e6])
@cases("t", [-40, -8.5, -3, -1, -1e-3, -1e-9, 0, 1e-3, 2.5, 8])
def test_tails_are_those_of_scipy(freedom, t):
    assert lower_tail(freedom, t) == pytest.approx(float(stdtr(freedom, t)), rel=1e-8)


# The test inside a controller, on simulated response times with 50 % log-normal noise

SIGMA = np.log1p(0.25) ** 0.5


def settle(controller, cost, size, height, seed):
    """(final plan, batches until STABLE, time lost in them as batches at the best plan)."""
    noise = np.exp(SIGMA * np.random.default_rng(seed).standard_normal(10_000) - SIGMA**2 / 2)
    best = min(cost(Plan(level, group)) for level in range(height) for group in (1, 4, 16, 64, None))
    lost = 0.0
    for batch in range(10_000):
        ticket = controller.plan(size, Shape(height))
        if not ticket.episode:
            return ticket.plan, batch, lost
        lost += cost(ticket.plan) / best - 1
        controller.report(ticket, Report(cost(ticket.plan) * noise[batch], size))
    raise AssertionError("does not settle")


several = pytest.mark.parametrize("seeds", long_but([15, 60], [15]))


def compare(kind, cost, size, seeds):
    """Means over seeds, without and with early stop: batches, time lost, regret of the end."""
    best = min(cost(Plan(level, group)) for level in range(7) for group in (1, 4, 16, 64, None))
    for stop in (None, EarlyStop()):
        ends = [
            settle(kind(rounds=64, tolerance=0.0, early_stop=stop), cost, size, 7, s) for s in range(seeds)
        ]
        yield (
            statistics.fmean(batches for _, batches, _ in ends),
            statistics.fmean(lost for _, _, lost in ends),
            statistics.fmean(cost(plan) / best - 1 for plan, _, _ in ends),
        )


def flat(plan):
    """Work by level, as measured at 250,000 boxes with batches of 64."""
    return 1 - (0.00, 0.26, 0.36, 0.39, 0.40, 0.29, -0.18)[plan.level]


def steep(plan):
    return (1.0, 0.7, 0.5, 0.8, 1.3, 2.1, 3.4)[plan.level]


def grouped(plan):
    """256 events: larger groups share more of the traversal, but their events wait longer."""
    group = plan.group or 256
    return (1 + 4 / group) * (256 + group) / 2 * (1 - (1 - flat(plan)) * (1 - group / 256))


@pytest.mark.slow
@several
def test_on_a_steep_valley_it_needs_half_the_batches(seeds):
    (batches, lost, regret), (fewer, less, as_good) = compare(LevelController, steep, 64, seeds)
    assert batches == 2 * 3 * 64
    assert fewer < batches / 2
    assert less < lost / 2
    assert regret == as_good == 0


@pytest.mark.slow
@several
def test_on_a_flat_valley_it_does_not_do_worse(seeds):
    (batches, lost, regret), (fewer, less, as_good) = compare(LevelController, flat, 64, seeds)
    assert fewer < batches
    assert less < lost
    assert as_good < regret + 0.01


@pytest.mark.slow
@several
def test_on_a_lattice_it_leaves_the_bad_groups_early(seeds):
    (batches, lost, regret), (fewer, less, as_good) = compare(PlanController, grouped, 256, seeds)
    assert fewer < batches
    assert less < 0.75 * lost
    assert as_good < regret + 0.01


@pytest.mark.slow
def test_wrong_verdicts_among_equals_stay_below_alpha():
    wrong = 0
    for seed in range(120):
        noise = np.exp(SIGMA * np.random.default_rng(seed).standard_normal(5 * 64))
        log = []
        controller = PlanController(rounds=64, tolerance=0.0, early_stop=EarlyStop(alpha=0.1), log=log.append)
        for value in noise:  # one loop at most
            ticket = controller.plan(256, Shape(7))
            controller.report(ticket, Report(float(value), 256))
            if log[-1]["kind"] == "decision":
                break
        centre = log[-1]["samples"][0]
        wrong += log[-1]["outcome"] == "move" and centre["count"] < 64  # an early move between equals
    assert 0 < wrong / 120 < 0.1
