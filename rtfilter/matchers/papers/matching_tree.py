"""Trees of tests: the Matching Tree (Aguilera et al. 1999), for equality, and extended by Novák (2013).

A test node has an edge for each result that some subscription asks for, and a star for subscriptions that do
not ask. An event follows all edges that it satisfies, and the star. The leaves that it reaches are its
matches.

Every edge on the way to a leaf is a star, or a constraint of its subscriptions, or follows from one; and all
their constraints are on the way. So an event reaches the leaf if, and only if, they match.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.matchers.port import Takes
from rtfilter.predicates.model import constraints
from rtfilter.predicates.model.constraints import Constraint, Filter

STAR: Final[Hashable] = "*", "any result"
"""The edge of subscriptions that do not ask for a result; it equals no result."""
COMPARED: Final = frozenset(("<", "<=", ">", ">="))
"""Operators that are results of a comparison."""


class TreeTest(ABC):
    """The test of a node."""

    @abstractmethod
    def results(self, event: FlatEvent) -> tuple[Hashable, ...]:
        """Return the results for an event."""

    def implied(self, step: Step) -> tuple[Hashable, ...]:
        """Return the results that follow from a step with another test, the narrowest first."""
        return ()


@dataclass(frozen=True)
class Examine(TreeTest):
    """The value of an attribute is the result; there is none without the attribute."""

    attribute: str

    def results(self, event: FlatEvent) -> tuple[Hashable, ...]:
        """See `TreeTest`."""
        value = event.values.get(self.attribute)
        return () if value is None else (value,)


@dataclass(frozen=True)
class Compare(TreeTest):
    """The comparison of an attribute with a constant: two results, or none without the attribute."""

    attribute: str
    constant: Any

    def results(self, event: FlatEvent) -> tuple[Hashable, ...]:
        """See `TreeTest`; a value equal to the constant has both ``>=`` and ``<=``."""
        value = event.values.get(self.attribute)
        if value is None:
            return ()
        if value < self.constant:
            return "<", "<="
        return (">", ">=") if value > self.constant else (">=", "<=")

    def implied(self, step: Step) -> tuple[Hashable, ...]:
        """See `TreeTest`."""
        test, result = step
        if isinstance(test, Examine) and test.attribute == self.attribute:
            return self._around(result, "=")
        if isinstance(test, Compare) and test.attribute == self.attribute:
            return self._around(test.constant, result)
        return ()

    def _around(self, value: Any, operator: Hashable) -> tuple[Hashable, ...]:
        """Return the results of every value with ``operator value``; the operator is = or in `COMPARED`."""
        above = value >= self.constant if operator == ">" else value > self.constant
        below = value <= self.constant if operator == "<" else value < self.constant
        found: tuple[Hashable, ...] = ()
        if operator in ("=", ">", ">=") and value >= self.constant:
            found += (">", ">=") if above else (">=",)
        if operator in ("=", "<", "<=") and value <= self.constant:
            found += ("<", "<=") if below else ("<=",)
        return found


@dataclass(frozen=True)
class Check(TreeTest):
    """The test of another constraint. The one result is True; nothing follows from it or implies it."""

    constraint: constraints.Test

    def results(self, event: FlatEvent) -> tuple[Hashable, ...]:
        """See `TreeTest`."""
        return (True,) if self.constraint.matches(event.row) else ()


class Step(NamedTuple):
    """A test, and the result that a subscription asks for."""

    test: TreeTest
    result: Hashable


class Leaf:
    """The ids of subscriptions without further tests."""

    __slots__ = ("above", "ids")
    above: tuple[MatchingNode, Hashable]
    """The test node above it, and the result there."""

    def __init__(self, id: int) -> None:
        self.ids = {id}


class MatchingNode:
    """A test, and the nodes below its results and the star."""

    __slots__ = ("above", "edges", "test")
    above: tuple[MatchingNode, Hashable]
    """The test node above it, and the result there; a root has none."""

    def __init__(self, test: TreeTest) -> None:
        self.test = test
        self.edges: dict[Hashable, MatchingNode | Leaf] = {}  # empty in a removed node and a root only


class MatchingTreeMatcher(EventwiseMatcher):
    """Follows a tree of tests; best if shared equalities leave few branches.

    Comparisons of one attribute with many constants become a chain, one node below the other: at worst, each
    event visits all nodes. The shape depends on the order in which subscriptions were added.

    Operators that are no test in the thesis (``<>``, ``in``, ``prefix``, ``like``, comparisons and others)
    are tests with one result.

    Notes
    -----
    Visits are nodes, tests as well as leaves.

    The thesis does not describe the insertion. In its published code a leaf has one subscription, so that a
    second one with the same constraints is lost, and a leaf below a star is lost when a test replaces it.
    Here a leaf has any number of subscriptions, and moves below the star of that test. A more general
    constraint that is added later stays below the star as well: the tree is not rearranged.

    The thesis has no removal. Here nodes without subscriptions are removed, and a test that no subscription
    asks for is replaced by the node below its star.
    """

    unit = "nodes"
    splices = True
    """True if a test is removed once only its star is left."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._root = MatchingNode(Examine(""))  # a test that is never run; the tree is below its star
        self._leaves: dict[int, list[Leaf]] = {}

    def steps(self, filter: Filter) -> list[Step] | None:
        """Return the tests of a conjunction, in the order of all subscriptions; None if it is empty."""
        return [_step(one) for one in sorted(dict.fromkeys(filter.constraints), key=_rank)]

    def _insert(self, id: int, filter: Filter) -> None:
        """Make new nodes first, and then link them at once."""
        steps = self.steps(filter)
        if steps is None:
            return
        parent, result, done = self._place(steps)
        there, rest = parent.edges.get(result), steps[done:]
        leaves = self._leaves.setdefault(id, [])
        if isinstance(there, Leaf) and not rest:
            leaves.append(there)  # first, so that it is found after an interrupt
            there.ids.add(id)
            return
        leaf = Leaf(id)
        top: MatchingNode | Leaf = leaf
        for step in reversed(rest):
            node = MatchingNode(step.test)
            node.edges[step.result] = top
            top.above = node, step.result
            top = node
        top.above = parent, result
        if there is not None and isinstance(top, MatchingNode):
            top.edges[STAR] = there
        leaves.append(leaf)
        parent.edges[result] = top
        if there is not None and isinstance(top, MatchingNode):
            there.above = top, STAR

    def _place(self, steps: list[Step]) -> tuple[MatchingNode, Hashable, int]:
        """Find the place for the rest of some steps: a node, its result, and the number of steps before it.

        The place is empty, or has a leaf.
        """
        node, result, done = self._root, STAR, 0
        while isinstance(below := node.edges.get(result), MatchingNode):
            node, result = below, STAR
            if done == len(steps):
                continue
            step = steps[done]
            if node.test == step.test:
                result = step.result
                done += 1
            else:
                for one in node.test.implied(step):
                    if one in node.edges:
                        result = one
                        break
        return node, result, done

    def _delete(self, id: int, filter: Filter) -> None:
        """Remove all filters of the subscription, at its first one."""
        leaves = self._leaves.get(id, [])
        while leaves:
            leaf = leaves[-1]
            leaf.ids.discard(id)
            if not leaf.ids:
                self._prune(leaf)
            leaves.pop()  # last: an interrupted removal can be repeated
        self._leaves.pop(id, None)

    def _prune(self, leaf: Leaf) -> None:
        """Remove a leaf, and the tests above it that no other leaf needs, as far as they are there."""
        node: MatchingNode | Leaf = leaf
        while True:
            parent, result = node.above
            if parent.edges.get(result) is node:
                del parent.edges[result]
            if parent is self._root:
                return
            if parent.edges:
                break
            node = parent
        if self.splices and parent.edges.keys() == {STAR}:
            left = parent.edges[STAR]
            left.above = above, result = parent.above
            if above.edges.get(result) is parent:
                above.edges[result] = left

    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        found: set[int] = set()
        visits = 0
        ahead = list(self._root.edges.values())
        while ahead:
            node = ahead.pop()
            visits += 1
            if isinstance(node, Leaf):
                found |= node.ids
                continue
            edges = node.edges
            for result in node.test.results(event):
                below = edges.get(result)
                if below is not None:
                    ahead.append(below)
            below = edges.get(STAR)
            if below is not None:
                ahead.append(below)
        return found, visits

    def details(self) -> dict[str, Any]:
        """Return the numbers of test nodes and leaves, and the most test nodes on the way to a leaf."""
        tests = leaves = longest = 0
        ahead = [(node, 0) for node in self._root.edges.values()]
        while ahead:
            node, depth = ahead.pop()
            if isinstance(node, Leaf):
                leaves, longest = leaves + 1, max(longest, depth)
            else:
                tests += 1
                ahead += [(below, depth + 1) for below in node.edges.values()]
        return {"test_nodes": tests, "leaves": leaves, "depth": longest}


class EqualityTreeMatcher(MatchingTreeMatcher):
    """Follows a tree with one level per attribute of the schema, each a hash look-up of its value.

    An event follows at most two edges from each node, so with k attributes it reaches at most 2^k leaves. An
    event without an attribute follows only the star. This is the first of the two trees of the thesis.

    Notes
    -----
    Visits are nodes, tests as well as leaves. Each subscription has a node per attribute, some of them
    shared; so a test that has only its star stays.
    """

    takes = Takes(operators=frozenset(("=",)), boxes=False)
    splices = False

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._levels = [Examine(field.name) for field in schema.fields]

    def steps(self, filter: Filter) -> list[Step] | None:
        """Return a step per attribute, with the star if a filter does not ask for a value.

        Returns None if it asks for two values of an attribute.
        """
        wanted: dict[str, Any] = {}
        for one in filter.constraints:
            if isinstance(one, Constraint) and wanted.setdefault(one.attribute, one.value) != one.value:
                return None
        return [Step(level, wanted.get(level.attribute, STAR)) for level in self._levels]


def _step(constraint: constraints.Test) -> Step:
    if isinstance(constraint, Constraint):
        if constraint.operator == "=":
            return Step(Examine(constraint.attribute), constraint.value)
        if constraint.operator in COMPARED:
            return Step(Compare(constraint.attribute, constraint.value), constraint.operator)
    return Step(Check(constraint), True)


def _rank(constraint: constraints.Test) -> tuple[Any, ...]:
    """Return the sort key of a test: by attribute, operator and constant; other tests come last."""
    if isinstance(constraint, Constraint) and (constraint.operator in COMPARED or constraint.operator == "="):
        return 0, constraint.attribute, constraint.operator, constraint.value
    return 1, str(constraint)
