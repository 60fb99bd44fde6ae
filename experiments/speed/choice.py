"""A filter that chooses its matcher beside each matcher that is fixed.

For each workload, number of subscriptions and size of batches, the filter that chooses is used until its
first round of trials is over. Then it and the fixed ones take turns in one process, with the same batches. A
ratio is the geometric mean over the rounds, with an interval of 95 % (Student's). Fixed ones that take more
than `HOPELESS` times as long as the best are timed in two rounds only.

Two fixed trees with the same boxes differ as well, by where they lie in memory: a second one, the twin, says
what can be measured at all. Batches of more than one event are also streamed by another filter that chooses,
whose mean response is compared with that of the tree.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import t
from tqdm import tqdm

from experiments.arguments import command, positive
from experiments.output import keep, kept_rows, outcome
from experiments.timing import WARM, rounds
from rtfilter import EventFilter
from rtfilter.events.table import EventTable
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table
from rtfilter.replay.workloads import WORKLOADS, Workload, workload

AUTO, TWIN = "auto", "twin"
FIXED = ("rtree", "split", "hem", "masks", "counting", "rein", "tama", "be-tree")
"""All matchers that are compiled."""
WITHIN = 1.1
"""Target: the filter that chooses takes at most so many times as long as the best fixed one."""
HOPELESS = 3.0
BATCHES = 8
"""Different batches."""
EVENTS, TURN = 256, 0.02
"""Events that are matched in a turn, and seconds that a turn takes, at least."""
STREAMED = 8.0
"""Seconds of streams by which the controllers of two filters settle, each."""
COLUMNS = {
    "workload": "workload",
    "subscriptions": "subscriptions",
    "batch": "batch",
    "chosen": "chosen",
    "trials": "trials",
    "settled": "settled after s",
    "trial_share": "trials' share",
    **{f"us_{name}": f"{name}, µs" for name in (AUTO, *FIXED)},
    "best": "best fixed",
    "over_best": "auto / best",
    "low": "from",
    "high": "to",
    "over_tree": "auto / rtree",
    "over_twin": "rtree / twin",
    "chosen_streaming": "chosen for streams",
    "over_response": "response, auto / rtree",
    "verdict": f"<= {WITHIN:g}",
    "loss": "no loss",
}


def made(own: Workload, count: int, matchers: Mapping[str, str]) -> dict[str, EventFilter]:
    """Return the filters by name, all with the same subscriptions."""
    first = EventFilter(own.schema, matcher="rtree")
    own.subscribe(first, 0, count)
    with tempfile.TemporaryDirectory() as folder:
        first.save(Path(folder) / "index")
        # Not by subscribing: some build in many small layers then.
        return {
            name: EventFilter.load(Path(folder) / "index", matcher=matcher)
            for name, matcher in matchers.items()
        }


def use(filters: EventFilter, batches: Sequence[EventTable], least: int = EVENTS) -> None:
    """Match some batches, of so many events in all at least."""
    done = 0
    while done < least:
        for batch in batches:
            filters.match_batch(batch)
            done += len(batch)
            if done >= least:
                return


def stream(target: EventFilter, batches: Sequence[EventTable]) -> None:
    """Stream some batches."""
    for batch in batches:
        list(target.stream(batch))


def settle(step: Callable[[], object], target: EventFilter, most: float) -> float | None:
    """Use a filter until its first round is over; seconds that took, None where that was not enough."""
    begun = perf_counter()
    while perf_counter() - begun < most:
        step()
        state = target.stats()["matcher"]
        if state["rounds"] and state["trying"] is None:
            return perf_counter() - begun
    return None


def ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of two columns of times that belong together, and the ends of its interval."""
    logs = [math.log(a / b) for a, b in zip(over, under, strict=True)]
    middle = fmean(logs)
    error = stdev(logs) / math.sqrt(len(logs)) * float(t.ppf(0.975, len(logs) - 1))
    return math.exp(middle), math.exp(middle - error), math.exp(middle + error)


def turns(
    calls: Mapping[str, Callable[[], object]], names: Sequence[str], repeats: int
) -> dict[str, list[float]]:
    """Return seconds of each call, in another order each time, as each leaves its own data in the caches."""
    times: dict[str, list[float]] = {name: [] for name in names}
    order, shuffled = list(names), random.Random(0)
    for _ in range(repeats):
        shuffled.shuffle(order)
        for name, (seconds,) in rounds({name: calls[name] for name in order}, 1, WARM).items():
            times[name].append(seconds)
    return times


def responses(
    filters: Mapping[str, EventFilter], batches: Sequence[EventTable], repeats: int
) -> dict[str, list[float]]:
    """Return the mean response of each batch in seconds, where filters stream them by turns."""
    for one in filters.values():
        begun = perf_counter()
        while perf_counter() - begun < STREAMED:
            stream(one, batches)
    times: dict[str, list[float]] = {name: [] for name in filters}
    order, shuffled = list(filters), random.Random(0)
    for turn in range(repeats):
        shuffled.shuffle(order)
        for name in order:
            times[name].append(filters[name].stream(batches[turn % len(batches)]).mean_response)
    return times


def measure(own: Workload, count: int, size: int, fixed: Sequence[str], repeats: int, most: float) -> Row:
    """Return a row of the result."""
    filters = made(own, count, {name: name for name in (AUTO, *fixed)} | {TWIN: "rtree"})
    batches = [own.schema.read(own.events(k * size, size)) for k in range(max(BATCHES, EVENTS // size))]
    settled = settle(partial(use, filters[AUTO], batches), filters[AUTO], most)
    state: dict[str, Any] = filters[AUTO].stats()["matcher"]
    answers = {name: np.sort(one.match_batch(batches[0]).ids) for name, one in filters.items()}
    if not all(np.array_equal(found, answers[AUTO]) for found in answers.values()):
        raise RuntimeError(f"{own.name}: matchers answer differently")
    few = turns({name: partial(use, one, batches) for name, one in filters.items()}, list(filters), 2)
    best = min(min(times) for name, times in few.items() if name in fixed)
    near = [
        name for name, times in few.items() if name in (AUTO, "rtree", TWIN) or min(times) <= HOPELESS * best
    ]
    least = max(EVENTS, size)
    events = least * max(1, math.ceil(TURN / best))
    calls = {name: partial(use, filters[name], batches, events) for name in near}
    each = {name: median(times) / least * 1e6 for name, times in few.items()}
    times = turns(calls, near, repeats)
    each |= {name: median(own_times) / events * 1e6 for name, own_times in times.items()}
    winner = min((name for name in near if name in fixed), key=each.__getitem__)
    over_best, over_tree = (ratio(times[AUTO], times[name]) for name in (winner, "rtree"))
    over_twin = ratio(times["rtree"], times[TWIN])
    row: Row = {
        "workload": own.name,
        "subscriptions": count,
        "batch": size,
        "chosen": state["name"],
        "why": state["why"],
        "candidates": state["candidates"],
        "trials": state["trials"],
        "moves": state["moves"],
        "settled": settled,
        "trial_share": state["trial_seconds"] / state["matched_seconds"],
        **{f"us_{name}": value for name, value in each.items()},
        "best": winner,
        **dict(zip(("over_best", "low", "high"), over_best, strict=True)),
        **dict(zip(("over_tree", "tree_low", "tree_high"), over_tree, strict=True)),
        **dict(zip(("over_twin", "twin_low", "twin_high"), over_twin, strict=True)),
        "rounds": {name: [round(one * 1e6, 1) for one in times[name]] for name in times},
        "verdict": outcome(over_best[0] <= WITHIN),
    }
    if winner == "rtree":  # the difference of twins is not the filter's loss
        row["loss"] = outcome(over_tree[1] <= max(over_twin[0], 1 / over_twin[0]))
    if size > 1:
        streaming = made(own, count, {AUTO: AUTO})[AUTO]
        settle(partial(stream, streaming, batches), streaming, most)
        streamed = responses({AUTO: streaming, "rtree": filters["rtree"]}, batches, 4 * repeats)
        row["chosen_streaming"] = streaming.stats()["matcher"]["name"]
        over_response = ratio(streamed[AUTO], streamed["rtree"])
        row |= dict(zip(("over_response", "response_low", "response_high"), over_response, strict=True))
        row |= {f"response_{name}": median(own_times) * 1e6 for name, own_times in streamed.items()}
    return row


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture: the filter that chooses, by the best fixed one and by the R*-tree."""
    counts = sorted({row["subscriptions"] for row in rows})
    cells = list(dict.fromkeys((row["workload"], row["batch"]) for row in sorted(rows, key=_place)))
    figure = Figure(figsize=(3 + 4.5 * len(counts), 2 + 0.28 * len(cells)), layout="constrained")
    panels = figure.subplots(1, len(counts), sharex=True, sharey=True, squeeze=False)[0]
    for axes, count in zip(panels, counts, strict=True):
        own = [row for row in rows if row["subscriptions"] == count]
        places = np.array([-cells.index((row["workload"], row["batch"])) for row in own])
        for key, ends, off, color, name in (
            ("over_best", ("low", "high"), 0.2, "tab:blue", "time beside the best fixed matcher"),
            ("over_tree", ("tree_low", "tree_high"), 0.0, "tab:orange", "time beside the R*-tree"),
            (
                "over_response",
                ("response_low", "response_high"),
                -0.2,
                "tab:green",
                "mean response of a stream beside the R*-tree",
            ),
        ):
            there = np.array([key in row for row in own])
            if there.any():
                values = np.array([row[key] for row in own if key in row])
                errors = np.abs(np.array([[row[end] for row in own if end in row] for end in ends]) - values)
                axes.errorbar(
                    values,
                    places[there] + off,
                    xerr=errors,
                    fmt="o",
                    ms=4,
                    color=color,
                    capsize=2,
                    label=name,
                )
        axes.axvline(1.0, color="black", lw=1)
        axes.axvline(WITHIN, color="black", lw=1, ls=":")
        axes.set(title=f"{count:,} subscriptions", xscale="log")
        marks = (0.3, 0.5, 0.7, 1.0, 1.5)
        axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
        axes.minorticks_off()
        axes.grid(axis="y", alpha=0.3)
    panels[0].set_yticks(-np.arange(len(cells)), [f"{name}, batches of {size}" for name, size in cells])
    panels[0].set_ylim(0.6 - len(cells), 0.6)
    handles = {
        name: line for axes in panels for line, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    figure.supxlabel('with matcher="auto", as a multiple')
    save_picture(figure, path, dpi=100)


def _place(row: Row) -> tuple[int, int, int]:
    return row["batch"], list(WORKLOADS).index(row["workload"]), row["subscriptions"]


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("auto", __doc__, "seed", "out", "figure")
    add = parser.add_argument
    counts = [1000, 10_000, 100_000]
    add("--counts", type=positive, nargs="+", default=counts, help="of subscriptions (%(default)s)")
    add("--batches", type=positive, nargs="+", default=[1, 1000], help="their sizes (%(default)s)")
    for name, known in (("--workloads", WORKLOADS), ("--fixed", FIXED)):
        add(name, nargs="+", choices=known, default=known, metavar="NAME", help="all, if not given")
    add("--repeats", type=positive, default=15, help="rounds (%(default)s)")
    add("--seconds", type=positive, default=30, help="most to settle (%(default)s)")
    given = parser.parse_args(arguments)
    if "rtree" not in given.fixed:
        parser.error("--fixed: rtree has to be among them, which is what others are held against")
    settings = {"repeats": given.repeats, "seconds": given.seconds, "seed": given.seed}
    rows = kept_rows(given.out, "auto", settings)
    done = {(row["workload"], row["subscriptions"], row["batch"]) for row in rows}
    cells = [(name, n, size) for n in given.counts for size in given.batches for name in given.workloads]
    for name, count, size in tqdm([cell for cell in cells if cell not in done], unit="case", leave=False):
        rows.append(
            measure(workload(name, given.seed), count, size, given.fixed, given.repeats, given.seconds)
        )
        keep(given.out, "auto", settings, rows)
    rows.sort(key=lambda row: (row["subscriptions"], row["batch"], list(WORKLOADS).index(row["workload"])))
    keep(given.out, "auto", settings, rows)
    print(machine.one_line() + "\n")
    print(table(rows, COLUMNS))
    if given.figure is not None:
        draw(rows, given.figure)
    return 0
