"""A worker that measures itself: ``python -m experiments.nats.measured_worker JSON``; prints JSON at its end.

Its `kind` is "match"; "forward", which publishes each tenth event without a search; or "nothing", which only
acknowledges.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from functools import partial
from time import perf_counter, process_time
from typing import Any

from rtfilter.nats.nats_worker import NatsWorker, _Taken
from rtfilter.nats.pull import PulledMessage
from rtfilter.nats.worker_metrics import WorkerMetrics
from rtfilter.nats.worker_setup import WorkerOptions, connect, prepare

EVERY = 10
"""Events for each message of "forward"."""


class Clocks(WorkerMetrics):
    """Metrics that note the first batch and the last acknowledgement."""

    begun = ended = cpu_begun = cpu_ended = 0.0
    count = last = 0

    def batch(self, messages: Sequence[PulledMessage]) -> None:
        """Note the first one."""
        if not self.begun:
            self.begun, self.cpu_begun = perf_counter(), process_time()
        super().batch(messages)

    def done(self, seconds: float) -> None:
        """Note the last one."""
        self.count += 1
        if self.count == self.last:
            self.ended, self.cpu_ended = perf_counter(), process_time()
        super().done(seconds)


class Nothing(NatsWorker):
    """Acknowledges only."""

    async def _batch(self, messages: Sequence[PulledMessage]) -> None:
        self._measures.batch(messages)
        for message in messages:
            self._unacknowledged[message.reply] = message.arrived
            self._done(_Taken(message))


class Forward(NatsWorker):
    """Publishes a tenth of the messages, or all of a hundred events."""

    async def _batch(self, messages: Sequence[PulledMessage]) -> None:
        self._measures.batch(messages)
        for message in messages:
            self._unacknowledged[message.reply] = message.arrived
            taken = _Taken(message)
            events = message.data.split(b"\n")
            for row in range(-message.sequence % EVERY, len(events), EVERY):
                taken.left += 1
                id = f"{self._origin}.{message.sequence}.{row}"
                done = partial(self._done, taken)
                await self._publisher.put(self._setup.subject.of("ann"), events[row], id, done)
            self._done(taken)


KINDS = {"match": NatsWorker, "forward": Forward, "nothing": Nothing}


async def work(told: dict[str, Any]) -> dict[str, float]:
    """Work until SIGTERM."""
    options = WorkerOptions(**told["options"])
    client = await connect(options)
    clocks = Clocks(options.filter)
    clocks.last = told["messages"]
    worker = KINDS[told["kind"]](client, await prepare(client, options), clocks)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run(lambda: print("ready", flush=True))
    await client.close()
    return {
        "messages": clocks.count,
        "seconds": clocks.ended - clocks.begun,
        "cpu": clocks.cpu_ended - clocks.cpu_begun,
        "stored": worker._publisher.stored,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(work(json.loads(sys.argv[1])))), flush=True)
