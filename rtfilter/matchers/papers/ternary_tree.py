"""Subscriptions over booleans in one search tree, as Mohapatra et al. describe it."""

from __future__ import annotations

from typing import Any

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.matchers.papers.ternary import TAKES, Vectors
from rtfilter.matchers.papers.ternary_trie import TernaryTrie
from rtfilter.predicates.model.constraints import Filter


class TernaryTreeMatcher(EventwiseMatcher):
    """Level i of a tree tests attribute i, and an event follows the edges of its value and of ``*``.

    It is faster than a test of each subscription if many share their constraints of the first attributes. It
    takes booleans with all their operators; a missing attribute satisfies only ``*`` (and ``IS NULL``).

    Notes
    -----
    Visits are nodes of the tree, with the root, before chains are joined; see `TernaryTrie`.
    """

    takes = TAKES
    unit = "nodes"

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._vectors = Vectors(schema)
        self._tree = TernaryTrie()

    def insert(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`."""
        cells = self._vectors.of_filter(filter)
        if cells is not None:
            self._tree.insert(cells, id)

    def delete(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`."""
        cells = self._vectors.of_filter(filter)
        if cells is not None:
            self._tree.delete(cells, id)

    def find(self, event: FlatEvent) -> tuple[set[int], int]:
        """See `EventwiseMatcher`; operations are nodes."""
        return self._tree.search(self._vectors.of_event(event))

    def details(self) -> dict[str, Any]:
        """Return the number of stored nodes, and of nodes of the plain tree."""
        return {"nodes": self._tree.nodes, "plain_nodes": self._tree.plain_nodes}
