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

from experiments.machine import describe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
#: Searches shorter than so many seconds are timed with warm caches.
WARM = 0.05


def positive(text: str) -> int:
    """An argument that counts something: an integer of at least 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return int(text)


def outcome(met: bool) -> str:
    """What becomes of a target."""
    return "met" if met else "NOT MET"


def save_picture(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure, in a folder that is made when it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)


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


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Rows as aligned text.

    Parameters
    ----------
    rows : sequence of mappings
        A missing or None cell stays empty.
    columns : mapping of key to heading
        What to show, in order.
    """
    cells = [list(columns.values())] + [[_cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    number = [any(isinstance(row.get(key), int | float) for row in rows) for key in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, number, strict=True)
        ).rstrip()
        for line in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def keep(path: Path | None, experiment: str, settings: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write a result with its settings and the machine as JSON, a line a row, unless there is no path.

    The file is replaced at once: who stops the program finds the one before or this one.
    """
    if path is None:
        return
    head = {"experiment": experiment, "machine": describe(), "settings": dict(settings)}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    body = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_text("\n".join(["{", *lines, ' "rows": [', body, " ]", "}", ""]))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def kept_rows(path: Path | None, experiment: str, settings: Mapping[str, Any]) -> list[Row]:
    """Rows of an earlier run that this one continues.

    Raises
    ------
    ValueError
        They were made by another experiment, with other settings, on another machine, or by other versions;
        or the file is none of ours.
    """
    if path is None or not path.exists():
        return []
    advice = "delete it or choose another --out"
    try:
        content = json.loads(path.read_text())
        rows: list[Row] = content["rows"]
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{path} is no result of an experiment: {advice}") from error
    asked = {"experiment": experiment, "machine": describe(), "settings": settings}
    differing = [key for key, value in asked.items() if content.get(key) != json.loads(json.dumps(value))]
    if differing:
        raise ValueError(f"{path} is of another {' and '.join(differing)}: {advice}")
    return rows
