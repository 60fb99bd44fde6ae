"""One worker on NATS JetStream, then two, of which one is killed: what they match in each second.

Three servers of NATS in a temporary folder. Needs rtree-filter[nats,replay] and nats-server. With an
argument, the picture is written to that folder; a second one has the seconds of each phase.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from experiments.nats_cluster import PROGRAM, cluster
from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.nats.worker_setup import WorkerOptions, connect, prepare
from rtfilter.replay.output import table

NAME = "scale"
FRAME = 20  # events of a message
CONDITIONS = 400  # without a bound, so each is checked with each event: matching is the work
PHASE = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0  # seconds of each phase
STEP = 0.5  # seconds between two looks
PHASES = ("one worker", "two workers", "one of them killed")


def options(urls):
    return WorkerOptions(
        urls=urls,
        filter=NAME,
        events=f"{NAME}.events",
        out=f"{NAME}.matches.{{user}}",
        definition=Definition(Schema(dict.fromkeys("abcd", float))),
        create=3,
        ack_wait=2,
    )


def start(urls):
    """Start a worker, and wait until it matches."""
    command = ["nats", "--url", ",".join(urls), "--filter", NAME, "--events", f"{NAME}.events"]
    command += ["--out", f"{NAME}.matches.{{user}}", "--ack-wait", "2", "--log-level", "error"]
    worker = subprocess.Popen([sys.executable, "-m", "rtfilter", *command], stderr=subprocess.PIPE, text=True)
    for line in worker.stderr:
        if "matching" in line:
            return worker
    raise SystemExit("a worker did not start")


class Demo:
    """A publisher, and a look at how far the workers are."""

    def __init__(self, urls, client):
        self.urls, self.engine = urls, client.jetstream(timeout=10, publish_async_max_pending=500)
        self.published = self.done = 0
        self.over, self.looks = asyncio.Event(), []

    async def publish(self):
        """Keep some thousand events waiting, each with a number, until it is over."""
        while not self.over.is_set():
            if self.published - self.done >= 4000:
                await asyncio.sleep(0.02)
                continue
            waiting = []
            for _ in range(20):
                first = self.published
                lines = [{"a": n % 1000, "b": n % 997, "c": 1, "d": n} for n in range(first, first + FRAME)]
                body = "\n".join(map(json.dumps, lines)).encode()
                waiting.append(await self.engine.publish_async(f"{NAME}.events", body))
                self.published += FRAME
            await asyncio.gather(*waiting)

    async def look(self, phase):
        """Note how many events are matched, until the phase is over and some were."""
        until, mine = time.perf_counter() + PHASE, []
        while not mine or mine[-1][0] < until or mine[-1][1] == mine[0][1]:
            await asyncio.sleep(STEP)
            await self.count()
            mine.append((time.perf_counter(), self.done, phase))
        self.looks += mine

    async def count(self):
        """Ask how many events are done."""
        info = await self.engine.consumer_info(f"{NAME}-events", NAME)
        self.done = (info.delivered.stream_seq - info.num_ack_pending) * FRAME

    async def run(self):
        """Go through the phases; return the rate of each, and the events that were lost."""
        await asyncio.gather(
            *[
                self.engine.publish(
                    f"$KV.{NAME}.k{number}",
                    json.dumps({"where": f"a * b > {900_000 + 10 * number}", "user": "ann"}).encode(),
                )
                for number in range(CONDITIONS)
            ]
        )
        workers = [await asyncio.to_thread(start, self.urls)]
        publishing = asyncio.create_task(self.publish())
        await self.look(PHASES[0])
        workers.append(await asyncio.to_thread(start, self.urls))
        await self.look(PHASES[1])
        workers[0].kill()
        await self.look(PHASES[2])
        self.over.set()
        await publishing
        while self.done < self.published:
            await asyncio.sleep(0.1)
            await self.count()
        workers[1].send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait()
        return await self.check()

    async def check(self):
        """Return how many matches there should be, there are, and are stored twice."""
        right = sum((n % 1000) * (n % 997) > 900_000 for n in range(self.published))
        info = await self.engine.stream_info(f"{NAME}-matches")
        listener = await self.engine.subscribe(">", stream=f"{NAME}-matches", ordered_consumer=True)
        messages = [await listener.next_msg(10) for _ in range(info.state.messages)]
        found = [json.loads(message.data)["event"]["d"] for message in messages]
        return right, len(set(found)), len(found) - len(set(found))


def rates(looks):
    """The rate of each phase, from the looks in it."""
    for phase in PHASES:
        mine = [(at, done) for at, done, name in looks if name == phase]
        yield phase, (mine[-1][1] - mine[0][1]) / (mine[-1][0] - mine[0][0])


def draw(looks, path):
    from matplotlib.figure import Figure

    drawn = Figure((9, 4), layout="constrained")
    axes = drawn.subplots()
    begun = looks[0][0]
    for phase, colour in zip(PHASES, ("tab:blue", "tab:green", "tab:orange"), strict=True):
        mine = [number for number, look in enumerate(looks) if look[2] == phase and number]
        times = [looks[number][0] - begun for number in mine]
        each = [
            (looks[number][1] - looks[number - 1][1]) / (looks[number][0] - looks[number - 1][0])
            for number in mine
        ]
        axes.plot(times, each, color=colour, label=phase)
    axes.set_xlabel("seconds")
    axes.set_ylabel("events matched a second")
    axes.set_ylim(0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    drawn.savefig(path, dpi=100)


async def show(urls, folder):
    given = options(urls)
    client = await connect(given)
    try:
        await prepare(client, given)
        demo = Demo(urls, client)
        right, found, twice = await demo.run()
    finally:
        await client.close()
    found_rates = dict(rates(demo.looks))
    rows = [
        {"phase": phase, "rate": rate, "times": rate / found_rates[PHASES[0]]}
        for phase, rate in found_rates.items()
    ]
    print(table(rows, {"phase": "", "rate": "events/s", "times": "times one worker"}))
    print(
        f"{demo.published} events, {right} of them match: {found} stored, {right - found} lost, {twice} twice"
    )
    path = Path(folder, "scale.png")
    draw(demo.looks, path)
    print(f"wrote {path}; this machine has {os.cpu_count()} cores, which the servers share")
    return right == found and not twice


def main():
    if PROGRAM is None:
        raise SystemExit("there is no nats-server: on Debian, apt-get install nats-server")
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    Path(folder).mkdir(parents=True, exist_ok=True)
    with cluster(3) as servers:
        right = asyncio.run(show(servers.urls, folder))
    raise SystemExit(not right)


if __name__ == "__main__":
    main()
