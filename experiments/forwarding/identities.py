"""Messages and entries of each way of forwarding, from the tree and the matches: no broker is run.

On a tree of *B* brokers, an event that is published at one of them needs

- by event forwarding *B* - 1 messages;
- by profile forwarding the links of the least subtree that connects its broker with all that have a match;
- by a rendezvous node those between its broker and the node, and the links of the least subtree that connects
  the node with all that have a match.

A profile is held once by event forwarding, by each broker on the way to the node by rendezvous, and by each
broker by profile forwarding; less what is covered by another one that came the same way. That these are the
numbers of the real routers is a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.forwarding.worlds import Floats, Ints, World

PROFILE, EVENT, RENDEZVOUS = STRATEGIES = ("profile", "event", "rendezvous")

Bools = NDArray[np.bool_]


class Loads(NamedTuple):
    """The work of each broker, on average of all events.

    Attributes
    ----------
    sent : (brokers,) float array
        Messages that it sends to other brokers.
    handled : (brokers,) float array
        Times that it takes an event, from a client or from another broker.
    filtered : (types, brokers) float array
        Times that it filters an event of a type against what it holds.
    held : (types, brokers) int array
        Profiles that it holds.
    """

    sent: Floats
    handled: Floats
    filtered: Floats
    held: Ints

    @property
    def messages(self) -> float:
        """Messages of an event."""
        return float(self.sent.sum())

    @property
    def memory(self) -> int:
        """Profiles that all brokers hold together."""
        return int(self.held.sum())


class Tree:
    """The tree of a world, with the brokers below each one.

    Attributes
    ----------
    below : (brokers, brokers) bool array
        True if the second is the first or below it.
    """

    def __init__(self, parents: Sequence[int]) -> None:
        self.parents = parents
        self.below = np.eye(len(parents), dtype=np.bool_)
        for child in reversed(range(1, len(parents))):
            self.below[parents[child]] |= self.below[child]

    def links(self) -> Iterator[tuple[int, int, Bools]]:
        """Yield each direction of each link: its two ends, and which brokers are behind the first one."""
        for child in range(1, len(self.parents)):
            yield child, self.parents[child], self.below[child]
            yield self.parents[child], child, ~self.below[child]

    def distances(self) -> Ints:
        """Return links between any two brokers."""
        found = np.zeros(self.below.shape, np.int64)
        for _, _, behind in self.links():
            found += np.outer(behind, ~behind)
        return found


def nodes(tree: Tree, types: int) -> list[int]:
    """Return the rendezvous node of each type: the brokers with the shortest ways to all others, in turn."""
    order = np.argsort(tree.distances().sum(axis=1), kind="stable")
    return [int(order[kind % len(order)]) for kind in range(types)]


def loads(world: World, covering: bool = True) -> dict[str, Loads]:
    """Return the work of each broker, by each way of forwarding.

    Parameters
    ----------
    world : World
    covering : bool
        True if a profile is kept from going where another one that covers it has gone.
    """
    tree, matching = Tree(world.parents), world.matches() > 0
    node = np.array(nodes(tree, world.number))
    covered = Covering(world)
    local = np.zeros((world.number, world.brokers), np.int64)
    np.add.at(local, (world.wanted, world.home), 1)
    came = np.zeros_like(local)
    towards = np.zeros_like(local)
    for _, receiver, behind in tree.links():
        for kind in range(world.number):
            passed = covered.kept(behind, kind, covering)
            came[kind, receiver] += passed
            if not behind[node[kind]]:
                towards[kind, receiver] += passed
    return {
        PROFILE: _routed(world, tree, matching, None, local + came),
        EVENT: _flooded(world, tree, local),
        RENDEZVOUS: _routed(world, tree, matching, node, local + towards),
    }


def _flooded(world: World, tree: Tree, local: Ints) -> Loads:
    brokers = world.brokers
    degree = np.zeros(brokers)
    for sender, _, _ in tree.links():
        degree[sender] += 1
    published = np.bincount(world.at, world.weights, brokers)
    share = np.bincount(world.types, world.weights, world.number)
    filtered = np.repeat(share[:, None].astype(np.float64), brokers, axis=1)
    return Loads(degree - (1 - published) * (brokers > 1), np.ones(brokers), filtered, local)


def _routed(world: World, tree: Tree, matching: Bools, node: Ints | None, held: Ints) -> Loads:
    """Return the work of brokers if an event goes to the node of its type, if any, and then to matches."""
    events, brokers = len(world.at), world.brokers
    start = world.at if node is None else node[world.types]
    sent, handled = np.zeros(brokers), np.bincount(world.at, world.weights, brokers).astype(np.float64)
    filtering = np.zeros((events, brokers), np.bool_)
    filtering[np.arange(events), start] = True
    for sender, receiver, behind in tree.links():
        goes = behind[start] & matching[:, ~behind].any(axis=1)
        filtering[:, receiver] |= goes
        both = world.weights[goes].sum()
        if node is not None:
            both += world.weights[behind[world.at] & ~behind[start]].sum()
        sent[sender] += both
        handled[receiver] += both
    filtered = np.zeros((world.number, brokers))
    np.add.at(filtered, world.types, filtering * world.weights[:, None])
    return Loads(sent, handled, filtered, held)


class Covering:
    """The profiles that go over a link: those of a side that no other profile of that side covers."""

    def __init__(self, world: World) -> None:
        self.homes, self.highs = [], []
        self.inside: list[Bools | None] = []
        for kind in range(world.number):
            own = np.flatnonzero(world.wanted == kind)
            low, high = world.low[own], world.high[own]
            if low.shape[1] == 1:
                # An interval is covered if one that begins before it, or with it, ends no sooner.
                order = np.lexsort((-high[:, 0], low[:, 0]))
                own, high = own[order], high[order]
                self.inside.append(None)
            else:
                self.inside.append(_inside(low, high))
            self.homes.append(world.home[own])
            self.highs.append(high[:, 0])

    def kept(self, behind: Bools, kind: int, covering: bool = True) -> int:
        """Return the number of profiles of a type that go over a link, from the brokers behind it."""
        own = behind[self.homes[kind]]
        if not covering or not own.any():
            return int(own.sum())
        inside = self.inside[kind]
        if inside is not None:
            return int((~inside[np.ix_(own, own)].any(axis=0)).sum())
        high = self.highs[kind][own]
        return 1 + int((high[1:] > np.maximum.accumulate(high)[:-1]).sum())


def _inside(low: Floats, high: Floats) -> Bools:
    """Return a mask of covered boxes, [i, j]: j lies within i. Of equal boxes the first covers the others."""
    inside = np.ones((len(low), len(low)), np.bool_)
    for own_low, own_high in zip(low.T, high.T, strict=True):
        inside &= (own_low[:, None] <= own_low) & (own_high <= own_high[:, None])
    return inside & ~np.tril(inside & inside.T)
