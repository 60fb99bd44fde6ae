"""What is kept is kept before what follows from it; while nothing can be, the log says so once."""

import asyncio
import logging
import threading

import pytest
import sqlalchemy

from rtfilter.overlay.running import process
from rtfilter.overlay.running.process import Job, Keeper
from rtfilter.store.log import TakenError

FULL = sqlalchemy.exc.OperationalError("", {}, Exception("disk is full"))


class Store:
    """Notes what is committed, and may be slow, or fail."""

    def __init__(self, told):
        self.told, self.gate, self.error, self.tries = told, threading.Event(), None, 0
        self.gate.set()

    def commit(self, changes):
        self.gate.wait(120)
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.told.append(tuple(changes))


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(process, "AGAIN", 0.02)


def run(script):
    async def ran():
        told = []
        store = Store(told)
        keeper = Keeper(store)
        task = asyncio.create_task(keeper.run())
        try:
            async with asyncio.timeout(120):
                await script(keeper, store, told, task)
        finally:
            store.gate.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(ran())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def job(change, told, refused=True):
    return Job(
        [change],
        lambda: told.append(f"kept {change}"),
        (lambda: told.append(f"no {change}")) if refused else None,
    )


def test_what_follows_from_a_change_waits_for_it_in_its_place():
    async def script(keeper, store, told, task):
        store.gate.clear()
        keeper.keep(job("1", told))
        await asyncio.sleep(0.05)
        keeper.keep(Job(["2"]))
        keeper.keep(job("3", told))
        await asyncio.sleep(0.05)
        assert told == []
        store.gate.set()
        await until(lambda: len(told) == 4)
        assert told == [("1",), "kept 1", ("2", "3"), "kept 3"]

    run(script)


def test_what_is_tried_again_comes_before_what_came_meanwhile():
    async def script(keeper, store, told, task):
        store.error = FULL
        store.gate.clear()
        keeper.keep(Job(["1"]))
        await asyncio.sleep(0.05)
        keeper.keep(Job(["2"]))
        store.gate.set()
        await until(lambda: store.tries)
        store.error = None
        await until(lambda: told)
        assert told == [("1", "2")]

    run(script)


def test_what_cannot_be_kept_is_refused_or_tried_again():
    async def script(keeper, store, told, task):
        store.error = FULL
        keeper.keep(job("1", told, refused=False))
        keeper.keep(job("2", told))
        await until(lambda: told)
        assert told == ["no 2"]
        assert keeper.failing
        keeper.keep(job("3", told))
        await until(lambda: len(told) == 2)
        store.error = None
        await until(lambda: len(told) == 4)
        assert told == ["no 2", "no 3", ("1",), "kept 1"]
        assert not keeper.failing

    run(script)


def test_the_log_says_once_that_nothing_can_be_kept_and_once_that_it_can(caplog):
    async def script(keeper, store, told, task):
        store.error = FULL
        keeper.keep(job("1", told, refused=False))
        await until(lambda: store.tries > 4)
        store.error = None
        await until(lambda: told)

    with caplog.at_level(logging.INFO):
        run(script)
    first, last = caplog.records
    assert "cannot be stored, and requests are refused until it can: disk is full" in first.message
    assert (first.levelname, last.levelname) == ("CRITICAL", "WARNING")
    assert "can be stored again" in last.message


def test_who_has_lost_the_database_to_another_process_ends():
    async def script(keeper, store, told, task):
        store.error = TakenError("another process has started the broker")
        keeper.keep(job("1", told))
        with pytest.raises(TakenError):
            await task
        assert told == []

    run(script)
