"""A hundred workers on NATS, simulated from measured costs: one index in each, or shards of it.

Each of R replicas of S shards is a worker with a core, and R times S is the number of workers. The consumer
of each shard sees all events, and a replica takes its share. A worker takes all messages that wait, up to a
batch. The costs of the client are those of the kept result `nats`; the search is measured here for small
indexes, and grows as a power of the size. An event has few matches, however many subscriptions there are.
"""

from __future__ import annotations

import argparse
import json
from time import process_time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.arguments import new_file, positive
from experiments.output import REPORT, content, keep
from rtfilter import EventFilter, Schema
from rtfilter.nats.nats_worker import EVENTS
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.figure import Figure

FRAME = 100
"""Events of a message."""
BYTES = 400.0
"""Memory of a subscription, of docs/performance.md."""
SECONDS = 5.0
"""Of each simulated worker."""
COLUMNS = {
    "shards": "shards",
    "replicas": "replicas of each",
    "memory_gb": "memory of a worker, GB",
    "event_us": "an event, us",
    "load": "load of a worker",
    "copies": "copies of the events",
    "mean_ms": "mean response, ms",
    "p99_ms": "p99, ms",
}


class Costs(NamedTuple):
    """Seconds of a worker."""

    client: float
    """For each event, without a search."""
    batch: float
    """For each batch: the request for the end of the bucket."""
    search: Callable[[float], float]
    """For each event, by the number of subscriptions."""


def measured_search(sizes: Sequence[int], seed: int) -> list[float]:
    """Return the seconds of the search of an event among random boxes of four attributes."""
    rng = np.random.default_rng(seed)
    found = []
    for count in sizes:
        side = 1000 * (0.1 / count) ** 0.25
        low = rng.uniform(0, 1000 - side, (count, 4))
        filter = EventFilter(Schema(dict.fromkeys("abcd", float)), matcher="rtree")
        filter.subscribe_boxes(low, low + side)
        times = []
        for _ in range(12):
            points = rng.uniform(0, 1000, (EVENTS, 4)).round(3).tolist()
            texts = [json.dumps(dict(zip("abcd", point, strict=True))).encode() for point in points]
            begun = process_time()
            for _ in filter.stream(texts).groups():
                pass
            times.append((process_time() - begun) / EVENTS)
        found.append(float(np.median(times[4:])))
    return found


def power(sizes: Sequence[int], times: Sequence[float]) -> Callable[[float], float]:
    """Return the power of the size that fits the times best."""
    slope, start = np.polyfit(np.log(sizes), np.log(times), 1)
    return lambda size: float(np.exp(start) * size**slope)


def simulate(rate: float, event: float, batch: float, seed: int) -> tuple[float, float]:
    """Return the mean and the 99th percentile of the response of a worker, in seconds.

    Parameters
    ----------
    rate : float
        Events a second that come to it, in messages of `FRAME`, at random moments.
    event, batch : float
        Seconds of an event, and of each batch beside its events.
    seed : int
    """
    rng = np.random.default_rng(seed)
    arrived = np.cumsum(rng.exponential(FRAME / rate, max(1, round(rate * SECONDS / FRAME))))
    waits, first, now, most = [], 0, 0.0, EVENTS // FRAME
    while first < len(arrived):
        now = max(now, arrived[first])
        last = min(first + most, int(np.searchsorted(arrived, now, side="right")))
        now += batch + (last - first) * FRAME * event
        waits.append(now - arrived[first:last])
        first = last
    every = np.concatenate(waits)
    return float(every.mean()), float(np.percentile(every, 99))


def compare(workers: int, subscriptions: float, rate: float, costs: Costs, seed: int) -> list[Row]:
    """Return a row for each number of shards that divides the number of workers."""
    rows: list[Row] = []
    for shards in (one for one in range(1, workers + 1) if workers % one == 0):
        replicas = workers // shards
        event = costs.client + costs.search(subscriptions / shards)
        load = rate / replicas * event
        row: Row = {
            "shards": shards,
            "replicas": replicas,
            "memory_gb": subscriptions / shards * BYTES / 1e9,
            "event_us": event * 1e6,
            "load": load,
            "copies": shards,
        }
        if load < 1:
            mean, late = simulate(rate / replicas, event, costs.batch, seed)
            row |= {"mean_ms": mean * 1e3, "p99_ms": late * 1e3}
        rows.append(row)
    return rows


def figure(rows: Sequence[Row]) -> Figure:
    """Draw the load and the memory of a worker by the number of shards."""
    from matplotlib.figure import Figure

    drawn = Figure((8, 4), layout="constrained")
    names = {"load": "load of a worker", "memory_gb": "memory of a worker, GB"}
    for axes, (key, name) in zip(drawn.subplots(1, 2), names.items(), strict=True):
        axes.loglog([row["shards"] for row in rows], [row[key] for row in rows], "o-")
        axes.set_xlabel("shards")
        axes.set_title(name)
        axes.spines[["top", "right"]].set_visible(False)
        if key == "load":
            axes.axhline(1, color="0.5", linewidth=1)
    return drawn


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments nats-simulation", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--workers", type=positive, default=100, help="(%(default)s)")
    parser.add_argument("--subscriptions", type=positive, default=10**8, help="(%(default)s)")
    parser.add_argument("--rate", type=positive, default=10**6, help="events a second (%(default)s)")
    parser.add_argument("--sizes", type=positive, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--out", type=new_file, help="JSON file for the results")
    parser.add_argument("--figure", type=new_file, help="picture of the results, .png or .svg")
    given = parser.parse_args(arguments)
    kept = content(REPORT / "nats.json")["rows"]
    client = next(row["cpu_us"] for row in kept if row["what"] == "forward" and row["frame"] == FRAME) / 1e6
    batch = next(row["p50_ms"] for row in kept if row["what"] == "last sequence of the bucket") / 1e3
    times = measured_search(given.sizes, given.seed)
    costs = Costs(client, batch, power(given.sizes, times))
    rows = compare(given.workers, given.subscriptions, given.rate, costs, given.seed)
    print(machine.one_line())
    print(f"search: {', '.join(f'{one * 1e6:.2f} us' for one in times)} among {given.sizes} subscriptions")
    print("\n" + table(rows, COLUMNS))
    chosen = {name: getattr(given, name) for name in ("workers", "subscriptions", "rate", "sizes", "seed")}
    keep(given.out, "nats-simulation", chosen | {"search": times}, rows)
    if given.figure is not None:
        save_picture(figure(rows), given.figure, dpi=100)
    return 0
