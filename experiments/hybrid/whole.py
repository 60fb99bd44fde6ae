"""The same without short cuts: each message goes through the router of each broker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from experiments.hybrid.queueing import Played
from experiments.hybrid.routes import ALL, EVENT, SCHEMA, TYPE, Floats, crossed
from experiments.simulation.network import Network, SimulatedCosts
from experiments.simulation.topology import Topology
from rtfilter.overlay.broker_names import EventId, Send
from rtfilter.overlay.router import Router
from rtfilter.overlay.routing_messages import Notify

QUIET = 1000.0
"""Seconds in which all subscriptions have gone wherever they go."""


def whole(
    topology: Topology, strategy: str, subscribers: Sequence[str], publishers: Sequence[str], times: Floats,
    message: float, delivery: float,
) -> Played:  # fmt: skip
    """Subscribe clients of some brokers, publish by others, and return the totals; see `queueing.play`."""

    def made(name: str, incarnation: int) -> Router:
        router = Router(name, incarnation, {TYPE: SCHEMA}, strategy)
        router.place(topology.place(name), 0.0)
        return router

    network = Network(topology, made)
    for number, broker in enumerate(subscribers):
        network.ask(0.0, broker, partial(_subscribe, f"s{number}"))
    network.run()
    network.env.run(QUIET)
    network.costs = SimulatedCosts(message, delivery)
    network.messages.clear()
    published: dict[EventId, float] = {}

    def publish(at: float, router: Router, now: float) -> list[Send]:
        id, sends = router.publish("publisher", TYPE, EVENT, now)
        published[id] = at
        return sends

    for broker, at in zip(publishers, times.tolist(), strict=True):
        network.ask(QUIET + at, broker, partial(publish, QUIET + at))
    network.run()
    told = [(each.at, each.message) for each in network.deliveries]
    delays = [at - published[event.id] for at, event in told if isinstance(event, Notify)]
    between = crossed(topology)
    cost = sum(
        count * between[topology.cluster_of[sender], topology.cluster_of.get(line, line)]
        for (_, sender, line), count in network.messages.items()
    )
    last = max(at for at, _ in told) - QUIET
    return Played(network.sent("Event"), cost, len(delays), sum(delays), last)


def _subscribe(client: str, router: Router, now: float) -> list[Send]:
    return router.subscribe(client, TYPE, ALL, now)[1]
