"""RAPIDMatch: where events have few ones, most attributes need no test (Mohapatra et al.).

An event with t ones has none in one of any t + 1 blocks of the attributes. A subscription that matches it
has at most t ones, and none in that block. So for each t up to c, and each of t + 1 blocks of nearly equal
length, there is a tree of the subscriptions with at most t ones and none in the block. It tests the other
attributes, those after the block first, and not the block itself: there the event is 0 and they all accept
0. Events with more than c ones search one tree of all.

The modified method, the paper's own, has the same for zeros, and takes the value that an event has fewer of.
The paper would enter a subscription once for each way to read its stars, 2 to the power of their number. That
is not needed: what counts is how many cells refuse a 0 (or a 1), and a star refuses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import Event, EventwiseMatcher
from rtfilter.matchers.papers.ternary import ONE, TAKES, ZERO, Vectors, refused
from rtfilter.matchers.papers.ternary_trie import TernaryTrie
from rtfilter.predicates.model import Filter

MOST: Final = 4
"""The parameter c, unless it is given."""


class Partition:
    """The tree of one block: of subscriptions that refuse `common` rarely, and never in the block.

    Parameters
    ----------
    common : int
        `ZERO`, or `ONE`: the state that the event has in the whole block.
    most : int
        How many cells may refuse it, t.
    first, last : int
        The block: places first..last - 1.
    """

    def __init__(self, common: int, most: int, first: int, last: int) -> None:
        self.common, self.most, self.first, self.last = common, most, first, last
        self._block = bytes((common,)) * (last - first)
        self.tree = TernaryTrie()

    def admits(self, states: bytes) -> bool:
        """Return whether an event has the common state in the whole block."""
        return states[self.first : self.last] == self._block

    def has(self, cells: bytes) -> bool:
        """Return whether a subscription belongs here. An event that is admitted may match no other."""
        return refused(cells, self.common) <= self.most and not refused(
            cells[self.first : self.last], self.common
        )

    def tested(self, vector: bytes) -> bytes:
        """Cells or states in the order in which they are tested: circular, from the end of the block."""
        return vector[self.last :] + vector[: self.first]


def partitions(width: int, most: int, common: int) -> list[list[Partition]]:
    """For each t from 0 to `most` its t + 1 partitions of `width` attributes."""
    made = []
    for t in range(most + 1):
        cuts = [block * width // (t + 1) for block in range(t + 2)]
        made.append([Partition(common, t, *cuts[block : block + 2]) for block in range(t + 1)])
    return made


class RapidMatcher(EventwiseMatcher):
    """RAPIDMatch; ahead of the plain tree where events have few ones.

    It takes booleans with all their operators. An attribute that an event lacks is not 0, so it counts like
    a one, though it satisfies only ``*`` (and ``IS NULL``).

    Parameters
    ----------
    schema : Schema
        With k boolean attributes.
    c : int, optional
        Events with up to so many ones find a small tree, 0..k - 1; by default 4, or k - 1 if that is less.
        More serves more events, but there are (c + 1) (c + 2) / 2 trees, and a subscription is in each one
        that it fits: in all of them if it has no ones. So memory and changes grow with the square of c, and
        the last trees gain little: for t ones k / (t + 1) tests are saved.

    Raises
    ------
    ValueError
        Another c.

    Notes
    -----
    Visits are nodes of the tree that is searched, with its root, before chains are joined.
    """

    takes = TAKES
    unit = "nodes"
    commons: tuple[int, ...] = (ZERO,)
    """States that may be the common one, the first of them where events have as many of both."""

    def __init__(self, schema: Schema, *, c: int | None = None) -> None:
        super().__init__(schema)
        self._vectors = Vectors(schema)
        width = len(self._vectors)
        if c is not None and not 0 <= c < width:
            raise ValueError(f"c is from 0 to the number of boolean attributes less 1, {width - 1}; got {c}")
        self.options = {"c": c}
        most = min(MOST, width - 1) if c is None else c
        self._all = TernaryTrie()
        self._by_common = {common: partitions(width, most, common) for common in self.commons}

    def insert(self, id: int, filter: Filter) -> None:
        """Put a filter into each tree that it fits."""
        cells = self._vectors.of_filter(filter)
        if cells is not None:
            self._all.insert(cells, id)
            for one in self._fitting(cells):
                one.tree.insert(one.tested(cells), id)

    def delete(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`."""
        cells = self._vectors.of_filter(filter)
        if cells is not None:
            self._all.delete(cells, id)
            for one in self._fitting(cells):
                one.tree.delete(one.tested(cells), id)

    def _fitting(self, cells: bytes) -> Iterator[Partition]:
        for common, levels in self._by_common.items():
            for level in levels[refused(cells, common) :]:
                yield from (one for one in level if one.has(cells))

    def admissible(self, states: bytes) -> list[Partition]:
        """The partitions that may answer for an event, at least one; none if it has more than c ones."""
        common = min(self.commons, key=lambda state: len(states) - states.count(state))
        level = len(states) - states.count(common)
        levels = self._by_common[common]
        return [one for one in levels[level] if one.admits(states)] if level < len(levels) else []

    def find(self, event: Event) -> tuple[set[int], int]:
        """See `EventwiseMatcher`; operations are nodes."""
        states = self._vectors.of_event(event)
        able = self.admissible(states)
        return able[0].tree.search(able[0].tested(states)) if able else self._all.search(states)

    def details(self) -> dict[str, Any]:
        """Trees, and nodes of all of them as they are stored."""
        trees = [one.tree for levels in self._by_common.values() for level in levels for one in level]
        return {"trees": 1 + len(trees), "nodes": sum(tree.nodes for tree in (self._all, *trees))}


class ModifiedRapidMatcher(RapidMatcher):
    """The modified RAPIDMatch: also ahead where events have few zeros. It has nearly twice as many trees."""

    commons = (ZERO, ONE)
