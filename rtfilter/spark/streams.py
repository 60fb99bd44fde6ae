"""Live streams: stages for `DataStreamWriter.foreachBatch`, which Spark calls with each micro-batch.

`MatchStage` matches events against the newest version of an index; `ChangeStage` makes new versions from a
stream of changes. Both may run in one program or in several. A batch that Spark repeats after a failure is
recognised by its number, so that its result is written once.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rtfilter import EventFilter, SnapshotError
from rtfilter.basics.dtypes import AnyArray, FloatArray
from rtfilter.basics.options import require_on_error
from rtfilter.filter import inside
from rtfilter.predicates.bounds.bound_columns import SIDES
from rtfilter.spark import places, refusals
from rtfilter.spark.balance import (
    Balance,
    DealDecision,
    checked,
    choose,
    cores_of,
    decide,
    settled,
)
from rtfilter.spark.blocks import Layout, quoted
from rtfilter.spark.column_names import spelled
from rtfilter.spark.data_frames import OFFSET, SUBSCRIPTION, WORKLOAD, laid_out, matched
from rtfilter.spark.leases import Lease, context_of, lease_of, send
from rtfilter.spark.refusals import OnError, Refusals, TaskEventReader, own_errors
from rtfilter.spark.routes import Reports, Route, counts
from rtfilter.spark.shards import ShardedIndex
from rtfilter.spark.subscribing import LABELS, NO_ROW, SubscriptionFrame, ids_of, tell, uuids, without
from rtfilter.spark.versions import VersionTakenError
from rtfilter.subscriptions import loading
from rtfilter.subscriptions.loading import BadSubscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rtfilter.spark.watch import StreamMetrics

#: Most seconds to wait for the counts of Spark.
COUNTED = 1.0
#: Versions of an index in shards that stay after a change.
KEPT = 10
#: Times that a snapshot is read while another program replaces it.
TRIES = 5


class Once:
    """Writes the result of each micro-batch exactly once: a directory ``batch=<number>`` each, below `path`.

    A directory appears whole, by renaming, so readers never see half of a batch. Object stores copy instead;
    a batch whose copying was interrupted is written again. One that is complete is not. A new query, whose
    batches start from 0, needs another directory; that of another query is refused with a `ValueError`.

    Parameters
    ----------
    path : str
        A directory on any file system that Spark reaches: S3 as ``s3a://``, with Hadoop's module hadoop-aws.
    format : str
        "parquet", or another that `DataFrameWriter` knows.
    """

    def __init__(self, path: str | PathLike[str], format: str = "parquet") -> None:
        self.path, self.format = os.fspath(path).rstrip("/"), format  # Spark resolves a relative path

    def has(self, spark: SparkSession, number: int) -> bool:
        """Return whether the result of a batch exists."""
        self._require_own(spark)
        system, path = self._reach(spark, f"batch={number}")
        if not system.exists(path):
            return False
        if system.globStatus(self._reach(spark, f"_drafts/{number}.*")[1]):  # a copy deletes its source last
            system.delete(path, True)
            return False
        return True

    def __call__(self, matches: DataFrame, number: int) -> None:
        """Write the result of a batch, unless it exists."""
        spark = matches.sparkSession
        if self.has(spark, number):
            return
        system, drafts = self._reach(spark, "_drafts")
        system.delete(drafts, True)  # the drafts of a killed program
        name = f"_drafts/{number}.{uuid.uuid4().hex}"
        matches.write.format(self.format).save(f"{self.path}/{name}")
        _, draft = self._reach(spark, name)
        if not system.rename(draft, self._reach(spark, f"batch={number}")[1]):
            raise OSError(f"cannot rename {draft} to batch={number}")

    def _require_own(self, spark: SparkSession) -> None:
        """Refuse the directory of another query; the checkpoint of a query gives it its id."""
        query = context_of(spark).getLocalProperty("sql.streaming.queryId")
        if query is None:  # not within a query
            return
        system, path = self._reach(spark, "_query")
        if not system.exists(path):
            stream = system.create(path)
            stream.writeBytes(query)
            stream.close()
            return
        stream = system.open(path)
        other = stream.readLine()
        stream.close()
        if other != query:
            raise ValueError(
                f"{self.path} has the results of another query, {other}: go on with its checkpoint, "
                "or choose another directory"
            )

    def _reach(self, spark: SparkSession, name: str) -> tuple[Any, Any]:
        java: Any = spark._jvm
        path = java.org.apache.hadoop.fs.Path(f"{self.path}/{name}")
        return path.getFileSystem(spark._jsc.hadoopConfiguration()), path


class MatchStage:
    """Matches each micro-batch of events against the newest version of an index.

    >>> stage = MatchStage("rules.index", Once("matches"))  # doctest: +SKIP
    >>> query = (
    ...     events.writeStream.foreachBatch(stage).option("checkpointLocation", "state").start()
    ... )  # doctest: +SKIP

    The work of each partition in the batch before, and the number of events in each partition, decide whether
    a batch is matched where it is, or dealt out first.

    Parameters
    ----------
    index : path or URI
        The place of `EventFilter.save` or `build_sharded`. Looked at before each batch.
    sink : callable
        `Once`, or a function of the result of `match_frame` and the number of the batch, which must use the
        result before it returns. If it has a method `has`, that is called first, to skip a batch.
    id : str
        The column that names an event.
    balance : bool or "auto"
        See `match_frame`.
    on_error : "skip" or "raise"
        The treatment of an event that cannot be used, as it has NaN, for example: leave it out, count it in
        the metrics, and name the first few of a batch in the log of the driver, with id and reason; or raise
        an `EventError` that names it. The query then ends, and fails at the same batch when it continues.
    metrics : StreamMetrics, optional
    """

    def __init__(
        self,
        index: str | PathLike[str],
        sink: Callable[[DataFrame, int], None],
        *,
        id: str = "id",
        balance: Balance = "auto",
        on_error: OnError = "skip",
        metrics: StreamMetrics | None = None,
    ) -> None:
        if not callable(sink):
            raise TypeError(f"a sink is a function of (matches, number), or Once(path), not {sink!r}")
        self.place, self.sink, self.id = places.absolute(index), sink, id
        self.balance, self.on_error = checked(balance), refusals.checked(on_error)
        self.metrics = metrics
        self.subscriptions = 0
        self._version = ""
        self._held: Lease | None = None
        self._reports: Reports | None = None
        self._refusals: Refusals | None = None
        if metrics is not None:
            metrics.observe_index(lambda: self.subscriptions)

    @own_errors()
    def __call__(self, events: DataFrame, number: int) -> None:
        """Match micro-batch `number`."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        spark, began = events.sparkSession, perf_counter()
        has = getattr(self.sink, "has", None)
        if has is not None and has(spark, number):
            return
        events = events.persist()
        try:
            numbers = counts(events)
            size = int(numbers.sum())
            if size == 0:
                return
            route = self._look(spark)
            named = spelled(events, [self.id, *route.schema.names])
            layout, reader = laid_out(named, route, self.id, self.on_error)
            decision = self._decide(named, route, layout, reader, numbers)
            if self._refusals is None:
                self._refusals = Refusals(context_of(spark))
            reader = replace(reader, refusals=self._refusals)
            result = matched(named, route, layout, reader, decision, details=True, reports=self._reports)
            observed = Observation()
            watched = result.observe(
                observed,
                sf.count(SUBSCRIPTION).alias("matches"),
                sf.sum(OFFSET).alias("seconds"),
                sf.max(OFFSET).alias("slowest"),
            )
            self.sink(watched.drop(WORKLOAD, OFFSET), number)
            seconds = perf_counter() - began
            left_out = self._refusals.take()
            left_out.tell()
            if self.metrics is not None:
                self.metrics.record(size, seconds, *_observed(observed), left_out=left_out.count)
                self.metrics.decided(decision.dealt, decision.reason, decision.skew)
        finally:
            events.unpersist()

    def _decide(
        self, events: DataFrame, route: Route, layout: Layout, reader: TaskEventReader, numbers: FloatArray
    ) -> DealDecision:
        """Decide for a batch, by the reports of the batch before it."""
        known = settled(events, route, self.balance)
        if known is not None:
            self._reports = None
            return known
        if self._reports is None:
            self._reports = Reports(context_of(events.sparkSession))
        work = self._reports.work(numbers)
        self._reports.clear()
        if work is not None:
            return decide(work, cores_of(events))
        return choose(events, route, layout, reader, self.balance)

    def _look(self, spark: SparkSession) -> Route:
        """Return the route to the newest version."""
        index = ShardedIndex.find(self.place)
        if index is not None:
            self._saw(str(index.version), len(index))
            return index.route()
        lease = lease_of(self.place)
        if self._held is None or lease.manifest != self._held.manifest:
            held = self._hold(lease)
            send(spark, held)
            if self._held is not None:
                shutil.rmtree(self._held.place, ignore_errors=True)  # no batch needs it now
            self._held = held
            self._saw(held.digest, held.subscriptions)
        return Route.whole(self._held)

    def _hold(self, lease: Lease) -> Lease:
        """Return a lease that stays valid while a batch is matched, of a newer snapshot if necessary."""
        for _ in range(TRIES - 1):
            try:
                return lease.held()
            except SnapshotError:
                lease = lease_of(self.place)
        return lease.held()

    def _saw(self, version: str, subscriptions: int) -> None:
        if self._version and version != self._version and self.metrics is not None:
            self.metrics.versions += 1
        self._version, self.subscriptions = version, subscriptions


def _observed(observation: Any) -> tuple[int, float, float]:
    """Return the number of matches, and the sum and the greatest of their offsets in seconds.

    All are 0 if Spark did not count them. It does not if a sink uses the result by ``foreachPartition``,
    for example; then it would wait for ever.
    """
    limit = perf_counter() + COUNTED
    while not observation._jo.future().isCompleted():
        if perf_counter() > limit:
            return 0, 0.0, 0.0
        time.sleep(0.005)
    found = observation.get
    return found["matches"], found["seconds"] or 0.0, found["slowest"] or 0.0


class ChangeStage:
    """Applies each micro-batch of changes to an index, as a new version.

    A change is a row as for `build_sharded`, which adds or replaces the subscription with that id; with
    `true` in a column `removed`, it removes it. A batch is one version. Applying it again changes nothing, so
    Spark may repeat it after a failure.

    Parameters
    ----------
    index : path or URI
        The place of an index that `EventFilter.save` or `build_sharded` made. No other program may change
        the first; if one changes an index in shards, a batch is applied to the version that it made.
    order : str, optional
        A column by which the changes of one subscription are ordered; the last one counts. Without it, a
        batch may have only one change of each subscription. Of equal ones, any may count.
    on_error : "skip", callable or "raise"
        The treatment of a change that cannot be used: leave it out, and name the first few of a batch in the
        log, with id and reason; call this with a `rtfilter.BadSubscription` for each; or apply nothing and
        raise an error, with which the query ends, and fails at the same batch when it continues. The
        subscription that a bad change would replace stays.
    """

    def __init__(
        self, index: str | PathLike[str], *, order: str | None = None, on_error: loading.OnError = "skip"
    ) -> None:
        require_on_error(on_error)
        self.place, self.order, self.on_error = places.absolute(index), order, on_error
        self._filter: EventFilter | None = None

    @own_errors()
    def __call__(self, changes: DataFrame, number: int) -> None:
        """Apply micro-batch `number`."""
        from pyspark.sql import functions as sf
        from pyspark.sql.window import Window

        columns = ["id", "where", "removed", *LABELS, *SIDES, *([] if self.order is None else [self.order])]
        changes = spelled(changes, columns)
        if self.order is not None:
            everything = sf.to_json(sf.struct(*map(quoted, changes.columns)))  # the same choice each time
            latest = Window.partitionBy("id").orderBy(sf.desc(quoted(self.order)), everything)
            place = "rtfilter place"
            ordered = changes.withColumn(place, sf.row_number().over(latest))
            changes = ordered.where(f"`{place}` = 1 OR id IS NULL")
            left_out = (place, self.order)
            changes = changes.select(*(quoted(name) for name in changes.columns if name not in left_out))
        if ShardedIndex.find(self.place) is None:
            if places.local(self.place) is None:
                raise SnapshotError(f"{self.place}: only an index of build_sharded can be changed there")
            if lease_of(self.place).kind is UUID:
                changes = changes.withColumn("id", sf.lower("id"))  # equal UUIDs become equal texts
        changes = changes.persist()
        try:
            single = self._one_of_each(changes)
            gone = sf.lit(False)
            if "removed" in single.columns:
                gone = sf.coalesce(sf.col("removed"), gone)
            removed = ids_of(single.where(gone))
            given = single.where(~gone).drop("removed")
            if not self._change_shards(given, removed):
                self._change(given, removed)
        finally:
            changes.unpersist()

    def _one_of_each(self, changes: DataFrame) -> DataFrame:
        """Return the changes of ids with one change; changes without an id, or several of one id, are bad."""
        rows = changes.groupBy("id").count().where("count > 1 OR id IS NULL").collect()
        remedy = "times; name a column that orders the changes: ChangeStage(order=...)"
        bad = []
        for id, count in rows:
            reason = f"{count} changes have no id" if id is None else f"occurs {count} {remedy}"
            if self.on_error == "raise":
                raise ValueError(reason if id is None else f"subscription {id} {reason}")
            bad.append(BadSubscription(NO_ROW, id, None, ValueError(reason)))
        tell(bad, self.on_error)
        return without(changes, [one.id for one in bad])

    def _change_shards(self, given: DataFrame, removed: AnyArray) -> bool:
        """Apply changes to the newest version of an index in shards; return False if there is none."""
        while (index := ShardedIndex.find(self.place)) is not None:
            with suppress(VersionTakenError):
                index.update(given, removed, on_error=self.on_error).expire(KEPT)
                return True
        return False

    def _change(self, given: DataFrame, removed: AnyArray) -> None:
        if self._filter is None:
            lease = lease_of(self.place)
            self._filter = EventFilter.load(self.place, matcher=None if lease.scan else lease.matcher)
        filter, self._filter = self._filter, None  # after a failure it may have half of a change
        kind = inside(filter).subscriptions.kind
        subscriptions, _ = SubscriptionFrame.of(given, filter.schema, kind).usable(self.on_error)
        table = subscriptions.frame.select(*map(quoted, subscriptions.layout.names)).toArrow()
        ids = [*table.column("id").to_pylist(), *removed.tolist()]
        filter.unsubscribe_many([id for id in uuids(ids) if type(id) is UUID] if kind is UUID else ids)
        subscriptions.reader.subscribe(filter, table)
        filter.save(self.place)
        self._filter = filter
