"""Time per event by leaf capacity. The result chose the default, `rtfilter.index.tree.DEFAULT_CAPACITY`."""

from __future__ import annotations

from functools import partial
from time import perf_counter

from tqdm import tqdm

from experiments.arguments import command, positive
from experiments.output import keep
from experiments.speed.bench import search
from experiments.timing import medians, one_core
from rtfilter.index.tree import RStarTree
from rtfilter.replay import machine
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import BOXES

LEAVES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
INNER = 64
BATCHES = (1000, 100, 1)
EVENTS, SAMPLE = 1000, 200
NAMES = ("wide", "narrow")  # boxes that a tree cannot prune, and boxes that it can
COLUMNS = {
    "workload": "workload",
    "boxes": "boxes",
    "leaf": "leaf",
    "height": "height",
    "batch_1000": "us, batch 1000",
    "batch_100": "batch 100",
    "batch_1": "one at a time",
    "load": "load, us/box",
    "bytes": "bytes/box",
}


def measure(name: str, boxes: int, leaf: int, repeats: int, seed: int) -> Row:
    """Bulk-load the boxes of a workload with one leaf capacity, and time searches in us per event."""
    workload = BOXES[name](seed, 12)
    bounds, points = workload.subscriptions(0, boxes), workload.events(0, EVENTS)
    tiny = RStarTree.bulk_load(bounds.low[:50], bounds.high[:50], capacity=(INNER, leaf))
    search(tiny, points[:20], 10)  # compiles
    begun = perf_counter()
    tree = RStarTree.bulk_load(*bounds, capacity=(INNER, leaf))
    load = perf_counter() - begun
    asked = {batch: points[:SAMPLE] if batch == 1 else points for batch in BATCHES}
    times = medians(
        {f"batch_{batch}": partial(search, tree, asked[batch], batch) for batch in BATCHES}, repeats
    )
    return {
        "workload": name,
        "boxes": boxes,
        "leaf": leaf,
        "height": tree.height,
        **{f"batch_{batch}": times[f"batch_{batch}"] / len(asked[batch]) * 1e6 for batch in BATCHES},
        "load": load / boxes * 1e6,
        "bytes": tree.nbytes / boxes,
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the table; see ``--help``."""
    parser = command("capacity", __doc__, "seed", "out")
    add = parser.add_argument
    add("--boxes", type=positive, nargs="+", default=[100_000, 1_000_000], help="in the index (%(default)s)")
    add("--leaves", type=positive, nargs="+", default=LEAVES, help="leaf capacities (%(default)s)")
    add("--repeats", type=positive, default=5, help="rounds; their median counts (%(default)s)")
    given = parser.parse_args(arguments)
    cases = [(name, boxes, leaf) for boxes in given.boxes for name in NAMES for leaf in given.leaves]
    with one_core():
        rows = [
            measure(name, boxes, leaf, given.repeats, given.seed)
            for name, boxes, leaf in tqdm(cases, unit="tree", leave=False)
        ]
    print(machine.one_line())
    print(f"12 dimensions, inner capacity {INNER}, bulk-loaded, one core, medians of {given.repeats}\n")
    print(table(rows, COLUMNS))
    keep(given.out, "capacity", {"inner": INNER, "repeats": given.repeats, "seed": given.seed}, rows)
    return 0
