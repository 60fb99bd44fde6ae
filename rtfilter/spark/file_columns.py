"""The columns that tasks read of Parquet files: attributes alone, by the names that Spark would give them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from rtfilter.basics.text import composed
from rtfilter.events.foreign import is_uuid
from rtfilter.events.nesting import inner_paths
from rtfilter.spark.column_names import renamed
from rtfilter.spark.data_frames import laid_out
from rtfilter.spark.refusals import OnError, TaskEventReader
from rtfilter.spark.routes import Route

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import ArrayType, DataType, StructType

    from rtfilter.spark.blocks import Batches

#: For the name of a column or field in a file: its name as an attribute, and the same of its own fields.
Spellings = dict[str, tuple[str, "Spellings"]]


@dataclass(frozen=True)
class FileColumns:
    """The columns to read of files with one schema.

    Attributes
    ----------
    leaves : list of int
        Their leaves in the schema of Parquet. Of structs, only fields that are attributes are read.
    spellings : dict
    kind : pyarrow.DataType
        The type of the ids.
    reader : TaskEventReader
    """

    leaves: list[int]
    spellings: Spellings
    kind: pa.DataType
    reader: TaskEventReader

    @classmethod
    def of(
        cls, given: pa.Schema, spark: SparkSession, route: Route, id: str, on_error: OnError
    ) -> FileColumns:
        """Return the columns of files with a schema; raises as `match_frame` does."""
        from pyspark.sql.types import NullType, StructField, StructType

        attributes = frozenset(route.schema.names)
        known = {folded(name) for name in (id, *attributes, *inner_paths(attributes))}
        kinds = [
            StructField(field.name, _of_spark(field.type) if folded(field.name) in known else NullType())
            for field in given
        ]
        sensitive = str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"
        columns = renamed(kinds, attributes | {id}, sensitive)
        header = cast("DataFrame", _Header(StructType(columns), spark))
        _, reader = laid_out(header, route, id, on_error)
        leaves, read, spellings = [], set(), {}
        leaf = 0
        for field, own in zip(given, columns, strict=True):
            used = own.name in (id, *reader.names)
            if used:
                spellings[field.name] = own.name, _spellings(field.type, own.dataType)
            for path in _leaves(field, "", spellings):
                if used and (own.name == id or composed(path) in attributes):
                    leaves.append(leaf)
                    read.add(own.name)
                leaf += 1
        reader = replace(reader, names=[name for name in reader.names if name in read])
        kind = next(field.type for field, own in zip(given, columns, strict=True) if own.name == id)
        return cls(leaves, spellings, kind, reader)

    @property
    def names(self) -> list[str]:
        """The names of the columns, as attributes."""
        return list(dict.fromkeys([self.reader.id, *self.reader.names]))

    def batches(self, file: pq.ParquetFile, groups: list[int], size: int) -> Batches:
        """Yield the events of row groups, `size` together."""
        import pyarrow as pa

        leaves = [file.metadata.schema.column(leaf).path for leaf in self.leaves]
        for batch in file.iter_batches(size, row_groups=groups, columns=leaves, use_threads=False):
            found = {}
            for field, column in zip(batch.schema, batch.columns, strict=True):
                own = _respelled(field, self.spellings)
                found[own.name] = column if own.type == field.type else column.view(own.type)
            yield pa.RecordBatch.from_arrays([found[name] for name in self.names], self.names)


@dataclass(frozen=True)
class _Header:
    """As much of a DataFrame as `laid_out` needs: its columns."""

    schema: StructType
    sparkSession: SparkSession  # noqa: N815

    @property
    def columns(self) -> list[str]:
        return self.schema.names


def folded(name: str) -> str:
    return composed(name).lower()


def _of_spark(kind: pa.DataType) -> DataType:
    """Return the type that Spark has for a type of Arrow, or one with values that compare alike."""
    import pyarrow as pa
    from pyspark.errors import PySparkTypeError
    from pyspark.sql import types
    from pyspark.sql.pandas.types import from_arrow_type

    if pa.types.is_struct(kind):
        return types.StructType([types.StructField(own.name, _of_spark(own.type)) for own in kind])
    if hasattr(kind, "value_field"):  # a list
        return types.ArrayType(_of_spark(kind.value_type))
    if pa.types.is_dictionary(kind):
        return _of_spark(kind.value_type)
    if pa.types.is_unsigned_integer(kind):
        return types.LongType()
    if pa.types.is_float16(kind):
        return types.FloatType()
    if pa.types.is_date(kind):
        return types.DateType()
    if is_uuid(kind) or kind == pa.string_view():
        return types.StringType()
    try:
        return from_arrow_type(kind)
    except PySparkTypeError:
        return types.BinaryType()  # which compares with no attribute


def _spellings(kind: pa.DataType, own: DataType) -> Spellings:
    """Return the names of the fields of a struct, perhaps in lists; none for other types."""
    while own.typeName() == "array":
        kind, own = kind.value_type, cast("ArrayType", own).elementType
    if own.typeName() != "struct":
        return {}
    fields = cast("StructType", own).fields
    return {
        given.name: (field.name, _spellings(given.type, field.dataType))
        for given, field in zip(kind, fields, strict=True)
    }


def _respelled(field: pa.Field, spellings: Spellings) -> pa.Field:
    """Return a field with its name, and those of its own fields, as attributes."""
    name, inner = spellings.get(field.name, (field.name, {}))
    return field.with_name(name).with_type(_respelled_type(field.type, inner))


def _respelled_type(kind: pa.DataType, inner: Spellings) -> pa.DataType:
    import pyarrow as pa

    if not inner:
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([_respelled(own, inner) for own in kind])
    element = kind.value_field.with_type(_respelled_type(kind.value_type, inner))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(element, kind.list_size)
    return pa.large_list(element) if pa.types.is_large_list(kind) else pa.list_(element)


def _leaves(field: pa.Field, prefix: str, spellings: Spellings) -> Iterator[str]:
    """Yield the path of each leaf that Parquet has for a field, as the name of an attribute."""
    import pyarrow as pa

    name, inner = spellings.get(field.name, (field.name, {}))
    path, kind = prefix + name, field.type
    while hasattr(kind, "value_field"):  # the elements of a list are at its own path
        kind = kind.value_type
    if pa.types.is_struct(kind):
        for own in kind:
            yield from _leaves(own, f"{path}.", inner)
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_field, f"{path}.", {})
        yield from _leaves(kind.item_field, f"{path}.", {})
    else:
        yield path
