"""adaptive.student against SciPy."""

import pytest
from scipy.special import stdtr

from cases import cases
from rtfilter.adaptive.papers.student import lower_tail


@cases("freedom", [0.5, 1, 1.37, 2, 5.5, 30, 1234.5, 1e6])
@cases("t", [-40, -8.5, -3, -1, -1e-3, -1e-9, 0, 1e-3, 2.5, 8])
def test_tails_are_those_of_scipy(freedom, t):
    assert lower_tail(freedom, t) == pytest.approx(float(stdtr(freedom, t)), rel=1e-8)
