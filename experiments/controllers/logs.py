"""A log: batches of a run, each run by every plan."""

from __future__ import annotations

import argparse
import gc
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from experiments import ResultError
from experiments.arguments import natural
from experiments.controllers.cases import CASES, Batch, Case
from experiments.output import require_clean
from experiments.paper.index import Levels
from experiments.paper.work import by_plan
from experiments.response.estimates import Listener, stream
from experiments.timing import one_core
from rtfilter.adaptive import GROUPS, WHOLE, FixedPlan, Plan, Report, Shape, plans_of
from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.filter import EventFilter, inside
from rtfilter.matchers.rtree import tree_of
from rtfilter.replay import machine

DIGITS = 3
"""Significant digits of kept times: batches differ by more than the next one says."""
UNITS, SECONDS = "units", "seconds"


@dataclass(frozen=True)
class Log:
    """b batches under p plans.

    A plan that a batch cannot have (its level is not there, its group is not smaller than the batch) has NaN.

    Attributes
    ----------
    about : dict
        The case, its title, seed and machine, JSON-able; ``phases``: names of the phases.
    plans : int64 (p, 2)
        Level and group of each plan; a group of 0 is the whole batch.
    size, height, boxes, packed, updates, phase : int64 (b,)
        The input of a controller before each batch, and the place of its phase in ``phases``.
    moving : bool (b,)
        True if something changes in the phase.
    response, elapsed, estimation : float64 (b, p)
        Seconds; see `rtfilter.adaptive.Report`.
    visits, estimation_visits : int64 (b, p)
        Operations.
    units : float64 (b, p)
        Mean response in work units, see `experiments.paper.work`. NaN where they were not counted.
    """

    about: Mapping[str, Any]
    plans: IntArray
    size: IntArray
    height: IntArray
    boxes: IntArray
    packed: IntArray
    updates: IntArray
    phase: IntArray
    moving: BoolArray
    response: FloatArray
    elapsed: FloatArray
    estimation: FloatArray
    visits: IntArray
    estimation_visits: IntArray
    units: FloatArray

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def column(self) -> dict[Plan, int]:
        """The place of each plan."""
        return {Plan(level, group or None): at for at, (level, group) in enumerate(self.plans.tolist())}

    def place(self, batch: int, plan: Plan) -> int:
        """Return the column of a plan for a batch; a group of at least its size is the whole batch."""
        if plan.group is None or plan.group >= self.size[batch]:
            return self.column[WHOLE]
        return self.column[plan]

    def shape(self, batch: int) -> Shape:
        """Return the index that a batch met."""
        return Shape(int(self.height[batch]), int(self.boxes[batch]), int(self.packed[batch]))

    def report(self, batch: int, plan: Plan, unit: str = SECONDS) -> Report:
        """Return the report to a controller on a batch under a plan."""
        at, size = self.place(batch, plan), int(self.size[batch])
        if unit == UNITS:
            return Report(float(self.units[batch, at]), size)
        groups = 1 if plan.group is None else -(-size // plan.group)
        return Report(
            float(self.response[batch, at]), size, 0, float(self.elapsed[batch, at]),
            float(self.estimation[batch, at]), groups, int(self.visits[batch, at]),
            int(self.estimation_visits[batch, at]),
        )  # fmt: skip

    @property
    def judged_in(self) -> tuple[str, ...]:
        """The units that it knows."""
        return (SECONDS,) if np.isnan(self.units).all() else (UNITS, SECONDS)

    def cost(self, unit: str) -> FloatArray:
        """Return the mean responses (b, p) in a unit."""
        return self.units if unit == UNITS else self.response

    def write(self, path: Path) -> None:
        """Keep it in a file, compressed, in one step.

        Raises
        ------
        ResultError
            The file is one that is kept in the repository, and the tree has changes that are not committed.
        """
        require_clean(path, self.about["machine"])
        arrays: dict[str, AnyArray] = {"about": np.array(json.dumps(dict(self.about)))}
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            arrays[field.name] = _brief(value) if value.dtype == float else value
        beside = path.with_suffix(".new.npz")
        np.savez_compressed(beside, allow_pickle=False, **arrays)
        beside.replace(path)

    @classmethod
    def read(cls, path: Path) -> Log:
        """Return the log in a file.

        Raises
        ------
        ResultError
            There is none.
        """
        try:
            with np.load(path) as kept:
                about = json.loads(str(kept["about"]))
                arrays = {field.name: kept[field.name] for field in fields(cls)[1:]}
        except (OSError, EOFError, ValueError, KeyError) as error:
            raise ResultError(f"{path} is no log of batches: record it anew ({error})") from None
        arrays = {
            name: value.astype(float) if value.dtype == np.float32 else value
            for name, value in arrays.items()
        }
        return cls(about, **arrays)


def _brief(values: FloatArray) -> AnyArray:
    """Return numbers with few digits, which take little room."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(values))))
        rounded = np.where(values == 0, 0.0, np.round(values * scale) / scale)
    return rounded.astype(np.float32)


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
