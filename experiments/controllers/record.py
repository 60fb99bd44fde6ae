"""Logs of batches that were run by every plan, in alternation, with their work units."""

from __future__ import annotations

import argparse
import gc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from experiments.arguments import natural
from experiments.controllers.cases import CASES, Batch, Case
from experiments.controllers.logs import Log
from experiments.paper.index import Levels
from experiments.paper.work import by_plan
from experiments.response.listener import Listener, stream
from experiments.timing import one_core
from rtfilter.adaptive import GROUPS, FixedPlan, Plan, Report, Shape, plans_of
from rtfilter.filter import EventFilter, inside
from rtfilter.matchers.rtree import tree_of
from rtfilter.replay import machine


class Entry(NamedTuple):
    """A batch of a log, with what each plan came to."""

    batch: Batch
    shape: Shape
    reports: dict[Plan, Report]
    units: dict[Plan, float]


def timed(filter: EventFilter, batch: Batch, turn: Sequence[Plan]) -> dict[Plan, Report]:
    """Run a batch once for nothing, so that all plans find the same caches, and then by each plan."""
    filter.match_batch(batch.events)
    found = {}
    gc.disable()
    try:
        for plan in turn:
            listener = Listener(FixedPlan(plan.level, plan.group))
            while listener.told is None:  # a batch that had to load kernels is not reported
                stream(filter, "shortest", listener, batch.events)
            found[plan] = listener.told
    finally:
        gc.enable()
    return found


def record(case: Case, seed: int) -> Log:
    """Run a case; its log."""
    entries: list[Entry] = []
    rng = np.random.default_rng(seed)
    levels, counted = None, -1
    with one_core(), tqdm(desc=case.name, unit="batch", leave=False, disable=None) as bar:
        for batch in case.batches():
            filter = case.filter
            tree = tree_of(inside(filter).matcher)
            shape = Shape(tree.height, len(filter), tree.packed)
            possible = plans_of(len(batch.events), shape.height, GROUPS)
            turn = [possible[at] for at in rng.permutation(len(possible))]
            reports = timed(filter, batch, turn)
            units = dict.fromkeys(possible, math.nan)
            if case.counted:
                if levels is None or counted != tree.updates:
                    levels, counted = Levels.of(tree), tree.updates
                work = by_plan(levels.reached(batch.events.points), possible)
                units = dict(zip(possible, work.response[0], strict=True))
            entries.append(Entry(batch, shape, reports, units))
            bar.update()
    return joined(case, seed, entries)


def joined(case: Case, seed: int, entries: Sequence[Entry]) -> Log:
    """Return the log of some entries."""
    known = sorted(
        {plan for entry in entries for plan in entry.reports}, key=lambda p: (p.level, p.group or 0)
    )
    phases = list(dict.fromkeys(entry.batch.phase for entry in entries))
    column = {plan: at for at, plan in enumerate(known)}
    many = (len(entries), len(known))
    times = {name: np.full(many, np.nan) for name in ("response", "elapsed", "estimation", "units")}
    visits, estimation_visits = np.zeros(many, np.int64), np.zeros(many, np.int64)
    for row, entry in enumerate(entries):
        for plan, report in entry.reports.items():
            at = row, column[plan]
            times["response"][at], times["elapsed"][at] = report.mean_response, report.elapsed
            times["estimation"][at], times["units"][at] = report.estimation, entry.units[plan]
            visits[at], estimation_visits[at] = report.visits, report.estimation_visits
    about = {
        "case": case.name, "title": case.title, "seed": seed, "scale": case.scale, "phases": phases,
        "machine": machine.describe(),
    }  # fmt: skip
    return Log(
        about,
        np.array([(plan.level, plan.group or 0) for plan in known]),
        size=np.array([len(entry.batch.events) for entry in entries]),
        height=np.array([entry.shape.height for entry in entries]),
        boxes=np.array([entry.shape.boxes for entry in entries]),
        packed=np.array([entry.shape.packed for entry in entries]),
        updates=np.array([entry.batch.updates for entry in entries]),
        phase=np.array([phases.index(entry.batch.phase) for entry in entries]),
        moving=np.array([entry.batch.moving for entry in entries]),
        visits=visits,
        estimation_visits=estimation_visits,
        **times,
    )


def main(arguments: Sequence[str]) -> int:
    """Record logs from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments record",
        description="Run every batch of some cases by every plan, and keep the logs for `controllers`.",
    )
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--out", type=Path, default=Path("out/controllers"), help="folder (%(default)s)")
    parser.add_argument("--seed", type=natural, default=1, help="seed (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of boxes and batches (%(default)s)")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.cases if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    given.out.mkdir(parents=True, exist_ok=True)
    print(machine.one_line())
    for name in given.cases:
        log = record(CASES[name](given.seed, given.scale), given.seed)
        path = given.out / f"{name}.npz"
        log.write(path)
        print(f"{name}: {len(log):,} batches, {len(log.plans)} plans, kept in {path}", flush=True)
    return 0
