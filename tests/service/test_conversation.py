"""Sessions without a socket."""

import asyncio
import json

import pytest

from rtfilter import Schema
from rtfilter.service import conversation as module
from rtfilter.service.conversation import Conversation
from rtfilter.service.log import Log
from rtfilter.service.pipeline import Pipeline


def run(path, script):
    async def served():
        pipeline = Pipeline(Schema({"price": float}), Log(path / "log.sqlite"))
        await pipeline.start()
        try:
            await script(pipeline)
        finally:
            await pipeline.stop()

    asyncio.run(served())


async def say(session, directive, **more):
    """Say it; what is in the outbox then."""
    await session.hear(json.dumps({"directive": directive, **more}))
    return said(session)


def said(session):
    return [json.loads(session.outbox.get_nowait()) for _ in range(session.outbox.qsize())]


async def publish(pipeline, *prices):
    places = await pipeline.publish("bob", [b'{"price": %d}' % price for price in prices])
    while pipeline.match.settled < places[-1]:
        await asyncio.sleep(0.001)
    return places


async def connected(pipeline, user="ann"):
    session = Conversation(pipeline)
    assert (await say(session, "CONNECT", user=user))[0]["directive"] == "CONNECTED"
    return session


def test_only_who_receives_gets_events_and_the_backlog_comes_until_it_is_acknowledged(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline)
        ((answer),) = await say(session, "SUBSCRIBE", where="price > 0", tag=7)
        assert (answer["directive"], answer["tag"]) == ("ACK", 7)
        (away,) = await publish(pipeline, 1)
        assert said(session) == []
        assert await say(session, "READY") == [{"directive": "ACK"}]
        (there,) = await publish(pipeline, 2)
        (event,) = said(session)
        assert event == {
            "directive": "EVENT",
            "number": 1,
            "position": there,
            "subscriptions": [answer["subscription"]],
            "event": {"price": 2},
        }
        assert await say(session, "STOP") == [{"directive": "ACK"}]
        acknowledgement, old = await say(session, "GET")
        assert acknowledgement == {"directive": "ACK", "pending": 1}
        assert (old["position"], old["number"]) == (away, 2)
        assert await say(session, "GET") == [{"directive": "ACK", "pending": 0}]
        assert await say(session, "ACK", upto=1) == [{"directive": "ACK"}]
        session.lost()
        again = await connected(pipeline)
        assert [one["position"] for one in (await say(again, "GET"))[1:]] == [away]
        assert await say(again, "ACK", upto=1) == [{"directive": "ACK"}]
        assert [one.position for one in pipeline.pending("ann")] == []

    run(tmp_path, script)


def test_the_connection_that_became_ready_last_gets_a_delivery(tmp_path):
    async def script(pipeline):
        first, second = await connected(pipeline), await connected(pipeline)
        await say(first, "SUBSCRIBE", where="price > 0")
        await say(first, "READY")
        await say(second, "READY")
        await publish(pipeline, 1)
        assert (len(said(first)), len(said(second))) == (0, 1)
        second.lost()
        await publish(pipeline, 2)
        assert len(said(first)) == 1

    run(tmp_path, script)


def test_nothing_reaches_another_user(tmp_path):
    async def script(pipeline):
        ann, eve = await connected(pipeline), await connected(pipeline, "eve")
        ((answer),) = await say(ann, "SUBSCRIBE", where="price > 0")
        refused = await say(eve, "UNSUBSCRIBE", subscription=answer["subscription"])
        unknown = await say(eve, "UNSUBSCRIBE", subscription="x")
        assert refused[0]["error"].replace(answer["subscription"], "x") == unknown[0]["error"]
        await say(eve, "READY")
        places = await publish(pipeline, 1)
        await pipeline.acknowledge("eve", places)
        assert said(eve) == []
        assert [one.position for one in pipeline.pending("ann")] == places

    run(tmp_path, script)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "this is not JSON"),
        ("[" * 100_000, "this is not JSON"),
        ("[]", "a message is a JSON object"),
        ("{}", '"directive" is one of CONNECT, '),
        ('{"directive": []}', '"directive" is one of CONNECT, '),
        ('{"directive": "CONNECT", "user": "ann"}', "CONNECT is not allowed in CONNECTED"),
        ('{"directive": "SUBSCRIBE"}', '"where" is'),
        ('{"directive": "SUBSCRIBE", "where": "x > 1"}', "unknown attribute"),
        ('{"directive": "UNSUBSCRIBE", "subscription": 1}', '"subscription" is needed, as text'),
        ('{"directive": "ACK", "upto": 1}', '"upto" is the number of an EVENT'),
        ('{"directive": "ACK", "upto": true}', '"upto" is the number of an EVENT'),
    ],
)
def test_what_is_wrong_is_answered_and_changes_nothing(tmp_path, text, error):
    async def script(pipeline):
        session = await connected(pipeline)
        await session.hear(text)
        (answer,) = said(session)
        assert answer["directive"] == "ERROR"
        assert error in answer["error"]
        assert session.state == "CONNECTED"

    run(tmp_path, script)


def test_a_slow_receiver_leaves_the_rest_in_its_backlog(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_UNSENT", 3)

    async def script(pipeline):
        session = await connected(pipeline)
        await say(session, "SUBSCRIBE", where="price > 0")
        await say(session, "READY")
        places = await publish(pipeline, *range(1, 10))
        assert len(said(session)) == 3
        assert sorted(one.position for one in pipeline.pending("ann")) == places

    run(tmp_path, script)
