"""Enter and leave on a stream: the matches of the last event of each key are in Spark's state store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from rtfilter import EventFilter, Matches, SnapshotError
from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.text import listed
from rtfilter.events.table import EventTable
from rtfilter.spark import places
from rtfilter.spark.blocks import Layout, quoted
from rtfilter.spark.column_names import spelled
from rtfilter.spark.data_frames import EVENTS, SUBSCRIPTION, attribute_columns, route_to, settled_work
from rtfilter.spark.leases import TRIES, lease_of
from rtfilter.spark.refusals import LeftOut, OnError, TaskEventReader, checked
from rtfilter.spark.routes import Route
from rtfilter.spark.shards import ShardedIndex
from rtfilter.tracking.transitions import INSIDE, packed, rows_of, transitions, unpacked

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

    from rtfilter.spark.blocks import Batches

    Follow = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]

#: Column of the result that says what changed, and what it says, by code.
CHANGE, SAYS = "change", np.array(["inside", "entered", "left"], object)
#: Column between the stages: the ids that match an event, ascending.
MATCHED = "matched"
#: Column beside it, and name of the metric that Spark observes: the number of events that a task left out, in
#: its last row.
LEFT_OUT = "rtfilter left out"


def track_stream(
    events: DataFrame,
    index: EventFilter | ShardedIndex | str | PathLike[str],
    key: str,
    *,
    order: str,
    id: str | None = None,
    inside: bool = False,
    forget_after: float | None = None,
    on_error: OnError = "skip",
) -> DataFrame:
    """Return the changes of a stream: what its events enter and leave, key by key, as in `rtfilter.Tracker`.

    Each event is matched in its partition, then sent to the others of its key, and compared with
    the one before it. The state store of the query has the matches of the last event of each
    key that is inside anything: a query that continues from its checkpoint enters nothing again. Needs the
    output mode "append".

    Parameters
    ----------
    events : DataFrame
        A stream, with a row per event, as for `match_frame`. Events without a key are left out.
    index : EventFilter, ShardedIndex, path or URI
        At a path, which driver and executors share, each task of a micro-batch uses the version that is the
        newest when the task begins. A filter or an index in shards is used as it is now. A subscription that
        has expired by `time.time` when a task matches an event does not match.
    key : str
        The column that names the object of an event, such as a truck.
    order : str
        The column that orders the events of a key within a micro-batch: a time or a number. The events of
        earlier micro-batches come before them, whatever they have in it.
    id : str, optional
        A column that names an event in the result, and that orders those with the same `order`.
    inside : bool
        True if the result has rows for what stays inside, too.
    forget_after : float, optional
        Seconds without an event, by the clock of the micro-batches, after which a key is forgotten, without
        a row for leaving. By default none is.
    on_error : "skip" or "raise"
        The treatment of an event that cannot be used, as it has NaN, for example: leave it out, name it in
        the log of the executor, and count it in the metrics of `StreamMetrics.listen`; or end the query with
        an `EventError` that names it, by its `id` or `key`.

    Returns
    -------
    DataFrame
        A stream with a row per change: the event's `key`, `order` and `id`, `subscription` (bigint, or
        string if ids are text or UUIDs), and `change` (string): "entered", "left" or "inside".

    Raises
    ------
    TypeError
        `events` are no DataFrame.
    ValueError
        The frame is no stream, a name has no column or several, or the result has a column of that name.
    EventError
        No column is an attribute of the index, or a column has a type that nothing compares with.
    SnapshotError
        The index cannot be opened.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.streaming.state import GroupStateTimeout
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    names = list(dict.fromkeys([key, order] if id is None else [key, order, id]))
    _require_stream(events)
    checked(on_error)
    if forget_after is not None and not forget_after >= 0.001:
        raise ValueError(f"forget_after is a number of seconds of at least 0.001, not {forget_after!r}")
    spark = events.sparkSession
    known = route_to(spark, index) if isinstance(index, EventFilter | ShardedIndex) else None
    place = "" if isinstance(index, EventFilter | ShardedIndex) else places.absolute(index)

    def look() -> Route:
        return _newest(place) if known is None else known

    lease = look().leases[0]
    named = lease.kind is not int
    kind = StringType() if named else LongType()
    events = spelled(events, [*names, *lease.schema.names])
    _require(events, names, key, order)
    layout, reader = attribute_columns(events, lease.schema, names, key if id is None else id, on_error)
    sent = layout.carried(events.where(f"{quoted(key)} IS NOT NULL"), ordered=False)
    # Names may need quoting, or differ in case: between the stages columns have others.
    fields = [StructField(f"c{place}", events.schema[name].dataType) for place, name in enumerate(names)]
    lists = StringType() if named else BinaryType()  # Spark takes no arrays in a state
    between = StructType([*fields, StructField(MATCHED, lists), StructField(LEFT_OUT, LongType())])
    match = settled_work(_matcher(look, layout, names, reader, named), "match for tracking")
    told = sent.mapInArrow(match, between)
    seen = told.observe(LEFT_OUT, sf.sum(quoted(LEFT_OUT)).alias("count"))
    grouped = seen.where(f"{quoted(LEFT_OUT)} IS NULL").drop(LEFT_OUT).groupBy("c0")
    found = grouped.applyInPandasWithState(
        follower([field.name for field in fields], inside, forget_after),
        StructType([*fields, StructField(SUBSCRIPTION, kind), StructField(CHANGE, StringType())]),
        StructType([StructField(MATCHED, lists)]),
        "append",
        GroupStateTimeout.NoTimeout if forget_after is None else GroupStateTimeout.ProcessingTimeTimeout,
    )
    return found.toDF(*names, SUBSCRIPTION, CHANGE)


def _require_stream(events: DataFrame) -> None:
    if not hasattr(events, "sparkSession"):
        raise TypeError(
            f"events are a DataFrame of Spark, not {type(events).__name__}: track_stream(events, index, key)"
        )
    if not events.isStreaming:
        raise ValueError("events are a stream, of spark.readStream; for those at hand use rtfilter.Tracker")


def _require(events: DataFrame, names: list[str], key: str, order: str) -> None:
    for name in names:
        if name not in events.columns:
            raise ValueError(f"events have no column {name!r}; their columns are {listed(events.columns)}")
        if name.lower() in (SUBSCRIPTION, CHANGE):
            raise ValueError(f"the result has a column {name!r} of its own: rename that of the events")
    if key == order:
        raise ValueError(f"{key!r} is the key, and cannot order the events of a key")


def _newest(place: str) -> Route:
    """Return the route to the newest version at a place."""
    for _ in range(TRIES):
        index = ShardedIndex.find(place)
        route = Route.whole(lease_of(place)) if index is None else index.route()
        with suppress(SnapshotError):
            route.leases[0].open()  # a snapshot may be replaced before it is open; then it stays
            break
    return route


def _matcher(
    look: Callable[[], Route], layout: Layout, names: list[str], reader: TaskEventReader, named: bool
) -> Callable[[Batches], Batches]:
    """Return work that adds to events the ids of their matches; `named` are those that are no integers."""

    def match(batches: Batches) -> Batches:
        import pyarrow as pa

        route, left_out = look(), LeftOut()
        newest = replace(reader, schema=route.schema)
        labels = [*(f"c{place}" for place in range(len(names))), MATCHED, LEFT_OUT]
        for batch in layout.unpacked(batches):
            for start in range(0, len(batch), EVENTS):
                some, table = newest.read(batch.slice(start, EVENTS), left_out)
                found = _found(route, table)
                if named:
                    lists = pa.array([json.dumps(list(map(str, ids))) for ids in found.lists()], pa.string())
                else:
                    lists = pa.array(packed(found, np.arange(len(some))), pa.binary())
                columns = [*(some.column(name) for name in names), lists, pa.nulls(len(some), pa.int64())]
                yield pa.RecordBatch.from_arrays(columns, labels)
        left_out.tell()
        if left_out.count:
            nothing = [pa.nulls(1, column.type) for column in columns[:-1]]
            yield pa.RecordBatch.from_arrays([*nothing, pa.array([left_out.count])], labels)

    return match


def _found(route: Route, events: EventTable) -> Matches:
    """Return the matches of n events in all parts of an index; integers ascend."""
    moment = time.time()  # given, so that nothing is removed from an index that others use, too
    if route.leaves is None:
        row, shard = np.arange(len(events)), np.zeros(len(events), np.int64)
    else:
        row, shard, _ = route.find(events)
    rows, ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for s in np.unique(shard).tolist():
        own = row[shard == s]
        found = route.leases[s].open().match_batch(events.take(own), at=moment)
        rows.append(np.repeat(own, found.counts))
        ids.append(found.ids)
    every, of = np.concatenate(rows), np.concatenate(ids)
    order = np.argsort(every, kind="stable") if of.dtype == object else np.lexsort((of, every))
    offsets = np.searchsorted(every[order], np.arange(len(events) + 1))
    return Matches(offsets, of[order])


def follower(columns: list[str], inside: bool, forget_after: float | None) -> Follow:
    """Return a function that compares the matches of each event of a key with those of the event before.

    Parameters
    ----------
    columns : list of str
        Columns of the events; the first is the key, and the others order them.
    inside, forget_after
        See `track_stream`.
    """

    def follow(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        if state.hasTimedOut:
            state.remove()
            return
        events = pd.concat(list(frames)).sort_values(columns[1:], kind="stable")
        lists = events[MATCHED].tolist()
        every, ids = _read([state.get[0] if state.exists else type(lists[0])(), *lists])
        rows = np.arange(len(lists))
        changes = transitions(rows_of(every, rows), rows_of(every, rows + 1))
        if every.counts[-1]:
            state.update((lists[-1],))
            if forget_after is not None:
                state.setTimeoutDuration(round(1000 * forget_after))
        elif state.exists:
            state.remove()
        rows = np.repeat(rows, np.diff(changes.offsets))
        told = np.ones(len(rows), np.bool_) if inside else changes.codes != INSIDE
        result = events[columns].iloc[rows[told]].reset_index(drop=True)
        found = changes.ids if ids is None else ids[changes.ids]
        result[SUBSCRIPTION], result[CHANGE] = found[told], SAYS[changes.codes[told]]
        yield result

    return follow


def _read(lists: list[Any]) -> tuple[Matches, AnyArray | None]:
    """Return lists of ids as matches: integers, and None; or the codes of names, and the names by code."""
    if not isinstance(lists[-1], str):
        return unpacked([bytes(one) for one in lists]), None
    every = [json.loads(text) if text else [] for text in lists]
    names, codes = np.unique(np.array([id for one in every for id in one], object), return_inverse=True)
    return Matches(np.cumsum([0, *map(len, every)]), codes), names
