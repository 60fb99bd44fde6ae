"""A worker in this process, on a bucket and streams of its own."""

import asyncio
import json
from contextlib import asynccontextmanager
from itertools import count

from nats.errors import Error

from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.nats.nats_worker import NatsWorker
from rtfilter.nats.worker_metrics import WorkerMetrics
from rtfilter.nats.worker_setup import WorkerOptions, connect, prepare

PRICES = Definition(Schema({"price": float, "symbol": str}))
SOON = 30.0
"""Most seconds until something happens that must."""
_numbers = count()


def new_name():
    """A name of a filter that no other test has."""
    return f"f{next(_numbers)}"


def options(cluster, name, **more):
    """Options of a worker that makes what is missing."""
    given = {
        "urls": cluster.urls,
        "filter": name,
        "events": f"{name}.events.>",
        "out": f"{name}.out.{{user}}",
        "definition": PRICES,
        "create": len(cluster.urls),
        "ack_wait": 5.0,
    }
    return WorkerOptions(**(given | more))


class Stage:
    """A filter with its bucket and streams, and workers in this process."""

    def __init__(self, given, client):
        self.options, self.client, self.engine = given, client, client.jetstream(timeout=10)
        self.name, self.workers = given.filter, []

    async def worker(self, **more):
        """Start a worker; wait until it is ready."""
        given = WorkerOptions(**(vars(self.options) | more))
        hooks = []
        client = await connect(given, lambda: [hook() for hook in hooks])
        worker = NatsWorker(client, await prepare(client, given), WorkerMetrics(self.name))
        hooks.append(worker.reconnected)
        ready = asyncio.Event()
        worker.task = asyncio.create_task(worker.run(ready.set))
        worker.client = client
        self.workers.append(worker)
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([waiting, worker.task], timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
        assert ready.is_set(), worker.task
        self.bucket = await self.engine.key_value(self.name)
        return worker

    async def kill(self, worker):
        """Let a worker vanish with what it has not stored, as kill -9 would."""
        self.workers.remove(worker)
        worker.client._transport.close()  # first, so that nothing more is sent
        worker.task.cancel()
        await asyncio.gather(worker.task, return_exceptions=True)
        await worker.client.close()

    async def stop(self, worker):
        self.workers.remove(worker)
        worker.stop()
        await asyncio.wait_for(worker.task, SOON)
        await worker.client.close()

    async def subscribe(self, key, where, user="ann", **more):
        return await self.bucket.put(key, json.dumps({"where": where, "user": user, **more}).encode())

    async def publish(self, *bodies, kind="x"):
        """Publish messages; return their sequences."""
        subject = f"{self.name}.events.{kind}"
        return [(await self.engine.publish(subject, body)).seq for body in bodies]

    async def matches(self):
        """All messages of matches, in the order of their stream."""
        found, stream = [], f"{self.name}-matches"
        info = await again(lambda: self.engine.stream_info(stream))
        listener = await again(
            lambda: self.engine.subscribe(f"{self.name}.out.>", stream=stream, ordered_consumer=True)
        )
        while len(found) < info.state.messages:
            found.append(json.loads((await listener.next_msg(SOON)).data) | {"subject": ""})
        await listener.unsubscribe()
        return found

    async def seen(self):
        """Which subscriptions each event matched, by its sequence and row."""
        found = {}
        for one in await self.matches():
            found.setdefault((one["sequence"], one["row"]), []).extend(one["subscriptions"])
        return {event: sorted(keys) for event, keys in found.items()}

    async def done(self):
        """Wait until all events are acknowledged."""
        last = (await again(lambda: self.engine.stream_info(f"{self.name}-events"))).state.last_seq
        async with asyncio.timeout(SOON):
            while True:
                info = await again(lambda: self.engine.consumer_info(f"{self.name}-events", self.name))
                if info.ack_floor.stream_seq >= last and info.num_ack_pending == 0:
                    return info
                await asyncio.sleep(0.05)


@asynccontextmanager
async def stage(cluster, **more):
    """A stage with one worker, unless `workers=0`."""
    workers = more.pop("workers", 1)
    given = options(cluster, new_name(), **more)
    client = await connect(given)
    made = Stage(given, client)
    try:
        for _ in range(workers):
            await made.worker()
        yield made
    finally:
        for worker in list(made.workers):
            await made.kill(worker)
        await client.close()


async def until(condition):
    """Wait until a condition holds, a function or a coroutine function."""
    async with asyncio.timeout(SOON):
        while True:
            held = condition()
            if await held if asyncio.iscoroutine(held) else held:
                return
            await asyncio.sleep(0.05)


async def again(ask):
    """Ask the engine until it answers: its servers may be electing a leader."""
    async with asyncio.timeout(SOON):
        while True:
            try:
                return await ask()
            except Error:
                await asyncio.sleep(0.2)
