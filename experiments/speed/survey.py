"""Time per event, build time and memory of every peer, by subscriptions, dimensions, batch size and side.

Each variable is varied around one point. Every peer and index has a process and a budget of its own; what
would exceed it is skipped, with the reason. Results are kept one by one: a run with the same --out goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from experiments import peers
from experiments.arguments import above_zero, new_file, positive
from experiments.output import keep, kept_rows
from experiments.speed import trial
from experiments.speed.survey_plan import FULL, QUICK
from experiments.speed.trial import Case
from rtfilter.replay import machine
from rtfilter.replay.output import Row, table

COLUMNS = {
    "workload": "workload",
    "subscriptions": "subscriptions",
    "dimensions": "d",
    "side": "side",
    "batch": "batch",
    "peer": "peer",
    "way": "way",
    "us": "us per event",
    "asked": "asked",
    "to_fastest": "of the fastest",
    "to_rtree": "of rtree's best",
    "build_us": "build, us/box",
    "bytes": "bytes/box",
    "matches": "matches",
}
#: The identity of a point: peers are compared within.
POINT = ("workload", "subscriptions", "dimensions", "side", "batch")


def survey(cases: Iterable[Case], out: Path | None, settings: dict[str, Any]) -> list[Row]:
    """Return rows of all cases, those kept in `out` and those measured now."""
    rows = kept_rows(out, "peers", settings)
    done = {tuple(row[key] for key in trial.INDEX) for row in rows}
    waiting = [case for case in cases if case.key not in done]
    with tqdm(waiting, unit="index", leave=False) as bar:
        for case in bar:
            bar.set_postfix_str(f"{case.peer}: {case.workload}, {case.subscriptions:,} x {case.dimensions}")
            rows += trial.run(case)
            keep(out, "peers", settings, rows)
    return rows


def beside(rows: Sequence[Row]) -> list[Row]:
    """Return the measured rows by point, the fastest first, with ratios to it and to rtree's best."""
    points: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if "skipped" not in row:
            points.setdefault(tuple(row[key] for key in POINT), []).append(row)
    found = []
    for _, group in sorted(points.items(), key=lambda item: _order(item[0])):
        fastest = min(row["us"] for row in group)
        rtree = min((row["us"] for row in group if row["peer"] in peers.RTREES), default=None)
        for row in sorted(group, key=lambda row: float(row["us"])):
            ratios = {"to_fastest": row["us"] / fastest, "to_rtree": rtree and row["us"] / rtree}
            found.append(row | ratios)
    return found


def _order(point: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(0 if value is None else value for value in point)


def skips(rows: Sequence[Row]) -> list[str]:
    """Return a line for every index that a peer was skipped on."""
    return [
        f"skipped: {row['peer']}, {row['workload']}, {row['subscriptions']:,} x {row['dimensions']}"
        + ("" if row["side"] is None else f", side {row['side']:g}")
        + f": {row['skipped']}"
        for row in rows
        if "skipped" in row
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the survey; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m experiments peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few points, minutes instead of hours")
    parser.add_argument(
        "--peers", nargs="+", choices=peers.PEERS, default=list(peers.PEERS), help="all by default"
    )
    parser.add_argument("--subscriptions", type=positive, nargs="+", help="instead of the plan's")
    parser.add_argument("--build-seconds", type=above_zero, help="a peer may take to build an index")
    parser.add_argument(
        "--ask-seconds", type=above_zero, help="a peer may take for an event, and for a batch size"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the workloads (%(default)s)")
    parser.add_argument("--out", type=new_file, help="JSON file for the results; continued if it is there")
    parser.add_argument("--figure", type=new_file, help="picture file")
    given = parser.parse_args(arguments)
    plan = QUICK if given.quick else FULL
    plan = plan._replace(
        subscriptions=tuple(given.subscriptions or plan.subscriptions),
        build_seconds=given.build_seconds or plan.build_seconds,
        ask_seconds=given.ask_seconds or plan.ask_seconds,
    )
    settings = plan._asdict() | {"peers": given.peers, "seed": given.seed}
    try:
        rows = survey(plan.cases(given.peers, given.seed), given.out, settings)
    except ValueError as error:
        parser.error(str(error))
    print(machine.one_line())
    print(machine.peers_line())
    print(f"one core, a process each, medians of {plan.repeats}, answers compared with brute force\n")
    print(table(beside(rows), COLUMNS) + "\n")
    print("\n".join(skips(rows)))
    if given.figure is not None:
        from experiments.speed.survey_figure import draw

        draw(rows, given.figure)
    return 0
