"""A minute that shows what rtfilter does, on boxes in 12 dimensions and on real flights: `make demo`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

import numpy as np
from tqdm import tqdm

from experiments.arguments import new_folder
from experiments.timing import one_core
from rtfilter import EventFilter, RStarTree, Schema
from rtfilter.adaptive import CostController, FixedPlan, LevelController
from rtfilter.basics.text import plain
from rtfilter.index.kernels import runs
from rtfilter.predicates.predicate import parse
from rtfilter.replay import PEER, Contender, ReplayReport, ReplaySettings, draw, replay
from rtfilter.replay.machine import one_line
from rtfilter.replay.output import Row, table
from rtfilter.replay.report import size_class
from rtfilter.replay.workloads import workload
from rtfilter.replay.workloads.base import Bounds, Workload

ROUNDS = 4
"""Samples of each level: the demo is short."""
SIZES = (16, 128, 512)
CONTEST: Mapping[str, str] = {
    "arrival order": "rtfilter, one by one",
    "shortest first": "rtfilter, shortest first",
    "whole burst": "rtfilter, whole burst",
    "adaptive": "rtfilter, adaptive",
}
"""Each contender, as the table names it."""
ASKED: Mapping[str, str] = {
    "wide": "{} subscriptions, each a range of values for all 12 attributes of an event",
    "flights": "{} alerts on departures from New York; the events are real flights of 2013",
}
"""The question of each workload."""
READING = """\
Events arrive in bursts. The numbers are mean response times: from the arrival of a burst until the matches of
an event are known. A plan tells how many events share a search, and down to which level of the tree."""
COMPILE = ("from experiments.demo import pack; pack()", "from experiments.demo import search; search()")
"""Programs that compile the kernels of the demo, for two processes."""


def contenders() -> list[Contender]:
    """Return contenders: each event as it arrives, shortest first, whole bursts, the adaptive plan."""
    return [
        Contender("arrival order", "fifo", FixedPlan(0, 1)),
        Contender("shortest first", "shortest", LevelController(rounds=ROUNDS)),
        Contender("whole burst", "fifo", FixedPlan(0, None)),
        Contender("adaptive", "shortest", CostController()),
    ]


def settings(quick: bool) -> dict[str, ReplaySettings]:
    """Return the settings of each workload, by its name."""
    if quick:
        small = ReplaySettings(500, 6, (4, 16), peer_every=2)
        return {"wide": small, "flights": small}
    # No subscription comes or goes: the kernels of changes take longer to compile than all others.
    return {
        "wide": ReplaySettings(100_000, 120, SIZES, check_every=2, peer_every=16),
        "flights": ReplaySettings(20_000, 120, SIZES, check_every=12, peer_every=16),
    }


def empty_filter(source: Workload) -> EventFilter:
    """Return a filter that begins as an R*-tree, however few its subscriptions are."""
    return EventFilter(source.schema, matcher="rtree")


@dataclass(frozen=True)
class Drawn(Workload):
    """A workload whose first subscriptions are drawn and parsed already.

    Attributes
    ----------
    source : Workload
    chosen : Bounds or list of Predicate
        Subscriptions of `source`, from the first on.
    """

    source: Workload
    chosen: Bounds | list[Any]

    def subscriptions(self, start: int, count: int) -> Bounds | list[Any]:
        """Return some of `chosen`."""
        rows = slice(start, start + count)
        if isinstance(self.chosen, Bounds):
            return Bounds(self.chosen.low[rows], self.chosen.high[rows])
        return self.chosen[rows]

    def events(self, start: int, count: int) -> Any:
        """Return events of `source`."""
        return self.source.events(start, count)


def drawn(name: str, chosen: ReplaySettings) -> Drawn:
    """Return a workload by its name, ready to be replayed."""
    source = workload(name, chosen.seed)
    own = source.subscriptions(0, chosen.subscriptions)
    if not isinstance(own, Bounds):
        own = [parse(one, source.schema) for one in own]
    return Drawn(name, source.schema, chosen.seed, source, own)


def pack() -> None:
    """Load boxes, and subscriptions of two boxes each, which compiles what packs a tree."""
    low = np.random.default_rng(0).random((9000, 12))
    boxes = EventFilter(Schema({f"x{k}": float for k in range(12)}), matcher="rtree")
    boxes.subscribe_boxes(low, low + 0.1)
    alerts = EventFilter(Schema({"delay": float}), matcher="rtree")
    alerts.subscribe_many([f"delay < {k} OR delay > {k + 60}" for k in range(5000)])


def search() -> None:
    """Search a tree without boxes in all ways of the demo, which compiles what searches one."""
    tree, points = RStarTree(12), np.zeros((300, 12))
    tree.search(points)
    frontier = tree.frontier(points, 0)
    tree.resume_part(frontier.split(np.arange(len(points)), np.array([0, len(points)])), 0)
    runs.distinct(np.zeros(2, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))  # ids of two boxes


@contextmanager
def compiling(shown: bool) -> Iterator[Callable[[], None]]:
    """Compile kernels in two other processes meanwhile; yields a function that waits until they are there."""
    begun = perf_counter()
    with ExitStack() as ended:
        children = [ended.enter_context(process(program)) for program in COMPILE]

        def wait() -> None:
            with tqdm(
                desc="compiling", bar_format="{desc}, {elapsed}", disable=not shown, leave=False
            ) as bar:
                for child in children:
                    while running(child):
                        bar.refresh()
            for child in children:
                if child.returncode:
                    said = child.stderr.read().decode(errors="replace") if child.stderr else ""
                    raise ChildProcessError(f"the kernels cannot be compiled:\n{said}")
            print(f"the search is ready after {perf_counter() - begun:.0f} s", flush=True)

        yield wait


@contextmanager
def process(program: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of Python beside this one; it ends with the context."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def running(child: subprocess.Popen[bytes]) -> bool:
    """Return whether a process still runs after a moment."""
    try:
        child.wait(timeout=0.2)
    except subprocess.TimeoutExpired:
        return True
    return False


def text(report: ReplayReport) -> str:
    """Return a replay as a question, a table of its answers, and what was checked."""
    sizes = sorted({size_class(row) for row in report.rows})
    columns = {"by": "answered by"} | {str(size): f"{size} events" for size in sizes}
    columns |= {"faster": "times faster", "plan": f"last plan ({' | '.join(map(str, sizes))} events)"}
    subscriptions = f"{report.settings.subscriptions:,}"
    checked = (
        f"{report.matches:,} matches; the answers of all agree, and those to {report.checked:,} events were "
        "compared with brute force"
    )
    asked = ASKED[report.workload].format(subscriptions)
    return f"{asked}\n\n{table(lines(report, sizes), columns)}\n{checked}"


def lines(report: ReplayReport, sizes: Sequence[int]) -> list[Row]:
    """Return the rows of the table, the slowest first; ``faster`` compares with `rtree`."""
    found: list[Row] = []
    for summary in report.summary():
        name = summary["contender"]
        ratio, plans = summary["peer_ratio"], []
        line: Row = {"by": CONTEST.get(name, name), "faster": "1" if ratio is None else plain(ratio, 2, ",")}
        for size in sizes:
            own = [row for row in report.rows if row["contender"] == name and size_class(row) == size]
            if own:
                line[str(size)] = f"{plain(1e3 * mean(row['response'] for row in own), 2, ',')} ms"
                plans.append(plan(own[-1]))
        line["plan"] = "" if name == PEER else " | ".join(plans)
        found.insert(0 if name == PEER else len(found), line)
    return found


def plan(row: Row) -> str:
    """Return the plan of a burst in words."""
    group, level = row["group"], row["level"]
    if group is None or group >= row["size"]:
        return "all at once"
    how = "one by one" if group == 1 else f"groups of {group}"
    return f"{how} from level {level}" if level else how


def main(arguments: list[str]) -> int:
    """Run the demo; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m experiments demo", description=__doc__)
    parser.add_argument("--out", type=new_folder, default=Path("out"), help="folder for picture and JSON")
    parser.add_argument("--quick", action="store_true", help="a few seconds, for tests")
    given = parser.parse_args(arguments)
    begun, shown, chosen = perf_counter(), sys.stderr.isatty(), settings(given.quick)
    print(one_line(), "compiling the search in the background, once on this machine", sep="\n", flush=True)
    with compiling(shown) as wait:
        sources = []
        for name, own in chosen.items():
            sources.append(drawn(name, own))
            print(f"{own.subscriptions:,} subscriptions of the workload {name} are drawn", flush=True)
        wait()
    print(f"\n{READING}")
    reports: list[ReplayReport] = []
    for source in sources:
        with one_core():
            report = replay(source, chosen[source.name], contenders(), empty_filter(source), shown)
        print(f"\n{text(report)}", flush=True)
        reports.append(report)
    (given.out / "demo.json").write_text(json.dumps([report.to_json() for report in reports], indent=1))
    draw(reports, given.out / "demo.png")
    kept = f"picture {given.out / 'demo.png'}, numbers {given.out / 'demo.json'}"
    print(f"\n{perf_counter() - begun:.0f} s; {kept}")
    return 0
