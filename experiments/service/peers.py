"""Peers: a FastAPI application over `rtree`, PostgreSQL with a query per event, NATS for delivery alone."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, sleep, thread_time
from typing import Any, Final

import numpy as np

from experiments import ResultError, postgresql
from experiments.load.mixed import arrivals
from experiments.ports import free_port
from experiments.service.cases import Case
from experiments.service.offer import DEPTH, Line, Offered
from experiments.service.own import LINES, cuts
from experiments.service.plan import Size
from experiments.service.servers import Server, listens, on_core, process
from experiments.service.steps import Series, percentiles
from experiments.service.wires import Heard, Http, Kind, Wire, post
from rtfilter.replay.output import Row

FASTAPI: Final = "FastAPI, rtree"
POSTGRESQL: Final = "PostgreSQL"
NATS: Final = "NATS"
JETSTREAM: Final = "NATS JetStream"
STREAM: Final = "events"
POSTGRESQL_SETTINGS: Final = (
    "jit=off",
    "shared_buffers=512MB",
    "maintenance_work_mem=512MB",
    "max_parallel_workers_per_gather=0",
)


# -- FastAPI over rtree ----------------------------------------------------------------------------------


@contextmanager
def fastapi_rtree(case: Case, core: int) -> Iterator[Server]:
    """Yield the application, under uvicorn."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        boxes = Path(folder, "boxes.npz")
        np.savez(boxes, low=case.boxes.low, high=case.boxes.high, names=np.array(case.names))
        command = [sys.executable, "-m", "uvicorn", "experiments.service.fastapi_rtree:app"]
        command += ["--port", str(port), "--log-level", "warning", "--no-access-log"]
        log = Path(folder, "log")
        with process(command, core, log, {"BOXES": str(boxes)}) as running:
            listens(port, running, log)
            yield Server(running.pid, port)


def fastapi_series(case: Case, server: Server, frame: int, row: Row, size: Size) -> Series:
    """Ask it; its answers are compared with the filter's."""
    bodies = [case.lines(*span) for span in cuts(len(case.points), frame)]
    requests = [post("/match", LINES, body, "anyone") for body in bodies]
    lines = [Line(server.port, Http()) for _ in range(size.connections)]
    answers = [lines[0].ask(request) for request in requests]
    right = case.filter().match_batch(case.points[: len(requests) * frame])
    import msgspec

    found = [sorted(ids) for body in answers for ids in msgspec.json.decode(body)["matches"]]
    if found != [sorted(right[event].tolist()) for event in range(len(right))]:
        raise ResultError(f"wrong answers of {FASTAPI}")
    named = {
        "server": FASTAPI,
        "door": "match, JSON lines" if frame > 1 else "match, JSON",
        "frame": frame,
        **row,
    }
    return Series(named, lines, requests, server.worked, answers)


# -- PostgreSQL ------------------------------------------------------------------------------------------


def postgresql_rows(case: Case, core: int, row: Row, size: Size, seed: int) -> list[Row]:
    """Return a query per event on one connection, by the best of three indexes; all of them are timed."""
    import psycopg

    count = case.boxes.low.shape[1]
    low, high = [f"l{at}" for at in range(count)], [f"h{at}" for at in range(count)]
    cube = "SELECT id FROM boxes WHERE box @> cube(%s::float8[])"
    ranges = " AND ".join(
        f"int4range({one}, {other}, '[]') @> %s::int" for one, other in zip(low, high, strict=True)
    )
    pairs = " AND ".join(f"%s::int BETWEEN {one} AND {other}" for one, other in zip(low, high, strict=True))
    with ExitStack() as stack:
        with on_core(core):
            dsn = stack.enter_context(postgresql.server(*POSTGRESQL_SETTINGS))
        link = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        server = Server(link.info.backend_pid, 0)  # the process that does all of it
        link.execute("CREATE EXTENSION cube")
        columns = ", ".join(f"{name} int" for name in (*low, *high))
        link.execute(f"CREATE TABLE boxes (id int, {columns})")
        with link.cursor().copy("COPY boxes FROM STDIN") as copy:
            for id, box in enumerate(np.hstack(case.boxes).astype(int).tolist()):
                copy.write_row([id, *box])
        corners = f"cube(ARRAY[{', '.join(low)}]::float8[], ARRAY[{', '.join(high)}]::float8[])"
        link.execute(f"ALTER TABLE boxes ADD box cube GENERATED ALWAYS AS ({corners}) STORED")
        points = case.points.astype(int).tolist()
        given: dict[str, tuple[str, list[Any]]] = {
            "12 pairs of columns, a scan": (f"SELECT id FROM boxes WHERE {pairs}", points),
            "cube, GiST": (cube, [[[float(one) for one in point]] for point in points]),
            "12 ranges, GiST": (f"SELECT id FROM boxes WHERE {ranges}", points),
        }
        each = (f"int4range({one}, {other}, '[]')" for one, other in zip(low, high, strict=True))
        indexes = {
            "cube, GiST": "CREATE INDEX of_cubes ON boxes USING gist (box)",
            "12 ranges, GiST": f"CREATE INDEX of_ranges ON boxes USING gist ({', '.join(each)})",
        }
        right = case.filter().match_batch(case.points[:200])
        times: dict[str, float] = {}
        found: list[Row] = []
        for name, (query, values) in given.items():
            if name in indexes:
                link.execute(indexes[name])
            link.execute("VACUUM ANALYZE boxes")
            ask = _asking(link, query)
            begun, asked = perf_counter(), 0
            while asked < 20 or (perf_counter() - begun < size.seconds / 2 and asked < 200):
                if sorted(ask(values[asked])) != sorted(right[asked].tolist()):
                    raise ResultError(f"wrong answers of {POSTGRESQL}, {name}")
                asked += 1
            times[name] = (perf_counter() - begun) / asked
            named = {"server": POSTGRESQL, "door": f"query, {name}", "frame": 1, **row}
            found.append(named | {"closed": True, "offered": None, "answered": 1 / times[name]})
        best = min(times, key=times.__getitem__)
        ask, values = _asking(link, given[best][0]), given[best][1]
        for share in size.shares:
            rate = share / times[best]
            due = arrivals(np.random.default_rng([seed, round(rate)]), rate, size.seconds)
            before = server.worked()
            offered = _in_turn(ask, values, due, size.seconds)
            named = {"server": POSTGRESQL, "door": f"query, {best}", "frame": 1, **row, "closed": False}
            missing = np.isnan(offered.done)
            waits = np.where(missing, offered.lasted, offered.done) - due
            found.append(
                named
                | {
                    "offered": rate,
                    "requests": len(due),
                    "answered": float((offered.done <= size.seconds).sum() / size.seconds),
                    "unanswered": int(missing.sum()),
                    "refused": 0,
                    **percentiles(waits, ""),
                    "server_share": (server.worked() - before) / offered.lasted,
                    "generator_share": offered.worked / offered.lasted,
                    "limit": None,
                }
            )
        return found


def _asking(link: Any, query: str) -> Any:
    """Return a prepared query, which returns ids."""
    cursor = link.cursor(binary=True)

    def ask(values: list[Any]) -> list[int]:
        cursor.execute(query, values, prepare=True)
        return [id for (id,) in cursor.fetchall()]

    return ask


def _in_turn(ask: Any, values: list[Any], due: Any, window: float) -> Offered:
    """Ask when each is due, or as soon as the one before is answered: one connection."""
    done = np.full(len(due), np.nan)
    worked, begun = thread_time(), perf_counter()
    for which, moment in enumerate(due.tolist()):
        now = perf_counter() - begun
        if now > 2 * window:
            break
        if moment > now:
            sleep(moment - now)
        ask(values[which % len(values)])
        done[which] = perf_counter() - begun
    lasted = perf_counter() - begun
    return Offered(due, due, done, window, lasted=lasted, worked=thread_time() - worked)


# -- NATS ------------------------------------------------------------------------------------------------


class Nats(Wire):
    """The protocol of NATS. Each frame is followed by PING, or has its events acknowledged by JetStream.

    Parameters
    ----------
    frame : int
        Acknowledgements that make an answer; 0 for PONG.
    """

    _message: Final = re.compile(rb"MSG (\S+) (\d+) (?:(\S+) +| +)?(\d+)\r\n")

    def __init__(self, frame: int = 0) -> None:
        super().__init__()
        self._frame, self._count, self._reply = frame, 0, b""

    def _cut(self) -> list[Heard]:
        held, found, at = self.held, [], 0
        while (end := held.find(b"\r\n", at)) >= 0:
            if held[at : at + 3] != b"MSG":
                if held[at : at + 4] == b"PONG" and not self._frame:
                    found.append(Heard(Kind.ANSWER, b""))
                elif held[at : at + 4] == b"-ERR":
                    raise ConnectionError(bytes(held[at:end]).decode())
                at = end + 2
                continue
            told = self._message.match(held, at)
            assert told is not None
            last = told.end() + int(told[4]) + 2
            if len(held) < last:
                break
            if told[2] == b"1":
                self._reply = told[3] or b""
                found.append(Heard(Kind.DELIVERY, bytes(held[told.end() : last - 2])))
            else:
                self._count += 1
                if b'"error"' in held[told.end() : last]:
                    found.append(Heard(Kind.REFUSED, bytes(held[told.end() : last - 2])))
                elif self._count == self._frame:
                    self._count = 0
                    found.append(Heard(Kind.ANSWER, b""))
            at = last
        del held[:at]
        return found

    def acknowledgement(self, upto: int) -> bytes:
        """Return all up to the last delivery; without JetStream nothing."""
        return b"PUB %s 4\r\n+ACK\r\n" % self._reply if self._reply else b""


@contextmanager
def nats(core: int) -> Iterator[Server]:
    """Yield a server, with JetStream on the disk."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        log = Path(folder, "log")
        command = [str(shutil.which("nats-server")), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder]
        with process(command, core, log) as running:
            listens(port, running, log)
            yield Server(running.pid, port)


async def _make_stream(port: int) -> None:
    """Make a stream in files, and a durable consumer that acknowledges many at once."""
    import nats as client
    from nats.js import api

    link = await client.connect(f"nats://127.0.0.1:{port}")
    stream = link.jetstream()
    await stream.add_stream(name=STREAM, subjects=["stored"], storage=api.StorageType.FILE)
    consumer = api.ConsumerConfig(
        durable_name="listener",
        deliver_subject="delivered",
        ack_policy=api.AckPolicy.ALL,
        max_ack_pending=1_000_000,
    )
    await stream.add_consumer(STREAM, consumer)
    await link.close()


def nats_series(case: Case, server: Server, durable: bool, frame: int, row: Row) -> Series:
    """Publish to one subscriber, which has everything."""
    if durable:
        asyncio.run(_make_stream(server.port))
    hello = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
    listener = Line(server.port, Nats())
    listener.ask(hello + b"SUB %s 1\r\nPING\r\n" % (b"delivered" if durable else b"events"))
    line = Line(server.port, Nats())
    line.ask(hello + b"SUB inbox 2\r\nPING\r\n")
    line.wire = Nats(frame if durable else 0)
    head = b"PUB stored inbox %d\r\n" if durable else b"PUB events %d\r\n"
    requests = []
    for span in cuts(len(case.points), frame):
        events = case.lines(*span).split(b"\n")
        published = b"".join(head % len(event) + event + b"\r\n" for event in events)
        requests.append(published if durable else published + b"PING\r\n")
    named = {"server": JETSTREAM if durable else NATS, "door": "deliver", "frame": frame, **row}
    return Series(
        named,
        [line],
        requests,
        server.worked,
        listeners=[listener],
        deliveries=np.full(len(requests), frame),
        ordered=True,
        closed_depth=DEPTH,
        depth=10_000,
    )
