"""Mean responses of batches by plan in seconds, all taken in the same way, and what they say.

Calls take turns: each batch is run by every call once, in another order each time. Before that, the last call
of this order runs the batch once without being timed. So each call finds the caches as another search for the
same events left them, whether it takes a microsecond or a second.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from time import perf_counter
from typing import NamedTuple

import numpy as np

from experiments.paper import confidence
from experiments.paper.confidence import Interval
from experiments.paper.index import GrowingFilter
from experiments.paper.plans import ARRIVAL, judged, level_of
from experiments.paper.runner import Run
from experiments.response.bursts import label
from rtfilter.adaptive import WHOLE, FixedPlan, Plan
from rtfilter.basics.dtypes import FloatArray
from rtfilter.events.table import EventTable
from rtfilter.replay.output import Row
from rtfilter.scheduler import resolve

MORE = 4
"""Quick batches are timed at most this many times as often as slow ones."""
DIGITS = 4
"""Significant digits of kept times."""
ORDERS = {"fifo": " in arrival order", "longest": " longest first"}
"""Orders that the best plans are timed in too, and what they add to the name of a plan."""


class Timed(NamedTuple):
    """The times of a batch's run."""

    seconds: float
    """Mean response, without the time of a consumer."""
    estimating: float
    """Seconds of it that estimating and ordering took."""


Call = Callable[[EventTable], Timed]
Times = dict[str, list[Timed]]
"""The times of a call, by its name; an entry per batch."""


def ordered(name: str, order: str) -> str:
    """Return the name of a plan in another order. Level 0 has no order, so its name does not change."""
    return name if level_of(name) == 0 else name + ORDERS[order]


def whole(batch: int) -> str:
    """Return the name of the plan that searches a whole batch at once, a plain join."""
    return f"0/{batch}"


def run_batch(index: GrowingFilter, plan: Plan, order: str, events: EventTable) -> Timed:
    """Run a batch by a plan in an order."""
    index.filter.policy, index.filter.controller = resolve(order), FixedPlan(plan.level, plan.group)
    stream = index.filter.stream(events)
    return Timed(stream.mean_response, stream.estimation)


def calls(run: Run, index: GrowingFilter, batch: int) -> dict[str, Call]:
    """Return the calls of all plans for batches of a size, by name, in all orders, with kernels loaded."""
    plans = {label(plan, batch): plan for plan in run.setting.plans(index.filter.tree.height, batch)}
    plans[whole(batch)] = WHOLE
    by_name: dict[str, Call] = {}
    for name, plan in plans.items():
        by_name[name] = partial(run_batch, index, plan, "shortest")
        for order in ORDERS:
            by_name.setdefault(ordered(name, order), partial(run_batch, index, plan, order))
    gc.freeze()  # predicates of flights are objects that the collector need not look at
    few = index.events(0, min(batch, 2))
    for warm_up in by_name.values():
        warm_up(few)
    return by_name


def in_turns(
    by_name: Mapping[str, Call],
    arriving: Iterator[EventTable],
    rounds: Callable[[float], int],
    tell: Callable[[str], None],
) -> Times:
    """Return time calls on the same batches, without garbage collection.

    `rounds` says how many batches there are, from the seconds that the first one took.
    """
    taken: Times = {name: [] for name in by_name}
    shuffle = np.random.default_rng(len(by_name)).permutation
    most, done = 1, 0
    while done < most:
        tell(f"batch {done + 1} of {most if done else '?'}")
        events = next(arriving)
        order = shuffle(list(by_name)).tolist()
        with no_collection():
            begun = perf_counter()
            by_name[order[-1]](events)
            for name in order:
                taken[name].append(by_name[name](events))
        done += 1
        if done == 1:
            most = rounds(perf_counter() - begun)
    return taken


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect garbage now, and none in the meantime."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def batches(index: GrowingFilter, batch: int, start: int = 0) -> Iterator[EventTable]:
    """Yield an endless sequence of batches of a size, from batch `start` of the workload on."""
    while True:
        yield index.events(start * batch, batch)
        start += 1


def measured(run: Run, index: GrowingFilter, batch: int, every: bool, more: Sequence[str] = ()) -> Row:
    """Time the plans of a batch size. The best of many plans is also a lucky one, so there are two rounds.

    In the first, a few batches choose the best plans. In the second, other batches are run by these plans in
    all orders, in arrival order, as a whole, by the plans named in `more` and, if `every`, by all plans.

    Returns
    -------
    Row
        The ``plans``, the ``height`` of the tree, and the seconds by name: of the ``first`` round, of the
        second (``times``), and those of the estimates (``estimates``).
    """
    profile, height = run.profile, index.filter.tree.height
    by_name, plans = calls(run, index, batch), names(run, height, batch)
    first = in_turns(
        {name: by_name[name] for name in plans},
        batches(index, batch), lambda _: profile.first, run.tell,
    )  # fmt: skip
    chosen = best_plans(responses(first), height)
    wanted = [ARRIVAL, whole(batch), *(plans if every else more)]
    for name in chosen.values():
        wanted += [name, *(ordered(name, order) for order in ORDERS)]

    def rounds(seconds: float) -> int:
        return min(max(profile.timed, int(profile.patience / seconds)), MORE * profile.timed)

    second = in_turns(
        {name: by_name[name] for name in dict.fromkeys(wanted)},
        batches(index, batch, profile.first), rounds, run.tell,
    )  # fmt: skip
    return {
        "batch": batch,
        "height": height,
        "plans": plans,
        "first": kept(first),
        "times": kept(second),
        "estimates": kept(second, "estimating"),
    }


def names(run: Run, height: int, batch: int) -> list[str]:
    """Return the names of all plans of a batch, level by level."""
    return [label(plan, batch) for plan in run.setting.plans(height, batch)]


def responses(times: Times) -> dict[str, list[float]]:
    """Return the mean responses alone."""
    return {name: [each.seconds for each in own] for name, own in times.items()}


def kept(times: Times, what: str = "seconds") -> dict[str, list[float]]:
    """Return times as they are kept in a row."""
    return {name: [float(f"{getattr(each, what):.{DIGITS}g}") for each in own] for name, own in times.items()}


def best_plans(times: Mapping[str, Sequence[float]], height: int) -> dict[str, str]:
    """Return the best plans in time: of all, of the paper's range, and with single events."""
    alone = [name for name in times if name.endswith("/1")]
    return {
        "best": fastest(times, list(times)),
        "judged": fastest(times, judged(list(times), height)),
        "alone": fastest(times, alone or [ARRIVAL]),
    }


def fastest(times: Mapping[str, Sequence[float]], among: Sequence[str]) -> str:
    """Return the name with the smallest median, relative to the arrival order of the same batch."""
    base = np.array(times[ARRIVAL])
    return min(among, key=lambda name: median(np.array(times[name]) / base))


def compared(row: Row, which: str) -> Row:
    """Return the gains of one of the best plans of a row of `measured`, with intervals.

    Returns
    -------
    Row
        Its name (``plan``), its seconds (``own``) and those of the arrival order (``random``); its ``gain``
        over the arrival order; that of the same plan in arrival order (``fifo``) and ``longest`` first; the
        gain over the same plan in arrival order (``order``); the ``share`` of the estimate.
    """
    times: Mapping[str, list[float]] = row["times"]
    name = best_plans(row["first"], row["height"])[which]
    base = times[ARRIVAL]
    others = {order: confidence.faster(times[ordered(name, order)], base) for order in ORDERS}
    return {
        "plan": name,
        "own": confidence.middle(times[name]),
        "random": confidence.middle(base),
        "gain": confidence.faster(times[name], base),
        "order": confidence.faster(times[name], times[ordered(name, "fifo")]),
        "share": share(row, name),
        **others,
    }


def share(row: Row, name: str) -> Interval:
    """Return the share of the estimate in the response of a plan."""
    return confidence.middle(np.array(row["estimates"][name]) / np.array(row["times"][name]))


def response(row: Row) -> FloatArray:
    """Return the seconds of all plans of a row, float64 (b, p)."""
    return np.array([row["times"][name] for name in row["plans"]]).T
