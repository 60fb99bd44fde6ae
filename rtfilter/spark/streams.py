"""Live streams: stages for `DataStreamWriter.foreachBatch`, which Spark calls with each micro-batch.

`MatchStage` matches events against the newest version of an index; `ChangeStage` makes new versions from a
stream of changes. Both may run in one program or in several. A batch that Spark repeats after a failure is
recognised by its number, so that its result is written once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING
from uuid import UUID

from rtfilter import EventFilter, SnapshotError
from rtfilter.basics.dtypes import AnyArray, FloatArray
from rtfilter.basics.options import require_on_error
from rtfilter.filter import inside
from rtfilter.predicates.bounds.bound_columns import SIDES
from rtfilter.spark import places, refusals
from rtfilter.spark.balance import Balance, DealDecision, checked, choose, decide, settled
from rtfilter.spark.blocks import Layout, quoted
from rtfilter.spark.column_names import spelled
from rtfilter.spark.data_frames import OFFSET, WORKLOAD, laid_out, matched
from rtfilter.spark.leases import TRIES, Lease, lease_of, send
from rtfilter.spark.physical_plans import cores_of
from rtfilter.spark.refusals import OnError, TaskEventReader, own_errors
from rtfilter.spark.reports import BatchReport, observed
from rtfilter.spark.routes import Route, counts
from rtfilter.spark.sessions import connected
from rtfilter.spark.shards import ShardedIndex
from rtfilter.spark.subscribing import LABELS, NO_ROW, SubscriptionFrame, ids_of, tell, uuids, without
from rtfilter.spark.versions import VersionTakenError
from rtfilter.subscriptions import loading
from rtfilter.subscriptions.loading import BadSubscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rtfilter.spark.watch import StreamMetrics

#: Versions of an index in shards that stay after a change.
KEPT = 10


class Once:
    """Writes the result of each micro-batch exactly once: a directory ``batch=<number>`` each, below `path`.

    A directory appears whole, by renaming, so readers never see half of a batch. Object stores copy instead;
    a batch whose copying was interrupted is written again. One that is complete is not. A new query, whose
    batches start from 0, needs another directory; that of another query is refused with a `ValueError`, on
    Spark Connect only if it has the next batch, too.

    Parameters
    ----------
    path : str
        A directory on any file system that Spark reaches: S3 as ``s3a://``, with Hadoop's module hadoop-aws.
    format : str
        "parquet", or another that `DataFrameWriter` knows.
    """

    def __init__(self, path: str | PathLike[str], format: str = "parquet") -> None:
        self.path, self.format = os.fspath(path).rstrip("/"), format  # Spark resolves a relative path
        self._query = ""  # known to be the one that writes here

    def has(self, spark: SparkSession, number: int) -> bool:
        """Return whether the result of a batch exists."""
        self._require_own(spark, number)
        name = f"batch={number}"  # a copy deletes its source last
        return self._exists(spark, name) and not self._exists(spark, f".spark-staging-*/{name}")

    def __call__(self, matches: DataFrame, number: int) -> None:
        """Write the result of a batch, unless it exists."""
        from pyspark.sql import functions as sf

        spark = matches.sparkSession
        if self.has(spark, number):
            return
        if "batch" in map(str.lower, matches.columns):
            raise ValueError("the directories of Once are the column 'batch': rename that of the events")
        # Spark writes a partition elsewhere, and renames its directory at the end.
        parts = matches.withColumn("batch", sf.lit(number)).write.partitionBy("batch").mode("overwrite")
        parts.option("partitionOverwriteMode", "dynamic").format(self.format).save(self.path)
        if not self._exists(spark, f"batch={number}"):  # as nothing matched
            matches.limit(0).write.format(self.format).save(f"{self.path}/batch={number}")

    def _require_own(self, spark: SparkSession, number: int) -> None:
        """Refuse the directory of another query; the checkpoint of a query gives it its id."""
        if connected(spark):  # where the query is unknown
            query: str | None = "this one"
            other: str | None = None
            if not self._query and self._exists(spark, f"batch={number + 1}"):
                other = "as it has a later batch"
        else:
            query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
            other = None if query in (None, self._query) else self._owner(spark, query)
        if other not in (None, query):
            raise ValueError(
                f"{self.path} has the results of another query, {other}: go on with its checkpoint, "
                "or choose another directory"
            )
        self._query = query or ""

    def _owner(self, spark: SparkSession, query: str) -> str:
        """Return the id of the query that the directory belongs to: of this one if there is none yet."""
        place = f"{self.path}/_owner"
        with suppress_missing():
            for row in spark.read.text(place).collect():
                return str(row[0])
        spark.createDataFrame([(query,)], "id string").coalesce(1).write.mode("overwrite").text(place)
        return query

    def _exists(self, spark: SparkSession, name: str) -> bool:
        with suppress_missing():
            spark.read.format("binaryFile").load(f"{self.path}/{name}").inputFiles()
            return True
        return False


@contextmanager
def suppress_missing() -> Iterator[None]:
    """Suppress the error of Spark that a path does not exist."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise


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
        self._before: BatchReport | None = None
        if metrics is not None:
            metrics.observe_index(lambda: self.subscriptions)

    @own_errors()
    def __call__(self, events: DataFrame, number: int) -> None:
        """Match micro-batch `number`."""
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
            result = matched(named, route, layout, reader, decision, details=True, reports=True)
            matches, report_of = observed(result, OFFSET)
            self.sink(matches.drop(WORKLOAD, OFFSET), number)
            seconds = perf_counter() - began
            report = self._before = report_of()
            left_out = report.left_out()
            left_out.tell()
            if self.metrics is not None:
                self.metrics.record(
                    size, seconds, report.matches, report.seconds, report.slowest, left_out.count
                )
                self.metrics.decided(decision.dealt, decision.reason, decision.skew)
        finally:
            events.unpersist()

    def _decide(
        self, events: DataFrame, route: Route, layout: Layout, reader: TaskEventReader, numbers: FloatArray
    ) -> DealDecision:
        """Decide for a batch, by the reports of the batch before it."""
        known = settled(events, route, self.balance)
        if known is not None:
            return known
        work = None if self._before is None else self._before.work(numbers)
        return (
            choose(events, route, layout, reader, self.balance)
            if work is None
            else decide(work, cores_of(events))
        )

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
                self._held.release()  # no batch needs it now
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
    metrics : StreamMetrics, optional
        Counts changes that are left out.
    """

    def __init__(
        self,
        index: str | PathLike[str],
        *,
        order: str | None = None,
        on_error: loading.OnError = "skip",
        metrics: StreamMetrics | None = None,
    ) -> None:
        require_on_error(on_error)
        self.metrics = metrics
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
            bad: list[BadSubscription] = []
            on_error: loading.OnError = "raise" if self.on_error == "raise" else bad.append
            single = _one_of_each(changes, on_error)
            gone = sf.lit(False)
            if "removed" in single.columns:
                gone = sf.coalesce(sf.col("removed"), gone)
            removed = ids_of(single.where(gone))
            given = single.where(~gone).drop("removed")
            if not self._change_shards(given, removed, bad):
                self._change(given, removed, on_error)
            tell(bad, self.on_error)
            if self.metrics is not None:
                self.metrics.left_out_changes(len(bad))
        finally:
            changes.unpersist()

    def _change_shards(self, given: DataFrame, removed: AnyArray, bad: list[BadSubscription]) -> bool:
        """Apply changes to the newest version of an index in shards; return False if there is none.

        Changes that cannot be used are added to `bad`.
        """
        while (index := ShardedIndex.find(self.place)) is not None:
            unusable: list[BadSubscription] = []
            with suppress(VersionTakenError):
                on_error: loading.OnError = "raise" if self.on_error == "raise" else unusable.append
                index.update(given, removed, on_error=on_error).expire(KEPT)
                bad += unusable
                return True
        return False

    def _change(self, given: DataFrame, removed: AnyArray, on_error: loading.OnError) -> None:
        if self._filter is None:
            lease = lease_of(self.place)
            self._filter = EventFilter.load(self.place, matcher=None if lease.scan else lease.matcher)
        filter, self._filter = self._filter, None  # after a failure it may have half of a change
        kind = inside(filter).subscriptions.kind
        subscriptions, _ = SubscriptionFrame.of(given, filter.schema, kind).usable(on_error)
        table = subscriptions.frame.select(*map(quoted, subscriptions.layout.names)).toArrow()
        ids = [*table.column("id").to_pylist(), *removed.tolist()]
        filter.unsubscribe_many([id for id in uuids(ids) if type(id) is UUID] if kind is UUID else ids)
        subscriptions.reader.subscribe(filter, table)
        filter.save(self.place)
        self._filter = filter


def _one_of_each(changes: DataFrame, on_error: loading.OnError) -> DataFrame:
    """Return the changes of ids with one change; changes without an id, or several of one id, are bad."""
    rows = changes.groupBy("id").count().where("count > 1 OR id IS NULL").collect()
    remedy = "times; name a column that orders the changes: ChangeStage(order=...)"
    bad = []
    for id, count in rows:
        reason = f"{count} changes have no id" if id is None else f"occurs {count} {remedy}"
        if on_error == "raise":
            raise ValueError(reason if id is None else f"subscription {id} {reason}")
        bad.append(BadSubscription(NO_ROW, id, None, ValueError(reason)))
    tell(bad, on_error)
    return without(changes, [one.id for one in bad])
