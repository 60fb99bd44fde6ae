"""Subscriptions in a DataFrame: executors read them and put them into their shards."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import numpy as np

from rtfilter import EventFilter, PredicateError, Schema
from rtfilter.basics.dtypes import AnyArray, FloatArray, IntArray
from rtfilter.basics.text import listed
from rtfilter.filter import inside, part_of
from rtfilter.matchers.rtree import shown, tree_of
from rtfilter.predicates.bounds.bound_arrays import compile_bounds
from rtfilter.predicates.bounds.bound_columns import SIDES
from rtfilter.predicates.templates.many import compile_many
from rtfilter.snapshots import manifest as snapshot
from rtfilter.spark import places
from rtfilter.spark.blocks import Layout, arrow_type, blocks, gathered, quoted
from rtfilter.spark.column_names import spelled
from rtfilter.spark.cuts import Cuts, keys_of
from rtfilter.spark.leases import Lease
from rtfilter.spark.refusals import NAMED, LeftOut
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.ids import WORDS, asked_ids
from rtfilter.subscriptions.loading import BadSubscription, Load, OnError
from rtfilter.subscriptions.subscription_tables import COLUMNS, SubscriptionTable, read_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rtfilter.spark.blocks import Batches

#: Subscriptions per shard on which cuts are chosen.
SAMPLE = 2000
SHARD = "shard"
#: Optional columns: seconds or a day-time interval, or a timestamp; and the text of a JSON object.
LABELS = COLUMNS[2:]
NO_CUTS = Cuts([])
#: The place of a row of a frame, where rows have no order.
NO_ROW = -1


class Shard(NamedTuple):
    """A part of an index: a snapshot of a filter."""

    name: str
    """Name of its directory."""
    subscriptions: int
    manifest: bytes
    """Manifest of the snapshot."""


class Built(NamedTuple):
    """A shard that a task made."""

    number: int
    part: int
    """0, or the number of a part that a shard was cut into."""
    shard: Shard
    leaves: FloatArray
    """Boxes of the shard's leaves, float64 (2, m, d)."""
    cuts: Cuts
    """Of part 0: the cuts into the parts."""


BUILT = f"{SHARD} int, part int, name string, subscriptions long, manifest binary, leaves binary, cuts string"


@dataclass(frozen=True)
class SubscriptionReader:
    """Reads subscriptions of a DataFrame, as `EventFilter.subscribe_many` reads tables.

    Attributes
    ----------
    schema : Schema
    kind : type
        Type of the ids: int, str, or uuid.UUID for UUIDs that the frame has as text.
    moment : float
        Start of all TTLs, in seconds since 1970, the same in all tasks.
    """

    schema: Schema
    kind: type = int
    moment: float = dataclasses.field(default_factory=time.time)

    def clock(self) -> float:
        """Return the time for filters to which subscriptions are added: that of all tasks."""
        return self.moment

    def _table(self, batch: pa.RecordBatch | pa.Table) -> SubscriptionTable:
        table = read_table(batch, self.schema)
        assert table is not None
        return table if self.kind is not UUID else table._replace(ids=uuids(table.ids))

    def hulls(self, batch: pa.RecordBatch) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the `keys_of` n ids, and low and high ends of the box around each, float64 (n, d).

        Raises `PredicateError`, which names the subscription.
        """
        ids, table = batch.column("id").to_numpy(zero_copy_only=False), self._table(batch)
        try:
            if table.bounds is not None:
                bounds = compile_bounds(*table.bounds, self.schema)
                return keys_of(ids), bounds.low, bounds.high
            compiled = compile_many(table.where or [], self.schema)
        except PredicateError as error:
            raise error if error.row is None else _refused(ids[error.row], error) from None
        boxes = compiled.boxes
        if compiled.owners is None:
            return keys_of(ids), boxes.low, boxes.high
        return keys_of(ids), *_around(compiled.owners, boxes.low, boxes.high, len(ids))

    def bad(self, batch: pa.RecordBatch) -> list[BadSubscription]:
        """Return the subscriptions that cannot be used. Ids that occur twice are not among them."""
        load = Load(Subscriptions(self.schema, kind=self.kind, clock=self.clock), self._table(batch), "skip")
        load.read()
        for one in load.bad.values():
            if isinstance(one.error, PredicateError):
                one.error.row = None  # it is the row within the batch
                one.error.show_row()
        return [one._replace(row=NO_ROW) for one in load.bad.values()]

    def subscribe(self, filter: EventFilter, batch: pa.Table) -> None:
        """Add subscriptions to a filter. Raises `PredicateError`, which names the subscription."""

        def refuse(bad: BadSubscription) -> None:
            raise _refused(bad.id, bad.error)

        filter.subscribe_many(self._table(batch), on_error=refuse)


def _refused(id: object, error: Exception) -> PredicateError:
    """Return an error that names the subscription by its id instead of its row."""
    about = {name: getattr(error, name, None) for name in ("source", "position", "attribute", "reason")}
    return PredicateError(f"subscription {id}: {getattr(error, 'message', error)}", **about)


@dataclass(frozen=True)
class SubscriptionFrame:
    """Subscriptions of a DataFrame whose columns have the right names and types."""

    frame: DataFrame
    layout: Layout
    reader: SubscriptionReader

    @classmethod
    def of(cls, frame: DataFrame, schema: Schema, kind: type | None = None) -> SubscriptionFrame:
        """Check a frame with columns `id` and `where`, or ``low.<attribute>`` and ``high.<attribute>``.

        Bounds may also be in structs `low` and `high`. `kind` is the type of the ids that the index has
        already. Raises `PredicateError`, or `ValueError` for the ids.
        """
        import pyarrow as pa
        from pyspark.sql.types import IntegralType, StringType

        bounds = [f"{side}.{name}" for side in SIDES for name in schema.names]
        flat = _with_labels(_flattened(spelled(frame, [*COLUMNS, *bounds])))
        if flat.columns.count("id") != 1:
            raise ValueError(f"subscriptions need one column id; they have {listed(flat.columns)}")
        column = flat.schema["id"].dataType
        if not isinstance(column, IntegralType | StringType):
            raise ValueError(f"the column id holds integers or text, not {column.simpleString()}")
        given = int if isinstance(column, IntegralType) else str
        if kind is not None and (kind is int) != (given is int):
            raise ValueError(
                f"the ids of this index are {WORDS[kind]}, the column id holds {WORDS[given]}: cast it"
            )
        kinds = [(one.name, arrow_type(one.dataType)) for one in flat.schema.fields]
        read_table(pa.schema(kinds).empty_table(), schema)  # raises the error
        where = dict(kinds).get("where", pa.string())
        if not pa.types.is_string(where):
            raise PredicateError(f"the column where holds SQL conditions as strings, not {where}")
        return cls(flat, Layout.of(flat, flat.columns, "id"), SubscriptionReader(schema, kind or given))

    def usable(self, on_error: OnError) -> tuple[SubscriptionFrame, int]:
        """Return the subscriptions that can be used, and their number; with "raise", all of them.

        All others are reported first: "skip" logs some, a function gets a `BadSubscription` for each.

        Raises
        ------
        ValueError
            See `count`, with "raise".
        """
        if on_error == "raise":
            return self, self.count()
        bad = self._bad()
        twice = self.frame.groupBy("id").count().where("count > 1 AND id IS NOT NULL").collect()
        known = {one.id for one in bad}
        bad += [
            BadSubscription(
                NO_ROW, row.id, None, ValueError(f"occurs {row['count']} times; ids must be distinct")
            )
            for row in twice
            if row.id not in known
        ]
        tell(bad, on_error)
        rest = replace(self, frame=without(self.frame, [one.id for one in bad]))
        return rest, rest.frame.count()

    def _bad(self) -> list[BadSubscription]:
        """Return the subscriptions that cannot be used, by their ids, conditions, bounds and labels."""
        layout, reader = self.layout, self.reader

        def look(batches: Batches) -> Batches:
            import pyarrow as pa

            for batch in layout.unpacked(batches):
                found = [pickle.dumps(one) for one in reader.bad(batch)]
                yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], ["bad"])

        rows = layout.carried(self.frame, ordered=False).mapInArrow(look, "bad binary").collect()
        return [pickle.loads(row.bad) for row in rows]

    def count(self) -> int:
        """Return the number of rows. Raises `ValueError` for ids that are null, negative or not distinct."""
        from pyspark.sql import functions as sf

        column, number = sf.col("id"), sf.col("id") if self.reader.kind is int else sf.lit(0)
        found = self.frame.select(
            sf.count("*").alias("rows"),
            sf.count(column).alias("ids"),
            sf.countDistinct(column).alias("distinct"),
            sf.min(number).alias("least"),
            sf.max(number).alias("most"),
        ).collect()[0]
        if found.ids < found.rows:
            raise ValueError(f"{found.rows - found.ids} subscriptions have no id; give each one")
        if found.ids and found.least < 0:
            raise ValueError(f"subscription ids must not be negative: {found.least}")
        if found.ids and found.most >= 2**63 - 1:
            raise ValueError(f"subscription ids must be at most 2**63 - 2: {found.most}")
        if found.distinct < found.ids:
            (twice,) = self.frame.groupBy("id").count().where("count > 1").take(1)
            raise ValueError(f"subscription {twice.id} occurs {twice['count']} times; ids must be distinct")
        return int(found.rows)

    def ids(self) -> AnyArray:
        """Return all ids, int64 (n,), or object (n,) of text."""
        return ids_of(self.frame)

    def sample(self, share: float) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return keys and hulls, as `SubscriptionReader.hulls` does, of about this share of the rows."""
        layout, reader, dimensions = self.layout, self.reader, self.reader.schema.dimensions

        def read_hulls(batches: Batches) -> Batches:
            import pyarrow as pa

            for batch in layout.unpacked(batches):
                sides = [[array.tobytes()] for array in reader.hulls(batch)]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(side, pa.binary()) for side in sides], ["ids", "low", "high"]
                )

        frame = self.frame if share >= 1 else self.frame.sample(fraction=share, seed=0)
        rows = layout.carried(frame, ordered=False).mapInArrow(
            read_hulls, "ids binary, low binary, high binary"
        )
        found = rows.collect()
        ids = np.concatenate([np.empty(0, np.int64), *(np.frombuffer(row.ids, np.int64) for row in found)])
        low, high = (
            np.concatenate([np.empty(0), *(np.frombuffer(row[side]) for row in found)]).reshape(
                -1, dimensions
            )
            for side in ("low", "high")
        )
        return ids, low, high

    def build(
        self, cuts: Cuts, shards: Sequence[Lease | None], place: str, capacity: tuple[int, int], most: int
    ) -> list[Built]:
        """Add subscriptions to their shards, or to new ones for None, and return the changed shards.

        Each task builds a shard and writes it below `place`, in parts if it has more than `most`
        subscriptions.
        """
        layout, reader = self.layout, self.reader

        def deal(batches: Batches) -> Batches:
            for batch in layout.unpacked(batches):
                ids, low, high = reader.hulls(batch)
                yield blocks(batch, {SHARD: cuts.place(low, high, ids)})

        def build(batches: Batches) -> Batches:
            for (number,), batch in gathered(batches, [SHARD]):
                before = shards[number]
                filter = (
                    empty_shard(reader.schema, capacity, reader.kind, reader.clock)
                    if before is None
                    else before.load(reader.clock)
                )
                reader.subscribe(filter, batch)
                if len(filter) > most:
                    yield from in_parts(number, filter, place, -(-2 * len(filter) // most))
                else:
                    yield written(number, filter, place)

        sent = layout.carried(self.frame, ordered=False)
        dealt = sent.mapInArrow(deal, f"{SHARD} int, block binary")
        return collected(dealt.repartitionById(len(shards), SHARD).mapInArrow(build, BUILT))


def empty_shard(
    schema: Schema, capacity: tuple[int, int], kind: type, clock: Callable[[], float] = time.time
) -> EventFilter:
    """Return a shard without subscriptions."""
    matcher = {"name": "rtree", "capacity": capacity}
    return EventFilter(schema, matcher=matcher, ids=kind, max_unbounded=None, clock=clock)


def ids_of(frame: DataFrame) -> AnyArray:
    """Return the column `id` of a frame without null, int64 (n,), or object (n,) of text."""
    column: AnyArray = frame.select("id").dropna().toArrow().column("id").to_numpy()
    return column if column.dtype == object else column.astype(np.int64)


def uuids(texts: Sequence[str | None]) -> list[UUID | str | None]:
    """Return the UUIDs in some texts; a text without one stays as it is."""
    found: list[UUID | str | None] = list(texts)
    for row, text in enumerate(texts):
        with suppress(ValueError, TypeError):
            found[row] = UUID(text)
    return found


def without(frame: DataFrame, ids: list[Any]) -> DataFrame:
    """Return the rows of a frame that have other ids; None stands for no id."""
    import pyarrow as pa
    from pyspark.sql import functions as sf

    if None in ids:
        frame = frame.where("id IS NOT NULL")
    gone = {str(id) if isinstance(id, UUID) else id for id in ids if id is not None}
    if not gone:
        return frame
    table = frame.sparkSession.createDataFrame(pa.table({"id": pa.array(gone)}))
    return frame.join(sf.broadcast(table), "id", "left_anti")


def tell(bad: list[BadSubscription], on_error: OnError) -> None:
    """Report subscriptions that cannot be used: to the log, or to a function."""
    if callable(on_error):
        for one in bad:
            on_error(one)
    else:
        named = [one.reason if one.id is None else f"subscription {one.id}: {one.reason}" for one in bad]
        LeftOut(len(bad), named[:NAMED]).tell()


def _with_labels(frame: DataFrame) -> DataFrame:
    """Return the frame, with numbers of seconds as double.

    Raises `ValueError` if a column of `LABELS` has another type than those, or occurs twice.
    """
    from pyspark.sql.types import (
        DayTimeIntervalType,
        NumericType,
        StringType,
        TimestampNTZType,
        TimestampType,
    )

    types: dict[str, tuple[str, tuple[type, ...]]] = {
        "ttl": ("seconds, as a number, or a day-time interval", (NumericType, DayTimeIntervalType)),
        "expires": ("timestamps, or seconds since 1970", (NumericType, TimestampType, TimestampNTZType)),
        "metadata": ("JSON objects as strings", (StringType,)),
    }
    for name in [name for name in LABELS if name in frame.columns]:
        if frame.columns.count(name) > 1:
            raise ValueError(f"column {name!r} occurs twice; drop one")
        kind, (wanted, allowed) = frame.schema[name].dataType, types[name]
        if not isinstance(kind, allowed):
            raise ValueError(f"the column {name} holds {wanted}, not {kind.simpleString()}")
        if isinstance(kind, NumericType):
            frame = frame.withColumn(name, frame[name].cast("double"))
    return frame


def _flattened(frame: DataFrame) -> DataFrame:
    """Return the frame with a column ``low.x`` for each field x of a struct `low`; the same for `high`."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    columns = []

    def visit(path: list[str], kind: Any) -> None:
        if isinstance(kind, StructType) and path[0] in SIDES:
            for field in kind.fields:
                visit([*path, field.name], field.dataType)
        else:
            columns.append(sf.col(".".join(map(quoted, path))).alias(".".join(path)))

    for field in frame.schema.fields:
        if field.name in (*COLUMNS, *SIDES) or field.name.partition(".")[0] in SIDES:
            visit([field.name], field.dataType)
    return frame.select(*columns)


def in_parts(number: int, filter: EventFilter, place: str, parts: int) -> Batches:
    """Cut a shard into parts, save each, and yield rows of `BUILT`."""
    ids, low, high = hulls(filter)
    keys, step = keys_of(ids), max(len(ids) // (SAMPLE * parts), 1)
    cuts = Cuts.into(parts, low[::step], high[::step], keys[::step])
    part = cuts.place(low, high, keys)
    for own in range(parts):
        yield written(number, part_of(filter, ids[part == own]), place, own, cuts if own == 0 else NO_CUTS)


def hulls(filter: EventFilter) -> tuple[AnyArray, FloatArray, FloatArray]:
    """Return the ids, (n,), and the box around all boxes of each, float64 (n, d) twice."""
    held = inside(filter).subscriptions
    ids = held.ids(held.moment())
    handles = held.labels.handles(asked_ids(ids, held.kind))  # ascending
    of_box, low, high, _ = tree_of(inside(filter).matcher).content()
    there = np.isin(of_box, handles)  # leaves out expired subscriptions
    owners = np.searchsorted(handles, of_box[there])
    return ids, *_around(owners, low[there], shown(filter.schema, high)[there], len(ids))


def _around(owners: IntArray, low: FloatArray, high: FloatArray, count: int) -> FloatArray:
    """Return low and high ends of the box around all boxes of each owner, float64 (2, count, d).

    `owners` is int64 (m,), from 0 to count - 1. An owner without boxes has zeros.
    """
    around = np.zeros((2, count, low.shape[1]))
    if len(owners):
        order = np.argsort(owners, kind="stable")
        rows, starts = np.unique(owners[order], return_index=True)
        around[0, rows] = np.minimum.reduceat(low[order], starts)
        around[1, rows] = np.maximum.reduceat(high[order], starts)
    return around


def written(
    number: int, filter: EventFilter, place: str, part: int = 0, cuts: Cuts = NO_CUTS
) -> pa.RecordBatch:
    """Save a shard in a new directory below `place`, and return its row of `BUILT`."""
    import pyarrow as pa

    name = uuid.uuid4().hex
    filter.repack()  # as the saved one: events are led to its leaves
    manifest = save(filter, places.under(place, name))
    sides = np.zeros((2, 0, filter.schema.dimensions))
    tree = tree_of(inside(filter).matcher)
    if len(tree):
        low, high = tree.boxes_at_level(tree.height - 1)
        sides = np.stack([low, shown(filter.schema, high)])
    kinds = {
        SHARD: pa.int32(),
        "part": pa.int32(),
        "name": pa.string(),
        "subscriptions": pa.int64(),
        "manifest": pa.binary(),
        "leaves": pa.binary(),
        "cuts": pa.string(),
    }
    values = [number, part, name, len(filter), manifest, sides.tobytes(), json.dumps(cuts.to_json())]
    columns = [pa.array([value], kind) for value, kind in zip(values, kinds.values(), strict=True)]
    return pa.RecordBatch.from_arrays(columns, list(kinds))


def save(filter: EventFilter, place: str) -> bytes:
    """Save a filter in a new directory of any file system; return the manifest."""
    path = places.local(place)
    if path is not None:
        filter.save(path)
        return (path / snapshot.MANIFEST).read_bytes()
    draft = tempfile.mkdtemp(prefix="rtfilter-shard-")
    try:
        filter.save(draft)
        places.copy(draft, place)
        return places.read_bytes(f"{draft}/{snapshot.MANIFEST}")
    finally:
        shutil.rmtree(draft)


def collected(built: DataFrame) -> list[Built]:
    """Return the shards that tasks made, from their rows of `BUILT`, each once."""
    found = {}
    for row in built.collect():
        shard = Shard(row["name"], row["subscriptions"], bytes(row["manifest"]))
        cuts = Cuts.from_json(json.loads(row["cuts"]))
        key = row[SHARD], row["part"]
        found[key] = Built(*key, shard, np.frombuffer(row["leaves"]), cuts)
    return [found[key] for key in sorted(found)]
