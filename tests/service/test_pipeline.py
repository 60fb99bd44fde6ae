"""Publish, store, match, deliver; and the same again after a restart."""

import asyncio
import json

import numpy as np
import pytest

from rtfilter import Schema
from rtfilter.errors import EventError, PredicateError, UnknownSubscriptionError
from rtfilter.service.log import Log
from rtfilter.service.pipeline import Pipeline

SCHEMA = Schema({"price": float})


def served(path, *scripts):
    """Run each script with a pipeline of its own, all with the same file."""

    async def run(script):
        pipeline = Pipeline(SCHEMA, Log(path / "log.sqlite"))
        await pipeline.start()
        try:
            return await script(pipeline)
        finally:
            assert pipeline.healthy
            await pipeline.stop()

    return [asyncio.run(run(script)) for script in scripts]


async def settled(pipeline, position):
    while pipeline.match.settled < position:
        await asyncio.sleep(0.001)


def seen(pipeline, user):
    return sorted((one.position, one.subscriptions) for one in pipeline.pending(user))


def events(pipeline, *prices):
    return pipeline.parse.lines(b"\n".join(json.dumps({"price": price}).encode() for price in prices))


def test_deliveries_are_those_of_the_position_in_the_log_also_after_restarts(tmp_path):
    async def first(pipeline):
        rng = np.random.default_rng(5)
        rules, wanted, ids = {}, {"ann": set(), "bob": set()}, []
        for step in range(40):
            user = ("ann", "bob")[step % 2]
            low = int(rng.integers(100))
            id = await pipeline.subscribe(user, f"price >= {low}")
            rules[id] = user, low
            if step % 5 == 4:
                gone = ids.pop(0)
                await pipeline.unsubscribe(rules[gone][0], gone)
                for mine in wanted.values():
                    mine -= {pair for pair in mine if pair[1] == gone}
                del rules[gone]
            ids.append(id)
            prices = rng.integers(100, size=3).tolist()
            places = await pipeline.publish("carl", events(pipeline, *prices))
            for place, price in zip(places, prices, strict=True):
                for id, (owner, low) in rules.items():
                    if price >= low:
                        wanted[owner].add((place, id))
        await settled(pipeline, places[-1])
        return wanted, {user: pairs(pipeline, user) for user in wanted}

    def pairs(pipeline, user):
        return {(place, id) for place, ids in seen(pipeline, user) for id in ids}

    async def second(pipeline):
        (last,) = await pipeline.publish("carl", events(pipeline, -1))
        await settled(pipeline, last)
        return {user: pairs(pipeline, user) for user in ("ann", "bob")}

    (wanted, before), after = served(tmp_path, first, second)
    assert before == wanted
    assert after == wanted


def test_what_is_acknowledged_is_not_delivered_again(tmp_path):
    async def first(pipeline):
        await pipeline.subscribe("ann", "price > 0")
        places = await pipeline.publish("bob", events(pipeline, 1, 2, 3))
        await settled(pipeline, places[-1])
        await pipeline.acknowledge("bob", places)
        await pipeline.acknowledge("ann", [places[0], places[2], 99])
        return [places[1]]

    async def second(pipeline):
        await settled(pipeline, 4)
        return [one.position for one in pipeline.pending("ann")]

    assert len({tuple(one) for one in served(tmp_path, first, second, second)}) == 1


def test_a_repeated_publish_is_one_event(tmp_path):
    async def script(pipeline):
        await pipeline.subscribe("ann", "price > 0")
        one = await pipeline.publish("bob", events(pipeline, 1, 2), "k")
        await settled(pipeline, one[-1])
        return one, await pipeline.publish("bob", events(pipeline, 1, 2), "k"), seen(pipeline, "ann")

    (once, again, found), (once_more, *_) = served(tmp_path, script, script)
    assert once == again == once_more
    assert [place for place, _ in found] == once


def test_many_publishers_are_one_transaction(tmp_path, monkeypatch):
    commits = []
    plain = Log.commit
    monkeypatch.setattr(Log, "commit", lambda log, *given: commits.append(given) or plain(log, *given))

    async def script(pipeline):
        await asyncio.gather(*(pipeline.publish(f"u{i}", events(pipeline, i)) for i in range(50)))

    served(tmp_path, script)
    assert len(commits) == 1


def test_a_failed_transaction_is_told_and_the_next_one_works(tmp_path, monkeypatch):
    async def script(pipeline):
        with monkeypatch.context() as patch:
            patch.setattr(Log, "commit", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await pipeline.publish("ann", events(pipeline, 1))
        assert await pipeline.publish("ann", events(pipeline, 1)) == [1]

    served(tmp_path, script)


def test_nothing_wrong_is_stored(tmp_path):
    async def script(pipeline):
        for line, said in [
            (b"{", "event 1: this is not JSON"),
            (b"[]", "event 1: an event is a JSON object"),
        ]:
            with pytest.raises(EventError, match=said):
                pipeline.parse.lines(b'{"price": 1}\n' + line)
        with pytest.raises(PredicateError):
            await pipeline.subscribe("ann", "nothing > 1")
        with pytest.raises(PredicateError, match="where"):
            await pipeline.subscribe("ann", 7)
        id = await pipeline.subscribe("ann", {"price": [5]})
        for user, asked in [("bob", id), ("ann", "other")]:
            with pytest.raises(UnknownSubscriptionError, match=f"no subscription '{asked}'"):
                await pipeline.unsubscribe(user, asked)

    served(tmp_path, script)
    assert len(list(Log(tmp_path / "log.sqlite").entries())) == 1
