"""How experiments time, print and keep their results."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from timeit import timeit
from typing import TYPE_CHECKING, Any

from rtfilter.replay.machine import describe
from rtfilter.replay.output import Row

if TYPE_CHECKING:
    pass

#: Searches shorter than so many seconds are timed with warm caches.
WARM = 0.05


def natural(text: str) -> int:
    """An argument that is an integer of at least 0."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """An argument that counts something: an integer of at least 1."""
    return _at_least(1, text)


def _at_least(least: int, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be {least} or more, not {text}")
    return int(text)


def outcome(met: bool) -> str:
    """What becomes of a target."""
    return "met" if met else "NOT MET"


def rounds(
    calls: Mapping[str, Callable[[], object]], repeats: int, warm: float = 0
) -> dict[str, list[float]]:
    """Durations of each call, in seconds, without garbage collection.

    All are called once, then all again, `repeats` times: other load on the machine slows them alike. A call
    shorter than `warm` seconds is made twice in a row, and the second counts: the first found the caches
    full of what the others left there, which long calls hardly notice.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            time = timeit(call, number=1)
            times[name].append(timeit(call, number=1) if time < warm else time)
    return times


def medians(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median duration of each call by `rounds`."""
    return {name: median(times) for name, times in rounds(calls, repeats).items()}


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Keep this process on so many of its cores meanwhile, the last ones, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-count:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def one_core() -> AbstractContextManager[None]:
    """Keep this process on one core meanwhile, where the system can."""
    return cores(1)


class ResultError(ValueError):
    """A file of results cannot be used; the message says what to do."""


def keep(
    path: Path | None,
    experiment: str,
    settings: Mapping[str, Any],
    rows: Sequence[Row],
    machine: Mapping[str, Any] | None = None,
    **more: object,
) -> None:
    """Write a result with its settings and the machine as JSON, a line a row, unless there is no path.

    The file is replaced at once: who stops the program finds the one before or this one. `machine` is this
    one by default.
    """
    if path is None:
        return
    made_on = describe() if machine is None else dict(machine)
    head = {"experiment": experiment, "machine": made_on, "settings": dict(settings), **more}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    body = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_text("\n".join(["{", *lines, ' "rows": [', body, " ]", "}", ""]))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def content(path: Path) -> dict[str, Any]:
    """What `keep` wrote.

    Raises
    ------
    ResultError
        The file is damaged or none of ours.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if {"experiment", "machine", "settings", "rows"} <= found.keys():
            return found
    except (ValueError, AttributeError):
        pass
    raise ResultError(f"{path} is no result of an experiment: delete it or choose another --out")


def require_same(path: Path, kept: Mapping[str, Any], **asked: object) -> None:
    """Refuse to continue a result of another experiment, of other settings, another machine or versions.

    Raises
    ------
    ResultError
        Says what differs.
    """
    differing = []
    for key, value in asked.items():
        old, new = kept[key], json.loads(json.dumps(value))
        if isinstance(old, dict) and old != new:
            parts = sorted(part for part in old.keys() | new.keys() if old.get(part) != new.get(part))
            differing.append(f"{key} ({', '.join(parts)})")
        elif old != new:
            differing.append(f"{key} ({old})")
    if differing:
        raise ResultError(
            f"{path} is of another {' and '.join(differing)}: delete it or choose another --out"
        )


def kept_rows(path: Path | None, experiment: str, settings: Mapping[str, Any]) -> list[Row]:
    """Rows of an earlier run that this one continues; `ResultError` as in `content` and `require_same`."""
    if path is None or not path.exists():
        return []
    kept = content(path)
    require_same(path, kept, experiment=experiment, machine=describe(), settings=settings)
    rows: list[Row] = kept["rows"]
    return rows
