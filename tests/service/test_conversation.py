"""Sessions without a socket."""

import asyncio
import itertools
import json

import msgspec
import pytest
import sqlalchemy
from msgspec.structs import replace
from served import ANN, BOB, CARL, events, publish, served, subscribe

from rtfilter.basics.results import Matches
from rtfilter.basics.session_states import TABLE, Directive, State
from rtfilter.service.access import Access, UserLimits
from rtfilter.service.backlog import BacklogLimits
from rtfilter.service.concurrency import Threads
from rtfilter.service.conversation import MOST_UNSENT, UNSENT_BYTES, Conversation
from rtfilter.service.messages import MOST_TAG
from rtfilter.service.records import Wish
from rtfilter.service.upkeep import Keeping
from rtfilter.store.database import engine
from rtfilter.store.log import Log
from rtfilter.store.user_store import Users


async def say(session, directive, **more):
    """Say it; what is in the outbox then."""
    await session.hear(json.dumps({"directive": directive, **more}))
    return said(session)


def said(session):
    found = [session.outbox.get_nowait() for _ in range(session.outbox.qsize())]
    return [json.loads(one) for one in found if one is not None]


def taken(session):
    """All that comes, as a door takes it."""
    found = []
    while session.outbox.qsize():
        found.append(json.loads(session.outbox.get_nowait()))
        session.sent()
    return found


async def connected(pipeline, user="ann", *directives):
    session = Conversation(pipeline)
    assert (await say(session, "CONNECT", user=user))[0]["directive"] == "CONNECTED"
    for directive in directives:
        await say(session, directive)
    return session


def positions(messages):
    return [one["position"] for one in messages]


def test_only_who_receives_gets_events_and_the_backlog_comes_until_it_is_acknowledged(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline)
        (answer,) = await say(session, "SUBSCRIBE", where="price > 0", tag=7)
        assert (answer["directive"], answer["tag"]) == ("ACK", 7)
        (away,) = await publish(pipeline, 1)
        assert said(session) == []
        assert await say(session, "READY") == [{"directive": "ACK"}]
        (there,) = await publish(pipeline, 2)
        (event,) = said(session)
        assert event.pop("response") > 0
        assert event.pop("at") > 1e9
        assert event == {
            "directive": "EVENT",
            "number": 1,
            "position": there,
            "subscriptions": [answer["subscription"]],
            "filter": "default",
            "event": {"price": 2},
            "redelivered": 0,
        }
        assert await say(session, "STOP") == [{"directive": "ACK"}]
        acknowledgement, old = await say(session, "GET")
        assert acknowledgement == {"directive": "ACK", "pending": 1}
        assert (old["position"], old["number"]) == (away, 2)
        assert await say(session, "GET") == [{"directive": "ACK", "pending": 0}]
        assert await say(session, "ACK", upto=1) == [{"directive": "ACK"}]
        session.lost()
        again = await connected(pipeline)
        _, old = await say(again, "GET")
        assert (old["position"], old["redelivered"]) == (away, 1)
        await say(again, "ACK", upto=1)
        assert pipeline.deliveries.pending(ANN) == []

    served(tmp_path, script)


@pytest.mark.parametrize("takes", [(), (True,), (True, False), (False, False, True)])
def test_all_comes_in_order_where_a_door_has_a_way_past_the_outbox(tmp_path, takes):
    """It takes messages at some times, and not at others."""
    count = 3 * MOST_UNSENT + MOST_UNSENT // 2

    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        session, found, turn = await connected(pipeline), [], itertools.cycle(takes)

        def straight(messages):
            if take := next(turn):
                found.extend(messages)
            return take

        async def door():
            while True:
                messages = await session.unsent()
                await asyncio.sleep(0)
                found.extend(messages)
                session.sent()

        async def sent():
            async with asyncio.timeout(60):
                while session.owed:
                    await asyncio.sleep(0)

        session.meet("", straight if takes else None)
        writing = asyncio.create_task(door())
        await publish(pipeline, *range(1, count + 1))
        await session.hear('{"directive": "GET"}')
        await session.hear('{"directive": "READY"}')
        await sent()
        for price in range(count + 1, count + 11):
            await publish(pipeline, price)
            if price % 3 == 0:
                await session.hear('{"directive": "ACK", "upto": 1}')
        await sent()
        writing.cancel()
        told = [json.loads(one) for one in found]
        return [one["event"]["price"] for one in told if one["directive"] == "EVENT"]

    assert served(tmp_path, script) == [[*range(1, count + 11)]]


def test_get_and_ready_lose_nothing_between_them(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        session = await connected(pipeline, "ann", "GET")
        between = await publish(pipeline, 1, 2)
        _, *found = await say(session, "READY")
        assert positions(found) == between
        await say(session, "STOP")
        between = await publish(pipeline, 3)
        _, *found = await say(session, "READY")
        assert positions(found) == between
        only_new = await connected(pipeline, "ann", "READY")
        assert said(only_new) == []

    served(tmp_path, script)


def test_the_last_that_became_ready_has_the_deliveries(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        first = await connected(pipeline, "ann", "READY")
        second = await connected(pipeline, "ann", "READY")
        mine = await publish(pipeline, 1, 2)
        assert (said(first), positions(said(second))) == ([], mine)
        await say(second, "ACK", upto=1)
        second.lost()
        assert positions(said(first)) == mine[1:]  # what nobody acknowledged
        more = await publish(pipeline, 3)
        assert positions(said(first)) == more

    served(tmp_path, script)


def test_when_another_is_lost_the_last_that_became_ready_has_what_it_was_sent(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        first = await connected(pipeline, "ann", "READY")
        places = await publish(pipeline, 1, 2)
        said(first)
        await say(first, "ACK", upto=1)
        second = await connected(pipeline, "ann", "READY")
        assert said(second) == []
        first.lost()
        assert positions(said(second)) == places[1:]

    served(tmp_path, script)


def test_what_another_sent_is_not_sent_twice_to_who_asked_for_all(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        first = await connected(pipeline, "ann", "READY")
        places = await publish(pipeline, 1, 2)
        second = await connected(pipeline, "ann", "GET")
        assert positions(said(second)) == []  # it was taken with the answer
        _, *found = await say(second, "READY")
        assert positions(found) == []
        first.lost()
        assert said(second) == []
        assert [one.position for one in pipeline.deliveries.pending(ANN)] == places

    served(tmp_path, script)


def test_credit_is_never_exceeded(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        session = await connected(pipeline)
        await say(session, "CREDIT", more=2)
        await say(session, "READY")
        places = await publish(pipeline, 1, 2, 3, 4)
        assert positions(said(session)) == places[:2]
        _, *found = await say(session, "CREDIT", more=1)
        assert positions(found) == places[2:3]
        await say(session, "CREDIT", more=5)
        more = await publish(pipeline, 5)
        assert positions(said(session)) == more

    served(tmp_path, script)


def test_a_slow_peer_has_few_messages_in_memory_and_loses_none(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        session = await connected(pipeline, "ann", "READY")
        places = await publish(pipeline, *range(1, 3 * MOST_UNSENT))
        assert session.outbox.qsize() == MOST_UNSENT
        assert positions(taken(session)) == places

    served(tmp_path, script)


def test_what_is_not_acknowledged_comes_again_later_and_later(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        session = await connected(pipeline, "ann", "READY")
        (place,) = await publish(pipeline, 1)
        said(session)
        now, numbers = pipeline.deliver.clock(), []
        for step in range(80):
            session.tick(now + step + 1.5)
            found = said(session)
            assert positions(found) in ([], [place])
            numbers += [(step, one["redelivered"]) for one in found]
            for number, sent in session._sent.items():  # as if its clock had been there, too
                if sent.again < float("inf") and found:
                    wait = sent.again - pipeline.deliver.clock()
                    session._sent[number] = replace(sent, again=now + step + 1.5 + wait)
        assert [count for _, count in numbers] == [1, 2, 3]
        assert [step for step, _ in numbers] == pytest.approx([9, 29, 69], abs=1)
        await say(session, "ACK", upto=1)
        assert pipeline.deliveries.pending(ANN) == []
        assert pipeline.status.counts["redelivered"] == 3

    served(tmp_path, script, keeping=Keeping(redeliver=10))


def late(pipeline, session):
    """All that was sent is late from now on; what comes then."""
    session.tick(pipeline.deliver.clock() + 1e6)
    return positions(said(session))


@pytest.mark.parametrize("order", ["key", None])
def test_what_comes_again_comes_before_the_later_ones_of_its_key(tmp_path, order):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0", order=order)
        session = await connected(pipeline, "ann", "READY")
        (first,) = await publish(pipeline, 1, symbol="A")
        now = pipeline.deliver.clock() + 20
        session._wait([first], now)
        session._earliest = now
        (other,) = await publish(pipeline, 2, symbol="B")
        (second,) = await publish(pipeline, 3, symbol="A")
        assert positions(said(session)) == [first, other, second]
        session.tick(now)  # only the first one is late
        again = [first, second] if order == "key" else [first]
        assert positions(said(session)) == again
        await say(session, "CREDIT", more=0)
        (third,) = await publish(pipeline, 4, symbol="A")
        assert late(pipeline, session) == []
        await session.hear('{"directive": "CREDIT", "more": 9}')
        assert positions(said(session)[1:]) == [first, other, second, third]

    served(tmp_path, script)


def test_who_takes_over_has_what_is_earlier_of_a_key_before_what_is_later(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0", order="key")
        one = await connected(pipeline, "ann", "READY")
        (first,) = await publish(pipeline, 1, symbol="A")
        other = await connected(pipeline, "ann", "READY")
        (second,) = await publish(pipeline, 2, symbol="A")
        assert positions(said(other)) == [second]
        one.lost()
        assert positions(said(other)) == [first, second]

    served(tmp_path, script)


def test_what_comes_again_is_ordered_without_reading_events(tmp_path, monkeypatch):
    """Those that are not acknowledged may have many megabytes: of this run, or of one before."""

    async def script(pipeline):
        session = await connected(pipeline)
        (_, *came) = await say(session, "GET")
        await say(session, "READY")
        if not came:
            await subscribe(pipeline, "price > 0", order="key")
            await publish(pipeline, 1, symbol="A")
            await publish(pipeline, 2, symbol="B")
            await publish(pipeline, 3, symbol="A")
            came = said(session)
        first, other, second = positions(came)
        read, plain = [], msgspec.json.decode
        with monkeypatch.context() as patch:
            patch.setattr(msgspec.json, "decode", lambda body: read.append(body) or plain(body))
            session.take_over([first])
        assert positions(said(session)) == [first, second]
        assert not read
        return other

    assert len(set(served(tmp_path, script, script))) == 1


def test_a_digest_comes_as_one_message(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline)
        (answer,) = await say(session, "SUBSCRIBE", where="price > 0", digest=60)
        await say(session, "SUBSCRIBE", where="price > 100")
        await say(session, "READY")
        late = await publish(pipeline, 1, 2)
        at_once = await publish(pipeline, 101)
        (event,) = said(session)
        assert (event["directive"], event["position"]) == ("EVENT", at_once[0])
        for digest in pipeline.deliver._digests.values():
            digest.due = 0
        pipeline.deliver.tick(0)
        (digest,) = said(session)
        assert (digest["directive"], digest["number"]) == ("DIGEST", 2)
        assert positions(digest["events"]) == late
        assert digest["subscriptions"] == [answer["subscription"]]
        await say(session, "ACK", upto=2)
        assert pipeline.deliveries.pending(ANN) == []

    served(tmp_path, script)


def test_a_digest_comes_also_after_the_end_of_its_subscription(tmp_path):
    now = [1000.0]

    async def script(pipeline):
        id = await subscribe(pipeline, "price > 0", digest=60, ttl=10)
        session = await connected(pipeline, "ann", "READY")
        places = await publish(pipeline, 1)
        now[0] += 11
        while id in pipeline._owners:
            await asyncio.sleep(0.01)
        due(pipeline)
        ended, digest = said(session)
        assert (ended["directive"], positions(digest["events"])) == ("ENDED", places)

    served(tmp_path, script, clock=lambda: now[0])


def test_a_refused_acknowledgement_can_be_said_again(tmp_path, monkeypatch):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        session = await connected(pipeline, "ann", "READY")
        await publish(pipeline, 1, 2)
        said(session)

        def fail(*_):
            raise sqlalchemy.exc.OperationalError("", {}, Exception("disk is full"))

        with monkeypatch.context() as patch:
            patch.setattr(Log, "commit", fail)
            (refused,) = await say(session, "ACK", upto=1)
        assert (refused["directive"], refused["kind"]) == ("ERROR", "busy")
        assert len(pipeline.deliveries.pending(ANN)) == 2
        await say(session, "ACK", upto=2)
        assert pipeline.deliveries.pending(ANN) == []

    served(tmp_path, script)


def test_single_deliveries_are_acknowledged_beyond_one_that_is_not(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        session = await connected(pipeline, "ann", "READY")
        places = await publish(pipeline, 1, 2, 3)
        said(session)
        for numbers in ([4], [0]):
            (error,) = await say(session, "ACK", upto=0, numbers=numbers)
            assert error["error"] == '"numbers" must be numbers of deliveries of this connection'
        assert await say(session, "ACK", upto=0, numbers=[3]) == [{"directive": "ACK"}]
        assert [one.position for one in pipeline.deliveries.pending(ANN)] == places[:2]
        await say(session, "ACK", upto=2)
        assert pipeline.deliveries.pending(ANN) == []

    served(tmp_path, script)


def test_a_long_digest_comes_in_parts(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0", digest=60)
        session = await connected(pipeline, "ann", "CREDIT", "READY")
        places = await publish(pipeline, *range(1, 8))
        due(pipeline)
        await publish(pipeline, 8)
        parts = said(session)
        assert [part["directive"] for part in parts] == ["DIGEST"] * len(parts)
        assert [len(part["events"]) for part in parts] == [3, 3, 1]
        assert [place for part in parts for place in positions(part["events"])] == places
        assert all(len(json.dumps(part)) <= 1000 for part in parts)
        await say(session, "ACK", upto=1)
        assert len(pipeline.deliveries.pending(ANN)) == 5

    served(tmp_path, script, message=1000)


def test_a_delivery_with_many_ids_is_encoded_as_its_peer_reads(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.conversation.UNSENT_BYTES", 2000)

    async def script(pipeline):
        session = await connected(pipeline, "ann", "READY")
        ids = await pipeline.subscriptions.subscribe_many(ANN, "default", [Wish("price > 0")] * 400)
        (place,) = await publish(pipeline, 1)
        assert session.outbox.bytes < 3000
        assert session.owed > session.outbox.qsize()
        (after,) = await publish(pipeline, 2)
        begun = json.loads(session.outbox.get_nowait())
        assert (begun["number"], begun["position"]) == (1, place)
        await session.hear('{"directive": "ACK", "upto": 1}')
        await session.hear('{"directive": "ACK", "upto": 1, "numbers": [1]}')
        came = [one for one in taken(session) if one["directive"] == "EVENT"]
        first = [begun, *(one for one in came if one["position"] == place)]
        assert [id for one in first for id in one["subscriptions"]] == ids
        assert [one["number"] for one in (begun, *came)] == [*range(1, len(came) + 2)]
        assert [one.position for one in pipeline.deliveries.pending(ANN)] == [place, after]
        await session.hear(json.dumps({"directive": "ACK", "upto": len(first)}))
        assert [one.position for one in pipeline.deliveries.pending(ANN)] == [after]

    served(tmp_path, script, message=1000)


@pytest.mark.parametrize("left", [1, 60])
def test_a_delivery_that_is_stopped_within_its_ids_comes_again(tmp_path, monkeypatch, left):
    monkeypatch.setattr("rtfilter.service.conversation.UNSENT_BYTES", 2)

    async def script(pipeline):
        session = await connected(pipeline, "ann", "READY")
        ids = await pipeline.subscriptions.subscribe_many(ANN, "default", [Wish("price > 0")] * 60)
        (place,) = await publish(pipeline, 1)
        await session.hear('{"directive": "STOP"}')
        assert [one["directive"] for one in taken(session)] == ["EVENT", "ACK"]
        for id in ids[left:]:
            await pipeline.subscriptions.unsubscribe(ANN, id)
        await session.hear('{"directive": "GET"}')
        await session.hear('{"directive": "READY"}')
        await publish(pipeline, 2)
        came = [one for one in taken(session) if one["directive"] == "EVENT"]
        there = [id for one in came if one["position"] == place for id in one["subscriptions"]]
        assert there == ids[:left]
        await session.hear(json.dumps({"directive": "ACK", "upto": came[-1]["number"]}))
        assert not pipeline.deliveries.pending(ANN)

    served(tmp_path, script, message=1000)


def test_a_delivery_with_many_ids_comes_in_messages_that_are_short_enough(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline, "ann", "READY")
        await say(session, "CREDIT", more=1)
        wishes = [Wish("price > 0", digest=digest) for digest in [None] * 100 + [60] * 100]
        ids = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes)
        (place,) = await publish(pipeline, 1)
        parts = said(session)
        assert all(len(json.dumps(part)) <= 1000 for part in parts)
        assert [part["number"] for part in parts] == [*range(1, len(parts) + 1)]
        assert {part["position"] for part in parts} == {place}
        assert [id for part in parts for id in part["subscriptions"]] == ids
        assert len(parts) > 2
        await publish(pipeline, 2)
        assert said(session) == []  # more credit was used than there was
        await say(session, "ACK", upto=len(parts) - 1)
        assert pipeline.deliveries.pending(ANN)[0].position == place
        await say(session, "ACK", upto=len(parts))
        assert place not in [one.position for one in pipeline.deliveries.pending(ANN)]
        assert len(await say(session, "CREDIT", more=len(parts))) == 1 + len(parts)

    served(tmp_path, script, message=1000)


def test_who_asks_and_does_not_read_waits_after_some_bytes(tmp_path):
    async def script(pipeline):
        session = Conversation(pipeline)
        session.outbox.put_nowait(b"x" * UNSENT_BYTES)
        waits = asyncio.create_task(session.room())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waits.done()
        await session.unsent()
        session.sent()
        await waits

    served(tmp_path, script)


@pytest.mark.parametrize("more", [{}, {"what": 1}])
def test_a_long_tag_is_refused(tmp_path, more):
    """Its answer would have it, and be kept while the client does not read; `more` cannot be read."""

    async def script(pipeline):
        session = Conversation(pipeline)
        for tag in ("x" * MOST_TAG, [["x" * MOST_TAG]]):
            (answer,) = await say(session, "CONNECT", user="ann", tag=tag, **more)
            assert answer == {
                "directive": "ERROR",
                "kind": "directive",
                "error": f"a tag has at most {MOST_TAG} bytes",
            }

    served(tmp_path, script)


def test_large_deliveries_wait_in_the_backlog(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline, "ann", "READY")
        await subscribe(pipeline, "price > 0")
        large = [b'{"price":1,"more":"%s"}' % (b"x" * (UNSENT_BYTES // 2))] * 4
        (*_, last) = await pipeline.publishing.publish(CARL, "default", large)
        await pipeline.settled(last)
        assert session.outbox.qsize() == 2
        assert len(taken(session)) == 4

    served(tmp_path, script)


def test_an_event_of_a_digest_with_too_many_ids_comes_alone(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline, "ann", "READY")
        ids = await pipeline.subscriptions.subscribe_many(
            ANN, "default", [Wish("price > 5", digest=60)] * 100
        )
        await subscribe(pipeline, "price > 0", digest=60)
        await publish(pipeline, 1, 6, 2)
        due(pipeline)
        found = said(session)
        assert [one["directive"] for one in found] == ["DIGEST", *["EVENT"] * (len(found) - 2), "DIGEST"]
        assert [id for one in found[1:-1] for id in one["subscriptions"]][:100] == ids
        assert all(len(json.dumps(one)) <= 1000 for one in found)

    served(tmp_path, script, message=1000)


def test_events_with_lists_are_read_beside_the_event_loop(tmp_path, monkeypatch):
    beside, plain = [], Threads.run_for

    def noted(self, user, work, *given):
        if getattr(work, "__name__", "") == "_parsed":
            beside.append(user)
        return plain(self, user, work, *given)

    monkeypatch.setattr(Threads, "run_for", noted)

    async def script(pipeline):
        session = await connected(pipeline, "carl")
        (made,) = await say(session, "SUBSCRIBE", where="price = 2")
        for price in (1, [1, 2]):
            await say(session, "PUBLISH", event={"price": price})
            await say(session, "PUBLISH", events=[{"price": price}])
            (single,) = await say(session, "MATCH", event={"price": price})
            (several,) = await say(session, "MATCH", events=[{"price": price}])
            assert several["matches"] == single["matches"] == [[made["subscription"]] if price != 1 else []]
            await say(session, "EXPLAIN", event={"price": price}, subscription=made["subscription"])

    served(tmp_path, script)
    assert beside == ["carl"] * 5


def test_events_are_stored_and_delivered_as_they_were_sent(tmp_path):
    one, two = b'{ "price": 1.50, "more": 123456789012345678901234567890 }', b'{"price":2e0}'

    async def script(pipeline):
        session = await connected(pipeline, "carl")
        await say(session, "SUBSCRIBE", where="price > 0")
        await session.hear(b'{"directive": "PUBLISH", "event": %s}' % one)
        await session.hear(b'{"directive": "PUBLISH", "events": [%s, %s]}' % (two, one))
        *_, last = said(session)
        await pipeline.settled(last["positions"][-1])
        return [one.body for one in pipeline.deliveries.pending(session.who)]

    assert served(tmp_path, script) == [[one, two, one]]


def test_a_key_stands_for_the_same_events_with_any_spaces(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline, "carl")
        said(session)
        for spaced in (b'{"price":1}', b'{ "price" : 1 }'):
            await session.hear(b'{"directive": "PUBLISH", "event": %s, "key": "k"}' % spaced)
        one, other = said(session)
        return one == other, one["directive"]

    assert served(tmp_path, script) == [(True, "ACK")]


def test_as_many_events_are_published_at_once_as_their_positions_have_room(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline)
        (answer,) = await say(session, "PUBLISH", events=[{}] * 50)
        assert len(answer["positions"]) == 50
        (answer,) = await say(session, "PUBLISH", events=[{}] * 51)
        assert (answer["kind"], answer["error"]) == (
            "too-large",
            "a message has at most 50 events; send several",
        )

    served(tmp_path, script, message=1000)


def due(pipeline):
    """Have digests sent."""
    for digest in pipeline.deliver._digests.values():
        digest.due = 0
    pipeline.deliver.tick(0)


@pytest.mark.parametrize("how", ["no credit", "not acknowledged", "digest"])
def test_a_peer_that_falls_behind_takes_little_memory(tmp_path, monkeypatch, how):
    for module in ("conversation", "deliver"):
        monkeypatch.setattr(f"rtfilter.service.{module}.FEW", 10)

    async def script(pipeline):
        await subscribe(pipeline, "price > 0", digest=60 if how == "digest" else None)
        session = await connected(pipeline)
        if how != "not acknowledged":
            await say(session, "CREDIT", more=0)
        await say(session, "READY")
        for _ in range(20):
            await publish(pipeline, *range(1, 11))
            if how == "digest":
                due(pipeline)
            taken(session)
            assert len(session.unacknowledged()) < 40
            assert len(session._due) < 40
        if how == "digest":
            due(pipeline)
        assert set(session.unacknowledged()) >= {one.position for one in pipeline.deliveries.pending(ANN)}

    served(tmp_path, script, bounds=BacklogLimits(most=5))


def test_a_digest_that_waits_takes_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.deliver.FEW", 10)

    async def script(pipeline):
        await subscribe(pipeline, "price > 0", digest=60)
        await connected(pipeline, "ann", "READY")
        for _ in range(20):
            await publish(pipeline, *range(1, 11))
        assert sum(len(one.positions) for one in pipeline.deliver._digests.values()) < 40

    served(tmp_path, script, bounds=BacklogLimits(most=5))


def test_the_shortest_digest_says_when_it_is_due(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0", digest=3600)
        await subscribe(pipeline, "price > 10", digest=60)
        await connected(pipeline, "ann", "READY")
        await publish(pipeline, 1)
        await publish(pipeline, 11)
        (digest,) = pipeline.deliver._digests.values()
        assert digest.due < pipeline.deliver.clock() + 61

    served(tmp_path, script)


def test_what_was_to_be_sent_again_before_a_stop_is_sent_again_after_it(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        session = await connected(pipeline, "ann", "READY")
        places = await publish(pipeline, 1)
        said(session)
        session._credit = 0
        session.tick(session._earliest)
        for directive in ("STOP", "READY"):
            await say(session, directive)
        session._credit = None
        session.tick(pipeline.deliver.clock())
        assert positions(said(session)) == places

    served(tmp_path, script)


def test_what_is_sent_again_and_again_takes_little_memory(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        session = await connected(pipeline, "ann", "READY")
        await publish(pipeline, 1, 2)
        for _ in range(10):
            session.tick(session._earliest)
        assert session._number > 10
        assert len(session._sent) == 2
        await say(session, "ACK", upto=2)  # an answer that is late
        assert pipeline.deliveries.pending(ANN) == []

    served(tmp_path, script)


def test_the_end_of_a_subscription_is_told(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline)
        id = await subscribe(pipeline, "price > 0", ttl=0.01)
        await say(session, "READY")
        while not session.outbox.qsize():
            await asyncio.sleep(0.01)
        (ended,) = said(session)
        assert (ended["directive"], ended["subscription"], ended["reason"]) == ("ENDED", id, "expired")
        await say(session, "ACK", upto=1)
        assert pipeline.deliveries.pending(ANN) == []

    served(tmp_path, script)


def test_the_own_subscriptions_are_listed_in_pages_that_a_message_takes(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline)
        wide = {"metadata": {"a": "x" * 300}}
        ids = [await subscribe(pipeline, f"price > {i}", **wide) for i in range(5)]
        await subscribe(pipeline, "price > 9", BOB)
        pages, after = [], 0
        while after is not None:
            (page,) = await say(session, "LIST", after=after, limit=4)
            assert len(json.dumps(page)) < 1000
            pages.append([one["subscription"] for one in page["subscriptions"]])
            after = page["next"]
        assert pages == [[id] for id in ids]
        (page,) = await say(session, "LIST", filter="none")
        assert page == {"directive": "ACK", "subscriptions": [], "next": None}
        (page,) = await say(session, "LIST", subscription=ids[0])
        (one,) = page["subscriptions"]
        assert (one["where"], one["metadata"], one["expires"]) == ("price > 0", wide["metadata"], None)

    served(tmp_path, script, message=1000)


def test_matches_that_fit_into_no_message_are_not_encoded(tmp_path, monkeypatch):
    encoded = []

    async def script(pipeline):
        await pipeline.subscriptions.subscribe_many(ANN, "default", [Wish("price > 0")] * 300)
        session = await connected(pipeline)
        plain = Matches.lists
        monkeypatch.setattr(Matches, "lists", lambda found: encoded.append(len(found.ids)) or plain(found))
        (answer,) = await say(session, "MATCH", event={"price": 1})
        assert answer["kind"] == "too-large"

    served(tmp_path, script, message=1000)
    assert not encoded


def test_what_matches_more_than_a_message_says_is_refused(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline)
        ids = [await subscribe(pipeline, "price > 0") for _ in range(30)]
        (answer,) = await say(session, "MATCH", event={"price": 1})
        assert answer["matches"] == [ids]
        (answer,) = await say(session, "MATCH", events=[{"price": 1}] * 9)
        assert (answer["kind"], answer["directive"]) == ("too-large", "ERROR")

    served(tmp_path, script, message=1000)


def test_publishing_over_a_session(tmp_path):
    async def script(pipeline):
        session = await connected(pipeline, "carl")
        (one,) = await say(session, "PUBLISH", event={"price": 1})
        (two,) = await say(session, "PUBLISH", events=[{"price": 1}, {"price": 2}], key="k")
        assert await say(session, "PUBLISH", events=[{"price": 1}, {"price": 2}], key="k") == [two]
        assert len({*one["positions"], *two["positions"]}) == 3
        for wrong, said in [
            ({}, '"event"'),
            ({"event": {}, "events": []}, '"event"'),
            ({"events": {}}, "Expected `array`"),
            ({"event": 7}, "an event is a JSON object"),
            ({"event": {"price": "x" * 3}, "filter": "no"}, "no filter"),
            ({"event": {}, "filter": 7}, "Expected `str`"),
        ]:
            (error,) = await say(session, "PUBLISH", **wrong)
            assert error["directive"] == "ERROR"
            assert said in error["error"]
            assert "row" not in error
        (error,) = await say(session, "PUBLISH", events=[{}, 7])
        assert error["row"] == 1
        assert events(pipeline, 1)

    served(tmp_path, script)


NEEDED = {
    Directive.CONNECT: {"user": "ann"},
    Directive.SUBSCRIBE: {"where": "price > 0"},
    Directive.ACK: {"upto": 0},
    Directive.CREDIT: {"more": 1},
    Directive.PUBLISH: {"event": {"price": -1}},
    Directive.MATCH: {"event": {"price": -1}},
    Directive.REPLACE: {"where": "price > 0"},
    Directive.EXPLAIN: {"event": {"price": -1}},
}
WAYS = {
    State.PRE_CONNECTED: [],
    State.CONNECTED: ["CONNECT"],
    State.RECEIVING: ["CONNECT", "READY"],
    State.DISCONNECTED: ["CONNECT", "DISCONNECT"],
}


def test_every_directive_in_every_state(tmp_path):
    """What the table allows is confirmed; anything else is an error, and changes nothing."""

    async def script(pipeline):
        id = await subscribe(pipeline, "price > 0")
        for state in State:
            for directive in {*Directive} - {Directive.SITE}:  # which a server alone refuses
                session = Conversation(pipeline)
                for way in WAYS[state]:
                    await say(session, way, **NEEDED.get(Directive(way), {}))
                session.outbox = asyncio.Queue()
                more = NEEDED.get(directive, {})
                if directive in (Directive.UNSUBSCRIBE, Directive.REPLACE, Directive.EXPLAIN):
                    more = {"subscription": id, **more}
                before = len(pipeline._owners), session.state
                await session.hear(json.dumps({"directive": directive, "tag": "t", **more}))
                answer = json.loads(session.outbox.get_nowait())
                assert answer["tag"] == "t"
                following = TABLE[state].get(directive)
                if following is None:
                    assert (answer["directive"], answer["kind"]) == ("ERROR", "directive")
                    assert (len(pipeline._owners), session.state) == before
                else:
                    assert answer["directive"] == ("CONNECTED" if directive == "CONNECT" else "ACK"), answer
                    assert session.state == following
                    if directive is Directive.UNSUBSCRIBE:
                        id = await subscribe(pipeline, "price > 0")
                session.lost()
        assert pipeline.deliver._receivers == {}

    served(tmp_path, script)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "this is not JSON"),
        ("[" * 100_000, "may nest 64 deep"),
        (b'{"\x82": 1}', "this is not JSON"),
        ("[]", "a message is a JSON object"),
        ("{}", '"directive" is one of CONNECT'),
        ('{"directive": ["READY"]}', '"directive" is one of CONNECT'),
        ('{"directive": "SUBSCRIBE"}', "SUBSCRIBE: Object missing required field `where`"),
        ('{"directive": "SUBSCRIBE", "where": "price >"}', "price >"),
        ('{"directive": "SUBSCRIBE", "where": "price > 1", "ttl": "1"}', '"ttl" is a number'),
        (
            '{"directive": "SUBSCRIBE", "where": "price > 1", "key": 1}',
            "SUBSCRIBE: Expected `str | null`, got `int` - at `$.key`",
        ),
        ('{"directive": "UNSUBSCRIBE"}', "UNSUBSCRIBE: Object missing required field `subscription`"),
        ('{"directive": "SUBSCRIBE", "where": "price > 1", "digets": 9}', "unknown field `digets`"),
        ('{"directive": "READY", "upto": 1}', "unknown field `upto`"),
        ('{"directive": "PUBLISH"}', 'give "event"'),
        ('{"directive": "UNSUBSCRIBE", "subscription": 99}', "there is no subscription 99"),
        ('{"directive": "ACK"}', "ACK: Object missing required field `upto`"),
        ('{"directive": "ACK", "upto": true}', "ACK: Expected `int`, got `bool` - at `$.upto`"),
        ('{"directive": "ACK", "upto": 1}', '"upto" must be the number of a delivery'),
        ('{"directive": "CREDIT", "more": -1}', "CREDIT: Expected `int` >= 0 - at `$.more`"),
    ],
)
def test_what_is_wrong_is_answered_and_changes_nothing(tmp_path, text, said):
    async def script(pipeline):
        session = await connected(pipeline)
        await session.hear(text)
        answer = json.loads(session.outbox.get_nowait())
        assert answer["directive"] == "ERROR"
        assert said in answer["error"]
        assert session.state is State.CONNECTED
        assert len(pipeline._owners) == 0

    served(tmp_path, script)


def test_a_wrong_user_is_refused_and_may_try_again(tmp_path):
    async def script(pipeline):
        session = Conversation(pipeline)
        for wrong in ({"user": ""}, {"token": "x"}, {}, {"user": 7}):
            (answer,) = await say(session, "CONNECT", **wrong)
            assert answer["directive"] == "ERROR"
            assert session.state is State.PRE_CONNECTED
        await say(session, "CONNECT", user="ann")
        assert session.state is State.CONNECTED

    served(tmp_path, script)


def test_who_may_not_stay_is_told_and_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.upkeep.EXPEL", 0.02)

    async def script(pipeline):
        session = await connected(pipeline, "ann", "READY")
        other = await connected(pipeline, "bob", "READY")
        pipeline.users.still = lambda who: who.user != "ann"
        while session in pipeline.presence.sessions:
            await asyncio.sleep(0.01)
        message, end = [session.outbox.get_nowait() for _ in range(session.outbox.qsize())]
        assert (json.loads(message)["kind"], end) == ("unauthenticated", None)
        assert list(pipeline.deliver._receivers) == ["bob"]
        assert pipeline.presence.sessions == {other}
        other.lost()
        assert pipeline.presence.sessions == set()

    served(tmp_path, script)


def test_connections_are_counted_while_they_are_open(tmp_path):
    async def script(pipeline):
        pipeline.users = Access(Users(engine(f"sqlite:///{tmp_path}/log.sqlite")), UserLimits(connections=2))
        sessions = [await connected(pipeline) for _ in range(2)]
        third = Conversation(pipeline)
        (answer,) = await say(third, "CONNECT", user="ann")
        assert (answer["kind"], third.state) == ("limit", State.PRE_CONNECTED)
        await connected(pipeline, "bob")
        sessions[0].lost()
        sessions[0].lost()
        assert (await say(third, "CONNECT", user="ann"))[0]["directive"] == "CONNECTED"
        pipeline.users.close()

    served(tmp_path, script)


def test_who_comes_with_the_name_of_a_removed_user_finds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.upkeep.EXPEL", 0.02)
    monkeypatch.setattr("rtfilter.service.access.user_checks.LOOK", 0.01)

    users = Users(engine(f"sqlite:///{tmp_path}/users.sqlite"))

    async def script(pipeline):
        users.add("root", "h", ["admin"])
        users.add("ann", "h", ["subscriber"])
        pipeline.users.still = lambda who: True  # also those who gave no password here
        await subscribe(pipeline, "price > 0")
        kept = await subscribe(pipeline, "price > 0", BOB)
        await publish(pipeline, 1)
        users.remove("ann")
        while users.read().gone:
            await asyncio.sleep(0.01)
        assert list(pipeline._owners) == [kept]
        await publish(pipeline, 2)
        users.add("ann", "h", ["subscriber"])
        assert pipeline.deliveries.pending(ANN) == []
        assert len(pipeline.deliveries.pending(BOB)) == 2

    async def again(pipeline):
        await publish(pipeline, 3)
        return len(pipeline.deliveries.pending(ANN)), len(pipeline.deliveries.pending(BOB))

    assert served(tmp_path, script, again, users=Access(users))[1] == (0, 3)
