"""A filter node for each attribute: the algorithm of the prototype DAS (Bittner 2004).

A node cuts the values of its attribute into intervals. Each interval has the set of all profiles that its
values satisfy, including the profiles that ignore the attribute. An event looks up its interval in each node;
it matches the profiles that are in all of these sets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, Final

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import FlatEvent
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
from rtfilter.predicates.model.values import ValueOrder, Values

SHARE: Final = 1 / 32
"""A set of more than this share of all profiles is a bit list, which then takes less memory."""


class FilterNode:
    """The intervals of an attribute, and the profiles of each.

    Parameters
    ----------
    line : ValueOrder
        The values of the attribute.
    profiles : collection of int
        Profiles that exist already; all of them ignore the attribute.
    most : float
        Sets of more profiles are bit lists.

    Attributes
    ----------
    users : dict
        The profiles that need each bound; their number is its reference count.
    caring : set of int
        The profiles that do not ignore the attribute.
    """

    __slots__ = ("_intervals", "_line", "caring", "users")

    def __init__(self, line: ValueOrder, profiles: Collection[int], most: float) -> None:
        self._line = line
        # Both lists change at once: an interrupt leaves the old ones or the new ones.
        leaves: list[Leaf] = [leaf_of(profiles, most) for _ in range(FIRST + 1)]
        self._intervals: tuple[list[Any], list[Leaf]] = ([], leaves)
        self.users: dict[Any, set[int]] = {}
        self.caring: set[int] = set()

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

    Raises
    ------
    ValueError
        A share below 0 or above 1.

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
        """See `ProfileMatcher`; a node that all profiles ignore is dropped."""
        most = self._most
        for name, node in list(self.nodes.items()):
            node.take(profile.number, profile.wanted.get(name), most)
            if not node.caring:
                del self.nodes[name]

    def search(self, event: FlatEvent) -> tuple[set[int], int]:
        """See `ProfileMatcher`: the smallest set comes first, and the search stops when nothing is left."""
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
