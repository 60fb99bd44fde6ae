"""Clients that look for a broker by interest, distance and load, beside clients anywhere.

Xue and Feng (2005) have clients at the nearest broker, and simulate them anywhere alike. Here events are of
several kinds, and each client has a nearest cluster and wants, or publishes, one kind. Each message is really
routed. The delay is that from client to client: with the ways to the broker of the publisher and from
that of the subscriber, or else a far broker would cost nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random
from statistics import mean
from typing import NamedTuple

from experiments.simulation.event_messages import EventId, Notify
from experiments.simulation.event_router import EventRouter
from experiments.simulation.network import Network, SimulatedCosts
from experiments.simulation.topology import (
    NewClient,
    Topology,
    Weights,
    embedded,
    placed,
    transit_stub,
    uniform,
)
from rtfilter.basics.text import plain
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import Send
from rtfilter.replay.output import Row, table

TYPE = "quote"
TYPES = {TYPE: Schema({"kind": int})}
ANYWHERE = "anywhere"
WAYS: Mapping[str, Weights | None] = {
    ANYWHERE: None, "by distance": Weights(0, 1, 0), "by interest": Weights(1, 0, 0),
    "by load": Weights(0, 0, 1), "by all three": Weights(1, 1, 1),
}  # fmt: skip
"""The ways in which clients find a broker, by name."""
SIZES: dict[str, dict[str, int]] = {
    "ci": {"clusters": 8, "brokers": 3, "subscribers": 80, "publishers": 40, "kinds": 8, "runs": 1},
    "medium": {"clusters": 20, "brokers": 5, "subscribers": 400, "publishers": 200, "kinds": 20, "runs": 2},
    "full": {"clusters": 20, "brokers": 5, "subscribers": 400, "publishers": 200, "kinds": 20, "runs": 3},
}
"""By profile. They are not among those of the experiment: what was kept without them can be continued."""
LINKS, CHILDREN = 730, 8
MESSAGE = 1e-3
"""Seconds for which a broker is busy with a message to others."""
WINDOW = 1.0
"""Seconds in which each publisher publishes its event."""


class Crowd(NamedTuple):
    """The clients that look for a broker in a network, and the moments of publication.

    Attributes
    ----------
    topology : Topology
    subscribers, publishers : list of NewClient
        With the kind that each wants, or publishes.
    moments : list of float
        Of each publisher, in seconds.
    """

    topology: Topology
    subscribers: list[NewClient]
    publishers: list[NewClient]
    moments: list[float]


def crowd(clusters: int, brokers: int, subscribers: int, publishers: int, kinds: int, seed: str) -> Crowd:
    """Draw a network, and clients near any cluster, which want any kind."""
    rng = Random(f"crowd {seed}")
    topology = embedded(rng, transit_stub(rng, LINKS), clusters, brokers, CHILDREN)
    wishes = [
        NewClient(rng.choice(topology.clusters), rng.randrange(kinds))
        for _ in range(subscribers + publishers)
    ]
    moments = [WINDOW * rng.random() for _ in range(publishers)]
    return Crowd(topology, wishes[:subscribers], wishes[subscribers:], moments)


def brokers_of(own: Crowd, way: str, seed: str) -> list[str]:
    """Return the broker of each subscriber, then of each publisher."""
    wishes = [*own.subscribers, *own.publishers]
    weights = WAYS[way]
    if weights is None:
        return uniform(Random(f"anywhere {seed}"), own.topology, len(wishes))
    return placed(own.topology, wishes, weights)


def counted(own: Crowd, strategy: str, brokers: Sequence[str]) -> Row:
    """Return the costs to subscribe and publish, the delay of events, and the unevenness of the load."""
    topology, middle = own.topology, len(own.subscribers)

    def made(name: str, incarnation: int) -> EventRouter:
        router = EventRouter(name, incarnation, TYPES, strategy, covering=True)
        router.place(topology.place(name), 0.0)
        return router

    network = Network(topology, made)
    for number, (broker, wish) in enumerate(zip(brokers[:middle], own.subscribers, strict=True)):
        network.ask(float(number), broker, partial(_subscribe, number, wish))
    network.run()
    row: Row = {
        "subscription messages": network.sent(),
        "entries": sum(len(network.machine(broker).table) for broker in topology.brokers),
    }
    network.messages.clear()
    network.costs = SimulatedCosts(MESSAGE)
    begin = network.env.now
    for number, (broker, wish) in enumerate(zip(brokers[middle:], own.publishers, strict=True)):
        network.ask(begin + own.moments[number], broker, partial(_publish, number, wish))
    network.run()
    delays = []
    for each in network.deliveries:
        if isinstance(each.message, Notify):
            writer, reader = each.message.id.number, int(each.client.removeprefix("s"))
            way = _way(topology, own.publishers[writer], brokers[middle + writer])
            way += _way(topology, own.subscribers[reader], each.broker)
            delays.append(each.at - begin - own.moments[writer] + way)
    work: Counter[str] = Counter()
    for (_, sender, _), count in network.messages.items():
        work[sender] += count
    even = len(brokers) / len(topology.brokers)
    return row | {
        "messages": network.sent(), "receipts": len(delays), "delay": mean(delays) if delays else 0.0,
        "most clients": max(Counter(brokers).values()) / even, "most sent": max(work.values(), default=0),
    }  # fmt: skip


def _way(topology: Topology, wish: NewClient, broker: str) -> float:
    """Return seconds from a client to its broker."""
    cluster = topology.cluster_of[broker]
    return 0.0 if cluster == wish.cluster else topology.latencies[wish.cluster, cluster]


def _subscribe(number: int, wish: NewClient, router: EventRouter, now: float) -> list[Send]:
    return router.subscribe(f"s{number}", TYPE, f"kind = {wish.interest}", now)[1]


def _publish(number: int, wish: NewClient, router: EventRouter, now: float) -> list[Send]:
    return router.publish("writer", TYPE, {"kind": wish.interest}, now, EventId("writer", 1, number))[1]


def measured(profile: str, seed: int, strategies: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each network, strategy and way to find a broker."""
    sizes = SIZES[profile]
    drawn = {name: value for name, value in sizes.items() if name != "runs"}
    for run in range(1, sizes["runs"] + 1):
        own = crowd(**drawn, seed=f"{seed} {run}")
        for way in WAYS:
            brokers = brokers_of(own, way, f"{seed} {run}")
            for strategy in strategies:
                yield {"placement": way, "routing": strategy, "network": run, **drawn} | counted(
                    own, strategy, brokers
                )


COLUMNS = {
    "messages": "event messages", "delay": "delay, ms", "most clients": "most clients",
    "most sent": "most sent", "subscription messages": "for subscriptions", "entries": "entries",
}  # fmt: skip


def text(rows: Sequence[Row]) -> str:
    """Return means over all networks, by routing and by how clients find a broker; nothing without rows."""
    if not rows:
        return ""
    lines: list[Row] = []
    for strategy in dict.fromkeys(row["routing"] for row in rows):
        for way in WAYS:
            own = [row for row in rows if (row["routing"], row["placement"]) == (strategy, way)]
            means = {name: mean(row[name] for row in own) for name in COLUMNS}
            means["delay"] *= 1e3
            lines.append(
                {"routing": strategy, "clients": way}
                | {name: plain(value, 3) if name in ("delay", "most clients") else f"{value:,.0f}"
                   for name, value in means.items()}
            )  # fmt: skip
    first, count = rows[0], len({row["network"] for row in rows})
    notes = (
        f"Means of networks ({count}) of {first['clusters']} clusters of {first['brokers']} brokers each.\n"
        f"{first['subscribers']} subscribers and {first['publishers']} publishers, each of one of "
        f"{first['kinds']} kinds of events. A message takes 1 ms.\n"
        "Clients: how they find a broker. Delay: from client to client, with the ways to their brokers.\n"
        "Most clients: of a broker, in parts of the mean. Most sent: event messages of the busiest broker."
    )
    return f"{table(lines, {'routing': 'routing', 'clients': 'clients'} | COLUMNS)}\n\n{notes}"
