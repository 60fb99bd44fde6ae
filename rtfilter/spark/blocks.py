"""Events on their way through Spark: few large rows instead of many small ones.

Spark converts rows to Arrow and back value by value. So numeric attributes of a type travel as one array of
each event, which is half the price, and between two stages events travel in blocks: Arrow batches in a
binary column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rtfilter.index.tree import IntArray

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    Batches = Iterator[pa.RecordBatch]

#: Operators of Spark that give the same rows in the same order when they run again.
STEADY = {
    "AdaptiveSparkPlan",
    "BroadcastExchange",
    "BroadcastHashJoin",
    "ColumnarToRow",
    "CommandResult",
    "FileScan",
    "Filter",
    "InMemoryRelation",
    "InMemoryTableScan",
    "LocalTableScan",
    "Project",
    "Range",
    "Sample",
    "Union",
}
OPERATOR = re.compile(r"^[\s:+|-]*(?:\*?\(\d+\) )?(\w+)", re.MULTILINE)
#: Rows that are worked on together.
GATHERED = 1 << 16
#: Types of which several columns become one array.
NUMERIC = ("byte", "short", "integer", "long", "float", "double")


@dataclass(frozen=True)
class Layout:
    """Columns of events, and how they are carried.

    Attributes
    ----------
    names : list of str
        Of the columns.
    carriers : list of list of str
        For each column of the frame that is sent, the names of those it carries; several form an array.
    """

    names: list[str]
    carriers: list[list[str]]

    @classmethod
    def of(cls, events: DataFrame, names: list[str], apart: str) -> Layout:
        """For these columns of a frame, of which `apart` is not to be in an array."""
        by_type: dict[str, list[str]] = {}
        for name in names:
            kind = events.schema[name].dataType.typeName()
            shared = kind in NUMERIC and name != apart
            by_type.setdefault(kind if shared else f"{name}: {kind}", []).append(name)
        return cls(names, list(by_type.values()))

    def carried(self, events: DataFrame, *, ordered: bool = True) -> DataFrame:
        """The frame that is sent; if `ordered`, its rows in an order that does not depend on chance.

        Which partition an event goes to depends on the events before it. After the loss of an executor Spark
        computes again what was lost, and were the order another, events would be lost and others doubled.
        """
        from pyspark.sql import functions as sf

        place = {name: f"c{i}" for i, name in enumerate(events.columns)}  # names may need quoting, or case
        by_place = events.toDF(*(f"c{i}" for i in range(len(events.columns))))
        if ordered and _by_chance(events):
            keys = [_orderable(place[name], events.schema[name].dataType.typeName()) for name in self.names]
            by_place = by_place.sortWithinPartitions(*keys)
        columns = [
            sf.array(*(place[name] for name in group)) if len(group) > 1 else sf.col(place[group[0]])
            for group in self.carriers
        ]
        return by_place.select(*(column.alias(f"c{i}") for i, column in enumerate(columns)))

    def unpacked(self, batches: Batches) -> Batches:
        """What has arrived, in its own columns: batches of `GATHERED` rows or a little more."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(map(len, held)) >= GATHERED:
                yield self._unpack(held)
                held = []
        if held:
            yield self._unpack(held)

    def _unpack(self, held: list[pa.RecordBatch]) -> pa.RecordBatch:
        import pyarrow as pa

        sent = pa.Table.from_batches(held).combine_chunks()
        found = {}
        for group, column in zip(self.carriers, sent.columns, strict=True):
            values = column.combine_chunks()
            if len(group) == 1:
                found[group[0]] = values
                continue
            flat, width = values.flatten(), len(group)
            for place, name in enumerate(group):
                found[name] = flat.take(pa.array(np.arange(place, len(flat), width)))
        return pa.RecordBatch.from_arrays([found[name] for name in self.names], self.names)


def _by_chance(events: DataFrame) -> bool:
    """Whether the order of the rows may be another when they are computed again."""
    plan = events._jdf.queryExecution().executedPlan().toString()
    return not all(found[1] in STEADY for found in OPERATOR.finditer(plan))


def _orderable(column: str, kind: str) -> Column:
    """What to sort by for a column: maps, say, have no order of their own."""
    from pyspark.sql import functions as sf

    nested = kind in ("struct", "array", "map", "variant")
    return sf.to_json(sf.struct(column)) if nested else sf.col(column)


def quoted(name: str) -> str:
    """A column's name as Spark reads it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def blocks(batch: pa.RecordBatch, keys: dict[str, IntArray]) -> pa.RecordBatch:
    """The rows of a batch in blocks, one for each combination of keys int (n,), in their order.

    Returns a row per block: its keys, int32, and `block`, binary.
    """
    import pyarrow as pa

    named = np.stack(list(keys.values()))
    order = np.lexsort(named[::-1])
    named = named[:, order]
    edges = np.flatnonzero((np.diff(named) != 0).any(axis=0)) + 1
    cuts = [0, *edges.tolist(), len(order)] if len(order) else [0]
    rows = batch.take(pa.array(order))
    packed = [_packed(rows.slice(a, b - a)) for a, b in pairwise(cuts)]
    columns = [pa.array(key[cuts[:-1]], pa.int32()) for key in named]
    return pa.RecordBatch.from_arrays([*columns, pa.array(packed, pa.binary())], [*keys, "block"])


def _packed(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def gathered(batches: Batches, keys: list[str], least: int = 1) -> Iterator[tuple[tuple[int, ...], pa.Table]]:
    """The rows of all blocks that have the same keys, which stand together: a table for each combination.

    With `least`, a table goes on with the next keys while it has fewer rows and only the last key differs, so
    rows with those keys may be in two tables. It has the keys of its first.
    """
    import pyarrow as pa

    held: list[Any] = []
    rows = 0
    present: tuple[int, ...] = ()
    for batch in batches:
        named = zip(*(batch.column(key).to_pylist() for key in keys), strict=True)
        for key, block in zip(named, batch.column("block"), strict=True):
            if held and key != present and (rows >= least or key[:-1] != present[:-1]):
                yield present, pa.Table.from_batches(held)
                held, rows = [], 0
            if not held:
                present = key
            for piece in pa.ipc.open_stream(block.as_buffer()):
                held.append(piece)
                rows += len(piece)
    if held:
        yield present, pa.Table.from_batches(held)
