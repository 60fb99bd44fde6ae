"""A search trie over vectors of cells, in which an event follows all edges that accept its states.

Level i tests cell i; in the paper a node has up to three children, 0, 1 and ``*`` (Mohapatra et al.). Chains
of nodes with one child each are stored as one node with a label, as in Morrison's PATRICIA: a trie of n
vectors has at most 2 n nodes, at any length. A search still counts the nodes of the plain trie.

A change is one assignment to a dict, or one change of a set: an interrupt leaves the trie as before the
change, or as after it.
"""

from __future__ import annotations

from collections.abc import Iterator


class TrieNode:
    """A node of the plain trie, with the chain above it up to the next branch.

    Attributes
    ----------
    label : bytes
        Cells of the chain, behind the cell of the edge from its parent.
    children : dict of int to TrieNode
        By cell; empty at the last level.
    ids : set of int
        Subscriptions whose vectors end here; empty above the last level.
    """

    __slots__ = ("children", "ids", "label")

    def __init__(self, label: bytes, children: dict[int, TrieNode], ids: set[int]) -> None:
        self.label, self.children, self.ids = label, children, ids


class TernaryTrie:
    """A trie over vectors of cells, bytes of one length. An id may have several vectors."""

    def __init__(self) -> None:
        self._top = TrieNode(b"", {}, set())  # above the root: its only edge, 0, leads there

    def insert(self, cells: bytes, id: int) -> None:
        """Add a vector of a subscription, if it is not there."""
        parent, edge, rest = self._top, 0, cells
        while True:
            node = parent.children.get(edge)
            if node is None:
                parent.children[edge] = TrieNode(rest, {}, {id})
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
        above: list[tuple[TrieNode, int]] = []
        parent, edge, rest = self._top, 0, cells
        while (node := parent.children.get(edge)) is not None and rest.startswith(node.label):
            above.append((parent, edge))
            rest = rest[len(node.label) :]
            if not rest:
                node.ids.discard(id)
                self._prune(above, node)
                return
            parent, edge, rest = node, rest[0], rest[1:]

    def _prune(self, above: list[tuple[TrieNode, int]], node: TrieNode) -> None:
        """Remove a leaf without ids, and join its parent with the only child that is left."""
        if node.ids:
            return
        parent, edge = above.pop()
        if above and len(parent.children) == 2:
            grandparent, to_parent = above.pop()
            ((other, child),) = (pair for pair in parent.children.items() if pair[0] != edge)
            joined = TrieNode(parent.label + bytes((other,)) + child.label, child.children, child.ids)
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


def _split(node: TrieNode, at: int, rest: bytes, id: int) -> TrieNode:
    """Return the replacement of a node whose label differs from a new vector at a cell."""
    old = TrieNode(node.label[at + 1 :], node.children, node.ids)
    new = TrieNode(rest[at + 1 :], {}, {id})
    return TrieNode(node.label[:at], {node.label[at]: old, rest[at]: new}, set())
