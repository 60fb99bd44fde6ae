"""What controllers lose to the best plan in long runs in which the data change. This is not in the paper.

Phases without any change take turns with phases that change something: subscriptions turn from narrow to
wide, their number grows, it shrinks, batches become smaller. All controllers get the same batches; responses
are in work units. The regret is the mean response divided by that of the best plan, minus 1. The best plan of
a step is the one with the smallest mean response on the batches of the step, which is known only afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.paper import confidence
from experiments.paper.index import Levels
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import GROUPS, Profile, Setting
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import Work, work
from rtfilter.adaptive import Controller, EarlyStop, FixedPlan, LevelController, PlanController
from rtfilter.index.tree import RStarTree
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import BoxWorkload
from rtfilter.replay.workloads.boxes import narrow, wide

STILL, MOVING = 0.03, 0.1
"""Targets: largest mean regret while nothing changes, and while something does."""
GROWN, SHRUNK = 3.0, 0.5
"""Largest and last number of subscriptions, as multiples of the first."""
THRESHOLD = 0.5
"""Number of updates after which controllers search again, as a multiple of the first number too."""
TOLERANCE = 0.01
"""Tolerance of the controller that stops early: it need not tell equal plans apart."""
WIDE = 1 << 40
"""Smallest id of a wide box; narrow boxes have smaller ids."""
STATISTICAL = "statistical"
"""Name of the controller that stops early."""


class Phase(NamedTuple):
    """A part of the run. The numbers are reached at its end, in equal steps."""

    name: str
    moving: bool
    narrow: float
    """Narrow subscriptions, as a multiple of the first number of subscriptions."""
    wide: float
    """Wide ones, as a multiple too."""
    batch: int


PHASES = (
    Phase("narrow", False, 1, 0, 64),
    Phase("narrow to wide", True, 0, 1, 64),
    Phase("wide", False, 0, 1, 64),
    Phase("growing", True, 0, GROWN, 64),
    Phase("grown", False, 0, GROWN, 64),
    Phase("shrinking", True, 0, SHRUNK, 64),
    Phase("shrunk", False, 0, SHRUNK, 64),
    Phase("smaller batches", True, 0, SHRUNK, 8),
    Phase("small batches", False, 0, SHRUNK, 8),
)


class Step(NamedTuple):
    """A step of a phase: updates, then batches."""

    phase: Phase
    updates: int
    batch: int
    height: int
    work: Work


class Shifting:
    """An index of narrow and wide boxes. The oldest boxes are deleted first."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.tree = RStarTree(12, setting.capacity)
        self._sources: tuple[tuple[BoxWorkload, int], ...] = ((narrow(seed), 0), (wide(seed), WIDE))
        self._held = [(0, 0), (0, 0)]  # first and last row of each

    def become(self, counts: Sequence[int]) -> int:
        """Insert and delete boxes until there are so many narrow and wide ones; the number of updates."""
        updates = 0
        for kind, ((source, base), count) in enumerate(zip(self._sources, counts, strict=True)):
            first, last = self._held[kind]
            more, fewer = max(count - (last - first), 0), max(last - first - count, 0)
            ids = base + np.arange(last, last + more)
            if more:
                self.tree.insert_many(ids, *source.subscriptions(last, more))
            self.tree.delete_many(base + np.arange(first, first + fewer))
            self._held[kind] = first + fewer, last + more
            updates += more + fewer
        return updates


def steps(setting: Setting, profile: Profile, seed: int) -> Iterator[Step]:
    """The steps of a run, with the work of each batch by each plan."""
    index, events, at = Shifting(setting, seed), wide(seed), 0
    begin = PHASES[0]
    for phase in PHASES:
        for turn in range(1, profile.long_steps + 1):
            share = turn / profile.long_steps if phase.moving else 1.0
            mixed = [
                round(profile.long_boxes * (a + (b - a) * share))
                for a, b in zip(begin[2:4], phase[2:4], strict=True)
            ]
            updates = index.become(mixed)
            batch = 1 << round(np.log2(begin.batch) + np.log2(phase.batch / begin.batch) * share)
            count = profile.long_batches
            points = events.events(at, count * batch).reshape(count, batch, -1)
            at += count * batch
            found = work(setting, Levels.of(index.tree), points)
            yield Step(phase, updates, batch, index.tree.height, found)
        begin = phase


def controllers(setting: Setting, profile: Profile) -> dict[str, Controller]:
    """The controllers that are compared, by name: one per N, the one that stops early, and fixed plans."""
    threshold = round(THRESHOLD * profile.long_boxes)
    make: Callable[..., Controller] = LevelController
    fixed = {"level 0": FixedPlan(0, 1), "level 2": FixedPlan(2, 1)}
    if setting.grouped:
        make = partial(PlanController, groups=GROUPS)
        fixed = {"one by one": FixedPlan(0, 1), "whole batch": FixedPlan(0, None)}
    most = profile.rounds[-1]
    made: dict[str, Controller] = {
        f"N = {count}": make(rounds=count, threshold=threshold) for count in profile.rounds
    }
    made[STATISTICAL] = make(rounds=most, threshold=threshold, tolerance=TOLERANCE, early_stop=EarlyStop())
    return made | fixed


class Lost(NamedTuple):
    """What one controller lost in one step."""

    phase: Phase
    regret: float
    settled: float
    """The regret of the batches in STABLE mode only; NaN without such batches."""
    probing: float
    """Share of the batches in UNSTABLE mode."""


def follow(own: Controller, run: Sequence[Step]) -> list[Lost]:
    """Let a controller choose the plans of all batches of a run; what it lost in each step."""
    lost = []
    for step in run:
        own.on_update(step.updates)
        found = step.work
        column = {plan: p for p, plan in enumerate(found.plans)}
        best = found.response[:, found.response.mean(axis=0).argmin()]
        taken, probing = np.empty(len(best)), np.empty(len(best), bool)
        for row in range(len(best)):
            ticket = own.plan(step.batch, step.height)
            taken[row] = found.response[row, column[ticket.plan]]
            probing[row] = ticket.episode != 0
            own.report(ticket, float(taken[row]))
        settled = float("nan")
        if not probing.all():
            settled = taken[~probing].mean() / best[~probing].mean() - 1
        lost.append(Lost(step.phase, taken.mean() / best.mean() - 1, settled, probing.mean()))
    return lost


def measure(run: Run) -> None:
    """Make several runs with other subscriptions and events; each is a piece."""
    repeats = range(run.profile.long_repeats)
    for piece in run.pieces({f"run {repeat}": 1.0 for repeat in repeats}):
        seed = run.seed + int(piece.split()[-1])
        done: list[Step] = []
        for step in steps(run.setting, run.profile, seed):
            done.append(step)
            run.tell(f"{piece}: {step.phase.name}")
            run.advance(1 / (len(PHASES) * run.profile.long_steps))
        rows = []
        for name, own in controllers(run.setting, run.profile).items():
            lost = follow(own, done)
            rows.append({"controller": name, **totals(lost), "series": [each.regret for each in lost]})
        run.keep(piece, rows)


def totals(lost: Sequence[Lost]) -> Row:
    """The mean regrets over the steps of a run."""

    def mean(values: Sequence[float]) -> float | None:
        known = [value for value in values if not np.isnan(value)]
        return fmean(known) if known else None

    still, moving = ([each for each in lost if each.phase.moving == moves] for moves in (False, True))
    return {
        "still": mean([each.regret for each in still]),
        "settled": mean([each.settled for each in still]),
        "moving": mean([each.regret for each in moving]),
        "probing": fmean(each.probing for each in lost),
        "phases": {
            phase.name: fmean(each.regret for each in lost if each.phase == phase) for phase in PHASES
        },
    }


def by_controller(rows: Sequence[Row]) -> Mapping[str, Sequence[Row]]:
    """The rows by controller, one per run."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["controller"], []).append(row)
    return found


def _share(own: Sequence[Row], key: str) -> confidence.Interval | None:
    values = [row[key] for row in own if row[key] is not None]
    return confidence.mean(values) if values else None


def text(rows: Sequence[Row]) -> str:
    """The mean regret of each controller, in all and by phase, as tables."""
    lines, phases = [], []
    for name, own in by_controller(rows).items():
        line: Row = {"controller": name}
        for key in ("still", "settled", "moving", "probing"):
            found = _share(own, key)
            line[key] = "" if found is None else f"{found.value:.1%} ({found.low:.1%}..{found.high:.1%})"
        lines.append(line)
        means = {phase.name: fmean(row["phases"][phase.name] for row in own) for phase in PHASES}
        phases.append({"controller": name} | {key: f"{value:.1%}" for key, value in means.items()})
    columns = {
        "controller": "controller",
        "still": "nothing changes",
        "settled": "same, once settled",
        "moving": "something changes",
        "probing": "batches of a search",
    }
    names = {"controller": "regret by phase"} | {phase.name: phase.name for phase in PHASES}
    return f"{table(lines, columns)}\n\n{table(phases, names)}"


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Whether each controller meets our own targets."""
    made = []
    for name, own in by_controller(rows).items():
        if not is_adaptive(name):
            continue
        still, moving = (fmean(row[key] for row in own) for key in ("still", "moving"))
        settled = _share(own, "settled")
        met = [still < STILL, moving < MOVING]
        made.append(
            Claim(
                f"{name}: regret below {percent(STILL)} while nothing changes, below {percent(MOVING)} while "
                "something does",
                "our target",
                Finding(
                    f"{percent(still, 1)} ({percent(settled.value, 1) if settled else 'never'} settled), "
                    f"{percent(moving, 1)}",
                    "holds" if all(met) else "partly" if any(met) else "fails",
                ),
                NOT_TIMED,
            )
        )
    return made


def is_adaptive(name: str) -> bool:
    """Whether a controller of this name searches for its plan."""
    return name.startswith("N =") or name == STATISTICAL


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the regret by step: the mean of the runs and, for controllers that search, the range."""
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots()
    length = len(rows[0]["series"]) // len(PHASES)
    for name, own in by_controller(rows).items():
        series = 100 * np.array([row["series"] for row in own])
        line = axes.plot(series.mean(axis=0), "-" if is_adaptive(name) else ":", lw=1, label=name)[0]
        if is_adaptive(name):
            low, high = series.min(axis=0), series.max(axis=0)
            axes.fill_between(range(len(low)), low, high, color=line.get_color(), alpha=0.15, lw=0)
    for place, phase in enumerate(PHASES):
        if phase.moving:
            axes.axvspan(place * length, (place + 1) * length, color="0.92")
        axes.text((place + 0.5) * length, 1.01, phase.name, transform=axes.get_xaxis_transform(),
                  ha="center", fontsize=8)  # fmt: skip
    axes.set(xlabel="step", ylabel="regret, %", ylim=(0, 60), xlim=(0, len(PHASES) * length))
    axes.legend(fontsize=8, loc="upper right")
    return figure


EXPERIMENT = Experiment("regret", "controllers while the data shift", measure, text, claims, draw)
SETTING_NAMES = ("paper", "modern")
main = partial(main, EXPERIMENT, SETTING_NAMES)
