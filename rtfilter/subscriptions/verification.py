"""Verification of candidates: verdicts, and counts. This module imports no compiler."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from heapq import nlargest
from typing import Any, Final, NamedTuple

NO: Final = 0
"""The event does not satisfy the predicate."""
YES: Final = 1
"""The event satisfies the predicate."""
ASK: Final = 2
"""The predicate itself has to decide."""
UNKNOWN: Final = 3
"""The predicate is not compiled yet."""

KINDS: Final = ("ends", "compiled", "python", "lists")
"""The ways to verify candidates.

``ends`` compares columns of exact ends, ``compiled`` is compiled code, and ``python`` checks predicates in
Python. ``lists`` decides in Python whether no element of a list has an attribute.
"""
SAMPLE: Final = 8
"""Candidates of a batch that are counted by subscription, about."""
MOST: Final = 4096
"""Subscriptions with a count; if there are more, the half with the lowest counts is dropped."""
DEAREST: Final = 10
"""Most subscriptions that `Verified.dearest` returns."""


Part = tuple[str, int, float]
"""A kind of work, its number of candidates and their seconds."""
Counted = list[tuple[int, list[int]]]
"""Handles, each with its number of candidates, and how many of them matched."""


class Dear(NamedTuple):
    """A subscription that is verified often."""

    handle: int
    share: float
    """Its share of the sample."""
    matched: float
    """The share of its own candidates in the sample that matched."""


class Verified:
    """The work of verification so far. Threads may share it.

    Attributes
    ----------
    work : dict
        By kind (see `KINDS`), a list of the number of candidates and their seconds.
    refused : int
        Candidates that do not satisfy their predicate.
    """

    def __init__(self) -> None:
        self.work: dict[str, list[Any]] = {kind: [0, 0.0] for kind in KINDS}
        self.refused = 0
        self._sampled: dict[int, list[int]] = {}  # by handle: candidates, and how many of them matched
        self._lock = threading.RLock()  # reentrant, because a signal handler may match

    @property
    def by_python(self) -> int:
        """Candidates that Python checked: each takes microseconds instead of tens of nanoseconds."""
        candidates: int = self.work["python"][0]
        return candidates

    def add(self, parts: Iterable[Part], refused: int, some: Iterable[tuple[int, int]]) -> None:
        """Count the candidates of a batch, or of a group of a stream.

        `some` are handles of some of the slowest candidates, each with 1 if it matches, else 0.
        """
        with self._lock:
            for kind, candidates, seconds in parts:
                own = self.work[kind]
                own[0] += candidates
                own[1] += seconds
            self.refused += refused
            for handle, matched in some:
                counts = self._sampled.get(handle)
                if counts is None:
                    counts = self._sampled[handle] = [0, 0]
                counts[0] += 1
                counts[1] += matched
            if len(self._sampled) > MOST:
                self._sampled = dict(_most(MOST // 2, list(self._sampled.copy().items())))

    def forget(self, handle: int) -> None:
        """Drop the count of a subscription that is removed."""
        self._sampled.pop(handle, None)

    def dearest(self) -> list[Dear]:
        """Return the subscriptions that were verified most often."""
        with self._lock:
            known = list(self._sampled.copy().items())
        total = sum(count for _, (count, _) in known)
        most = _most(DEAREST, known)
        return [Dear(handle, count / total, matched / count) for handle, (count, matched) in most]

    def stats(self) -> dict[str, Any]:
        """Return the sums, and under `kinds` the counts of each kind."""
        with self._lock:
            return {
                "candidates": sum(candidates for candidates, _ in self.work.values()),
                "refused": self.refused,
                "seconds": sum(seconds for _, seconds in self.work.values()),
                "kinds": {
                    kind: {"candidates": candidates, "seconds": seconds}
                    for kind, (candidates, seconds) in self.work.items()
                },
            }


def _most(count: int, known: Counted) -> Counted:
    """Return the largest counts. `known` is a copy: a signal handler that matches may count meanwhile."""
    return nlargest(count, known, key=lambda one: one[1][0])
