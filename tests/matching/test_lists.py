"""Events with lists: every way to match gives what the choices of elements say."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinds import EACH
from limits import sources_within
from nested import EVENTS, TYPES
from oracle import as_sets, satisfied
from rtfilter import AsyncFilter, EventError, EventFilter, Schema, Tracker
from rtfilter.adaptive import FixedPlan
from rtfilter.predicates.predicate import parse

SCHEMA = Schema(TYPES)


PLANS = {"whole": FixedPlan(0, None), "groups": FixedPlan(1, 2), "single": FixedPlan(0, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
@settings(max_examples=60)
@given(data=st.data())
def test_every_way_to_match_gives_what_the_choices_say(matcher, data):
    drawn = data.draw(st.lists(sources_within(TYPES), min_size=1, max_size=6))
    batch = data.draw(st.lists(EVENTS, min_size=1, max_size=5))
    plan = PLANS[data.draw(st.sampled_from(sorted(PLANS)))]
    filter = EventFilter(SCHEMA, matcher=matcher, controller=plan)
    filter.subscribe_many([source for source, _ in drawn])
    predicates = [parse(source, SCHEMA) for source, _ in drawn]
    wanted = [{id for id, one in enumerate(predicates) if satisfied(one, event)} for event in batch]
    assert as_sets(filter.match_batch(batch)) == wanted
    assert as_sets([filter.match(event) for event in batch]) == wanted
    assert as_sets(filter.stream(batch).matches()) == wanted
    released = {event: set(ids.tolist()) for event, ids, _ in filter.stream(batch)}
    assert [released[row] for row in range(len(batch))] == wanted
    assert filter.match_batch(batch).any.tolist() == [bool(ids) for ids in wanted]
    assert filter.match_batch(batch).counts.tolist() == list(map(len, wanted))
    order = np.arange(len(batch))[::-1]
    assert as_sets(filter.match_batch(SCHEMA.read(batch).take(order))) == wanted[::-1]
    assert as_sets(filter.match_batch(SCHEMA.read(batch).rows(range(1, len(batch))))) == wanted[1:]


def tagged():
    """Subscriptions 0 and 1, for a and b among the tags of an event."""
    filter = EventFilter(Schema({"tags": str}))
    filter.subscribe_many(["tags = 'a'", "tags = 'b'"])
    return filter


def test_a_tracker_follows_events_with_lists():
    tracker = Tracker(tagged(), "who")
    batch = [{"who": 1, "tags": tags} for tags in (["a", "x"], ["b", "a"], ["b"], [])]
    found = [tuple(ids.tolist() for ids in change) for change in tracker.match_batch(batch)]
    assert found == [([0], [], []), ([1], [0], []), ([], [1], [0]), ([], [], [1])]


def test_coroutines_match_events_with_lists():
    async def main():
        async with AsyncFilter(tagged()) as feed:
            many = [str(number) for number in range(1001)]
            events = [{"tags": ["a", "b"]}, {"tags": many}, {"tags": "b"}]
            return await asyncio.gather(*map(feed.match, events), return_exceptions=True)

    both, refused, one = asyncio.run(main())
    assert (both.tolist(), one.tolist()) == ([0, 1], [1])
    assert isinstance(refused, EventError)


def test_groups_of_a_stream_are_of_events():
    filter = EventFilter(Schema({"tags": str}), controller=FixedPlan(0, 2), order="fifo")
    filter.subscribe_many([f"tags = '{tag}'" for tag in "abcd"])
    stream = filter.stream([{"tags": list("abc")}, {"tags": "d"}, {"tags": list("da")}])
    found = [(event, ids.tolist()) for event, ids, _ in stream]
    assert found == [(0, [0, 1, 2]), (1, [3]), (2, [0, 3])]
    assert stream.order.tolist() == [0, 1, 2]
    assert len(stream.workload) == 3
