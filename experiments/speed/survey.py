"""Time per event, build time and memory of every peer, by subscriptions, dimensions, batch size and side.

Each variable is varied around one point. Every peer and index has a process and a budget of its own; what
would exceed it is skipped, with the reason. Results are kept one by one: a run with the same --out goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from tqdm import tqdm

from experiments import peers
from experiments.arguments import add_sizes, command, sized
from experiments.output import keep, kept_rows
from experiments.speed import trial
from experiments.speed.trial import Case
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table
from rtfilter.replay.workloads import BOXES

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
    parser = command("peers", __doc__, "quick", "seed", "out", "figure")
    names = list(peers.PEERS)
    parser.add_argument("--peers", nargs="+", choices=names, default=names, help="all by default")
    add_sizes(
        parser,
        FULL,
        subscriptions="numbers of boxes",
        build_seconds="a peer may take to build an index",
        ask_seconds="a peer may take for an event, and for a batch size",
    )
    given = parser.parse_args(arguments)
    plan = sized(given, QUICK, FULL)
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
        draw(rows, given.figure)
    return 0


class Plan(NamedTuple):
    """Points to measure: each variable is varied around the default, all but the side for `varied`."""

    default: int
    """Subscriptions, with each workload's own dimensions and the batch sizes `few`."""
    varied: tuple[str, ...]
    subscriptions: tuple[int, ...]
    dimensions: tuple[int, ...]
    sides: tuple[float, ...]
    batches: tuple[int, ...]
    """At the default point."""
    few: tuple[int, ...]
    """Elsewhere."""
    workloads: tuple[str, ...]
    """Once each at the default number of subscriptions."""
    repeats: int
    build_seconds: float
    ask_seconds: float
    """Both as in `Case`."""

    def cases(self, chosen: Sequence[str], seed: int) -> list[Case]:
        """Return cases of the chosen peers, small indexes first."""
        made: dict[tuple[object, ...], Case] = {}

        def add(workload: str, subscriptions: int, dimensions: int, side: float | None = None) -> None:
            own = workload in self.varied and (subscriptions, dimensions) == (self.default, 12)
            batches = self.batches if own else self.few
            for peer in chosen:
                case = Case(
                    peer, workload, subscriptions, dimensions, side, batches, seed,
                    self.repeats, self.build_seconds, self.ask_seconds,
                )  # fmt: skip
                made.setdefault(case.key, case)

        for name in self.varied:
            for subscriptions in self.subscriptions:
                add(name, subscriptions, 12)
            for dimensions in self.dimensions:
                add(name, self.default, dimensions)
        for side in self.sides:
            add("sided", self.default, 12, side)
        for name in self.workloads:
            add(name, self.default, BOXES[name](seed).dimensions)
        return sorted(made.values(), key=lambda case: case.subscriptions * case.dimensions)


FULL = Plan(
    default=100_000,
    varied=("wide", "narrow"),
    subscriptions=(10_000, 100_000, 1_000_000, 10_000_000),
    dimensions=(2, 4, 8, 12, 24, 48),
    sides=(0.1, 0.25, 0.5, 0.7, 0.8),
    batches=(1, 10, 100, 1000, 10_000),
    few=(1, 1000),
    workloads=tuple(BOXES),
    repeats=5,
    build_seconds=300.0,
    ask_seconds=10.0,
)
QUICK = FULL._replace(
    subscriptions=(10_000, 100_000, 1_000_000),
    dimensions=(),
    sides=(),
    batches=(1, 100, 1000),
    workloads=("geo",),
    repeats=3,
    build_seconds=3.0,
    ask_seconds=0.3,
)


#: Events a call.
BATCH = 1000
APART = 0.052
"""Least distance between the names at the lines, as a share of the panel's height."""


class Panel(NamedTuple):
    """The content of a panel, from the rows of a workload of 12 dimensions."""

    title: str
    workload: str
    measure: str


PANELS = (
    Panel("wide boxes: µs per event", "wide", "us"),
    Panel("narrow boxes: µs per event", "narrow", "us"),
    Panel("wide boxes: µs to build, per box", "wide", "build_us"),
    Panel("wide boxes: bytes per box", "wide", "bytes"),
)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture, 1200 pixels wide."""
    figure = Figure(figsize=(12, 9), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        fixed = {"workload": panel.workload, "dimensions": 12, "batch": BATCH}
        _panel(axes, [row for row in rows if "skipped" not in row and _has(row, fixed)], panel.measure)
        axes.set_title(panel.title, fontsize=13)
    save_picture(figure, path, dpi=100)


def _has(row: Row, fixed: Mapping[str, Any]) -> bool:
    return all(row[key] == value for key, value in fixed.items())


def _panel(axes: Axes, rows: Sequence[Row], measure: str) -> None:
    colors = dict(zip(peers.PEERS, colormaps["tab20"].colors, strict=False))  # type: ignore[attr-defined]
    axes.set(xscale="log", yscale="log", xlabel="subscriptions")
    ends: list[tuple[str, Any, float, float]] = []
    for peer, color in colors.items():
        own = sorted(
            (row["subscriptions"], row[measure])
            for row in rows
            if row["peer"] == peer and row[measure] is not None
        )
        if own:
            axes.plot(*zip(*own, strict=True), ".-", color=color, lw=3.5 if peer == peers.OURS else 1.5)
            ends.append((peer, color, *own[-1]))
    values = sorted({row["subscriptions"] for row in rows})
    axes.set_xticks(values, [_short(value) for value in values])
    axes.minorticks_off()
    low, high = axes.get_ylim()
    if high < 100 * low:  # few powers of ten
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")
    axes.tick_params(labelsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    _name(axes, ends)


def _short(value: int) -> str:
    """Return 10,000 as "10 k", 1,000,000 as "1 M"."""
    for unit, name in ((10**6, " M"), (10**3, " k")):
        if value >= unit and value % unit == 0:
            return f"{value // unit:,}{name}"
    return f"{value:,}"


def _name(axes: Axes, ends: Sequence[tuple[str, Any, float, float]]) -> None:
    """Write the name of each line right of the panel, at the height of its end, and not over another."""
    place = axes.transData + axes.transAxes.inverted()
    wanted = sorted((float(place.transform((x, y))[1]), peer, color, x, y) for peer, color, x, y in ends)
    heights = spread([height for height, *_ in wanted], APART)
    for height, (_, peer, color, x, y) in zip(heights, wanted, strict=True):
        axes.annotate(
            peer,
            (x, y),
            (1.04, height),
            xycoords="data",
            textcoords="axes fraction",
            va="center",
            fontsize=11,
            fontweight="bold" if peer == peers.OURS else "normal",
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "lw": 0.8,
                "alpha": 0.6,
                "shrinkA": 1,
                "shrinkB": 2,
            },
        )


def spread(heights: Sequence[float], apart: float) -> list[float]:
    """Move ascending heights as little as need be so that they are `apart` from each other."""
    groups: list[list[float]] = []  # each: the heights wanted by neighbours that are as near as may be
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _top(groups[-2], apart) + apart > _bottom(groups[-1], apart):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_bottom(group, apart) + apart * place for group in groups for place in range(len(group))]


def _bottom(group: Sequence[float], apart: float) -> float:
    return float(np.mean(group)) - apart * (len(group) - 1) / 2


def _top(group: Sequence[float], apart: float) -> float:
    return float(np.mean(group)) + apart * (len(group) - 1) / 2
