"""What is kept is kept before what follows from it is sent."""

import asyncio
import threading

import pytest

from rtfilter.overlay.running.clients import Work
from rtfilter.overlay.running.keeping import Keeper


class Store:
    """Notes what is committed, and may be slow, or fail."""

    def __init__(self, told):
        self.told, self.gate, self.error = told, threading.Event(), None
        self.gate.set()

    def commit(self, changes):
        self.gate.wait(5)
        if self.error is not None:
            raise self.error
        self.told.append(tuple(changes))


def keeping(script):
    async def run():
        told = []
        store = Store(told)
        keeper = Keeper(store, told.append)
        task = asyncio.create_task(keeper.run())
        try:
            await script(keeper, store, told, task)
        finally:
            store.gate.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_what_needs_not_be_kept_goes_at_once():
    async def script(keeper, store, told, task):
        keeper.do(Work([], ["a", "b"]))
        assert told == ["a", "b"]

    keeping(script)


def test_what_follows_from_a_change_waits_for_it_and_keeps_its_place():
    async def script(keeper, store, told, task):
        store.gate.clear()
        keeper.do(Work(["1"], ["a"]))
        await asyncio.sleep(0.05)
        for work in (Work([], ["b"]), Work(["2"], ["c"]), Work(["3"], ["d"])):
            keeper.do(work)
        await asyncio.sleep(0.05)
        assert told == []
        store.gate.set()
        await asyncio.sleep(0.1)
        assert told == [("1",), "a", ("2", "3"), "b", "c", "d"]
        keeper.do(Work([], ["e"]))
        assert told[-1] == "e"

    keeping(script)


def test_what_cannot_be_kept_is_not_sent():
    async def script(keeper, store, told, task):
        store.error = OSError("full")
        keeper.do(Work(["1"], ["a"]))
        with pytest.raises(OSError, match="full"):
            await task
        keeper.do(Work([], ["b"]))
        assert told == []

    keeping(script)
