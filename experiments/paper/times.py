"""Times of all plans on the same batches while the index grows. Figure 4-a is made of them.

At each size, every batch is run by every plan. So all that is compared is compared on the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from experiments.paper import confidence
from experiments.paper.index import GrowingFilter
from experiments.paper.plans import have_groups, level_of, mark, shown
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import SETTINGS
from experiments.paper.timing import compared, measured, response
from experiments.paper.verdicts import Claim
from rtfilter.replay.output import Row, table

NAME = "times"


def measure(run: Run) -> None:
    """Grow the index; at each size, time all plans."""
    index = GrowingFilter(run.setting, run.seed)
    for piece in run.pieces({f"at {size}": float(size) for size in run.profile.sizes}):
        size = int(piece.removeprefix("at "))
        index.grow(size)
        row = measured(run, index, run.profile.batch, every=True)
        run.keep(piece, [{"kind": "seconds", "size": size, **row}])


def logged(run: Run) -> list[Row]:
    """Return the rows of this experiment for another's setting, after it has measured missing ones."""
    if run.setting.transformed:
        return []
    path = run.path.with_name(f"{NAME}-{run.setting.name}.json")
    # The machine as it was described before this process was kept to one core.
    own = Run(NAME, run.setting, run.profile, run.seed, path, machine=run.machine)
    try:
        measure(own)
    finally:
        own.close()
    return own.rows


def by_size(rows: Sequence[Row], sizes: Sequence[int]) -> list[Row]:
    """Return the rows of some sizes, in their order."""
    found = {row["size"]: row for row in rows if row["kind"] == "seconds"}
    return [found[size] for size in sizes if size in found]


def text(rows: Sequence[Row]) -> str:
    """Return medians by plan, and what the best plans gain in three orders, as tables."""
    own = sorted((row for row in rows if row["kind"] == "seconds"), key=lambda row: row["size"])
    grouped = have_groups(own[-1]["plans"])
    lines: list[Row] = []
    gains: list[Row] = []
    for row in own:
        middle = {name: 1e3 * float(np.median(row["times"][name])) for name in row["plans"]}
        lines.append({"size": row["size"], "batches": len(response(row)), **middle})
        for which in dict.fromkeys(("judged", "best")):
            found = compared(row, which)
            if which == "best" and found["plan"] == gains[-1]["name"]:
                continue
            gains.append(
                {
                    "size": row["size"],
                    "name": found["plan"],
                    "plan": shown(found["plan"], grouped),
                    **{key: interval(found[key]) for key in ("gain", "fifo", "longest", "share")},
                }
            )
    plans = list(dict.fromkeys(name for row in own for name in row["plans"]))
    parts = []
    for start in range(0, len(plans), 8):
        columns = {name: shown(name, grouped) for name in plans[start : start + 8]}
        parts.append(table(lines, {"size": "ms by plan", "batches": "batches"} | columns))
    headings = {"size": "gain by size", "plan": "plan", "gain": "shortest first"}
    headings |= {"fifo": "arrival order", "longest": "longest first", "share": "estimate"}
    return "\n\n".join([*parts, table(gains, headings)])


def interval(found: Sequence[float]) -> str:
    """Return an interval as text, in percent."""
    value, low, high = found
    return f"{percent(value)} ({100 * low:.0f}..{100 * high:.0f})"


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return no claims: other experiments judge these times."""
    del rows
    return []


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the median response by level with its best group, one line per size; and the orders by size."""
    own = sorted((row for row in rows if row["kind"] == "seconds"), key=lambda row: row["size"])
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    figure.suptitle(title)
    left, right = figure.subplots(1, 2)
    height = max(row["height"] for row in own)
    for row, color in zip(own, colormaps["viridis"](np.linspace(0, 0.9, len(own))), strict=True):
        best: dict[int, confidence.Interval] = {}
        for name in row["plans"]:
            found = confidence.middle(row["times"][name])
            level = level_of(name)
            best[level] = min(best.get(level, found), found)
        value, low, high = 1e3 * np.array(list(best.values())).T
        left.plot(list(best), value, ".-", color=color, label=f"{row['size'] / 1e6:g} million")
        left.fill_between(list(best), low, high, color=color, alpha=0.15, lw=0)
    mark(left, height)
    left.set(xlabel="level", ylabel=f"median response of {own[0]['batch']} events, ms", yscale="log")
    size = [row["size"] / 1e6 for row in own]
    grouped = have_groups(own[0]["plans"])
    for which, style in {"judged": "-"}.items() if grouped else {"judged": "-", "best": "--"}.items():
        gains = [compared(row, which) for row in own]
        what = "" if grouped else "in range, " if which == "judged" else "all levels, "
        for place, (key, order) in enumerate(ORDER_NAMES.items()):
            value, low, high = 100 * np.array([each[key] for each in gains]).T
            right.plot(size, value, style, marker=".", color=f"C{place}", label=f"{what}{order}")
            right.fill_between(size, low, high, color=f"C{place}", alpha=0.15, lw=0)
    right.set(xlabel="million subscriptions", ylabel="gain of the best plan in time, %")
    for axes, columns in ((left, 4), (right, 2)):
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=columns)
    return figure


ORDER_NAMES = {"gain": "shortest first", "fifo": "arrival order", "longest": "longest first"}
"""The three orders by their keys in `timing.compared`."""
EXPERIMENT = Experiment(NAME, "times of all plans while the index grows", measure, text, claims, draw)
SETTING_NAMES = tuple(name for name, setting in SETTINGS.items() if not setting.transformed)
main = partial(main, EXPERIMENT, SETTING_NAMES)
