"""Student's distribution, for the sequential test, without SciPy."""

from __future__ import annotations

import math

_TINY = 1e-300


def lower_tail(freedom: float, t: float) -> float:
    """Return the probability that a variable of Student's distribution is at most `t`.

    Parameters
    ----------
    freedom : float
        Degrees of freedom, above 0; need not be whole.
    t : float

    Notes
    -----
    Half the regularised incomplete beta function (Press et al., Numerical Recipes, 6.4). The relative error
    is below 1e-8 for up to a million degrees of freedom.
    """
    square = t * t / freedom
    near, far = 1 / (1 + square), square / (1 + square)
    a, b = freedom / 2, 0.5
    # x^a (1 - x)^b / B(a, b) at x = near
    scale = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - a * math.log1p(square)
    ) * math.sqrt(far)
    if near < (a + 1) / (a + b + 2):
        tail = scale * _fraction(a, b, near) / a
    else:
        tail = 1 - scale * _fraction(b, a, far) / b
    return tail / 2 if t <= 0 else 1 - tail / 2


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, _inverse(1 - (a + b) * x / (a + 1))
    value, step, m = d, 0.0, 0
    while abs(step - 1) > 1e-15 and m < 100_000:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for part in (even, odd):
            d, c = _inverse(1 + part * d), _large(1 + part / c)
            step *= c * d
        value *= step
    return value


def _large(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _inverse(value: float) -> float:
    return 1 / _large(value)
