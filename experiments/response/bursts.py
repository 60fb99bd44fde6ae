"""Mean response of a burst: as a whole, one event at a time, by each fixed plan, and by the adaptive plan.

All of them run through `EventFilter` on one index. In each round they take turns with a new burst. The
response of an event is the time from the arrival of the burst to the end of the event's group, with the
estimate and without the time of the consumer. A controller gets the same time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.arguments import add_sizes, add_workloads, command, sized
from experiments.output import keep, outcome
from experiments.response import estimates
from experiments.response.estimates import Listener, stream
from experiments.timing import WARM, steps
from rtfilter import EventFilter
from rtfilter.adaptive import FixedPlan, Plan
from rtfilter.basics.text import plain
from rtfilter.events.table import EventTable
from rtfilter.filter import inside
from rtfilter.matchers.rtree import tree_of
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table
from rtfilter.replay.workloads import BOXES, BoxWorkload

DIMENSIONS = 12
GROUPS = (1, 4, 16, 32, 64, 128, 256, 512)
"""Events per group of the fixed plans. The whole burst as one group is added to them."""
WORKLOADS = ("wide", "narrow", "sparse")
FINALISTS = 3
"""Number of best fixed plans that are timed again for the verdict, with the plan of the controller."""
CALM = 20
"""Bursts by the same plan after which a controller has settled."""
STEPS = 4
"""Number of steps of `measure`, without those of the rounds."""
# Names of what is compared with the fixed plans.
WHOLE, FIFO, ADAPTIVE = "whole burst", "arrival order", "adaptive"
WORSE, GAIN = 1.05, 1.5
"""Targets. The adaptive plan takes at most `WORSE` times as long as the best fixed plan, and as the better of
the whole burst and events alone. It is `GAIN` times as fast as each of these two."""
VERDICTS = {
    "workload": "workload",
    "adaptive_plan": "adaptive",
    "bursts": "settled after",
    "best_plan": "best fixed",
    "alone_plan": "alone",
    "over_twin": "adaptive / its plan fixed",
    "over_best": "adaptive / best",
    "verdict_best": f"<= {WORSE:g}",
    "over_better": "adaptive / better of whole, alone",
    "verdict_better": f"<= {WORSE:g}",
    "gain_whole": "whole / adaptive",
    "gain_alone": "alone / adaptive",
    "possible": "possible",
    "verdict_gain": f">= {GAIN:g}",
}

Call = Callable[[EventTable], float]
"""Function that runs a burst and returns its mean response in seconds."""
Times = dict[str, list[float]]
"""Mean responses in seconds, one per round, by the name of the call."""


class Size(NamedTuple):
    """The size of a measurement."""

    boxes: int
    burst: int
    """Events of a burst."""
    repeats: int
    """Rounds in which all plans are timed."""
    finals: int
    """Rounds in which the best plans are timed again, for the verdict."""
    settle: int
    """Largest number of bursts until the controller settles."""
    timings: int
    """Times that each event is searched alone."""


FULL = Size(boxes=1_000_000, burst=1000, repeats=10, finals=40, settle=1500, timings=5)
QUICK = Size(boxes=6000, burst=40, repeats=2, finals=3, settle=500, timings=1)


def whole(filter: EventFilter, events: EventTable) -> float:
    """Match a burst at once, so that all events are released at the end; the seconds that it takes."""
    begun = perf_counter()
    filter.match_batch(events)
    return perf_counter() - begun


def bursts(workload: BoxWorkload, size: int) -> Iterator[EventTable]:
    """Yield an endless sequence of bursts, each of other events."""
    for burst in count():
        yield workload.schema.read(workload.events(burst * size, size))


def label(plan: Plan, burst: int) -> str:
    """Return a plan as text: level/group."""
    return f"{plan.level}/{plan.group or burst}"


def fixed_plans(height: int, burst: int) -> list[Plan]:
    """Return all plans that are compared: each level with each group size."""
    groups = [*(group for group in GROUPS if group < burst), burst]
    return [Plan(level, group) for level in range(height) for group in groups]


def settle(
    filter: EventFilter, controller: Listener, arriving: Iterator[EventTable], limit: int
) -> int | None:
    """Run bursts until a controller settles; return their number, or None after `limit` bursts.

    It has settled when `CALM` bursts after each other had the same plan, and none was there to learn.
    """
    calm, before = 0, None
    for burst in range(limit):
        stream(filter, "shortest", controller, next(arriving))
        assert controller.ticket is not None
        calm = calm + 1 if controller.settled and controller.ticket.plan == before else 0
        before = controller.ticket.plan
        if calm == CALM:
            return burst - CALM
    return None


def in_turns(
    calls: Mapping[str, Call], arriving: Iterator[EventTable], rounds: int, step: Callable[[str], None]
) -> Times:
    """Return time calls in `rounds` rounds, without garbage collection; the seconds that they return.

    Each round has a new burst, and another order of the calls, because a call finds the caches as the call
    before left them. Calls that take less than `WARM` seconds are repeated, see `warmed`.
    """
    taken: Times = {name: [] for name in calls}
    shuffle = np.random.default_rng(rounds).permutation
    for _ in range(rounds):
        step("timing bursts")
        events = next(arriving)
        gc.collect()
        gc.disable()
        try:
            for name in shuffle(list(calls)).tolist():
                taken[name].append(warmed(calls[name], events))
        finally:
            gc.enable()
    return taken


def warmed(call: Call, events: EventTable) -> float:
    """Return the seconds of a call; below `WARM`, those of a second call."""
    seconds = call(events)
    return call(events) if seconds < WARM else seconds


def measure(workload: BoxWorkload, size: Size, step: Callable[[str], None]) -> list[Row]:
    """Measure one workload; `step` is called with what comes next.

    Returns
    -------
    list of Row
        One row per way to run a burst (``kind`` "response", with the ``seconds`` of each round), one per
        level and unit of `estimates` (``kind`` "estimate"), and one with the ``kind`` "verdict".
    """
    step("subscribing")
    filter = EventFilter(workload.schema, matcher="rtree")
    workload.subscribe(filter, 0, size.boxes)
    arriving = bursts(workload, size.burst)
    plans = fixed_plans(tree_of(inside(filter).matcher).height, size.burst)
    adaptive = Listener(inside(filter).controller)

    step("loading kernels")
    events = next(arriving)
    for plan in plans:
        stream(filter, "shortest", Listener(FixedPlan(plan.level, plan.group)), events)
    whole(filter, events)

    step("settling")
    settled_after = settle(filter, adaptive, arriving, size.settle)

    assert adaptive.ticket is not None
    settled = adaptive.ticket.plan
    twin = label(settled, size.burst)
    fixed: dict[str, Call] = {}
    for plan in (*plans, settled):
        controller = Listener(FixedPlan(plan.level, plan.group))
        fixed[label(plan, size.burst)] = partial(stream, filter, "shortest", controller)
    calls: dict[str, Call] = {
        WHOLE: partial(whole, filter),
        FIFO: partial(stream, filter, "fifo", Listener(FixedPlan(0, 1))),
        ADAPTIVE: partial(stream, filter, "shortest", adaptive),
        **fixed,
    }
    taken = in_turns(calls, arriving, size.repeats, step)

    # The best of many plans is also a lucky one. So the best plans are timed again, with other bursts.
    ranked = [name for name in ranking(taken) if name in fixed]
    alone = next(name for name in ranked if name.endswith("/1"))
    finalists = [*ranked[:FINALISTS], twin]
    again = {name: calls[name] for name in (WHOLE, ADAPTIVE, alone, *finalists)}
    final = in_turns(again, arriving, size.finals, step)

    step("timing events alone")
    quality = estimates.measure(tree_of(inside(filter).matcher), next(arriving).points, size.timings)
    verdict = judge(final, finalists, alone, twin) | {"bursts": settled_after, "final_seconds": final}
    rows = responses(taken, plans, size.burst) + [{"kind": "estimate", **row} for row in quality] + [verdict]
    return [{"workload": workload.name, **row} for row in rows]


def ranking(taken: Times) -> list[str]:
    """Return names by response, the best first. In each round a name is compared with the median of all."""
    pace = [median(together) for together in zip(*taken.values(), strict=True)]  # one number per round
    return sorted(taken, key=lambda name: ratio(taken[name], pace))


def responses(taken: Times, plans: Sequence[Plan], burst: int) -> list[Row]:
    """Return a row per way to run a burst, from the seconds of each round."""
    by_name = {label(plan, burst): plan for plan in plans}
    return [
        {
            "kind": "response",
            "name": name,
            "level": by_name[name].level if name in by_name else None,
            "group": by_name[name].group if name in by_name else None,
            "ms": median(seconds) * 1e3,
            "seconds": list(seconds),
        }
        for name, seconds in taken.items()
    ]


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return median over the rounds of the ratio of two times: it does not depend on how rounds differ."""
    return median(a / b for a, b in zip(over, under, strict=True))


def judge(taken: Times, finalists: Sequence[str], alone: str, twin: str) -> Row:
    """Compare the adaptive plan with the best fixed one, with the whole burst and with events alone.

    Parameters
    ----------
    taken : mapping
        Mean responses in seconds, one per round, by name: of `WHOLE`, `ADAPTIVE`, `alone` and the finalists.
    finalists : sequence of str
        Names of the fixed plans, the best one among them.
    alone : str
        Name of the best plan in groups of 1.
    twin : str
        Name of the fixed plan that the controller settled at. It differs from the adaptive plan by noise and
        by the cost of the controller.

    Returns
    -------
    Row
        Ratios, and the verdicts on their targets. The target of the gain is "out of reach" if the best fixed
        plan does not meet it either, because groups share too little.
    """
    ranked = ranking(taken)
    best = next(name for name in ranked if name in finalists)
    better = next(name for name in ranked if name in (WHOLE, alone))
    over = {name: ratio(taken[ADAPTIVE], taken[name]) for name in (best, better, twin)}
    gains = [ratio(taken[name], taken[ADAPTIVE]) for name in (WHOLE, alone)]
    possible = [ratio(taken[name], taken[best]) for name in (WHOLE, alone)]
    return {
        "kind": "verdict",
        "adaptive_plan": twin,
        "best_plan": best,
        "alone_plan": alone,
        "over_twin": over[twin],
        "over_best": over[best],
        "verdict_best": outcome(over[best] <= WORSE),
        "over_better": over[better],
        "verdict_better": outcome(over[better] <= WORSE),
        "gain_whole": gains[0],
        "gain_alone": gains[1],
        "possible": ", ".join(plain(bound, 3, ",") for bound in possible),
        "verdict_gain": "out of reach" if min(possible) < GAIN else outcome(min(gains) >= GAIN),
    }


def grid(rows: Sequence[Row]) -> str:
    """Return the mean responses of one workload as text: group sizes by levels, then the rest."""
    levels = sorted({row["level"] for row in rows if row["level"] is not None})
    lines: dict[Any, Row] = {}
    for row in rows:
        if row["level"] is None:
            lines[row["name"]] = {"way": row["name"], "level 0": row["ms"]}
        else:
            line = lines.setdefault(row["group"], {"way": f"groups of {row['group']:,}"})
            line[f"level {row['level']}"] = row["ms"]
    columns = {"way": "ms"} | {f"level {level}": f"level {level}" for level in levels}
    return table(list(lines.values()), columns)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the mean response by group size into a picture, with one line per level."""
    names = list(dict.fromkeys(row["workload"] for row in rows))
    figure = Figure(figsize=(5 * len(names), 4.5), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False).flat, names, strict=True):
        own = [row for row in rows if row["workload"] == name]
        verdict = next(row for row in own if row["kind"] == "verdict")
        ms = {row["name"]: row["ms"] for row in own if row["kind"] == "response"}
        fixed = [row for row in own if row["kind"] == "response" and row["level"] is not None]
        for level in sorted({row["level"] for row in fixed}):
            line = [(row["group"], row["ms"]) for row in fixed if row["level"] == level]
            axes.plot(*zip(*line, strict=True), ".-", color=f"C{level}", label=f"level {level}")
        for text, value, style in (
            (WHOLE, ms[WHOLE], "--"),
            (f"shortest first alone, {verdict['alone_plan']}", ms[verdict["alone_plan"]], ":"),
            (f"adaptive, {verdict['adaptive_plan']}", ms[ADAPTIVE], "-"),
        ):
            axes.axhline(value, ls=style, color="k", lw=1, label=text)
        axes.set_xscale("log", base=2)
        axes.set(title=name, xlabel="events in a group", ylabel="mean response, ms", ylim=(0, None))
        axes.legend(fontsize=8, frameon=False)
    save_picture(figure, path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("bursts", __doc__, "quick", "seed", "out", "figure")
    add_sizes(
        parser,
        FULL,
        boxes="number of boxes in the index",
        burst="number of events of a burst",
        repeats="number of bursts that each plan is timed with",
    )
    add_workloads(parser, WORKLOADS)
    given = parser.parse_args(arguments)
    size = sized(given, QUICK, FULL)
    rows: list[Row] = []
    for name, step in steps(given.workloads, STEPS + size.repeats + size.finals):
        rows += measure(BOXES[name](given.seed, DIMENSIONS), size, step)
    print(machine.one_line())
    print(
        f"{size.boxes:,} boxes, {DIMENSIONS} dimensions, bursts of {size.burst:,} events, one core; "
        f"mean response, medians of {size.repeats}"
    )
    for name in given.workloads:
        own = [row for row in rows if row["workload"] == name and row["kind"] == "response"]
        print(f"\n{name}\n{grid(own)}")
    print(
        f"\nPlans are level/group. Ratios are medians over {size.finals} other bursts.\n"
        "alone: the best plan in groups of 1; possible: both gains of the best fixed plan\n"
    )
    print(table([row for row in rows if row["kind"] == "verdict"], VERDICTS))
    print("\nShortest first, event by event\n")
    print(table([row for row in rows if row["kind"] == "estimate"], estimates.COLUMNS))
    settings = size._asdict() | {"workloads": list(given.workloads), "seed": given.seed}
    keep(given.out, "bursts", settings, rows)
    if given.figure is not None:
        draw(rows, given.figure)
    return 0
