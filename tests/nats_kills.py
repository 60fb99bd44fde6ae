"""Servers of NATS and workers that are killed, and a model that knows every event and subscription.

Each change and each publication has a moment before it began, and one after it was stored. A version of a
subscription may count for an event if it was stored last before the event began, or may have been stored
later. If all such versions match, the match is stored; if none does, it is not. A subscription keeps its
user.
"""

import asyncio
import json
import random
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import inf
from pathlib import Path

import forks
from experiments import nats_cluster
from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.nats.worker_setup import SetupError, WorkerOptions, connect, prepare

WORKERS = 4
USERS = ("ann", "bob", "eve")
NAME = "prices"
ACK_WAIT = 3
STEADY = 20
"""Subscriptions that never change, so that their matches are certain."""
PATIENCE = 120.0
"""Most seconds until the engine answers, and until all events are matched in the end."""


@dataclass
class Version:
    """A state of a subscription: it matches prices below `limit`; None if it is removed."""

    limit: float | None
    began: int
    ended: float = inf


@dataclass
class Published:
    """An event."""

    price: float
    began: int
    ended: float = inf


@dataclass
class Knowledge:
    """All changes of each subscription in order, and all events.

    A change began after the one before it had ended.
    """

    versions: dict = field(default_factory=dict)
    events: dict = field(default_factory=dict)
    clock: count = field(default_factory=lambda: count(1))


def user_of(key):
    return USERS[int(key[1:]) % len(USERS)]


class Driver:
    """Clients that publish and subscribe, and what kills."""

    def __init__(self, cluster, seed):
        self.cluster, self.chance, self.known = cluster, random.Random(seed), Knowledge()
        self.counts, self.workers = Counter(), [None] * WORKERS
        self.over = asyncio.Event()

    async def patiently(self, act):
        """Repeat what the engine does not confirm."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await act()
                except Exception:
                    await asyncio.sleep(0.1)

    async def subscribe(self):
        """Add, replace and remove subscriptions, until it is over."""
        engine = self.client.jetstream(timeout=3)
        while not self.over.is_set():
            key = f"k{self.chance.randrange(60)}"
            before = self.known.versions.setdefault(key, [])
            if before and int(key[1:]) < STEADY:
                continue
            limit = None if before and self.chance.random() < 0.3 else self.chance.choice([10.0, 50.0, 90.0])
            version = Version(limit, next(self.known.clock))
            before.append(version)
            headers = {"Nats-Msg-Id": f"{key}-{len(before)}"}
            value = {"where": f"price < {limit}", "user": user_of(key)}
            body = json.dumps(value).encode()
            if limit is None:
                headers, body = headers | {"KV-Operation": "DEL"}, b""
            subject = f"$KV.{NAME}.{key}"
            await self.patiently(lambda s=subject, b=body, h=headers: engine.publish(s, b, headers=h))
            version.ended = next(self.known.clock)
            self.counts["changes"] += 1
            await asyncio.sleep(self.chance.uniform(0, 0.05))

    async def publish(self):
        """Publish events, alone or as lines, until it is over."""
        engine = self.client.jetstream(timeout=3)
        while not self.over.is_set():
            serials = range(len(self.known.events), len(self.known.events) + self.chance.choice([1, 1, 1, 7]))
            lines = []
            for serial in serials:
                event = Published(self.chance.uniform(0, 100), next(self.known.clock))
                self.known.events[serial] = event
                lines.append(json.dumps({"price": event.price, "serial": serial}))
            headers, body = {"Nats-Msg-Id": f"event-{serials[0]}"}, "\n".join(lines).encode()
            await self.patiently(lambda b=body, h=headers: engine.publish(f"{NAME}.events.x", b, headers=h))
            for serial in serials:
                self.known.events[serial].ended = next(self.known.clock)
            await asyncio.sleep(self.chance.uniform(0, 0.1))

    def start(self, number):
        """Start a worker."""
        command = [
            "nats",
            "--url",
            ",".join(self.cluster.urls),
            "--filter",
            NAME,
            "--ack-wait",
            str(ACK_WAIT),
        ]
        command += ["--events", f"{NAME}.events.>", "--out", f"{NAME}.out.{{user}}", "--log-level", "error"]
        if number % 2:
            command += ["--data", str(self.cluster.folder / f"worker-{number}")]
        log = open(self.cluster.folder / f"worker-{number}.log", "ab")  # noqa: SIM115
        traced = [str(Path(__file__).with_name("nats_traced.py")), str(self.cluster.folder / "stored")]
        self.workers[number] = forks.python(*traced, *command, stdout=log, stderr=log)
        log.close()

    async def kill_workers(self):
        while not self.over.is_set():
            await asyncio.sleep(self.chance.uniform(0.3, 3))
            number = self.chance.randrange(WORKERS)
            worker = self.workers[number]
            if worker.poll() is not None:
                self.counts["workers that gave up"] += 1  # as no server had answered them
            elif self.chance.random() < 0.2:
                worker.terminate()
                self.counts["workers ended"] += 1
            else:
                worker.kill()
                self.counts["workers killed"] += 1
            await asyncio.to_thread(worker.wait)
            await asyncio.sleep(self.chance.uniform(0, 0.5))
            self.start(number)

    async def kill_servers(self):
        """Kill one server at a time; the next one after it has caught up."""
        while not self.over.is_set():
            await asyncio.sleep(self.chance.uniform(1, 6))
            number = self.chance.randrange(len(self.cluster.urls))
            self.cluster.kill(number)
            self.counts["servers killed"] += 1
            await asyncio.sleep(self.chance.uniform(0.1, 2))
            await asyncio.to_thread(self.cluster.start, number)
            await self.caught_up()

    async def caught_up(self):
        """Wait until all copies of all streams are current."""
        engine = self.client.jetstream(timeout=2)

        async def current():
            for stream in (f"KV_{NAME}", f"{NAME}-events", f"{NAME}-matches"):
                info = await engine.stream_info(stream)
                assert info.cluster is not None
                assert info.cluster.leader
                assert all(one.current for one in info.cluster.replicas)

        await self.patiently(current)

    async def run(self, seconds):
        """Work and kill for so many seconds, then compare."""
        given = WorkerOptions(
            urls=self.cluster.urls,
            filter=NAME,
            events=f"{NAME}.events.>",
            out=f"{NAME}.out.{{user}}",
            definition=Definition(Schema({"price": float})),
            create=3,
            ack_wait=ACK_WAIT,
        )
        self.client = await connect(given)
        try:
            await prepare(self.client, given)
            for number in range(WORKERS):
                self.start(number)
            acts = [self.subscribe, self.publish, self.publish, self.kill_workers, self.kill_servers]
            tasks = [asyncio.create_task(act()) for act in acts]
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            self.over.set()
            for task in done:
                task.result()
            await asyncio.gather(*tasks)
            for number, worker in enumerate(self.workers):
                if worker.poll() is not None:
                    self.start(number)
            await self.finish()
        finally:
            for worker in self.workers:
                if worker is not None:
                    with suppress(OSError):
                        worker.kill()
                    worker.wait()
            await self.client.close()

    async def finish(self):
        """Wait until all events are acknowledged, and compare the matches with the model."""
        engine = self.client.jetstream(timeout=3)

        async def all_done():  # `num_pending` alone may be of a server that lacks the last events
            last = (await engine.stream_info(f"{NAME}-events")).state.last_seq
            info = await engine.consumer_info(f"{NAME}-events", NAME)
            assert info.num_pending == 0 == info.num_ack_pending
            assert info.ack_floor.stream_seq >= last

        await self.caught_up()
        await self.patiently(all_done)
        events, missing = set(), self.confirmed()
        async for message in self.messages(engine, "events"):
            events.update(json.loads(line)["serial"] for line in message.data.split(b"\n"))
        stored = Counter()
        async for message in self.messages(engine, "matches"):
            missing.discard(message.headers["Nats-Msg-Id"])
            found = json.loads(message.data)
            assert message.subject == f"{NAME}.out.{found['user']}"
            for key in found["subscriptions"]:
                assert user_of(key) == found["user"]
            stored.update((found["event"]["serial"], key) for key in found["subscriptions"])
            self.counts["messages of matches"] += 1
        self.compare(stored, events, missing)

    def confirmed(self):
        """The ids of all matches that the engine told a worker it has stored."""
        lines = (self.cluster.folder / "stored").read_text().splitlines()
        return {line.partition(" ")[0] for line in lines}

    async def messages(self, engine, which):
        """All messages of events, or of matches."""
        stream = f"{NAME}-{which}"
        info = await self.patiently(lambda: engine.stream_info(stream))
        listener = await self.patiently(lambda: engine.subscribe(">", stream=stream, ordered_consumer=True))
        for _ in range(info.state.messages):
            yield await listener.next_msg(PATIENCE)

    def compare(self, stored, events, missing):
        """Compare what is stored with the model.

        An engine that loses what it has confirmed shows in `events`, which lacks serials, and in `missing`.
        """
        gone = self.known.events.keys() - events
        self.counts += Counter(events=len(self.known.events), matches=stored.total())
        lost, wrong, again = [], [], [one for one, times in stored.items() if times > 1]
        for key, versions in self.known.versions.items():
            after: list[set] = [set()]  # the limits from each version on
            for one in reversed(versions):
                after.append(after[-1] | {one.limit})
            ends = [one.ended for one in versions]
            for serial, event in self.known.events.items():
                first = bisect_right(ends, event.began)
                limits = after[len(versions) - first] | {versions[first - 1].limit if first else None}
                fits = [limit is not None and event.price < limit for limit in limits]
                if all(fits) and (serial, key) not in stored:
                    lost.append((serial, key, event, versions))
                elif not any(fits) and (serial, key) in stored:
                    wrong.append((serial, key, event, versions))
                self.counts["certain"] += all(fits) or not any(fits)
        engine = f"the engine has lost {len(gone)} events and {len(missing)} matches that it had confirmed"
        serials = sorted({one[0] for one in lost})
        told = f"lost {len(lost)}, of the events {serials[:9]} of {len(self.known.events)}; {engine}"
        assert not lost, f"{told}; {[one[:3] for one in lost[:2]]}"
        assert not gone | missing, engine
        assert not wrong, f"wrong {len(wrong)}: {wrong[:2]}"
        assert not again, f"stored twice {len(again)}: {again[:5]}"


def run(seconds, seed):
    """Kill for so many seconds; returns what was done. Raises `AssertionError`."""
    with nats_cluster.cluster() as cluster:

        async def go():
            driver = Driver(cluster, seed)
            try:
                await driver.run(seconds)
            except SetupError as error:
                raise AssertionError(str(error)) from error
            return driver.counts

        return asyncio.run(go())
