"""A bucket never gives more than its rate and one burst, and what it says to wait is enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.service.access.rates import Bucket

STEPS = st.lists(st.tuples(st.floats(0, 10), st.integers(1, 30)), max_size=40)


@given(rate=st.integers(1, 50), burst=st.integers(1, 40), steps=STEPS)
def test_no_more_comes_out_than_the_rate_a_burst_and_what_one_call_takes_ahead(rate, burst, steps):
    bucket, now, taken = Bucket(rate, burst, 0.0), 0.0, 0
    for wait, amount in steps:
        now += wait
        ahead = max(0, amount - burst)
        if bucket.take(amount, now) == 0.0:
            taken += amount
            assert taken <= (burst + rate * now + ahead) * (1 + 1e-9)


@given(rate=st.integers(1, 50), burst=st.integers(1, 40), amounts=st.lists(st.integers(1, 90), max_size=20))
def test_after_the_wait_that_was_told_it_is_given(rate, burst, amounts):
    bucket, now = Bucket(rate, burst, 0.0), 0.0
    for amount in amounts:
        wait = bucket.take(amount, now)
        if wait:
            now += wait * (1 + 1e-9) + 1e-9
            assert bucket.take(amount, now) == 0.0


def test_what_is_refused_costs_nothing_and_a_clock_that_goes_back_gives_nothing():
    bucket = Bucket(2.0, 4.0, 100.0)
    assert bucket.take(3, 100.0) == 0.0
    assert bucket.take(3, 100.0) == pytest.approx(1.0)
    assert bucket.take(3, 50.0) == pytest.approx(1.0)
    assert bucket.take(1, 100.0) == 0.0
    assert not bucket.full(101.9)
    assert bucket.full(102.0)
