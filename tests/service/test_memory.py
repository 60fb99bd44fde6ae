"""Memory that goes back to the system."""

import asyncio
import ctypes
import gc
import sys

import numpy as np
import pytest
from served import CARL, events, served

from rtfilter.index import ready, room
from rtfilter.index.tree import RStarTree
from rtfilter.service.memory import MANY, Memory


@pytest.fixture
def not_loaded(monkeypatch):
    """No collection and no freezing of the objects of other tests."""
    monkeypatch.setattr(ready, "ready", lambda: False)


def test_what_searches_keep_is_freed(monkeypatch):
    monkeypatch.setattr(ready, "ready", lambda: True)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    tree = RStarTree.bulk_load(np.zeros((5000, 2)), np.ones((5000, 2)))
    tree.search([[0.5, 0.5]])
    assert room._scratch.kept.rooms
    Memory().give_back()
    assert not room._scratch.kept.rooms


@pytest.mark.usefixtures("not_loaded")
@pytest.mark.parametrize("library", [OSError("none"), object()])
def test_it_does_no_harm_where_the_system_has_no_trim(monkeypatch, library):
    def load(name):
        if isinstance(library, OSError):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    Memory().give_back()


@pytest.mark.usefixtures("not_loaded")
def test_garbage_is_looked_for_once_after_many_objects_are_gone(monkeypatch):
    looked, counts = [], [1, 2, 1, 2 - MANY, 1 - MANY, 0 - MANY, 3 - 2 * MANY, 0 - 2 * MANY]
    monkeypatch.setattr(gc, "collect", lambda: looked.append(count))
    one = Memory()
    for count in counts:
        monkeypatch.setattr(sys, "getallocatedblocks", lambda count=count: 5 * MANY + count)
        one.give_back()
    assert looked == [1 - MANY, 0 - 2 * MANY]


def test_garbage_is_not_looked_for_in_the_search_code(monkeypatch):
    calls = []
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(ready, "ready", iter([False, True, True]).__next__)
    one = Memory()
    for _ in range(3):
        one.give_back()
    assert calls == ["collect", "freeze"]


def test_it_is_given_back_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.upkeep.GIVE_BACK", 0.0)
    given = []
    monkeypatch.setattr(Memory, "give_back", lambda self: given.append(None))

    async def script(pipeline):
        while len(given) < 2:
            await pipeline.rounds.wait()

    served(tmp_path, script)


def test_stages_keep_nothing_of_an_event_that_is_settled(tmp_path):
    async def script(pipeline):
        (body,) = bodies = events(pipeline, 1)
        before = sys.getrefcount(body)
        (last,) = await pipeline.publishing.publish(CARL, "default", bodies)
        await pipeline.settled(last)
        async with asyncio.timeout(60):
            while sys.getrefcount(body) > before:  # what is being written then has it, too
                await asyncio.sleep(0.01)

    served(tmp_path, script)
