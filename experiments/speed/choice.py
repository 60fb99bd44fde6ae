"""A filter that chooses its matcher beside each matcher that is fixed.

For each workload, number of subscriptions and size of batches, the filter that chooses is used until its
first round of trials is over. Then it and the fixed ones take turns in one process, with the same batches. A
ratio is the geometric mean over the rounds, with an interval of 95 % (Student's). Fixed ones that take more
than `HOPELESS` times as long as the best are timed in two rounds only.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from time import perf_counter
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import t
from tqdm import tqdm

from experiments.arguments import new_file, positive
from experiments.output import keep, kept_rows, outcome
from experiments.timing import WARM, rounds
from rtfilter import EventFilter
from rtfilter.events.table import EventTable
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table
from rtfilter.replay.workloads import WORKLOADS, Workload, workload

AUTO = "auto"
FIXED = ("rtree", "split", "hem", "masks", "counting", "rein", "tama", "be-tree")
"""All matchers that are compiled."""
WITHIN = 1.1
"""Target: the filter that chooses takes at most so many times as long as the best fixed one."""
HOPELESS = 3.0
BATCHES = 8
"""Different batches."""
EVENTS = 256
"""Events that are matched in a turn, at least."""
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
    "verdict": f"<= {WITHIN:g}",
}


def made(own: Workload, count: int) -> dict[str, EventFilter]:
    """The filters, all with the same subscriptions."""
    first = EventFilter(own.schema)
    own.subscribe(first, 0, count)
    with tempfile.TemporaryDirectory() as folder:
        first.save(Path(folder) / "index")
        # Not by subscribing: some build in many small layers then.
        filters = {name: EventFilter.load(Path(folder) / "index", matcher=name) for name in (AUTO, *FIXED)}
    return filters


def use(filters: EventFilter, batches: Sequence[EventTable], least: int = EVENTS) -> None:
    """Match some batches, of so many events in all at least."""
    done = 0
    while done < least:
        for batch in batches:
            filters.match_batch(batch)
            done += len(batch)
            if done >= least:
                return


def settle(target: EventFilter, batches: Sequence[EventTable], most: float) -> float | None:
    """Use a filter until its first round is over; seconds that took, None where that was not enough."""
    begun = perf_counter()
    while perf_counter() - begun < most:
        use(target, batches)
        state = target.stats()["matcher"]
        if state["rounds"] and state["trying"] is None:
            return perf_counter() - begun
    return None


def ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of two columns of times that belong together, and the ends of its interval."""
    logs = [math.log(a / b) for a, b in zip(over, under, strict=True)]
    middle = fmean(logs)
    error = stdev(logs) / math.sqrt(len(logs)) * float(t.ppf(0.975, len(logs) - 1))
    return math.exp(middle), math.exp(middle - error), math.exp(middle + error)


def measure(own: Workload, count: int, size: int, repeats: int, most: float) -> Row:
    """One row of the result."""
    filters = made(own, count)
    batches = [own.schema.read(own.events(k * size, size)) for k in range(max(BATCHES, EVENTS // size))]
    settled = settle(filters[AUTO], batches, most)
    state: dict[str, Any] = filters[AUTO].stats()["matcher"]
    answers = {name: np.sort(one.match_batch(batches[0]).ids) for name, one in filters.items()}
    if not all(np.array_equal(found, answers[AUTO]) for found in answers.values()):
        raise RuntimeError(f"{own.name}: matchers answer differently")
    calls = {name: partial(use, one, batches) for name, one in filters.items()}
    few = rounds(calls, 2, WARM)
    best = min(min(times) for name, times in few.items() if name != AUTO)
    near = [name for name, times in few.items() if name == AUTO or min(times) <= HOPELESS * best]
    near = list(dict.fromkeys([*near, "rtree"]))
    times, order = few | {name: [] for name in near}, random.Random(0)
    for _ in range(repeats):  # in another order each time, as each leaves its own data in the caches
        order.shuffle(near)
        for name, (seconds,) in rounds({name: calls[name] for name in near}, 1, WARM).items():
            times[name].append(seconds)
    each = {name: median(own_times) / max(EVENTS, size) * 1e6 for name, own_times in times.items()}
    winner = min((name for name in near if name != AUTO), key=each.__getitem__)
    over_best, over_tree = (ratio(times[AUTO], times[name]) for name in (winner, "rtree"))
    return {
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
        "rounds": {name: [round(one * 1e6, 1) for one in times[name]] for name in times},
        "verdict": outcome(over_best[0] <= WITHIN),
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture: the filter that chooses, by the best fixed one and by the R*-tree."""
    figure = Figure(figsize=(12, 1.5 + 0.28 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(rows))[::-1]
    for key, ends, off, color in (
        ("over_best", ("low", "high"), 0.12, "tab:blue"),
        ("over_tree", ("tree_low", "tree_high"), -0.12, "tab:orange"),
    ):
        values = np.array([row[key] for row in rows])
        errors = np.abs(np.array([[row[end] for row in rows] for end in ends]) - values)
        name = "beside the best fixed matcher" if key == "over_best" else "beside the R*-tree"
        axes.errorbar(values, places + off, xerr=errors, fmt="o", color=color, capsize=2, label=name)
    axes.axvline(1.0, color="black", lw=1)
    axes.axvline(WITHIN, color="black", lw=1, ls=":")
    names = [
        f"{row['workload']}, {row['subscriptions']:,}, batches of {row['batch']}: {row['chosen']}"
        for row in rows
    ]
    axes.set_yticks(places, names)
    axes.margins(y=0.02)
    axes.set(xlabel='time with matcher="auto", as a multiple', xscale="log")
    marks = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    axes.legend(loc="upper left")
    save_picture(figure, path, dpi=100)


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments auto", description=(__doc__ or "").split("\n")[0]
    )
    counts, sizes = [10_000, 100_000], [1, 1000]
    parser.add_argument(
        "--counts", type=positive, nargs="+", default=counts, help="of subscriptions (%(default)s)"
    )
    parser.add_argument(
        "--batches", type=positive, nargs="+", default=sizes, help="their sizes (%(default)s)"
    )
    parser.add_argument(
        "--workloads",
        nargs="+",
        choices=WORKLOADS,
        default=WORKLOADS,
        metavar="NAME",
        help="all, if not given",
    )
    parser.add_argument("--repeats", type=positive, default=15, help="rounds (%(default)s)")
    parser.add_argument("--seconds", type=positive, default=30, help="most to settle (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the workloads (%(default)s)")
    parser.add_argument("--out", type=new_file, help="JSON file for the results; goes on with what is there")
    parser.add_argument("--picture", type=new_file, help="file for the picture")
    given = parser.parse_args(arguments)
    settings = {"repeats": given.repeats, "seconds": given.seconds, "seed": given.seed}
    rows = kept_rows(given.out, "auto", settings)
    done = {(row["workload"], row["subscriptions"], row["batch"]) for row in rows}
    cells = [(name, n, size) for n in given.counts for size in given.batches for name in given.workloads]
    for name, count, size in tqdm([cell for cell in cells if cell not in done], unit="case", leave=False):
        rows.append(measure(workload(name, given.seed), count, size, given.repeats, given.seconds))
        keep(given.out, "auto", settings, rows)
    rows.sort(key=lambda row: (row["subscriptions"], row["batch"], list(WORKLOADS).index(row["workload"])))
    keep(given.out, "auto", settings, rows)
    print(machine.one_line() + "\n")
    print(table(rows, COLUMNS))
    if given.picture is not None:
        draw(rows, given.picture)
    return 0
