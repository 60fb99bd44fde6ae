"""Controllers on logs: each chooses the plans of all batches, and gets the reports from the log.

The loss of a controller is the geometric mean, over batches, of its response over a reference, less 1:

* **best fixed**: the one plan that is best for the batches of a class of sizes in a phase; it is known only
  afterwards, and all that is tried counts against it;
* **best constant**: the one plan that is best over the whole log;
* **oracle**: the best plan of each batch. In seconds it is the luckiest of them too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from textwrap import fill
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments import ResultError
from experiments.controllers.logs import SECONDS, UNITS, Log
from experiments.controllers.rivals import DiscountedThompson, DiscountedUCB
from experiments.output import keep, outcome
from rtfilter.adaptive import (
    WHOLE,
    Controller,
    CostController,
    EarlyStop,
    FixedPlan,
    LevelController,
    Plan,
    PlanController,
    WangController,
)
from rtfilter.adaptive.cost_model import CostModel
from rtfilter.basics.dtypes import BoolArray, FloatArray
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table

KEPT = Path(__file__).parents[1] / "report" / "controllers"
"""Folder of the logs, and of what came of them."""
SETTLED, MOVING = 0.02, 0.05
"""Targets: most that is lost to the best fixed plan in settled phases, and while something changes."""
BEGINNING = 0.25
"""Share of a phase, for each class of sizes, after which it counts as settled."""
SEEDS = range(5)
"""Each entrant plays each log once with each of these."""
WINDOW = 20
"""Batches that a point of the picture is a mean of."""
OURS = "cost"


def _wang(seed: int, rounds: int) -> Controller:
    return WangController(rounds=rounds)  # needs no seed: it draws nothing


ENTRANTS: Mapping[str, Callable[..., Controller]] = {
    OURS: CostController,
    **{f"paper, N = {rounds}": partial(_wang, rounds=rounds) for rounds in (1, 4, 16, 64)},
    **{f"levels, N = {rounds}": partial(LevelController, rounds=rounds) for rounds in (1, 4, 16, 64)},
    **{f"plans, N = {rounds}": partial(PlanController, rounds=rounds) for rounds in (1, 4, 16, 64)},
    "plans, statistical": partial(PlanController, rounds=64, early_stop=EarlyStop()),
    "discounted UCB": DiscountedUCB,
    "discounted Thompson": DiscountedThompson,
}
"""The compared controllers by name, each called with a ``seed``. ``paper`` is the rule of the paper (Wang et
al.) and nothing else; ``levels`` has our rules for real traffic beside it, and ``plans`` is the same for
levels and groups."""


class Costs:
    """The costs of a log's batches in a unit, and the references.

    Attributes
    ----------
    by_plan : float64 (b, p)
        Logarithms; a plan that a batch cannot have is the whole batch.
    fixed, constant, oracle : float64 (b,)
        Logarithms of the references.
    best : Plan
        The best constant plan.
    """

    def __init__(self, log: Log, unit: str) -> None:
        cost = log.cost(unit)
        whole = cost[:, [log.column[WHOLE]]]
        self.by_plan: FloatArray = np.log(np.where(np.isnan(cost), whole, cost))
        self.oracle: FloatArray = self.by_plan.min(axis=1)
        at = int(self.by_plan.mean(axis=0).argmin())
        level, group = log.plans[at].tolist()
        self.best, self.constant = Plan(level, group or None), self.by_plan[:, at]
        self.fixed = self.constant.copy()
        for part in parts(log):
            self.fixed[part] = self.by_plan[part][:, self.by_plan[part].mean(axis=0).argmin()]


def parts(log: Log) -> list[BoolArray]:
    """Return the batches of each phase and class of sizes."""
    key = 100 * log.phase + np.log2(log.size).astype(int)
    return [key == value for value in np.unique(key)]


def settled(log: Log) -> BoolArray:
    """Return the batches of phases in which nothing changes, without the beginning of each."""
    chosen = np.zeros(len(log), np.bool_)
    for part in parts(log):
        rows = np.flatnonzero(part & ~log.moving)
        chosen[rows[int(BEGINNING * len(rows)) :]] = True
    return chosen


def play(log: Log, controller: Controller, unit: str) -> tuple[FloatArray, float]:
    """Run a controller; return logarithms of the responses (b,), and its own seconds a batch."""
    taken, spent = np.empty(len(log)), 0.0
    for batch in range(len(log)):
        begun = perf_counter()
        if log.updates[batch]:
            controller.on_update(int(log.updates[batch]))
        ticket = controller.plan(int(log.size[batch]), log.shape(batch))
        spent += perf_counter() - begun
        report = log.report(batch, ticket.plan, unit)
        begun = perf_counter()
        controller.report(ticket, report)
        spent += perf_counter() - begun
        taken[batch] = report.mean_response
    return np.log(taken), spent / len(log)


def lost(own: FloatArray, reference: FloatArray, chosen: BoolArray) -> float | None:
    """Return the share that a run lost to a reference on some batches; None if there are none."""
    return float(np.expm1((own - reference)[chosen].mean())) if chosen.any() else None


def measure(log: Log, unit: str) -> list[Row]:
    """Return a row for each entrant, and for constants: means over the seeds, and the worst settled one."""
    costs = Costs(log, unit)
    middle = (int(np.median(log.height)) - 1) // 2
    constants: dict[str, Callable[..., Controller]] = {
        "best constant": lambda seed: FixedPlan(costs.best.level, costs.best.group),
        "middle constant": lambda seed: FixedPlan(middle, 1),
        "whole batch": lambda seed: FixedPlan(0, None),
    }
    every, calm = np.full(len(log), True), settled(log)
    references = {
        "settled": (costs.fixed, calm),
        "still": (costs.fixed, ~log.moving),
        "moving": (costs.fixed, log.moving),
        "constant": (costs.constant, every),
        "oracle": (costs.oracle, every),
    }
    rows = []
    for name, make in {**ENTRANTS, **constants}.items():
        runs = [play(log, make(seed=seed), unit) for seed in (SEEDS if name in ENTRANTS else SEEDS[:1])]
        taken = np.array([own for own, _ in runs])
        row: Row = {"case": log.about["case"], "unit": unit, "controller": name}
        for key, (reference, chosen) in references.items():
            row[key] = lost(taken.mean(axis=0), reference, chosen)
        row["worst"] = max(lost(own, costs.fixed, calm) or 0.0 for own in taken)
        row["own_us"] = 1e6 * median(spent for _, spent in runs)
        row["best_constant"] = f"{costs.best.level}/{costs.best.group or 'all'}"
        over = _windows(taken.mean(axis=0) - costs.fixed)
        rows.append(row | {"series": [float(f"{value:.3g}") for value in over]})
    return rows


def calibration(logs: Iterable[Log]) -> str:
    """Return the costs that fit each log, as a table: where `rtfilter.adaptive.cost_model` begins."""
    lines = []
    for log in logs:
        model = CostModel()
        for batch in range(len(log)):
            for plan in log.column:
                if not np.isnan(log.response[batch, log.column[plan]]):
                    model.fit(plan, log.report(batch, plan))
        lines.append({"case": log.about["case"]} | {k: f"{1e6 * v:.2f}" for k, v in model.state().items()})
    return table(lines, {key: key.replace("_", " ") for key in lines[0]})


def _windows(over: FloatArray) -> FloatArray:
    count = len(over) // WINDOW
    shares: FloatArray = np.expm1(over[: count * WINDOW].reshape(count, WINDOW).mean(axis=1))
    return shares


def text(rows: Sequence[Row]) -> str:
    """Return a table for each unit and reference: controllers by case."""
    shown = []
    for unit in (UNITS, SECONDS):
        for key, title in {
            "settled": "lost to the best fixed plan of each phase, nothing changes, after its first quarter",
            "worst": "the same, the worst of five seeds",
            "still": "with the first quarter, mean of the seeds",
            "moving": "lost to the best fixed plan of each phase, something changes",
            "constant": "lost to the best constant plan of the log, all batches",
        }.items():
            shown.append(f"{title}, in {unit}\n{grid([row for row in rows if row['unit'] == unit], key)}")
    return "\n\n".join(shown)


def grid(rows: Sequence[Row], key: str) -> str:
    """Return a number of each controller (lines) by case (columns)."""
    cases = [case for case in dict.fromkeys(row["case"] for row in rows)
             if any(row[key] is not None for row in rows if row["case"] == case)]  # fmt: skip
    lines: dict[str, Row] = {}
    for row in rows:
        line = lines.setdefault(row["controller"], {"controller": row["controller"]})
        if row[key] is not None:
            line[row["case"]] = f"{100 * row[key]:.1f} %"
    return table(list(lines.values()), {"controller": ""} | {case: case for case in cases})


def verdicts(rows: Sequence[Row]) -> str:
    """Return whether our controller meets its targets, case by case."""
    said = []
    for row in rows:
        if row["controller"] == OURS:
            for key, target in (("settled", SETTLED), ("moving", MOVING)):
                if row[key] is not None:
                    met = outcome(row[key] <= target)
                    said.append(f"{row['case']}, {row['unit']}, {key}: {100 * row[key]:.1f} % "
                                f"(at most {100 * target:.0f} %): {met}")  # fmt: skip
    return "\n".join(said)


def draw(rows: Sequence[Row], logs: Mapping[str, Log]) -> Figure:
    """Draw the losses of some controllers along each log, in seconds."""
    figure = Figure(figsize=(13, 9), layout="constrained")
    shown = (OURS, "plans, N = 16", "plans, statistical", "discounted Thompson", "best constant")
    panels = figure.subplots(-(-len(logs) // 3), 3, squeeze=False).flat
    for axes, (case, log) in zip(panels, logs.items(), strict=False):
        for place, name in enumerate(shown):
            row = next(r for r in rows if (r["case"], r["unit"], r["controller"]) == (case, SECONDS, name))
            over = 100 * np.array(row["series"])
            batches = WINDOW * (np.arange(len(over)) + 0.5)
            axes.plot(batches, over, "-", color=f"C{place}", lw=2.5 if name == OURS else 1, label=name)
        moving = np.flatnonzero(log.moving)
        if len(moving):
            for piece in np.split(moving, np.flatnonzero(np.diff(moving) > 1) + 1):
                axes.axvspan(piece[0], piece[-1] + 1, color="0.92")
        axes.axhline(0, color="k", lw=0.5)
        axes.set(title=fill(log.about["title"], 52), xlabel="batch", ylim=(-20, 120))
        axes.title.set_fontsize(8.5)
    for axes in list(figure.axes)[len(logs) :]:
        axes.set_axis_off()
    figure.axes[0].set_ylabel("lost to the best fixed plan, %")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(shown))
    figure.suptitle("response time, mean of 20 batches; grey: something changes")
    return figure


def main(arguments: Sequence[str]) -> int:
    """Compare controllers from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments controllers",
        description="Compare controllers on logs of batches that every plan has run; see `record`.",
    )
    add = parser.add_argument
    add("--logs", type=Path, default=KEPT, help="folder of logs (the kept ones)")
    add("--out", type=Path, default=Path("out/controllers"), help="folder (%(default)s)")
    add("--calibrate", action="store_true", help="only fit the model of the costs to each log")
    given = parser.parse_args(arguments)
    paths = sorted(given.logs.glob("*.npz"))
    if not paths:
        parser.error(f"no logs in {given.logs}: make them with `python -m experiments record`")
    try:
        logs = {log.about["case"]: log for log in map(Log.read, paths)}
    except ResultError as error:
        parser.error(str(error))
    if given.calibrate:
        print(f"microseconds\n{calibration(logs.values())}")
        return 0
    rows: list[Row] = []
    for log in logs.values():
        for unit in log.judged_in:
            rows += measure(log, unit)
    print(machine.one_line())
    print(f"{text(rows)}\n\n{verdicts(rows)}")
    settings: dict[str, Any] = {name: log.about for name, log in logs.items()}
    keep(given.out / "contest.json", "controllers", settings, rows)
    save_picture(draw(rows, logs), given.out / "contest.png", dpi=150)
    print(f"kept in {given.out}")
    return 0
