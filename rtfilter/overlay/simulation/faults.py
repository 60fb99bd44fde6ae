"""The faults in a simulated network: a schedule is a value, so it can be stored and replayed."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import NamedTuple

from rtfilter.overlay.simulation.topology import Topology


class What(StrEnum):
    """The kinds of faults of a broker or of clusters."""

    CRASH = "crash"
    """A broker stops; what it knew, what it had not read yet and what is under way to it is lost."""
    RETURN = "return"
    """It starts again, as a higher incarnation that knows nothing."""
    CUT = "cut"
    """Clusters and all others no longer reach each other; messages between them are lost."""
    HEAL = "heal"
    """They do again."""


class Fault(NamedTuple):
    """Something that happens at a moment.

    Attributes
    ----------
    at : float
        Seconds from the start.
    what : What
    names : frozenset of str
        Of brokers that crash or return; of clusters that are cut off from all others, or that were.
    """

    at: float
    what: What
    names: frozenset[str]


def drawn(
    rng: Random, topology: Topology, count: int, begin: float, end: float, longest: float, spare: int = 0
) -> list[Fault]:
    """A schedule of crashes and cuts that all end; the same seed draws the same one.

    Parameters
    ----------
    rng : random.Random
    topology : Topology
    count : int
        How many things fail; each broker crashes at most once, and each cluster is cut off at most once.
    begin, end : float
        Seconds between which they fail.
    longest : float
        Most seconds until one returns or heals.
    spare : int
        How many brokers of each cluster never crash.

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
