"""Figure 4-b of the paper: the mean response by batch size, with and without batch search.

Claims: batch search is clearly better; the estimate costs next to nothing; the gain grows with the batch; it
is nearly 50 % at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.paper import confidence, verdicts
from experiments.paper.index import GrowingFilter, Levels, growing
from experiments.paper.plans import judged, shown
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import SETTINGS
from experiments.paper.times import ORDER_NAMES, interval
from experiments.paper.timing import compared, measured, whole
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import Work, work
from experiments.response.bursts import label
from experiments.response.estimates import correlation
from rtfilter.adaptive import WHOLE
from rtfilter.replay.output import Row, table

RISING = (2, 256)
"""Batch sizes over which the gain must rise."""


WHERE = {"judged": ", levels of the paper's range", "best": ", all levels"}
"""Headings of tables."""


def measure(run: Run) -> None:
    """For each batch size, compare the work and the time of each plan with those of a random order."""
    index, profile = growing(run.setting, run.seed), run.profile
    levels: list[Levels] = []
    costs = {}
    for batch in profile.batch_sizes:
        costs[f"visits of {batch}"] = 20.0 + batch
        if isinstance(index, GrowingFilter) and batch in profile.timed_sizes:
            costs[f"seconds of {batch}"] = 20.0 + 10.0 * batch
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
            row = measured(run, index, batch, every=False)
        run.keep(piece, [{"kind": unit, "batch": batch, **row}])


def in_units(found: Work, batch: int) -> Row:
    """Return a row that compares the best plans of one batch size with a random order, in work units."""
    names = [label(plan, batch) for plan in found.plans]
    height = 1 + found.plans[-1].level
    means = found.response.mean(axis=0)

    def of_best(among: Sequence[str]) -> Row:
        best = min((names.index(name) for name in among), key=lambda p: float(means[p]))
        own, spent = found.response[:, best], found.estimation[:, best]
        return {
            "plan": names[best],
            "own": confidence.mean(own, 0),
            "estimation": confidence.mean(spent, 0),
            "share": confidence.mean(spent / own, 0),
            "gain": confidence.saved(own, found.random),
        }

    joined = found.plans.index(WHOLE) if WHOLE in found.plans else None
    return {
        "height": height,
        "best": of_best(names),
        "judged": of_best(judged(names, height)),
        "alone": of_best([name for name in names if name.endswith("/1")] or names),
        "whole": None if joined is None else confidence.saved(found.response[:, joined], found.random),
        "random": confidence.mean(found.random, 0),
        "perfect": confidence.mean(found.perfect, 0),
        "law": float(1 - found.perfect.mean() / found.random.mean()),
    }


def of(rows: Sequence[Row], kind: str, least: int = 1) -> list[Row]:
    """Return the rows of a kind, for batches of at least some events, sorted by batch size."""
    return sorted((r for r in rows if r["kind"] == kind and r["batch"] >= least), key=lambda r: r["batch"])


def is_grouped(rows: Sequence[Row]) -> bool:
    """Return whether plans have groups. Only then the whole batch at once is a plan too."""
    return any(row["whole"] for row in of(rows, "visits"))


def text(rows: Sequence[Row]) -> str:
    """Return responses and gains by batch size, in work units and in time, as tables."""
    grouped = is_grouped(rows)
    lines = []
    for row in of(rows, "visits"):
        own = row["judged"]
        lines.append(
            {
                "batch": row["batch"],
                "plan": shown(own["plan"], grouped),
                "random": row["random"][0],
                "own": own["own"][0],
                "share": interval(own["share"]),
                "gain": interval(own["gain"]),
                "law": percent(row["law"], 1),
                "all": interval(row["best"]["gain"]),
                "whole": percent(row["whole"][0]) if row["whole"] else None,
                "alone": percent(row["alone"]["gain"][0], 1),
            }
        )
    columns = {
        "batch": "batch", "plan": "best", "random": "random", "own": "search", "share": "estimate",
        "gain": "gain", "law": "nG/(n+1)",
    }  # fmt: skip
    columns |= {"whole": "whole batch", "alone": "groups of 1"} if grouped else {"all": "of all levels"}
    parts = [f"work units{'' if grouped else WHERE['judged']}\n{table(lines, columns)}"]
    for which in ("judged",) if grouped else ("judged", "best"):
        lines = []
        for row in of(rows, "seconds"):
            own = compared(row, which)
            joined = confidence.faster(row["times"][whole(row["batch"])], row["times"]["0/1"])
            lines.append(
                {
                    "batch": row["batch"],
                    "plan": shown(own["plan"], grouped),
                    "ms": 1e3 * own["own"].value,
                    "whole": percent(joined.value),
                    **{key: interval(own[key]) for key in (*ORDER_NAMES, "order", "share")},
                }
            )
        names = {"batch": "batch", "plan": "best", "ms": "ms", "gain": "gain", "fifo": "arrival order",
                 "longest": "longest first", "share": "estimate", "whole": "whole"}  # fmt: skip
        if lines:
            parts.append(f"time{'' if grouped else WHERE[which]}\n{table(lines, names)}")
    return "\n\n".join(parts)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the four claims of the paper; then what the gain comes from.

    If plans have groups, the claims of the paper are about groups of one event.
    """
    units, timed = of(rows, "visits", 2), of(rows, "seconds", 2)
    grouped = is_grouped(rows)
    which = "alone" if grouped else "judged"
    counted = {row["batch"]: row[which] for row in units}
    seconds = {row["batch"]: compared(row, which) for row in timed}
    every = {row["batch"]: compared(row, "best") for row in timed}
    return [
        _better(counted, seconds, every),
        _larger(counted, seconds, every),
        _half(counted, seconds, every, max(row["law"] for row in units)),
        _estimate(counted, seconds, every),
        _order(seconds, every, grouped),
        _groups(units, timed) if grouped else _law(units, seconds),
    ]


Found = dict[int, Row]
"""The gains of the best plan for each batch size, see `in_units` and `timing.compared`."""


def _gains(found: Found, key: str = "gain") -> list[Sequence[float]]:
    return [row[key] for row in found.values()]


def _beside(found: Found, every: Found, key: str = "gain", digits: int = 0) -> str:
    """Return the gains of the best of all plans as text, if they differ."""
    own, others = _range(_gains(found, key), digits), _range(_gains(every, key), digits)
    return "" if own == others else f"; with all levels {others}"


def _better(units: Found, seconds: Found, every: Found) -> Claim:
    time = NOT_TIMED
    if seconds:
        gains = _gains(seconds)
        time = Finding(
            f"gain {_range(gains)}{_beside(seconds, every)}", verdicts.above(gains, verdicts.CLEARLY)
        )
    gains = _gains(units)
    return Claim(
        "shortest first is clearly better than random order",
        "clearly",
        Finding(f"gain {_range(gains)}", verdicts.above(gains, verdicts.CLEARLY)),
        time,
    )


def _larger(units: Found, seconds: Found, every: Found) -> Claim:
    def judge(found: Found) -> Finding:
        rank = _rank(found)
        told = f"rank correlation {rank:.2f} over {RISING[0]} to {RISING[1]} events"
        return Finding(told, verdicts.rising(rank))

    time = NOT_TIMED
    if seconds:
        time = judge(seconds)
        if _rank(every) != _rank(seconds):
            time = time._replace(ours=f"{time.ours}; with all levels {_rank(every):.2f}")
    return Claim("the larger the batch, the larger the gain", "yes", judge(units), time)


def _half(units: Found, seconds: Found, every: Found, law: float) -> Claim:
    def judge(found: Found) -> Finding:
        batch = max(found, key=lambda size: float(found[size]["gain"][0]))
        gain = found[batch]["gain"]
        return Finding(f"{interval(gain)} at {batch} events", verdicts.nearly_half(gain))

    counted, time = judge(units), NOT_TIMED
    if seconds:
        time = judge(seconds)
        if judge(every) != time:
            time = time._replace(ours=f"{time.ours}; with all levels {judge(every).ours}")
    counted = counted._replace(ours=f"{counted.ours}; in perfect order {percent(law)}")
    return Claim("the gain is nearly 50 % at most", "nearly 50 %", counted, time)


def _estimate(units: Found, seconds: Found, every: Found) -> Claim:
    def judge(found: Found) -> Finding:
        shares = [share for share in _gains(found, "share") if share[0] > 0]
        told = f"{_range(shares, 1)} of the response" if shares else "no plan with an estimate is best"
        return Finding(told, verdicts.negligible(shares))

    time = NOT_TIMED
    if seconds:
        # At level 0 the root is looked at too; that is no estimate.
        own, others = ({size: row for size, row in found.items() if not row["plan"].startswith("0/")}
                       for found in (seconds, every))  # fmt: skip
        time = judge(own)
        if own and others:
            time = time._replace(ours=time.ours + _beside(own, others, "share", 1))
    return Claim("the estimate costs next to nothing", "negligible", judge(units), time)


def _order(seconds: Found, every: Found, grouped: bool) -> Claim:
    """Return the claim that the gain comes from the order. An equal gain longest first shows shared work."""
    time = NOT_TIMED
    if seconds:
        both = [(row["gain"], row["fifo"], row["longest"]) for row in (*seconds.values(), *every.values())]
        told = (
            f"the same plans gain up to {_most(seconds, 'fifo')} in arrival order and "
            f"{_most(seconds, 'longest')} longest first; with all levels up to {_most(every, 'fifo')} and "
            f"{_most(every, 'longest')}"
        )
        time = Finding(told, verdicts.by_order(both))
    counted = Finding("visits share nothing, so it must be" if not grouped else "groups of one share nothing",
                      verdicts.DOES_NOT_APPLY)  # fmt: skip
    return Claim("what is gained is gained by the order", "implied", counted, time)


def _law(units: Sequence[Row], seconds: Found) -> Claim:
    laws = {row["batch"]: row["law"] for row in units}

    def judge(found: Found) -> Finding:
        off = max(abs(row["gain"][0] - (laws[size] - row["share"][0])) for size, row in found.items())
        return Finding(
            f"it differs by at most {percent(off, 1)}; nG/(n+1) is up to {percent(max(laws.values()), 1)}",
            verdicts.DOES_NOT_APPLY if max(laws.values()) < verdicts.CLEARLY
            else verdicts.negligible([(off, off, off)]),
        )  # fmt: skip

    timed = judge(seconds) if seconds else NOT_TIMED
    counted = judge({row["batch"]: row["judged"] for row in units})
    return Claim("the gain is nG/(n+1) minus the share of the estimate", "", counted, timed)


def _groups(units: Sequence[Row], timed: Sequence[Row]) -> Claim:
    counted = [[row["best"]["gain"][0] - row["alone"]["gain"][0]] for row in units]
    seconds = [[compared(row, "best")["gain"][0] - compared(row, "alone")["gain"][0]] for row in timed]
    return Claim(
        "groups gain more",
        "",
        *(
            Finding(f"{_range(added)} of the response in random order more", verdicts.OBSERVED)
            if added else NOT_TIMED for added in (counted, seconds)
        ),
    )  # fmt: skip


def _range(shares: Sequence[Sequence[float]], digits: int = 0) -> str:
    """Return the least and the greatest of values with or without intervals, as text."""
    values = [share[0] for share in shares]
    least, most = percent(min(values), digits), percent(max(values), digits)
    return least if least == most else f"{least} to {most}"


def _most(found: Found, key: str) -> str:
    return percent(max(row[key][0] for row in found.values()))


def _rank(found: Found) -> float:
    """Return the rank correlation of batch size and gain; 0 if there is nothing to rank."""
    rising = {size: row["gain"][0] for size, row in found.items() if RISING[0] <= size <= RISING[1]}
    sizes, values = np.array(list(rising), np.int64), np.array(list(rising.values()))
    return (correlation(sizes, values) or 0.0) if len(sizes) > 1 else 0.0


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw mean responses by batch size, in work units and in time, and the gains with nG/(n+1)."""
    units, timed, grouped = of(rows, "visits"), of(rows, "seconds"), is_grouped(rows)
    figure = Figure(figsize=(13.5 if timed else 9, 4.6), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(1, 4 if timed else 2)
    sizes = [row["batch"] for row in units]
    _line(panels[0], sizes, [row["random"] for row in units], "random order")
    _line(panels[0], sizes, [row["judged"]["own"] for row in units], "batch search")
    _line(panels[0], sizes, [row["perfect"] for row in units], "perfect order")
    _line(panels[0], sizes, [row["judged"]["estimation"] for row in units], "its estimate")
    panels[0].set(title="work units", ylabel="mean response, work units", xscale="log", yscale="log")
    _line(panels[1], sizes, [row["judged"]["gain"] for row in units], "batch search", 100)
    if grouped:
        _line(panels[1], sizes, [row["alone"]["gain"] for row in units], "groups of 1", 100)
        _line(panels[1], sizes, [row["whole"] for row in units if row["whole"]], "whole batch", 100)
    panels[1].plot(sizes, [100 * row["law"] for row in units], "k:", label="nG/(n+1)")
    panels[1].set(title="gain in work units", ylabel="gain over random order, %", xscale="log")
    if timed:
        _draw_time(panels[2:], timed, grouped)
    for axes in panels:
        axes.set(xlabel="events of a batch")
        axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
        if axes.get_yscale() == "log":  # because an interval may reach 0
            least = min(y for line in axes.get_lines() for y in np.asarray(line.get_ydata(), float) if y > 0)
            axes.set_ylim(bottom=least / 2)
    return figure


def _draw_time(panels: Any, timed: Sequence[Row], grouped: bool) -> None:
    """Draw the gains in time in three orders, and the medians; dashed if the paper cannot reach the plan."""
    sizes = [row["batch"] for row in timed]
    panels[1].set(title="time", ylabel="median response, ms", xscale="log", yscale="log")
    panels[0].set(title="gain in time", ylabel="gain over arrival order, %", xscale="log")
    for which, style in {"judged": "-"}.items() if grouped else {"judged": "-", "best": "--"}.items():
        found = [compared(row, which) for row in timed]
        more = "" if grouped else ", in range" if which == "judged" else ", all levels"
        for place, (key, name) in enumerate(ORDER_NAMES.items()):
            _line(panels[0], sizes, [row[key] for row in found], f"{name}{more}", 100, style, f"C{place}")
        if which == "judged":
            _line(panels[1], sizes, [row["random"] for row in found], "arrival order", 1e3)
        _line(panels[1], sizes, [row["own"] for row in found], f"batch search{more}", 1e3, style, "C1")
        spent = [[value * row["own"][0] for value in row["share"]] for row in found]
        _line(panels[1], sizes, spent, f"its estimate{more}", 1e3, style, "C3")


def _line(
    axes: Any, x: Sequence[float], intervals: Sequence[Sequence[float]], name: str, scale: float = 1,
    style: str = "-", color: str | None = None,
) -> None:  # fmt: skip
    value, low, high = scale * np.array(intervals).T
    line = axes.plot(x, value, style, marker=".", color=color, label=name)[0]
    axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, lw=0)


EXPERIMENT = Experiment("fig4b", "mean response by batch size", measure, text, claims, draw)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
