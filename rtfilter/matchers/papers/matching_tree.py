"""Trees of tests: the Matching Tree (Aguilera et al. 1999), for equality alone and as Novák (2013) widens it.

A test node has an edge for each result that some subscription asks for, and a star for those that do not ask.
An event goes down all edges that it satisfies, and the star. The leaves that it reaches are its matches.

Every edge on the way to a leaf says something that its subscriptions ask for, or that follows from it, or
nothing; and all that they ask for is said on the way. So the leaf is reached if, and only if, they match.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import Event, EventwiseMatcher
from rtfilter.matchers.port import Takes
from rtfilter.predicates import model
from rtfilter.predicates.model import Constraint, Filter

STAR: Final[Hashable] = "*", "any result"
"""The edge of subscriptions that do not ask for a result; no result is equal to it."""
COMPARED: Final = frozenset(("<", "<=", ">", ">="))
"""Operators that are results of a comparison."""


@dataclass(frozen=True, slots=True)
class Examine:
    """The test for the value of an attribute. The value is the result; without the attribute, none."""

    attribute: str

    def results(self, event: Event) -> tuple[Hashable, ...]:
        """The results for an event."""
        value = event.values.get(self.attribute)
        return () if value is None else (value,)

    def implied(self, step: Step) -> tuple[Hashable, ...]:
        """The results that follow from that of another test: none do."""
        return ()


@dataclass(frozen=True, slots=True)
class Compare:
    """The comparison of an attribute with a constant: two results, or none without the attribute."""

    attribute: str
    constant: Any

    def results(self, event: Event) -> tuple[Hashable, ...]:
        """The results for an event: a value equal to the constant is both at least and at most that."""
        value = event.values.get(self.attribute)
        if value is None:
            return ()
        if value < self.constant:
            return "<", "<="
        return (">", ">=") if value > self.constant else (">=", "<=")

    def implied(self, step: Step) -> tuple[Hashable, ...]:
        """The results that follow from that of another test, the narrowest first."""
        test, result = step
        if isinstance(test, Examine) and test.attribute == self.attribute:
            return self._around(result, "=")
        if isinstance(test, Compare) and test.attribute == self.attribute:
            return self._around(test.constant, result)
        return ()

    def _around(self, value: Any, operator: Hashable) -> tuple[Hashable, ...]:
        """The results that all those have who have ``operator value``, one of = and `COMPARED`."""
        above = value >= self.constant if operator == ">" else value > self.constant
        below = value <= self.constant if operator == "<" else value < self.constant
        found: tuple[Hashable, ...] = ()
        if operator in ("=", ">", ">=") and value >= self.constant:
            found += (">", ">=") if above else (">=",)
        if operator in ("=", "<", "<=") and value <= self.constant:
            found += ("<", "<=") if below else ("<=",)
        return found


@dataclass(frozen=True, slots=True)
class Try:
    """Does another constraint hold? The one result is True; nothing is known of how it stands to others."""

    constraint: model.Test

    def results(self, event: Event) -> tuple[Hashable, ...]:
        """The results for an event."""
        return (True,) if self.constraint.matches(event.row) else ()

    def implied(self, step: Step) -> tuple[Hashable, ...]:
        """The results that follow from that of another test: none are known."""
        return ()


class Step(NamedTuple):
    """A test, and the result that is asked for."""

    test: Examine | Compare | Try
    result: Hashable


class Leaf:
    """The ids of subscriptions that ask for nothing more.

    Attributes
    ----------
    ids : set of int
    above : tuple
        The test node that it is below, and the result there.
    """

    __slots__ = ("above", "ids")
    above: tuple[Node, Hashable]

    def __init__(self, id: int) -> None:
        self.ids = {id}


class Node:
    """A test, and what is below each of its results and the star.

    Attributes
    ----------
    test : Examine, Compare or Try
    edges : dict
        Result or `STAR` to the node below. It is empty only of a node that leaves, and of a root.
    above : tuple
        The test node that it is below, and the result there; a root has none.
    """

    __slots__ = ("above", "edges", "test")
    above: tuple[Node, Hashable]

    def __init__(self, test: Examine | Compare | Try) -> None:
        self.test = test
        self.edges: dict[Hashable, Node | Leaf] = {}


class MatchingTreeMatcher(EventwiseMatcher):
    """Goes down a tree of tests; ahead where equalities that many share leave few branches.

    Comparisons of one attribute with many constants become a chain, one node below the other: at worst, each
    event visits all nodes. The shape depends on the order in which subscriptions came.

    Operators that are no test of the thesis (``<>``, ``in``, ``prefix``, ``like``, comparisons and others)
    are tests of their own, with one result.

    Notes
    -----
    Visits are nodes, tests as well as leaves.

    The thesis leaves the insertion to others. In its published code a leaf has one subscription, so that a
    second one with the same constraints is lost, and a leaf below a star is lost when a test takes its place.
    Here a leaf has any number, and goes below the star of that test. A more general constraint that comes
    later stays below the star as well: nothing is arranged anew.

    The thesis cannot unsubscribe. Here what is left without subscriptions goes, and a test that nobody asks
    for any more gives way to what is below its star.
    """

    takes = Takes(boxes=False, comparisons=True)
    unit = "nodes"
    splices = True
    """True if a test is removed once only its star is left."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._root = Node(Examine(""))  # never asked; the tree is below its star
        self._leaves: dict[int, list[Leaf]] = {}

    def steps(self, filter: Filter) -> list[Step] | None:
        """Return the tests of a conjunction, in the order of all subscriptions; None if it is empty."""
        return [_step(one) for one in sorted(dict.fromkeys(filter.constraints), key=_rank)]

    def insert(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`: what is new is made first, and then put in at once."""
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
        top: Node | Leaf = leaf
        for step in reversed(rest):
            node = Node(step.test)
            node.edges[step.result] = top
            top.above = node, step.result
            top = node
        top.above = parent, result
        if there is not None and isinstance(top, Node):
            top.edges[STAR] = there
        leaves.append(leaf)
        parent.edges[result] = top
        if there is not None and isinstance(top, Node):
            there.above = top, STAR

    def _place(self, steps: list[Step]) -> tuple[Node, Hashable, int]:
        """Find the place for the rest of some steps: a node, its result, and the number of steps before it.

        There is nothing yet, or a leaf.
        """
        node, result, done = self._root, STAR, 0
        while isinstance(below := node.edges.get(result), Node):
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

    def delete(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`; the first filter takes all others of the subscription with it."""
        leaves = self._leaves.get(id, [])
        while leaves:
            leaf = leaves[-1]
            leaf.ids.discard(id)
            if not leaf.ids:
                self._prune(leaf)
            leaves.pop()  # last: until then it can be done again
        self._leaves.pop(id, None)

    def _prune(self, leaf: Leaf) -> None:
        """Take out a leaf, and the tests above it that nobody else needs, as far as they are there."""
        node: Node | Leaf = leaf
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

    def find(self, event: Event) -> tuple[set[int], int]:
        """See `EventwiseMatcher`; operations are nodes that were visited."""
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
        """Test nodes, leaves, and the longest way to a leaf in test nodes."""
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
    """Goes down a tree with one level per attribute of the schema, each a hash look-up of its value.

    An event goes two ways at most from each node, so with k attributes it meets at most 2^k leaves. An event
    without an attribute goes down the star alone. This is the first of the two trees of the thesis.

    Notes
    -----
    Visits are nodes, tests as well as leaves. Each subscription has a node per attribute, save those that it
    shares; so a test that only its star is left of stays.
    """

    takes = Takes(operators=frozenset(("=",)), boxes=False)
    splices = False

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._levels = [Examine(field.name) for field in schema.fields]

    def steps(self, filter: Filter) -> list[Step] | None:
        """A step per attribute, with the star where a filter does not ask; None if it asks for two values."""
        wanted: dict[str, Any] = {}
        for one in filter.constraints:
            if isinstance(one, Constraint) and wanted.setdefault(one.attribute, one.value) != one.value:
                return None
        return [Step(level, wanted.get(level.attribute, STAR)) for level in self._levels]


def _step(constraint: model.Test) -> Step:
    if isinstance(constraint, Constraint):
        if constraint.operator == "=":
            return Step(Examine(constraint.attribute), constraint.value)
        if constraint.operator in COMPARED:
            return Step(Compare(constraint.attribute, constraint.value), constraint.operator)
    return Step(Try(constraint), True)


def _rank(constraint: model.Test) -> tuple[Any, ...]:
    """The order of tests on the way down: by attribute, operator and constant, and the others at the end."""
    if isinstance(constraint, Constraint) and (constraint.operator in COMPARED or constraint.operator == "="):
        return 0, constraint.attribute, constraint.operator, constraint.value
    return 1, str(constraint)
