"""States of peers that may repeat: logged when they change, and then rarely."""

from __future__ import annotations

import time
from math import inf
from typing import Final

AGAIN: Final = 600.0
"""Seconds after which the same state is logged again."""
MOST: Final = 1000
"""Most brokers and clients whose last logged state is stored."""


class Notices:
    """The last logged state of each peer."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, float]] = {}

    def news(self, of: str, what: str) -> bool:
        """Return whether to log a state of `of`, and record it as logged."""
        former, at = self._said.get(of, ("", -inf))
        now = time.monotonic()
        if former == what and now < at + AGAIN:
            return False
        self._said.pop(of, None)
        self._said[of] = what, now
        if len(self._said) > MOST:
            del self._said[next(iter(self._said))]
        return True

    def over(self, of: str) -> None:
        """Remove the state of `of`, so that the next one is logged."""
        self._said.pop(of, None)
