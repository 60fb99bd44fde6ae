"""Timing of calls in alternation, on few cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from timeit import timeit
from typing import Any, TypeVar

from tqdm import tqdm

WARM = 0.05
"""Limit in seconds: calls that take less are timed with warm caches."""
Made = TypeVar("Made")
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
def on_cores(chosen: Callable[[Sequence[int]], Iterable[int]]) -> Iterator[None]:
    """Keep this thread, and what it starts, on some cores in the meantime, where the system allows it.

    `chosen` returns them, of those that it may use now, ascending.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen(sorted(before)))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores(count: int) -> AbstractContextManager[None]:
    """Keep this process on the last `count` of its cores in the meantime."""
    return on_cores(lambda free: free[-count:])


def all_cores() -> AbstractContextManager[None]:
    """Allow this process all cores in the meantime."""
    return on_cores(lambda _: range(os.cpu_count() or 1))


def one_core() -> AbstractContextManager[None]:
    """Keep this process on one core in the meantime."""
    return cores(1)


def timed(make: Callable[[], Made]) -> tuple[Made, float]:
    """Return what a call makes, and its seconds, without garbage collection."""
    made: list[Made] = []
    seconds = timeit(lambda: made.append(make()), number=1)
    return made[0], seconds


def steps(names: Sequence[str], each: int) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Yield names, each with a function that shows the next of its `each` steps, on one core."""
    with one_core(), tqdm(total=each * len(names), unit="step", leave=False) as bar:
        for name in names:

            def step(text: str, name: str = name) -> None:
                bar.set_postfix_str(f"{name}: {text}")
                bar.update()

            yield name, step


def in_process(module: str, case: Sequence[Any], limit: float) -> tuple[Any, str, str]:
    """Run a module that reads a case as JSON and prints its result, in a new process.

    Returns the result; or None, the reason ("late" or "failed"), and the reason in words.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", module],
            input=json.dumps(case), capture_output=True, text=True, timeout=limit, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, "late", f"took more than {limit:,.0f} s"
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        return None, "failed", f"exit code {error.returncode}: {last}"
    return json.loads(done.stdout.splitlines()[-1]), "", ""
