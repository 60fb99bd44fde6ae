"""A pipeline on a database of its own, for tests."""

import asyncio
import json

from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.service.access import Access
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import Wish
from rtfilter.service.roles import Identity, Role
from rtfilter.store.database import engine
from rtfilter.store.log import Log
from rtfilter.store.user_store import Users

SCHEMA = Schema({"price": float, "symbol": str})
DEFINED = Definition(SCHEMA)
ADMIN = Identity("root", frozenset(Role))
ANN, BOB = (Identity(name, frozenset({Role.SUBSCRIBER})) for name in ("ann", "bob"))
CARL = Identity("carl", frozenset({Role.PUBLISHER}))


def served(path, *scripts, key="symbol", url=None, definition=DEFINED, **more):
    """Run each script with a pipeline of its own, all with the same database.

    Each begins with a filter of the definition; with None, with what the script before it has left.
    """

    async def run(script):
        path.mkdir(exist_ok=True)
        log, nobody = Log(engine(url or f"sqlite:///{path}/log.sqlite")), engine(f"sqlite:///{path}/nobody")
        pipeline = Pipeline(log, path, **{"users": Access(Users(nobody))} | more)
        await pipeline.start()
        try:
            if definition is not None:
                await pipeline.filters.add(ADMIN, "default", definition, key)
            return await unless_died(pipeline, script)
        finally:
            assert pipeline.healthy
            await pipeline.stop()

    return [asyncio.run(run(script)) for script in scripts]


async def unless_died(pipeline, script):
    """The result of a script; what a stage raised, where one ended and the script waits for it for ever."""
    done, died = asyncio.create_task(script(pipeline)), asyncio.create_task(pipeline.died())
    await asyncio.wait((done, died), return_when=asyncio.FIRST_COMPLETED)
    if not done.done():
        await asyncio.wait((done,), timeout=10)
    if not done.done():
        done.cancel()
        raise died.result() or AssertionError("a stage has ended")
    died.cancel()
    return done.result()


def events(pipeline, *prices, symbol=None):
    """Events as they are published."""
    rows = [{"price": price} if symbol is None else {"price": price, "symbol": symbol} for price in prices]
    return (
        pipeline.filters.parse("default").lines(b"\n".join(json.dumps(row).encode() for row in rows)).bodies
    )


async def publish(pipeline, *prices, symbol=None, who=CARL, key=None):
    """Publish, and wait until it is known what matches."""
    places = await pipeline.publishing.publish(who, "default", events(pipeline, *prices, symbol=symbol), key)
    await pipeline.settled(places[-1])
    return places


async def subscribe(pipeline, where, who=ANN, **more):
    return await pipeline.subscriptions.subscribe(who, "default", Wish(where, **more))


def pairs(pipeline, who):
    """What waits for a user: (position, subscription)."""
    return {(one.position, id) for one in pipeline.deliveries.pending(who) for id in one.subscriptions}
