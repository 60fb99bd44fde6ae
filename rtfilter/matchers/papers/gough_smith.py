"""A tree with a level for each attribute, in which an event follows one path (Gough and Smith 1995).

This is the tree that Bittner (2004) starts from, with edges for intervals. A profile that ignores an
attribute is below each of its edges, so the path of an event ends in a leaf with all profiles that it
matches. For the same reason the tree can grow exponentially with the number of attributes.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from rtfilter.basics.errors import PredicateError
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

MOST: Final = 100_000
"""References that a tree may hold. A change may touch all of them, which takes about 0.1 s."""

_Leaf: TypeAlias = frozenset[int]
"""Numbers of profiles."""


class _Node(NamedTuple):
    """The edges of one attribute below one path; a node never changes."""

    bounds: tuple[Any, ...]  # the value at which each interval but the lowest begins
    users: tuple[_Leaf, ...]  # the profiles that need each bound
    caring: tuple[_Leaf, ...]  # for each place, its profiles that do not ignore the attribute
    below: tuple[_Node | _Leaf | None, ...]  # for each place; None if all there ignore it: follow the star
    star: _Node | _Leaf | None  # the profiles that ignore the attribute; None for no profile
    nodes: int  # from here down, leaves not counted
    references: int  # edges and profiles of leaves, from here down

    @classmethod
    def of(cls, bounds: Any, users: Any, caring: Any, below: Any, star: Any) -> Self | None:
        """Return the node with these parts; None if there is nothing below it."""
        children = [child for child in (*below, star) if child]
        if not children:
            return None
        inner = [child for child in children if isinstance(child, _Node)]
        leaves = sum(len(child) for child in children if not isinstance(child, _Node))
        return cls(
            tuple(bounds),
            tuple(users),
            tuple(caring),
            tuple(below),
            star,
            1 + sum(child.nodes for child in inner),
            len(children) + leaves + sum(child.references for child in inner),
        )


_EMPTY: Final = _Node((), (), (frozenset(),) * (FIRST + 1), (None,) * (FIRST + 1), None, 0, 0)
_Child: TypeAlias = _Node | _Leaf | None
_Done: TypeAlias = dict[tuple[int, int], _Child]
"""The result of a change for each child, by the child and its level."""


class GoughSmithMatcher(ProfileMatcher):
    """Follows one path; fast if its tree finds room.

    Parameters
    ----------
    schema : Schema
        Its attributes are the levels, in their order.
    most_references : int
        References that the tree may hold, counted as in `details`.
    beyond : {"try", "refuse"}
        The treatment of a filter for which the tree has no room. ``"try"`` keeps it beside the tree, and each
        event tries it; ``"refuse"`` raises `PredicateError` and leaves the tree as it was.

    Notes
    -----
    Visits are steps: the most comparisons of the look-ups on the path, and filters that are tried.

    A change builds new nodes for those that it changes, and then sets the root: an interrupt leaves the old
    tree or the new one. If an interval is cut, or a star gets an edge beside it, both share the nodes below
    until a change separates them, so that a change never builds more nodes than there are. References and
    nodes are counted as the paper draws the tree, as if nothing were shared. The depth of recursion is the
    number of attributes.
    """

    def __init__(
        self, schema: Schema, *, most_references: int = MOST, beyond: Literal["try", "refuse"] = "try"
    ) -> None:
        super().__init__(schema)
        if most_references < 1:
            raise ValueError(f"most_references is at least 1, not {most_references!r}")
        if beyond not in ("try", "refuse"):
            raise ValueError(f"beyond is one of try, refuse, not {beyond!r}")
        self.options = {"most_references": most_references, "beyond": beyond}
        self._most, self._refuse = most_references, beyond == "refuse"
        self.takes = self.takes._replace(full=self._refuse)
        self._levels = tuple(schema.attributes)
        self._root: _Child = None
        self._beside: dict[int, Profile] = {}

    def _put(self, profile: Profile) -> None:
        root = self._changed(self._root, 0, profile, True, {})
        assert isinstance(root, _Node)
        if root.references <= self._most:
            self._root = root
        elif self._refuse:
            reason = (
                f"the tree of the matcher 'gough-smith' would hold {root.references:,} references, and at "
                f"most {self._most:,} are allowed: raise most_references, or choose another matcher"
            )
            raise PredicateError(reason, reason=reason)
        else:
            self._beside[profile.number] = profile

    def _take(self, profile: Profile) -> None:
        """Remove a profile; those beside the tree stay there."""
        if profile.number in self._beside:
            del self._beside[profile.number]
        else:
            self._root = self._changed(self._root, 0, profile, False, {})

    def _search(self, event: FlatEvent) -> tuple[set[int], int]:
        child, steps = self._root, len(self._beside)
        for name in self._levels:
            if not isinstance(child, _Node):
                break
            steps += halvings(child.bounds)
            below = child.below[place_of(event, name, child.bounds)]
            child = child.star if below is None else below
        found = set() if child is None else self._answer(_leaf(child), event)
        if self._beside:
            tried = {profile.id for profile in self._beside.values()} - found
            found |= {id for id in tried if self._known[id].satisfied_by(event.row)}
        return found, steps

    def _changed(self, child: _Child, level: int, profile: Profile, adds: bool, done: _Done) -> _Child:
        """Return a child with a profile, or without it.

        `done` has the results for shared children, so that each is changed once.
        """
        if child is None and not adds:
            return None
        key = id(child), level
        if key not in done:
            if level < len(self._levels):
                done[key] = self._node_changed(_node(child), level, profile, adds, done)
            elif adds:
                done[key] = _leaf(child) | {profile.number}
            else:
                done[key] = _leaf(child) - {profile.number} or None
        return done[key]

    def _node_changed(
        self, node: _Node, level: int, profile: Profile, adds: bool, done: _Done
    ) -> _Node | None:
        def changed(child: _Child) -> _Child:
            return self._changed(child, level + 1, profile, adds, done)

        values = profile.wanted.get(self._levels[level])
        if values is None:
            below = [None if one is None else changed(one) for one in node.below]
            return _Node.of(node.bounds, node.users, node.caring, below, changed(node.star))
        own, cuts = {profile.number}, bounds_of(values, self._profiles.line(self._levels[level]))
        bounds, users = list(node.bounds), list(node.users)
        caring, below = list(node.caring), list(node.below)
        for bound in cuts if adds else ():
            at = bisect_left(bounds, bound)
            if bounds[at : at + 1] != [bound]:
                bounds.insert(at, bound)
                users.insert(at, frozenset())
                caring.insert(FIRST + at, caring[FIRST + at])
                below.insert(FIRST + at, below[FIRST + at])
            users[at] |= own
        for place in chain(*places_in(values, bounds)):
            if adds:
                caring[place] |= own
                below[place] = changed(node.star if below[place] is None else below[place])
            else:
                caring[place] -= own
                below[place] = changed(below[place]) if caring[place] else None
        for bound in () if adds else cuts:
            at = bisect_left(bounds, bound)
            if bounds[at : at + 1] == [bound]:
                users[at] -= own
                if not users[at]:
                    del bounds[at], users[at], caring[FIRST + at], below[FIRST + at]
        return _Node.of(bounds, users, caring, below, node.star)

    def details(self) -> dict[str, Any]:
        """Return the numbers of inner nodes, references (edges and profiles in leaves) and tried filters."""
        root = _node(self._root)
        return {
            "profiles": len(self._profiles.numbered),
            "nodes": root.nodes,
            "references": root.references,
            "tried": len(self._beside),
        }


def _node(child: _Child) -> _Node:
    """Return a child above the last level as a node."""
    assert not isinstance(child, frozenset)
    return _EMPTY if child is None else child


def _leaf(child: _Child) -> _Leaf:
    """Return a child below the last level as a set of profiles."""
    assert not isinstance(child, _Node)
    return frozenset() if child is None else child
