"""At which brokers clients are: anywhere alike, or by what they want, how far it is, and who is busy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from random import Random
from typing import NamedTuple

from rtfilter.overlay.simulation.topology import Topology


class Wish(NamedTuple):
    """A client that looks for a broker.

    Attributes
    ----------
    cluster : str
        The one nearest to it.
    interest : hashable
        What it wants; clients with an equal one are alike.
    """

    cluster: str
    interest: Hashable


class Weights(NamedTuple):
    """The weights in a client's choice of a broker; a weight of 0 does not count.

    Attributes
    ----------
    interest : float
        Of the share of a cluster's clients that want something else.
    distance : float
        Of the way, in parts of the longest way between clusters.
    load : float
        Of the broker's clients, in parts of those that each would have if all had as many.
    """

    interest: float = 1.0
    distance: float = 1.0
    load: float = 1.0


def uniform(rng: Random, topology: Topology, count: int) -> list[str]:
    """A broker for each client, each as likely. The first of more clients are where fewer ones are."""
    brokers = topology.brokers
    return [rng.choice(brokers) for _ in range(count)]


def placed(topology: Topology, wishes: Sequence[Wish], weights: Weights) -> list[str]:
    """A broker for each client, in the order in which they come: where the weighted sum is least."""
    longest = max(topology.latencies.values(), default=0.0) or 1.0
    even = len(wishes) / len(topology.brokers)
    loads: Counter[str] = Counter()
    wanted: dict[str, Counter[Hashable]] = defaultdict(Counter)
    found = []
    for wish in wishes:

        def cost(broker: str, wish: Wish = wish) -> tuple[float, str]:
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
