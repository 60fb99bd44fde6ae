"""Mean response of a burst: whole, one event at a time, by every fixed plan, and as the controller settles.

All run through `EventFilter` on one index, in turns, every round with a burst of its own. The response of an
event is the time from the arrival of the burst to the end of its group, the estimate included and the
consumer's own time excluded: what a controller is told.
"""

from __future__ import annotations

import argparse
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
from tqdm import tqdm

from experiments.output import keep, outcome, positive
from experiments.response import estimates
from experiments.response.listener import Listener, stream
from experiments.timing import WARM, one_core
from rtfilter import EventFilter
from rtfilter.adaptive import FixedPlan, Plan
from rtfilter.events.table import EventTable
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table
from rtfilter.replay.workloads import BOXES, BoxWorkload

DIMENSIONS = 12
#: Events per group of the fixed plans; the whole burst as one group joins them.
GROUPS = (1, 4, 16, 32, 64, 128, 256, 512)
WORKLOADS = ("wide", "narrow", "sparse")
#: Fixed plans that are timed again for the verdict, beside the one settled at.
FINALISTS = 3
STEPS = 4
"""Steps of `measure`, beside one for each round."""
#: What is compared with the fixed plans.
WHOLE, FIFO, ADAPTIVE = "whole burst", "arrival order", "adaptive"
#: Most that the adaptive plan may take, as a multiple of the best fixed plan and of the better of `WHOLE` and
#: shortest first alone; and what groups should gain over each of those two.
WORSE, GAIN = 1.05, 1.5
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
"""Runs a burst and answers its mean response, seconds."""
Times = dict[str, list[float]]
"""Mean response in every round, seconds, by the name of the call."""


class Size(NamedTuple):
    """How much is measured."""

    boxes: int
    burst: int
    """Events of a burst."""
    repeats: int
    """Rounds: bursts that everything is given."""
    finals: int
    """Rounds of the best plans, for the verdict."""
    settle: int
    """Bursts that the controller may take until it is settled."""
    timings: int
    """Of each event alone."""


FULL = Size(boxes=1_000_000, burst=1000, repeats=10, finals=40, settle=1500, timings=5)
QUICK = Size(boxes=6000, burst=40, repeats=2, finals=3, settle=500, timings=1)


def whole(filter: EventFilter, events: EventTable) -> float:
    """Match a burst at once, which releases every event at the end; seconds."""
    begun = perf_counter()
    filter.match_batch(events)
    return perf_counter() - begun


def bursts(workload: BoxWorkload, size: int) -> Iterator[EventTable]:
    """Bursts of events without end, each of its own."""
    for burst in count():
        yield workload.schema.read(workload.events(burst * size, size))


def label(plan: Plan, burst: int) -> str:
    """A plan for people: level/group."""
    return f"{plan.level}/{plan.group or burst}"


def fixed_plans(height: int, burst: int) -> list[Plan]:
    """All that are compared: every level with every group size."""
    groups = [*(group for group in GROUPS if group < burst), burst]
    return [Plan(level, group) for level in range(height) for group in groups]


def settle(
    filter: EventFilter, controller: Listener, arriving: Iterator[EventTable], limit: int
) -> int | None:
    """Give a controller bursts until it settles; how many it took, None where `limit` was too few."""
    for burst in range(limit):
        stream(filter, "shortest", controller, next(arriving))
        if controller.settled:
            return burst
    return None


def in_turns(
    calls: Mapping[str, Call], arriving: Iterator[EventTable], rounds: int, step: Callable[[str], None]
) -> Times:
    """Seconds that each call answers, in `rounds` rounds with a burst each, without garbage collection.

    Every round has another order, as what ran before leaves its traces in caches and memory. Calls below
    `WARM` are repeated, as by `output.rounds`.
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
    """Seconds that a call answers, the second time when that is soon."""
    seconds = call(events)
    return call(events) if seconds < WARM else seconds


def measure(workload: BoxWorkload, size: Size, step: Callable[[str], None]) -> list[Row]:
    """Rows of one workload; `step` is told what comes next.

    One row per way to run a burst (``kind`` "response": ``seconds`` of every round), one per level and unit
    of `estimates` ("estimate") and the "verdict".
    """
    step("subscribing")
    filter = EventFilter(workload.schema)
    workload.subscribe(filter, 0, size.boxes)
    arriving = bursts(workload, size.burst)
    plans = fixed_plans(filter.tree.height, size.burst)
    adaptive = Listener(filter.controller)

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

    # The best of many was lucky too, so other bursts are to tell how good it is.
    ranked = [name for name in ranking(taken) if name in fixed]
    alone = next(name for name in ranked if name.endswith("/1"))
    finalists = [*ranked[:FINALISTS], twin]
    again = {name: calls[name] for name in (WHOLE, ADAPTIVE, alone, *finalists)}
    final = in_turns(again, arriving, size.finals, step)

    step("timing events alone")
    quality = estimates.measure(filter.tree, next(arriving).points, size.timings)
    verdict = judge(final, finalists, alone, twin) | {"bursts": settled_after, "final_seconds": final}
    rows = responses(taken, plans, size.burst) + [{"kind": "estimate", **row} for row in quality] + [verdict]
    return [{"workload": workload.name, **row} for row in rows]


def ranking(taken: Times) -> list[str]:
    """Names by response, the best first, each compared with the others in its rounds."""
    pace = [median(together) for together in zip(*taken.values(), strict=True)]  # of a round
    return sorted(taken, key=lambda name: ratio(taken[name], pace))


def responses(taken: Times, plans: Sequence[Plan], burst: int) -> list[Row]:
    """A row per way to run a burst, by the seconds of every round."""
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
    """Median over the rounds of one time by another: rounds differ in their events and in noise."""
    return median(a / b for a, b in zip(over, under, strict=True))


def judge(taken: Times, finalists: Sequence[str], alone: str, twin: str) -> Row:
    """The adaptive plan beside the best fixed one, the whole burst and shortest first alone.

    Parameters
    ----------
    taken : mapping
        Mean response in every round, seconds, by name: `WHOLE`, `ADAPTIVE`, `alone` and the finalists.
    finalists : sequence of str
        Fixed plans, among them the best.
    alone : str
        The best plan in groups of 1.
    twin : str
        The finalist with the plan that the controller settled at: what is between the two is noise, and
        the cost of the controller.

    Returns
    -------
    Row
        Ratios, and what becomes of their targets. The target of the gain is "out of reach" where the best
        fixed plan does not meet it either: then groups share too little.
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
        "possible": f"{possible[0]:.3g}, {possible[1]:.3g}",
        "verdict_gain": "out of reach" if min(possible) < GAIN else outcome(min(gains) >= GAIN),
    }


def grid(rows: Sequence[Row]) -> str:
    """Mean response of one workload as text: a line per group size with a column per level, then the rest."""
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
    """Plot the mean response by group size, a line per level, into a picture."""
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
    parser = argparse.ArgumentParser(
        prog="python -m experiments bursts", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help=f"a trial: {QUICK.boxes} boxes")
    parser.add_argument("--boxes", type=positive, help=f"boxes in the index ({FULL.boxes})")
    parser.add_argument("--burst", type=positive, help=f"events of a burst ({FULL.burst})")
    parser.add_argument(
        "--repeats", type=positive, help=f"bursts that each plan is timed with ({FULL.repeats})"
    )
    parser.add_argument("--workloads", nargs="+", choices=BOXES, default=WORKLOADS, help="%(default)s")
    parser.add_argument("--seed", type=int, default=1, help="seed of the workloads (%(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--figure", type=Path, help="picture file for the mean response by group size")
    given = parser.parse_args(arguments)
    size = QUICK if given.quick else FULL
    size = size._replace(
        boxes=given.boxes or size.boxes,
        burst=given.burst or size.burst,
        repeats=given.repeats or size.repeats,
    )

    rows: list[Row] = []
    total = (STEPS + size.repeats + size.finals) * len(given.workloads)
    with one_core(), tqdm(total=total, unit="step", leave=False) as bar:
        for name in given.workloads:

            def step(text: str, name: str = name) -> None:
                bar.set_postfix_str(f"{name}: {text}")
                bar.update()

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
        f"\nPlans are level/group, ratios medians over {size.finals} other bursts.\n"
        "Alone: the best in groups of 1; possible: both gains, of the best fixed plan.\n"
    )
    print(table([row for row in rows if row["kind"] == "verdict"], VERDICTS))
    print("\nShortest first, event by event\n")
    print(table([row for row in rows if row["kind"] == "estimate"], estimates.COLUMNS))
    settings = size._asdict() | {"workloads": list(given.workloads), "seed": given.seed}
    keep(given.out, "bursts", settings, rows)
    if given.figure is not None:
        draw(rows, given.figure)
    return 0
