"""Matching a DataFrame of events: tasks get equal work if that pays, and match cheap events first."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, cast

import numpy as np

from rtfilter import EventError, EventFilter, RTFilterError, Schema
from rtfilter.basics.dtypes import AnyArray, FloatArray, IntArray
from rtfilter.basics.text import listed
from rtfilter.events.mismatches import check_header
from rtfilter.events.table import EventTable
from rtfilter.scheduler import balanced_parts
from rtfilter.spark import refusals
from rtfilter.spark.balance import LOOK, Balance, DealDecision, checked, choose
from rtfilter.spark.blocks import NUMERIC, Layout, arrow_type, blocks, gathered
from rtfilter.spark.column_names import spelled
from rtfilter.spark.leases import lend
from rtfilter.spark.physical_plans import cores_of
from rtfilter.spark.refusals import LeftOut, OnError, TaskEventReader, own_errors
from rtfilter.spark.reports import REPORT, TaskReport, with_reports
from rtfilter.spark.routes import Route, partition, seen
from rtfilter.spark.shards import ShardedIndex

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import ArrayType, DataType, StructType

    from rtfilter.spark.blocks import Batches

#: Columns of the result, beside the one that names the event.
SUBSCRIPTION, WORKLOAD, OFFSET = "subscription", "workload", "offset"
#: Column of a block for the workload of each event.
WORK = "rtfilter workload"
#: Columns beside a block: where its events go, and the class of their workload.
PART, SHARD, CLASS = "part", "shard", "class"
#: Classes of workload from one power of two to the next. A block has events of one class; a task holds the
#: blocks of one class, or several small ones, at a time.
CLASSES = 4
#: Events of the first search in a batch, and of later ones if matches are few.
EVENTS, MANY = 4096, 1 << 14
#: Matches put into one batch of the result at most.
MATCHES = 1 << 20
#: Types of Spark whose values compare with those of an attribute.
FITTING = {
    "number": (*NUMERIC, "decimal"),
    "str": ("string", "char", "varchar"),
    "bool": ("boolean",),
    "timestamp": ("timestamp", "timestamp_ntz", "date", "string"),
}
#: Share of the events from which the work of each shard is estimated.
SAMPLE = 1 / 64


@own_errors()
def match_frame(
    events: DataFrame,
    index: EventFilter | ShardedIndex | str | PathLike[str],
    *,
    id: str = "id",
    partitions: int | None = None,
    details: bool = False,
    balance: Balance = "auto",
    on_error: OnError = "raise",
) -> DataFrame:
    """Return the subscriptions that match each event; the executors find them when the result is used.

    Events are matched in their partitions, or first dealt out so that all partitions have the same work. The
    work of an event is the leaves of the index that its search will visit, estimated in its partition. Each
    partition then searches its events shortest job first (Wang et al.). Executors map a snapshot of
    the index into memory. In an index of shards, an event is searched only in shards where it reaches a leaf;
    the work of each shard is first estimated on a sample of the events, in another job.

    Parameters
    ----------
    events : DataFrame
        A row per event: its attributes in columns of their names, structs for dotted ones. Case counts as
        Spark has it (``spark.sql.caseSensitive``). Columns that are no attributes of the index are ignored,
        attributes without a column missing.
    index : EventFilter, ShardedIndex, path or URI
        A filter, whose present content is used; or the place of `EventFilter.save`, which must not change
        until the result has been used; or the place of `build_sharded`, whose newest version is used.
    id : str
        The column that names an event in the result. May have duplicates: each row is an event.
    partitions : int, optional
        Number of partitions to deal events out into; by default, if they are dealt out, `defaultParallelism`.
        A task needs memory for the events of its partition that have about the same workload.
    details : bool
        True if the result has the columns `workload` and `offset`.
    balance : bool or "auto"
        True: events are dealt out. False: an event is matched in the partition it is in, and nothing is
        shuffled. "auto": they are dealt out if the cores would otherwise differ in their work by more than
        dealing costs. A look at a thousand events of each partition finds out: the driver reads them from
        Parquet files, other sources need a short job. If Spark would have to compute all events for that,
        and for an index of shards, they are dealt out. The decision and its reason are in the result's plan:
        `DataFrame.explain`.
    on_error : "raise" or "skip"
        The treatment of an event that cannot be used, as it has NaN, for example: fail when the result is
        used, with an `EventError` that names the event in the last line of Spark's `PythonException`; or
        leave it out, and name it in the log of the executor.

    Returns
    -------
    DataFrame
        A row per match: the event's `id`, and `subscription` (bigint, or string if ids are text or UUIDs).
        A subscription that has expired when this is called has none. With `details` also `workload`
        (bigint), the leaves visited (in the shard of the subscription), and `offset` (double), seconds from
        the start of the event's task to its answer.

    Raises
    ------
    ValueError
        There is no column `id`, several columns have a wanted name, `partitions` is below 1, or `balance` or
        `on_error` is something else.
    EventError
        No column is an attribute of the index, or a column has a type that nothing compares with.
    SnapshotError
        The index cannot be opened.
    """
    if partitions is not None and partitions < 1:
        raise ValueError(f"the result has at least 1 partition, not {partitions}")
    if not hasattr(events, "sparkSession"):
        raise TypeError(
            f"events are a DataFrame of Spark, not {type(events).__name__}: match_frame(events, index)"
        )
    refusals.checked(on_error)
    if checked(balance) == "auto" and partitions is not None:
        balance = True
    route = route_to(events.sparkSession, index)
    events = spelled(events, [id, *route.schema.names])
    layout, reader = laid_out(events, route, id, on_error)
    decision = choose(events, route, layout, reader, balance)
    return matched(events, route, layout, reader, decision, partitions=partitions, details=details)


def laid_out(events: DataFrame, route: Route, id: str, on_error: OnError) -> tuple[Layout, TaskEventReader]:
    """Return the layout and the reader of events; raises as `match_frame` does."""
    if id not in events.columns:
        raise ValueError(
            f"events have no column {id!r} to name them; their columns are {listed(events.columns)}"
        )
    if id.lower() in (SUBSCRIPTION, WORKLOAD, OFFSET, WORK, REPORT):
        raise ValueError(f"the result has a column {id!r} of its own: rename that of the events")
    return attribute_columns(events, route.schema, [id], id, on_error)


def matched(
    events: DataFrame,
    route: Route,
    layout: Layout,
    reader: TaskEventReader,
    decision: DealDecision,
    *,
    partitions: int | None = None,
    details: bool = False,
    reports: bool = False,
) -> DataFrame:
    """Match a frame along the route to an index, as decided; see `match_frame`.

    With `reports`, the result has further rows, whose column `REPORT` is not null; see `with_reports`.
    """
    import pyarrow as pa
    from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

    moment = time.time()  # here, so that a repeated task gives the same result
    sent = layout.carried(events, ordered=decision.dealt)
    id = events.schema[reader.id]
    result = StructType([StructField(id.name, id.dataType, id.nullable or reports, id.metadata)])
    result.add(SUBSCRIPTION, LongType() if route.leases[0].kind is int else StringType(), reports)
    if details:
        result.add(WORKLOAD, LongType(), reports).add(OFFSET, DoubleType(), reports)
    kinds = pa.schema([(one.name, arrow_type(one.dataType)) for one in result.fields])
    if reports:
        result.add(REPORT, StringType())
    if not decision.dealt:
        match = matcher_in_place(route, layout, reader, details, reports, moment)
        match = settled_work(with_reports(match, kinds) if reports else match, str(decision))
        return sent.mapInArrow(match, result)
    if len(route.leases) > 1:
        sample = layout.carried(events.sample(fraction=SAMPLE, seed=0), ordered=False)
        route = replace(route, shares=_shares(sample, route, layout, reader))
    parts = cores_of(events) if partitions is None else partitions
    deal = settled_work(_dealer(route, layout, reader, parts, reports), str(decision))
    dealt_out = sent.mapInArrow(deal, f"{PART} int, {SHARD} int, {CLASS} int, block binary")
    placed = dealt_out.repartitionById(parts, PART).drop(PART).sortWithinPartitions(SHARD, CLASS)
    match = _matcher(route, reader, details, moment)
    match = settled_work(with_reports(match, kinds) if reports else match, "match")
    return placed.mapInArrow(match, result)


def settled_work(work: Callable[[Batches], Batches], name: str) -> Callable[[Batches], Batches]:
    """Return the same work by the name that plans show; garbage collection then skips numba's objects.

    Spark's workers collect garbage after each task, which takes 50 ms unless these objects are frozen.
    """

    def run(batches: Batches) -> Batches:
        try:
            yield from work(batches)
        except RTFilterError as error:
            raise error.with_traceback(None) from None  # Spark shows pages of traces, and the message last
        _freeze(work.__name__)

    run.__name__ = name
    return run


@cache
def _freeze(after: str) -> None:
    """Freeze all present objects, once for each kind of work, as each loads other kernels."""
    gc.collect()
    gc.freeze()


def route_to(spark: SparkSession, index: EventFilter | ShardedIndex | str | PathLike[str]) -> Route:
    """Return the route to an index as it is now, sent to a cluster's executors."""
    if not isinstance(index, EventFilter | ShardedIndex):
        found = ShardedIndex.find(index)
        index = index if found is None else found  # an empty one is false
    return index.route() if isinstance(index, ShardedIndex) else Route.whole(lend(spark, index))


def _shares(sample: DataFrame, route: Route, layout: Layout, reader: TaskEventReader) -> FloatArray:
    """Return the work of each shard for a sample of the events, float64 (shards,), a little at least."""
    shards = len(route.leases)

    def estimate(batches: Batches) -> Batches:
        import pyarrow as pa

        work = np.zeros(shards)
        for batch in layout.unpacked(batches):
            _, shard, workload = route.find(reader.read(batch)[1])
            work += np.bincount(shard, workload, shards)
        yield pa.RecordBatch.from_arrays([pa.array([work.tobytes()], pa.binary())], ["work"])

    found = [np.frombuffer(row.work) for row in sample.mapInArrow(estimate, "work binary").collect()]
    total: FloatArray = np.sum([np.zeros(shards), *found], axis=0)
    shares: FloatArray = total + max(total.sum(), 1.0) / (1000 * shards)
    return shares


_hinted: set[str] = set()
"""Hints about columns; the log has each once."""


def attribute_columns(
    events: DataFrame, schema: Schema, beside: Sequence[str], id: str, on_error: OnError
) -> tuple[Layout, TaskEventReader]:
    """Return the layout and the reader of the columns that are attributes, and of others `beside` them.

    No array has the first of the others. The reader names an event by its `id`. Raises `EventError` for
    types that never match, and for unknown columns if the schema is strict.
    """
    import pyarrow as pa

    unread = refusals.unread(events)
    aside = {*beside, unread}
    for hint in check_header(schema.fields, [name for name in events.columns if name not in aside]):
        if hint not in _hinted:
            _hinted.add(hint)
            logging.getLogger("rtfilter.events").warning("%s", hint)
    known = set(schema.names) | {name.partition(".")[0] for name in schema.names}
    kinds = [
        (field.name, arrow_type(field.dataType) if field.name in known else pa.null())
        for field in events.schema.fields
    ]
    schema.read(pa.schema(kinds).empty_table())  # raises the error
    for field in events.schema.fields:
        _require_fitting(field.name, field.dataType, schema)
    names = [name for name in events.columns if name in known]
    columns = dict.fromkeys([*beside, *names, *([unread] if unread else [])])
    return Layout.of(events, list(columns), beside[0]), TaskEventReader(schema, names, id, on_error, unread)


def _require_fitting(name: str, kind: DataType, schema: Schema) -> None:
    """Refuse a column whose type never compares with its attribute: no event would match."""
    if kind.typeName() == "struct":
        for field in cast("StructType", kind).fields:
            _require_fitting(f"{name}.{field.name}", field.dataType, schema)
    elif kind.typeName() == "array":
        _require_fitting(name, cast("ArrayType", kind).elementType, schema)
    elif name in schema.attributes:
        families = [schema.attributes[own].family for own in schema.types.get(name, (name,))]
        if not any(kind.typeName() in ("void", *FITTING[family]) for family in families):
            raise EventError(
                f"column {name!r} is {kind.simpleString()}, but the attribute is a {' or '.join(families)}, "
                "so nothing would match it; cast the column",
                attribute=name,
            )


def _dealer(
    route: Route, layout: Layout, reader: TaskEventReader, parts: int, reports: bool = False
) -> Callable[[Batches], Batches]:
    """Return work that packs events into blocks, each for one partition, shard and class of workload.

    With `reports`, another block has the report of the task, as if for a shard after the last.
    """

    def deal(batches: Batches) -> Batches:
        import pyarrow as pa

        first = partition()  # so that the remainder does not always go to the same slot
        slots = route.slots(parts)
        loads = [np.zeros(len(own), np.int64) for own in slots]
        number, hits = 0, 0.0  # for each event, among the first
        left_out = LeftOut()
        for given in layout.unpacked(batches):
            batch, table = reader.read(given, left_out)
            if reports and route.leaves is None and not number and len(batch):
                some, _, found = seen(route, table.rows(range(min(LOOK, len(table)))))
                hits = found / some
            number += len(batch)
            rows, shard, workload = route.find(table)
            part = np.empty(len(rows), np.int64)
            for s in np.unique(shard).tolist():
                own = np.flatnonzero(shard == s)
                slot = (dealt(workload[own], loads[s]) + first) % len(slots[s])
                part[own] = slots[s][slot]
            kind = (CLASSES * np.log2(workload + 1.0)).astype(np.int64)
            events = batch.take(pa.array(rows)).append_column(WORK, pa.array(workload))
            yield blocks(events, {PART: part, SHARD: shard, CLASS: kind})
        if not reports:
            left_out.tell()
            return
        visits = int(sum(own.sum() for own in loads))
        report = TaskReport(first, number, visits, round(hits * number), left_out).row()
        place = {PART: first % parts, SHARD: len(route.leases), CLASS: 0}
        yield blocks(report, {name: np.array([key]) for name, key in place.items()})

    return deal


def dealt(workload: IntArray, loads: IntArray) -> IntArray:
    """Return the partition of each event, int64 (n,), by its workload, int64 (n,).

    Partitions with the least work so far, `loads` int64 (partitions,), get the most. `loads` is updated.
    """
    rows = balanced_parts(workload, len(loads))
    work = np.array([workload[own].sum() for own in rows])
    part = np.empty(len(workload), np.int64)
    for k, place in zip(np.argsort(-work, kind="stable"), np.argsort(loads, kind="stable"), strict=True):
        part[rows[k]] = place
        loads[place] += work[k]
    return part


def _matcher(
    route: Route, reader: TaskEventReader, details: bool, moment: float
) -> Callable[[Batches], Batches]:
    """Return work that matches the events of a partition: shard after shard, ascending in workload."""

    def match(batches: Batches) -> Batches:
        begun = perf_counter()
        for (shard, _), events in gathered(batches, [SHARD, CLASS], EVENTS):
            if shard == len(route.leases):
                yield from events.to_batches()
                continue
            index, (own, table) = route.leases[shard].open(), reader.read(events.sort_by(WORK))
            yield from _answers(index, own, table, reader.id, details, begun, moment)

    return match


def matcher_in_place(
    route: Route, layout: Layout, reader: TaskEventReader, details: bool, reports: bool, moment: float
) -> Callable[[Batches], Batches]:
    """Return work that matches events in the partitions where they are."""

    def match(batches: Batches) -> Batches:
        import pyarrow as pa

        begun, number, visits, hits = perf_counter(), 0, 0, 0
        left_out = LeftOut()
        for given in layout.unpacked(batches):
            batch, table = reader.read(given, left_out)
            if route.leaves is None and not details:  # no order is visible
                events = pa.Table.from_batches([batch])
                yield from _answers(route.leases[0].open(), events, table, reader.id, details, begun, moment)
                continue
            rows, shard, workload = route.find(table)
            number, visits = number + len(batch), visits + int(workload.sum())
            for s in np.unique(shard).tolist():
                own = np.flatnonzero(shard == s)
                own = own[np.argsort(workload[own], kind="stable")]
                chosen = batch.take(pa.array(rows[own])).append_column(WORK, pa.array(workload[own]))
                events, some = pa.Table.from_batches([chosen]), table.take(rows[own])
                index = route.leases[s].open()
                for answer in _answers(index, events, some, reader.id, details, begun, moment):
                    hits += len(answer)
                    yield answer
        if reports:
            yield TaskReport(partition(), number, visits, hits, left_out).row()
        else:
            left_out.tell()

    return match


def _answers(
    index: EventFilter,
    events: pa.Table,
    table: EventTable,
    id: str,
    details: bool,
    begun: float,
    moment: float,
) -> Batches:
    """Yield the rows of the result for events, in the order of their search."""
    import pyarrow as pa

    for own, ids, counts in _in_turn(index, table, moment):
        now = perf_counter() - begun
        row_of = np.repeat(np.arange(own.start, own.stop), counts)
        for start in range(0, len(ids), MATCHES):
            rows = pa.array(row_of[start : start + MATCHES])
            columns = [events.column(id).take(rows), id_array(ids[start : start + MATCHES])]
            if details:
                offset: FloatArray = np.full(len(rows), now)
                columns += [events.column(WORK).take(rows), pa.array(offset)]
            labels = [id, SUBSCRIPTION, WORKLOAD, OFFSET][: len(columns)]
            yield from pa.Table.from_arrays(columns, labels).combine_chunks().to_batches()


def id_array(ids: AnyArray) -> pa.Array:
    """Return ids as Spark takes them: UUIDs are text."""
    import pyarrow as pa

    return pa.array(list(map(str, ids.tolist())), pa.string()) if ids.dtype == object else pa.array(ids)


def _in_turn(
    index: EventFilter, table: EventTable, moment: float
) -> Iterator[tuple[range, AnyArray, IntArray]]:
    """Yield rows, their ids and the number of ids of each; the size of results limits the rows."""
    start, size = 0, EVENTS
    while start < len(table):
        own = range(start, min(start + size, len(table)))
        found = index.match_batch(table.rows(own), at=moment)
        yield own, found.ids, found.counts
        start = own.stop
        size = max(64, min(MANY, MATCHES * len(found) // max(len(found.ids), 1)))
