"""The faults in a simulated network: a schedule is a value, so it can be stored and replayed."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import NamedTuple

from experiments.simulation.topology import Topology


class What(StrEnum):
    """The kinds of faults of a broker or of clusters."""

    CRASH = "crash"
    """A broker stops; its state, its queue and the messages on their way to it are lost."""
    RETURN = "return"
    """It starts again, as a higher incarnation without state."""
    CUT = "cut"
    """Clusters and all others no longer reach each other; messages between them are lost."""
    HEAL = "heal"
    """The same clusters and all others reach each other again."""


class Fault(NamedTuple):
    """A fault at a moment.

    Attributes
    ----------
    at : float
        Seconds from the start.
    what : What
    names : frozenset of str
        Names of brokers that crash or return, or of clusters of which a cut separates all others, or
        separated.
    """

    at: float
    what: What
    names: frozenset[str]


def drawn(
    rng: Random, topology: Topology, count: int, begin: float, end: float, longest: float, spare: int = 0
) -> list[Fault]:
    """Return a schedule of crashes and cuts that all end; the same seed gives the same one.

    Parameters
    ----------
    rng : random.Random
    topology : Topology
    count : int
        Number of faults; each broker crashes at most once, and each cluster is cut off at most once.
    begin, end : float
        Seconds from the start between which faults begin.
    longest : float
        Most seconds until a fault ends.
    spare : int
        Number of brokers of each cluster that never crash.

    Returns
    -------
    list of Fault
        In order of time.
    """
    brokers = [broker for own in topology.members.values() for broker in rng.sample(own, len(own))[spare:]]
    victims: list[tuple[What, What, str]] = [
        *((What.CRASH, What.RETURN, broker) for broker in brokers),
        *((What.CUT, What.HEAL, cluster) for cluster in topology.clusters),
    ]
    found = []
    for first, then, name in rng.sample(victims, min(count, len(victims))):
        at = rng.uniform(begin, end)
        found.append(Fault(at, first, frozenset({name})))
        found.append(Fault(at + rng.uniform(0, longest), then, frozenset({name})))
    return sorted(found, key=lambda fault: fault.at)
