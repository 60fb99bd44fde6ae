"""The settings and the contenders of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtfilter.adaptive import Controller

PEER = "rtree, event by event"
"""Name of the peer in a report: an `rtree` index that is searched event by event."""


@dataclass(frozen=True)
class Contender:
    """A way to run bursts.

    Attributes
    ----------
    name : str
        Its name in the report.
    order : str
        The order of the events, a name of `rtfilter.scheduler.ORDERS`.
    controller : Controller
        Chooses the level and the group size of each burst.
    """

    name: str
    order: str
    controller: Controller


@dataclass(frozen=True)
class ReplaySettings:
    """The size of a replay.

    Attributes
    ----------
    subscriptions : int
        Number of subscriptions in the index when the first burst arrives.
    bursts : int
        Number of bursts.
    sizes : sequence of int
        Numbers of events of a burst. Each burst draws one of them, all with equal chance.
    poisson : float, optional
        Mean of a Poisson distribution that burst sizes are drawn from instead; a burst has at least 1 event.
    insert, delete : int
        Number of new subscriptions that are added, and of the oldest ones that are removed, after each burst.
    check : int
        Events per burst whose matches are compared with brute force.
    check_every : int
        At least 1. Brute force checks the bursts whose numbers, from 0 on, are multiples of this.
    peer_every : int
        The peer runs the bursts whose numbers, from 0 on, are multiples of this; 0: none.
    seed : int
        Seed of the burst sizes, and of the choice of events that are compared with brute force.
    """

    subscriptions: int
    bursts: int
    sizes: Sequence[int] = (16, 128, 1024)
    poisson: float | None = None
    insert: int = 0
    delete: int = 0
    check: int = 1
    check_every: int = 1
    peer_every: int = 0
    seed: int = 1
