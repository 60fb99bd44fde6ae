"""How a filter matches is kept, shown, changed while it is used, and refused with a reason."""

import asyncio

import pytest

from rtfilter.adaptive import CostController, WangController
from rtfilter.definition import Definition
from rtfilter.scheduler import fifo
from rtfilter.service import server
from rtfilter.service.errors import ConflictError, RequestError, TooManyError
from rtfilter.service.records import Wish
from rtfilter.service.server import DataError
from rtfilter.service.settings import settings
from service.served import ADMIN, ANN, CARL, SCHEMA, served

WANG = {"name": "wang", "rounds": 2, "threshold": 5}
NODES = {"name": "filter-nodes", "bit_lists": 0.5}


def index(pipeline):
    return pipeline._indexes["default"]


def runs(pipeline):
    """The matcher, its options, the controller, and the order of the filter that matches."""
    filter = index(pipeline).filter
    held = filter._subscriptions
    return held.name, dict(held.matcher.options), type(filter.controller), filter.policy


async def publish(pipeline, price):
    (place,) = await pipeline.publish(CARL, "default", [b'{"price": %d, "symbol": "A"}' % price])
    await pipeline.settled(place)
    return place


async def define(pipeline, *given, **more):
    return await pipeline.add_filter(ADMIN, "default", Definition(SCHEMA, *given, **more), "symbol")


def matched(pipeline):
    return {(one.position, id) for one in pipeline.pending(ANN) for id in one.subscriptions}


def test_a_filter_is_changed_while_it_is_used_and_a_restart_has_it(tmp_path):
    async def first(pipeline):
        id = await pipeline.subscribe(ANN, "default", Wish("price > 3"))
        places = [await publish(pipeline, 5)]
        for matcher in ("counting", NODES):  # of boxes, and of predicates
            await define(pipeline, matcher, WANG, "fifo")
            places.append(await publish(pipeline, 6))
        assert runs(pipeline) == ("filter-nodes", {"bit_lists": 0.5}, WangController, fifo)
        assert matched(pipeline) == {(place, id) for place in places}
        return id

    async def again(pipeline):
        assert pipeline.filters(ANN)[0].definition == Definition(SCHEMA, NODES, WANG, "fifo")
        assert runs(pipeline) == ("filter-nodes", {"bit_lists": 0.5}, WangController, fifo)
        assert index(pipeline).filter.controller.snapshot()["threshold"] == 5
        return [id for _, id in matched(pipeline)]

    (id,) = served(tmp_path, first)
    assert served(tmp_path, again, definition=None) == [[id] * 3]


def test_an_index_beside_the_log_gets_what_was_changed_after_it_was_written(tmp_path):
    async def first(pipeline):
        await pipeline.subscribe(ANN, "default", Wish("price > 3"))
        await publish(pipeline, 5)
        await pipeline._upkeep.write_indexes()
        await define(pipeline, {**NODES, "bit_lists": 0.25})

    async def again(pipeline):
        return runs(pipeline)[:3], len(index(pipeline).filter)

    served(tmp_path, first, definition=Definition(SCHEMA, NODES, WANG))
    assert list((tmp_path / "indexes").glob("default-*/*/manifest.json"))
    assert served(tmp_path, again, definition=None) == [
        (("filter-nodes", {"bit_lists": 0.25}, CostController), 1)
    ]


def test_what_cannot_be_changed_is_refused_and_nothing_is_changed(tmp_path):
    async def script(pipeline):
        for matcher in (None, "auto"):
            with pytest.raises(ConflictError, match="name a matcher, and neither may be 'auto'"):
                await define(pipeline, matcher)
        with pytest.raises(RequestError, match="as a server needs; choose one of scan"):
            await define(pipeline, "matching-tree-equality")
        return runs(pipeline)[0], index(pipeline).info.definition.matcher

    assert served(tmp_path, script, definition=Definition(SCHEMA, "counting")) == [("counting", "counting")]


@pytest.mark.parametrize(("matcher", "most", "refused"), [("scan", 1, 1), ("scan", None, 0), (NODES, 1, 0)])
def test_what_no_box_bounds_is_limited_as_defined(tmp_path, matcher, most, refused):
    async def script(pipeline):
        found = await pipeline.subscribe_many(ANN, "default", [Wish("price * 2 > price")] * 2)
        return sum(isinstance(one, TooManyError) for one in found)

    defined = Definition(SCHEMA, matcher, max_unbounded=most)
    assert served(tmp_path, script, definition=defined) == [refused]


def test_a_start_with_a_schema_alone_leaves_how_a_filter_matches_and_one_with_more_changes_it(tmp_path):
    async def script(pipeline):
        found = []
        for given in (Definition(SCHEMA, "hem"), Definition(SCHEMA), Definition(SCHEMA, "counting")):
            await server._add_default(pipeline, given)
            found.append(runs(pipeline)[0])
        return found

    assert served(tmp_path, script, definition=None) == [["hem", "hem", "counting"]]


def test_a_start_with_a_matcher_that_refuses_some_makes_nothing(tmp_path):
    with pytest.raises(DataError, match=r"--schema: .* as a server needs; choose one of scan"):
        asyncio.run(
            server._serve(settings(data=tmp_path / "new"), Definition(SCHEMA, "matching-tree-equality"))
        )
    assert not (tmp_path / "new").exists()
