"""An interval tree: closed intervals, and a search for those that hold a point."""

from __future__ import annotations

import random
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Node(NamedTuple):
    """An interval; a node never changes."""

    key: tuple[Any, int]  # low end and number: the order of nodes
    high: Any
    item: Any
    priority: float  # the highest is on top
    left: _Node | None
    right: _Node | None
    highest: Any  # high end of all intervals here and below


class IntervalTree(Generic[T]):
    """Intervals of values of one kind, in a treap (Aragon and Seidel 1989) whose nodes have the highest end.

    A change builds new nodes from the root to its place, and then sets the root: an interrupt leaves the old
    tree or the new one. With n intervals, a change costs O(log n) on average, in any order of changes, and so
    does each interval that a search finds. Recursion is as deep.
    """

    def __init__(self) -> None:
        self._root: _Node | None = None
        self._random = random.Random(0)

    def __bool__(self) -> bool:
        return self._root is not None

    def add(self, low: Any, high: Any, number: int, item: T) -> None:
        """Add an interval with both ends; intervals with equal low ends need different numbers.

        An interval whose low end is above its high end holds no point.
        """
        self._root = _add(self._root, _node((low, number), high, item, self._random.random(), None, None))

    def remove(self, low: Any, number: int) -> None:
        """Remove an interval, if it is there."""
        self._root = _remove(self._root, (low, number))

    def holding(self, point: Any) -> list[T]:
        """Return the items of all intervals that hold a point."""
        found: list[T] = []
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            if node is None or node.highest < point:
                continue
            waiting.append(node.left)
            if node.key[0] <= point:
                if point <= node.high:
                    found.append(node.item)
                waiting.append(node.right)
        return found


def _node(
    key: tuple[Any, int], high: Any, item: Any, priority: float, left: _Node | None, right: _Node | None
) -> _Node:
    highest = high
    if left is not None and left.highest > highest:
        highest = left.highest
    if right is not None and right.highest > highest:
        highest = right.highest
    return _Node(key, high, item, priority, left, right, highest)


def _over(node: _Node, left: _Node | None, right: _Node | None) -> _Node:
    """Return the node of an interval with other children."""
    return _node(node.key, node.high, node.item, node.priority, left, right)


def _add(tree: _Node | None, new: _Node) -> _Node:
    if tree is None or new.priority > tree.priority:
        return _over(new, *_split(tree, new.key))
    if new.key < tree.key:
        return _over(tree, _add(tree.left, new), tree.right)
    return _over(tree, tree.left, _add(tree.right, new))


def _split(tree: _Node | None, key: tuple[Any, int]) -> tuple[_Node | None, _Node | None]:
    """Split a tree into the part before a key and the part after it."""
    if tree is None:
        return None, None
    if tree.key < key:
        left, right = _split(tree.right, key)
        return _over(tree, tree.left, left), right
    left, right = _split(tree.left, key)
    return left, _over(tree, right, tree.right)


def _remove(tree: _Node | None, key: tuple[Any, int]) -> _Node | None:
    if tree is None:
        return None
    if key == tree.key:
        return _merged(tree.left, tree.right)
    if key < tree.key:
        return _over(tree, _remove(tree.left, key), tree.right)
    return _over(tree, tree.left, _remove(tree.right, key))


def _merged(left: _Node | None, right: _Node | None) -> _Node | None:
    """Join two trees, all of whose left intervals lie before the right ones."""
    if left is None or right is None:
        return right if left is None else left
    if left.priority > right.priority:
        return _over(left, left.left, _merged(left.right, right))
    return _over(right, _merged(left, right.left), right.right)
