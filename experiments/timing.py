"""Timing of calls in alternation, on few cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from timeit import timeit
from typing import TypeVar

WARM = 0.05
"""Limit in seconds: calls that take less are timed with warm caches."""
Key = TypeVar("Key")
"""The name of a call."""


def rounds(
    calls: Mapping[Key, Callable[[], object]], repeats: int, warm: float = 0
) -> dict[Key, list[float]]:
    """Time calls in alternation, without garbage collection.

    In each of `repeats` rounds, all calls are made once, one after the other. So other load on the machine
    slows all of them alike. A call that takes less than `warm` seconds is made again at once, and the second
    time counts: the caches were full of the data of other calls, which matters for short calls only.

    Returns
    -------
    dict
        The seconds of each call, one number per round, by its name.
    """
    times: dict[Key, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            time = timeit(call, number=1)
            times[name].append(timeit(call, number=1) if time < warm else time)
    return times


def medians(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median of the seconds that each call takes, as timed by `rounds`."""
    return {name: median(times) for name, times in rounds(calls, repeats).items()}


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Keep this process on the last `count` of its cores in the meantime, where the system allows it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-count:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def all_cores() -> Iterator[None]:
    """Allow this process all of its cores in the meantime."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def one_core() -> AbstractContextManager[None]:
    """Keep this process on one core in the meantime, where the system allows it."""
    return cores(1)
