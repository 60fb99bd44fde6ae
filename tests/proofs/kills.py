"""Processes killed while they save."""

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rtfilter import EventFilter, Schema

SCHEMA = Schema({"x": int, "s": str})
EVENTS = [{"x": x, "s": s} for x in range(0, 100, 7) for s in ("a", "a-long-prefix-1")]


class Saved(NamedTuple):
    """A filter, what it answers, and how it is saved."""

    filter: EventFilter
    answers: list[list[int]]
    seconds: float
    """That saving it takes."""
    calls: int
    """Of the system, that saving it makes: files that are written, replaced and removed."""


@cache
def saved(count: int) -> Saved:
    """A filter of so many subscriptions."""
    made = EventFilter(SCHEMA, matcher={"name": "rtree", "capacity": (10, 20)})
    made.subscribe_many([f"x > {i % 90} AND s LIKE 'a-long-prefix%' OR x = {i % 80}" for i in range(count)])
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "index")  # warm
        begun = time.perf_counter()
        made.save(Path(folder) / "index")
        seconds = time.perf_counter() - begun
        calls: list[int] = []
        restore = _before_each_call(lambda: calls.append(1))
        made.save(Path(folder) / "index")
        restore()
    return Saved(made, answers(made), seconds, len(calls))


def answers(filter: EventFilter) -> list[list[int]]:
    """The ids that match each of `EVENTS`."""
    return [sorted(ids.tolist()) for ids in filter.match_batch(EVENTS)]


def _before_each_call(act: Callable[[], object]) -> Callable[[], None]:
    """Do something before each call of the system that saving makes; returns what ends that."""
    names = ("fsync", "replace", "unlink")
    originals = [getattr(os, name) for name in names]

    def patched(original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            act()
            return original(*arguments, **options)

        return call

    for name, original in zip(names, originals, strict=True):
        setattr(os, name, patched(original))

    def restore() -> None:
        for name, original in zip(names, originals, strict=True):
            setattr(os, name, original)

    return restore


def run(seed: int) -> Counter[str]:
    """Kill a process at its nth call of the system or at a random moment, sometimes several in a row."""
    rng = np.random.default_rng(seed)
    old, new = saved(40), saved(60)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        old.filter.save(path)
        for _ in range(rng.integers(1, 4)):
            last = int(rng.integers(new.calls + 1)) if rng.random() < 0.7 else None
            child = os.fork()
            if child == 0:
                _save_and_die(new.filter, path, last)
            if last is None:
                time.sleep(float(rng.uniform(0, 1.5 * new.seconds)))
                os.kill(child, signal.SIGKILL)
            counts["killed"] += os.WIFSIGNALED(os.waitpid(child, 0)[1])
            found = answers(EventFilter.load(path))
            assert found in (old.answers, new.answers), "neither the old snapshot nor the new one"
            counts["new" if found == new.answers else "old"] += 1
        old.filter.save(path)
        assert answers(EventFilter.load(path)) == old.answers, "what killed writers left is in the way"
    return counts


def _save_and_die(filter: EventFilter, path: Path, last: int | None) -> None:
    """Save in a child, which dies before call `last` of the system; does not return."""
    left = [last]

    def act() -> None:
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        _before_each_call(act)
        filter.save(path)
    finally:
        os._exit(0)  # nothing of the parent's may run twice
