"""adaptive.beliefs: the filter, and the worth of a batch."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from rtfilter.adaptive import Plan
from rtfilter.adaptive.beliefs import COMMON, NEAR, OWN, Beliefs

PLANS = [Plan(0, None), *(Plan(level, group) for level in range(3) for group in (1, 4, 16))]


def beliefs(mean=None):
    return Beliefs(PLANS, [0.0] * len(PLANS) if mean is None else mean, 64)


def test_what_is_seen_often_is_believed():
    own, truth = beliefs(), np.linspace(1, 2, len(PLANS))
    rng = np.random.default_rng(1)
    for _ in range(400):
        for at, value in enumerate(truth):
            own.observe(at, value + 0.1 * rng.standard_normal(), 0.01)
    assert own.mean == pytest.approx(truth, abs=0.03)
    assert own.best == 0


def test_it_is_the_conditional_distribution_of_a_gaussian():
    own, unknown = beliefs(), 1e4
    before = own.covariance + unknown
    own.observe(2, 0.7, 0.04)
    own.covariance -= COMMON
    own.observe(5, 0.9, 0.09)
    seen, noise = [2, 5], np.diag([0.04, 0.09])
    gain = before[:, seen] @ np.linalg.inv(before[np.ix_(seen, seen)] + noise)
    assert own.mean == pytest.approx(gain @ np.array([0.7, 0.9]), abs=1e-3)
    assert own.covariance == pytest.approx(before - gain @ before[seen], abs=1e-3)


def test_after_the_first_batch_the_level_is_in_doubt_but_not_the_order():
    own, sure = beliefs(), beliefs()
    before = own.covariance.copy()
    own.observe(2, 0.7, 0.04)
    for at in range(len(PLANS)):
        difference = own.covariance[at, at] + own.covariance[0, 0] - 2 * own.covariance[at, 0]
        assert difference == pytest.approx(before[at, at] + before[0, 0] - 2 * before[at, 0])
    assert own.covariance[2, 2] == pytest.approx(COMMON + 0.04)
    assert sure.covariance[2, 2] < own.covariance[2, 2]


def test_the_first_batch_tells_how_fast_the_machine_is_and_nothing_of_the_order():
    own = beliefs(list(range(len(PLANS))))
    own.observe(3, 100.0, 0.01)
    assert own.mean == pytest.approx(np.arange(len(PLANS)) + 97.0)


def test_near_plans_learn_from_each_other_more_than_far_ones():
    own = beliefs()
    column = own.column
    for _ in range(100):
        own.observe(0, 0.0, 1e-4)  # fixes what all have in common
    own.observe(column[Plan(0, 1)], 0.5, 0.01)
    moved = [own.mean[column[plan]] for plan in (Plan(0, 4), Plan(1, 4), Plan(2, 16))]
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > 1.2 * moved[-1] > 0


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, len(PLANS) - 1), st.floats(-50, 50), st.floats(1e-5, 1)), max_size=60)
)
def test_the_covariance_stays_one(batches):
    own = beliefs()
    for at, value, variance in batches:
        own.observe(at, value, variance)
        own.forget(1e-4, 1e-3)
    assert np.isfinite(own.mean).all()
    assert np.linalg.eigvalsh(own.covariance).min() > -1e-6
    assert own.covariance == pytest.approx(own.covariance.T, abs=1e-6)


def test_an_outlier_counts_less():
    own, calm = beliefs(), beliefs()
    for each in (own, calm):
        for _ in range(50):
            each.observe(1, 0.0, 0.01)
    own.observe(1, 5.0, 0.01)
    calm.observe(1, 0.3, 0.01)
    assert own.mean[1] < 2 * calm.mean[1]


def test_lessons_are_the_knowledge_gradient():
    own = beliefs()
    rng = np.random.default_rng(2)
    for at in range(len(PLANS)):
        own.observe(at, 0.3 * rng.random(), 0.02)
    best, noise = own.best, 0.05
    lesson = own.lessons(best, noise)
    covariance = own.covariance

    def gradient(sampled, other):
        spread = abs(covariance[sampled, sampled] - covariance[best, at if sampled != best else other])
        spread /= math.sqrt(covariance[sampled, sampled] + noise)
        z = -(own.mean[other] - own.mean[best]) / spread
        return spread * (z * norm.cdf(z) + norm.pdf(z))

    others = [at for at in range(len(PLANS)) if at != best]
    for at in others:
        assert lesson[at] == pytest.approx(gradient(at, at), rel=0.03)
    assert lesson[best] == pytest.approx(max(gradient(best, other) for other in others), rel=0.03)


def test_what_is_forgotten_is_less_sure():
    own = beliefs()
    for at in range(len(PLANS)):
        for _ in range(100):
            own.observe(at, float(at), 0.01)
    before = own.lessons(0, 0.01)
    own.forget(0.0, 1.0)
    after = own.lessons(0, 0.01)
    assert (after[1:] > before[1:]).all()
    assert own.covariance.diagonal() == pytest.approx(NEAR**2 + OWN**2, rel=0.05)
    own.forget(100.0, 0.0)
    common = own.lessons(0, 0.01)
    assert (common[1:] <= after[1:] + 1e-9).all()  # what is common to all says nothing of their order
