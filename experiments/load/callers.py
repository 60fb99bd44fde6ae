"""The waiting times of coroutines that each match an event at the same time, by way of matching.

All callers of a burst arrive at once. Three ways take turns, burst by burst: `EventFilter.match`, called in
the coroutine or in a thread for each event, and `AsyncFilter.match`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from experiments.arguments import add_workloads, command, positive
from experiments.output import keep
from experiments.timing import cores
from rtfilter import AsyncFilter, EventFilter
from rtfilter.basics.dtypes import IntArray
from rtfilter.replay.machine import one_line
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import workload

Event = dict[str, Any]
Ask = Callable[[Event], Awaitable[IntArray]]

CALLERS = (1, 16, 256)


class Burst(NamedTuple):
    """The result of a burst, in seconds since its arrival."""

    mean: float
    """The mean time at which the matches of an event were known."""
    last: float
    """The time at which the matches of all events were known."""
    matches: int


async def burst(ask: Ask, events: list[Event]) -> Burst:
    """Start a caller for each event at the same time."""
    begun = perf_counter()
    known: list[float] = []

    async def call(event: Event) -> int:
        ids = await ask(event)
        known.append(perf_counter())
        return len(ids)

    counts = await asyncio.gather(*map(call, events))
    return Burst(sum(known) / len(known) - begun, known[-1] - begun, sum(counts))


async def measure(target: EventFilter, events: list[Event], callers: int, bursts: int) -> list[Row]:
    """Return medians of some bursts for each way to ask. Raises `RuntimeError` if answers differ."""

    async def directly(event: Event) -> IntArray:
        return target.match(event)

    async def in_threads(event: Event) -> IntArray:
        return await asyncio.to_thread(target.match, event)

    async with AsyncFilter(target) as batched:
        ways: dict[str, Ask] = {
            "match": directly,
            "to_thread(match)": in_threads,
            "AsyncFilter.match": batched.match,
        }
        found: dict[str, list[Burst]] = {name: [] for name in ways}
        for turn in range(-5, bursts):  # the first ones do not count: threads begin, plans are learnt
            first = turn * callers % (len(events) - callers + 1)
            chosen = events[first : first + callers]
            names = list(ways) if turn % 2 else list(ways)[::-1]
            made = {name: await burst(ways[name], chosen) for name in names}
            if len({one.matches for one in made.values()}) > 1:
                raise RuntimeError(f"the ways do not agree: {made}")
            if turn >= 0:
                for name, one in made.items():
                    found[name].append(one)
    return [
        {
            "way": name,
            "callers": callers,
            "mean_us": 1e6 * median(one.mean for one in some),
            "events_per_s": callers / median(one.last for one in some),
        }
        for name, some in found.items()
    ]


def main(arguments: list[str]) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("callers", __doc__, "out")
    add_workloads(parser, ["wide", "narrow", "sparse"])
    parser.add_argument("--boxes", type=positive, default=100_000, help="number of subscriptions (100000)")
    parser.add_argument("--bursts", type=positive, default=300, help="bursts of each way (300)")
    parser.add_argument("--cores", type=positive, default=2, help="cores of this process (2)")
    given = parser.parse_args(arguments)
    print(one_line())
    rows: list[Row] = []
    with cores(min(given.cores, os.cpu_count() or 1)):
        for name in given.workloads:
            source = workload(name)
            target = EventFilter(source.schema, matcher="rtree")
            source.subscribe(target, 0, given.boxes)
            read = target.schema.read(source.events(0, 2 * max(CALLERS)))
            events = [read.row(row) for row in range(len(read))]
            for callers in CALLERS:
                found = asyncio.run(measure(target, events, callers, given.bursts))
                rows += [{"workload": name, **row} for row in found]
    heading = {"mean_us": "mean response, us", "events_per_s": "events/s"}
    print(table(rows, {"workload": "workload", "callers": "callers", "way": "way", **heading}))
    settings = {"boxes": given.boxes, "bursts": given.bursts, "cores": given.cores}
    keep(given.out, "callers", settings, rows)
    return 0
