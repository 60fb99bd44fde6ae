"""Memory of Spark's Python workers that build an index in shards and match events with it.

The index has boxes at random places, each matched by one event in ten thousand. A worker's peak is the
kernel's high-water mark of its resident memory, with the pages of the files that it maps; those of its own
are also shown apart, as half-second looks find them.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from experiments.arguments import add_sizes, command, sized
from experiments.output import keep, outcome
from experiments.spark.cluster import Watch, descendants
from experiments.spark.throughput import GIB, run
from rtfilter.replay import machine
from rtfilter.replay.output import Row, table

MOST = 2e9
"""Target: the largest peak of a worker, in bytes."""
COLUMNS = {
    "stage": "",
    "subscriptions": "subscriptions",
    "seconds": "seconds",
    "peak": "largest worker, GiB",
    "own": "without files, GiB",
    "together": "all processes, GiB",
    "matches": "matches",
    "verdict": "",
}


class Size(NamedTuple):
    """The size of a measurement."""

    boxes: int
    dimensions: int
    events: int
    cores: int


FULL = Size(20_000_000, 4, 100_000, 2)
QUICK = Size(20_000, 4, 1000, 2)


class Workers(Watch):
    """Watches all processes, and Spark's Python workers apart.

    Attributes
    ----------
    peak, own : int
        Most bytes of a worker: resident at any time, and resident without files at a look.
    """

    peak = own = 0

    def look(self) -> None:
        """Read the numbers once."""
        super().look()
        for pid in descendants(self._root()):
            with suppress(OSError):  # the process has ended
                if "pyspark.daemon" not in Path(f"/proc/{pid}/cmdline").read_text():
                    continue
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines if line[-2:] == "kB"}
                self.peak, self.own = max(self.peak, sizes["VmHWM:"]), max(self.own, sizes["RssAnon:"])


def measure(size: Size, folder: Path) -> list[Row]:
    """Build, append a tenth, and match; one row each."""
    job = {**size._asdict(), "index": str(folder / "index"), "master": f"local[{size.cores}]"}
    rows = []
    for way in ("build", "append", "match in shards"):
        (row,), watch = run({**job, "way": way}, Workers())
        peak = watch.peak
        made = {
            "stage": way,
            "peak": peak / GIB,
            "own": watch.own / GIB,
            "together": watch.use.together / GIB,
        }
        rows.append({**made, **row, "verdict": outcome(peak < MOST)})
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("spark-shards", __doc__, "quick", "out")
    add_sizes(
        parser,
        FULL,
        boxes="number of subscriptions",
        dimensions="number of attributes",
        events="number of events to match",
        cores="number of workers at a time",
    )
    given = parser.parse_args(arguments)
    size = sized(given, QUICK, FULL)
    with tempfile.TemporaryDirectory() as name:
        rows = measure(size, Path(name))
    print(machine.one_line())
    print("\n" + table(rows, COLUMNS))
    keep(given.out, "spark-shards", size._asdict(), rows)
    return 0
