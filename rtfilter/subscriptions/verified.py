"""Counts of candidates: hits that no box decides, which are verified by their predicates."""

from __future__ import annotations

import threading


class Verified:
    """The work of verification so far. Threads may share it.

    Attributes
    ----------
    candidates, refused : int
        All, and those that do not satisfy their predicate.
    by_python : int
        Candidates that compiled code did not decide: each takes microseconds, and not tens of nanoseconds.
    seconds : float
    """

    def __init__(self) -> None:
        self.candidates = self.refused = self.by_python = 0
        self.seconds = 0.0
        self._lock = threading.RLock()  # reentrant, because a signal handler may match

    def add(self, candidates: int, refused: int, by_python: int, seconds: float) -> None:
        """Count the candidates of a batch, or of a group of a stream."""
        with self._lock:
            self.candidates += candidates
            self.refused += refused
            self.by_python += by_python
            self.seconds += seconds

    def stats(self) -> dict[str, float]:
        """All of it by name."""
        with self._lock:
            names = ("candidates", "refused", "by_python", "seconds")
            return {name: getattr(self, name) for name in names}
