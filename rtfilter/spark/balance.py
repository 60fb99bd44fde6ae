"""The decision to match events where they are, or to deal them out so that all tasks have equal work.

Dealing moves every event, which costs as much as visiting some leaves of the index. It pays if some cores
would otherwise wait longer than that for others. `decide` compares both, from the work of each
partition: `look` estimates it from some events of each, and a stream knows it from the batch before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import FloatArray
from rtfilter.basics.errors import EventError
from rtfilter.spark import places
from rtfilter.spark.blocks import Layout
from rtfilter.spark.physical_plans import CACHED, cores_of, operators
from rtfilter.spark.refusals import TaskEventReader
from rtfilter.spark.routes import Route, Work, counts, partition, seen
from rtfilter.spark.sessions import connected

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

    from rtfilter.spark.blocks import Batches

Balance = bool | Literal["auto"]

#: Costs of an event beside its search, in visits of a leaf (about 0.16 us): to read it, to estimate its work
#: and send it where it is dealt to, and to take it there.
READ, SEND, TAKE = 10.0, 5.0, 3.0
#: Cost of a match in the result, in visits: Spark reads a row of it.
HIT = 0.4
#: Cost of a second round of tasks, in visits.
ROUND = 500_000.0
#: Work of the slowest core, as a multiple of the mean, up to which cores count as equally busy.
EVEN = 1.1


@dataclass(frozen=True)
class DealDecision:
    """The decision whether to deal events out, and its reason.

    Attributes
    ----------
    dealt : bool
    reason : str
        "even": the cores are equally busy anyway. "cheap": they are not, but dealing would take longer.
        "skewed": they are not, and dealing pays. "asked": the caller chose it. "shards": a task should need
        few shards of an index. "unseen": to look at some events, Spark would have to compute all of them.
    skew : float, optional
        Work of the slowest core as a multiple of the mean, if events stay where they are.
    """

    dealt: bool
    reason: str
    skew: float | None = None

    def __str__(self) -> str:
        """Return the decision and its reason, as the plan of the result shows them."""
        seen = "" if self.skew is None else f", slowest core {self.skew:.2f} times the mean"
        return f"{'deal out' if self.dealt else 'match where they are'} ({self.reason}{seen})"


def decide(work: Work, cores: int) -> DealDecision:
    """Compare the time until the slowest core is done, with and without dealing."""
    search = work.visits + HIT * work.hits
    total = READ * work.events + search
    mean = float(total.sum()) / cores
    here = slowest(total, cores)
    skew = here / mean if mean else 1.0
    if skew <= EVEN:
        return DealDecision(False, "even", skew)
    sent = slowest((READ + SEND) * work.events, cores)
    moved = sent + float((TAKE * work.events + search).sum()) / cores + ROUND
    return DealDecision(True, "skewed", skew) if moved < here else DealDecision(False, "cheap", skew)


def slowest(work: FloatArray, cores: int) -> float:
    """Return the work of the busiest of several cores that take one partition after the other."""
    loads = [0.0] * cores
    for one in work.tolist():
        heapq.heappushpop(loads, loads[0] + one)
    return max(loads)


def choose(
    events: DataFrame, route: Route, layout: Layout, reader: TaskEventReader, balance: Balance
) -> DealDecision:
    """Decide for a frame; with "auto" after a look at some of its events."""
    known = settled(events, route, balance)
    if known is not None:
        return known
    work = look(events, route, layout, reader)
    if work is None:  # a stream cannot be dealt out; other frames could have all their events in one place
        return DealDecision(not events.isStreaming, "unseen")
    return decide(work, cores_of(events))


def checked(balance: Balance) -> Balance:
    """Return `balance`. Raises `ValueError` unless it is True, False or "auto"."""
    if isinstance(balance, bool) or balance == "auto":
        return balance
    raise ValueError(f'balance is True, False or "auto", not {balance!r}')


def settled(events: DataFrame, route: Route, balance: Balance) -> DealDecision | None:
    """Return the decision if it does not depend on the work of the events."""
    if balance != "auto":
        return DealDecision(balance, "asked")
    if len(route.leases) > 1:
        return DealDecision(True, "shards")
    return DealDecision(False, "even", 1.0) if cores_of(events) == 1 else None  # one core waits for no other


#: Events of each partition that are looked at, and those that it is taken to have if it has more.
LOOK, MANY = 1024, 100_000
#: Pieces of files up to which the driver looks itself, and places in a partition where it does.
FEW, SPOTS = 64, 4
#: Bytes of a column that the driver reads at a time.
BUFFER = 1 << 18
#: Operators of Spark that give their first rows without computing the others, and sources that do.
PASSING = {"AdaptiveSparkPlan", "Coalesce", "ColumnarToRow", "Filter", "Project", "Sample", "Union"}
FILES = {f"FileScan {kind}" for kind in ("avro", "csv", "json", "orc", "parquet", "text")}
READABLE = {*CACHED, *FILES, "BatchScan", "LocalTableScan", "Range"}
#: Of these sources, those whose rows Spark Connect can all pass through quickly.
QUICK = {*CACHED, "FileScan orc", "FileScan parquet", "LocalTableScan", "Range"}


def look(events: DataFrame, route: Route, layout: Layout, reader: TaskEventReader) -> Work | None:
    """Estimate the work of each partition from some of its events; None if that would compute all of them."""
    if events.isStreaming:
        return None
    found = look_in_files(events, route, reader)
    return look_by_job(events, route, layout, reader) if found is None else found


# -- in files --------------------------------------------------------------------------------------------


class FileRange(NamedTuple):
    """A part of a file that a partition reads: the bytes from `start`, `length` of them."""

    path: str
    start: int
    length: int


def look_in_files(events: DataFrame, route: Route, reader: TaskEventReader) -> Work | None:
    """Estimate the work of each partition from Parquet files, whose footers have the number of events.

    Returns None for other events, on Connect, and if the driver cannot read them or the index from a path.
    """
    from pyarrow import ArrowException

    leases = [*route.leases, *([route.leaves] if route.leaves else [])]
    if connected(events.sparkSession) or any(places.local(lease.place) is None for lease in leases):
        return None
    plan: Any = events.select("*")._jdf.queryExecution().sparkPlan()  # its own may be older than its cache
    parts = pieces(plan)
    if parts is None:
        return None
    files: dict[str, pq.ParquetFile] = {}
    try:
        found = [_looked(own, route, reader, files) for own in parts]
    except (ArrowException, EventError, LookupError, OSError):  # Spark may read files that Arrow does not
        return None
    finally:
        for file in files.values():
            file.close()
    table = np.array(found, float).reshape(-1, 4)
    return Work.like(table[:, 1:], table[:, 0])


def pieces(plan: Any) -> list[list[FileRange]] | None:
    """Return the pieces of Parquet files at paths that each partition reads.

    None if Spark computes more than columns of files, if they lie elsewhere, or there are more than `FEW`.
    """
    if plan.nodeName() == "Project" and _only_chooses(plan):
        plan = plan.child()
    if (
        not plan.nodeName().startswith("Scan parquet")
        or plan.getClass().getSimpleName() != "FileSourceScanExec"
    ):
        return None
    found: list[list[FileRange]] = []
    for part in plan.inputRDD().partitions():
        files = part.files()
        if sum(map(len, found)) + len(files) > FEW:
            return None
        found.append([])
        for file in files:
            path = places.local(file.toPath().toUri().toString())
            if path is None:
                return None
            found[-1].append(FileRange(str(path), file.start(), file.length()))
    return found


def _only_chooses(project: Any) -> bool:
    """Return whether a projection only selects columns, without change and under their own names."""
    given = project.projectList()
    return all(given.apply(k).nodeName() == "AttributeReference" for k in range(given.size()))


def _looked(
    own: list[FileRange], route: Route, reader: TaskEventReader, files: dict[str, pq.ParquetFile]
) -> list[float]:
    """Return the events of a partition; and of the events looked at, their number, visits and hits."""
    import pyarrow.parquet as pq

    groups = []
    for piece in own:
        if piece.path not in files:
            files[piece.path] = pq.ParquetFile(piece.path, buffer_size=BUFFER)
        groups += [(files[piece.path], group) for group in _row_groups(files[piece.path], piece)]
    number = sum(file.metadata.row_group(group).num_rows for file, group in groups)
    spots = groups[:: -(-len(groups) // SPOTS) or 1]
    total: FloatArray = np.zeros(3)
    for file, group in spots:
        size = LOOK // len(spots)
        batches = file.iter_batches(size, row_groups=[group], columns=reader.names, use_threads=False)
        batch = next(batches, None)
        if batch is not None:
            total += seen(route, reader.schema.read(batch.select(reader.names)))
    return [number, *total.tolist()]


def _row_groups(file: pq.ParquetFile, piece: FileRange) -> Iterator[int]:
    """Yield the row groups that Spark reads with a piece of a file: those whose middle lies in it."""
    for group in range(file.metadata.num_row_groups):
        columns = [file.metadata.row_group(group).column(k) for k in range(file.metadata.num_columns)]
        start = columns[0].dictionary_page_offset or columns[0].data_page_offset
        middle = start + sum(column.total_compressed_size for column in columns) // 2
        if piece.start <= middle < piece.start + piece.length:
            yield group


# -- by a job --------------------------------------------------------------------------------------------


def look_by_job(events: DataFrame, route: Route, layout: Layout, reader: TaskEventReader) -> Work | None:
    """Estimate the work of each partition from its first events; None if that would compute all of them.

    Partitions with more events are taken to be of equal size, as Spark cuts files so; a cache is counted.
    """
    sources = set(operators(events)) - PASSING
    if not sources <= (QUICK if connected(events.sparkSession) else READABLE):
        return None

    def estimate(batches: Batches) -> Batches:
        import pyarrow as pa

        tables = (reader.read(batch)[1] for batch in layout.unpacked(batches))
        total = sum((seen(route, table) for table in tables), np.zeros(3))
        yield pa.RecordBatch.from_pydict(
            {"part": pa.array([partition()], pa.int32()), "seen": pa.array([total.tobytes()], pa.binary())}
        )

    first = layout.carried(_first(events, LOOK), ordered=False)
    rows = sorted(first.mapInArrow(estimate, "part int, seen binary").collect())
    found = np.array([np.frombuffer(row.seen) for row in rows]).reshape(-1, 3)
    number = np.where(found[:, 0] < LOOK, found[:, 0], MANY)
    if sources <= CACHED:
        exact = counts(events)
        number[: len(exact)] = exact
    return Work.like(found, number)


def _first(events: DataFrame, number: int) -> DataFrame:
    """Return the first events of each partition; Spark does not compute the others, except on Connect."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as sf

    spark = events.sparkSession
    if connected(spark):
        place = sf.monotonically_increasing_id().bitwiseAND(sf.lit((1 << 33) - 1))  # within the partition
        return events.where(place < number)
    local = events.limit(number)._jdf.queryExecution().analyzed().child()  # of a limit of all partitions
    java: Any = spark._jvm
    return DataFrame(java.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, local), spark)
