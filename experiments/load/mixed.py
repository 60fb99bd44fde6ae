"""Mixed load: batches of events arrive as a Poisson process while other threads change the subscriptions.

First a closed loop measures the capacity: threads match batches and make changes without a pause. Then, in an
open loop with the same threads and cores, batches and changes arrive at a share of that rate. They arrive
whether or not earlier ones are done. A response time is counted from the arrival of the batch, with all its
waiting. It is compared with the mean response that queueing theory expects if batches and changes take as
long as in the closed loop.

The experiment records when each batch and each change asked for the index, got it and released it. From these
times it counts which operations waited for which. Some answers are compared with brute force over the
subscriptions as they were when the batch got the index.

Then operations arrive at half of that rate, while one more thread makes long calls: it saves, adds many
subscriptions at once, removes them, and packs the index again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

from experiments.arguments import add_sizes, add_workloads, command, sized
from experiments.load.others import Others
from experiments.load.watched import Turn, WatchedGate
from experiments.output import keep, outcome
from experiments.peers.scans import brute_force, require_equal
from experiments.timing import cores, rounds
from rtfilter import EventFilter
from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.basics.results import Matches
from rtfilter.predicates.bounds.bound_arrays import bounds_predicate
from rtfilter.predicates.predicate import Predicate
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table
from rtfilter.replay.workloads import BOXES, Bounds, BoxWorkload

CHANGES = 0.1
"""Share of the changes in all operations. An operation is an event, or a change of one subscription."""
KINDS = ("subscribe", "update", "unsubscribe")
"""The kinds of changes. They take turns, so the number of subscriptions stays the same."""
BATCHES = 500
"""Number of different batches. After the last one, the first comes again."""
TRIALS = 5
"""Number of closed loops; their median is the capacity."""
TIMES = np.dtype([(name, np.float64) for name in ("due", "asked", "begun", "left", "done")])
"""Seconds when an operation was due, asked for the index, got it, released it, and returned."""
TURNS = np.dtype([("begun", np.float64), ("left", np.float64), ("own", np.float64), ("alone", np.bool_)])
"""Seconds when a thread got the index and released it, and of its own time; whether it was alone."""
MOST_HELD_MS, MOST_WAITED_MS = 5.0, 10.0
"""Targets: how long a turn of changes lasts, and how long turns of changes keep a batch waiting, at most."""
MANY = 10**12
"""First id of the subscriptions of long calls."""
COLUMNS = {
    "workload": "workload",
    "what": "",
    "rate": "asked /s",
    "asked": "asked",
    "done": "done",
    "expected_ms": "expected ms",
    "mean_ms": "mean ms",
    "p50_ms": "p50",
    "p99_ms": "p99",
    "max_ms": "max",
    "queue": "mean queue",
    "longest": "longest",
    "batches": "most batches waited for",
    "changes": "most changes",
    "verdict": "",
}
WAITS = {
    "workload": "workload",
    "what": "",
    "seconds": "s",
    "done": "batches",
    "p99_ms": "p99 ms",
    "p999_ms": "p99.9 ms",
    "turns": "turns of changes",
    "held_ms": "longest, own ms",
    "held_p999_ms": "p99.9, clock ms",
    "waited_ms": "a batch waited for changes, own ms",
    "waited_p999_ms": "p99.9, clock ms",
    "verdict": "",
}


class Size(NamedTuple):
    """The size of a measurement."""

    boxes: int
    events: int
    """Events of a batch."""
    seconds: float
    """Time during which operations arrive."""
    trial: int
    """Number of batches of a closed loop."""
    checked: int
    """Number of batches of which one event is compared with brute force."""
    load: float
    """Rate of arrivals, as a share of the capacity."""
    matchers: int
    """Number of threads that match, and of cores that the process uses."""
    changers: int
    """Number of threads that change subscriptions."""
    many: int
    """Number of subscriptions of a long call."""


FULL = Size(
    boxes=1_000_000,
    events=100,
    seconds=30.0,
    trial=300,
    checked=50,
    load=0.9,
    matchers=1,
    changers=16,
    many=100_000,
)
QUICK = FULL._replace(boxes=20_000, seconds=0.3, trial=20, checked=5, many=2000)


NO_CALLS: Mapping[str, Callable[[], object]] = {}


class Changes:
    """Changes of a filter, one call each, that may be made in any order, and the subscriptions after them.

    Parameters
    ----------
    target : EventFilter
        A filter with the ids 0 to n - 1.
    boxes : Bounds
        The boxes of these n subscriptions.
    workload : BoxWorkload
        The source of the boxes of the changes.
    """

    def __init__(self, target: EventFilter, boxes: Bounds, workload: BoxWorkload) -> None:
        self._target, self._boxes, self._workload = target, boxes, workload
        self._old = np.random.default_rng(workload.seed).permutation(len(boxes.low))
        self._predicates: list[Predicate] = []

    def prepare(self, total: int) -> None:
        """Build the predicates of the first `total` changes, so that this is not timed."""
        if total > len(self._old):
            raise ValueError(
                f"{total:,} changes need as many subscriptions, but there are {len(self._old):,}"
            )
        ready = len(self._predicates)
        fresh = self._workload.subscriptions(len(self._old) + ready, max(total - ready, 0))
        schema = self._target.schema
        self._predicates += [bounds_predicate(*sides, schema) for sides in zip(*fresh, strict=True)]

    def __len__(self) -> int:
        """Return the number of changes that are prepared."""
        return len(self._predicates)

    def make(self, change: int) -> None:
        """Make the change of this number."""
        kind, old = KINDS[change % len(KINDS)], int(self._old[change])
        if kind == "subscribe":
            self._target.subscribe(self._predicates[change], id=len(self._old) + change)
        elif kind == "update":
            self._target.update(old, self._predicates[change])
        else:
            self._target.unsubscribe(old)

    def content(self, made: BoolArray) -> tuple[IntArray, Bounds]:
        """Return ids, int64 (m,), and boxes after the changes marked in `made`, bool (len(self),)."""
        first = len(self._old)
        changes = np.flatnonzero(made)
        kinds = changes % len(KINDS)
        kept = np.ones(first, np.bool_)
        kept[self._old[changes[kinds != KINDS.index("subscribe")]]] = False
        came = changes[kinds != KINDS.index("unsubscribe")]
        subscribed = came % len(KINDS) == KINDS.index("subscribe")
        ids = np.concatenate([np.flatnonzero(kept), np.where(subscribed, first + came, self._old[came])])
        fresh = self._workload.subscriptions(first, len(self))
        sides = [np.concatenate([old[kept], new[came]]) for old, new in zip(self._boxes, fresh, strict=True)]
        return ids, Bounds(*sides)


class Log(NamedTuple):
    """The times and the answers of an open loop."""

    batches: AnyArray
    """`TIMES` (n,), in order of arrival."""
    changes: AnyArray
    """`TIMES` (m,), in order of arrival."""
    answers: dict[int, Matches]
    """The matches of the batches that are to be checked, by the number of the batch."""
    turns: AnyArray
    """`TURNS` (t,), in the order in which they ended."""
    calls: list[tuple[str, float, float]]
    """Name, begin and end of each long call, in seconds."""


def arrivals(rng: np.random.Generator, rate: float, seconds: float) -> FloatArray:
    """Return times of a Poisson process between 0 and `seconds`, ascending, float64 (n,); at least one."""
    total = max(rng.poisson(rate * seconds), 1)
    return np.sort(rng.uniform(0, seconds, total))


def serve(
    threads: int, due: FloatArray, act: Callable[[int], object], step: Callable[[], object]
) -> list[Callable[[], None]]:
    """Return functions for `threads` threads, which call act(i) for each i in order, once due[i] has come.

    `due` holds seconds of `perf_counter`, ascending. `step` is called after each call.
    """
    numbers = count()

    def work() -> None:
        while (i := next(numbers)) < len(due):
            sleep(max(due[i] - perf_counter(), 0))
            act(i)
            step()

    return [work] * threads


def together(works: Sequence[Callable[[], None]]) -> None:
    """Run each function in a thread of its own; the first error is raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        for running in [pool.submit(work) for work in works]:
            running.result()


def run(
    target: EventFilter,
    batches: FloatArray,
    change: Callable[[int], object],
    due: tuple[FloatArray, FloatArray],
    size: Size,
    checked: Sequence[int] = (),
    step: Callable[[], object] = lambda: None,
    calls: Mapping[str, Callable[[], object]] = NO_CALLS,
) -> Log:
    """Match batches and make changes when they are due, in separate threads.

    Parameters
    ----------
    target : EventFilter
        A filter with a `WatchedGate`.
    batches : float64 (m, events, d)
        Batch i is `batches[i % m]`.
    change : int -> object
        Makes the change of a number.
    due : (float64 (n,), float64 (k,))
        Times when batches and changes are due, in seconds from now, ascending; all 0 for a closed loop.
    checked : sequence of int
        Numbers of the batches whose answers are kept.
    step : () -> object
        Called after each batch, in any thread.
    calls : mapping of str to callable
        Long calls by name, made one after the other in a thread of their own, evenly over the time.
    """
    gate = target._road.gate
    assert isinstance(gate, WatchedGate)
    kept, answers = set(checked), dict[int, Matches]()
    logs = [np.zeros(len(times), TIMES) for times in due]
    start = perf_counter()

    def remember(log: AnyArray, i: int) -> None:
        turn: Turn = gate.last
        times = turn.asked, turn.begun, turn.left, perf_counter()
        log[i] = (log["due"][i], *(time - start for time in times))

    def match(i: int) -> None:
        matches = target.match_batch(batches[i % len(batches)])
        remember(logs[0], i)
        if i in kept:
            answers[i] = matches

    def make(i: int) -> None:
        change(i)
        remember(logs[1], i)

    made: list[tuple[str, float, float]] = []

    def call() -> None:
        for i, (name, long) in enumerate(calls.items()):
            sleep(max(start + due[0][-1] * (i + 0.2) / len(calls) - perf_counter(), 0))
            begun = perf_counter()
            long()
            made.append((name, begun - start, perf_counter() - start))

    for log, times in zip(logs, due, strict=True):
        log["due"] = times
    gate.turns.clear()
    together(
        [
            *serve(size.matchers, start + due[0], match, step),
            *serve(size.changers, start + due[1], make, lambda: None),
            call,
        ]
    )
    turns = [(turn.begun - start, turn.left - start, turn.own, turn.alone) for turn in gate.turns]
    return Log(logs[0], logs[1], answers, np.array(turns, TURNS), made)


def within(times: FloatArray, after: FloatArray, before: FloatArray) -> IntArray:
    """Return the number of times in each open interval (after, before), int64 (n,)."""
    ordered = np.sort(times)
    inside: IntArray = np.searchsorted(ordered, before) - np.searchsorted(ordered, after, "right")
    return np.maximum(inside, 0)


def waiting(log: AnyArray) -> IntArray:
    """Return for each batch how many earlier ones still waited for the index at its arrival, int64 (n,)."""
    begun = np.sort(log["begun"])
    ahead: IntArray = np.arange(len(log)) - np.searchsorted(begun, log["due"])
    return ahead


def queueing(service: float, load: float) -> float:
    """Return the mean response time of one server with Poisson arrivals and constant service time (M/D/1)."""
    return service * (1 + load / (2 * (1 - load))) if load < 1 else float("inf")


def describe(log: AnyArray, seconds: float, weight: int = 1) -> Row:
    """Return a row with response times of operations in ms, counted from when they were due.

    An operation that was not done counts in ``asked`` only. `weight` is the number of events of an operation.
    """
    done = log[log["done"] > 0]
    response = (done["done"] - done["due"]) * 1e3
    p50, p99 = np.percentile(response, (50, 99))
    return {
        "rate": weight * len(log) / seconds,
        "asked": weight * len(log),
        "done": weight * len(done),
        "mean_ms": float(response.mean()),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "max_ms": float(response.max()),
    }


def waits(log: Log) -> dict[str, IntArray]:
    """Return the number of operations that each operation waited for at the gate.

    Returns
    -------
    dict
        For each batch, int64 (n,): ``batches`` and ``changes``, the numbers of batches and of changes that
        released the index after this batch had asked for it and before it got it. For each change,
        int64 (m,): ``overtaking``, the number of batches that got the index after this change had asked for
        it and before it got it; ``due``, the same from when the change was due; ``ahead``, the number of
        changes that released the index in that time.
    """
    batches, changes = log.batches, log.changes
    return {
        "batches": within(batches["left"], batches["asked"], batches["begun"]),
        "changes": within(changes["left"], batches["asked"], batches["begun"]),
        "overtaking": within(batches["begun"], changes["asked"], changes["begun"]),
        "due": within(batches["begun"], changes["due"], changes["begun"]),
        "ahead": within(changes["left"], changes["asked"], changes["begun"]),
    }


def kept_waiting(log: Log) -> FloatArray:
    """Return the seconds of all changes that ended while each batch waited, float64 (n,)."""
    alone = np.sort(log.turns[log.turns["alone"]], order="left")
    total = np.concatenate([[0.0], np.cumsum(alone["own"])])
    first = np.searchsorted(alone["left"], log.batches["asked"], "right")
    last = np.searchsorted(alone["left"], log.batches["begun"], "right")
    waited: FloatArray = total[np.maximum(first, last)] - total[first]
    return waited


def gate_row(log: Log, name: str, begin: float, end: float) -> Row:
    """Return a row with the gate's exclusive phases and the waits of batches, within an interval of time."""
    inside = (log.batches["due"] >= begin) & (log.batches["due"] <= end)
    batches, waited = log.batches[inside], kept_waiting(log)[inside]
    alone = log.turns[log.turns["alone"] & (log.turns["begun"] >= begin) & (log.turns["begun"] <= end)]
    row: Row = {"what": name, "seconds": end - begin, "done": len(batches), "turns": len(alone)}
    if len(batches):
        response = (batches["done"] - batches["due"]) * 1e3
        p99, p999 = np.percentile(response, (99, 99.9))
        clock = (batches["begun"] - batches["asked"]) * 1e3
        row |= {
            "p99_ms": float(p99),
            "p999_ms": float(p999),
            "waited_ms": float(waited.max()) * 1e3,
            "waited_p999_ms": float(np.percentile(clock, 99.9)),
        }
    if len(alone):
        held = (alone["left"] - alone["begun"]) * 1e3
        row |= {
            "held_ms": float(alone["own"].max()) * 1e3,
            "held_p999_ms": float(np.percentile(held, 99.9)),
        }
    most = float(row.get("held_ms", 0.0)), float(row.get("waited_ms", 0.0))
    row["verdict"] = outcome(most[0] <= MOST_HELD_MS and most[1] <= MOST_WAITED_MS)
    return row


def long_calls(target: EventFilter, workload: BoxWorkload, size: Size, folder: Path) -> dict[str, Any]:
    """Return the calls that take long, by name; each is made once, in this order."""
    many = workload.subscriptions(3 * size.boxes, size.many)
    ids = np.arange(MANY, MANY + size.many)
    return {
        "saving": lambda: target.save(folder / "index"),
        f"adding {size.many:,}": lambda: target.subscribe_boxes(*many, ids=ids),
        f"removing {size.many:,}": lambda: target.unsubscribe_many(ids),
        "repacking": target.repack,
    }


def verdict(row: Row, fair: bool) -> str:
    """Return the verdict on a row: all operations were done, and waited in turn."""
    return outcome(row["done"] == row["asked"] and fair)


def check(log: Log, points: FloatArray, changes: Changes, before: int, rng: np.random.Generator) -> None:
    """Compare one event of each batch in `log.answers` with brute force.

    A batch sees the changes that released the index before the batch got it. The first `before` changes were
    made before the log begins.

    Raises
    ------
    AssertionError
        An answer is wrong.
    """
    for batch, matches in log.answers.items():
        made = np.zeros(len(changes), np.bool_)
        made[:before] = True
        made[before:][log.changes["left"] < log.batches["begun"][batch]] = True
        ids, boxes = changes.content(made)
        row = int(rng.integers(len(matches)))
        found = matches[row][matches[row] < MANY]
        (inside,) = brute_force(boxes, points[batch % len(points)][row : row + 1])
        require_equal(f"batch {batch}, event {row}", [found], [np.sort(ids[inside])])


class Course:
    """The open loops of one workload, one after the other, with the changes of one go on in the next."""

    def __init__(self, workload: BoxWorkload, size: Size, bar: Any) -> None:
        self.workload, self.size, self._bar = workload, size, bar
        self._rng = np.random.default_rng(workload.seed)
        boxes = workload.subscriptions(0, size.boxes)
        points = workload.events(0, BATCHES * size.events)
        self._batches = points.reshape(BATCHES, size.events, workload.dimensions)
        self.target = EventFilter(workload.schema, matcher="rtree")
        self.target._road.gate = WatchedGate()
        self._say("loading")
        self.target.subscribe_boxes(*boxes)
        self._changes = Changes(self.target, boxes, workload)

    def _say(self, what: str) -> None:
        self._bar.set_postfix_str(f"{self.workload.name}: {what}")

    def capacity(self) -> dict[str, float]:
        """Return seconds a batch, by whether changes are made meanwhile, in closed loops."""
        self._say("capacity")
        trial = round(self.size.trial * self.share)
        self._changes.prepare((TRIALS + 1) * trial)
        first = count(0, trial)

        def closed_loop(own: int) -> None:
            start = next(first) if own else 0
            due = np.zeros(self.size.trial), np.zeros(own)
            run(self.target, self._batches, lambda i: self._changes.make(start + i), due, self.size)

        loops = {"alone": partial(closed_loop, 0), "mixed": partial(closed_loop, trial)}
        rounds(loops, 1)  # compiles the kernels and fills the caches
        taken = rounds(loops, TRIALS)
        return {name: median(times) / self.size.trial for name, times in taken.items()}

    @property
    def share(self) -> float:
        """Changes for each batch."""
        return self.size.events * CHANGES / (1 - CHANGES)

    def open_loop(self, what: str, rate: float, calls: Mapping[str, Any] = NO_CALLS) -> tuple[Log, float]:
        """Match batches that arrive at a rate, with changes; return the log, and cores of other processes."""
        before, seconds = len(self._changes), self.size.seconds
        due = arrivals(self._rng, rate, seconds), arrivals(self._rng, rate * self.share, seconds)
        self._changes.prepare(before + len(due[1]))
        checked = sorted(self._rng.permutation(len(due[0]))[: self.size.checked].tolist())
        self._say(what)
        self._bar.reset(len(due[0]))
        gc.collect()
        gc.freeze()  # predicates of later changes are objects that the collector need not look at
        others = Others()

        def change(i: int) -> None:
            self._changes.make(before + i)

        log = run(self.target, self._batches, change, due, self.size, checked, self._bar.update, calls)
        taken = others.cores()
        gc.unfreeze()
        self._say("comparing with brute force")
        check(log, self._batches, self._changes, before, self._rng)
        return log, taken


def measure(workload: BoxWorkload, size: Size, bar: Any) -> tuple[list[Row], list[Row], Log]:
    """Measure the capacity, then the mixed load: rows of responses, of waits at the gate, and the log."""
    course = Course(workload, size, bar)
    times = course.capacity()
    rate = size.load / times["mixed"]
    log, taken = course.open_loop("open loop", rate)
    counted = waits(log)
    queue = waiting(log.batches)
    events: Row = {
        "workload": workload.name,
        "what": "events",
        "alone": size.events / times["alone"],
        "capacity": size.events / times["mixed"],
        **describe(log.batches, size.seconds, size.events),
        "expected_ms": queueing(times["mixed"], size.load) * 1e3 if size.matchers == 1 else None,
        "queue": float(queue.mean()),
        "longest": int(queue.max()),
        "batches": int(counted["batches"].max()),
        "changes": int(counted["changes"].max()),
        "others": taken,
    }
    events["verdict"] = verdict(events, int(counted["batches"].max()) < size.matchers)
    updates: Row = {
        "workload": workload.name,
        "what": "changes",
        **describe(log.changes, size.seconds),
        "batches": int(counted["overtaking"].max()),
        "batches_since_due": int(counted["due"].max()),
    }
    # Each change that ends may let all waiting batches in, but only once.
    turns = size.matchers * (1 + counted["ahead"])
    updates["verdict"] = verdict(updates, bool((counted["overtaking"] <= turns).all()))
    with TemporaryDirectory() as folder:
        calls = long_calls(course.target, workload, size, Path(folder))
        long, _ = course.open_loop("long calls", rate / 2, calls)
    of_gate = [gate_row(log, f"load {size.load:.0%}", 0.0, size.seconds)]
    of_gate += [gate_row(long, name, begin, end) for name, begin, end in long.calls]
    return [events, updates], [{"workload": workload.name, **row} for row in of_gate], log


def draw(logs: dict[str, Log], path: Path) -> None:
    """Draw the share of events and of changes that take longer than a time into a picture."""
    figure = Figure(figsize=(6 * len(logs), 4.2), layout="constrained")
    for axes, (name, log) in zip(figure.subplots(1, len(logs), squeeze=False)[0], logs.items(), strict=True):
        for label, own in (("events", log.batches), ("changes", log.changes)):
            response = np.sort(own["done"] - own["due"]) * 1e3
            axes.plot(response, 1 - np.arange(len(response)) / len(response), label=label)
        axes.set(
            title=name,
            xscale="log",
            yscale="log",
            xlabel="response time, ms",
            ylabel="share that takes longer",
        )
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    save_picture(figure, path, dpi=110)


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("mixed", __doc__, "quick", "seed", "out", "figure")
    add_sizes(
        parser,
        FULL,
        boxes="number of boxes in the index",
        events="number of events of a batch",
        seconds="how long operations arrive",
        load="rate of arrivals, as a share of the capacity",
        matchers="number of threads that match, each on a core",
        changers="number of threads that change subscriptions",
        many="subscriptions of a long call",
    )
    add_workloads(parser, ["wide", "narrow"])
    given = parser.parse_args(arguments)
    size = sized(given, QUICK, FULL)
    rows: list[Row] = []
    gates: list[Row] = []
    logs: dict[str, Log] = {}
    with cores(size.matchers), tqdm(unit="batch", leave=False) as bar:
        for name in given.workloads:
            found, of_gate, logs[name] = measure(BOXES[name](given.seed), size, bar)
            rows += found
            gates += of_gate
    print(machine.one_line())
    print(
        f"{size.boxes:,} boxes, batches of {size.events}; {size.matchers} threads match on as many cores, "
        f"{size.changers} change subscriptions;\n{size.checked} answers of each workload compared with "
        "brute force\n"
    )
    for row in rows:
        if row["what"] == "events":
            print(
                f"{row['workload']}: capacity {row['alone']:,.0f} events/s without changes, "
                f"{row['capacity']:,.0f} with {CHANGES:.0%} changes; the load was {size.load:.0%} of it;\n"
                f"other processes took {row['others']:.2f} cores"
            )
    print("\n" + table(rows, COLUMNS))
    print(
        "\nTurns of changes, and batches that waited for them; long calls at "
        f"{size.load / 2:.0%} of the capacity.\nTargets, of a thread's own time: a turn lasts "
        f"{MOST_HELD_MS:g} ms at most, and a batch waits {MOST_WAITED_MS:g} ms at most.\n"
    )
    print(table(gates, WAITS))
    settings = size._asdict() | {"workloads": given.workloads, "seed": given.seed}
    keep(given.out, "mixed", settings, rows + gates)
    if given.figure is not None:
        draw(logs, given.figure)
    return 0
