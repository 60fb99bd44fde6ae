"""A site whose database is away, slow, or changed by others."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from served import ADMIN, ANN, SCHEMA, events, publish, served, subscribe
from sqlalchemy.exc import OperationalError

from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.overlay.broker_names import SubscriptionId, client, link, member
from rtfilter.overlay.routing_messages import Confirm, RouterSubscription
from rtfilter.overlay.routing_table import Table
from rtfilter.overlay.strategies import EventForwarding, Hybrid
from rtfilter.service.owners import OF_SITE
from rtfilter.service.records import Wish
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import BusyError
from rtfilter.service.sites import wants
from rtfilter.service.sites.wants import Wants
from service.sites.alone import ALL, PLACE, alone, until

GRACE = 5.0


def wanted(serial, condition="price > 5"):
    return RouterSubscription(SubscriptionId("b", 1, serial), "default", condition)


class Given:
    """The wants of neighbours, with a router that is only a table."""

    def __init__(self, pipeline, strategies=()):
        self.pipeline, self.table = pipeline, Table({"default": SCHEMA})
        router = SimpleNamespace(table=self.table, strategies=strategies)
        self.broker = SimpleNamespace(router=router, place=PLACE)
        self.wants = Wants(pipeline._stages, self.broker, GRACE)
        stored = pipeline._store._stored

        def heard(logged):
            stored(logged)
            for position, entry in logged:
                self.wants.note(position, entry)

        pipeline._store._stored = heard

    @property
    def there(self):
        """The user and filter of each subscription of another site in the log, and its condition."""
        found = self.pipeline._log.subscriptions()
        return sorted((one.entry.user, one.entry.body) for one in found if one.entry.manner == OF_SITE)

    async def reflect(self):
        """Store what has changed, when it is known what all earlier events match."""
        await self.pipeline.settled(self.pipeline._match.last)
        await self.wants.reflect()

    @property
    def sites(self):
        return [site for site, _ in self.there]


def with_wants(path, script, strategies=(), **more):
    async def run(pipeline):
        return await script(Given(pipeline, strategies))

    return served(path, run, **more)[0]


def test_what_neighbours_want_is_in_the_log(tmp_path):
    async def script(given):
        given.table.add(wanted(1), link("below"))
        given.table.add(wanted(2, "price > 6"), member("near"))
        given.table.add(wanted(3), client("users"))
        given.table.add(wanted(4), link(""))  # one that is lost
        given.table.add(wanted(5), link("elsewhere"))
        await given.reflect()
        assert given.sites == ["near", "under"]
        assert b'"where":"price > 6"' in given.there[0][1]
        assert b'"id":["b",1,1]' in given.there[1][1]
        assert len(given.wants) == 2

    with_wants(tmp_path, script)


@pytest.mark.parametrize(
    ("strategy", "sites"), [(Hybrid(), ["over"]), (EventForwarding(), ["near", "over", "under"])]
)
def test_neighbours_that_get_all_events_are_in_the_log(strategy, sites, tmp_path):
    async def script(given):
        await given.reflect()
        assert given.sites == sites
        assert all(b'"where":"TRUE"' in body for _, body in given.there)
        given.broker.place = PLACE._replace(designated="near")  # another one leads
        await given.reflect()
        assert "near" in given.sites

    with_wants(tmp_path, script, [strategy])


def test_what_is_wanted_no_more_stays_for_a_while(tmp_path, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(wants, "time", SimpleNamespace(monotonic=lambda: now, perf_counter=time.perf_counter))

    async def script(given):
        nonlocal now
        for serial in (1, 2):
            given.table.add(wanted(serial), link("below"))
        await given.reflect()
        before = given.pipeline._log.head
        given.table.remove(wanted(1).id, link("below"))
        await given.reflect()
        now += GRACE - 1
        given.broker.place = PLACE._replace(links={"above": "over"})  # the link is cut, and there again
        await given.reflect()
        given.broker.place = PLACE
        await given.reflect()
        assert given.pipeline._log.head == before
        now += 1
        await given.reflect()
        assert [body.count(b'["b",1,2]') for _, body in given.there] == [1]
        now += GRACE
        await given.reflect()
        assert len(given.there) == len(given.wants) == 1

    with_wants(tmp_path, script)


def test_a_want_ends_after_its_deliveries_are_taken(tmp_path):
    async def script(given):
        given.wants._grace = 0
        given.table.add(wanted(1), link("below"))
        await given.reflect()
        (place,) = await publish(given.pipeline, 7)
        given.table.remove(wanted(1).id, link("below"))
        for _ in range(3):
            await given.reflect()
        assert given.sites == ["under"]
        under = Identity("under", frozenset({Role.SUBSCRIBER}))
        await given.pipeline.deliveries.acknowledge(under, [place])
        await given.reflect()
        assert given.sites == []

    with_wants(tmp_path, script)


def test_a_want_of_a_site_that_is_no_neighbour_ends_with_its_deliveries(tmp_path):
    async def script(given):
        given.wants._grace = 0
        given.table.add(wanted(1), link("below"))
        await given.reflect()
        await publish(given.pipeline, 7)
        given.broker.place = PLACE._replace(links={})
        await given.reflect()
        assert given.sites == []

    with_wants(tmp_path, script)


def test_a_want_of_another_member_ends_with_its_deliveries_where_a_third_one_leads(tmp_path):
    async def script(given):
        given.wants._grace = 0
        given.broker.place = PLACE._replace(members=ALL | {"far"})
        given.table.add(wanted(1), member("far"))
        await given.reflect()
        await publish(given.pipeline, 7)
        given.table.remove(wanted(1).id, member("far"))
        given.broker.place = given.broker.place._replace(designated="near", links={})
        await given.reflect()
        assert given.sites == []

    with_wants(tmp_path, script)


def test_many_wants_are_stored_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(wants, "TOGETHER", 3)
    monkeypatch.setattr(wants, "ENDED", 4)

    async def script(given):
        for serial in range(10):
            given.table.add(wanted(serial), link("below"))
        await given.reflect()
        assert len(given.there) == 10
        given.wants._grace = 0
        for serial in range(10):
            given.table.remove(wanted(serial).id, link("below"))
        for left in (6, 2, 0):
            await given.reflect()
            assert len(given.there) == left

    with_wants(tmp_path, script)


def test_a_want_is_stored_once_though_the_answer_of_the_database_was_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(wants, "REST", 0)

    async def script(given):
        put, lost = given.pipeline._store.put, [True, True]

        async def put_and_lose(entries, key=None):
            if lost:
                lost.pop()
                if len(entries) == 1:  # it is stored, and not told
                    await put(entries, key)
                raise BusyError("it is not known whether it is stored", 1.0)
            return await put(entries, key)

        monkeypatch.setattr(given.pipeline._store, "put", put_and_lose)
        given.table.add(wanted(1), link("below"))
        await given.reflect()
        lost.append(True)
        given.wants._grace = 0
        given.table.remove(wanted(1).id, link("below"))
        given.table.add(wanted(2), link("below"))
        await given.reflect()
        assert [body.count(b'["b",1,2]') for _, body in given.there] == [1]

    with_wants(tmp_path, script)


def test_a_want_that_is_twice_in_the_log_is_removed_once(tmp_path):
    async def script(given):
        given.table.add(wanted(1), link("below"))
        await given.reflect()
        (stored,) = given.pipeline._log.subscriptions()
        for _ in range(2):
            await given.pipeline._store.put([replace(stored.entry, subscription=None)])
        assert len(given.there) == 3
        last = given.pipeline._log.subscriptions()[-1]
        await given.pipeline.subscriptions.unsubscribe(ADMIN, last.position)
        await given.reflect()
        assert len(given.there) == 1

    with_wants(tmp_path, script)


def test_a_want_that_somebody_has_removed_comes_again(tmp_path):
    async def script(given):
        given.table.add(wanted(1), link("below"))
        await given.reflect()
        (one,) = given.pipeline._log.subscriptions()
        await given.pipeline.subscriptions.unsubscribe(ADMIN, one.position)
        assert given.there == []
        await given.reflect()
        assert given.sites == ["under"]

    with_wants(tmp_path, script)


def test_wants_of_a_filter_that_is_not_here_wait_for_it(tmp_path):
    async def script(given):
        given.table.add(wanted(1), link("below"))
        await given.reflect()
        assert given.there == []
        await given.pipeline.filters.add(ADMIN, "default", Definition(SCHEMA), None)
        given.broker.place = PLACE._replace(links={})  # the links are made anew then
        await given.reflect()
        given.broker.place = PLACE
        await given.reflect()
        assert given.sites == ["under"]

    with_wants(tmp_path, script, definition=None)


def test_a_site_outlives_a_database_that_does_not_answer(tmp_path):
    async def script(pipeline, site):
        put, refused = site._table.put, []

        def away(name, value):
            if len(refused) < 4:
                refused.append(name)
                raise OperationalError("no", {}, Exception("away"))
            put(name, value)

        site._table.put = away
        await until(lambda: site.shown.root and len(refused) == 4)
        await until(lambda: site._table.get("root") is not None)
        assert pipeline.healthy
        id = await subscribe(pipeline, "price > 5")
        await pipeline.everywhere([id])

    alone(tmp_path, script)


def test_a_site_beats_while_messages_come_all_the_time(tmp_path):
    async def script(pipeline, site):
        def come(now):
            if not site.shown.root:
                site._inputs.put_nowait(come)
            return []

        come(0)
        await until(lambda: site.shown.root)

    alone(tmp_path, script)


def test_a_subscription_to_a_filter_of_this_moment_is_known(tmp_path):
    async def script(pipeline, site):
        await until(lambda: site.shown.root)
        more = Definition(Schema({"price": float, "symbol": str, "size": int}))
        await pipeline.filters.add(ADMIN, "default", more, "symbol")
        id = await subscribe(pipeline, "size > 5")
        await pipeline.everywhere([id])
        await pipeline.filters.add(ADMIN, "new", more, None)
        new = await pipeline.subscriptions.subscribe(ANN, "new", Wish("size > 6"))
        await pipeline.everywhere([new])
        conditions = sorted(one.subscription.condition for one in site._router.table)
        assert conditions == ["size > 5", "size > 6"]

    alone(tmp_path, script)


def test_a_filter_that_is_made_again_has_nothing_of_the_former_one(tmp_path):
    async def script(pipeline, site):
        await until(lambda: site.shown.root)
        await pipeline.everywhere([await subscribe(pipeline, "price > 5")])
        site._router.table.add(wanted(1, "symbol = 'a'"), link("below"))
        await pipeline.filters.remove(ADMIN, "default")
        await pipeline.filters.add(ADMIN, "default", Definition(Schema({"size": int})), None)
        await pipeline.everywhere([await subscribe(pipeline, "size > 5")])
        assert [one.subscription.condition for one in site._router.table] == ["size > 5"]

    alone(tmp_path, script)


def test_who_waits_for_all_sites_waits_for_the_last_change(tmp_path):
    async def script(pipeline, site):
        site._confirm = lambda message: None  # nobody else knows it
        await until(lambda: site.shown.root)
        id = await subscribe(pipeline, "price > 5")
        waiting = asyncio.create_task(site.everywhere(id))
        await pipeline.subscriptions.replace(ANN, id, Wish("price > 6"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        del site._confirm
        (own,) = site._expected
        site._confirm(Confirm(own))
        await waiting
        site._confirm = lambda message: None
        other = await subscribe(pipeline, "price > 7")
        waiting = asyncio.create_task(site.everywhere(other))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await pipeline.subscriptions.unsubscribe(ANN, other)
        await waiting  # it is gone everywhere

    alone(tmp_path, script)


def test_a_user_with_the_name_of_a_neighbour_publishes_to_it(tmp_path):
    async def script(given):
        given.table.add(wanted(1), link("below"))
        await given.reflect()
        under = Identity("under", frozenset({Role.PUBLISHER}))
        places = await given.pipeline.publishing.publish(under, "default", events(given.pipeline, 7))
        await given.pipeline.settled(places[-1])
        (delivery,) = given.pipeline.deliver.backlog("under").pending.values()
        assert delivery.source == f"under:here:{places[0]}:{delivery.at!r}:"

    with_wants(tmp_path, script, site="here")


def test_what_waits_for_a_neighbour_has_its_origin_after_a_restart(tmp_path):
    async def before(given):
        given.table.add(wanted(1), link("below"))
        await given.reflect()
        await publish(given.pipeline, 7)
        await given.pipeline._store.flush()

    async def after(given):
        (delivery,) = given.pipeline.deliver.backlog("under").pending.values()
        assert delivery.source == f"carl:here:{delivery.position}:{delivery.at!r}:"

    for script in (before, after):
        with_wants(tmp_path, script, site="here")


def test_subscriptions_have_the_same_ids_after_a_restart(tmp_path):
    async def script(pipeline, site):
        await until(lambda: site.shown.root)
        if not pipeline._owners:
            await subscribe(pipeline, "price > 5")
            id = await subscribe(pipeline, "price > 6")
            await pipeline.subscriptions.replace(ANN, id, Wish("price > 7"))
        await site.everywhere(0)  # after all changes so far
        return {one.subscription for one in site._router.table}

    assert alone(tmp_path, script) == alone(tmp_path, script)


def test_a_site_does_not_hear_of_the_ends_of_what_it_wanted(tmp_path):
    async def script(given):
        given.wants._grace = 0
        given.table.add(wanted(1), link("below"))
        await given.reflect()
        given.pipeline.deliver.begin("under", None)  # it has a session
        given.table.remove(wanted(1).id, link("below"))
        await given.reflect()
        await given.pipeline.settled(given.pipeline._match.last)
        assert given.there == []
        assert not given.pipeline.deliver.backlog("under").pending

    with_wants(tmp_path, script)
