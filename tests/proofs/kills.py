"""Processes killed while they save."""

import os
import signal
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np

from rtfilter import EventFilter, Schema

SCHEMA = Schema({"x": int, "s": str})
EVENTS = [{"x": x, "s": s} for x in range(0, 100, 7) for s in ("a", "a-long-prefix-1")]


@cache
def _filter(count: int) -> tuple[EventFilter, list[list[int]], float]:
    """A filter of so many subscriptions, what it answers, and how long it takes to save."""
    made = EventFilter(SCHEMA, (10, 20))
    made.subscribe_many([f"x > {i % 90} AND s LIKE 'a-long-prefix%' OR x = {i % 80}" for i in range(count)])
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "index")  # warm
        begun = time.perf_counter()
        made.save(Path(folder) / "index")
        seconds = time.perf_counter() - begun
    return made, _answers(made), seconds


def _answers(filter: EventFilter) -> list[list[int]]:
    return [sorted(ids.tolist()) for ids in filter.match_batch(EVENTS)]


def run(seed: int) -> Counter[str]:
    """Kill a process at a random moment of its second save, sometimes of several in a row."""
    rng = np.random.default_rng(seed)
    (old, before, _), (new, after, seconds) = _filter(40), _filter(60)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        old.save(path)
        for _ in range(rng.integers(1, 4)):
            child = os.fork()
            if child == 0:  # no return: nothing of the parent's may run twice
                try:
                    new.save(path)
                finally:
                    os._exit(0)
            time.sleep(float(rng.uniform(0, 1.1 * seconds)))
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            found = _answers(EventFilter.load(path))
            assert found in (before, after), "neither the old snapshot nor the new one"
            counts["killed"] += os.WIFSIGNALED(status)
            counts["new"] += found == after
            counts["old"] += found == before
        old.save(path)
        assert _answers(EventFilter.load(path)) == before, "what killed writers left is in the way"
    return counts
