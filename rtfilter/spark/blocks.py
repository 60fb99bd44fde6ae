"""Packing events for Spark: few large rows instead of many small ones.

Spark converts rows to Arrow and back value by value. So the numeric attributes of one type are sent as one
array per event, which costs half as much, and between two stages events are sent in blocks: Arrow batches in
a binary column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rtfilter.basics.dtypes import IntArray
from rtfilter.spark.physical_plans import may_reorder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    Batches = Iterator[pa.RecordBatch]

#: Least rows of the batches that are worked on.
GATHERED = 1 << 16
#: Types of which several columns become one array.
NUMERIC = ("byte", "short", "integer", "long", "float", "double")


@dataclass(frozen=True)
class Layout:
    """Columns of events, and how they are sent.

    Attributes
    ----------
    names : list of str
        Of the columns.
    carriers : list of list of str
        For each column that is sent, the names of the columns in it; several form an array.
    """

    names: list[str]
    carriers: list[list[str]]

    @classmethod
    def of(cls, events: DataFrame, names: list[str], apart: str) -> Layout:
        """Return the layout of these columns of a frame; the column `apart` is in no array."""
        by_type: dict[str, list[str]] = {}
        for name in names:
            kind = events.schema[name].dataType.typeName()
            shared = kind in NUMERIC and name != apart
            by_type.setdefault(kind if shared else f"{name}: {kind}", []).append(name)
        return cls(names, list(by_type.values()))

    def carried(self, events: DataFrame, *, ordered: bool = True) -> DataFrame:
        """Return the frame to send; if `ordered`, its rows are in the same order whenever it is computed.

        The partition of an event depends on the events before it. When an executor is lost, Spark
        computes its rows again. In another order, some events would be lost and others doubled.
        """
        from pyspark.sql import functions as sf

        place = {name: f"c{i}" for i, name in enumerate(events.columns)}  # names may need quoting, or case
        by_place = events.toDF(*(f"c{i}" for i in range(len(events.columns))))
        if ordered and may_reorder(events):
            keys = [_orderable(place[name], events.schema[name].dataType.typeName()) for name in self.names]
            by_place = by_place.sortWithinPartitions(*keys)
        columns = [
            sf.array(*(place[name] for name in group)) if len(group) > 1 else sf.col(place[group[0]])
            for group in self.carriers
        ]
        return by_place.select(*(column.alias(f"c{i}") for i, column in enumerate(columns)))

    def unpacked(self, batches: Batches) -> Batches:
        """Yield sent events in their original columns, in batches of `GATHERED` rows or a little more."""
        for sent in joined(batches, GATHERED):
            yield self._unpack(sent.combine_chunks())

    def _unpack(self, sent: pa.Table) -> pa.RecordBatch:
        import pyarrow as pa

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


def joined(batches: Batches, least: int) -> Iterator[pa.Table]:
    """Yield the rows of batches in tables of `least` rows or a little more."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= least:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _orderable(column: str, kind: str) -> Column:
    """Return the expression to sort a column by; maps, for example, have no order."""
    from pyspark.sql import functions as sf

    nested = kind in ("struct", "array", "map", "variant")
    return sf.to_json(sf.struct(column)) if nested else sf.col(column)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the type of Arrow for a type of Spark; moments are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_type

    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
    return to_arrow_type(kind, **zone)  # PySpark 4.1 has UTC, and no parameter for it


def quoted(name: str) -> str:
    """Return a column's name in quotes, as Spark reads it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def blocks(batch: pa.RecordBatch, keys: dict[str, IntArray]) -> pa.RecordBatch:
    """Pack the n rows of a batch into blocks, one for each combination of `keys`, int64 (n,) each.

    Returns
    -------
    pyarrow.RecordBatch
        A row per block, ascending by keys: the keys, int32, and `block`, binary.
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
    """Yield the rows of consecutive blocks with the same keys as one table, with those keys.

    A table of fewer than `least` rows also takes the rows of the next keys if only the last key differs. It
    comes with its first keys, and rows of one combination may then be in two tables.
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
