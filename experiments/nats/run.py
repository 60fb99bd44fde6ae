"""Events per second of the stage on NATS JetStream, beside a worker of the same client that matches nothing.

A server of the engine has all messages before a worker begins. The worker runs in a process of its own and
measures itself, from its first batch to its last acknowledgement. Response times are from the publishing of
an event to the moment when the engine stored its match. On a busy machine, compare CPU times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from experiments.arguments import new_file
from experiments.nats_cluster import cluster
from experiments.output import keep, outcome
from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.nats.worker_setup import WorkerOptions, connect, prepare
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.figure import Figure

NAME = "prices"
NAMES = "abcd"
KINDS = ("nothing", "forward", "match")
"""See `measured_worker`."""
RANGE = 1000.0
"""Attributes are from 0 to this."""
SHARE, SINGLE, FRAMED, LATE, TWICE = 0.6, 10_000, 100_000, 0.05, 1.7
"""Targets: share of the events of the worker that matches nothing, events a second one by one and a hundred
in a message, the 99th percentile in seconds at half of that, and the gain of a second worker."""
FRAME = 100
COLUMNS = {
    "what": "",
    "frame": "events a message",
    "workers": "workers",
    "events_s": "events/s",
    "cpu_us": "CPU, us/event",
    "share": "share of nothing",
    "p50_ms": "median, ms",
    "p99_ms": "p99, ms",
    "verdict": "",
}


class Size(NamedTuple):
    """The size of a measurement."""

    subscriptions: int
    matches: float
    """Mean matches of an event."""
    singles: int
    """Messages of one event."""
    frames: int
    """Messages of a hundred events."""
    seconds: float
    """Of each rate."""
    heavy: int
    """Subscriptions that no box bounds, where matching is the work."""


FULL = Size(20_000, 0.1, 30_000, 2000, 10.0, 300)
QUICK = Size(1000, 0.1, 1000, 50, 1.0, 100)


def options_of(urls: list[str]) -> dict[str, Any]:
    """Return the options of the workers."""
    return {"urls": urls, "filter": NAME, "events": f"{NAME}.events", "out": f"{NAME}.out.{{user}}"}


class Stage:
    """A filter on one server, with the events that were drawn for it."""

    def __init__(self, urls: list[str], client: Client, seed: int) -> None:
        self.urls, self.client, self.rng = urls, client, np.random.default_rng(seed)
        self.engine: JetStreamContext = client.jetstream(publish_async_max_pending=2000, timeout=30)

    async def subscribe(self, count: int, matches: float) -> None:
        """Put random boxes, so that an event has so many matches on average."""
        side = RANGE * (matches / count) ** (1 / len(NAMES))
        low = self.rng.uniform(0, RANGE - side, (count, len(NAMES)))
        values = []
        for number, corner in enumerate(low.tolist()):
            parts = [f"{n} BETWEEN {x:.3f} AND {x + side:.3f}" for n, x in zip(NAMES, corner, strict=True)]
            values.append(json.dumps({"where": " AND ".join(parts), "user": f"user{number % 100}"}).encode())
        await self._put(values)

    async def subscribe_unbounded(self, count: int) -> None:
        """Put conditions without any bound instead, each of which is checked with every event."""
        await self.engine.purge_stream(f"KV_{NAME}", subject=f"$KV.{NAME}.k*")
        wheres = [f"a * b > {998_000 + number}" for number in range(count)]
        await self._put([json.dumps({"where": where, "user": "ann"}).encode() for where in wheres])

    async def _put(self, values: list[bytes]) -> None:
        await self._publish([(f"$KV.{NAME}.k{number}", value) for number, value in enumerate(values)])

    def events(self, count: int) -> list[dict[str, float]]:
        """Draw events."""
        points = self.rng.uniform(0, RANGE, (count, len(NAMES))).round(3).tolist()
        return [dict(zip(NAMES, point, strict=True)) for point in points]

    async def publish(self, messages: int, frame: int) -> None:
        """Publish random events, after those of before are removed."""
        await self.reset()
        drawn = [json.dumps(event).encode() for event in self.events(messages * frame)]
        bodies = [b"\n".join(drawn[at : at + frame]) for at in range(0, len(drawn), frame)]
        await self._publish([(f"{NAME}.events", body) for body in bodies])

    async def _publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        for at in range(0, len(messages), 2000):
            waiting = [await self.engine.publish_async(*one) for one in messages[at : at + 2000]]
            await asyncio.gather(*waiting)

    async def reset(self) -> None:
        """Remove all events and matches."""
        for stream in ("events", "matches"):
            await self.engine.purge_stream(f"{NAME}-{stream}")
        await self.rewind()

    async def rewind(self) -> None:
        """Let workers begin with the first event again."""
        with suppress(NotFoundError):
            await self.engine.delete_consumer(f"{NAME}-events", NAME)
        await self.engine.purge_stream(f"{NAME}-matches")

    @contextmanager
    def worker(self, kind: str, messages: int) -> Iterator[subprocess.Popen[str]]:
        """Start a worker; wait until it is ready."""
        given = json.dumps({"kind": kind, "messages": messages, "options": options_of(self.urls)})
        command = [sys.executable, "-m", "experiments.nats.measured_worker", given]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != "ready":
                raise OSError(f"the worker {kind} did not start")
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def result(self, process: subprocess.Popen[str]) -> dict[str, float]:
        """End a worker, and return what it measured."""
        process.terminate()
        told, _ = process.communicate()
        found: dict[str, float] = json.loads(told.strip().splitlines()[-1])
        return found

    async def done(self) -> None:
        """Wait until all events are acknowledged."""
        while True:
            await asyncio.sleep(0.05)
            try:
                info = await self.engine.consumer_info(f"{NAME}-events", NAME)
            except NotFoundError:
                continue
            if info.num_pending == 0 and info.num_ack_pending == 0:
                return

    async def throughput(self, kind: str, messages: int, frame: int) -> Row:
        """Return the rate and the cost of one worker that has all messages at once."""
        await self.rewind()
        with self.worker(kind, messages) as process:
            await self.done()
            found = self.result(process)
        events = messages * frame
        rate, cost = events / found["seconds"], found["cpu"] / events * 1e6
        return {"what": kind, "frame": frame, "workers": 1, "events_s": rate, "cpu_us": cost} | found

    async def together(self, messages: int, frame: int, workers: int) -> Row:
        """Return the rate of workers that share the messages, from the start of all."""
        await self.rewind()
        with self.worker("match", 0):
            others = [self.worker("match", 0) for _ in range(workers - 1)]
            for other in others:
                other.__enter__()
            begun = perf_counter()
            await self.offer(messages, frame)
            await self.done()
            seconds = perf_counter() - begun
            for other in others:
                other.__exit__(None, None, None)
        return {
            "what": "much to match",
            "frame": frame,
            "workers": workers,
            "events_s": messages * frame / seconds,
        }

    async def offer(self, messages: int, frame: int) -> None:
        """Publish as fast as possible; workers run."""
        drawn = [json.dumps(event).encode() for event in self.events(messages * frame)]
        bodies = [b"\n".join(drawn[at : at + frame]) for at in range(0, len(drawn), frame)]
        await self._publish([(f"{NAME}.events", body) for body in bodies])

    async def response(self, rate: float, frame: int, seconds: float) -> Row:
        """Return percentiles of response times at a rate of events a second."""
        await self.reset()
        count = max(1, round(rate * seconds / frame))
        drawn = self.events(count * frame)
        with self.worker("match", 0):
            begun, waiting = perf_counter(), []
            for number in range(count):
                due = begun + number * frame / rate
                while (left := due - perf_counter()) > 0:
                    await asyncio.sleep(left)
                now = time()
                events = drawn[number * frame : (number + 1) * frame]
                body = "\n".join(json.dumps(one | {"at": now}) for one in events).encode()
                waiting.append(await self.engine.publish_async(f"{NAME}.events", body))
            await asyncio.gather(*waiting)
            lasted = perf_counter() - begun
            await self.done()
        waits = await self._waits()
        half, late = np.percentile(waits, (50, 99)) if len(waits) else (np.nan, np.nan)
        row = {"what": "at a rate", "frame": frame, "workers": 1, "events_s": count * frame / lasted}
        return row | {"wanted": rate, "p50_ms": half * 1e3, "p99_ms": late * 1e3, "matches": len(waits)}

    async def _waits(self) -> list[float]:
        """Return the seconds from the publishing of each event to the storing of its match."""
        info = await self.engine.stream_info(f"{NAME}-matches")
        listener = await self.engine.subscribe(f"{NAME}.out.>", ordered_consumer=True)
        found = []
        for _ in range(info.state.messages):
            message = await listener.next_msg(30)
            stored = message.metadata.timestamp.timestamp()
            found.append(stored - json.loads(message.data)["event"]["at"])
        await listener.unsubscribe()
        return found

    async def end_of_bucket(self, times: int) -> list[Row]:
        """Return the cost of asking for the last sequence of the bucket, and of writing a key."""
        rows: list[Row] = []
        for what, subject in (
            ("last sequence of the bucket", f"$JS.API.STREAM.INFO.KV_{NAME}"),
            ("write of a key", f"$KV.{NAME}.=mark"),
        ):
            waits = []
            for _ in range(times):
                begun = perf_counter()
                await self.client.request(subject, b"", timeout=10)
                waits.append((perf_counter() - begun) * 1e3)
            half, late = np.percentile(waits, (50, 99))
            rows.append({"what": what, "p50_ms": half, "p99_ms": late})
        return rows


async def measure(urls: list[str], size: Size, seed: int) -> list[Row]:
    """Measure everything."""
    schema = Schema(dict.fromkeys(NAMES, float))
    options = WorkerOptions(**options_of(urls), definition=Definition(schema), create=1)
    client = await connect(options)
    rows: list[Row] = []
    try:
        await prepare(client, options)
        stage = Stage(urls, client, seed)
        await stage.subscribe(size.subscriptions, size.matches)
        rows += await stage.end_of_bucket(min(500, size.singles))
        for frame, messages in ((1, size.singles), (FRAME, size.frames)):
            await stage.publish(messages, frame)
            found = [await stage.throughput(kind, messages, frame) for kind in KINDS]
            for row in found:
                row["share"] = found[0]["cpu_us"] / row["cpu_us"]
            rows += found
            rate = min(found[-1]["events_s"], SINGLE if frame == 1 else FRAMED) / 2
            rows.append(await stage.response(rate, frame, size.seconds))
        await stage.subscribe_unbounded(size.heavy)
        for workers in (1, 2):
            rows.append(await stage.together(size.frames // 2, FRAME, workers))
    finally:
        await client.close()
    return rows


def judged(rows: list[Row]) -> list[Row]:
    """Return the rows with verdicts."""
    alone = [row for row in rows if row["what"] == "much to match"]
    for row in rows:
        if row["what"] == "match":
            least = SINGLE if row["frame"] == 1 else FRAMED
            row["verdict"] = outcome(row["events_s"] >= least and row["share"] >= SHARE)
        elif row["what"] == "at a rate":
            row["verdict"] = outcome(row["p99_ms"] < LATE * 1e3)
    if len(alone) == 2:
        alone[1]["gain"] = alone[1]["events_s"] / alone[0]["events_s"]
        alone[1]["verdict"] = outcome(alone[1]["gain"] >= TWICE)
    return rows


def figure(rows: Sequence[Row]) -> Figure:
    """Draw the rates and the CPU time of an event."""
    from matplotlib.figure import Figure

    drawn = Figure((10, 4), layout="constrained")
    chosen = [row for row in rows if row["what"] in KINDS]
    names = [f"{row['what']}, {'one by one' if row['frame'] == 1 else 'a hundred'}" for row in chosen]
    titles = {"events_s": "events a second", "cpu_us": "CPU time of an event, us"}
    for axes, (key, title) in zip(drawn.subplots(1, 2), titles.items(), strict=True):
        bars = axes.barh(range(len(chosen)), [row[key] for row in chosen], color="tab:blue")
        axes.bar_label(bars, [f"{row[key]:,.{0 if row[key] >= 100 else 2}f}" for row in chosen], padding=3)
        axes.set_yticks(range(len(chosen)), names)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.margins(x=0.25)
        axes.set_title(title)
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments nats", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="a short trial with few events")
    parser.add_argument("--seed", type=int, default=1, help="of the events and subscriptions (%(default)s)")
    parser.add_argument("--out", type=new_file, help="JSON file for the results")
    parser.add_argument("--figure", type=new_file, help="picture of the results, .png or .svg")
    given = parser.parse_args(arguments)
    size = QUICK if given.quick else FULL
    before = os.getloadavg()[0]
    with cluster(1) as servers:
        rows = judged(asyncio.run(measure(servers.urls, size, given.seed)))
    print(machine.one_line())
    print("\n" + table(rows, COLUMNS))
    keep(given.out, "nats", size._asdict() | {"seed": given.seed, "load": before}, rows)
    if given.figure is not None:
        save_picture(figure(rows), given.figure, dpi=100)
    return 0
