"""How a filter matches is kept, shown, changed while it is used, and refused with a reason."""

import asyncio

import pytest

from rtfilter import EventError, EventFilter, Schema
from rtfilter.adaptive import CostController, WangController
from rtfilter.definition import Definition
from rtfilter.filter import inside
from rtfilter.scheduler import fifo
from rtfilter.service import server
from rtfilter.service.records import Wish
from rtfilter.service.server import DataError
from rtfilter.service.service_errors import ConflictError, RequestError, TooManyError
from rtfilter.service.settings import settings
from service.served import ADMIN, ANN, CARL, SCHEMA, served

WANG = {"name": "wang", "rounds": 2, "threshold": 5}
NODES = {"name": "filter-nodes", "bit_lists": 0.5}


def index(pipeline):
    return pipeline.filters._indexes["default"]


def runs(pipeline):
    """The matcher, its options, the controller, and the order of the filter that matches."""
    filter = index(pipeline).filter
    held = filter._subscriptions
    return held.name, dict(held.matcher.options), type(inside(filter).controller), inside(filter).road.order


async def publish(pipeline, price):
    (place,) = await pipeline.publishing.publish(CARL, "default", [b'{"price": %d, "symbol": "A"}' % price])
    await pipeline.settled(place)
    return place


async def define(pipeline, *given, schema=SCHEMA, **more):
    return await pipeline.filters.add(ADMIN, "default", Definition(schema, *given, **more), "symbol")


LARGER = SCHEMA.extended({"volume": {"type": "int", "low": 0, "high": 100}})
ODD = b'{"price": 5, "symbol": "A", "volume": -1}'
"""An event as long as there is no volume."""


async def put(pipeline, event):
    (place,) = await pipeline.publishing.publish(
        CARL, "default", [pipeline.filters.parse("default").one(event).bodies[0]]
    )
    await pipeline.settled(place)
    return place


def matched(pipeline):
    return {(one.position, id) for one in pipeline.deliveries.pending(ANN) for id in one.subscriptions}


def test_a_filter_is_changed_while_it_is_used_and_a_restart_has_it(tmp_path):
    async def first(pipeline):
        id = await pipeline.subscriptions.subscribe(ANN, "default", Wish("price > 3"))
        places = [await publish(pipeline, 5)]
        for matcher in ("counting", NODES):  # of boxes, and of predicates
            await define(pipeline, matcher, WANG, "fifo")
            places.append(await publish(pipeline, 6))
        assert runs(pipeline) == ("filter-nodes", {"bit_lists": 0.5}, WangController, fifo)
        assert matched(pipeline) == {(place, id) for place in places}
        return id

    async def again(pipeline):
        assert pipeline.filters.all()[0].info.definition == Definition(SCHEMA, NODES, WANG, "fifo")
        assert runs(pipeline) == ("filter-nodes", {"bit_lists": 0.5}, WangController, fifo)
        assert inside(index(pipeline).filter).controller.snapshot()["threshold"] == 5
        return [id for _, id in matched(pipeline)]

    (id,) = served(tmp_path, first)
    assert served(tmp_path, again, definition=None) == [[id] * 3]


def test_an_index_beside_the_log_gets_what_was_changed_after_it_was_written(tmp_path):
    async def first(pipeline):
        await pipeline.subscriptions.subscribe(ANN, "default", Wish("price > 3"))
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
        found = await pipeline.subscriptions.subscribe_many(ANN, "default", [Wish("price * 2 > price")] * 2)
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


@pytest.mark.parametrize("indexed", [False, True])
def test_attributes_are_added_while_a_filter_is_used_and_a_restart_has_them(tmp_path, indexed):
    """Events of before may have values that the added attribute cannot have."""

    async def first(pipeline):
        low = await pipeline.subscriptions.subscribe(ANN, "default", Wish("price > 3"))
        pairs = {(await put(pipeline, ODD), low)}
        if indexed:
            await pipeline._upkeep.write_indexes()
        await define(pipeline, schema=LARGER)
        high = await pipeline.subscriptions.subscribe(ANN, "default", Wish("volume > 10"))
        place = await put(pipeline, b'{"price": 5, "symbol": "A", "volume": 20}')
        with pytest.raises(EventError, match="volume"):
            await put(pipeline, ODD)
        await pipeline.subscriptions.replace(ANN, low, Wish("price > 3 AND volume < 50"))
        pairs |= {(place, low), (place, high)}
        assert matched(pipeline) == pairs
        return pairs

    async def again(pipeline):
        place = await put(pipeline, b'{"price": 5, "symbol": "A", "volume": 30}')
        found = await pipeline.asking.query(CARL, "default", "price > 3")
        assert [one.position for one in found.events] == sorted({at for at, _ in pairs} | {place})
        large = await pipeline.asking.query(CARL, "default", "volume >= 20")
        assert len(large.events) == 2
        return pipeline.filters.all()[0].info.schema, {
            (at, id) for at, id in matched(pipeline) if at != place
        }

    (pairs,) = served(tmp_path, first)
    assert served(tmp_path, again, definition=None) == [(LARGER, pairs)]


def test_events_that_were_stored_before_attributes_are_matched_after_them(tmp_path):
    """As after a kill, or where a publisher's events are stored while attributes are added."""

    async def script(pipeline):
        id = await pipeline.subscriptions.subscribe(ANN, "default", Wish("price > 3"))
        read, (body,) = pipeline.filters.parse("default").one(ODD)
        await define(pipeline, schema=LARGER)
        places = await pipeline.publishing.publish(
            CARL, "default", [body, b'{"price": 9, "symbol": "A"}', body]
        )
        await pipeline.settled(places[-1])
        assert matched(pipeline) == {(place, id) for place in places}
        return [part.ids.tolist() async for part in await pipeline.asking.match(ANN, "default", read)] == [
            [id]
        ]

    assert served(tmp_path, script) == [True]


@pytest.mark.parametrize(
    "schema",
    [
        Schema({"price": float}),
        Schema({"price": int, "symbol": str, "more": int}),
        Schema(LARGER.attributes, strict=True),
    ],
    ids=["fewer", "another type", "strict"],
)
def test_a_schema_that_is_no_extension_is_refused(tmp_path, schema):
    async def script(pipeline):
        key = "symbol" if "symbol" in schema.attributes else None
        with pytest.raises(ConflictError, match="another schema or key already"):
            await pipeline.filters.add(ADMIN, "default", Definition(schema), key)
        return index(pipeline).filter.schema

    assert served(tmp_path, script) == [SCHEMA]


def test_an_addition_of_attributes_that_failed_is_made_by_the_next_request(tmp_path, monkeypatch):
    async def first(pipeline):
        with monkeypatch.context() as patch:
            patch.setattr(EventFilter, "add_attributes", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await define(pipeline, schema=LARGER)
        await define(pipeline, schema=LARGER)
        await pipeline.settled(await pipeline.subscriptions.subscribe(ANN, "default", Wish("volume = 1")))
        return index(pipeline).filter.schema

    async def again(pipeline):
        return len(index(pipeline).filter)

    assert served(tmp_path, first) == [LARGER]
    assert served(tmp_path, again, definition=None) == [1]


def test_a_start_with_a_former_schema_leaves_the_attributes_and_one_with_more_adds_them(tmp_path):
    async def script(pipeline):
        found = []
        for schema in (LARGER, SCHEMA, LARGER.extended({"venue": str})):
            await server._add_default(pipeline, Definition(schema))
            found.append((index(pipeline).filter.schema.names[2:], runs(pipeline)[0]))
        return found

    asked = served(tmp_path, script, definition=Definition(SCHEMA, "hem"))
    assert asked == [[(("volume",), "hem"), (("volume",), "hem"), (("volume", "venue"), "hem")]]
