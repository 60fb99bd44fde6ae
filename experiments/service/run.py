"""The service under load: throughput and response times over offered load, to saturation, with peers.

A server has one core, the generator another. Requests arrive as a Poisson process and wait for no answer; a
response counts from when a request was due. Results are kept one by one: a run with the same --out goes on.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from experiments import postgresql
from experiments.arguments import add_sizes, command, new_file, sized
from experiments.output import content, keep, kept_rows
from experiments.service import own, peers, tables
from experiments.service.cases import Case, grouped, uniform
from experiments.service.plan import FRAME, FULL, QUICK, USERS, Size
from experiments.service.servers import Cores, Server, cores, on_core, rtfilter_serve
from experiments.service.steps import Series, run
from rtfilter.basics.extras import install
from rtfilter.replay.machine import one_line
from rtfilter.replay.output import Row

NAME: Final = "service"
KEPT: Final = Path("experiments/report/service/service.json")
PAGE: Final = Path("docs/load.md")
PARTS: Final = ("core", "match", "publish", "subscribers", "matches", "peers")
Job = tuple[str, Callable[[], list[Row]]]
"""A name, and what measures: the rows."""
Jobs = Iterator[tuple[Sequence[str], Callable[[], Generator[Job]]]]
"""The names of jobs that share a server, and what starts it and gives them one by one."""


class Experiment:
    """The measurement, in parts.

    Parameters
    ----------
    size : Size
    seed : int
    cores : Cores
    """

    def __init__(self, size: Size, seed: int, cores: Cores) -> None:
        self.size, self.seed, self.cores = size, seed, cores

    def jobs(self, parts: Sequence[str]) -> Jobs:
        """Yield all jobs of some parts, in groups that share a server."""
        size = self.size
        if "core" in parts:
            yield ["core"], self._core
        if "match" in parts:
            kinds = [(own.LINES, frame) for frame in size.lines] + [
                (own.ARROW, frame) for frame in size.arrow
            ]
            yield [f"match {kind} {frame}" for kind, frame in kinds], partial(self._match, kinds)
        ways = [("HTTP", FRAME), ("TCP", FRAME), ("WebSocket", FRAME), ("HTTP", 1)]
        if "publish" in parts:
            yield [f"publish {way} {frame}" for way, frame in ways], partial(self._publish, ways)
        if "subscribers" in parts:
            for users in size.users:
                yield [f"subscribers {users}"], partial(self._varied, f"subscribers {users}", 1, users)
        if "matches" in parts:
            for matches in size.matches:
                names = [f"matches {matches}", f"matches {matches}, match"]
                yield names, partial(self._varied, names[0], matches, USERS)
        if "peers" in parts:
            yield ["fastapi", "fastapi one"], self._fastapi
            yield ["postgresql"], self._postgresql
            yield ["nats", "jetstream"], self._nats

    def _series(self, make: Callable[[], Series], shares: Sequence[float]) -> list[Row]:
        series = make()
        try:
            return run(series, self.size, shares, self.seed)
        finally:
            for line in series.lines:
                line.close()

    def _row(self, case: Case) -> Row:
        matches, deliveries = case.recipients()
        return {
            "subscriptions": len(case.boxes.low),
            "users": case.users,
            "matches": matches,
            "deliveries": deliveries,
        }

    def _uniform(self) -> Case:
        return uniform(self.size.subscriptions, self.size.events, 1, self.seed)

    def _grouped(self, matches: int, users: int) -> Case:
        return grouped(self.size.subscriptions, self.size.events, matches, users, self.seed)

    def _core(self) -> Generator[Job]:
        case = self._uniform()
        yield "core", lambda: own.core(case, self.size, self._row(case))

    def _match(self, kinds: Sequence[tuple[str, int]]) -> Generator[Job]:
        case = self._uniform()
        row = self._row(case)
        with rtfilter_serve(case, self.cores.server) as server:
            for kind, frame in kinds:
                make = partial(own.matching, case, server, kind, frame, row, self.size)
                yield f"match {kind} {frame}", partial(self._series, make, self.size.shares)

    def _publish(self, ways: Sequence[tuple[str, int]]) -> Generator[Job]:
        case = self._grouped(1, USERS)
        with rtfilter_serve(case, self.cores.server) as server:
            for way, frame in ways:
                yield (
                    f"publish {way} {frame}",
                    partial(self._published, case, server, way, frame, self.size.shares),
                )

    def _published(
        self, case: Case, server: Server, way: str, frame: int, shares: Sequence[float]
    ) -> list[Row]:
        with own.listening(case, server, way == "WebSocket") as listeners:
            row = self._row(case)
            make = partial(own.publishing, case, server, way, frame, listeners, row, self.size)
            return self._series(make, shares)

    def _varied(self, name: str, matches: int, users: int) -> Generator[Job]:
        """Publish and, by matches, `match`, in a few steps."""
        case = self._grouped(matches, users)
        with rtfilter_serve(case, self.cores.server) as server:
            yield name, partial(self._published, case, server, "HTTP", FRAME, self.size.few)
            if name.startswith("matches"):
                make = partial(own.matching, case, server, own.LINES, FRAME, self._row(case), self.size)
                yield f"{name}, match", partial(self._series, make, self.size.few)

    def _fastapi(self) -> Generator[Job]:
        _require("rtree", "uvicorn", "fastapi")
        case = self._uniform()
        with peers.fastapi_rtree(case, self.cores.server) as server:
            for name, frame in (("fastapi", FRAME), ("fastapi one", 1)):
                make = partial(peers.fastapi_series, case, server, frame, self._row(case), self.size)
                shares = self.size.shares if frame > 1 else self.size.few
                yield name, partial(self._series, make, shares)

    def _postgresql(self) -> Generator[Job]:
        _require("psycopg")
        if not postgresql.here():
            raise MissingError("PostgreSQL is not installed")
        case = self._uniform()
        yield (
            "postgresql",
            lambda: peers.postgresql_rows(case, self.cores.server, self._row(case), self.size, self.seed),
        )

    def _nats(self) -> Generator[Job]:
        if shutil.which("nats-server") is None:
            raise MissingError("nats-server is not installed")
        case = self._grouped(1, 1)
        row = {"subscriptions": 1, "users": 1, "matches": 1.0, "deliveries": 1.0}
        for name, durable in (("nats", False), ("jetstream", True)):
            if durable:
                _require("nats")
            with peers.nats(self.cores.server) as server:
                make = partial(peers.nats_series, case, server, durable, FRAME, row)
                yield name, partial(self._series, make, self.size.shares)


class MissingError(Exception):
    """A program or a package is not installed."""


def _require(*packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise MissingError(f"{package} is not installed: {install('dev')}")


def measure(
    experiment: Experiment, parts: Sequence[str], out: Path | None, settings: dict[str, Any]
) -> list[Row]:
    """Return rows of all jobs, those that are kept in `out` and those measured now."""
    rows = kept_rows(out, NAME, settings)
    done = {row["job"] for row in rows}
    groups = list(experiment.jobs(parts))
    total = sum(len(names) for names, _ in groups)
    with tqdm(total=total, unit="series", leave=False) as bar:
        bar.update(sum(name in done for names, _ in groups for name in names))
        for names, begin in groups:
            if all(name in done for name in names):
                continue
            bar.set_postfix_str(f"{names[0]}: starting")
            for name, found in _group(experiment, begin, done, bar):
                rows += [{"job": name, **row} for row in found]
                if name in names:
                    bar.update()
                keep(out, NAME, settings, rows)
    return rows


def _group(
    experiment: Experiment, begin: Callable[[], Generator[Job]], done: set[str], bar: tqdm[None]
) -> Iterator[tuple[str, list[Row]]]:
    """Yield the jobs of a group that are not done, measured one by one on the generator's core."""
    pinned: Callable[[], AbstractContextManager[None]] = partial(on_core, experiment.cores.generator)
    with closing(begin()) as jobs:
        while True:
            try:
                with pinned():
                    job = next(jobs, None)
                    if job is None:
                        return
                    name, work = job
                    bar.set_postfix_str(name)
                    found = [] if name in done else work()
            except MissingError as error:
                print(f"left out: {error}", file=sys.stderr)
                return
            if name not in done:
                yield name, found


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("service", __doc__, "quick", "seed", "figure")
    add_sizes(parser, FULL, subscriptions="number of subscriptions", seconds="of a step")
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured (all)")
    add("--out", type=new_file, default=Path("out/service.json"), help="JSON file, continued (%(default)s)")
    add("--page", action="store_true", help=f"measure nothing: write {PAGE} and its picture from {KEPT}")
    given = parser.parse_args(arguments)
    if given.page:
        return _write_page()
    size = sized(given, QUICK, FULL)
    both = cores()
    settings = {**size._asdict(), "seed": given.seed, "one core each": both.server != both.generator}
    rows = measure(Experiment(size, given.seed, both), given.parts, given.out, settings)
    print(one_line())
    print(tables.text(rows))
    if both.server == both.generator:
        print("server and generator shared one core: there is no other")
    if given.figure is not None:
        from experiments.service.tables import draw

        draw(rows, given.figure)
    return 0


def _write_page() -> int:
    from experiments.service.tables import draw

    kept = content(KEPT)
    before = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(tables.filled(before, kept), encoding="utf-8")
    draw(kept["rows"], KEPT.with_suffix(".png"))
    return 0
