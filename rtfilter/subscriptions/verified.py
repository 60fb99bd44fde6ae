"""Counts of verified candidates."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final

SAMPLE: Final = 8
"""Candidates of a batch that are counted by subscription, about."""
MOST: Final = 4096
"""Subscriptions with a count; if there are more, the half with the lowest counts is dropped."""
DEAREST: Final = 10
"""Most subscriptions that `Verified.dearest` returns."""


class Verified:
    """The work of verification so far. Threads may share it.

    Attributes
    ----------
    candidates, refused : int
        All candidates, and those that do not satisfy their predicate.
    by_python : int
        Candidates that compiled code did not decide: each takes microseconds instead of tens of nanoseconds.
    seconds : float
    """

    def __init__(self) -> None:
        self.candidates = self.refused = self.by_python = 0
        self.seconds = 0.0
        self._sampled: Counter[int] = Counter()
        self._lock = threading.RLock()  # reentrant, because a signal handler may match

    def add(self, candidates: int, refused: int, by_python: int, seconds: float, some: Iterable[int]) -> None:
        """Count the candidates of a batch, or of a group of a stream.

        `some` are handles of the slowest ones.
        """
        with self._lock:
            self.candidates += candidates
            self.refused += refused
            self.by_python += by_python
            self.seconds += seconds
            self._sampled.update(some)
            if len(self._sampled) > MOST:
                self._sampled = Counter(dict(self._sampled.most_common(MOST // 2)))

    def forget(self, handle: int) -> None:
        """Drop the count of a subscription that is removed."""
        self._sampled.pop(handle, None)

    def dearest(self) -> list[tuple[int, float]]:
        """Return the handles that were verified most often, with their shares of a sample."""
        with self._lock:
            total = self._sampled.total()
            return [(handle, count / total) for handle, count in self._sampled.most_common(DEAREST)]

    def stats(self) -> dict[str, float]:
        """Return the counts by name."""
        with self._lock:
            names = ("candidates", "refused", "by_python", "seconds")
            return {name: getattr(self, name) for name in names}
