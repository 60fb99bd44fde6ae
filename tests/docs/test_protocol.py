"""The page of the protocol, against a server."""

import asyncio
import json
import re
import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_pages import run

from rtfilter import Schema
from rtfilter.basics.session_states import TABLE
from rtfilter.definition import Definition
from rtfilter.service import service_errors
from rtfilter.service.access import Access
from rtfilter.service.conversation import Conversation
from rtfilter.service.doors.admission import Strangers
from rtfilter.service.doors.frames import ClientDirective, FrameError, Reader, ServerDirective, write
from rtfilter.service.doors.tcp import Timeouts, listen
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.roles import Identity
from rtfilter.service.service_errors import ServiceError
from rtfilter.service.settings import Settings
from rtfilter.service.upkeep import Keeping
from rtfilter.store.database import engine
from rtfilter.store.log import Log
from rtfilter.store.user_store import Users

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
VARYING = {"connection", "at", "response", "since"}


@contextmanager
def server(path):
    """A server in a thread; gives its address, and what waits until all events up to one are matched."""
    found, over = [], []
    begun = threading.Event()

    async def serve():
        database = engine(f"sqlite:///{path}/log.sqlite")
        log, users = Log(database), Access(Users(database))
        pipeline = Pipeline(log, path, users, keeping=Keeping(redeliver=1.0))
        await pipeline.start()
        await pipeline.filters.add(
            Identity("root"), "default", Definition(Schema({"price": float, "symbol": str}))
        )
        end = asyncio.Event()
        over.append((asyncio.get_running_loop(), end))
        bound = socket.create_server(("127.0.0.1", 0))
        async with listen(lambda: Conversation(pipeline), bound, Strangers(), timeouts=Timeouts(end=0.1)):
            found.append((bound.getsockname(), pipeline.settled))
            begun.set()
            await end.wait()
        await pipeline.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert begun.wait(120)
    try:
        loop, end = over[0]
        address, settled = found[0]
        yield address, lambda place: asyncio.run_coroutine_threadsafe(settled(place), loop).result(120)
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


def alike(said):
    """Without what is another value each time."""
    if isinstance(said, dict):
        return {name: type(one) if name in VARYING else alike(one) for name, one in said.items()}
    return [alike(one) for one in said] if isinstance(said, list) else said


def lines(block):
    """(who, directive, body) of each line."""
    split = (line.split(" ", 2) for line in block.strip().splitlines())
    return [(who, directive, json.loads(body)) for who, directive, body in split]


async def play(address, settle, block):
    """Say what the client says, and compare what the server says; between two things said, in any order."""
    reader, writer = await asyncio.open_connection(*address)
    frames, heard, wanted = Reader(ServerDirective), [], []

    async def check():
        while len(heard) < len(wanted):
            try:
                frames.feed(await asyncio.wait_for(reader.read(2**16), 120))
            except TimeoutError:
                raise AssertionError(f"wanted {wanted}, heard {heard}") from None
            heard.extend((one.directive.name, alike(json.loads(one.body or b"{}"))) for one in frames)
        for one in wanted:
            assert one in heard
            heard.remove(one)
            for place in one[1].get("positions", ()):
                settle(place)
        assert heard == []
        wanted.clear()

    try:
        for who, directive, body in lines(block):
            if who == "<":
                wanted.append((directive, alike(body)))
            else:
                await check()
                writer.write(write(ClientDirective[directive], json.dumps(body).encode()))
        await check()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.slow
def test_the_conversations_go_as_shown_and_the_client_works(tmp_path, capsys):
    with server(tmp_path) as (address, settle):
        for block in re.findall(r"^```text\n([>].*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
            asyncio.run(play(address, settle, block))
        (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
        run(block.replace("7410", str(address[1])), {}, capsys)


def test_the_frame_is_as_shown():
    (block,) = re.findall(r"^```text\n(00.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    shown = "".join(line[:48] for line in block.splitlines())
    reader = Reader()
    reader.feed(bytes.fromhex(shown))
    assert list(reader) == [(ClientDirective.SUBSCRIBE, b'{"where":"price > 100"}')]
    assert write(ClientDirective.READY).hex(" ") in PAGE
    assert f"at most {Settings(data=Path()).frame}, unless" in PAGE


def test_the_numbers_are_as_shown():
    shown = re.findall(r"\| ([A-Z]+) \| (\d+) (?=\|)", PAGE)
    sides = (ClientDirective, ServerDirective)
    assert sorted(shown) == sorted((one.name, str(one.value)) for side in sides for one in side)


def test_the_table_of_states_is_the_table():
    shown = {}
    for state, directives, following in re.findall(
        r"^\| ([A-Z_]+) \| ([A-Z, ]+) \| ([A-Z]+) \|$", PAGE, re.M
    ):
        shown.setdefault(state, {}).update(dict.fromkeys(directives.split(", "), following))
    assert shown == {state: row for state, row in TABLE.items() if row}


def test_the_kinds_of_errors_are_those_of_sessions():
    shown = re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.M)))
    errors = [one for one in ServiceError.__subclasses__() if one.__module__ == service_errors.__name__]
    assert sorted(shown) == sorted([*(one.kind for one in errors), FrameError.kind, "predicate", "event"])
