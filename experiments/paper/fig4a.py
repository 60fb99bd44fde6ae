"""Figure 4-a of the paper: the best level while the index grows. Claim: it changes slowly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.paper import confidence, verdicts
from experiments.paper.index import GrowingFilter, growing
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import SETTINGS
from experiments.paper.timing import ARRIVAL, calls, times
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import Work, work
from experiments.response.bursts import label
from rtfilter.dtypes import FloatArray
from rtfilter.replay.output import Row, table

EQUAL = 0.01
"""A plan counts as equal to the best one if it is worse by at most this share."""


def measure(run: Run) -> None:
    """Grow the index. At each size, count the work of each plan by batch size, and time one batch size."""
    index, profile = growing(run.setting, run.seed), run.profile
    costs = {}
    for size in profile.sizes:
        costs[f"visits at {size}"] = float(size)
        if isinstance(index, GrowingFilter):
            costs[f"seconds at {size}"] = 4.0 * size
    for piece in run.pieces(costs):
        unit, there = piece.split(" at ")
        index.grow(int(there))
        if unit == "visits":
            levels = index.levels()
            points = index.points(0, profile.batches * max(profile.batch_sizes))
            rows = []
            for batch in profile.batch_sizes:
                chosen = points[: profile.batches * batch].reshape(profile.batches, batch, -1)
                rows.append(summary(batch, work(run.setting, levels, chosen)))
        else:
            assert isinstance(index, GrowingFilter)
            taken = times(run, index, calls(run, index, profile.batch), profile.batch)
            names = [name for name in taken if name != ARRIVAL]
            response = np.array([taken[name] for name in names]).T
            rows = [{"batch": profile.batch, **by_plan(names, response)}]
        run.keep(piece, [{"kind": unit, "size": int(there), **row} for row in rows])


def summary(batch: int, found: Work) -> Row:
    """A row with the mean responses of one batch size by plan, in work units."""
    names = [label(plan, batch) for plan in found.plans]
    share = found.estimation.mean(axis=0) / found.response.mean(axis=0)
    return {
        "batch": batch,
        "height": 1 + found.plans[-1].level,
        **by_plan(names, found.response),
        "share": share.tolist(),
    }


def by_plan(names: Sequence[str], response: FloatArray) -> Row:
    """A row for responses (b, p) of b batches by p plans: means, the best plan and those equal to it."""
    means = [confidence.mean(column) for column in response.T]
    best = int(np.argmin([own.value for own in means]))
    # Batches differ far more than plans do. So plans are compared batch by batch.
    over = [confidence.mean(response[:, p] / response[:, best] - 1) for p in range(len(names))]
    return {
        "plans": list(names),
        "mean": [own.value for own in means],
        "low": [own.low for own in means],
        "high": [own.high for own in means],
        "best": names[best],
        "equal": [name for name, excess in zip(names, over, strict=True) if excess.low <= EQUAL],
        "votes": float((response.argmin(axis=1) == best).mean()),
    }


def level_of(name: str) -> int:
    """The level in the label of a plan."""
    return int(name.partition("/")[0])


def rung_of(name: str) -> int:
    """The place of the group in the ladder of group sizes; a whole batch counts as a group of its size."""
    return round(math.log(int(name.partition("/")[2]), 4))


def shown(name: str, grouped: bool) -> str:
    """The label of a plan in tables: without groups, only the level."""
    return name if grouped else name.partition("/")[0]


def have_groups(names: Iterable[str]) -> bool:
    """Whether any plan with one of these labels has groups of more than one event."""
    return any(not name.endswith("/1") for name in names)


def is_grouped(rows: Sequence[Row]) -> bool:
    """Whether the plans of a result have groups."""
    return have_groups(name for row in rows if row["batch"] > 1 for name in row["plans"])


def text(rows: Sequence[Row]) -> str:
    """The best plan by index size and batch size, as a table."""
    visits = [row for row in rows if row["kind"] == "visits"]
    grouped = is_grouped(rows)
    lines: dict[int, Row] = {}
    for row in visits:
        line = lines.setdefault(row["size"], {"size": row["size"], "height": row["height"]})
        line[str(row["batch"])] = shown(row["best"], grouped)
    for row in rows:
        if row["kind"] == "seconds":
            lines[row["size"]]["seconds"] = shown(row["best"], grouped)
    sizes = list(dict.fromkeys(str(row["batch"]) for row in visits))
    columns = {"size": "subscriptions", "height": "height"} | {size: size for size in sizes}
    timed = sorted({row["batch"] for row in rows if row["kind"] == "seconds"})
    if timed:
        columns["seconds"] = f"in time, {timed[0]}"
    what = "level/group" if grouped else "level"
    return f"best {what} by subscriptions and batch size, in work units\n" + table(
        list(lines.values()), columns
    )


def moves(rows: Sequence[Row], kind: str, read: Callable[[str], int]) -> list[int]:
    """How far the best plan moves from each size to the next, for all batch sizes of 2 or more.

    A plan stays as long as it is equal to the best one.
    """
    found = []
    for batch in sorted({row["batch"] for row in rows if row["batch"] > 1}):
        own = [row for row in rows if row["batch"] == batch and row["kind"] == kind]
        held = ""
        for row in sorted(own, key=lambda row: row["size"]):
            best = held if held in row["equal"] else row["best"]
            if held:
                found.append(abs(read(best) - read(held)))
            held = best
    return found


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Whether the best level changes slowly, and how the share of the estimate changes."""
    made = [_slowly(rows, "level", level_of)]
    if is_grouped(rows):
        made.append(_slowly(rows, "group", rung_of))
    kept = median(row["votes"] for row in rows if row["kind"] == "visits" and row["batch"] > 1)
    single = f"for {percent(kept)} of them (median over sizes)"
    return [
        *made,
        Claim(
            "the plan that is best on average is best for single batches",
            "assumed",
            Finding(single, "observed"),
            NOT_TIMED,
        ),
        *([] if is_grouped(rows) else [_falling(rows)]),
    ]


def _slowly(rows: Sequence[Row], what: str, read: Callable[[str], int]) -> Claim:
    units, seconds = moves(rows, "visits", read), moves(rows, "seconds", read)
    ours = f"in {len(units)} steps from size to size it moved {_counted(units)}"
    if seconds:
        ours += f"; in time, in {len(seconds)} steps {_counted(seconds)}"
    return Claim(
        f"the best {what} changes slowly with the index",
        "slowly",
        Finding(ours, verdicts.slowly(units)),
        NOT_TIMED,
    )


def _counted(steps: Sequence[int]) -> str:
    once, more = sum(step == 1 for step in steps), sum(step > 1 for step in steps)
    return f"{once} times by one and {more} times by more"


def _falling(rows: Sequence[Row]) -> Claim:
    """The share of the estimate at the level that is best for the largest index and the middle batch size."""
    units = [row for row in rows if row["kind"] == "visits"]
    batches = sorted({row["batch"] for row in units})
    own = sorted(
        (row for row in units if row["batch"] == batches[len(batches) // 2]), key=lambda row: row["size"]
    )
    level = max(level_of(own[-1]["best"]), 1)
    shares = [row["share"][level] for row in own if level < row["height"]]
    return Claim(
        "at a fixed level, the share of the estimate falls as the index grows",
        "not claimed",
        Finding(
            f"level {level}: {percent(shares[0], 1)} to {percent(shares[-1], 1)}",
            "holds"
            if shares[-1] < 0.9 * shares[0]
            else "partly"
            if shares[-1] < 1.1 * shares[0]
            else "fails",
        ),
        NOT_TIMED,
    )


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the best level (and group) by index size, and how much worse the other levels are."""
    visits = [row for row in rows if row["kind"] == "visits" and row["batch"] > 1]
    seconds = [row for row in rows if row["kind"] == "seconds"]
    tuned: dict[str, Callable[[str], int]] = {"level": level_of}
    if is_grouped(rows):
        tuned["group"] = lambda name: int(name.partition("/")[2])
    figure = Figure(figsize=(5.5 * (1 + len(tuned)), 4), layout="constrained")
    figure.suptitle(title)
    *best, near = figure.subplots(1, 1 + len(tuned))
    for axes, (what, read) in zip(best, tuned.items(), strict=True):
        _by_size(axes, visits, seconds, read)
        axes.set(xlabel="million subscriptions", ylabel=f"best {what}")
        axes.legend(fontsize=7, ncols=2)
    best[0].set_yticks(range(max(row["height"] for row in visits)))
    for axes in best[1:]:
        axes.set_yscale("log", base=2)
    batches = sorted({row["batch"] for row in visits})
    middle = seconds[0]["batch"] if seconds else batches[len(batches) // 2]
    sizes = sorted({row["size"] for row in visits})
    for size, color in zip(sizes, _colors(len(sizes)), strict=True):
        row = next(row for row in visits if (row["size"], row["batch"]) == (size, middle))
        draw_levels(near, row, color, f"{size / 1e6:g} million")
    near.set(xlabel="level", ylabel=f"mean response of {middle} events / best", yscale="log")
    near.legend(fontsize=7)
    return figure


def _by_size(axes: Axes, visits: Sequence[Row], seconds: Sequence[Row], read: Callable[[str], int]) -> None:
    """Draw what `read` takes from the best plan, by index size, one line per batch size."""
    batches = sorted({row["batch"] for row in visits})
    for place, (batch, color) in enumerate(zip(batches, _colors(len(batches)), strict=True)):
        own = sorted((row["size"] / 1e6, read(row["best"])) for row in visits if row["batch"] == batch)
        size, value = np.array(own).T
        offset = 0.04 * (place - len(batches) / 2)  # so that lines do not hide each other
        axes.plot(size, value + offset, ".-", color=color, label=f"{batch} events")
    if seconds:
        own = sorted((row["size"] / 1e6, read(row["best"])) for row in seconds)
        axes.plot(*np.array(own).T, "x:", color="tab:red", label=f"{seconds[0]['batch']} events, time")


def _colors(count: int) -> FloatArray:
    colors: FloatArray = colormaps["viridis"](np.linspace(0, 0.9, count))
    return colors


def draw_levels(axes: Axes, row: Row, color: FloatArray, name: str) -> None:
    """Draw mean responses by level (with the best group), as multiples of the best, with intervals."""
    least = min(row["mean"])
    chosen: dict[int, int] = {}
    for p, plan in enumerate(row["plans"]):
        level = level_of(plan)
        if level not in chosen or row["mean"][p] < row["mean"][chosen[level]]:
            chosen[level] = p
    mean, low, high = (
        np.array([row[key][p] for p in chosen.values()]) / least for key in ("mean", "low", "high")
    )
    axes.plot(list(chosen), mean, ".-", color=color, label=name)
    axes.fill_between(list(chosen), low, high, color=color, alpha=0.15, lw=0)


EXPERIMENT = Experiment("fig4a", "best level while the index grows", measure, text, claims, draw)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
