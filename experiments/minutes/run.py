"""A newcomer's first minutes: each first step in a fresh environment, with no kernel compiled."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from experiments.arguments import new_file, positive
from experiments.minutes.figures import FIGURES, Figure
from experiments.minutes.place import Cost, Place

EXTRAS = "service"
COLUMNS: Mapping[str, str] = {
    "says": "first step", "wall_s": "wall s", "cpu_s": "CPU s", "memory_mb": "peak MB",
    "value": "measured", "target": "target", "unit": "", "met": "",
}  # fmt: skip
UNITS: Mapping[str, str] = {"wall": "s", "cpu": "CPU s", "memory": "MB", "longest": "ms"}


def row(name: str, figure: Figure, costs: Sequence[Cost]) -> dict[str, Any]:
    """Return the medians of some runs of a figure, beside its target."""
    from experiments.output import outcome

    peaks = [cost.memory for cost in costs if cost.memory is not None]
    found: dict[str, Any] = {
        "figure": name,
        "says": figure.says,
        "runs": len(costs),
        "wall_s": median(cost.wall for cost in costs),
        "cpu_s": median(cost.cpu for cost in costs),
        "memory_mb": median(peaks) if peaks else None,
    }
    if figure.what == "longest":
        found["facts"] = [cost.facts for cost in costs]
        value: float | None = median(longest(cost.facts) for cost in costs)
    else:
        value = found[{"wall": "wall_s", "cpu": "cpu_s", "memory": "memory_mb"}[figure.what]]
    met = value is not None and value <= figure.target
    return {
        **found, "value": value, "target": figure.target, "unit": UNITS[figure.what], "met": outcome(met)
    }  # fmt: skip


def longest(facts: Mapping[str, Any]) -> float:
    """Return the longest call of a filter that grows, in ms, garbage collection included."""
    return float(max(facts[name]["max_ms"] for name in ("subscribe", "match")))


def calls(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the calls of a filter that grows as a table; empty where that was not measured."""
    from rtfilter.replay.output import table

    lines = []
    for grown in (facts for one in rows for facts in one.get("facts", ())):
        for name in ("subscribe", "match"):
            collected = {"gc_s": grown["collected_s"], "gc_max_ms": grown["collected_max_ms"]}
            lines.append({"call": name, **grown[name], **collected})
    columns = {
        "call": "call", "calls": "calls", "median_ms": "median ms", "p99_9_ms": "p99.9 ms",
        "max_ms": "max ms",
        "max_at": "at subscriptions", "max_without_gc_ms": "max ms without gc", "max_cpu_ms": "max CPU ms",
        "gc_s": "all gc s", "gc_max_ms": "longest gc ms",
    }  # fmt: skip
    return table(lines, columns) if lines else ""


def main(arguments: list[str]) -> int:
    """Run the experiment; see ``--help``. Returns 1 if a target is missed."""
    usual = [name for name, figure in FIGURES.items() if not figure.long]
    long = ", ".join(name for name, figure in FIGURES.items() if figure.long)
    parser = argparse.ArgumentParser(prog="python -m experiments minutes", description=__doc__)
    parser.add_argument(
        "figures", nargs="*", choices=[*FIGURES, []], metavar="FIGURE",
        help=f"some of {', '.join(FIGURES)}; by default all but {long}, which take minutes",
    )  # fmt: skip
    parser.add_argument("--runs", type=positive, default=3, help="runs of each; their medians count (3)")
    parser.add_argument("--out", type=new_file, help="JSON file for the results")
    given = parser.parse_args(arguments)
    chosen = given.figures or usual
    with TemporaryDirectory(prefix="rtfilter-minutes-") as folder:
        costs = measured(Place(Path(folder)), chosen, given.runs)
    # Imported only now: the peak memory of a child is known where it is above that of this process.
    from experiments.output import keep
    from rtfilter.replay.machine import one_line
    from rtfilter.replay.output import table

    rows = [row(name, FIGURES[name], costs[name]) for name in chosen]
    print(one_line(), table(rows, COLUMNS), calls(rows), sep="\n\n")
    keep(given.out, "minutes", {"figures": list(chosen), "runs": given.runs}, rows)
    return 0 if all(one["met"] == "met" for one in rows) else 1


def measured(place: Place, chosen: Sequence[str], runs: int) -> dict[str, list[Cost]]:
    """Measure some figures; progress goes to standard error."""
    if any(not FIGURES[name].long for name in chosen):
        print("installing into a fresh environment", file=sys.stderr, flush=True)
        cost = place.install(EXTRAS)
        print(f"installed: {cost.wall:.1f} s, {cost.cpu:.1f} CPU s", file=sys.stderr, flush=True)
    costs: dict[str, list[Cost]] = {name: [] for name in chosen}
    for name in chosen:
        for turn in range(1 if FIGURES[name].long else runs):
            costs[name].append(cost := FIGURES[name].measure(place))
            taken = f"{cost.wall:.2f} s, {cost.cpu:.2f} CPU s"
            print(f"{name}, run {turn + 1}: {taken}", file=sys.stderr, flush=True)
    return costs
