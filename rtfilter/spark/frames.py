"""Matching a DataFrame of events: every event to one task, all tasks with the same work.

Between estimate and match, events travel in blocks, Arrow batches in a binary column: Spark then moves a few
large rows, where a row for each event would cost it more than the event costs to match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rtfilter import EventFilter
from rtfilter.events import EventTable
from rtfilter.spark.leases import Lease, lend
from rtfilter.tree import FloatArray, IntArray
from scheduler import balanced_parts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    Batches = Iterator[pa.RecordBatch]

#: Columns of the result, beside the one that names the event.
SUBSCRIPTION, WORKLOAD, OFFSET = "subscription", "workload", "offset"
#: Column of a block for the workload of each event.
WORK = "rtfilter workload"
#: Classes of workload from one power of two to the next. A block has events of one class; a task holds the
#: blocks of one class at a time.
CLASSES = 4
#: Events searched together at most, and matches put into one batch of the result.
EVENTS, MATCHES = 4096, 1 << 20


def match_frame(
    events: DataFrame,
    index: EventFilter | str | PathLike[str],
    *,
    id: str = "id",
    partitions: int | None = None,
    details: bool = False,
) -> DataFrame:
    """Which subscriptions match each event, computed by the executors when the result is used.

    The workload of each event is estimated where it is (the leaves of the index that its search will visit,
    W-2); events are then dealt so that all partitions have the same estimated work, and each searches its
    own shortest first (C-1). The index travels as a snapshot which executors map into memory.

    Parameters
    ----------
    events : DataFrame
        A row per event: its attributes in columns of their names, structs for dotted ones. Columns that are
        no attributes of the index are ignored, attributes without a column missing.
    index : EventFilter or path
        A filter, of which the present content is taken, or what `EventFilter.save` wrote, where it must stay
        as it is until the result has been used.
    id : str
        The column that names an event in the result. May have duplicates: each row is an event.
    partitions : int, optional
        Of the result; by default `defaultParallelism` of the session. A task needs memory for the events
        of its partition that have about the same workload.
    details : bool
        Whether the result has the columns `workload` and `offset`.

    Returns
    -------
    DataFrame
        A row per match: the event's `id`, `subscription` (bigint); with `details` also `workload` (bigint)
        and `offset` (double), seconds from the start of the event's task to its answer.

    Raises
    ------
    ValueError
        There is not one column `id`, or `partitions` is below 1.
    EventError
        No column is an attribute of the index.
    SnapshotError
        The index cannot be opened.
    """
    from pyspark.sql.types import DoubleType, LongType, StructField, StructType

    if events.columns.count(id) != 1:
        number = "several columns" if id in events.columns else "no column"
        raise ValueError(
            f"events have {number} {id!r} to name them; their columns are {', '.join(events.columns)}"
        )
    if id.lower() in (SUBSCRIPTION, WORKLOAD, OFFSET, WORK):
        raise ValueError(f"the result has a column {id!r} of its own: rename that of the events")
    if partitions is not None and partitions < 1:
        raise ValueError(f"the result has at least 1 partition, not {partitions}")
    lease, parts = lend(events.sparkSession, index), partitions
    if parts is None:
        parts = events.sparkSession.sparkContext.defaultParallelism
    names = _columns(events, lease.open())
    labels = list(dict.fromkeys([id, *names]))
    wanted = _selected(events, labels)
    blocks = wanted.mapInArrow(_dealer(lease, labels, names, parts), "part int, class int, block binary")
    placed = blocks.repartitionById(parts, "part").drop("part").sortWithinPartitions("class")
    result = [events.schema[id], StructField(SUBSCRIPTION, LongType(), nullable=False)]
    if details:
        result += [StructField(WORKLOAD, LongType(), False), StructField(OFFSET, DoubleType(), False)]
    return placed.mapInArrow(_matcher(lease, id, names, details), StructType(result))


def _selected(events: DataFrame, names: list[str]) -> DataFrame:
    """These columns, under other names, the rows in an order that does not depend on chance.

    Which partition an event goes to depends on the events before it. After the loss of an executor Spark
    computes again what was lost, and were the order another, events would be lost and others doubled.
    """
    by_place = events.toDF(*(f"c{i}" for i in range(len(events.columns))))  # names may need quoting, or case
    places = [f"c{events.columns.index(name)}" for name in names]
    plan = events._jdf.queryExecution().executedPlan().toString()
    if any(
        source in plan.replace("BroadcastExchange", "") for source in ("Exchange", "ExistingRDD", "Shuffle")
    ):
        by_place = by_place.sortWithinPartitions(*places)
    return by_place.select(*places)


def _columns(events: DataFrame, index: EventFilter) -> list[str]:
    """The columns that are attributes, checked as far as their types tell."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    known = set(index.schema.names) | {name.partition(".")[0] for name in index.schema.names}
    kinds = [
        (field.name, to_arrow_type(field.dataType) if field.name in known else pa.null())
        for field in events.schema.fields
    ]
    index.schema.read(pa.schema(kinds).empty_table())  # says what is wrong
    return [name for name in events.columns if name in known]


def _dealer(lease: Lease, labels: list[str], names: list[str], parts: int) -> Callable[[Batches], Batches]:
    """Puts events into blocks, each for one partition and of one class of workload."""

    def deal(batches: Batches) -> Batches:
        import pyarrow as pa
        from pyspark import TaskContext

        index = lease.open()
        task = TaskContext.get()
        first = task.partitionId() if task else 0  # what is left over shall not always go to the same
        loads = np.zeros(parts, np.int64)
        for unnamed in batches:
            batch = unnamed.rename_columns(labels)
            workload = index.workload(batch.select(names))
            part = (dealt(workload, loads) + first) % parts
            kind = (CLASSES * np.log2(workload + 1.0)).astype(np.int64)
            order = np.lexsort((kind, part))
            keys = np.stack([part, kind])[:, order]
            edges = np.flatnonzero((np.diff(keys) != 0).any(axis=0)) + 1
            cuts = [0, *edges.tolist(), len(order)] if len(order) else [0]
            sorted_batch = batch.append_column(WORK, pa.array(workload)).take(pa.array(order))
            blocks = [_packed(sorted_batch.slice(a, b - a)) for a, b in pairwise(cuts)]
            starts = cuts[:-1]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(keys[0, starts], pa.int32()),
                    pa.array(keys[1, starts], pa.int32()),
                    pa.array(blocks, pa.binary()),
                ],
                ["part", "class", "block"],
            )

    return deal


def dealt(workload: IntArray, loads: IntArray) -> IntArray:
    """Partition of each event, int64 (n,): those with least so far get most. Updates `loads`."""
    rows = balanced_parts(workload, len(loads))
    work = np.array([workload[own].sum() for own in rows])
    part = np.empty(len(workload), np.int64)
    for k, place in zip(np.argsort(-work, kind="stable"), np.argsort(loads, kind="stable"), strict=True):
        part[rows[k]] = place
        loads[place] += work[k]
    return part


def _packed(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _matcher(lease: Lease, id: str, names: list[str], details: bool) -> Callable[[Batches], Batches]:
    """Answers the events of a partition, ascending in workload."""

    def match(batches: Batches) -> Batches:
        import pyarrow as pa

        begun = perf_counter()
        index = lease.open()
        for events in _by_class(batches):
            table = index.schema.read(events.select(names))
            for own, ids, counts in _in_turn(index, table):
                now = perf_counter() - begun
                row_of = np.repeat(np.arange(own.start, own.stop), counts)
                for start in range(0, len(ids), MATCHES):
                    rows = pa.array(row_of[start : start + MATCHES])
                    columns = [events.column(id).take(rows), pa.array(ids[start : start + MATCHES])]
                    if details:
                        offset: FloatArray = np.full(len(rows), now)
                        columns += [events.column(WORK).take(rows), pa.array(offset)]
                    labels = [id, SUBSCRIPTION, WORKLOAD, OFFSET][: len(columns)]
                    yield from pa.Table.from_arrays(columns, labels).combine_chunks().to_batches()

    return match


def _by_class(batches: Batches) -> Iterator[Any]:
    """The events of all blocks of a class, ascending in workload: a table for each class."""
    import pyarrow as pa

    held: list[Any] = []
    present = None
    for batch in batches:
        for kind, block in zip(batch.column("class").to_pylist(), batch.column("block"), strict=True):
            if kind != present and held:
                yield pa.Table.from_batches(held).sort_by(WORK)
                held = []
            present = kind
            held += pa.ipc.open_stream(block.as_buffer())
    if held:
        yield pa.Table.from_batches(held).sort_by(WORK)


def _in_turn(index: EventFilter, table: EventTable) -> Iterator[tuple[range, IntArray, IntArray]]:
    """Rows, ids and number of ids of each: as many events at a time as the size of the result allows."""
    start, size = 0, EVENTS
    while start < len(table):
        own = range(start, min(start + size, len(table)))
        found = index.match_batch(table.rows(own))
        yield own, found.ids, found.counts
        start = own.stop
        size = max(64, min(EVENTS, MATCHES * len(found) // max(len(found.ids), 1)))
