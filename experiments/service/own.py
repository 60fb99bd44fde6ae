"""The doors of ``rtfilter serve``, and the core alone."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any, Final

import msgspec
import numpy as np

from experiments import ResultError
from experiments.service.cases import Case
from experiments.service.offer import Line
from experiments.service.plan import Size
from experiments.service.servers import PATH, Server
from experiments.service.steps import Series
from experiments.service.wires import (
    Http,
    Tcp,
    WebSocket,
    opening,
    post,
    said_tcp,
    said_websocket,
)
from rtfilter.basics.dtypes import IntArray
from rtfilter.replay.output import Row

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
PUBLISHER: Final = "publisher"
NAME: Final = "rtfilter"


def cuts(count: int, frame: int) -> list[tuple[int, int]]:
    """Return the start and end of each frame of `frame` events; at most 200 frames."""
    return list(pairwise(range(0, count + 1, frame)))[:200]


def bodies(case: Case, kind: str, frame: int) -> tuple[list[bytes], str]:
    """Return bodies of requests, and their type; an event alone is JSON."""
    make = case.arrow if kind == ARROW else case.lines
    found = [make(first, last) for first, last in cuts(len(case.points), frame)]
    return found, JSON if kind == LINES and frame == 1 else kind


def matching(case: Case, server: Server, kind: str, frame: int, row: Row, size: Size) -> Series:
    """`match`, as one user or, of several, an admin; all answers are checked once, and compared later."""
    made, told = bodies(case, kind, frame)
    who = case.user(0) if case.users == 1 else "admin"
    accept = ARROW if kind == ARROW else JSON
    requests = [post(f"{PATH}/match", told, body, who, accept) for body in made]
    lines = [Line(server.port, Http()) for _ in range(size.connections)]
    answers = [lines[0].ask(request) for request in requests]
    right = case.filter().match_batch(case.points[: len(requests) * frame])
    found = [sorted(ids) for body in answers for ids in _matches(body, kind)]
    wanted = [sorted(server.ids[right[event]].tolist()) for event in range(len(right))]
    if found != wanted:
        raise ResultError(f"wrong answers of match, {told}, frames of {frame}")
    door = "match, Arrow" if kind == ARROW else "match, JSON lines" if frame > 1 else "match, JSON"
    named = {"server": NAME, "door": door, "frame": frame, **row}
    return Series(named, lines, requests, server.worked, answers)


def _matches(body: bytes, kind: str) -> list[list[int]]:
    """Return the ids of an answer, event by event."""
    found: list[list[int]]
    if kind == ARROW:
        import pyarrow as pa

        with pa.ipc.open_stream(body) as stream:
            found = stream.read_all()["matches"].to_pylist()
    else:
        found = msgspec.json.decode(body)["matches"]
    return found


@contextmanager
def listening(case: Case, server: Server, websocket: bool = False) -> Iterator[Sequence[Line]]:
    """Yield a session of each subscriber, that receives."""
    with ExitStack() as stack:
        found = []
        for user in range(case.users):
            line = session(server, f"u{user}", websocket)
            stack.callback(line.close)
            line.ask(_say(websocket)("READY", b"{}"))
            found.append(line)
        yield found


def session(server: Server, user: str, websocket: bool) -> Line:
    """Return a authenticated session."""
    line = Line(server.port, WebSocket()) if websocket else Line(server.tcp_port, Tcp())
    if websocket:
        line.ask(opening("/session"))
    line.ask(_say(websocket)("CONNECT", b'{"user":"%s"}' % user.encode()))
    return line


def _say(websocket: bool) -> Callable[[str, bytes], bytes]:
    return said_websocket if websocket else said_tcp


def publishing(
    case: Case, server: Server, way: str, frame: int, listeners: Sequence[Line], row: Row, size: Size
) -> Series:
    """Publish, over HTTP, TCP or WebSocket, to all listeners."""
    made, told = bodies(case, LINES, frame)
    if way == "HTTP":
        requests = [post(f"{PATH}/events", told, body, PUBLISHER) for body in made]
        lines = [Line(server.port, Http()) for _ in range(size.connections)]
    else:
        websocket = way == "WebSocket"
        events = [b'{"events":[%s]}' % body.replace(b"\n", b",") for body in made]
        requests = [_say(websocket)("PUBLISH", body) for body in events]
        lines = [session(server, PUBLISHER, websocket) for _ in range(size.connections)]
    named = {"server": NAME, "door": f"publish, {way}", "frame": frame, **row}
    counts = deliveries(case)[: len(requests) * frame].reshape(-1, frame).sum(axis=1)
    return Series(named, lines, requests, server.worked, listeners=listeners, deliveries=counts)


def deliveries(case: Case) -> IntArray:
    """Return the number of users that each event goes to, int64 (n,)."""
    matches = case.filter().match_batch(case.points)
    events = np.repeat(np.arange(len(case.points)), matches.counts)
    pairs = np.unique(events * case.users + matches.ids % case.users)
    return np.bincount(pairs // case.users, minlength=len(case.points))


def core(case: Case, size: Size, row: Row) -> list[Row]:
    """Return the core's own time for the same events, in this process, without a server."""
    import pyarrow as pa

    target = case.filter()
    found: list[Row] = []
    for frame in sorted({*size.lines, *size.arrow}):
        spans = cuts(len(case.points), frame)
        texts = [case.lines(*span) for span in spans]
        objects = [case.objects(*span) for span in spans]
        streams = [case.arrow(*span) for span in spans]

        def lines(texts: list[bytes] = texts) -> None:
            for text in texts:
                target.match_batch([msgspec.json.decode(line) for line in text.split(b"\n")])

        def arrow(streams: list[bytes] = streams) -> None:
            for stream in streams:
                with pa.ipc.open_stream(io.BytesIO(stream)) as opened:
                    target.match_batch(opened.read_all())

        def ordered(objects: list[Any] = objects) -> None:
            for some in objects:
                for _ in target.stream(some):
                    pass

        def plain(objects: list[Any] = objects) -> None:
            for some in objects:
                target.match_batch(some)

        ways = {
            "match_batch of objects": plain,
            "match_batch of JSON lines": lines,
            "match_batch of Arrow": arrow,
            "stream of objects": ordered,
        }
        for name, call in ways.items():
            us = median(_timed(call) for _ in range(5)) / (len(spans) * frame) * 1e6
            found.append(
                {"server": "core", "door": name, "frame": frame, **row, "us": us, "answered": 1e6 / us}
            )
    return found


def _timed(call: Callable[[], None]) -> float:
    begun = perf_counter()
    call()
    return perf_counter() - begun
