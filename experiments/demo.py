"""A short replay of boxes in 12 dimensions and of real flights, with a table and a picture: `make demo`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter

from experiments.arguments import new_folder
from experiments.timing import one_core
from rtfilter import EventFilter
from rtfilter.adaptive import CostController, FixedPlan, LevelController
from rtfilter.replay import Contender, Report, Settings, draw, replay
from rtfilter.replay.machine import one_line
from rtfilter.replay.workloads import workload

# The demo is short, so the search for a level takes few samples, and begins again after few updates.
ROUNDS, THRESHOLD = 4, 12_000
SIZES = (16, 128, 512)


def contenders() -> list[Contender]:
    """Event by event as they arrive; the same, shortest first; whole bursts; and the adaptive plan."""
    return [
        Contender("arrival order", "fifo", FixedPlan(0, 1)),
        Contender("shortest first", "shortest", LevelController(rounds=ROUNDS, threshold=THRESHOLD)),
        Contender("whole burst", "fifo", FixedPlan(0, None)),
        Contender("adaptive", "shortest", CostController()),
    ]


def settings(quick: bool) -> dict[str, Settings]:
    """The settings of each workload, by its name."""
    if quick:
        small = Settings(500, 6, (4, 16), insert=20, delete=20, peer_every=2)
        return {"wide": small, "flights": small}
    boxes = Settings(100_000, 240, SIZES, insert=50, delete=50, peer_every=24)
    return {
        "wide": boxes,
        "flights": Settings(20_000, 240, SIZES, insert=50, delete=50, peer_every=24),
    }


def main(arguments: list[str]) -> int:
    """Run the demo; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m experiments demo", description=__doc__)
    parser.add_argument("--out", type=new_folder, default=Path("out"), help="folder for picture and JSON")
    parser.add_argument("--quick", action="store_true", help="a few seconds, for tests")
    given = parser.parse_args(arguments)
    begun = perf_counter()
    print(one_line())
    reports: list[Report] = []
    for name, chosen in settings(given.quick).items():
        source = workload(name, chosen.seed)
        with one_core():
            report = replay(source, chosen, contenders(), EventFilter(source.schema), sys.stderr.isatty())
        print(f"\n{report.text()}", flush=True)
        reports.append(report)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "demo.json").write_text(json.dumps([report.to_json() for report in reports], indent=1))
    draw(reports, given.out / "demo.png")
    kept = f"picture {given.out / 'demo.png'}, numbers {given.out / 'demo.json'}"
    print(f"\n{perf_counter() - begun:.0f} s; {kept}")
    return 0
