"""Figure 4-a of the paper: the best level while the index grows. Claim: it changes slowly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from experiments.paper import confidence, times, verdicts
from experiments.paper.confidence import Interval
from experiments.paper.index import growing
from experiments.paper.plans import (
    group_of,
    have_groups,
    judged,
    level_of,
    mark,
    mark_best,
    rung_of,
    shown,
)  # fmt: skip
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import SETTINGS
from experiments.paper.timing import response, share
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import Work, work
from experiments.response.bursts import label
from rtfilter.basics.dtypes import FloatArray
from rtfilter.replay.output import Row, table


def measure(run: Run) -> None:
    """Grow the index. At each size, count the work of each plan by batch size; times are those of `times`."""
    logged = times.logged(run)
    index, profile = growing(run.setting, run.seed), run.profile
    costs = {}
    for size in profile.sizes:
        costs[f"visits at {size}"] = float(size)
        if logged:
            costs[f"seconds at {size}"] = 1.0
    for piece in run.pieces(costs):
        unit, there = piece.split(" at ")
        if unit == "visits":
            index.grow(int(there))
            levels = index.levels()
            points = index.points(0, profile.batches * max(profile.batch_sizes))
            rows = []
            for batch in profile.batch_sizes:
                chosen = points[: profile.batches * batch].reshape(profile.batches, batch, -1)
                rows.append(summary(batch, work(run.setting, levels, chosen)))
        else:
            rows = [in_seconds(row) for row in times.by_size(logged, [int(there)])]
        run.keep(piece, [{"kind": unit, "size": int(there), **row} for row in rows])


def summary(batch: int, found: Work) -> Row:
    """Return a row with the mean responses of one batch size by plan, in work units."""
    names = [label(plan, batch) for plan in found.plans]
    spent = found.estimation.mean(axis=0) / found.response.mean(axis=0)
    return {"batch": batch, "share": spent.tolist()} | by_plan(names, found.response, confidence.mean)


def in_seconds(row: Row) -> Row:
    """Return a row with the median responses of one batch size by plan, in seconds."""
    shares = [share(row, name).value for name in row["plans"]]
    return {"batch": row["batch"], "share": shares} | by_plan(row["plans"], response(row), confidence.middle)


def by_plan(names: Sequence[str], taken: FloatArray, center: Callable[[ArrayLike], Interval]) -> Row:
    """Return a row for responses (b, p) of b batches by p plans: their centers, and the best plans.

    Returns
    -------
    Row
        The best of ``all`` plans, and of the plans in the paper's range (``judged``), see `best_of`.
    """
    means = [center(column) for column in taken.T]
    height = 1 + max(level_of(name) for name in names)
    among = {"all": list(names), "judged": judged(names, height)}
    return {
        "plans": list(names),
        "height": height,
        "mean": [own.value for own in means],
        "low": [own.low for own in means],
        "high": [own.high for own in means],
        **{key: best_of(names, taken, center, chosen) for key, chosen in among.items()},
    }


def best_of(
    names: Sequence[str], taken: FloatArray, center: Callable[[ArrayLike], Interval], among: Sequence[str]
) -> Row:
    """Return the best plan among some, those that are equal to it, and those of which that is not known.

    Batches differ far more than plans do. So plans are compared batch by batch.
    """
    columns = [list(names).index(name) for name in among]
    best = min(columns, key=lambda p: center(taken[:, p]).value)
    over = {names[p]: confidence.slower(taken[:, p], taken[:, best]) for p in columns}
    return {
        "best": names[best],
        "equal": [name for name, excess in over.items() if excess.high <= verdicts.SAME],
        "unknown": [name for name, excess in over.items() if excess.low <= verdicts.SAME < excess.high],
        "votes": float((taken[:, columns].argmin(axis=1) == columns.index(best)).mean()),
    }


def is_grouped(rows: Sequence[Row]) -> bool:
    """Return whether the plans of a result have groups."""
    return have_groups(name for row in rows if row["batch"] > 1 for name in row["plans"])


def of(rows: Sequence[Row], kind: str) -> list[Row]:
    """Return the rows of a kind, for batches of 2 or more, sorted by size."""
    return sorted((r for r in rows if r["kind"] == kind and r["batch"] > 1), key=lambda row: row["size"])


def text(rows: Sequence[Row]) -> str:
    """Return the best plan by index size and batch size, as a table."""
    grouped = is_grouped(rows)
    lines: dict[int, Row] = {}
    for row in of(rows, "visits"):
        line = lines.setdefault(row["size"], {"size": row["size"], "height": row["height"]})
        line[str(row["batch"])] = shown(row["judged"]["best"], grouped)
    for row in of(rows, "seconds"):
        lines[row["size"]]["judged"] = shown(row["judged"]["best"], grouped)
        lines[row["size"]]["all"] = shown(row["all"]["best"], grouped)
    batches = list(dict.fromkeys(str(row["batch"]) for row in of(rows, "visits")))
    columns = {"size": "subscriptions", "height": "height"} | {size: size for size in batches}
    if of(rows, "seconds"):
        timed = of(rows, "seconds")[0]["batch"]
        if not grouped:
            columns["judged"] = f"in time, {timed}"
        columns["all"] = "time, all" if not grouped else f"in time, {timed}"
    what = "level/group" if grouped else "level of the paper's range"
    return f"best {what} by subscriptions and batch size, in work units\n" + table(
        list(lines.values()), columns
    )


class Moves(NamedTuple):
    """The moves of the best plan from each size to the next, over all batch sizes."""

    known: list[int]
    """The distance of each known move."""
    unknown: int
    """Number of the other steps: the plan before is neither surely equal to the best one nor surely worse."""

    def text(self) -> str:
        """Return the moves as text."""
        moved, far = sum(step > 0 for step in self.known), sum(step > 1 for step in self.known)
        unknown = f", {self.unknown} not told apart" if self.unknown else ""
        more = f" ({far} by more than one)" if far else ""
        return f"moved in {moved} of {len(self.known) + self.unknown} steps{more}{unknown}"


def moves(rows: Sequence[Row], read: Callable[[str], int], among: str) -> Moves:
    """Return the moves of the best plan. A plan stays as long as it is surely equal to the best one."""
    known, unknown = [], 0
    for batch in sorted({row["batch"] for row in rows}):
        held = ""
        for row in sorted((r for r in rows if r["batch"] == batch), key=lambda row: row["size"]):
            found = row[among]
            if held in found["unknown"]:
                unknown += 1
                continue
            best = held if held in found["equal"] else found["best"]
            if held:
                known.append(abs(read(best) - read(held)))
            held = best
    return Moves(known, unknown)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims: whether the best level changes slowly, and how the share of the estimate changes."""
    made = [_slowly(rows, "level", level_of)]
    if is_grouped(rows):
        made.append(_slowly(rows, "group", rung_of))
    single = Claim(
        "the plan that is best on average is best for single batches",
        "assumed",
        _votes(of(rows, "visits")),
        _votes(of(rows, "seconds")),
    )
    return [*made, single, *([] if is_grouped(rows) else [_falling(rows)])]


def _slowly(rows: Sequence[Row], what: str, read: Callable[[str], int]) -> Claim:
    found = []
    for kind in ("visits", "seconds"):
        own = of(rows, kind)
        if not own:
            found.append(NOT_TIMED)
            continue
        moved = moves(own, read, "judged")
        every = moves(own, read, "all")
        told = moved.text() + ("" if every == moved else f"; with all levels {every.text()}")
        verdict = verdicts.slowly(*moved)
        if verdict != verdicts.DOES_NOT_APPLY and pinned(own, read):
            sizes = len({row["size"] for row in own})
            told = f"at all {sizes} sizes one end of the range may be best, and hold it"
            verdict = verdicts.CANNOT
        found.append(Finding(told, verdict))
    return Claim(f"the best {what} changes slowly with the index", "slowly", *found)


def pinned(rows: Sequence[Row], read: Callable[[str], int]) -> bool:
    """Return whether one end of the range is best in all rows, or may be: this shows no moves."""
    at_ends = []
    for row in rows:
        allowed = [read(name) for name in judged(row["plans"], row["height"])]
        found = row["judged"]
        best = {read(name) for name in (found["best"], *found["equal"], *found["unknown"])}
        at_ends.append((min(allowed) in best, max(allowed) in best))
    return any(all(at_end) for at_end in zip(*at_ends, strict=True))


def _votes(rows: Sequence[Row]) -> Finding:
    if not rows:
        return NOT_TIMED
    kept = median(row["judged"]["votes"] for row in rows)
    return Finding(f"for {percent(kept)} of them (median over sizes)", verdicts.OBSERVED)


def _falling(rows: Sequence[Row]) -> Claim:
    """Return the share of the estimate at the level that is best in work units for the largest index."""
    units = of(rows, "visits")
    batches = sorted({row["batch"] for row in units})
    middle = [row for row in units if row["batch"] == batches[len(batches) // 2]]
    level = max(level_of(middle[-1]["judged"]["best"]), 1)
    found = []
    for own in (middle, of(rows, "seconds")):
        shares = [row["share"][level] for row in own if level < row["height"]]
        if len(shares) < 2:
            found.append(NOT_TIMED)
            continue
        verdict = verdicts.falling(shares)
        found.append(Finding(f"level {level}: {percent(shares[0], 1)} to {percent(shares[-1], 1)}", verdict))
    return Claim("at a fixed level, the share of the estimate falls as the index grows", "", *found)


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the best level (and group) by index size, and how much worse the other levels are."""
    visits, seconds = of(rows, "visits"), of(rows, "seconds")
    tuned: dict[str, Callable[[str], int]] = {"level": level_of}
    if is_grouped(rows):
        tuned["group"] = group_of
    figure = Figure(figsize=(5 * (1 + len(tuned)), 4.4), layout="constrained")
    figure.suptitle(title)
    best, near = figure.subplots(1, 1 + len(tuned))[:-1], figure.axes[-1]
    for axes, (what, read) in zip(best, tuned.items(), strict=True):
        _by_size(axes, visits, seconds, read)
        axes.set(xlabel="million subscriptions", ylabel=f"best {what}")
    mark_best(best[0], [row["height"] for row in visits])
    for axes in best[1:]:
        axes.set_yscale("log", base=2)
    batches = sorted({row["batch"] for row in visits})
    middle = seconds[0]["batch"] if seconds else batches[len(batches) // 2]
    sizes = sorted({row["size"] for row in visits})
    for size, color in zip(sizes, _colors(len(sizes)), strict=True):
        row = next(row for row in visits if (row["size"], row["batch"]) == (size, middle))
        draw_levels(near, row, color, f"{size / 1e6:g} million")
    near.set(xlabel="level", ylabel=f"mean work of {middle} events / best")
    mark(near, max(row["height"] for row in visits))
    for axes in (*best, near):
        axes.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure


def _by_size(axes: Axes, visits: Sequence[Row], seconds: Sequence[Row], read: Callable[[str], int]) -> None:
    """Draw what `read` takes from the best plan, by index size, one line per batch size."""
    batches = sorted({row["batch"] for row in visits})
    for place, (batch, color) in enumerate(zip(batches, _colors(len(batches)), strict=True)):
        own = [(row["size"] / 1e6, read(row["all"]["best"])) for row in visits if row["batch"] == batch]
        size, value = np.array(own).T
        offset = 0.04 * (place - len(batches) / 2)  # so that lines do not hide each other
        axes.plot(size, value + offset, ".-", color=color, label=f"{batch}")
    grouped = is_grouped(visits)
    for key, style in {"judged": "x:", "all": "+--"}.items():
        if seconds and not (grouped and key == "judged"):
            own = [(row["size"] / 1e6, read(row[key]["best"])) for row in seconds]
            what = "" if grouped else ", in range" if key == "judged" else ", of all"
            axes.plot(*np.array(own).T, style, color="tab:red", label=f"{seconds[0]['batch']}, time{what}")


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
