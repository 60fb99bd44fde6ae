"""A filter node for each attribute: the algorithm of the prototype DAS (Bittner 2004).

A node cuts the values of its attribute into intervals. Each interval has the set of all profiles that its
values satisfy, among them those that do not care about the attribute. An event looks up its interval in each
node; the profiles in all of these sets are those that it matches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, Final

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import Event
from rtfilter.matchers.papers.leaf_sets import (
    Leaf,
    bits_of,
    common,
    copied,
    leaf_of,
    numbers_of,
    size_of,
    with_number,
    without_number,
)
from rtfilter.matchers.papers.profiles import (
    FIRST,
    Profile,
    ProfileMatcher,
    bounds_of,
    halvings,
    place_of,
    places_in,
)
from rtfilter.predicates.values import Line, Values

SHARE: Final = 1 / 32
"""A set of more than this share of all profiles is a bit list: it then takes less memory than pointers of 32
bits would."""


class FilterNode:
    """The intervals of an attribute, and the profiles of each.

    Parameters
    ----------
    line : Line
        The values of the attribute.
    profiles : collection of int
        Those that are there already; none of them cares.
    most : float
        Sets of more profiles are bit lists.

    Attributes
    ----------
    users : dict
        The profiles that need each bound: its reference count is their number.
    caring : set of int
        The profiles that care about the attribute.
    """

    __slots__ = ("_intervals", "_line", "caring", "users")

    def __init__(self, line: Line, profiles: Collection[int], most: float) -> None:
        self._line = line
        # Both lists change at once: an interrupt leaves the old ones or the new ones.
        leaves: list[Leaf] = [leaf_of(profiles, most) for _ in range(FIRST + 1)]
        self._intervals: tuple[list[Any], list[Leaf]] = ([], leaves)
        self.users: dict[Any, set[int]] = {}
        self.caring: set[int] = set()

    @property
    def bounds(self) -> list[Any]:
        """The value at which each interval begins, ascending; without the lowest interval."""
        return self._intervals[0]

    @property
    def leaves(self) -> list[Leaf]:
        """The profiles of each place: of two, and then of the intervals; see `profiles`."""
        return self._intervals[1]

    def put(self, number: int, values: Values | None, most: float) -> None:
        """Put a profile into all places that it wants; None: it does not care."""
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
        """Take a profile out of all places, as far as it is there."""
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
        """The places that a profile of the node wants; None: it does not care."""
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
        """Join two intervals, which have the same profiles when nobody needs the bound between them."""
        bounds, leaves = self._intervals
        at = bisect_left(bounds, bound)
        if bounds[at : at + 1] == [bound]:
            place = FIRST + at
            self._intervals = [*bounds[:at], *bounds[at + 1 :]], [*leaves[:place], *leaves[place + 1 :]]


class FilterNodesMatcher(ProfileMatcher):
    """Intersects the sets of an event's intervals; ahead of trees in memory where many do not care.

    Parameters
    ----------
    schema : Schema
    bit_lists : float
        Sets with more than this share of all profiles are bit lists, others are pointers: 0 for bit lists
        alone, 1 for pointers alone. What is found is the same. The paper names no share.

    Raises
    ------
    ValueError
        A share below 0 or above 1.

    Notes
    -----
    Visits are steps: comparisons of a look-up in an array of bounds, as many as its longest takes; pointers
    of one set that are looked up in another; and comparisons of 64 bits of two bit lists. An attribute that
    no profile cares about has no node.

    A change touches each interval of an attribute that the profile does not care about.
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

    def put(self, profile: Profile) -> None:
        """See `ProfileMatcher`."""
        number, most = profile.number, self._most
        for name in profile.wanted:
            if name not in self.nodes:
                others = self._profiles.numbered.keys() - {number}
                self.nodes[name] = FilterNode(self._profiles.line(name), others, most)
        for name, node in self.nodes.items():
            node.put(number, profile.wanted.get(name), most)

    def take(self, profile: Profile) -> None:
        """See `ProfileMatcher`; a node that no profile cares about is dropped."""
        most = self._most
        for name, node in list(self.nodes.items()):
            node.take(profile.number, profile.wanted.get(name), most)
            if not node.caring:
                del self.nodes[name]

    def search(self, event: Event) -> tuple[set[int], int]:
        """See `ProfileMatcher`: the smallest set first, and no other one when nothing is left."""
        if not self.nodes:
            return self.answer(self._profiles.numbered, event), 0
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
        return self.answer(numbers_of(left), event), steps

    def covered(self, id: int) -> set[int]:
        """Find the subscriptions all of whose events a subscription matches as well, itself among them.

        A profile covers another one if, in each node, no place outside of its own has the other one: then
        the other one is in no more of its places than in all. Only registered profiles can be asked about,
        as their bounds are there. See `Predicate.covers`, which this agrees with where all are conjunctions
        of tests of single values. Where a subscription is a disjunction, each of its filters has to be
        covered by one filter alone; where it has other tests (patterns, comparisons), what it covers has
        the same ones: then some that are covered may be left out. Of `int` attributes it speaks of events
        with integers, for which ``x IN (3, 4)`` covers ``x BETWEEN 3 AND 4``.

        Raises
        ------
        KeyError
            The id is not known.
        """
        if id not in self._predicates:
            raise KeyError(id)
        found: set[int] = set()
        for profile in self._profiles.of(id):
            found |= self._covered(profile)
        return {
            other
            for other in self._predicates
            if all(profile.number in found for profile in self._profiles.of(other))
        }

    def _covered(self, profile: Profile) -> set[int]:
        """The numbers of the profiles that one covers."""
        outside = 0
        for name, values in profile.wanted.items():
            leaves, inside = self.nodes[name].leaves, set(chain(*self.nodes[name].places(values)))
            for place, leaf in enumerate(leaves):
                if place not in inside:
                    outside |= leaf if isinstance(leaf, int) else bits_of(leaf)
        others = self._profiles.numbered.keys() - numbers_of(outside)
        return {one for one in others if {*profile.rest} <= {*self._profiles.numbered[one].rest}}

    def details(self) -> dict[str, Any]:
        """Nodes and their intervals, and what their sets hold: pointers, and bits of bit lists."""
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
