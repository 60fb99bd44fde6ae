"""Subscriptions in a DataFrame: executors read them and put them into their shards."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtfilter import EventError, EventFilter, PredicateError, Schema
from rtfilter.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.filter import part_of
from rtfilter.matchers.rtree import shown, tree_of
from rtfilter.predicates.bound_columns import SIDES, BoundColumn, Columns, bounded_columns, read_bounds
from rtfilter.predicates.bounds import EncodedBounds, compile_bounds
from rtfilter.predicates.boxes import compile_predicate
from rtfilter.predicates.many import compile_many
from rtfilter.predicates.model import parse
from rtfilter.snapshots import manifest as snapshot
from rtfilter.spark import places
from rtfilter.spark.blocks import Layout, blocks, gathered, quoted
from rtfilter.spark.column_names import spelled
from rtfilter.spark.cuts import Cuts
from rtfilter.spark.leases import Lease
from rtfilter.spark.refusals import NAMED, LeftOut, sound
from rtfilter.subscriptions.given import seconds
from rtfilter.subscriptions.ids import LAST_ID
from rtfilter.subscriptions.loading import BadSubscription, OnError
from rtfilter.subscriptions.metadata import encoded
from rtfilter.text import listed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rtfilter.spark.blocks import Batches

#: Subscriptions per shard on which cuts are chosen.
SAMPLE = 2000
SHARD = "shard"
#: Column for the number of a row in its batch.
ROW = "rtfilter row"
#: Optional columns: seconds or a day-time interval, and the text of a JSON object.
LABELS = TTL, METADATA = "ttl", "metadata"
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
    """Reads subscriptions in the form that a DataFrame has.

    Attributes
    ----------
    schema : Schema
    columns : list of BoundColumn
        The columns of bounds; none if there are conditions.
    labels : sequence of str
        The present ones of `LABELS`.
    moment : float
        Start of all TTLs, in seconds since 1970, the same in all tasks.
    """

    schema: Schema
    columns: list[BoundColumn]
    labels: Sequence[str] = ()
    moment: float = dataclasses.field(default_factory=time.time)

    def clock(self) -> float:
        """Return the time for filters to which subscriptions are added: that of all tasks."""
        return self.moment

    def hulls(self, batch: pa.RecordBatch) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the ids, int64 (n,), and low and high ends of the box around each, float64 (n, d).

        Raises `PredicateError`, which names the subscription.
        """
        ids = batch.column("id").to_numpy().astype(np.int64)
        with _named(ids):
            if self.columns:
                bounds = self._compiled(batch)
                return ids, bounds.low, bounds.high
            return ids, *self._hulls_of_conditions(batch.column("where").to_pylist())

    def _compiled(self, batch: pa.RecordBatch) -> EncodedBounds:
        return compile_bounds(*self._bounds(batch), self.schema)

    def bad(self, batch: pa.RecordBatch) -> list[BadSubscription]:
        """Return the subscriptions that cannot be used."""
        import pyarrow as pa

        found: list[BadSubscription] = []

        def note(row: int, error: Exception) -> None:
            rule = batch.slice(row, 1).to_pylist()[0]
            found.append(BadSubscription(NO_ROW, rule["id"], rule if self.columns else rule["where"], error))

        labels = {name: batch.column(name).to_pylist() for name in self.labels}
        rows = []
        for row, id in enumerate(batch.column("id").to_pylist()):
            try:
                _require_id(id)
                for name, column in labels.items():
                    _label(name, column[row])
                rows.append(row)
            except (TypeError, ValueError) as error:
                note(row, error)

        def refuse(row: int, error: EventError | PredicateError) -> None:
            error.row = None  # it is the row within the batch
            error.show_row()
            note(row, error)

        if self.columns:
            place = pa.array(np.arange(len(batch)))
            numbered = batch.append_column(ROW, place).take(place.take(pa.array(rows, pa.int64())))
            odd = self._odd(numbered)
            for part in (
                numbered.filter(pa.array(~odd)),
                *map(numbered.slice, np.flatnonzero(odd), repeat(1)),
            ):
                sound(part, self._compiled, lambda one, error: refuse(one.column(ROW)[0].as_py(), error))
        else:
            conditions = batch.column("where").to_pylist()
            compile_many(
                [conditions[row] for row in rows], self.schema, lambda at, error: refuse(rows[at], error)
            )
        return found

    def _odd(self, batch: pa.RecordBatch) -> BoolArray:
        """Return a mask of rows with a NaN bound, or low above high, bool (n,). Bad rows may be many."""
        low, high = self._bounds(batch)
        odd = np.zeros(len(batch), np.bool_)
        for column in (*low.values(), *high.values()):
            if column.dtype.kind == "f":
                odd |= np.ma.filled(np.isnan(column), False)
        for name in low.keys() & high.keys():
            odd |= np.ma.filled(low[name] > high[name], False)
        return odd

    def _hulls_of_conditions(self, conditions: list[str]) -> tuple[FloatArray, FloatArray]:
        low = np.zeros((len(conditions), self.schema.dimensions))
        high = np.zeros_like(low)
        for row, where in enumerate(conditions):
            try:
                boxes = compile_predicate(parse(where, self.schema), self.schema)
            except PredicateError as error:
                error.row = row
                raise
            if len(boxes.low):
                low[row], high[row] = boxes.low.min(axis=0), boxes.high.max(axis=0)
        return low, high

    def subscribe(self, filter: EventFilter, batch: pa.Table) -> None:
        """Add subscriptions to a filter. Raises `PredicateError`, which names the subscription."""
        ids = batch.column("id").to_numpy().astype(np.int64)
        labels = self._labels(batch, ids)
        with _named(ids):
            if self.columns:
                low, high = self._bounds(batch)
                filter.subscribe_boxes(low, high, ids=ids, **labels)
            else:
                filter.subscribe_many(batch.column("where").to_pylist(), ids=ids, **labels)

    def _labels(self, batch: pa.Table, ids: IntArray) -> dict[str, Any]:
        found = {name: batch.column(name).to_pylist() for name in self.labels}
        for name, column in found.items():
            for row, cell in enumerate(column):
                try:
                    column[row] = _label(name, cell)
                except ValueError as error:
                    raise PredicateError(f"subscription {ids[row]}: {error}") from None
        return found

    def _bounds(self, batch: Any) -> tuple[Columns, Columns]:
        return read_bounds(batch.column, batch.schema.names, self.columns, self.schema)


def _label(name: str, cell: Any) -> Any:
    """Return the cell of a label as filters take it. Raises `ValueError` if it cannot be stored."""
    try:
        if name == TTL:
            seconds(cell)
        elif cell is not None:
            cell = json.loads(cell)
            encoded(cell)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None
    return cell


def _require_id(id: int | None) -> None:
    """Raise `ValueError` unless this is an id."""
    if id is None:
        raise ValueError("this subscription has no id; give each one")
    if not 0 <= id <= LAST_ID:
        raise ValueError(f"an id is an integer from 0 to 2**63 - 2, not {id}")


@contextmanager
def _named(ids: IntArray) -> Iterator[None]:
    """Make errors name the subscription by its id, int64 (n,), instead of the row."""
    try:
        yield
    except PredicateError as error:
        if error.row is None:
            raise
        raise PredicateError(
            f"subscription {ids[error.row]}: {error.message}",
            error.source,
            error.position,
            attribute=error.attribute,
            reason=error.reason,
        ) from None


@dataclass(frozen=True)
class SubscriptionFrame:
    """Subscriptions of a DataFrame whose columns have the right names and types."""

    frame: DataFrame
    layout: Layout
    reader: SubscriptionReader

    @classmethod
    def of(cls, frame: DataFrame, schema: Schema) -> SubscriptionFrame:
        """Check a frame with columns `id` and `where`, or ``low.<attribute>`` and ``high.<attribute>``.

        Bounds may also be in structs `low` and `high`. Raises `PredicateError`, or `ValueError` for the ids.
        """
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.sql.types import IntegralType

        bounds_of = [f"{side}.{name}" for side in SIDES for name in schema.names]
        flat = _flattened(spelled(frame, ["id", "where", *LABELS, *bounds_of]))
        labels = [name for name in LABELS if name in flat.columns]
        flat = _with_labels(flat, labels)
        if flat.columns.count("id") != 1 or not isinstance(flat.schema["id"].dataType, IntegralType):
            raise ValueError(
                f"subscriptions need one column id of integers; they have {listed(flat.columns)}. "
                "Text ids and UUIDs are for an EventFilter, which match_frame takes"
            )
        bounds = bounded_columns(flat.columns, schema)
        names = ["id", *(flat.columns[column.at] for column in bounds)] if bounds else ["id", "where"]
        columns = [column._replace(at=place + 1) for place, column in enumerate(bounds)]
        kinds = [(name, to_arrow_type(flat.schema[name].dataType, timezone="UTC")) for name in names]
        if bounds:
            read_bounds(pa.schema(kinds).empty_table().column, names, columns, schema)  # raises the error
        elif not pa.types.is_string(kinds[1][1]):
            raise PredicateError(f"the column where holds SQL conditions as strings, not {kinds[1][1]}")
        reader = SubscriptionReader(schema, columns, labels)
        return cls(flat, Layout.of(flat, [*names, *labels], "id"), reader)

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

        column = sf.col("id")
        found = self.frame.select(
            sf.count("*").alias("rows"),
            sf.count(column).alias("ids"),
            sf.countDistinct(column).alias("distinct"),
            sf.min(column).alias("least"),
            sf.max(column).alias("most"),
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

    def ids(self) -> IntArray:
        """Return all ids, int64 (n,)."""
        found: IntArray = self.frame.select("id").toArrow().column("id").to_numpy().astype(np.int64)
        return found

    def sample(self, share: float) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return ids and hulls, as `SubscriptionReader.hulls` does, of about this share of the rows."""
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
        self, cuts: Cuts, shards: list[Lease | None], place: str, capacity: tuple[int, int], most: int
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
                    EventFilter(reader.schema, capacity, max_unbounded=None, clock=reader.clock)
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


def without(frame: DataFrame, ids: list[int | None]) -> DataFrame:
    """Return the rows of a frame that have other ids; None stands for no id."""
    import pyarrow as pa
    from pyspark.sql import functions as sf

    if None in ids:
        frame = frame.where("id IS NOT NULL")
    gone = {id for id in ids if id is not None}
    if not gone:
        return frame
    table = frame.sparkSession.createDataFrame(pa.table({"id": pa.array(gone, pa.int64())}))
    return frame.join(sf.broadcast(table), "id", "left_anti")


def tell(bad: list[BadSubscription], on_error: OnError) -> None:
    """Report subscriptions that cannot be used: to the log, or to a function."""
    if callable(on_error):
        for one in bad:
            on_error(one)
    else:
        named = [one.reason if one.id is None else f"subscription {one.id}: {one.reason}" for one in bad]
        LeftOut(len(bad), named[:NAMED]).tell()


def _with_labels(frame: DataFrame, labels: list[str]) -> DataFrame:
    """Return the frame, with numbers of seconds as double.

    Raises `ValueError` if a column has another type than those of `LABELS`, or occurs twice.
    """
    from pyspark.sql.types import DayTimeIntervalType, NumericType, StringType

    types = {TTL: (NumericType, DayTimeIntervalType), METADATA: (StringType,)}
    wanted = {TTL: "seconds, as a number, or a day-time interval", METADATA: "JSON objects as strings"}
    for name in labels:
        if frame.columns.count(name) > 1:
            raise ValueError(f"column {name!r} occurs twice; drop one")
        kind = frame.schema[name].dataType
        if not isinstance(kind, types[name]):
            raise ValueError(f"the column {name} holds {wanted[name]}, not {kind.simpleString()}")
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
        if field.name in ("id", "where", *LABELS, *SIDES) or field.name.partition(".")[0] in SIDES:
            visit([field.name], field.dataType)
    return frame.select(*columns)


def in_parts(number: int, filter: EventFilter, place: str, parts: int) -> Batches:
    """Cut a shard into parts, save each, and yield rows of `BUILT`."""
    ids, low, high = hulls(filter)
    step = max(len(ids) // (SAMPLE * parts), 1)
    cuts = Cuts.into(parts, low[::step], high[::step], ids[::step])
    part = cuts.place(low, high, ids)
    for own in range(parts):
        yield written(number, part_of(filter, ids[part == own]), place, own, cuts if own == 0 else NO_CUTS)


def hulls(filter: EventFilter) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the ids, ascending, int64 (n,), and the box around all boxes of each, float64 (n, d) twice."""
    ids = filter.ids()
    of_box, low, high, _ = tree_of(filter.matcher).content()
    high = shown(filter.schema, high)
    there = np.isin(of_box, ids)  # leaves out expired subscriptions
    of_box, low, high = of_box[there], low[there], high[there]
    order = np.argsort(of_box, kind="stable")
    boxed, starts = np.unique(of_box[order], return_index=True)
    around = np.zeros((2, len(ids), filter.schema.dimensions))
    if len(boxed):
        rows = np.searchsorted(ids, boxed)
        around[0, rows] = np.minimum.reduceat(low[order], starts)
        around[1, rows] = np.maximum.reduceat(high[order], starts)
    return ids, around[0], around[1]


def written(
    number: int, filter: EventFilter, place: str, part: int = 0, cuts: Cuts = NO_CUTS
) -> pa.RecordBatch:
    """Save a shard in a new directory below `place`, and return its row of `BUILT`."""
    import pyarrow as pa

    name = uuid.uuid4().hex
    filter.repack()  # as the saved one: events are led to its leaves
    manifest = save(filter, f"{place}/{name}")
    sides = np.zeros((2, 0, filter.schema.dimensions))
    tree = tree_of(filter.matcher)
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
