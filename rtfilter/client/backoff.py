"""The delay before the next attempt to connect."""

from __future__ import annotations

import random
from typing import Final

FIRST: Final = 0.1
"""Longest delay before the second attempt, in seconds."""
MOST: Final = 5.0
"""Longest delay between two attempts, in seconds."""


def delay(tries: int) -> float:
    """Return a random delay in seconds, so that clients of a lost server do not all reconnect at once.

    Parameters
    ----------
    tries : int
        Number of failed attempts, from 0: the first delay is short.
    """
    return random.uniform(0.5, 1.0) * float(min(MOST, FIRST * 2 ** min(tries, 20)))
