"""What tests of the papers' matchers share: matchers with some predicates, and what these are made of."""

import numpy as np
from hypothesis import strategies as st

from interrupts import twice
from rtfilter import Predicate, Schema
from rtfilter.matchers import Filters
from rtfilter.predicates.model.constraints import Constraint, Filter

SCHEMA = Schema({"x": float, "y": int, "s": str, "b": bool})
CARES = st.one_of(
    st.builds(Constraint, st.sampled_from("xy"), st.sampled_from(("<", "<=", ">", ">=", "=", "<>")),
              st.integers(0, 4)),
    st.builds(Constraint, st.sampled_from("xy"), st.just("in"), st.lists(st.integers(0, 4), max_size=3)),
    st.builds(Constraint, st.sampled_from("xs"), st.sampled_from(("is null", "exists")), st.none()),
    st.builds(Constraint, st.just("s"), st.sampled_from(("prefix", "=", "<=", "not prefix")),
              st.text("ab", max_size=2)),
    st.builds(Constraint, st.just("b"), st.sampled_from(("=", "<>")), st.booleans()),
)  # fmt: skip
"""Constraints that intervals tell."""
TESTS = st.one_of(CARES, CARES, st.builds(Constraint, st.just("s"), st.just("like"), st.just("%a_")))
FILTERS = st.lists(TESTS, max_size=3).map(lambda tests: Filter(tuple(tests)))
PREDICATES = st.lists(FILTERS, max_size=2).map(lambda filters: Predicate(tuple(filters)))
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "x": st.sampled_from([*range(-1, 6), 2.5, "alien"]),
        "y": st.sampled_from([*range(-1, 6), 2.5]),
        "s": st.sampled_from(["", "a", "ab", "aa", "b", "bab", 7]),
        "b": st.booleans(),
    },
)


def matcher_of(made, sources, schema=SCHEMA, ids=None):
    """A matcher of predicates, with ids 0, 1, ... by default; `made` makes an empty one."""
    matcher = made(schema)
    add(matcher, dict(zip(range(len(sources)) if ids is None else ids, sources, strict=True)))
    return matcher


def add(matcher, sources):
    schema = matcher._schema
    predicates = [Predicate.parse(source, schema) for source in sources.values()]
    matcher.add(Filters.of_predicates(schema, predicates, np.array(list(sources), np.int64)))


def remove(matcher, *ids):
    matcher.remove(np.array(ids, np.int64))


def found(matcher, *events):
    """Ids for each event."""
    return [ids for ids, _ in asked(matcher, *events)]


def asked(matcher, *events):
    """Ids and steps of each event."""
    hits = matcher.match(matcher._schema.read(list(events)))
    ids = [sorted(hits.ids[a:b].tolist()) for a, b in zip(hits.offsets, hits.offsets[1:], strict=False)]
    return list(zip(ids, hits.visits.tolist(), strict=True))


def interrupted(modules, made, others, wanted, change, every):
    """Matchers in which a change ("add" or "remove") was cut short, and removed again; see `twice`.

    `made` makes a matcher of some predicates.
    """

    def before():
        matcher = made(others)
        if change == "remove":
            add(matcher, {9: wanted})
        return matcher

    def call(matcher):
        if change == "add":
            add(matcher, {9: wanted})
        else:
            remove(matcher, 9)

    return twice(modules, before, call, lambda matcher: remove(matcher, 9), every)
