"""RAPIDMatch: if events have few ones, most attributes need no test (Mohapatra et al.).

Cut the attributes into t + 1 blocks: an event with t ones has no one in at least one block. A subscription
that matches it has at most t ones, and none in that block. So for each t up to c, and each of t + 1 blocks of
nearly equal length, there is a tree of the subscriptions with at most t ones and none in the block. It tests
the other attributes, beginning behind the block, and not the block itself: there the event is 0 and all these
subscriptions accept 0. Events with more than c ones search a tree of all subscriptions.

The modified method, the paper's own, does the same for zeros, and uses the value that is rarer in an event.
The paper enters a subscription once for each way to read its stars, 2 to the power of their number. That is
not needed: only the number of cells that refuse a 0 (or a 1) counts, and a star refuses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import FlatEvent
from rtfilter.matchers.papers.ternary import ONE, ZERO, TernaryTreeMatcher, TernaryTrie, refused

MOST: Final = 4
"""The default of the parameter c."""


class Partition:
    """The tree of one block: of subscriptions whose cells rarely refuse `common`, and never in the block.

    The event has the state `common`, `ZERO` or `ONE`, in the whole block, the places first..last - 1. At most
    `most` cells of a subscription may refuse it: t.
    """

    def __init__(self, common: int, most: int, first: int, last: int) -> None:
        self.common, self.most, self.first, self.last = common, most, first, last
        self._block = bytes((common,)) * (last - first)
        self.tree = TernaryTrie()

    def admits(self, states: bytes) -> bool:
        """Return whether an event has the common state in the whole block."""
        return states[self.first : self.last] == self._block

    def has(self, cells: bytes) -> bool:
        """Return whether a subscription belongs here. An admitted event can match only such subscriptions."""
        block = cells[self.first : self.last]
        return refused(cells, self.common) <= self.most and not refused(block, self.common)

    def tested(self, vector: bytes) -> bytes:
        """Return cells or states in the order of their tests: circular, from the end of the block."""
        return vector[self.last :] + vector[: self.first]


def partitions(width: int, most: int, common: int) -> list[list[Partition]]:
    """Return, for each t from 0 to `most`, the t + 1 partitions of `width` attributes."""
    made = []
    for t in range(most + 1):
        cuts = [block * width // (t + 1) for block in range(t + 2)]
        made.append([Partition(common, t, *cuts[block : block + 2]) for block in range(t + 1)])
    return made


class RapidMatcher(TernaryTreeMatcher):
    """RAPIDMatch; faster than the plain tree if events have few ones.

    It takes booleans with all their operators. A missing attribute is not 0, so it counts as a one, although
    it satisfies only ``*`` (and ``IS NULL``).

    Parameters
    ----------
    schema : Schema
        A schema with k boolean attributes.
    c : int, optional
        Events with at most c ones search a small tree; 0..k - 1, by default 4, or k - 1 if that is less. A
        larger c serves more events, but there are (c + 1) (c + 2) / 2 trees, and a subscription is in each
        tree that it fits: in all of them if it has no ones. So memory and the time of changes grow with the
        square of c, and the last trees gain little: for t ones they save k / (t + 1) tests.

    Notes
    -----
    Visits are nodes of the searched tree, with its root, before chains are joined.
    """

    commons: tuple[int, ...] = (ZERO,)
    """States that may be the common one; the first is used if an event has as many of both."""

    def __init__(self, schema: Schema, *, c: int | None = None) -> None:
        super().__init__(schema)
        width = len(self._vectors)
        if c is not None and not 0 <= c < width:
            raise ValueError(f"c is from 0 to the number of boolean attributes less 1, {width - 1}; got {c}")
        self.options = {"c": c}
        most = min(MOST, width - 1) if c is None else c
        self._by_common = {common: partitions(width, most, common) for common in self.commons}

    def _holders(self, cells: bytes) -> Iterator[tuple[TernaryTrie, bytes]]:
        yield from super()._holders(cells)
        for common, levels in self._by_common.items():
            for level in levels[refused(cells, common) :]:
                yield from ((one.tree, one.tested(cells)) for one in level if one.has(cells))

    def admissible(self, states: bytes) -> list[Partition]:
        """Return the partitions that may answer for an event, one or more; none if it has over c ones."""
        common = min(self.commons, key=lambda state: len(states) - states.count(state))
        level = len(states) - states.count(common)
        levels = self._by_common[common]
        return [one for one in levels[level] if one.admits(states)] if level < len(levels) else []

    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        states = self._vectors.of_event(event)
        able = self.admissible(states)
        return able[0].tree.search(able[0].tested(states)) if able else self._tree.search(states)

    def details(self) -> dict[str, Any]:
        """Return the number of trees, and of the stored nodes of all trees."""
        trees = [one.tree for levels in self._by_common.values() for level in levels for one in level]
        return {"trees": 1 + len(trees), "nodes": sum(tree.nodes for tree in (self._tree, *trees))}


class ModifiedRapidMatcher(RapidMatcher):
    """The modified RAPIDMatch: also fast if events have few zeros. It has nearly twice as many trees."""

    commons = (ZERO, ONE)
