"""A second server on the same database: what it follows, answers, refuses, and how it takes over."""

import asyncio
import json
import shutil
import time

import pytest

import postgresql
from rtfilter import Schema
from rtfilter.client import RefusedError, connect_plain
from rtfilter.definition import Definition
from rtfilter.filter import inside
from rtfilter.service.access import Access
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.standby import LOOK, BehindError
from rtfilter.store.database import engine
from rtfilter.store.log import Log
from rtfilter.store.user_store import Users
from service.kills import FaultError, pair
from service.kills.process import Server
from service.served import ADMIN, ANN, BOB, CARL, DEFINED, pairs, publish, subscribe

pytestmark = pytest.mark.needs("postgresql")
WIDER = Definition(Schema({"price": float, "symbol": str, "venue": str}), matcher="counting", order="fifo")


@pytest.fixture(scope="module")
def server():
    with postgresql.running() as made:
        yield made


@pytest.fixture
def url(server):
    """A database that has nothing in it."""
    database = engine(server.url)
    with database.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    database.dispose()
    return server.url


class Pair:
    """A pipeline that serves, and another that follows it; `end` lets it take over."""

    def __init__(self, path, url):
        self._path, self._url, self._taken = path, url, False
        self.first, self.second = self._made("first", True), None

    def _made(self, name, owner):
        database = engine(self._url)
        folder = self._path / name
        folder.mkdir()
        return Pipeline(Log(database, owner), folder, Access(Users(database)))

    async def __aenter__(self):
        await self.first.start()
        await self.first.filters.add(ADMIN, "default", DEFINED, "symbol")
        return self

    async def follow(self):
        self.second = self._made("second", False)
        await self.second.follow()
        self._work = asyncio.create_task(self.second.take_over(lambda: self._taken))
        return self.second

    async def followed(self):
        """Wait until the second one is where the first one is."""
        await self.first._store.flush()
        while self.second._match.settled < self.first._match.settled:
            assert not self._work.done(), self._work.exception()
            await asyncio.sleep(0.01)

    async def end(self):
        """Have the second one take over, while the first one still believes that it serves."""
        self._taken = True
        await self._work
        await self.second.settled(self.second._match.last)

    async def __aexit__(self, *_):
        if self.second is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
            await self.second.stop()
        await self.first.stop()


async def matches(pipeline, event, who=ANN):
    """Ids of a user's subscriptions that match an event, as the door says."""
    parsed = pipeline.filters.parse("default").one(json.dumps(event).encode())
    parts = [part async for part in await pipeline.asking.match(who, "default", parsed.table)]
    return parts[0].ids.tolist()


def test_a_standby_answers_with_what_it_has(tmp_path, url):
    async def run():
        async with Pair(tmp_path, url) as pair:
            before = await subscribe(pair.first, "price < 10")
            second = await pair.follow()
            await pair.followed()
            assert await matches(second, {"price": 5}) == [before]
            new = await subscribe(pair.first, "price < 20")
            await subscribe(pair.first, "price < 20", BOB)
            await pair.first.subscriptions.unsubscribe(ANN, before)
            await pair.followed()
            assert await matches(second, {"price": 5}) == [new]
            assert (second.standby is not None, second.ready, second.healthy) == (True, False, True)

    asyncio.run(run())


def test_a_standby_follows_filters(tmp_path, url):
    async def run():
        async with Pair(tmp_path, url) as pair:
            first, second = pair.first, await pair.follow()
            await first.filters.add(ADMIN, "default", WIDER, "symbol")
            await first.filters.add(ADMIN, "other", DEFINED)
            id = await subscribe(first, "venue = 'X'")
            await pair.followed()
            assert [one.info.name for one in second.filters.all()] == ["default", "other"]
            index = second.filters.index("default")
            assert index.info == first.filters.index("default").info
            assert type(inside(index.filter).matcher) is type(inside(WIDER.filter()).matcher)
            assert await matches(second, {"venue": "X"}) == [id]
            await first.filters.remove(ADMIN, "default")
            await first.filters.add(ADMIN, "default", DEFINED)
            again = await subscribe(first, "price > 1")
            await pair.followed()
            assert await matches(second, {"price": 5, "venue": "X"}) == [again]

    asyncio.run(run())


def test_what_was_not_acknowledged_is_delivered_after_a_take_over(tmp_path, url):
    async def run():
        async with Pair(tmp_path, url) as pair:
            first, second = pair.first, await pair.follow()
            mine = await subscribe(first, "price < 10")
            first._store._settled = lambda: 0  # what is acknowledged is known by its mark alone
            done, *left = await publish(first, 1.0, 2.0, 3.0)
            await first.deliveries.acknowledge(ANN, [done])
            await pair.end()
            assert pairs(second, ANN) == {(place, mine) for place in left}
            later = await publish(second, 4.0)
            assert pairs(second, ANN) == {(place, mine) for place in left + later}
            assert (second.standby, second.ready) == (None, True)

    asyncio.run(run())


def test_changes_and_events_that_were_not_settled_are_matched_in_their_order(tmp_path, url):
    async def run():
        async with Pair(tmp_path, url) as pair:
            first, second = pair.first, await pair.follow()
            early = await subscribe(first, "price < 10")
            brief = await subscribe(first, "price < 10", ttl=1000.0)
            await pair.followed()
            first._tasks[1].cancel()  # nothing more is matched
            places = await first.publishing.publish(CARL, "default", [b'{"price": 1}'])
            late = await subscribe(first, "price < 10")
            await first._upkeep._ending.expire_all(time.time() + 2000)
            places += await first.publishing.publish(CARL, "default", [b'{"price": 1}'])
            await asyncio.sleep(3 * LOOK)  # it follows no change that is not settled
            await pair.end()
            second._owners.settle(second._match.settled)
            matched = [{id for at, id in pairs(second, ANN) if at == place} for place in places]
            assert matched == [{early, brief}, {early, late}]
            assert second.status.counts["subscriptions"] == 2

    asyncio.run(run())


def test_the_first_server_ends_once_another_one_has_taken_over(tmp_path, url):
    async def run():
        async with Pair(tmp_path, url) as pair:
            await pair.follow()
            await pair.end()
            with pytest.raises(Exception, match="the log cannot be written"):
                await publish(pair.first, 1.0)
            await pair.first.died()
            assert not pair.first.healthy

    asyncio.run(run())


def test_a_standby_that_missed_changes_ends(tmp_path, url):
    async def run():
        async with Pair(tmp_path, url) as pair:
            id = await subscribe(pair.first, "price < 10")
            second = await pair.follow()
            await pair.followed()
            await pair.first.subscriptions.unsubscribe(ANN, id)
            await pair.followed()
            second._match.settled = 0
            while pair.first._log.trim(10**6, 10**6)[1]:
                pass
            with pytest.raises(BehindError, match="start the standby again"):
                await pair._work
            pair._work = asyncio.create_task(asyncio.sleep(0))

    asyncio.run(run())


@pytest.mark.slow
def test_a_client_finds_the_server_that_serves(tmp_path, url):
    servers = [started(tmp_path / name, url) for name in "ab"]
    try:
        first, second = servers
        urls = ",".join(f"ws://127.0.0.1:{one.port}" for one in reversed(servers))
        assert second.ask("GET", "/readyz", "ann", allowed=(503,)) == (503, {"status": "standby"})
        assert second.ask("POST", "/filters/default/events", "ann", "{}", (503,))[0] == 503
        with pytest.raises(RefusedError, match="this server is a standby"):
            connect_plain(f"ws://127.0.0.1:{second.port}", user="ann")
        with connect_plain(urls, user="ann") as client:
            id = client.subscribe("price > 5")
            client.publish({"price": 7})
            deliveries = iter(client)
            assert next(deliveries).event == {"price": 7}
            first.kill()
            client.publish({"price": 8})
            found = next(one for one in deliveries if one.event == {"price": 8})
            assert found.subscriptions == (id,)
    finally:
        for one in servers:
            one.end()


def started(folder, url):
    folder.mkdir(exist_ok=True)
    flags = "--standby", "--webhook-private", "--schema", folder / "given.json"
    return Server(folder, url, flags=flags)


@pytest.mark.slow
def test_a_standby_ends_in_good_order(tmp_path, url):
    first, second = (started(tmp_path / name, url) for name in "ab")
    try:
        second.ask("GET", "/healthz", "ann")
        second.stop()
        assert second.is_killed()
    finally:
        first.end()
        second.end()


@pytest.mark.slow
def test_webhooks_need_the_key_of_the_first_server(tmp_path, url):
    first = started(tmp_path / "a", url)
    try:
        hook = json.dumps({"url": "http://127.0.0.1:9/"})
        first.ask("PUT", "/webhook", "ann", hook, Content_Type="application/json")
        with pytest.raises(FaultError, match="ended by itself"):
            started(tmp_path / "b", url)
        assert "copy webhooks.key" in (tmp_path / "b" / "errors.txt").read_text()
        (tmp_path / "c" / "data").mkdir(parents=True)
        shutil.copy(tmp_path / "a" / "data" / "webhooks.key", tmp_path / "c" / "data")
        started(tmp_path / "c", url).end()
    finally:
        first.end()


@pytest.mark.slow
def test_nothing_is_lost_while_two_servers_are_killed_in_turn(tmp_path, url):
    done = pair.run(tmp_path, 3, 0, url)
    assert done["killed serving"] == 3
    assert done["deliveries"]
