"""Subscriptions over booleans written as 0, 1 and ``*``, and the plain trie that visits are counted by."""

import numpy as np
from hypothesis import strategies as st

from rtfilter import Schema
from rtfilter.matchers import Filters, make_matcher
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate

NAMES = ("ternary-tree", "ternary-vectors", "rapidmatch", "rapidmatch-modified")
# A subscription has at least one filter of a letter each attribute: + is IN (FALSE, TRUE), ? is IS NULL,
# ! is IS NOT NULL; an event has _ where an attribute is missing, and x where its value is no boolean.
TESTS = {
    "0": ("=", False), "1": ("<>", False), "+": ("in", [False, True]), "?": ("is null",), "!": ("exists",),
}  # fmt: skip
VALUES = {"0": False, "1": True, "x": "text"}


def schema_of(width):
    """A schema of so many booleans, and two attributes that no subscription asks for."""
    booleans = {f"b{place}": bool for place in range(width)}
    return Schema({"x": float} | booleans | {"s": str})


def predicate_of(*filters):
    """The predicate of filters such as ``01*``."""
    return Predicate(
        tuple(
            Filter(tuple(Constraint(f"b{at}", *TESTS[cell]) for at, cell in enumerate(cells) if cell != "*"))
            for cells in filters
        )
    )


def event_of(states):
    """The event of states such as ``01_``."""
    return {f"b{at}": VALUES[state] for at, state in enumerate(states) if state != "_"}


def matcher_of(name, subscriptions, width, **options):
    """A matcher of a dict of subscriptions, each a tuple of filters."""
    matcher = make_matcher(name, schema_of(width), **options)
    add(matcher, subscriptions)
    return matcher


def add(matcher, subscriptions):
    """Add a dict of subscriptions."""
    predicates = [predicate_of(*filters) for filters in subscriptions.values()]
    ids = np.array(list(subscriptions), np.int64)
    matcher.add(Filters.of_predicates(matcher._schema, predicates, ids))


def asked(matcher, *events):
    """The ids and the visits of events such as ``01_``."""
    hits = matcher.match(matcher._schema.read([event_of(event) for event in events]))
    ids = [set(hits.ids[a:b].tolist()) for a, b in zip(hits.offsets, hits.offsets[1:], strict=False)]
    assert sum(map(len, ids)) == len(hits.ids), "an id comes twice"
    return ids, hits.visits.tolist()


def expected(subscriptions, event):
    """The ids that match an event, by brute force."""
    row = event_of(event)
    return {id for id, filters in subscriptions.items() if predicate_of(*filters).matches(row)}


def plain_visits(vectors, event):
    """Nodes that an event visits in a trie with a level for each attribute, of vectors of 0, 1 and ``*``."""
    prefixes = {vector[:length] for vector in vectors for length in range(len(vector) + 1)}
    return sum(all(cell in ("*", state) for cell, state in zip(one, event, strict=False)) for one in prefixes)


@st.composite
def worlds(draw, cells="01*", states="01", least=1, most=6):
    """A width, a dict of subscriptions of one to three filters, and events."""
    width = draw(st.integers(least, most))
    filters = st.text(st.sampled_from(cells + "**"), min_size=width, max_size=width)
    subscriptions = draw(st.lists(st.lists(filters, min_size=1, max_size=3).map(tuple), max_size=12))
    events = st.text(st.sampled_from(states), min_size=width, max_size=width)
    return width, dict(enumerate(subscriptions)), draw(st.lists(events, min_size=1, max_size=6))
