"""Figure 4-b of the paper: the mean response by batch size, with and without batch search.

Claims: batch search is clearly better; the estimate costs next to nothing; the gain grows with the batch; it
is nearly 50 % at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.paper import confidence
from experiments.paper.fig4a import shown
from experiments.paper.index import GrowingFilter, Levels, growing
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import SETTINGS
from experiments.paper.timing import ARRIVAL, call, calls, times
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import Work, work
from experiments.response.bursts import label
from experiments.response.estimates import correlation
from rtfilter.adaptive import FixedPlan, Plan
from rtfilter.replay.output import Row, table
from rtfilter.scheduler import shortest_first

RISING = (2, 256)
"""Batch sizes over which the gain must rise."""
LAW, SHARE = 0.1, 0.15
"""Largest difference of the gain from nG/(n+1), and largest share of the estimate at the best level."""
CORRELATION = 0.9
"""Smallest rank correlation of gain and batch size."""
CLEARLY = 0.1
"""Smallest gain that counts as a clear one."""
FEW = 5
"""Number of batches that the share of the estimate in time is a median of."""
WHOLE = Plan(0, None)
"""The plan of a plain join of the batch, without estimate and order."""


def measure(run: Run) -> None:
    """For each batch size, compare the work and the time of each plan with those of a random order."""
    index, profile = growing(run.setting, run.seed), run.profile
    levels: list[Levels] = []
    costs = {}
    for batch in profile.batch_sizes:
        costs[f"visits of {batch}"] = 20.0 + batch
        if isinstance(index, GrowingFilter):
            costs[f"seconds of {batch}"] = 20.0 + 4.0 * batch
    for piece in run.pieces(costs):
        unit, _, size = piece.split()
        batch = int(size)
        if not levels:
            index.grow(profile.middle)
            levels.append(index.levels())
        if unit == "visits":
            points = index.points(0, profile.batches * batch).reshape(profile.batches, batch, -1)
            row = in_units(work(run.setting, levels[0], points), batch)
        else:
            assert isinstance(index, GrowingFilter)
            row = in_seconds(run, index, batch)
        run.keep(piece, [{"kind": unit, "batch": batch, **row}])


def in_units(found: Work, batch: int) -> Row:
    """A row that compares the best plan of one batch size with a random order, in work units."""
    best = int(found.response.mean(axis=0).argmin())
    own = found.response[:, best]
    alone = [p for p, plan in enumerate(found.plans) if plan.group == 1]
    single = min(alone, key=lambda p: found.response[:, p].mean()) if alone else best
    whole = found.plans.index(WHOLE) if WHOLE in found.plans else None
    return {
        "plan": label(found.plans[best], batch),
        "own": confidence.mean(own),
        "random": confidence.mean(found.random),
        "perfect": confidence.mean(found.perfect),
        "estimation": confidence.mean(found.estimation[:, best]),
        "share": confidence.mean(found.estimation[:, best] / own),
        "gain": confidence.saved(own, found.random),
        "alone": confidence.saved(found.response[:, single], found.random),
        "whole": confidence.saved(found.response[:, whole], found.random) if whole is not None else None,
        "law": float(1 - found.perfect.mean() / found.random.mean()),
    }


def in_seconds(run: Run, index: GrowingFilter, batch: int) -> Row:
    """A row that compares the fastest plan of one batch size with the order of arrival, in seconds.

    The best of many plans is also a lucky one, so it is timed again on other batches. The row also has the
    times of the same plan in the order of arrival, which shares as much of the search, and of the whole batch
    at once.
    """
    by_name = calls(run, index, batch)
    first = times(run, index, by_name, batch)
    plans = {label(plan, batch): plan for plan in run.setting.plans(index.filter.tree.height, batch)}
    best = min(plans, key=lambda name: median(first[name]))
    final = times(
        run,
        index,
        {
            ARRIVAL: by_name[ARRIVAL],
            best: by_name[best],
            "fifo": call(index, plans[best], "fifo"),
            "whole": call(index, WHOLE),
        },
        batch,
        len(first[best]) * batch,
    )
    others = {name: confidence.faster(final[name], final[ARRIVAL]) for name in ("fifo", "whole")}
    return {
        "plan": best,
        "own": confidence.mean(final[best]),
        "random": confidence.mean(final[ARRIVAL]),
        "gain": confidence.faster(final[best], final[ARRIVAL]),
        "order": confidence.faster(final[best], final["fifo"]),
        "estimating": _estimating(index, plans[best], batch),
        **others,
    }


def _estimating(index: GrowingFilter, plan: Plan, batch: int) -> float:
    """Share of the estimate and the order in the mean response, a median of a few batches."""
    index.filter.policy, index.filter.controller = shortest_first, FixedPlan(plan.level, plan.group)
    shares = []
    for turn in range(FEW):
        stream = index.filter.stream(index.events(turn * batch, batch))
        shares.append(stream.estimation / stream.mean_response)
    return median(shares)


def of(rows: Sequence[Row], kind: str) -> list[Row]:
    """The rows of a kind, sorted by batch size."""
    return sorted((row for row in rows if row["kind"] == kind), key=lambda row: row["batch"])


def text(rows: Sequence[Row]) -> str:
    """Responses and gains by batch size, as a table."""
    seconds = {row["batch"]: row for row in of(rows, "seconds")}
    grouped = is_grouped(rows)
    lines = []
    for row in of(rows, "visits"):
        line: Row = {
            "batch": row["batch"],
            "plan": shown(row["plan"], grouped),
            "random": row["random"][0],
            "own": row["own"][0],
            "share": row["share"][0],
            "gain": _interval(row["gain"]),
            "law": row["law"],
            "whole": row["whole"][0] if row["whole"] else None,
            "alone": row["alone"][0] if grouped else None,
        }
        if row["batch"] in seconds:
            timed = seconds[row["batch"]]
            line["timed"], line["ms"] = shown(timed["plan"], grouped), timed["own"][0] * 1e3
            line["gained"], line["ordered"] = _interval(timed["gain"]), _interval(timed["order"])
            line["same"], line["joined"] = timed["fifo"][0], timed["whole"][0]
        lines.append(line)
    columns = {
        "batch": "batch",
        "plan": "best",
        "random": "random order",
        "own": "batch search",
        "share": "estimate's share",
        "gain": "gain",
        "law": "nG/(n+1)",
        "whole": "gain, whole batch",
        "alone": "gain, groups of 1",
        "timed": "best in time",
        "ms": "ms",
        "gained": "gain in time",
        "same": "same plan in arrival order",
        "ordered": "gain by order",
        "joined": "gain in time, whole batch",
    }
    return table(
        lines,
        {key: name for key, name in columns.items() if any(line.get(key) is not None for line in lines)},
    )


def is_grouped(rows: Sequence[Row]) -> bool:
    """Whether plans have groups. Only then the whole batch at once is a plan too."""
    return any(row["whole"] for row in of(rows, "visits"))


def _interval(found: Sequence[float]) -> str:
    value, low, high = found
    return f"{value:.3f} ({low:.3f}..{high:.3f})"


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The four claims of the paper; then the equation behind them or, if plans have groups, their gain.

    If plans have groups, the claims of the paper are about groups of one event.
    """
    units = [row for row in of(rows, "visits") if row["batch"] > 1]
    seconds = [row for row in of(rows, "seconds") if row["batch"] > 1]
    grouped = is_grouped(rows)
    gains = {row["batch"]: row["alone" if grouped else "gain"] for row in units}
    rising = {batch: gain for batch, gain in gains.items() if RISING[0] <= batch <= RISING[1]}
    rank = _rank(rising)
    most = max(units, key=lambda row: gains[row["batch"]][0])
    gained = gains[most["batch"]]
    in_time = order = taken = ""
    if seconds:
        best = max(seconds, key=lambda row: row["gain"][0])
        in_time = f"; in time {percent(best['gain'][0])} at {best['batch']}"
        gained_in_time, by_order = ([row[key][0] for row in seconds] for key in ("gain", "order"))
        order = f"; in time {_range(gained_in_time)}, over the same plan in arrival order {_range(by_order)}"
        taken = f"; in time {_range([row['estimating'] for row in seconds])} with the fastest plan"
    shares = [row["share"][0] for row in units if row["estimation"][0] > 0]
    return [
        Claim(
            "shortest first is clearly better than random order",
            "clearly",
            Finding(f"gain {_range([gain[0] for gain in gains.values()])}{order}",
            "holds" if gained[1] > CLEARLY else "partly" if gained[1] > 0 else "fails"), NOT_TIMED,
        ),
        Claim(
            "the larger the batch, the larger the gain",
            "yes",
            Finding(f"rank correlation {rank:.2f} over {RISING[0]} to {RISING[1]} events{in_time}",
            "holds" if rank > CORRELATION else "fails"), NOT_TIMED,
        ),
        Claim(
            "the gain is nearly 50 % at most",
            "nearly 50 %",
            Finding(
                f"{percent(gained[0])} at {most['batch']} events; in perfect order {percent(most['law'])}",
                "holds" if 0.4 <= gained[0] <= 0.5 else "partly" if gained[0] >= 0.3 else "fails",
            ),
            NOT_TIMED,
        ),
        Claim(
            "the estimate costs next to nothing",
            "negligible",
            Finding(
                f"{_range(shares, 1)} of the response at the best level{taken}" if shares else "none is best",
                "does not apply" if not shares
                else "holds" if max(shares) <= 0.05 else "partly" if max(shares) <= SHARE else "fails",
            ),
            NOT_TIMED,
        ),
        *(_of_groups(units) if grouped else _of_law(units)),
    ]  # fmt: skip


def _of_law(units: Sequence[Row]) -> list[Claim]:
    law = max(row["law"] for row in units)
    off = max(abs(row["gain"][0] - (row["law"] - row["share"][0])) for row in units)
    return [
        Claim(
            "the gain is nG/(n+1) minus the share of the estimate",
            "not claimed",
            Finding(
                f"it differs by at most {off:.3f}; nG/(n+1) is up to {law:.3f}",
                "does not apply" if law < LAW else "holds" if off <= LAW else "fails",
            ),
            NOT_TIMED,
        )
    ]


def _of_groups(units: Sequence[Row]) -> list[Claim]:
    added = [row["gain"][0] - row["alone"][0] for row in units]
    return [
        Claim(
            "groups gain more",
            "",
            Finding(f"{_range(added)} of the response in random order", "observed"),
            NOT_TIMED,
        ),
    ]


def _range(shares: Sequence[float], digits: int = 0) -> str:
    return f"{percent(min(shares), digits)} to {percent(max(shares), digits)}"


def _rank(gains: Mapping[int, Sequence[float]]) -> float:
    """Rank correlation of batch size and gain; 0 if there is nothing to rank."""
    sizes, values = np.array(list(gains), np.int64), np.array([gain[0] for gain in gains.values()])
    return (correlation(sizes, values) or 0.0) if len(sizes) > 1 else 0.0


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw mean responses by batch size, and the gain with nG/(n+1)."""
    units, seconds = of(rows, "visits"), of(rows, "seconds")
    figure = Figure(figsize=(13 if seconds else 9, 4), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(1, 3 if seconds else 2)
    batches = [row["batch"] for row in units]
    for key, name in {"random": "random order", "own": "batch search", "perfect": "perfect order",
                      "estimation": "estimating"}.items():  # fmt: skip
        _line(panels[0], batches, [row[key] for row in units], name)
    panels[0].set(xlabel="events of a batch", ylabel="mean response, work units", xscale="log", yscale="log")
    _line(panels[1], batches, [row["gain"] for row in units], "batch search")
    if is_grouped(rows):
        _line(panels[1], batches, [row["alone"] for row in units], "one by one")
        _line(panels[1], batches, [row["whole"] for row in units if row["whole"]], "whole batch")
    panels[1].plot(batches, [row["law"] for row in units], "k:", label="nG/(n+1)")
    if seconds:
        _line(
            panels[1],
            [row["batch"] for row in seconds],
            [row["gain"] for row in seconds],
            "in time, best plan",
        )
        for key, name in {"random": "arrival order", "own": "batch search"}.items():
            values = [[1e3 * value for value in row[key]] for row in seconds]
            _line(panels[2], [row["batch"] for row in seconds], values, name)
        panels[2].set(xlabel="events of a batch", ylabel="mean response, ms", xscale="log", yscale="log")
    panels[1].set(xlabel="events of a batch", ylabel="gain over random order", xscale="log")
    for axes in panels:
        axes.legend(fontsize=8)
        if axes.get_yscale() == "log":  # because an interval may reach below 0
            least = min(y for line in axes.get_lines() for y in np.asarray(line.get_ydata(), float) if y > 0)
            axes.set_ylim(bottom=least / 2)
    return figure


def _line(axes: Any, x: Sequence[float], intervals: Sequence[Sequence[float]], name: str) -> None:
    value, low, high = np.array(intervals).T
    line = axes.plot(x, value, ".-", label=name)[0]
    axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, lw=0)


EXPERIMENT = Experiment("fig4b", "mean response by batch size", measure, text, claims, draw)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
