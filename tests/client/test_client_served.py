"""The clients with the real server."""

import asyncio
import threading

import pytest
from real_server import RealServer, serving

from rtfilter.client import RefusedError, connect, connect_plain, get_client

pytestmark = pytest.mark.slow
MANY = 150
"""Events while a server is killed."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("served"))
    yield server
    server.kill()


def test_the_own_subscriptions_are_listed_replaced_and_tried_while_deliveries_come(server):
    async def main():
        async with connect(server.url, user="kim") as kim, asyncio.timeout(60):
            low = await kim.subscribe("price < 5", metadata={"a": 1}, ttl=900, key="low")
            assert await kim.subscribe("price < 5", metadata={"a": 1}, ttl=900, key="low") == low
            await kim.ready()
            high = [await kim.subscribe(f"price > {i}") for i in range(10, 130)]
            found = [one async for one in kim.subscriptions()]
            assert [one.id for one in found] == [low, *high]  # more than one page
            assert (found[0].where, found[0].metadata, found[0].ttl) == ("price < 5", {"a": 1}, 900)
            assert [one.id async for one in kim.subscriptions(filter="none")] == []
            assert await kim.match([{"price": 1}, {"price": 7}, {"price": 11}]) == [[low], [], high[:1]]
            assert await kim.match({"price": 1}) == [[low]]
            reasons = await kim.explain(low, {"price": 6})
            assert not reasons.matched
            assert str(reasons).startswith("no match\n")
            assert await kim.replace(low, {"symbol": ["A"]}, ttl=60) is not None
            assert await kim.replace(low, {"symbol": ["A"]}) is None
            one = await kim.subscription(low)
            assert (one.where, one.metadata, one.expires) == ({"symbol": ["A"]}, None, None)
            with pytest.raises(RefusedError, match="no subscription") as refused:
                await kim.subscription(10**9)
            assert refused.value.kind == "unknown"

    asyncio.run(main())


def test_the_own_subscriptions_without_asyncio(server):
    with connect_plain(server.url, user="lea") as lea:
        id = lea.subscribe("price < 5", key="low")
        assert lea.subscribe("price < 5", key="low") == id
        assert lea.replace(id, "price < 6", ttl=60) == lea.subscription(id).expires
        assert [one.where for one in lea.subscriptions()] == ["price < 6"]
        assert lea.match([{"price": 5}]) == [[id]]
        assert lea.explain(id, {"price": 5}).matched


def test_with_asyncio(server):
    async def main():
        async with (
            connect(server.url, user="ann", window=8) as ann,
            connect(server.url, user="bob") as bob,
            asyncio.timeout(60),
        ):
            low = await ann.subscribe("price < 5", metadata={"to": "ann@example.org"})
            high = await ann.subscribe({"price": [{"numeric": [">", 8]}]})
            prices = [float(i % 10) for i in range(300)]
            positions = await bob.publish([{"price": price} for price in prices], key="today")
            assert await bob.publish([{"price": price} for price in prices], key="today") == positions
            expected = {at for at, price in zip(positions, prices, strict=True) if price < 5 or price > 8}
            found = {}
            async for delivery in ann:
                assert delivery.position not in found
                found[delivery.position] = delivery
                assert len(ann.session.ledger) <= 8
                if len(found) == 100:
                    new = await ann.subscribe("price = 5.5")
                    await bob.publish({"price": 5.5})
                if len(found) == len(expected) + 1:
                    await delivery.acknowledge()
                    break
            assert {at for at, one in found.items() if one.subscriptions != (new,)} == expected
            assert {one.subscriptions for one in found.values()} == {(low,), (high,), (new,)}
            assert all(one.response > 0 and one.events[0].at > 1.7e9 for one in found.values())
            assert await ann.stop()
            while await ann.get():  # acknowledgements are on their way
                await asyncio.sleep(0.05)
            for id in (low, high, new):
                assert await ann.unsubscribe(id)
            with pytest.raises(RefusedError) as told:
                await ann.unsubscribe(low)
            assert told.value.kind == "unknown"
            with pytest.raises(RefusedError) as told:
                await bob.publish([{"price": 1.0}, 5])
            assert (told.value.kind, told.value.row) == ("event", 1)

    asyncio.run(main())


def test_a_digest_and_an_end_of_life(server):
    with connect_plain(server.url, user="carl") as client:
        digest = client.subscribe("price > 0", digest=1)
        short = client.subscribe("price < 0", ttl=0.3)
        deliveries = client.deliveries(timeout=60)
        client.publish([{"price": price} for price in (1.0, 2.0, 3.0)])
        got, ended = [], None
        while len(got) < 3 or ended is None:  # on a slow machine there may be more than one digest
            delivery = next(deliveries)
            if delivery.ended is not None:
                ended = delivery
                continue
            got += [one.body["price"] for one in delivery.events]
            assert delivery.subscriptions == (digest,)
        assert got == [1.0, 2.0, 3.0]
        assert ended.subscriptions == (short,)
        assert ended.ended
        assert client.unsubscribe(digest)


def test_with_futures(server):
    client, got, there = get_client("dora", "", server.url), [], threading.Event()

    def take(delivery):
        got.append(delivery.event["symbol"])
        if len(got) == 2:
            there.set()

    client.set_event_received_handler(take)
    id = client.subscribe("symbol LIKE 'AC%'").result(60)
    with connect_plain(server.url, user="bob") as bob:
        bob.publish({"symbol": "ACME"})
        assert client.get().result(60)
        assert client.ready().result(60)
        bob.publish([{"symbol": "other"}, {"symbol": "ACID"}])
        assert there.wait(60)
    assert got == ["ACME", "ACID"]
    assert client.stop_sending().result(60)
    assert client.unsubscribe(id).result(60)
    assert client.disconnect().result(60)


def test_who_listens_comes_back_after_the_server_was_ended(tmp_path):
    with serving(tmp_path) as server, connect_plain(server.url, user="ann") as ann:
        ann.subscribe("price >= 0")
        deliveries, found, published = ann.deliveries(timeout=60), set(), set()
        for price in (1.0, 3.0):
            with connect_plain(server.url, user="bob") as bob:
                bob.publish([{"price": price}, {"price": price + 1}])
            published |= {price, price + 1}
            found.add(next(deliveries).event["price"])  # others wait, or are on their way
            server.end()
            server.start()
        while found != published:
            found.add(next(deliveries).event["price"])


def test_a_server_that_is_killed_and_comes_back_is_not_noticed(tmp_path):
    server = RealServer(tmp_path)

    async def main():
        async with asyncio.timeout(300):
            ann = await connect(server.url, user="ann", window=16).open()
            bob = await connect(server.url, user="bob").open()
            await ann.subscribe("price >= 0")
            positions, found = [], {}

            async def publish():
                for price in range(MANY):
                    positions.extend(await bob.publish({"price": float(price)}))

            async def listen():
                async for delivery in ann:
                    if delivery.position in found:
                        assert delivery.redelivered
                    found[delivery.position] = delivery.event["price"]
                    if set(found) >= set(positions) and len(positions) == MANY:
                        await delivery.acknowledge()
                        return

            async def kill():
                for share in (1, 2):
                    while len(positions) < share * MANY / 3:
                        await asyncio.sleep(0.01)
                    server.kill()
                    await asyncio.to_thread(server.start)

            await asyncio.gather(publish(), listen(), kill())
            assert [found[at] for at in positions] == [float(price) for price in range(MANY)]
            assert len(found) == MANY
            assert await ann.stop()
            while await ann.get():  # acknowledgements are on their way
                await asyncio.sleep(0.05)
            await ann.disconnect()
            await bob.disconnect()

    try:
        asyncio.run(main())
    finally:
        server.kill()


def test_hints_are_logged_once(server, caplog):
    with connect_plain(server.url, user="mia") as mia:
        for _ in range(2):
            mia.publish([{"price": 1}, {"prise": 1}])
            mia.match({"price": "9.5"})
    found = [one.getMessage() for one in caplog.records if one.name == "rtfilter.client.client"]
    assert found == [
        "event 1: unknown attribute 'prise'; did you mean 'price'?",
        "attribute 'price' is a number, and '9.5' is none",
    ]


def test_an_empty_key_is_none_that_anyone_meant(server):
    with connect_plain(server.url, user="nat") as nat:
        for ask in (lambda: nat.subscribe("price < 5", key=""), lambda: nat.publish({"price": 1}, key="")):
            with pytest.raises(RefusedError, match="a key has"):
                ask()


def test_explain_tells_of_a_misspelt_attribute(server):
    with connect_plain(server.url, user="pia") as pia:
        id = pia.subscribe("price < 5")
        assert str(pia.explain(id, {"prise": 1})).endswith(
            "hint: unknown attribute 'prise'; did you mean 'price'?"
        )
