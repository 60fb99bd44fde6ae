"""The assignment of clients to brokers: uniform, or by interest, distance and load."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from random import Random
from typing import NamedTuple

from experiments.simulation.topology import Topology


class NewClient(NamedTuple):
    """A client that looks for a broker.

    Attributes
    ----------
    cluster : str
        Nearest cluster to it.
    interest : hashable
        Its interest; clients with equal interests are alike.
    """

    cluster: str
    interest: Hashable


class Weights(NamedTuple):
    """The weights in a client's choice of a broker; a weight of 0 does not count.

    Attributes
    ----------
    interest : float
        Weight of the share of a cluster's clients with another interest.
    distance : float
        Weight of the distance, as a share of the longest distance between clusters.
    load : float
        Weight of the number of the broker's clients, as a multiple of the mean.
    """

    interest: float = 1.0
    distance: float = 1.0
    load: float = 1.0


def uniform(rng: Random, topology: Topology, count: int) -> list[str]:
    """Return a random broker for each client; with the same seed, a larger `count` keeps the first ones."""
    brokers = topology.brokers
    return [rng.choice(brokers) for _ in range(count)]


def placed(topology: Topology, wishes: Sequence[NewClient], weights: Weights) -> list[str]:
    """Return a broker for each client, one after the other: the broker with the least weighted sum."""
    longest = max(topology.latencies.values(), default=0.0) or 1.0
    even = len(wishes) / len(topology.brokers)
    loads: Counter[str] = Counter()
    wanted: dict[str, Counter[Hashable]] = defaultdict(Counter)
    found = []
    for wish in wishes:

        def cost(broker: str, wish: NewClient = wish) -> tuple[float, str]:
            cluster = topology.cluster_of[broker]
            others = wanted[cluster]
            unlike = 1 - others[wish.interest] / others.total() if others else 0.0
            way = 0.0 if cluster == wish.cluster else topology.latencies[wish.cluster, cluster]
            sums = (
                weights.interest * unlike
                + weights.distance * way / longest
                + weights.load * loads[broker] / even
            )
            return sums, broker

        broker = min(topology.brokers, key=cost)
        loads[broker] += 1
        wanted[topology.cluster_of[broker]][wish.interest] += 1
        found.append(broker)
    return found
