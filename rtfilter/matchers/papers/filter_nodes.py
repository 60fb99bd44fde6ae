"""A filter node for each attribute: the algorithm of the prototype DAS (Bittner 2004).

A node cuts the values of its attribute into intervals. Each interval has the set of all profiles that its
values satisfy, including the profiles that ignore the attribute. An event looks up its interval in each node;
it matches the profiles that are in all of these sets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import FlatEvent
from rtfilter.matchers.papers.profiles import (
    FIRST,
    Profile,
    ProfileMatcher,
    bounds_of,
    halvings,
    place_of,
    places_in,
)
from rtfilter.predicates.model.values import ValueOrder, Values

SHARE: Final = 1 / 32
"""A set of more than this share of all profiles is a bit list, which then takes less memory."""
WORD: Final = 64
"""Bits that one step compares."""

Leaf: TypeAlias = set[int] | int
"""A set of small numbers in one of two forms: a few as pointers, many as a bit list.

Pointers are a Python set, a bit list is an integer with the bits of its numbers. Pointers change in place;
use the set that a function returns instead of its argument.
"""


def leaf_of(numbers: Collection[int], most: float) -> Leaf:
    """Return a set of numbers: pointers for at most `most` of them, else a bit list."""
    return set(numbers) if len(numbers) <= most else bits_of(numbers)


def bits_of(numbers: Collection[int]) -> int:
    """Return the bit list of some numbers."""
    ones = np.zeros(max(numbers, default=-1) + 1, np.uint8)
    ones[list(numbers)] = 1
    return int.from_bytes(np.packbits(ones, bitorder="little").tobytes(), "little")


def copied(leaf: Leaf) -> Leaf:
    """Return a copy of a set that changes independently."""
    return leaf if isinstance(leaf, int) else set(leaf)


def size_of(leaf: Leaf) -> int:
    """Return the size of a set."""
    return leaf.bit_count() if isinstance(leaf, int) else len(leaf)


def numbers_of(leaf: Leaf) -> Collection[int]:
    """Return the numbers of a set."""
    if not isinstance(leaf, int):
        return leaf
    found: list[int] = np.flatnonzero(np.unpackbits(_bytes(leaf), bitorder="little")).tolist()
    return found


def with_number(leaf: Leaf, number: int, most: float) -> Leaf:
    """Add a number to a set, and return it; it becomes a bit list if it then has more than `most`."""
    if isinstance(leaf, int):
        return leaf | 1 << number
    leaf.add(number)
    return leaf if len(leaf) <= most else bits_of(leaf)


def without_number(leaf: Leaf, number: int, most: float) -> Leaf:
    """Remove a number from a set, if present, and return it; with at most `most` it becomes pointers."""
    if not isinstance(leaf, int):
        leaf.discard(number)
        return leaf
    left = leaf & ~(1 << number)
    return left if left.bit_count() > most else set(numbers_of(left))


def common(one: Leaf, two: Leaf) -> tuple[Leaf, int]:
    """Return the intersection as a new set, and the steps that it took.

    A step looks one pointer up in the other set, or compares 64 bits with 64 bits.
    """
    if isinstance(one, int) and isinstance(two, int):
        return one & two, -(-min(one.bit_length(), two.bit_length()) // WORD)
    if isinstance(one, int):
        one, two = two, one
    assert not isinstance(one, int)
    if not isinstance(two, int):
        return one & two, min(len(one), len(two))
    bits = _bytes(two).tolist()
    end = len(bits) * 8
    return {number for number in one if number < end and bits[number >> 3] >> (number & 7) & 1}, len(one)


def _bytes(bits: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(bits.to_bytes(-(-bits.bit_length() // 8), "little"), np.uint8)


class FilterNode:
    """The intervals of an attribute, and the profiles of each.

    The `profiles` that exist already ignore the attribute. Sets of more than `most` profiles are bit lists.
    """

    __slots__ = ("_intervals", "_line", "caring", "users")

    def __init__(self, line: ValueOrder, profiles: Collection[int], most: float) -> None:
        self._line = line
        # Both lists change at once: an interrupt leaves the old ones or the new ones.
        leaves: list[Leaf] = [leaf_of(profiles, most) for _ in range(FIRST + 1)]
        self._intervals: tuple[list[Any], list[Leaf]] = ([], leaves)
        self.users: dict[Any, set[int]] = {}  # profiles that need each bound
        self.caring: set[int] = set()  # profiles that do not ignore the attribute

    @property
    def bounds(self) -> list[Any]:
        """The value at which each interval begins, ascending, without the lowest interval."""
        return self._intervals[0]

    @property
    def leaves(self) -> list[Leaf]:
        """The profiles of each place: first of two special places, then of the intervals; see `profiles`."""
        return self._intervals[1]

    def put(self, number: int, values: Values | None, most: float) -> None:
        """Add a profile to all places that it wants; None for a profile that ignores the attribute."""
        if values is not None:
            self.caring.add(number)
            for bound in bounds_of(values, self._line):
                self.users.setdefault(bound, set()).add(number)
                self._split(bound)
        leaves = self.leaves
        for places in self.places(values):
            for place in places:
                leaves[place] = with_number(leaves[place], number, most)

    def take(self, number: int, values: Values | None, most: float) -> None:
        """Remove a profile from all its places, as far as it is there."""
        leaves = self.leaves
        for places in self.places(values):
            for place in places:
                leaves[place] = without_number(leaves[place], number, most)
        if values is not None:
            for bound in bounds_of(values, self._line):
                users = self.users.get(bound, set())
                users.discard(number)
                if not users:
                    self._merge(bound)
                    self.users.pop(bound, None)
            self.caring.discard(number)

    def places(self, values: Values | None) -> Iterable[range]:
        """Return the places that a profile wants; None for a profile that ignores the attribute."""
        return [range(len(self.leaves))] if values is None else places_in(values, self.bounds)

    def _split(self, bound: Any) -> None:
        """Cut the interval in which a bound lies; both parts have its profiles."""
        bounds, leaves = self._intervals
        at = bisect_left(bounds, bound)
        if bounds[at : at + 1] != [bound]:
            place = FIRST + at
            halves = [leaves[place], copied(leaves[place])]
            self._intervals = (
                [*bounds[:at], bound, *bounds[at:]],
                [*leaves[:place], *halves, *leaves[place + 1 :]],
            )

    def _merge(self, bound: Any) -> None:
        """Join two intervals, which have the same profiles once no profile needs the bound between them."""
        bounds, leaves = self._intervals
        at = bisect_left(bounds, bound)
        if bounds[at : at + 1] == [bound]:
            place = FIRST + at
            self._intervals = [*bounds[:at], *bounds[at + 1 :]], [*leaves[:place], *leaves[place + 1 :]]


class FilterNodesMatcher(ProfileMatcher):
    """Intersects the sets of an event's intervals; takes less memory than trees for sparse profiles.

    Parameters
    ----------
    schema : Schema
    bit_lists : float
        Sets with more than this share of all profiles are bit lists, others are pointers: 0 for bit lists
        only, 1 for pointers only. The matches are the same. The paper names no share.

    Notes
    -----
    Visits are steps: the most comparisons of a look-up in an array of bounds; pointers of one set that are
    looked up in another; and comparisons of 64 bits of two bit lists. An attribute that all profiles ignore
    has no node.

    A change touches each interval of an attribute that the profile ignores.
    """

    def __init__(self, schema: Schema, *, bit_lists: float = SHARE) -> None:
        super().__init__(schema)
        if not 0 <= bit_lists <= 1:
            raise ValueError(f"bit_lists is a share from 0 to 1, not {bit_lists!r}")
        self.options = {"bit_lists": bit_lists}
        self._share = bit_lists
        self.nodes: dict[str, FilterNode] = {}

    @property
    def _most(self) -> float:
        return self._share * self._profiles.size

    def _put(self, profile: Profile) -> None:
        number, most = profile.number, self._most
        for name in profile.wanted:
            if name not in self.nodes:
                others = self._profiles.numbered.keys() - {number}
                self.nodes[name] = FilterNode(self._profiles.line(name), others, most)
        for name, node in self.nodes.items():
            node.put(number, profile.wanted.get(name), most)

    def _take(self, profile: Profile) -> None:
        """Remove a profile, and nodes that all others ignore."""
        most = self._most
        for name, node in list(self.nodes.items()):
            node.take(profile.number, profile.wanted.get(name), most)
            if not node.caring:
                del self.nodes[name]

    def _search(self, event: FlatEvent) -> tuple[set[int], int]:
        """Intersect the sets of the event, the smallest first, until nothing is left."""
        if not self.nodes:
            return self._answer(self._profiles.numbered, event), 0
        leaves, steps = [], 0
        for name, node in self.nodes.items():
            bounds, own = node.bounds, node.leaves
            leaves.append(own[place_of(event, name, bounds)])
            steps += halvings(bounds)
        left, *others = sorted(leaves, key=size_of)
        for leaf in others:
            if not left:
                break
            left, more = common(left, leaf)
            steps += more
        return self._answer(numbers_of(left), event), steps

    def covered(self, id: int) -> set[int]:
        """Find the subscriptions whose events all match a given subscription, itself included.

        A profile covers another one if, in each node, no place outside of its own places has the other one.
        The profile must be registered, because its bounds are needed. The result equals that of
        `Predicate.covers` if all subscriptions are conjunctions of constraints on single attributes. In a
        disjunction, a single filter must cover each filter. A subscription with other constraints (patterns,
        comparisons) only covers subscriptions with the same ones. In these cases the result may lack covered
        subscriptions. For `int` attributes, only events with integers count: ``x IN (3, 4)`` covers ``x
        BETWEEN 3 AND 4``.

        Raises
        ------
        KeyError
            The id is not known.
        """
        if id not in self._known:
            raise KeyError(id)
        found: set[int] = set()
        for profile in self._profiles.of(id):
            found |= self._covered(profile)
        return {
            other
            for other in self._known
            if all(profile.number in found for profile in self._profiles.of(other))
        }

    def _covered(self, profile: Profile) -> set[int]:
        """Return the numbers of the profiles that a profile covers."""
        outside = 0
        for name, values in profile.wanted.items():
            leaves, inside = self.nodes[name].leaves, set(chain(*self.nodes[name].places(values)))
            for place, leaf in enumerate(leaves):
                if place not in inside:
                    outside |= leaf if isinstance(leaf, int) else bits_of(leaf)
        others = self._profiles.numbered.keys() - numbers_of(outside)
        return {one for one in others if {*profile.rest} <= {*self._profiles.numbered[one].rest}}

    def details(self) -> dict[str, Any]:
        """Return the numbers of nodes, bounds and sets, and of the pointers and bits in the sets."""
        leaves = [leaf for node in self.nodes.values() for leaf in node.leaves]
        lists = [leaf for leaf in leaves if isinstance(leaf, int)]
        return {
            "profiles": len(self._profiles.numbered),
            "nodes": len(self.nodes),
            "bounds": sum(len(node.bounds) for node in self.nodes.values()),
            "sets": len(leaves),
            "bit_lists": len(lists),
            "pointers": sum(len(leaf) for leaf in leaves if not isinstance(leaf, int)),
            "bits": sum(leaf.bit_length() for leaf in lists),
        }
