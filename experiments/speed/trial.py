"""A trial of a peer on an index, in its own process: build time, memory, and time per event by batch size.

`run` starts the process. The process runs this module: it reads a case as JSON from standard input and writes
its rows to standard output. With a new process, the memory of one peer does not mix with that of another, and
a crash of a peer does not end the experiment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from experiments import peers
from experiments.other_boxes import sided
from experiments.peers.cost import affordable, memory, peak_memory, too_much
from experiments.peers.scans import brute_force, require_equal
from experiments.timing import WARM, in_process, one_core, rounds, timed
from rtfilter.basics.dtypes import FloatArray
from rtfilter.replay.output import Row
from rtfilter.replay.workloads import BOXES, Bounds, BoxWorkload

CHECKED = 20
"""Number of events whose answers are compared with brute force."""
EVENTS = 1000
"""Events of a round, if batches are smaller than that; a slow peer gets fewer."""
YARDSTICK = (20_000, 10)
"""Boxes and events of the yardstick: brute force of fixed size, timed in alternation with the peer."""
INDEX = ("peer", "workload", "subscriptions", "dimensions", "side")
"""The fields of `Case` that identify its index."""


class Case(NamedTuple):
    """The case that a process measures."""

    peer: str
    workload: str
    """A name of `BOXES`, or ``sided``."""
    subscriptions: int
    dimensions: int
    side: float | None
    """Side of the boxes of ``sided``, as a share of the domain; None for other workloads."""
    batches: Sequence[int]
    seed: int
    repeats: int
    build_seconds: float
    """Longest time to build; this library is always built."""
    ask_seconds: float
    """Longest time for one event, and for all rounds of a batch size and a way to ask."""

    @property
    def key(self) -> tuple[Any, ...]:
        """The values of `INDEX`."""
        return self[: len(INDEX)]

    def row(self) -> Row:
        """Return the first cells of its rows."""
        return dict(zip(INDEX, self.key, strict=True))

    def source(self) -> BoxWorkload:
        """Return the workload."""
        if self.side is not None:
            return sided(self.seed, self.dimensions, self.side)
        return BOXES[self.workload](self.seed, self.dimensions)


def run(case: Case) -> list[Row]:
    """Return rows of a case, one per batch size, or a single one that gives the reason in ``skipped``."""
    # Estimated times may be wrong, but not by much.
    limit = 120 + 3 * case.build_seconds + 6 * (1 + len(case.batches)) * case.ask_seconds
    rows, why, told = in_process("experiments.speed.trial", case, limit)
    skipped = f"failed with {told}" if why == "failed" else told
    return [case.row() | {"skipped": skipped}] if why else list(rows)


def measure(case: Case) -> list[Row]:
    """Return the rows of a case, measured in this process."""
    kind, source = {**peers.PEERS, **peers.VARIANTS}[case.peer], case.source()
    boxes = source.subscriptions(0, case.subscriptions)
    points = source.events(0, max(EVENTS, *case.batches))
    limit = inf if case.peer == peers.OURS else case.build_seconds
    reason = peers.unable(kind, boxes) or too_much(kind, boxes, points, limit, case.ask_seconds)
    if reason:
        return [case.row() | {"skipped": reason}]
    kind(Bounds(boxes.low[:100], boxes.high[:100]))  # loads compiled code, which is not to build
    before = memory()
    index, built = timed(partial(kind, boxes))
    after = memory()
    expected = brute_force(boxes, points[:CHECKED])
    for way, ask in index.ways.items():
        asked = points[: affordable(ask, points[:EVENTS], case.ask_seconds)]
        answers = list(ask(asked))
        try:
            require_equal(way, answers[:CHECKED], expected[: len(answers)])
        except AssertionError as error:
            return [case.row() | {"skipped": f"wrong answers: {error}"}]
        matches = sum(np.size(ids) for ids in answers) / len(answers)
    held = {
        "build_us": built / case.subscriptions * 1e6,
        "bytes": None if before is None or after is None else (after - before) / case.subscriptions,
        "peak_bytes": peak_memory(),
    }
    few = Bounds(boxes.low[: YARDSTICK[0]], boxes.high[: YARDSTICK[0]])
    yardstick = partial(brute_force, few, points[: YARDSTICK[1]])
    rows = []
    for batch in case.batches:
        calls: dict[str, Callable[[], object]] = {"": yardstick}
        counts = {}
        for way, ask in index.ways.items():
            share = case.ask_seconds / case.repeats
            asked = points[: max(batch, EVENTS)]
            if batch == 1:
                asked = asked[: affordable(partial(_in_batches, ask, batch=1), asked, share)]
            else:
                asked = asked[: affordable(ask, asked, share)]
            calls[way], counts[way] = partial(_in_batches, ask, asked, batch), len(asked)
        times = rounds(calls, case.repeats, WARM)
        best = min(counts, key=lambda way: median(times[way]) / counts[way])
        taken_each = [time / counts[best] * 1e6 for time in times[best]]
        rows.append(
            case.row()
            | {
                "batch": batch,
                "us": median(taken_each),
                "way": best,
                "asked": min(counts[best], batch),
                "matches": matches,
                **held,
                "rounds": taken_each,
                "yardstick_rounds": [time * 1e6 for time in times[""]],
            }
        )
    return rows


def _in_batches(ask: peers.Way, points: FloatArray, batch: int) -> list[Any]:
    return [ask(points[start : start + batch]) for start in range(0, len(points), batch)]


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    with one_core():
        print(json.dumps(measure(Case._make(given))))
