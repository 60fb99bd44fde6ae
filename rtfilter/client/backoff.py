"""The delay before the next try to connect."""

from __future__ import annotations

import random
from typing import Final

FIRST: Final = 0.1
"""Seconds before the second try, at most."""
MOST: Final = 5.0
"""Seconds between two tries, at most."""


def delay(tries: int) -> float:
    """Return seconds, drawn at random, so that clients which lost their server together come back one by one.

    Parameters
    ----------
    tries : int
        That failed, from 0. After the first loss there is little to wait.
    """
    return random.uniform(0.5, 1.0) * float(min(MOST, FIRST * 2 ** min(tries, 20)))
