"""Publish, store, match, deliver; and the same again after a restart."""

import asyncio
import concurrent.futures
import json
import logging
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import ANY

import numpy as np
import pytest
import sqlalchemy
from served import ADMIN, ANN, BOB, CARL, SCHEMA, events, pairs, publish, served, subscribe

from rtfilter import Attribute, EventFilter, Predicate, Schema
from rtfilter.adaptive import FixedPlan
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.definition import Definition
from rtfilter.service import asking, log_matcher, snapshots, stages, subscribed, upkeep, writing
from rtfilter.service.access import Access
from rtfilter.service.backlog import BacklogLimits, Policy
from rtfilter.service.deliver import FEWEST, Deliver, MatchedEvent, Owned
from rtfilter.service.log_matcher import Index
from rtfilter.service.owners import Owners, entry_of, expiry_of, removal_of
from rtfilter.service.parse import LISTED
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import Wish
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import (
    BusyError,
    ConflictError,
    NotAllowedError,
    NotAuthenticatedError,
    RequestError,
    ServiceError,
    TooManyError,
    UnknownError,
)
from rtfilter.service.upkeep import Keeping
from rtfilter.store.database import engine
from rtfilter.store.log import Log, TakenError
from rtfilter.store.log_tables import Entry, Kind, Logged, Request
from rtfilter.store.user_store import Users


async def change(pipeline, rng, steps, rules, wanted):
    """Random changes and events, beside a model; every change is at one place between events."""
    ids = list(rules)
    for step in range(steps):
        who = (ANN, BOB)[step % 2]
        low = int(rng.integers(100))
        id = await subscribe(pipeline, f"price >= {low}", who)
        rules[id] = who, low
        ids.append(id)
        if step % 5 == 4:
            gone = ids.pop(0)
            owner = rules.pop(gone)[0]
            await pipeline.subscriptions.unsubscribe(owner, gone)
            wanted[owner] -= {pair for pair in wanted[owner] if pair[1] == gone}
        if step % 7 == 3:
            other = ids[len(ids) // 2]
            rules[other] = rules[other][0], int(rng.integers(100))
            await pipeline.subscriptions.replace(rules[other][0], other, Wish(f"price >= {rules[other][1]}"))
        prices = rng.integers(100, size=3).tolist()
        places = await pipeline.publishing.publish(CARL, "default", events(pipeline, *prices))
        for place, price in zip(places, prices, strict=True):
            for id, (owner, low) in rules.items():
                if price >= low:
                    wanted[owner].add((place, id))


def written(folder):
    """The indexes that are whole."""
    return {one.parent.name for one in folder.glob("indexes/*/*-*/manifest.json")}


@pytest.mark.slow
@pytest.mark.parametrize("changes", [5, 100_000])
def test_deliveries_are_those_of_the_position_in_the_log_also_after_restarts(tmp_path, changes):
    rng, rules, wanted = np.random.default_rng(5), {}, {ANN: set(), BOB: set()}

    async def script(pipeline):
        indexes = written(tmp_path)
        assert {who: pairs(pipeline, who) for who in wanted} == wanted
        await change(pipeline, rng, 30, rules, wanted)
        (last,) = await publish(pipeline, -1)
        assert {who: pairs(pipeline, who) for who in wanted} == wanted
        while changes == 5 and written(tmp_path) <= indexes:
            await asyncio.sleep(0.01)
        return last

    served(tmp_path, script, script, script, keeping=Keeping(changes=changes))
    assert bool(list(tmp_path.glob("indexes/*/*"))) == (changes == 5)


def test_what_is_acknowledged_is_not_delivered_again(tmp_path):
    async def first(pipeline):
        await subscribe(pipeline, "price > 0")
        places = await publish(pipeline, 1, 2, 3)
        await pipeline.deliveries.acknowledge(BOB, places)
        await pipeline.deliveries.acknowledge(ANN, [places[0], places[2], 99])
        return [places[1]]

    async def second(pipeline):
        await publish(pipeline, -1)
        return [one.position for one in pipeline.deliveries.pending(ANN)]

    left, *again = served(tmp_path, first, second, second)
    assert again == [left, left]


def test_a_repeated_publish_is_one_event(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        once = await publish(pipeline, 1, 2, key="k")
        assert await publish(pipeline, 1, 2, key="k") == once
        with pytest.raises(ConflictError, match="'k' stands for another request"):
            await publish(pipeline, 1, 3, key="k")
        assert await publish(pipeline, 1, 2, key="k", who=ADMIN) != once
        return once, [one.position for one in pipeline.deliveries.pending(ANN)][:2]

    (once, found), (once_more, _) = served(tmp_path, script, script)
    assert once == once_more == found


def test_a_repeated_subscribe_is_one_subscription(tmp_path):
    async def script(pipeline):
        ids = {
            await pipeline.subscriptions.subscribe(ANN, "default", Wish("price > 0"), "k") for _ in range(3)
        }
        with pytest.raises(ConflictError):
            await pipeline.subscriptions.subscribe(ANN, "default", Wish("price > 1"), "k")
        return ids

    first, second = served(tmp_path, script, script)
    assert first == second
    assert len(first) == 1


def test_a_repeated_subscribe_is_never_one_that_has_ended(tmp_path):
    now = [1000.0]

    async def script(pipeline):
        async def ask(wish, key="k"):
            return await pipeline.subscriptions.subscribe(ANN, "default", wish, key)

        first = await ask(Wish("price > 0"))
        await pipeline.subscriptions.replace(ANN, first, Wish("price > 9"))
        assert await ask(Wish("price > 0")) == first
        await pipeline.subscriptions.unsubscribe(ANN, first)
        second = await ask(Wish("price > 0"))
        assert second > first
        assert await ask(Wish("price > 0")) == second
        await pipeline.subscriptions.unsubscribe(ANN, second)
        third = await ask(Wish("price > 1", ttl=5))  # the key is free for another request
        now[0] += 6
        assert await ask(Wish("price > 1", ttl=5)) > third

    served(tmp_path, script, clock=lambda: now[0])


def test_of_several_that_are_asked_for_again_those_that_have_ended_are_told(tmp_path):
    async def script(pipeline):
        wishes = [Wish(f"price > {i}") for i in range(3)]
        ids = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")
        await pipeline.subscriptions.unsubscribe(ANN, ids[1])
        again = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")
        assert (again[0], again[2]) == (ids[0], ids[2])
        assert str(again[1]) == f"the subscription {ids[1]} has ended; ask for it with another key"

    served(tmp_path, script)


def test_many_publishers_are_few_transactions(tmp_path, monkeypatch):
    commits = []
    plain = Log.commit
    monkeypatch.setattr(Log, "commit", lambda log, *given: commits.append(given) or plain(log, *given))

    async def script(pipeline):
        commits.clear()
        await asyncio.gather(
            *(pipeline.publishing.publish(CARL, "default", events(pipeline, i)) for i in range(50))
        )
        return len(commits)

    (count,) = served(tmp_path, script)
    assert count <= 2


def test_a_failed_transaction_is_told_and_loses_no_progress(tmp_path, monkeypatch):
    async def first(pipeline):
        await subscribe(pipeline, "price > 0")
        places = await publish(pipeline, 1, 2, 3)

        def fail(*_):
            raise sqlalchemy.exc.OperationalError("", {}, Exception())

        with monkeypatch.context() as patch:
            patch.setattr(Log, "commit", fail)
            with pytest.raises(BusyError, match="the log cannot be written"):
                await publish(pipeline, 1)
            with pytest.raises(BusyError):
                await pipeline.deliveries.acknowledge(ANN, places[:1])
        await publish(pipeline, 4)
        return pairs(pipeline, ANN)

    async def second(pipeline):
        return pairs(pipeline, ANN)

    before, after = served(tmp_path, first, second)
    assert before == after
    assert len(before) == 4  # also what the refused acknowledgement was about


def test_each_user_is_told_that_acknowledgements_cannot_be_written(tmp_path, monkeypatch):
    async def script(pipeline):
        for who in (ANN, BOB):
            await subscribe(pipeline, "price > 0", who)
        places = await publish(pipeline, 1)

        def fail(*_):
            raise sqlalchemy.exc.OperationalError("", {}, Exception("disk is full"))

        with monkeypatch.context() as patch:
            patch.setattr(Log, "commit", fail)
            for who in (ANN, BOB):
                with pytest.raises(BusyError, match="the log cannot be written"):
                    await asyncio.wait_for(pipeline.deliveries.acknowledge(who, places), 20)

    served(tmp_path, script)


def test_a_database_that_is_away_is_logged_once_and_once_when_it_is_back(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(upkeep, "TICK", 3600.0)  # nothing else is written meanwhile

    async def script(pipeline):
        def fail(*_):
            raise sqlalchemy.exc.OperationalError("", {}, Exception("gone away"))

        for _ in range(2):
            await publish(pipeline, 1)
            with monkeypatch.context() as patch:
                for name in ("commit", "before", "put_filter"):
                    patch.setattr(Log, name, fail)
                with pytest.raises(BusyError):
                    await pipeline.filters.add(ADMIN, "more", Definition(SCHEMA))
                for _ in range(3):
                    with pytest.raises(BusyError):
                        await publish(pipeline, 1)
                await pipeline._upkeep._soon(pipeline._upkeep._trim(0.0))
        await publish(pipeline, 1)

    served(tmp_path, script)
    told = [(one.levelname, one.exc_info) for one in caplog.records if one.levelno >= logging.WARNING]
    assert told == 2 * [("CRITICAL", None), ("WARNING", None)]
    assert "gone away" in caplog.text


def test_nothing_wrong_is_stored(tmp_path):
    async def script(pipeline):
        head = pipeline.status.counts["head"]
        parse = pipeline.filters.parse("default")
        for line, said in [
            (b"{", "event 1: this is not JSON"),
            (b"[]", "event 1: an event is a JSON object"),
            (b'{"\x82": 1}', "event 1: this is not JSON"),
        ]:
            with pytest.raises(EventError, match=said):
                parse.lines(b'{"price": 1}\n' + line)
        for wish, error in [
            (Wish("nothing > 1"), PredicateError),
            (Wish(7), RequestError),
            (Wish("price > 1", ttl=0), RequestError),
            (Wish("price > 1", ttl=True), RequestError),
            (Wish("price > 1", digest=0.5), RequestError),
            (Wish("price > 1", order="time"), RequestError),
            (Wish("price > 1", metadata={"a": "b" * 5000}), RequestError),
        ]:
            with pytest.raises(error):
                await pipeline.subscriptions.subscribe(ANN, "default", wish)
        for key in ["", "x" * 201, "\n"]:
            with pytest.raises(RequestError, match="a key has"):
                await publish(pipeline, 1, key=key)
        with pytest.raises(UnknownError):
            await pipeline.subscriptions.subscribe(ANN, "other", Wish("price > 1"))
        with pytest.raises(UnknownError):
            pipeline.filters.parse("other")
        assert pipeline.status.counts["head"] == head
        id = await subscribe(pipeline, {"price": [5]})
        for who, asked in [(BOB, id), (ANN, id + 1)]:
            for deed in (
                pipeline.subscriptions.unsubscribe(who, asked),
                pipeline.subscriptions.show(who, asked),
                pipeline.subscriptions.replace(who, asked, Wish("price > 1")),
                pipeline.asking.explain(who, "default", b"{}", asked),
            ):
                with pytest.raises(UnknownError, match=f"^there is no subscription {asked}$"):
                    await deed

    served(tmp_path, script)


def test_a_name_with_nul_is_refused_by_every_database(tmp_path):
    async def script(pipeline):
        schema = Schema({"a\0b": float})
        for deed in (
            pipeline.subscriptions.list(ANN, filter="\0"),
            pipeline.subscriptions.list(ADMIN, user="a\0"),
            pipeline.filters.add(ADMIN, "more", Definition(schema), "a\0b"),
        ):
            with pytest.raises(RequestError, match="no NUL"):
                await deed

    served(tmp_path, script)


def test_a_report_tells_of_each_row(tmp_path):
    async def script(pipeline):
        found = await pipeline.subscriptions.subscribe_many(
            ANN, "default", [Wish("price > 1"), Wish("price >"), Wish("price > 2", ttl=-1), Wish("price > 3")]
        )
        assert [type(one) for one in found] == [int, PredicateError, RequestError, int]
        (place,) = await publish(pipeline, 5)
        return pairs(pipeline, ANN) == {(place, found[0]), (place, found[3])}

    assert served(tmp_path, script) == [True]


def test_too_many_unbounded_and_too_many_subscriptions_are_refused(tmp_path):
    async def script(pipeline):
        await pipeline.filters.add(ADMIN, "default", Definition(SCHEMA, max_unbounded=2), "symbol")
        free = Wish("price * 2 > price")
        found = await pipeline.subscriptions.subscribe_many(
            ANN, "default", [free, Wish("price > 1"), free, free]
        )
        assert [type(one) for one in found] == [int, int, int, TooManyError]
        await publish(pipeline, 1)
        with pytest.raises(TooManyError, match="nothing bounds"):
            await pipeline.subscriptions.subscribe(ANN, "default", free)
        pipeline.users.most_subscriptions = 4
        await subscribe(pipeline, "price > 1")
        with pytest.raises(TooManyError, match="4 subscriptions"):
            await subscribe(pipeline, "price > 1")

    served(tmp_path, script)


def test_requests_at_once_put_in_no_more_unbounded_subscriptions_than_one_may(tmp_path):
    async def script(pipeline):
        await pipeline.filters.add(ADMIN, "default", Definition(SCHEMA, max_unbounded=3), "symbol")
        free = [Wish("price * 2 > price")] * 2
        asked = (pipeline.subscriptions.subscribe_many(who, "default", free) for who in [ANN, BOB] * 4)
        found = [one for made in await asyncio.gather(*asked) for one in made]
        return sum(isinstance(one, int) for one in found)

    assert served(tmp_path, script) == [3]


def test_requests_at_once_put_in_no_more_subscriptions_than_a_user_may_have(tmp_path):
    async def script(pipeline):
        pipeline.users.most_subscriptions = 3
        wishes = [Wish("price > 1")] * 2
        asked = (pipeline.subscriptions.subscribe_many(ANN, "default", wishes) for _ in range(4))
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in found].count(TooManyError) == 3
        return len(await pipeline.subscriptions.list(ANN))

    assert served(tmp_path, script) == [2]


def test_a_repeated_request_puts_in_no_more_unbounded_subscriptions_than_one_may(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.subscribed.PART", 2)

    async def script(pipeline):
        await pipeline.filters.add(ADMIN, "default", Definition(SCHEMA, max_unbounded=1), "symbol")
        wishes = [Wish("price > 1")] * 2 + [Wish("price * 2 > price")] * 8
        first = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")
        again = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")
        assert again[:2] == first[:2]
        assert sum(isinstance(one, int) for one in first) == 3
        return len((await pipeline.subscriptions.list(ANN))[0])

    assert served(tmp_path, script) == [3]


def test_a_repeated_request_puts_in_no_more_subscriptions_than_a_user_may_have(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.subscribed.PART", 2)
    full = BusyError("full")

    async def script(pipeline):
        wishes, plain = [Wish(f"price > {i}") for i in range(6)], pipeline._store.put

        async def put(entries, key=None):
            if key is not None and "\n" in key.key:
                raise full
            return await plain(entries, key)

        with monkeypatch.context() as patch:
            patch.setattr(pipeline._store, "put", put)
            first = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")
        assert first[2:] == [full] * 4
        pipeline.users.most_subscriptions = 4
        again = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")
        assert again[:2] == first[:2]
        assert [type(one) for one in again] == [int] * 4 + [TooManyError] * 2
        return (
            await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k") == again[:4] + [ANY] * 2
        )

    assert served(tmp_path, script) == [True]


def test_a_request_whose_subscription_ends_while_it_is_repeated_takes_nobodys_room(tmp_path, monkeypatch):
    async def script(pipeline):
        await pipeline.filters.add(ADMIN, "default", Definition(SCHEMA, max_unbounded=1), "symbol")
        free = Wish("price * 2 > price")
        id, plain = await pipeline.subscriptions.subscribe(ANN, "default", free, "k"), subscribed.check

        def checked(wishes, index):
            asyncio.run_coroutine_threadsafe(pipeline.subscriptions.unsubscribe(ANN, id), loop).result(60)
            monkeypatch.setattr(subscribed, "check", plain)
            asyncio.run_coroutine_threadsafe(
                pipeline.subscriptions.subscribe(BOB, "default", free), loop
            ).result(60)
            return plain(wishes, index)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(subscribed, "check", checked)
        with pytest.raises(UnknownError, match="has ended"):
            await pipeline.subscriptions.subscribe(ANN, "default", free, "k")
        return [len((await pipeline.subscriptions.list(who))[0]) for who in (ANN, BOB)]

    assert served(tmp_path, script) == [[0, 1]]


def test_nothing_is_stored_for_a_user_who_may_not_stay_any_longer(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.subscribed.PART", 2)

    async def script(pipeline):
        plain = pipeline._store.put

        async def put(*given):
            pipeline.users.still = lambda who: who == BOB
            return await plain(*given)

        pipeline._store.put = put
        found = await pipeline.subscriptions.subscribe_many(ANN, "default", [Wish("price > 1")] * 4)
        assert [type(one) for one in found] == [int, int] + [NotAuthenticatedError] * 2
        head = pipeline.status.counts["head"]
        with pytest.raises(NotAuthenticatedError, match="no longer valid"):
            await publish(pipeline, 1)
        return pipeline.status.counts["head"] - head

    assert served(tmp_path, script) == [0]


def test_what_is_being_stored_of_a_removed_user_is_removed_too(tmp_path, monkeypatch):
    plain, begun, go = Log.commit, threading.Event(), threading.Event()

    def commit(log, requests, progress=None):
        if any(one.entries for one in requests):
            begun.set()
            assert go.wait(60)
        return plain(log, requests, progress)

    async def script(pipeline):
        with monkeypatch.context() as patch:
            patch.setattr(Log, "commit", commit)
            asked = asyncio.create_task(subscribe(pipeline, "price > 0"))
            while not begun.is_set():
                await asyncio.sleep(0.001)
            forgets = asyncio.create_task(pipeline.presence.forget("ann"))
            for _ in range(100):
                await asyncio.sleep(0)
            go.set()
            await asyncio.gather(asked, forgets)
        return pipeline._owners.of_user["ann"]

    assert served(tmp_path, script) == [0]


async def matched_by(pipeline):
    pipeline._match.works = True  # so that it is searched in a thread
    return [one async for one in await pipeline.asking.match(ANN, "default", SCHEMA.read([{"price": 5.0}]))]


@pytest.mark.parametrize(
    ("turns", "ask"),
    [
        (
            lambda pipeline: pipeline.asking._queries_of,
            lambda pipeline: pipeline.asking.query(ANN, "default"),
        ),
        (
            lambda pipeline: pipeline.subscriptions._lists_of,
            lambda pipeline: pipeline.subscriptions.list(ANN),
        ),
        (lambda pipeline: pipeline.asides.beside._pieces, matched_by),
    ],
)
def test_who_waits_for_a_turn_and_may_not_stay_reads_nothing(tmp_path, turns, ask):
    async def script(pipeline):
        turn = turns(pipeline).one("ann")
        async with turn:
            asked = asyncio.create_task(ask(pipeline))
            while not turn._waiters:
                await asyncio.sleep(0)
            pipeline.users.still = lambda who: False
        with pytest.raises(NotAuthenticatedError):
            await asked

    served(tmp_path, script)


def test_a_subscription_ends_at_its_time_and_says_so(tmp_path):
    now = [1000.0]

    async def first(pipeline):
        id = await subscribe(pipeline, "price > 0", ttl=10)
        assert (await pipeline.subscriptions.show(ANN, id)).expires == 1010
        (place,) = await publish(pipeline, 1)
        now[0] = 1010.0
        await publish(pipeline, 2)
        while id in pipeline._owners:
            await asyncio.sleep(0.01)
        await publish(pipeline, 3)
        before, one = pipeline.deliveries.pending(ANN)
        assert (before.position, before.subscriptions) == (place, (id,))
        assert (one.ended, one.subscriptions) == ("expired", (id,))
        assert await pipeline.subscriptions.list(ANN) == ([], False)
        return told(pipeline)

    async def second(pipeline):
        return told(pipeline)

    def told(pipeline):
        return [(one.position, one.subscriptions, one.ended) for one in pipeline.deliveries.pending(ANN)]

    before, after = served(tmp_path, first, second, clock=lambda: now[0])
    assert before == after


def test_what_an_expired_subscription_matched_is_told_also_where_a_crash_came_between(tmp_path):
    log = Log(engine(f"sqlite:///{tmp_path}/log.sqlite"))
    since = log.put_filter("default", json.dumps(Definition(SCHEMA).to_json()).encode(), "symbol").since
    wish, owned = (
        Wish("price > 0", ttl=10, order="key"),
        Owned(since + 1, "ann", "default", 1010.0, None, True),
    )
    made = entry_of(Kind.SUBSCRIBE, "default", "ann", wish, 1000.0, 0.0)
    event = Entry(Kind.EVENT, "default", "carl", b'{"price": 1, "symbol": "a"}', at=1001.0)
    end = expiry_of(owned, 1010.0, 0.0)
    for entry in (made, event, end, event):
        log.commit([Request([entry])])
    log.close()

    async def script(pipeline):
        await pipeline.settled(log.head)
        return [(one.position - since, one.ended) for one in pipeline.deliveries.pending(ANN)]

    assert served(tmp_path, script, clock=lambda: 1011.0) == [[(2, None), (3, "expired")]]


def unsettled(folder):
    """A log with 3 subscriptions of ann, as a killed server leaves it."""
    log = Log(engine(f"sqlite:///{folder}/log.sqlite"))
    log.put_filter("default", json.dumps(Definition(SCHEMA).to_json()).encode(), "symbol")
    wishes = [entry_of(Kind.SUBSCRIBE, "default", "ann", Wish("price > 0"), 1.0, 0.0) for _ in range(3)]
    (placed,) = log.commit([Request(wishes)])
    log.close()
    return [*range(placed.first, placed.first + 3)]


@pytest.mark.parametrize("asked", ["match", "explain"])
def test_what_is_asked_right_after_a_crash_is_answered_whole(tmp_path, monkeypatch, asked):
    monkeypatch.setattr("rtfilter.service.log_matcher.SIZE", 1)
    ids = unsettled(tmp_path)

    async def script(pipeline):
        if asked == "match":
            event = pipeline.filters.parse("default").objects([{"price": 1}]).table
            return [found.lists() async for found in await pipeline.asking.match(ANN, "default", event)] == [
                [ids]
            ]
        return (await pipeline.asking.explain(ANN, "default", b'{"price": 1}', ids[-1])).matched

    assert served(tmp_path, script, definition=None) == [True]


def test_who_asks_while_subscriptions_are_loaded_for_long_is_told_to_come_again(tmp_path, monkeypatch):
    monkeypatch.setattr(log_matcher, "LIMIT", 0.01)
    ids = unsettled(tmp_path)

    async def script(pipeline):
        with monkeypatch.context() as patch:
            patch.setattr(pipeline._match, "reached", lambda position: asyncio.Event().wait())
            with pytest.raises(BusyError, match="try again") as told:
                await asyncio.wait_for(pipeline.asking.explain(ANN, "default", b"{}", ids[0]), 10)
        return told.value.retry_after

    assert served(tmp_path, script, definition=None) == [1.0]


@pytest.mark.parametrize("policy", Policy)
def test_a_backlog_has_bounds(tmp_path, policy):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        places = await publish(pipeline, 1, 2, 3, 4)
        left = [one.position for one in pipeline.deliveries.pending(ANN)]
        if policy == Policy.REFUSE:
            with pytest.raises(BusyError, match="backlog is full"):
                await publish(pipeline, 5)
            await pipeline.deliveries.acknowledge(ANN, left[:2])
            await publish(pipeline, 5)
        return {Policy.DROP_OLDEST: places[1:], Policy.DROP_NEWEST: places[:3], Policy.REFUSE: places}[
            policy
        ] == left, pipeline.status.counts["dropped"]

    async def again(pipeline):
        return len(pipeline.deliveries.pending(ANN))

    found, left = served(tmp_path, script, again, bounds=BacklogLimits(most=3, policy=policy))
    assert found == (True, int(policy != Policy.REFUSE))
    assert left == 3


def test_what_is_too_old_expires(tmp_path):
    now = [1000.0]

    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        await publish(pipeline, 1)
        now[0] += 5
        (place,) = await publish(pipeline, 2)
        now[0] += 6
        while pipeline.status.counts["expired"] < 1:
            await asyncio.sleep(0.01)
        return [one.position for one in pipeline.deliveries.pending(ANN)] == [place]

    assert served(tmp_path, script, bounds=BacklogLimits(age=10), clock=lambda: now[0]) == [True]


@pytest.mark.slow
def test_events_of_one_key_are_told_in_order(tmp_path):
    """All else is told as soon as it is known."""
    told = []

    async def script(pipeline):
        index = pipeline.filters._indexes["default"].filter
        index.configure(controller=FixedPlan(0, 16))
        index.policy = lambda workload: np.random.default_rng(3).permutation(len(workload))
        plain = pipeline.deliver._take
        pipeline.deliver._take = lambda user, one: (
            told.extend((user, at.position) for at in one) or plain(user, one)
        )
        await subscribe(pipeline, "price >= 0", order="key")
        for low in range(300):
            await subscribe(pipeline, f"price >= {low}", BOB)
        rows = [{"price": float(i * 37 % 300), "symbol": "ab"[i % 2]} for i in range(500)]
        places = await pipeline.publishing.publish(
            CARL, "default", pipeline.filters.parse("default").objects(rows).bodies
        )
        await pipeline.settled(places[-1])
        return places

    (places,) = served(tmp_path, script)
    assert sum(user == "ann" for user, _ in told) == 500
    for key in range(2):
        mine = [place for user, place in told if user == "ann" and (place - places[0]) % 2 == key]
        assert mine == places[key::2]
    assert [place for user, place in told if user == "bob"] != places


def test_filters_are_apart(tmp_path):
    async def script(pipeline):
        other = Schema({"level": int})
        info = await pipeline.filters.add(ADMIN, "other", Definition(other))
        assert await pipeline.filters.add(ADMIN, "other", Definition(other)) == info
        with pytest.raises(ConflictError):
            await pipeline.filters.add(ADMIN, "other", Definition(Schema({"level": float})))
        for name in ["", "..", "a/b", "x" * 65]:
            with pytest.raises(RequestError):
                await pipeline.filters.add(ADMIN, name, Definition(other))
        id = await pipeline.subscriptions.subscribe(ANN, "other", Wish("level > 3"))
        await subscribe(pipeline, "price > 3")
        (place,) = await pipeline.publishing.publish(CARL, "other", [b'{"level": 5}'])
        await publish(pipeline, 1)
        assert pairs(pipeline, ANN) == {(place, id)}
        assert [one.info.name for one in pipeline.filters.all()] == ["default", "other"]

    async def again(pipeline):
        (one,) = pipeline.deliveries.pending(ANN)
        assert one.filter == "other"
        await pipeline.filters.remove(ADMIN, "other")
        (ended,) = pipeline.deliveries.pending(ANN)
        assert ended.ended == "its filter was removed"
        await pipeline.deliveries.acknowledge(ANN, [ended.position])
        info = await pipeline.filters.add(ADMIN, "other", Definition(Schema({"price": float})))
        assert (await pipeline.asking.query(ADMIN, "other")).events == []
        assert await pipeline.subscriptions.list(ANN, "other") == ([], False)
        return info

    async def at_last(pipeline):
        return pipeline.filters.all()[1].info

    _, before, after = served(tmp_path, script, again, at_last)
    assert before == after


def test_only_a_quick_search_of_an_index_at_rest_is_done_on_the_event_loop(tmp_path):
    async def script(pipeline):
        mine = await subscribe(pipeline, "price > 3")
        await pipeline.settled(mine)
        index, table = (
            pipeline.filters._indexes["default"],
            pipeline.filters.parse("default").one(b'{"price": 5}').table,
        )
        places, look_up = [], index.look_up

        def noted(events):
            places.append(threading.current_thread() is threading.main_thread())
            return look_up(events)

        index.look_up = noted
        for pace, works in [(0.0, False), (1.0, False), (0.0, True)]:
            index.pace, pipeline._match.works = pace, works
            assert (await matched(pipeline, ANN, table)) == [[mine]]
        assert places == [True, False, False]

    served(tmp_path, script)


@pytest.mark.parametrize("count", [1, 3])
def test_the_index_gets_few_predicates_as_they_were_read_for_the_check(tmp_path, monkeypatch, count):
    plain, given = EventFilter.subscribe_many, []

    def subscribe_many(self, low, *more, **named):
        given.extend(map(type, low))
        return plain(self, low, *more, **named)

    monkeypatch.setattr(EventFilter, "subscribe_many", subscribe_many)

    async def script(pipeline):
        wishes = [Wish("price > 3"), Wish({"price": [4]}), Wish("price > 5")][:count]
        made = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes)
        await pipeline.settled(made[-1])
        (place,) = await publish(pipeline, 4)
        return {(place, id) for id in made[:2]} == pairs(pipeline, ANN)

    assert served(tmp_path, script) == [True]
    assert given == [Predicate] * count


async def matched(pipeline, who, table):
    """The ids of each event."""
    parts = await pipeline.asking.match(who, "default", table)
    return [ids async for part in parts for ids in part.lists()]


def test_match_and_explain_tell_of_ones_own(tmp_path):
    async def script(pipeline):
        mine, others = await subscribe(pipeline, "price > 3"), await subscribe(pipeline, "price > 4", BOB)
        await publish(pipeline, 0)
        five = events(pipeline, 5, 1)
        read = pipeline.filters.parse("default").lines(b"\n".join(five)).table
        assert (await matched(pipeline, ANN, read)) == [[mine], ()]
        both = await matched(pipeline, ADMIN, read)
        assert [sorted(ids) for ids in both] == [[mine, others], []]
        assert (await pipeline.asking.explain(ANN, "default", five[0], mine)).matched
        assert pipeline.deliveries.pending(ANN) == []

    served(tmp_path, script)


def test_stored_events_are_queried_by_predicate_and_time(tmp_path):
    now = [1000.0]

    async def script(pipeline):
        for step in range(20):
            now[0] = 1000.0 + step
            await publish(pipeline, step, who=CARL if step % 2 else ADMIN)
        page = await pipeline.asking.query(ANN, "default", "price > 4", limit=5)
        assert [one.at for one in page.events] == [1005, 1006, 1007, 1008, 1009]
        page = await pipeline.asking.query(ANN, "default", "price > 4", after=page.next, limit=100)
        assert ([one.at for one in page.events], page.next) == ([*range(1010, 1020)], None)
        page = await pipeline.asking.query(ANN, "default", since=1003.0, until=1006.0)
        assert [one.at for one in page.events] == [1003, 1004, 1005]
        page = await pipeline.asking.query(CARL, "default", {"price": [{"numeric": ["<", 5]}]})
        assert [one.at for one in page.events] == [1001, 1003]

    served(tmp_path, script, clock=lambda: now[0])


def test_old_events_are_removed_and_nothing_else(tmp_path):
    now = [1000.0]

    async def script(pipeline):
        id = await subscribe(pipeline, "price > 0")
        gone = await subscribe(pipeline, "price > 0")
        await publish(pipeline, 1, key="k")
        await pipeline.subscriptions.unsubscribe(ANN, gone)
        now[0] = 2000.0
        (place,) = await publish(pipeline, 2)
        await pipeline.deliveries.acknowledge(ANN, [])
        await pipeline._upkeep._trim(now[0])
        assert [one.position for one in (await pipeline.asking.query(ADMIN, "default")).events] == [place]
        assert [one.id for one in (await pipeline.subscriptions.list(ANN))[0]] == [id]
        assert len(list(pipeline._log.entries(0))) == 2
        return id

    async def again(pipeline):
        (place,) = await publish(pipeline, 5)
        return {id for at, id in pairs(pipeline, ANN) if at == place}

    id, found = served(tmp_path, script, again, keeping=Keeping(retention=500), clock=lambda: now[0])
    assert found == {id}


def test_roles_are_needed(tmp_path):
    nobody = Identity("x", frozenset())

    async def script(pipeline):
        for role, deeds in {
            Role.PUBLISHER: [lambda who: pipeline.publishing.publish(who, "default", [])],
            Role.SUBSCRIBER: [
                lambda who: subscribe(pipeline, "price > 1", who),
                lambda who: pipeline.asking.match(who, "default", []),
                lambda who: pipeline.deliveries.acknowledge(who, []),
            ],
            Role.ADMIN: [
                lambda who: pipeline.subscriptions.list(who, user="ann"),
                lambda who: pipeline.subscriptions.list(who, everyone=True),
                lambda who: pipeline.filters.add(who, "x", Definition(Schema({"a": int}))),
                lambda who: pipeline.filters.remove(who, "x"),
            ],
        }.items():
            for deed in deeds:
                others = frozenset(Role) - {role, Role.ADMIN}
                for who in (nobody, Identity("x", others)):
                    with pytest.raises(NotAllowedError, match=f"role {role} is needed"):
                        await deed(who)
                await deed(Identity("x", frozenset({role})))

    served(tmp_path, script)


def test_a_damaged_index_is_built_from_the_log(tmp_path, caplog):
    async def first(pipeline):
        for low in range(10):
            await subscribe(pipeline, f"price > {low}")
        await publish(pipeline, 0)
        while not written(tmp_path):
            await asyncio.sleep(0.01)

    async def second(pipeline):
        await publish(pipeline, 100)
        return len(pairs(pipeline, ANN))

    served(tmp_path, first, keeping=Keeping(changes=5))
    (manifest,) = tmp_path.glob("indexes/*/*/manifest.json")
    manifest.write_text("{")
    assert served(tmp_path, second) == [10]
    assert "it is built from the log" in caplog.text


def test_a_stage_that_fails_is_seen_and_nothing_is_settled(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        await publish(pipeline, 0)
        before = pipeline.status.counts["settled"]
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        pipeline.deliver._take = lambda *_: 1 / 0
        await pipeline.publishing.publish(CARL, "default", events(pipeline, 1))
        assert isinstance(await pipeline.died(), ZeroDivisionError)
        assert pipeline.status.counts["settled"] == before
        return before

    async def again(pipeline):
        await publish(pipeline, 0)
        return len(pairs(pipeline, ANN))

    with pytest.raises(AssertionError):  # it is not healthy
        served(tmp_path, script)
    assert served(tmp_path, again) == [1]


def test_without_users_everyone_is_who_they_say(tmp_path):
    async def script(pipeline):
        found = [await pipeline.users.password(name, "") for name in ("ann", "admin")]
        assert [Role.ADMIN in one.roles for one in found] == [False, True]
        for wrong in ("", "x" * 201, "a\nb"):
            with pytest.raises(NotAuthenticatedError):
                await pipeline.users.password(wrong, "")
        with pytest.raises(NotAuthenticatedError, match="no users"):
            await pipeline.users.token("rtf_1")

    served(tmp_path, script)


def test_errors_have_names():
    kinds = [kind.kind for kind in ServiceError.__subclasses__()]
    assert len(set(kinds)) == len(kinds)


def without_progress(path, *entries):
    """Put entries into the log as a server does that is killed before it has matched them."""
    log = Log(engine(f"sqlite:///{path}/log.sqlite"))
    placed = [log.commit([Request([entry])])[0].first for entry in entries]
    log.close()
    return placed


def test_the_end_of_a_subscription_is_told_also_where_the_server_was_killed(tmp_path):
    async def subscribed(pipeline):
        return await subscribe(pipeline, "price > 1", ttl=1000.0)

    async def told(pipeline):
        return [(one.position, one.subscriptions, one.ended) for one in pipeline.deliveries.pending(ANN)]

    (id,) = served(tmp_path, subscribed)
    (place,) = without_progress(tmp_path, removal_of(Owned(id, "ann", "default"), "expired", 2e9, 0.0))
    assert served(tmp_path, told, told) == [[(place, (id,), "expired")]] * 2


def test_what_an_earlier_run_delivered_is_acknowledged_before_it_is_known_again(tmp_path):
    async def subscribed(pipeline):
        await subscribe(pipeline, "price > 1")

    async def acknowledged(pipeline):
        await pipeline.deliveries.acknowledge(ANN, [place])
        await pipeline.settled(place)
        return pairs(pipeline, ANN)

    served(tmp_path, subscribed)
    (place,) = without_progress(tmp_path, Entry(Kind.EVENT, "default", "carl", b'{"price": 2}'))
    assert served(tmp_path, acknowledged) == [set()]


def test_what_fails_alone_is_left_out_and_the_rest_goes_on(tmp_path, monkeypatch, caplog):
    """Else a server would fail at each start, at the same place."""

    def fails_at(name, wrong):
        plain = getattr(EventFilter, name)

        def wrapped(filter, *given, **more):
            if wrong in str(given):
                raise ZeroDivisionError
            return plain(filter, *given, **more)

        monkeypatch.setattr(EventFilter, name, wrapped)

    for name in ("stream", "subscribe", "subscribe_many", "update"):
        fails_at(name, "1313")

    async def script(pipeline):
        wishes = [Wish("price > 0"), Wish("price < 1313"), Wish("price > 1")]
        one, bad, two = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes)
        places = await publish(pipeline, 1, 2, 1313, 3)
        await pipeline.subscriptions.replace(ANN, two, Wish("price > 1313"))
        later = await publish(pipeline, 5)
        await pipeline.subscriptions.unsubscribe(ANN, bad)
        found = {(places[0], one), *((at, id) for at in (places[1], places[3]) for id in (one, two))}
        return pairs(pipeline, ANN) == {*found, (later[0], one)}

    async def again(pipeline):
        before = pairs(pipeline, ANN)
        await publish(pipeline, 4)
        return len(pairs(pipeline, ANN) - before) == 1

    assert served(tmp_path, script, again) == [True, True]
    left_out = [one.message for one in caplog.records if one.levelname == "CRITICAL"]
    assert any("the event at position" in one for one in left_out)
    assert any("the subscription" in one for one in left_out)
    assert any("the change at position" in one for one in left_out)


def test_nobody_waits_for_the_log_once_another_server_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "TOGETHER", 1)
    answers, undone = [], []

    async def script(pipeline):
        other = Log(engine(f"sqlite:///{tmp_path}/log.sqlite"))
        other.close()
        for _ in range(2):  # while the stage that writes ends, and afterwards
            published = [
                pipeline.publishing.publish(CARL, "default", events(pipeline, price)) for price in range(3)
            ]
            flushed = pipeline._store.flush(undo=lambda: undone.append(True))
            answers.append(await asyncio.gather(*published, flushed, return_exceptions=True))
            answers.append([await pipeline.died()])

    with pytest.raises(AssertionError):  # it is not healthy
        served(tmp_path, script)
    assert [[type(one) for one in some] for some in answers] == [[BusyError] * 4, [TakenError]] * 2
    assert all("the log cannot be written" in str(one) for one in answers[0] + answers[2])
    assert len(undone) == 2


def test_an_error_of_a_transaction_ends_no_stage(tmp_path, monkeypatch):
    async def script(pipeline):
        with monkeypatch.context() as patch:
            patch.setattr(Log, "commit", lambda *_: 1 // 0)
            with pytest.raises(BusyError):
                await publish(pipeline, 1)
        return len(await publish(pipeline, 1))

    assert served(tmp_path, script) == [1]


@contextmanager
def a_commit_that_hangs(monkeypatch, error=None):
    """Within, the first transaction hangs until the event that this gives is set; then it may fail."""
    plain, begun, ended = Log.commit, threading.Event(), threading.Event()
    ended.begun = begun

    def commit(log, requests, progress=None):
        if requests and not begun.is_set():
            begun.set()
            ended.in_time = ended.wait(60)
            if error is not None:
                raise error
        return plain(log, requests, progress)

    with monkeypatch.context() as patch:  # later transactions may take their time
        patch.setattr(writing, "LIMIT", 0.2)
        patch.setattr(Log, "commit", commit)
        try:
            yield ended
        finally:
            ended.set()


def test_nobody_waits_for_a_transaction_that_hangs_and_what_it_stored_is_matched(tmp_path, monkeypatch):
    async def script(pipeline):
        id = await subscribe(pipeline, "price > 0")
        with a_commit_that_hangs(monkeypatch) as ended:
            first = asyncio.create_task(pipeline.publishing.publish(CARL, "default", events(pipeline, 1)))
            while not ended.begun.is_set():
                await asyncio.sleep(0.001)
            behind = [
                asyncio.create_task(pipeline.publishing.publish(CARL, "default", events(pipeline, 2))),
                asyncio.create_task(pipeline._store.change(print)),
            ]
            with pytest.raises(BusyError, match="not known whether this will be stored"):
                await first
            for one in behind:
                with pytest.raises(BusyError):
                    await one
            assert pipeline.stuck
            assert not pipeline.ready
            with pytest.raises(BusyError, match="does not answer; try again"):
                await pipeline.publishing.publish(CARL, "default", events(pipeline, 3))
            with pytest.raises(BusyError):
                await pipeline._store.change(print)
            assert await matched(pipeline, ANN, SCHEMA.read([{"price": 5.0}])) == [[id]]
            ended.set()
            while pipeline.stuck:
                await asyncio.sleep(0.01)
        (last,) = await publish(pipeline, 4)
        found = sorted(
            (one.position, json.loads(one.body)["price"]) for one in pipeline.deliveries.pending(ANN)
        )
        assert {one.subscriptions for one in pipeline.deliveries.pending(ANN)} == {(id,)}
        return [price for _, price in found], found[-1][0] == last

    assert served(tmp_path, script) == [([1, 4], True)]


def test_a_transaction_that_hangs_and_fails_is_no_more_than_one_that_fails(tmp_path, monkeypatch):
    lost = sqlalchemy.exc.OperationalError("", {}, Exception("the connection is lost"))

    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        with a_commit_that_hangs(monkeypatch, lost) as ended:
            with pytest.raises(BusyError):
                await pipeline.publishing.publish(CARL, "default", events(pipeline, 1))
            ended.set()
            while pipeline.stuck:
                await asyncio.sleep(0.01)
        await publish(pipeline, 2)
        return [json.loads(one.body)["price"] for one in pipeline.deliveries.pending(ANN)]

    assert served(tmp_path, script) == [[2]]


def test_a_server_ends_without_a_transaction_that_hangs(tmp_path, monkeypatch):
    async def script(pipeline):
        with a_commit_that_hangs(monkeypatch) as ended:
            with pytest.raises(BusyError):
                await pipeline.publishing.publish(CARL, "default", events(pipeline, 1))
            async with asyncio.timeout(60):
                await pipeline.drain()
                await pipeline.stop()
            hung.append(not hasattr(ended, "in_time"))

    hung = []
    with pytest.raises(AssertionError):  # it is not healthy, since it was stopped already
        served(tmp_path, script)
    assert hung == [True]


def test_a_read_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.concurrency.LIMIT", 0.1)
    hangs = threading.Event()

    async def script(pipeline):
        id = await subscribe(pipeline, "price > 0")
        with monkeypatch.context() as patch:
            patch.setattr(Log, "subscriptions", lambda *_, **__: hangs.wait(60))
            with pytest.raises(BusyError, match="does not answer"):
                await pipeline.subscriptions.show(ANN, id)
        hangs.set()
        return (await pipeline.subscriptions.show(ANN, id)).id == id

    assert served(tmp_path, script) == [True]


class Held:
    """As much of an executor as `run_in_executor` uses; the test sets the result of the work."""

    def submit(self, *work):
        self.result = concurrent.futures.Future()
        return self.result


def test_who_is_cancelled_while_work_on_the_log_ends_is_cancelled(tmp_path):
    async def script(pipeline):
        given = pipeline.deliver, lambda: 0, pipeline.measures, pipeline.rounds
        store, cancelled = writing.Store(pipeline._log, print, *given), []  # no stage uses this one
        for turns in range(8):
            store._thread = Held()
            task = asyncio.create_task(store.change(print))
            await asyncio.sleep(0)
            store._thread.result.set_result(None)
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.cancel():
                await asyncio.wait([task])
                cancelled.append(task.cancelled())
        return cancelled

    (cancelled,) = served(tmp_path, script)
    assert len(cancelled) > 2
    assert all(cancelled)


@pytest.mark.parametrize("work", ["put_filter", "remove_filter", "trim"])
def test_it_ends_where_other_work_finds_that_another_server_has_its_database(tmp_path, work):
    given = {"put_filter": ("more", b"{}", None), "remove_filter": ("default",), "trim": (0.0, 0)}[work]

    async def script(pipeline):
        other = Log(engine(f"sqlite:///{tmp_path}/log.sqlite"))
        other.close()
        with pytest.raises(BusyError):
            await pipeline._store.change(getattr(pipeline._log, work), *given)
        async with asyncio.timeout(60):
            assert isinstance(await pipeline.died(), TakenError)

    with pytest.raises(AssertionError):  # it is not healthy
        served(tmp_path, script)


def test_many_are_put_in_by_parts_and_what_fails_is_made_when_it_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.subscribed.PART", 2)
    plain, commits = Log.commit, []

    def commit(log, requests, progress=None):
        commits.append(sum(len(asked.entries) for asked in requests))
        if commits.count(2) == 2:
            commits.append(2)
            raise sqlalchemy.exc.OperationalError("", {}, Exception("disk is full"))
        return plain(log, requests, progress)

    async def script(pipeline):
        wishes = [Wish(f"price > {i}") for i in range(5)]
        wishes.insert(1, Wish("price >"))
        monkeypatch.setattr(Log, "commit", commit)
        first = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")
        again = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")
        with pytest.raises(ConflictError):
            await pipeline.subscriptions.subscribe_many(ANN, "default", [*wishes[:5], Wish("price > 9")], "k")
        return [type(one) for one in first], first, again, len((await pipeline.subscriptions.list(ANN))[0])

    ((kinds, first, again, count),) = served(tmp_path, script)
    assert kinds == [int, PredicateError, int, BusyError, BusyError, int]
    assert [one for one in first if type(one) is int] == [again[0], again[2], again[5]]
    assert sum(type(one) is int for one in again) == count == 5
    assert max(commits) == 2


def test_an_event_is_held_against_the_same_ends_after_a_crash_though_the_clock_is_set_back(
    tmp_path, monkeypatch
):
    now, plain = [1000.0], Log.commit
    monkeypatch.setattr(upkeep, "TICK", 100.0)  # so that its end is not written

    async def first(pipeline):
        await subscribe(pipeline, "price > 0", ttl=50.0)
        now[0] += 60
        await publish(pipeline, 1)
        now[0] -= 60
        await publish(pipeline, 2)
        return pairs(pipeline, ANN)

    async def again(pipeline):
        await pipeline.settled(pipeline.status.counts["head"])
        return pairs(pipeline, ANN)

    with monkeypatch.context() as patch:  # as where it is killed before it has written any progress
        patch.setattr(Log, "commit", lambda log, requests, progress=None: plain(log, requests))
        before = served(tmp_path, first, clock=lambda: now[0])
    assert served(tmp_path, again, clock=lambda: now[0]) == before


def test_the_log_tells_once_that_it_cannot_be_written(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(upkeep, "TICK", 3600.0)  # nothing else is written meanwhile

    def fail(*_):
        raise sqlalchemy.exc.OperationalError("", {}, Exception("disk is full"))

    async def script(pipeline):
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(Log, "commit", fail)
                for _ in range(3):
                    with pytest.raises(BusyError):
                        await publish(pipeline, 1)
            await publish(pipeline, 1)

    served(tmp_path, script)
    told = [one.levelname for one in caplog.records if one.name == "rtfilter.service.writing"]
    assert told == ["CRITICAL", "WARNING"] * 2


def test_indexes_that_cannot_be_written_are_tried_again_less_and_less_often(tmp_path, monkeypatch):
    tried = []

    def write(*_):
        tried.append((time.monotonic(), upkeeps[0]._write_after, upkeeps[0]._pause))
        raise OSError("disk is full")

    upkeeps = []
    monkeypatch.setattr(snapshots, "write", write)
    monkeypatch.setattr(upkeep, "TICK", 0.001)
    monkeypatch.setattr(upkeep, "RETRY", 0.02)

    async def script(pipeline):
        upkeeps.append(pipeline._upkeep)
        await subscribe(pipeline, "price > 0")
        while len(tried) < 3:
            await asyncio.sleep(0.001)

    served(tmp_path, script, keeping=Keeping(changes=1))
    assert [pause for *_, pause in tried[:3]] == [0.04, 0.08, 0.16]
    assert all(moment >= after for (moment, *_), (_, after, _) in zip(tried[1:], tried, strict=False))


def test_what_was_written_goes_into_the_database_once_a_second(tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "CHECKPOINT", 0.1)
    monkeypatch.setattr(upkeep, "TICK", 0.01)
    came = []

    async def script(pipeline):
        monkeypatch.setattr(pipeline._log, "checkpoint", lambda: came.append(pipeline._log.head))
        for price in range(2):
            (position,) = await publish(pipeline, price)
            while not came or came[-1] < position:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        return position

    (position,) = served(tmp_path, script)
    assert came.count(position) <= 2  # and not again where nothing was written since


def test_work_beside_has_ended_with_the_server(tmp_path, monkeypatch):
    checkpoint = Log.checkpoint

    def slow(self):
        time.sleep(0.2)
        checkpoint(self)

    monkeypatch.setattr(Log, "checkpoint", slow)
    monkeypatch.setattr(upkeep, "CHECKPOINT", 0.0)
    left = []

    async def script(fails):
        database = engine(f"sqlite:///{tmp_path}/log.sqlite")
        pipeline = Pipeline(Log(database), tmp_path, Access(Users(database)))
        await pipeline.start()
        await pipeline.filters.add(ADMIN, "default", Definition(SCHEMA), "symbol")
        if fails:
            while not pipeline._upkeep._background:
                await asyncio.sleep(0)
            pipeline._tasks[1].cancel()
            await asyncio.sleep(0)
        else:
            time.sleep(2 * upkeep.TICK)  # the next look at what is due is overdue
        await pipeline.stop()
        left.append(asyncio.all_tasks() - {asyncio.current_task()})

    for fails in (False, True):
        asyncio.run(script(fails))
    assert left == [set(), set()]


def test_the_predicate_of_a_query_is_of_no_row(tmp_path):
    async def script(pipeline):
        with pytest.raises(PredicateError) as refused:
            await pipeline.asking.query(ADMIN, "default", "price >")
        return refused.value.row

    assert served(tmp_path, script) == [None]


def test_a_long_query_keeps_nobody_waiting(tmp_path, monkeypatch):
    going = threading.Event()

    def query(*_):
        yield going.wait(60)

    monkeypatch.setattr(asking, "pages", query)

    async def script(pipeline):
        asked = [asyncio.create_task(pipeline.asking.query(ADMIN, "default")) for _ in range(5)]
        await asyncio.sleep(0)
        id = await subscribe(pipeline, "price > 0")
        assert not any(one.done() for one in asked)
        going.set()
        return (await pipeline.subscriptions.show(ANN, id)).id == id, await asyncio.gather(*asked)

    assert served(tmp_path, script) == [(True, [True] * 5)]


def test_a_query_comes_between_the_parts_of_another_users(tmp_path, monkeypatch):
    may_end, under_way, most = threading.Event(), [], []

    def query(where, *_):
        under_way.append(where)
        most.append(under_way.count("long"))
        while where == "long" and not may_end.is_set():
            yield None
        under_way.remove(where)
        yield where

    monkeypatch.setattr(asking, "asked", lambda schema, where: where)
    monkeypatch.setattr(asking, "pages", query)

    async def script(pipeline):
        long = [asyncio.create_task(pipeline.asking.query(ANN, "default", "long")) for _ in range(5)]
        while not under_way:
            await asyncio.sleep(0)
        assert await pipeline.asking.query(BOB, "default", "short") == "short"
        assert not any(one.done() for one in long)
        may_end.set()
        assert await asyncio.gather(*long) == ["long"] * 5

    served(tmp_path, script)
    assert max(most) == 1


def test_the_work_of_one_user_takes_one_thread_however_much_it_is(tmp_path, monkeypatch):
    plain, under_way, most = subscribed.check, [], []
    may_end = threading.Event()

    def check(wishes, index):
        if wishes[0].where == "price > 1":
            under_way.append(1)
            most.append(len(under_way))
            if len(under_way) > 1:
                may_end.set()  # the other user's would not come
            may_end.wait()
            under_way.pop()
        return plain(wishes, index)

    monkeypatch.setattr(subscribed, "check", check)

    async def script(pipeline):
        long = [asyncio.create_task(subscribe(pipeline, "price > 1")) for _ in range(5)]
        while not under_way:
            await asyncio.sleep(0)
        long[0].cancel()  # its thread works on, and keeps its place
        await subscribe(pipeline, "price > 2", BOB)
        may_end.set()
        made = await asyncio.gather(*long, return_exceptions=True)
        assert [isinstance(one, int) for one in made] == [False] + [True] * 4

    served(tmp_path, script)
    assert max(most) == 1


def test_large_events_are_queried_part_by_part(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "_BYTES", 100)
    rows = [Logged(at, Entry(Kind.EVENT, "default", "carl", b'{"price":%d}' % at)) for at in range(1, 41)]
    (*parts, page) = asking.pages(asking.asked(SCHEMA, "price > 38"), iter(rows), 100, 2**20)
    assert parts == [None] * 5
    assert [one.position for one in page.events] == [39, 40]


def test_a_query_goes_step_by_step_through_events_that_are_not_of_it():
    event = Logged(7, Entry(Kind.EVENT, "default", "carl", b'{"price":1}'))
    *parts, page = asking.pages(None, iter([None, None, event, None]), 100, 2**20)
    assert len(parts) >= 3
    assert [one.position for one in page.events] == [7]


def test_an_event_that_later_attributes_refuse_is_queried_without_them():
    schema = Schema({"price": float, "size": Attribute(int, low=0)})
    bodies = [b'{"price":39,"size":1}', b'{"price":38,"size":-1}', b'{"price":39,"size":-1}']
    rows = [Logged(at, Entry(Kind.EVENT, "default", "carl", body)) for at, body in enumerate(bodies, 1)]
    (*_, page) = asking.pages(asking.asked(schema, "price > 38 OR size > 5"), iter(rows), 100, 2**20)
    assert [one.position for one in page.events] == [1, 3]


def test_few_events_with_lists_are_searched_in_a_step_of_a_query(monkeypatch):
    plain, steps = EventFilter.match_batch, [0]

    def match_batch(self, events, **given):
        steps[-1] += len(events)
        return plain(self, events, **given)

    monkeypatch.setattr(EventFilter, "match_batch", match_batch)
    rows = [Logged(at, Entry(Kind.EVENT, "default", "carl", b'{"price":[0,%d]}' % at)) for at in range(1, 41)]
    found = asking.pages(asking.asked(SCHEMA, "price > 38"), iter(rows), 100, 2**20)
    while (page := next(found)) is None:
        steps.append(0)
    assert [one.position for one in page.events] == [39, 40]
    assert max(steps) == LISTED


def test_the_predicate_of_a_query_is_compiled_in_the_place_of_its_user(tmp_path, monkeypatch):
    plain, threads = EventFilter.subscribe, []

    def noted(self, *given):
        threads.append(threading.current_thread().name.rpartition("_")[0])
        return plain(self, *given)

    monkeypatch.setattr(EventFilter, "subscribe", noted)

    async def script(pipeline):
        await publish(pipeline, 1)
        return len((await pipeline.asking.query(ADMIN, "default", "price = 1")).events)

    assert served(tmp_path, script) == [1]
    assert threads == ["rtfilter-beside"]


def test_a_repeated_subscribe_has_its_answer_also_at_a_limit(tmp_path):
    async def script(pipeline):
        await pipeline.filters.add(ADMIN, "default", Definition(SCHEMA, max_unbounded=1), "symbol")
        pipeline.users.most_subscriptions = 2
        wishes = [Wish("price IS NOT NULL"), Wish("price > 1")]
        made = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")
        await pipeline.settled(made[-1])
        with pytest.raises(TooManyError):
            await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "l")
        return made, await pipeline.subscriptions.subscribe_many(ANN, "default", wishes, "k")

    ((made, again),) = served(tmp_path, script)
    assert made == again


def test_a_ttl_that_is_renewed_often_takes_little_memory(monkeypatch):
    monkeypatch.setattr("rtfilter.service.owners.FEW", 10)
    owners = Owners()
    for moment in range(1000):
        owners.put(Owned(1, "ann", "default", 1000.0 + moment))
        owners.put(Owned(2, "ann", "default", 5.0))
    assert len(owners._ends) < 30
    assert [one.id for one in owners.ended(5.0)] == [2]
    assert [one.id for one in owners.ended(3000.0)] == [1]


def test_a_key_stands_for_one_kind_of_request(tmp_path):
    async def script(pipeline):
        await pipeline.subscriptions.subscribe(ADMIN, "default", Wish("price > 1"), "k")
        with pytest.raises(ConflictError, match="another request"):
            await pipeline.publishing.publish(ADMIN, "default", [b'{"where":"price > 1"}'], "k")

    served(tmp_path, script)


def test_events_of_a_nested_key_are_told_in_order(tmp_path):
    seen = []

    async def script(pipeline):
        schema = Schema({"truck.id": str, "price": float})
        await pipeline.filters.add(ADMIN, "trucks", Definition(schema), "truck.id")
        index = pipeline.filters._indexes["trucks"].filter
        index.configure(controller=FixedPlan(0, 1))
        index.policy = lambda workload: np.arange(len(workload))[::-1]
        plain = pipeline.deliver._take
        pipeline.deliver._take = lambda user, one: seen.extend(at.position for at in one) or plain(user, one)
        await pipeline.subscriptions.subscribe(ANN, "trucks", Wish("price > 0", order="key"))
        rows = [{"truck": {"id": "ab"[i % 2]}, "price": 1 + i} for i in range(100)]
        places = await pipeline.publishing.publish(
            CARL, "trucks", pipeline.filters.parse("trucks").objects(rows).bodies
        )
        await pipeline.settled(places[-1])
        return places

    (places,) = served(tmp_path, script)
    for key in range(2):
        assert [at for at in seen if (at - places[0]) % 2 == key] == places[key::2]


def test_an_event_with_a_list_as_its_key_is_of_no_one_key(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0", order="key")
        (event,) = pipeline.filters.parse("default").one(b'{"price": 1, "symbol": ["A", "B"]}').bodies
        place, after = await pipeline.publishing.publish(CARL, "default", [event, *events(pipeline, 2)])
        await asyncio.wait_for(pipeline.settled(after), 60)
        return [one.position for one in pipeline.deliveries.pending(ANN)] == [place, after]

    assert served(tmp_path, script) == [True]


def tell(deliver, *found):
    """Tell all, in all steps."""
    for _ in deliver.tell(found):
        pass


def test_who_no_longer_asks_for_order_between_two_parts_loses_nothing():
    owners = {1: Owned(1, "ann", "default", ordered=True), 2: Owned(2, "ann", "default")}
    deliver = Deliver(owners)
    event = Logged(7, Entry(Kind.EVENT, "default", "carl", b"{}"))
    tell(deliver, MatchedEvent(event, np.array([1, 2]), None, at_once=True))
    del owners[1]
    tell(deliver, MatchedEvent(event, np.array([1, 2]), None))
    assert [(one.position, one.subscriptions) for one in deliver.backlog("ann").pending.values()] == [
        (7, (2,))
    ]
    deliver.acknowledge("ann", [7])
    tell(deliver, MatchedEvent(event, np.array([1, 2]), None))
    assert not deliver.backlog("ann").pending.values()


def test_an_event_that_is_told_at_once_and_in_turn_is_kept_once():
    deliver, sent = Deliver({1: Owned(1, "ann", "default")}), []
    deliver.begin("ann", SimpleNamespace(send=sent.extend))
    event = Logged(7, Entry(Kind.EVENT, "default", "carl", b"{}"))
    tell(
        deliver,
        *(MatchedEvent(event, np.array([1]), None, at_once) for at_once in (True, False)),
    )
    assert sent == [7]
    backlog = deliver.backlog("ann")
    bytes = backlog.bytes
    deliver.acknowledge("ann", [7])
    assert (bytes > 0, backlog.bytes) == (True, 0)


def test_what_was_written_waits_no_more(tmp_path):
    async def script(pipeline):
        await publish(pipeline, 1, 2, 3)
        return pipeline.status.counts["waiting_bytes"]

    assert served(tmp_path, script) == [0]


def test_a_subscription_on_its_way_goes_with_its_filter(tmp_path):
    async def script(pipeline):
        asked = asyncio.create_task(subscribe(pipeline, "price > 0"))
        while not pipeline._store.waiting:  # until it waits to be written
            await asyncio.sleep(0)
        await pipeline.filters.remove(ADMIN, "default")
        id = await asked
        return id in pipeline._owners, await pipeline.subscriptions.list(ANN)

    assert served(tmp_path, script) == [(False, ([], False))]


def test_an_end_that_could_not_be_written_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "RETRY", 0.01)
    plain, failures = Log.commit, []

    def commit(log, requests, progress=None):
        if not failures and any(one.kind == Kind.UNSUBSCRIBE for asked in requests for one in asked.entries):
            failures.append(1)
            raise sqlalchemy.exc.OperationalError("", {}, Exception("disk is full"))
        return plain(log, requests, progress)

    monkeypatch.setattr(Log, "commit", commit)

    async def script(pipeline):
        await subscribe(pipeline, "price > 0", ttl=0.01)
        async with asyncio.timeout(60):
            while not pipeline.deliveries.pending(ANN):
                await asyncio.sleep(0.02)
        return pipeline.deliveries.pending(ANN)[0].ended

    assert served(tmp_path, script) == ["expired"]
    assert failures


def test_what_was_put_in_is_matched_though_its_answer_is_lost_and_the_next_transaction_fails(
    tmp_path, monkeypatch
):
    plain, failures = Log.commit, []

    def commit(log, requests, progress=None):
        how = failures.pop(0) if failures else None
        head = log.head
        placed = plain(log, requests, progress) if how != "before" else []
        if how is None:
            return placed
        log.head, log._in_doubt = head, True
        raise sqlalchemy.exc.OperationalError("", {}, Exception("connection lost"))

    monkeypatch.setattr(Log, "commit", commit)

    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        failures[:] = ["after", "before"]
        one = events(pipeline, 1)
        for _ in range(2):
            with pytest.raises(BusyError):
                await pipeline.publishing.publish(CARL, "default", one, "k")
        places = await pipeline.publishing.publish(CARL, "default", one, "k")
        await publish(pipeline, -1)
        return places, [one.position for one in pipeline.deliveries.pending(ANN)]

    ((places, pending),) = served(tmp_path, script)
    assert pending == places


def test_a_user_is_removed_though_the_last_position_is_that_of_a_filter(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        await publish(pipeline, 1)
        await pipeline.subscriptions.unsubscribe(ANN, pipeline.deliveries.pending(ANN)[0].subscriptions[0])
        await pipeline.filters.add(ADMIN, "other", Definition(SCHEMA))
        async with asyncio.timeout(60):
            await pipeline.presence.forget("ann")

    served(tmp_path, script)


def test_a_filter_that_could_not_be_removed_has_lost_nothing(tmp_path, monkeypatch):
    plain = Log.commit

    def commit(log, requests, progress=None):
        if any(one.kind == Kind.UNSUBSCRIBE for asked in requests for one in asked.entries):
            time.sleep(0.05)  # meanwhile events are matched
            raise sqlalchemy.exc.OperationalError("", {}, Exception("disk is full"))
        return plain(log, requests, progress)

    monkeypatch.setattr(Log, "commit", commit)

    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        monkeypatch.setattr("rtfilter.service.log_matcher.SIZE", 1)  # so that most are not matched yet
        places = await pipeline.publishing.publish(CARL, "default", events(pipeline, *range(1, 51)))
        with pytest.raises(BusyError):
            await pipeline.filters.remove(ADMIN, "default")
        await pipeline.settled(places[-1])
        return places, [one.position for one in pipeline.deliveries.pending(ANN)]

    ((places, pending),) = served(tmp_path, script)
    assert pending == places


def test_who_subscribes_is_told_that_the_database_does_not_answer(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise sqlalchemy.exc.OperationalError("", {}, Exception("gone"))

    async def script(pipeline):
        id = await subscribe(pipeline, "price > 0")
        monkeypatch.setattr(Log, "known", fail)
        monkeypatch.setattr(Log, "subscriptions", fail)
        asked = (
            pipeline.subscriptions.subscribe(ANN, "default", Wish("price > 0"), "key"),
            pipeline.subscriptions.show(ANN, id),
            pipeline.subscriptions.list(ANN),
        )
        for one in asked:
            with pytest.raises(BusyError, match="the database does not answer"):
                await one

    served(tmp_path, script)


def test_pages_of_long_events_are_short(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        places = await publish(pipeline, *range(1, 6), symbol="x" * 400)
        pages, after = [], 0
        while after is not None:
            found, after = pipeline.deliveries.pull(ANN, 10, after)
            pages.append([one.position for one, _ in found])
        assert pages == [[place] for place in places]
        page = await pipeline.asking.query(ANN, "default")
        assert [one.position for one in page.events] == places[:3]
        assert page.next == places[2]

    served(tmp_path, script, message=1000)


def test_what_was_dropped_is_logged_once_and_told_after_a_restart(tmp_path, caplog):
    async def first(pipeline):
        await subscribe(pipeline, "price > 0")
        for price in range(1, 6):
            await publish(pipeline, price)
        assert [one.message for one in caplog.records if one.user == "ann"] == [
            "deliveries are dropped: the backlog has no room; the next one says how many"
        ]

    async def second(pipeline):
        (one, sending), _ = pipeline.deliveries.pull(ANN, 9)[0]
        assert sending == (0, 3)
        await pipeline.deliveries.acknowledge(ANN, [one.position])

    async def third(pipeline):
        ((_, sending),), _ = pipeline.deliveries.pull(ANN, 9)
        assert sending == (0, 0)
        assert (await pipeline.status.of_user(ANN))["dropped"] == 0

    served(tmp_path, first, second, third, bounds=BacklogLimits(most=2))


def test_who_gets_the_name_of_a_user_is_not_told_what_was_dropped(tmp_path):
    async def script(pipeline):
        await subscribe(pipeline, "price > 0")
        await publish(pipeline, 1, 2, 3)
        pipeline.deliver.leave("ann")
        await publish(pipeline, 4)
        ((_, sending),), _ = pipeline.deliveries.pull(ANN, 9)
        assert sending == (0, 0)

    served(tmp_path, script, bounds=BacklogLimits(most=2))


@pytest.mark.parametrize("how", ["filter", "user", "time"])
def test_what_ends_together_ends_in_parts(tmp_path, monkeypatch, how):
    """So that others come in between."""
    monkeypatch.setattr(stages, "ENDED", 2)
    at_once = []

    async def script(pipeline):
        ttl = 0.01 if how == "time" else None
        made = await pipeline.subscriptions.subscribe_many(ANN, "default", [Wish("price > 0", ttl=ttl)] * 7)
        plain, waiting = pipeline._store.put, []

        async def put(entries, key=None):
            waiting.append(None)
            at_once.append(len(waiting))
            try:
                return await plain(entries, key)
            finally:
                waiting.pop()

        pipeline._store.put = put
        if how == "filter":
            await pipeline.filters.remove(ADMIN, "default")
        elif how == "user":
            await pipeline.presence.forget("ann")
        while any(id in pipeline._owners for id in made):
            await asyncio.sleep(0.01)

    served(tmp_path, script)
    assert max(at_once) == 2


def test_all_subscriptions_are_looked_through_in_turns(tmp_path, monkeypatch):
    """So that others come in between, however many subscriptions other users have."""
    monkeypatch.setattr("rtfilter.service.stages.LOOKED_AT", 2)
    monkeypatch.setattr("rtfilter.service.concurrency.TURN", 0.0)

    async def script(pipeline):
        await pipeline.subscriptions.subscribe_many(BOB, "default", [Wish("price > 0")] * 7)
        waited, plain = [], pipeline.rounds.wait

        async def wait(address=""):
            waited.append(None)
            await plain(address)

        pipeline.rounds.wait = wait
        await pipeline.presence.forget("ann")
        assert len(waited) >= 4

    served(tmp_path, script)


def test_a_removed_subscription_is_dropped_from_a_backlog_in_turns(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.backlog.STEP", 1)
    monkeypatch.setattr("rtfilter.service.concurrency.TURN", 0.0)

    async def script(pipeline):
        gone, left = [await subscribe(pipeline, "price > 0") for _ in range(2)]
        places = await publish(pipeline, *range(1, 51))
        turns, plain = [], pipeline.deliver.forget_some
        pipeline.deliver.forget_some = lambda: turns.append(len(pairs(pipeline, ANN))) or plain()
        await pipeline.subscriptions.unsubscribe(ANN, gone)
        sent, _ = pipeline.deliveries.pull(ANN, 100)
        assert {one.subscriptions for one, _ in sent} == {(left,)}
        await pipeline.subscriptions.unsubscribe(ANN, left)
        assert pipeline.deliveries.pull(ANN, 100) == ([], None)
        while pipeline.deliver.forgetting:
            await pipeline.rounds.wait()
        assert not pipeline.deliveries.pending(ANN)
        assert len(turns) >= len(places)

    served(tmp_path, script)


def test_events_with_lists_are_matched_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.parse.LISTED", 2)

    async def script(pipeline):
        await subscribe(pipeline, "price > 4")
        filter, sizes = pipeline.filters._indexes["default"].filter, []
        plain = filter.stream
        filter.stream = lambda events: sizes.append(len(events)) or plain(events)
        listed = [b'{"price":[%d,%d]}' % (row, row + 1) for row in range(7)]
        (*_, last) = await pipeline.publishing.publish(CARL, "default", listed)
        await pipeline.settled(last)
        assert sum(sizes) == 7
        assert max(sizes) == 2
        return len(pipeline.deliveries.pending(ANN))

    assert served(tmp_path, script) == [3]


def test_many_events_are_taken_note_of_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "REPORTED", 10)
    monkeypatch.setattr("rtfilter.service.publishing.MANY", 10)
    sizes = []

    async def script(pipeline):
        await subscribe(pipeline, "price > 90")
        plain = pipeline._store._stored
        pipeline._store._stored = lambda logged: sizes.append(len(logged)) or plain(logged)
        return await publish(pipeline, *range(95), key="k"), pairs(pipeline, ANN)

    ((places, found),) = served(tmp_path, script)
    assert places == [*range(places[0], places[0] + 95)]
    assert {position for position, _ in found} == set(places[91:])
    assert (sum(sizes), max(sizes)) == (95, 10)


def test_a_page_of_large_subscriptions_is_short(tmp_path):
    async def script(pipeline):
        wishes = [Wish("price > 1", {"more": "x" * 900})] * 25
        made = await pipeline.subscriptions.subscribe_many(ANN, "default", wishes)
        sizes, after, more = [], 0, True
        while more:
            found, more = await pipeline.subscriptions.list(ANN, after=after)
            sizes.append(len(found))
            after = found[-1].id
        return after == made[-1], sizes

    assert served(tmp_path, script, message=5000) == [(True, [10, 10, 5])]


def test_several_events_are_searched_beside_the_event_loop_where_they_may_match_much():
    index = Index(None, range(log_matcher.MOST_QUICK // 2))
    assert [index.is_quick(count) for count in (1, 2, 3)] == [True, True, False]
    index.pace = 1.0
    assert not index.is_quick(1)


def test_the_progress_of_all_users_is_written_in_parts(tmp_path, monkeypatch):
    most, plain = [], Log.commit

    def noted(log, requests, progress=None):
        if progress is not None:
            most.append(len(progress.marks))
        return plain(log, requests, progress)

    async def script(pipeline):
        for number in range(2 * FEWEST):
            await subscribe(pipeline, "price > 0", Identity(f"u{number}", frozenset({Role.SUBSCRIBER})))
        monkeypatch.setattr(Log, "commit", noted)
        monkeypatch.setattr(upkeep, "TICK", 3600.0)  # nothing else is written meanwhile
        (place,) = await publish(pipeline, 1)
        await pipeline._store.flush()
        assert pipeline._log.settled == place
        assert sum(most) >= 2 * FEWEST

    served(tmp_path, script)
    assert max(most) == FEWEST
