"""Figure 4-d of the paper: the adaptive controller while the index grows.

Whenever the controller has settled, `threshold` subscriptions are inserted, so that it searches again. Only
batches of a search are measured, as in the paper. Claims: the controller is much better than no batch search,
and very near to the best possible. "Best possible" is the smallest response of all plans on the same batch.
No controller can reach it, because it does not know a batch before it has run.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.paper import confidence
from experiments.paper.fig4a import have_groups, shown
from experiments.paper.index import GrowingFilter, growing
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import GROUPS, SETTINGS, Profile, Setting
from experiments.paper.timing import ARRIVAL, batches, calls
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import Work, work
from experiments.response.bursts import in_turns, label
from experiments.response.listener import Listener, stream
from rtfilter.adaptive import Controller, LevelController, PlanController, exact
from rtfilter.dtypes import FloatArray
from rtfilter.replay.output import Row, table

COMPARED = 17
"""Every 17th timed batch is also run by all other plans. 17 is no multiple of 2 to 5, the numbers of plans in
a loop, so each plan of a loop is compared."""
POOL = 8
"""Number of batches that runs draw from, as a multiple of the profile's."""
REGRET = 0.1
"""Largest mean regret that meets the claim."""
KEPT = 0.75
"""Smallest part of the possible gain that meets the claim."""
LITTLE = 0.05
"""If the possible gain is smaller than this, the claim cannot hold."""


class Episode(NamedTuple):
    """The batches of one search of a controller."""

    batches: list[int]
    """Their rows in the pool."""
    plans: list[int]
    """The columns of their plans."""
    settled: int
    """The column of the plan that the controller settled at."""


def controller(setting: Setting, rounds: int, threshold: int) -> Controller:
    """The controller of the paper; if plans have groups, the one for level and group."""
    if setting.grouped:
        return PlanController(rounds=rounds, threshold=threshold, groups=GROUPS, size_class=exact)
    return LevelController(rounds=rounds, threshold=threshold, size_class=exact)


def measure(run: Run) -> None:
    """Grow the index between searches: in work units many times with each N, in seconds once."""
    index, profile = growing(run.setting, run.seed), run.profile
    costs = {"visits": float(sum(profile.sizes))}
    if isinstance(index, GrowingFilter):
        costs |= {f"seconds at {size}": 10.0 * size for size in profile.sizes}
    timed = controller(run.setting, profile.timed_rounds, profile.threshold)
    for size in profile.sizes:
        for earlier in run.of(f"seconds at {size}"):
            relive(timed, earlier, profile)
    for piece in run.pieces(costs):
        if piece == "visits":
            run.keep(piece, in_units(run))
        else:
            assert isinstance(index, GrowingFilter)
            index.grow(int(piece.split()[-1]))
            run.keep(piece, [in_seconds(run, index, timed)])


def in_units(run: Run) -> list[Row]:
    """One row per size and N."""
    index, profile = growing(run.setting, run.seed), run.profile
    runs = {
        (count, repeat): controller(run.setting, count, profile.threshold)
        for count in profile.rounds
        for repeat in range(profile.repeats)
    }
    rows = []
    for size in profile.sizes:
        run.tell(f"visits at {size}")
        index.grow(size)
        count = POOL * profile.batches
        points = index.points(0, count * profile.batch).reshape(count, profile.batch, -1)
        found = work(run.setting, index.levels(), points)
        episodes: dict[int, list[Episode]] = {}
        for (rounds, repeat), own in runs.items():
            order = np.random.default_rng([run.seed, rounds, repeat, size]).permutation(count)
            episodes.setdefault(rounds, []).append(episode(own, found, order.tolist(), profile.batch))
            own.on_update(profile.threshold)
        rows += [summary(found, n, own, profile) | {"size": size} for n, own in episodes.items()]
        run.advance(size / sum(profile.sizes))
    return rows


def relive(timed: Controller, earlier: Row, profile: Profile) -> None:
    """Give a controller the reports of an earlier run, so that it goes on from there."""
    for nanoseconds in earlier["history"]:
        ticket = timed.plan(profile.timed_batch, earlier["height"])
        timed.report(ticket, nanoseconds / 1e9)
    timed.on_update(profile.threshold)


def episode(own: Controller, found: Work, order: Sequence[int], batch: int) -> Episode:
    """Give batches to a controller in an order until it settles; after the last, the first comes again."""
    height = 1 + found.plans[-1].level
    column = {plan: p for p, plan in enumerate(found.plans)}
    chosen: list[int] = []
    plans: list[int] = []
    for turn in range(100 * len(order)):
        ticket = own.plan(batch, height)
        if ticket.episode == 0:
            return Episode(chosen, plans, column[ticket.plan])
        at, p = order[turn % len(order)], column[ticket.plan]
        own.report(ticket, float(found.response[at, p]))
        chosen.append(at)
        plans.append(p)
    raise RuntimeError("the controller did not settle")


def summary(found: Work, rounds: int, episodes: Sequence[Episode], profile: Profile) -> Row:
    """A row with means over the repetitions of one size and N."""
    least = found.response.min(axis=1)
    fixed = int(found.response.mean(axis=0).argmin())

    def mean(values: Callable[[Episode], FloatArray]) -> FloatArray:
        return np.array([values(own).mean() for own in episodes])

    adaptive = mean(lambda own: found.response[own.batches, own.plans])
    possible = mean(lambda own: least[own.batches])
    best = mean(lambda own: found.response[own.batches, fixed])
    settled = [own.settled for own in episodes]
    after = found.response.mean(axis=0)[settled] / found.response.mean(axis=0)[fixed] - 1
    return {
        "kind": "visits",
        "rounds": rounds,
        "batches": fmean(len(own.batches) for own in episodes),
        "adaptive": confidence.mean(adaptive),
        "none": confidence.mean(mean(lambda own: found.random[own.batches])),
        "possible": confidence.mean(possible),
        "fixed": confidence.mean(best),
        "best": label(found.plans[fixed], profile.batch),
        "regret": confidence.mean(adaptive / possible - 1),
        "over_fixed": confidence.mean(adaptive / best - 1),
        "settled": confidence.mean(after),
        "plans": dict(Counter(label(found.plans[p], profile.batch) for p in settled)),
    }


def in_seconds(run: Run, index: GrowingFilter, timed: Controller) -> Row:
    """Time one search; some of its batches are also run by all plans and without batch search."""
    profile, batch = run.profile, run.profile.timed_batch
    listener = Listener(timed)
    by_name = calls(run, index, batch)
    arriving = batches(index, batch)
    history: list[int] = []  # nanoseconds
    compared: dict[str, list[float]] = {name: [] for name in ("adaptive", "none", "possible", *by_name)}
    while True:
        events = next(arriving)
        gc.disable()
        try:
            # A short batch is not repeated, because a controller takes one report of it.
            seconds = stream(index.filter, "shortest", listener, events)
        finally:
            gc.enable()
        assert listener.ticket is not None
        if listener.settled:
            break
        history.append(round(seconds * 1e9))
        run.tell(f"seconds at {index.size}, batch {len(history)}")
        if len(history) % COMPARED == 1:
            taken = in_turns(by_name, iter([events]), 1, lambda _: None)
            own = label(listener.ticket.plan, batch)
            for name, times in taken.items():
                compared[name] += times
            compared["adaptive"] += taken[own]
            compared["none"] += taken[ARRIVAL]
            compared["possible"].append(min(times[0] for name, times in taken.items() if name != ARRIVAL))
    timed.on_update(profile.threshold)
    best = min(by_name.keys() - {ARRIVAL}, key=lambda name: median(compared[name]))
    adaptive, possible = np.array(compared["adaptive"]), np.array(compared["possible"])
    return {
        "kind": "seconds",
        "size": index.size,
        "rounds": profile.timed_rounds,
        "batches": len(history),
        "height": index.filter.tree.height,
        "adaptive": confidence.mean(adaptive),
        "none": confidence.mean(compared["none"]),
        "possible": confidence.mean(possible),
        "fixed": confidence.mean(compared[best]),
        "best": best,
        "regret": confidence.slower(adaptive, possible),
        "over_fixed": confidence.slower(adaptive, compared[best]),
        "plans": {label(listener.ticket.plan, batch): 1},
        "history": history,
    }


def of(rows: Sequence[Row], kind: str, rounds: int | None = None) -> list[Row]:
    """The rows of a kind and N, sorted by N and size."""
    chosen = [row for row in rows if row["kind"] == kind and rounds in (None, row["rounds"])]
    return sorted(chosen, key=lambda row: (row["rounds"], row["size"]))


def is_grouped(rows: Sequence[Row]) -> bool:
    """Whether the plans have groups."""
    return have_groups(name for row in rows for name in [row["best"], *row["plans"]])


def text(rows: Sequence[Row]) -> str:
    """A table with one line per size and N."""
    grouped, lines = is_grouped(rows), []
    for row in [*of(rows, "visits"), *of(rows, "seconds")]:
        plans = sorted(row["plans"].items(), key=lambda item: -item[1])
        lines.append(
            {
                "unit": "work" if row["kind"] == "visits" else "seconds",
                "rounds": row["rounds"],
                "size": row["size"],
                "batches": row["batches"],
                "none": row["none"][0],
                "adaptive": row["adaptive"][0],
                "possible": row["possible"][0],
                "regret": f"{row['regret'][0]:.3f} ({row['regret'][1]:.3f}..{row['regret'][2]:.3f})",
                "over_fixed": row["over_fixed"][0],
                "best": shown(row["best"], grouped),
                "settled": " ".join(shown(name, grouped) for name, _ in plans[:3]),
            }
        )
    names = {
        "unit": "unit",
        "rounds": "N",
        "size": "subscriptions",
        "batches": "batches",
        "none": "no batch search",
        "adaptive": "adaptive",
        "possible": "best possible",
        "regret": "over possible",
        "over_fixed": "over best fixed",
        "best": "best fixed",
        "settled": "settled at",
    }
    return table(lines, names)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Whether the controller is much better than no batch search, and near to the best possible."""
    made, counts = [], sorted({row["rounds"] for row in rows if row["kind"] == "visits"})
    most = of(rows, "visits", counts[-1])
    gains = [1 - row["adaptive"][0] / row["none"][0] for row in most]
    possible = [1 - row["possible"][0] / row["none"][0] for row in most]
    worth = min(possible) > LITTLE
    kept = [gain / best for gain, best in zip(gains, possible, strict=True)] if worth else [0.0]
    part = f"at least {percent(min(kept))} of the possible gain" if worth else "but little is possible"
    regrets = {count: fmean(row["regret"][0] for row in of(rows, "visits", count)) for count in counts}
    fixed = {count: fmean(row["over_fixed"][0] for row in of(rows, "visits", count)) for count in counts}
    seconds = of(rows, "seconds")
    timed, near = "", ""
    if seconds:
        saved = [1 - row["adaptive"][0] / row["none"][0] for row in seconds]
        timed = f"; in time {percent(min(saved))} to {percent(max(saved))}"
        near = (
            f"; in time {percent(fmean(row['regret'][0] for row in seconds), 1)} (N = {seconds[0]['rounds']})"
        )
    made.append(
        Claim(
            "while it searches, the controller is much better than no batch search",
            "about as in 4-b",
            Finding(
                f"gain {percent(min(gains))} to {percent(max(gains))}, {part}{timed}",
                "holds" if worth and min(kept) >= KEPT else "partly" if min(gains) > 0 else "fails",
            ),
            NOT_TIMED,
        )
    )
    made.append(
        Claim(
            "the controller is very near to the best possible of each batch",
            "gap negligible",
            Finding(
                "mean regret "
                + ", ".join(f"N = {count}: {percent(value, 1)}" for count, value in regrets.items())
                + near,
                "holds" if regrets[counts[-1]] <= REGRET else "fails",
            ),
            NOT_TIMED,
        )
    )
    made.append(
        Claim(
            "the controller is near to the best fixed plan of each size",
            "not claimed",
            Finding(
                ", ".join(f"N = {count}: {percent(value, 1)}" for count, value in fixed.items())
                + "; once settled "
                + ", ".join(
                    f"{percent(fmean(row['settled'][0] for row in of(rows, 'visits', count)), 1)}"
                    for count in counts
                ),
                "observed",
            ),
            NOT_TIMED,
        )
    )
    return made


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw responses by size: adaptive, without batch search, best possible; and the regret by N."""
    counts = sorted({row["rounds"] for row in rows if row["kind"] == "visits"})
    kinds = [("visits", counts[-1])]
    if of(rows, "seconds"):
        kinds.append(("seconds", of(rows, "seconds")[0]["rounds"]))
    figure = Figure(figsize=(4.5 * (len(kinds) + 1), 4), layout="constrained")
    figure.suptitle(title)
    *panels, regret = figure.subplots(1, len(kinds) + 1)
    for axes, (kind, count) in zip(panels, kinds, strict=True):
        own = of(rows, kind, count)
        size = [row["size"] / 1e6 for row in own]
        for key, name in {
            "none": "no batch search",
            "adaptive": "adaptive",
            "possible": "best possible",
        }.items():
            value, low, high = np.array([row[key] for row in own]).T
            line = axes.plot(size, value, ".-", label=name)[0]
            axes.fill_between(size, low, high, color=line.get_color(), alpha=0.2, lw=0)
        unit = "work units" if kind == "visits" else "seconds"
        axes.set(
            xlabel="million subscriptions",
            ylabel=f"mean response, {unit}",
            title=f"N = {count}",
            ylim=(0, None),
        )
        axes.legend(fontsize=8)
    for count in counts:
        own = of(rows, "visits", count)
        value, low, high = np.array([row["regret"] for row in own]).T
        size = [row["size"] / 1e6 for row in own]
        line = regret.plot(size, value, ".-", label=f"N = {count}")[0]
        regret.fill_between(size, low, high, color=line.get_color(), alpha=0.2, lw=0)
    regret.set(
        xlabel="million subscriptions", ylabel="adaptive over best possible, work units", ylim=(0, None)
    )
    regret.legend(fontsize=8)
    return figure


EXPERIMENT = Experiment("fig4d", "adaptive while the index grows", measure, text, claims, draw)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
