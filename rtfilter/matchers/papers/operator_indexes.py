"""Indexes of constraints: by attribute, then by operator, as Novák (2013) lays them out.

The thesis also has the type of the value between the two. Here the schema gives each attribute one type. Each
index returns, for a value, collections of the constraints that it satisfies. Changes may be interrupted;
`remove` removes whatever part is there.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from math import inf
from operator import attrgetter
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from rtfilter.matchers.papers.eventwise import FlatEvent
from rtfilter.matchers.papers.relations import StoredConstraint

Collections: TypeAlias = list[Collection[StoredConstraint]]
_Same: TypeAlias = dict[StoredConstraint, None]  # equal constraints: several if they are not shared
T = TypeVar("T")
_Side = Literal["low", "equal", "high"]


class OperatorIndex(ABC):
    """The constraints of one attribute with one operator."""

    @abstractmethod
    def add(self, constraint: StoredConstraint) -> None:
        """Add a constraint that is not there."""

    @abstractmethod
    def remove(self, constraint: StoredConstraint) -> None:
        """Remove a constraint, as far as it is there."""

    @abstractmethod
    def satisfied(self, value: Any) -> Collections:
        """Return the constraints that a value satisfies, each once."""

    @abstractmethod
    def __bool__(self) -> bool:
        """Return whether there are any constraints."""


class _EqualityIndex(OperatorIndex):
    """``=`` and ``in``: a hash table with an entry for each member; an event's value finds at most one."""

    def __init__(self) -> None:
        self._under: dict[Any, _Same] = {}

    def __bool__(self) -> bool:
        return bool(self._under)

    def add(self, constraint: StoredConstraint) -> None:
        for value in _members(constraint):
            self._under.setdefault(value, {})[constraint] = None

    def remove(self, constraint: StoredConstraint) -> None:
        for value in _members(constraint):
            same = self._under.get(value, {})
            same.pop(constraint, None)
            if not same:
                self._under.pop(value, None)

    def satisfied(self, value: Any) -> Collections:
        same = self._under.get(value)
        return [] if same is None else [same]


def _members(constraint: StoredConstraint) -> Collection[Any]:
    value = constraint.condition.value
    return value if constraint.condition.operator == "in" else (value,)


_PLACE: Final = attrgetter("place")
_AFTER: Final[Mapping[str, bool]] = {"<": True, "<=": True, ">": False, ">=": False}
"""True for an operator whose satisfied constants lie after the value."""


class _OrderedIndex(OperatorIndex):
    """The constraints of ``<``, ``<=``, ``>`` or ``>=``, sorted by constant; a value satisfies one end.

    With n constraints, a change costs O(log n) comparisons and moves up to n pointers in one block; a look-up
    costs O(log n) comparisons and a copy of the pointers to the satisfied constraints.
    """

    def __init__(self, operator: str) -> None:
        self._after, self._equal = _AFTER[operator], operator in ("<=", ">=")
        self._sorted: list[StoredConstraint] = []

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def add(self, constraint: StoredConstraint) -> None:
        self._sorted.insert(bisect_left(self._sorted, constraint.place, key=_PLACE), constraint)

    def remove(self, constraint: StoredConstraint) -> None:
        at = bisect_left(self._sorted, constraint.place, key=_PLACE)
        if self._sorted[at : at + 1] == [constraint]:
            del self._sorted[at]

    def satisfied(self, value: Any) -> Collections:
        past = self._after != self._equal  # True if constants equal to the value lie before the cut
        cut = bisect_right(self._sorted, (value, inf if past else -inf), key=_PLACE)
        found = self._sorted[cut:] if self._after else self._sorted[:cut]
        return [found] if found else []


class _PrefixIndex(OperatorIndex):
    """``prefix``: a ternary search tree, which returns all stored prefixes of a value."""

    def __init__(self) -> None:
        self._tree = TernarySearchTree[_Same]()

    def __bool__(self) -> bool:
        return bool(self._tree)

    def add(self, constraint: StoredConstraint) -> None:
        same = self._tree.get(constraint.condition.value)
        if same is None:
            self._tree.put(constraint.condition.value, {constraint: None})
        else:
            same[constraint] = None

    def remove(self, constraint: StoredConstraint) -> None:
        same = self._tree.get(constraint.condition.value) or {}
        same.pop(constraint, None)
        if not same:
            self._tree.delete(constraint.condition.value)

    def satisfied(self, value: Any) -> Collections:
        return list(self._tree.prefixes_of(value))


class _RangeIndex(OperatorIndex):
    """``range``: an interval tree, with both ends inclusive."""

    def __init__(self) -> None:
        self._tree = IntervalTree[StoredConstraint]()

    def __bool__(self) -> bool:
        return bool(self._tree)

    def add(self, constraint: StoredConstraint) -> None:
        low, high = constraint.condition.value
        self._tree.add(low, high, constraint.number, constraint)

    def remove(self, constraint: StoredConstraint) -> None:
        self._tree.remove(constraint.condition.value[0], constraint.number)

    def satisfied(self, value: Any) -> Collections:
        found = self._tree.containing(value)
        return [found] if found else []


class ConstraintIndex:
    """All constraints, by attribute and operator; constraints that cannot be looked up are tried."""

    def __init__(self) -> None:
        self._attributes: dict[str, dict[str, OperatorIndex]] = {}
        self._tried: _Same = {}

    def __bool__(self) -> bool:
        return bool(self._attributes or self._tried)

    @property
    def tried(self) -> int:
        """Number of constraints that each event tries."""
        return len(self._tried)

    def add(self, constraint: StoredConstraint) -> None:
        """Add a constraint that is not there."""
        attribute, operator, _ = constraint.condition
        if operator == "other":
            self._tried[constraint] = None
            return
        operators = self._attributes.setdefault(attribute, {})
        index = operators.get(_kind(operator))
        if index is None:
            index = operators[_kind(operator)] = _made(operator)
        index.add(constraint)

    def remove(self, constraint: StoredConstraint) -> None:
        """Remove a constraint, as far as it is there, and its index if that becomes empty."""
        attribute, operator, _ = constraint.condition
        self._tried.pop(constraint, None)
        operators = self._attributes.get(attribute, {})
        index = operators.get(_kind(operator))
        if index is not None:
            index.remove(constraint)
            if not index:
                operators.pop(_kind(operator))
        if not operators:
            self._attributes.pop(attribute, None)

    def satisfied(self, event: FlatEvent) -> Collections:
        """Return the constraints that an event satisfies, each once. An absent attribute satisfies none."""
        found: Collections = []
        for attribute, operators in self._attributes.items():
            value = event.values.get(attribute)
            if value is not None:
                for index in operators.values():
                    found += index.satisfied(value)
        if self._tried:
            found.append([one for one in self._tried if one.condition.value.matches(event.row)])
        return found


def _kind(operator: str) -> str:
    return "=" if operator == "in" else operator


def _made(operator: str) -> OperatorIndex:
    """Return an empty index for an operator."""
    if operator in _AFTER:
        return _OrderedIndex(operator)
    if operator == "prefix":
        return _PrefixIndex()
    return _RangeIndex() if operator == "range" else _EqualityIndex()


class _Interval(NamedTuple):
    """An interval; a node never changes."""

    key: tuple[Any, int]  # low end and number: the order of nodes
    high: Any
    item: Any
    priority: float  # the highest is on top
    left: _Interval | None
    right: _Interval | None
    highest: Any  # high end of all intervals here and below


class IntervalTree(Generic[T]):
    """Intervals of values of one kind, in a treap (Aragon and Seidel 1989) whose nodes have the highest end.

    A change builds new nodes from the root to its place, and then sets the root: an interrupt leaves the old
    tree or the new one. With n intervals, a change costs O(log n) on average, in any order of changes, and so
    does each interval that a search finds. Recursion is as deep.
    """

    def __init__(self) -> None:
        self._root: _Interval | None = None
        self._random = random.Random(0)

    def __bool__(self) -> bool:
        return self._root is not None

    def add(self, low: Any, high: Any, number: int, item: T) -> None:
        """Add an interval with both ends; intervals with equal low ends need different numbers.

        An interval whose low end is above its high end holds no point.
        """
        new = _Interval((low, number), high, item, self._random.random(), None, None, high)
        self._root = _add(self._root, new)

    def remove(self, low: Any, number: int) -> None:
        """Remove an interval, if it is there."""
        self._root = _remove(self._root, (low, number))

    def containing(self, point: Any) -> list[T]:
        """Return the items of all intervals that contain a point."""
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


def _over(node: _Interval, left: _Interval | None, right: _Interval | None) -> _Interval:
    """Return the node of an interval with other children."""
    highest = node.high
    for child in (left, right):
        if child is not None and child.highest > highest:
            highest = child.highest
    return _Interval(*node[:4], left, right, highest)


def _add(tree: _Interval | None, new: _Interval) -> _Interval:
    if tree is None or new.priority > tree.priority:
        return _over(new, *_split(tree, new.key))
    if new.key < tree.key:
        return _over(tree, _add(tree.left, new), tree.right)
    return _over(tree, tree.left, _add(tree.right, new))


def _split(tree: _Interval | None, key: tuple[Any, int]) -> tuple[_Interval | None, _Interval | None]:
    """Split a tree into the part before a key and the part after it."""
    if tree is None:
        return None, None
    if tree.key < key:
        left, right = _split(tree.right, key)
        return _over(tree, tree.left, left), right
    left, right = _split(tree.left, key)
    return left, _over(tree, right, tree.right)


def _remove(tree: _Interval | None, key: tuple[Any, int]) -> _Interval | None:
    if tree is None:
        return None
    if key == tree.key:
        return _merged(tree.left, tree.right)
    if key < tree.key:
        return _over(tree, _remove(tree.left, key), tree.right)
    return _over(tree, tree.left, _remove(tree.right, key))


def _merged(left: _Interval | None, right: _Interval | None) -> _Interval | None:
    """Join two trees, all of whose left intervals lie before the right ones."""
    if left is None or right is None:
        return right if left is None else left
    if left.priority > right.priority:
        return _over(left, left.left, _merged(left.right, right))
    return _over(right, _merged(left, right.left), right.right)


class _Letter(Generic[T]):
    """A letter of a text: links to smaller and greater letters at its place, and to the next letters."""

    __slots__ = ("equal", "high", "letter", "low", "value")

    def __init__(self, letter: str, equal: _Letter[T] | None = None, value: T | None = None) -> None:
        self.letter, self.equal, self.value = letter, equal, value
        self.low: _Letter[T] | None = None
        self.high: _Letter[T] | None = None


class TernarySearchTree(Generic[T]):
    """A map of texts to values that are not None; an interrupted change can be repeated.

    A look-up costs a step per letter, and at most one more for each other letter at the same place. These are
    not balanced: their number is at most that of the alphabet. Nothing is recursive.
    """

    def __init__(self) -> None:
        self._top = _Letter[T]("")  # before the first letter: its value is that of the empty text

    def __bool__(self) -> bool:
        return self._top.equal is not None or self._top.value is not None

    def put(self, text: str, value: T) -> None:
        """Set the value of a text."""
        links, at = self._path(text)
        if len(at) == len(text) + 1:
            at[-1].value = value
            return
        letters = text[len(at) - 1 :]
        chain = _Letter(letters[-1], value=value)
        for letter in reversed(letters[:-1]):
            chain = _Letter(letter, chain)
        parent, side = links[-1]
        setattr(parent, side, chain)  # all at once, so that an interrupt leaves no part of it

    def get(self, text: str) -> T | None:
        """Return the value of a text, None if it has none."""
        _, at = self._path(text)
        return at[-1].value if len(at) == len(text) + 1 else None

    def delete(self, text: str) -> None:
        """Remove a text, if it is there, and all nodes that no other text needs."""
        links, at = self._path(text)
        if len(at) == len(text) + 1:
            at[-1].value = None
        for parent, side in reversed(links):
            node: _Letter[T] | None = getattr(parent, side)
            if node is None:
                continue
            needed = node.value is not None or node.equal is not None
            if needed or (node.low is not None and node.high is not None):
                break  # a node with both sides stays until one of them is removed
            setattr(parent, side, node.high if node.low is None else node.low)

    def prefixes_of(self, text: str) -> list[T]:
        """Return the values of all stored prefixes of a text, shortest first, the empty text included."""
        found = [] if self._top.value is None else [self._top.value]
        below = self._top.equal
        for letter in text:
            node = _beside(below, letter)
            if node is None:
                break
            if node.value is not None:
                found.append(node.value)
            below = node.equal
        return found

    def _path(self, text: str) -> tuple[list[tuple[_Letter[T], _Side]], list[_Letter[T]]]:
        """Return the links to a text, the last of which may lead nowhere, and the nodes of its letters."""
        links: list[tuple[_Letter[T], _Side]] = []
        at = [self._top]
        for letter in text:
            parent, side = at[-1], "equal"  # type: tuple[_Letter[T], _Side]
            links.append((parent, side))
            while (node := getattr(parent, side)) is not None and node.letter != letter:
                parent, side = node, "low" if letter < node.letter else "high"
                links.append((parent, side))
            if node is None:
                break
            at.append(node)
        return links, at


def _beside(node: _Letter[T] | None, letter: str) -> _Letter[T] | None:
    """Return the node of a letter among the letters at one place."""
    while node is not None and node.letter != letter:
        node = node.low if letter < node.letter else node.high
    return node
