"""The worlds in which forwarding is compared: subscriptions and publications at each broker.

The paper names what it varies and gives no values. Here a profile is a box over numbers, an event a point.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.simulation.topology import Topology, random_tree

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DOMAIN = 1_000_000
"""Values of events are drawn below this."""
LEAST = 10
"""An event that matches at all matches so many profiles of its type, or more."""
ATTRIBUTES = 3
"""Attributes of an event, for the cost of filtering. Only one of them is drawn: the others always match."""


class Cell(NamedTuple):
    """The varied parameters.

    Attributes
    ----------
    brokers : int
    matching : float
        Share of the events that match a profile.
    profiles : int
    types : int
        Types of events, each as frequent.
    locality : float
        Share of the profiles, and of the events, that are at the broker to which their values belong. The
        others are anywhere.
    covering : float
        Share of the profiles that are drawn within another one.
    matched : float
        Share of the profiles of its type, less those within others, that an event matches if it matches.
    """

    brokers: int = 16
    matching: float = 0.1
    profiles: int = 10_000
    types: int = 1
    locality: float = 0.5
    covering: float = 0.3
    matched: float = 0.01


@dataclass(frozen=True)
class World:
    """Profiles and events at the brokers of a tree.

    Attributes
    ----------
    topology : Topology
        Clusters of one broker; a broker is its place in ``topology.brokers``, and its parent comes before it.
    low, high : (profiles, attributes) float array
        Bounds of each profile, ends included.
    wanted, home : (profiles,) int array
        The type of each profile, and its broker.
    values : (events, attributes) float array
    types, at : (events,) int array
        The type of each event, and the broker at which it is published.
    weights : (events,) float array
        Frequency of each event; the sum is 1.
    number : int
        Of types.
    attributes : int
        For the cost of filtering.
    """

    topology: Topology
    low: Floats
    high: Floats
    wanted: Ints
    home: Ints
    values: Floats
    types: Ints
    at: Ints
    weights: Floats
    number: int
    attributes: int = ATTRIBUTES

    @property
    def brokers(self) -> int:
        """Number of brokers."""
        return len(self.topology.brokers)

    @property
    def parents(self) -> list[int]:
        """The broker above each one; -1 of the root, which is the first one."""
        order = {cluster: at for at, cluster in enumerate(self.topology.clusters)}
        return [-1, *(order[self.topology.parents[cluster]] for cluster in self.topology.clusters[1:])]

    def matches(self) -> Ints:
        """Return the number of profiles of each broker that match each event, int (events, brokers)."""
        found = np.zeros((len(self.at), self.brokers), np.int64)
        for kind in range(self.number):
            events = np.flatnonzero(self.types == kind)
            for broker in range(self.brokers):
                own = (self.wanted == kind) & (self.home == broker)
                found[events, broker] = _stabbed(self.low[own], self.high[own], self.values[events])
        return found


def _stabbed(low: Floats, high: Floats, values: Floats) -> Ints:
    """Return the number of boxes that contain each point."""
    if low.shape[1] == 1:  # so many intervals begin before it, less those that end before it
        begun = np.searchsorted(np.sort(low[:, 0]), values[:, 0], "right")
        ended = np.searchsorted(np.sort(high[:, 0]), values[:, 0], "left")
        return np.asarray(begun - ended, np.int64)
    inside = (low <= values[:, None]) & (values[:, None] <= high)
    return np.asarray(inside.all(axis=2).sum(axis=1), np.int64)


def drawn(cell: Cell, events: int, seed: int) -> World:
    """Draw a world.

    All matching values lie in the first part of the domain. There, the profiles that are not drawn within
    another one are equally wide, and begin at even distances, so each value is in as many of them. Half of
    the events are drawn there, whatever their share is: weights make up for it.
    """
    rng = np.random.default_rng(seed)
    topology = random_tree(Random(seed), cell.brokers)
    end = cell.matching * DOMAIN
    inner = int(cell.covering * cell.profiles)
    outer = cell.profiles - inner
    wanted = np.arange(cell.profiles) % cell.types
    low, high = np.empty(cell.profiles), np.empty(cell.profiles)
    for kind in range(cell.types):
        own = np.flatnonzero(wanted[:outer] == kind)
        width = min(max(cell.matched, LEAST / len(own)), 1.0) * end
        step = (end + width) / len(own)
        begin = (np.arange(len(own)) + rng.random(len(own))) * step - width
        low[own] = np.maximum(begin, 0)
        high[own] = np.minimum(begin + width, np.nextafter(end, 0))
        within = outer + np.flatnonzero(wanted[outer:] == kind)
        around = rng.choice(own, len(within))
        ends = np.sort(rng.random((len(within), 2)), axis=1) * (high[around] - low[around])[:, None]
        low[within], high[within] = low[around] + ends[:, 0], low[around] + ends[:, 1]
    types = rng.integers(cell.types, size=events)
    few = events // 2 if cell.matching < 1 else events
    values = np.concatenate([rng.random(few) * end, end + rng.random(events - few) * (DOMAIN - end)])
    weights = np.where(
        np.arange(events) < few, cell.matching / few, (1 - cell.matching) / max(events - few, 1)
    )
    home = _somewhere(rng, (low + high) / 2 / end, cell)
    at = _somewhere(rng, values / end % 1, cell)
    return World(
        topology, low[:, None], high[:, None], wanted, home, values[:, None], types, at, weights, cell.types
    )


def _somewhere(rng: np.random.Generator, places: Floats, cell: Cell) -> Ints:
    """Return the broker to which a value belongs, or any one."""
    belongs = np.minimum((places * cell.brokers).astype(np.int64), cell.brokers - 1)
    anywhere = rng.integers(cell.brokers, size=len(places))
    return np.where(rng.random(len(places)) < cell.locality, belongs, anywhere)


TEMPERATURE, MOTION, DOOR, SMOKE = range(4)
READINGS = (0.7, 0.2, 0.09, 0.01)
"""The frequency of each kind of reading."""
ROOMS = 24
"""Of each floor."""


def building(events: int, seed: int, floors: int = 16) -> World:
    """Draw a building with a broker for each floor: what its controls want is mostly read beside them.

    Attributes are floor, room, kind and value. In each room the heater wants to know when it is below 18
    degrees, the cooler when above 26, the light of motion; the guards of doors and smoke in all of the
    building, and half of the floors' offices of smoke on their own floor, which this covers. A tenth of the
    rooms' profiles are at another broker, of people who look after a room from elsewhere.
    """
    rng = np.random.default_rng(seed)
    topology = random_tree(Random(seed), floors)
    lines: list[tuple[list[float], list[float], int]] = []
    for floor in range(floors):
        for room in range(ROOMS):
            for kind, least, most in (
                (TEMPERATURE, -50.0, 18.0), (TEMPERATURE, 26.0, 100.0), (MOTION, 1.0, 1.0)
            ):  # fmt: skip
                broker = floor if rng.random() < 0.9 else int(rng.integers(floors))
                lines.append(([floor, room, kind, least], [floor, room, kind, most], broker))
        if floor % 2:
            lines.append(([floor, 0, SMOKE, 0.3], [floor, ROOMS, SMOKE, 1.0], floor))
    lines.append(([0, 0, SMOKE, 0.3], [floors, ROOMS, SMOKE, 1.0], 0))
    lines.append(([0, 0, DOOR, 1.0], [floors, ROOMS, DOOR, 1.0], 0))
    lows, highs, homes = zip(*lines, strict=True)
    kinds = rng.choice(4, events, p=READINGS)
    hot, moved, opened = rng.normal(22, 2.5, events), rng.random(events) < 0.3, rng.random(events) < 0.5
    values = np.choose(kinds, [hot, moved, opened, rng.random(events)])
    at = rng.integers(floors, size=events)
    points = np.stack([at, rng.integers(ROOMS, size=events), kinds, values], axis=1).astype(float)
    none, weights = np.zeros(max(len(lines), events), np.int64), np.full(events, 1 / events)
    return World(
        topology, np.array(lows), np.array(highs), none[: len(lines)], np.array(homes, np.int64),
        points, none[:events], at, weights, 1, attributes=4,
    )  # fmt: skip
