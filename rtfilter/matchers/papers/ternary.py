"""Filters over booleans as vectors of 0, 1 and ``*``, and a search tree of them (Mohapatra et al.).

A cell of a vector has a bit for each state of an attribute that the filter accepts. In the paper a cell is 0,
1 or ``*``, and an event has 0 or 1. Here an event may also lack the attribute, or have a value of another
type: these are further states; a 0 and a 1 refuse them and a ``*`` accepts them. So all operators of booleans
have a cell. A 1 of the paper, by which the event must not be 0 there, is a cell that refuses `ZERO`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.matchers.port import Takes
from rtfilter.predicates.model.constraints import OPERATORS_OF, PRESENCE, Constraint, Filter

ZERO, ONE, ABSENT, ALIEN = STATES = 1, 2, 4, 8
"""The states of an attribute: it is false, is true, is lacking, has a value of another type."""
STAR: Final = sum(STATES)
"""The cell that accepts every state."""

TAKES: Final = Takes(
    operators=frozenset(OPERATORS_OF["bool"]) | PRESENCE, families=frozenset(("bool",)), boxes=False
)
"""The predicates that matchers of vectors take: all operators of booleans; events may lack attributes."""

_SAMPLES: Final = dict(zip(STATES, (False, True, None, ""), strict=True))


class Vectors:
    """Makes vectors, bytes (k,), over the k boolean attributes of a schema, in its order."""

    def __init__(self, schema: Schema) -> None:
        self.names = tuple(name for name, one in schema.attributes.items() if one.family == "bool")
        self._places = {name: place for place, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def of_filter(self, filter: Filter) -> bytes | None:
        """Return the cells of a filter of constraints; None if no event satisfies it."""
        cells = bytearray([STAR]) * len(self.names)
        for test in filter.constraints:
            assert isinstance(test, Constraint)  # the port refuses comparisons
            cells[self._places[test.attribute]] &= _cell(test.operator, test.value)
        return None if 0 in cells else bytes(cells)

    def of_event(self, event: FlatEvent) -> bytes:
        """Return the state of each attribute."""
        values, row = event.values, event.row
        states = bytearray(len(self.names))
        for place, name in enumerate(self.names):
            value = values.get(name)
            if value is None:
                states[place] = ALIEN if name in row else ABSENT
            else:
                states[place] = ONE if value else ZERO
        return bytes(states)


@cache
def _cell(operator: str, value: Any) -> int:
    """Return the states that satisfy a constraint of a boolean."""
    test = Constraint("", operator, value)
    return sum(state for state, sample in _SAMPLES.items() if test.accepts(sample))


def refused(cells: bytes, state: int) -> int:
    """Return how many cells refuse a state: for `ZERO` the number of ones, for `ONE` that of zeros."""
    return sum(not cell & state for cell in cells)


class _TrieNode:
    """A node of the plain trie, with the chain above it up to the next branch."""

    __slots__ = ("children", "ids", "label")

    def __init__(self, label: bytes, children: dict[int, _TrieNode], ids: set[int]) -> None:
        self.label = label  # cells of the chain, behind the cell of the edge from its parent
        self.children = children  # by cell; none at the last level
        self.ids = ids  # subscriptions whose vectors end here; none above the last level


class TernaryTrie:
    """A search trie over vectors of cells, bytes of one length, in which an event follows all edges it can.

    Level i tests cell i; in the paper a node has up to three children, 0, 1 and ``*``. Chains of nodes with
    one child each are stored as one node with a label, as in Morrison's PATRICIA: a trie of n vectors has at
    most 2 n nodes, at any length. A search still counts the nodes of the plain trie. An id may have several
    vectors.

    A change is one assignment to a dict, or one change of a set: an interrupt leaves the trie as before the
    change, or as after it.
    """

    def __init__(self) -> None:
        self._top = _TrieNode(b"", {}, set())  # above the root: its only edge, 0, leads there

    def insert(self, cells: bytes, id: int) -> None:
        """Add a vector of a subscription, if it is not there."""
        parent, edge, rest = self._top, 0, cells
        while True:
            node = parent.children.get(edge)
            if node is None:
                parent.children[edge] = _TrieNode(rest, {}, {id})
                return
            shared = _shared(node.label, rest)
            if shared < len(node.label):
                parent.children[edge] = _split(node, shared, rest, id)
                return
            if shared == len(rest):
                node.ids.add(id)
                return
            parent, edge, rest = node, rest[shared], rest[shared + 1 :]

    def delete(self, cells: bytes, id: int) -> None:
        """Remove a vector of a subscription, if it is there."""
        above: list[tuple[_TrieNode, int]] = []
        parent, edge, rest = self._top, 0, cells
        while (node := parent.children.get(edge)) is not None and rest.startswith(node.label):
            above.append((parent, edge))
            rest = rest[len(node.label) :]
            if not rest:
                node.ids.discard(id)
                self._prune(above, node)
                return
            parent, edge, rest = node, rest[0], rest[1:]

    def _prune(self, above: list[tuple[_TrieNode, int]], node: _TrieNode) -> None:
        """Remove a leaf without ids, and join its parent with the only child that is left."""
        if node.ids:
            return
        parent, edge = above.pop()
        if above and len(parent.children) == 2:
            grandparent, to_parent = above.pop()
            ((other, child),) = (pair for pair in parent.children.items() if pair[0] != edge)
            joined = _TrieNode(parent.label + bytes((other,)) + child.label, child.children, child.ids)
            grandparent.children[to_parent] = joined
        else:
            del parent.children[edge]

    def search(self, states: bytes) -> tuple[set[int], int]:
        """Return the subscriptions with a vector that accepts all states, and how many nodes were visited.

        Nodes of the plain trie count, the root included.
        """
        found: set[int] = set()
        root = self._top.children.get(0)
        if root is None:
            return found, 0
        visits, waiting = 0, [(root, 0)]
        while waiting:
            node, level = waiting.pop()
            visits += 1
            for cell in node.label:
                if not cell & states[level]:
                    break
                level += 1
                visits += 1
            else:
                if level == len(states):
                    found |= node.ids
                    continue
                state = states[level]
                for cell, child in node.children.items():
                    if cell & state:
                        waiting.append((child, level + 1))
        return found, visits

    def vectors(self) -> Iterator[tuple[bytes, set[int]]]:
        """Yield all vectors, with the subscriptions of each."""
        waiting = [(node, b"") for node in self._top.children.values()]
        while waiting:
            node, before = waiting.pop()
            cells = before + node.label
            if node.ids:
                yield cells, node.ids
            waiting += [(child, cells + bytes((cell,))) for cell, child in node.children.items()]

    @property
    def nodes(self) -> int:
        """Number of stored nodes."""
        return self._counted(0)

    @property
    def plain_nodes(self) -> int:
        """Number of nodes of the plain trie: stored nodes, and nodes that labels replace."""
        return self._counted(1)

    def _counted(self, each: int) -> int:
        count, waiting = 0, list(self._top.children.values())
        while waiting:
            node = waiting.pop()
            count += 1 + each * len(node.label)
            waiting += node.children.values()
        return count

    def __bool__(self) -> bool:
        return bool(self._top.children)


def _shared(label: bytes, rest: bytes) -> int:
    """Return how many first cells are equal; the label is not longer."""
    for at, cell in enumerate(label):
        if cell != rest[at]:
            return at
    return len(label)


def _split(node: _TrieNode, at: int, rest: bytes, id: int) -> _TrieNode:
    """Return the replacement of a node whose label differs from a new vector at a cell."""
    old = _TrieNode(node.label[at + 1 :], node.children, node.ids)
    new = _TrieNode(rest[at + 1 :], {}, {id})
    return _TrieNode(node.label[:at], {node.label[at]: old, rest[at]: new}, set())


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

    def _insert(self, id: int, filter: Filter) -> None:
        cells = self._vectors.of_filter(filter)
        for tree, vector in () if cells is None else self._holders(cells):
            tree.insert(vector, id)

    def _delete(self, id: int, filter: Filter) -> None:
        cells = self._vectors.of_filter(filter)
        for tree, vector in () if cells is None else self._holders(cells):
            tree.delete(vector, id)

    def _holders(self, cells: bytes) -> Iterator[tuple[TernaryTrie, bytes]]:
        """Yield each tree that has a filter, and its vector there."""
        yield self._tree, cells

    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        return self._tree.search(self._vectors.of_event(event))

    def details(self) -> dict[str, Any]:
        """Return the number of stored nodes, and of nodes of the plain tree."""
        return {"nodes": self._tree.nodes, "plain_nodes": self._tree.plain_nodes}
