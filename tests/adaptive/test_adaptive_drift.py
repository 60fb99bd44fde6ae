"""adaptive.drift: alarms when values have moved, and few when they have not."""

import numpy as np
import pytest

from rtfilter.adaptive.drift import FIRST, WIDEST, Drift


def alarms(values, variance=0.01):
    drift = Drift()
    return [at for at, value in enumerate(values) if drift.add(float(value), variance)]


def noise(count, seed):
    return 0.1 * np.random.default_rng(seed).standard_normal(count)


def test_what_stays_gives_hardly_an_alarm():
    assert sum(len(alarms(noise(1000, seed))) for seed in range(20)) <= 4  # of 20,000 values


@pytest.mark.parametrize("jump", [0.6, -0.6])
def test_a_jump_is_heard_within_four_values(jump):
    for seed in range(20):
        values = noise(60, seed) + np.where(np.arange(60) < 40, 0.0, jump)
        assert 40 <= alarms(values)[0] < 44


def test_a_jump_of_a_tenth_is_tolerated():
    values = noise(300, 1) / 3 + np.where(np.arange(300) < 40, 0.0, 0.1)
    assert alarms(values) == []


def test_slow_drift_adds_up():
    assert alarms(0.02 * np.arange(60))


def test_after_an_alarm_the_new_value_is_what_it_was():
    values = [0.0] * 10 + [1.0] * 200
    assert len(alarms(values)) == 1


def test_one_outlier_is_no_alarm():
    assert alarms([0.0] * 20 + [100.0] + [0.0] * 20) == []


def test_who_alarms_again_and_again_is_heard_less():
    values = np.repeat(np.arange(40) % 2, 100).astype(float)
    found = alarms(values)
    delays = [at % 100 for at in found]
    assert delays[0] < delays[-1] <= FIRST + WIDEST * 2
    assert delays == sorted(delays)
