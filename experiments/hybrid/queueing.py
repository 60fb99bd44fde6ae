"""Events on known routes, through brokers that each do one thing after the other.

The same rules as `experiments.simulation.network`, compiled: for millions of messages.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from experiments.hybrid.routes import Floats, Ints, Routes
from rtfilter.index.kernels.jit import kernel


class Played(NamedTuple):
    """The totals of a simulation.

    Attributes
    ----------
    messages, cost, receipts : int
        Messages between brokers, the links that they crossed, all together, and what clients got.
    delay : float
        Seconds from publishing to a receipt, all together.
    last : float
        Time of the last receipt.
    """

    messages: int
    cost: int
    receipts: int
    delay: float
    last: float


def play(routes: Routes, times: Floats, message: float, delivery: float = 0.0) -> Played:
    """Publish one event of each publisher at its time, and follow all.

    Parameters
    ----------
    routes : Routes
    times : (publishers,) float array
        Seconds.
    message, delivery : float
        Seconds for which a broker is busy with a message to others, and to a client.
    """
    fixed = (
        routes.broker,
        routes.acts,
        routes.arrivals,
        routes.links,
        routes.state,
        routes.seconds,
        routes.starts,
    )
    return Played(*_play(*fixed, times, message, delivery))


@kernel
def _play(
    broker: Ints, acts: Ints, arrivals: Ints, links: Ints, state: Ints, seconds: Floats, starts: Ints,
    times: Floats, message: float, delivery: float,
) -> tuple[int, int, int, float, float]:  # fmt: skip
    free = [0.0] * (broker.max() + 1)
    heap = [(times[event], event, starts[event], event) for event in range(len(times))]
    heap.sort()
    order = len(heap)
    messages, cost, receipts, delay, last = 0, 0, 0, 0.0, 0.0
    while heap:
        now, _, here, event = heappop(heap)
        own = broker[here]
        now = max(now, free[own])
        for act in range(acts[here], acts[here + 1]):
            if arrivals[act] == arrivals[act + 1]:
                now += delivery
                receipts += 1
                delay += now - times[event]
                last = max(last, now)
            else:
                now += message
                messages += 1
                cost += links[act]
                for arrival in range(arrivals[act], arrivals[act + 1]):
                    heappush(heap, (now + seconds[arrival], order, state[arrival], event))
                    order += 1
        free[own] = now
    return messages, cost, receipts, delay, last
