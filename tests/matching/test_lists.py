"""Events with lists: every way to match gives what the choices of elements say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import as_sets, satisfied
from predicate_cases import sources
from rtfilter import EventFilter, Schema
from rtfilter.adaptive import FixedPlan
from rtfilter.matchers.registry import MATCHERS
from rtfilter.predicates.parse import parse

TYPES = {"x": float, "d.a": int, "d.b": str, "d.e.f": int, "t": bool}
POOLS = {float: [0, 1, 7, 2.5, 2**53 + 1], int: [0, 1, 7, -1, 2**53 + 1], str: ["a", "ab", "abcdefg"]}
POOLS[bool] = [False, True]
ODD = {float: "7", int: True, str: 7, bool: 1}


def some(kind: type) -> st.SearchStrategy:
    """A value, or a list of values, with nulls, values of another type and lists in it."""
    one = st.sampled_from([*POOLS[kind], *POOLS[kind], ODD[kind], None])
    many = st.lists(one | st.lists(one, max_size=2), max_size=3)
    return one | many


def objects(inner: dict[str, st.SearchStrategy]) -> st.SearchStrategy:
    """An object, or a list of them, also in lists, and beside values that are none."""
    one = st.fixed_dictionaries({}, optional=inner)
    return (
        one | st.lists(one, max_size=3) | st.lists(one | st.lists(one, max_size=2) | st.just(5), max_size=3)
    )


EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "x": some(float),
        "t": some(bool),
        "d": objects({"a": some(int), "b": some(str), "e": objects({"f": some(int)})}),
        "other": st.just([{"d": 1}]),
    },
)
PLANS = {"whole": FixedPlan(0, None), "groups": FixedPlan(1, 2), "single": FixedPlan(0, 1)}


@pytest.mark.parametrize("matcher", MATCHERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_way_to_match_gives_what_the_choices_say(matcher, data):
    drawn = data.draw(st.lists(sources(TYPES), min_size=1, max_size=6))
    batch = data.draw(st.lists(EVENTS, min_size=1, max_size=5))
    schema = Schema(TYPES)
    plan = PLANS[data.draw(st.sampled_from(sorted(PLANS)))]
    filter = EventFilter(schema, matcher=matcher, controller=plan)
    filter.subscribe_many([source for source, _ in drawn])
    predicates = [parse(source, schema) for source, _ in drawn]
    wanted = [{id for id, one in enumerate(predicates) if satisfied(one, event)} for event in batch]
    assert as_sets(filter.match_batch(batch)) == wanted
    assert as_sets([filter.match(event) for event in batch]) == wanted
    assert as_sets(filter.stream(batch).matches()) == wanted
    released = {event: set(ids.tolist()) for event, ids, _ in filter.stream(batch)}
    assert [released[row] for row in range(len(batch))] == wanted
    assert filter.any_match(batch).tolist() == [bool(ids) for ids in wanted]
    assert filter.count(batch).tolist() == list(map(len, wanted))
    order = np.arange(len(batch))[::-1]
    assert as_sets(filter.match_batch(schema.read(batch).take(order))) == wanted[::-1]
    assert as_sets(filter.match_batch(schema.read(batch).rows(range(1, len(batch))))) == wanted[1:]
