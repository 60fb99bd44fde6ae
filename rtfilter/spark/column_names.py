"""Columns by wanted names: as Spark resolves names, and in any spelling of Unicode.

With ``spark.sql.caseSensitive`` false, Spark's default, a column `Price` serves the attribute `price`. This
holds for fields of structs, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rtfilter.basics.text import composed
from rtfilter.events.nesting import inner_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

_told: set[tuple[str, str]] = set()
"""Columns, and the names that they have but for their case: the log has each once."""


def spelled(frame: DataFrame, names: Iterable[str]) -> DataFrame:
    """Return a frame whose columns, and fields of structs, have the wanted names.

    Parameters
    ----------
    frame : DataFrame
    names : iterable of str
        The wanted names; one with dots is also the path to a field.

    Returns
    -------
    DataFrame
        The same frame if nothing is to be renamed.

    Raises
    ------
    ValueError
        Several columns, or fields of a struct, have a name: it is ambiguous to Spark, too.
    """
    wanted = frozenset(names)
    sensitive = str(frame.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"
    given = frame.schema.fields
    found = renamed(given, wanted, sensitive)
    if [(one.name, one.dataType) for one in found] == [(one.name, one.dataType) for one in given]:
        return frame
    from pyspark.sql import functions as sf

    by_place = frame.toDF(*(f"c{place}" for place in range(len(given))))  # others may be ambiguous
    columns = []
    for place, (old, new) in enumerate(zip(given, found, strict=True)):
        column = sf.col(f"c{place}")
        columns.append(
            (column if new.dataType == old.dataType else column.cast(new.dataType)).alias(new.name)
        )
    return by_place.select(*columns)


def renamed(
    fields: Sequence[StructField], names: frozenset[str], sensitive: bool, prefix: str = ""
) -> list[StructField]:
    """Return the fields of a frame, or of the struct at `prefix`, by their wanted names; see `spelled`.

    `prefix` is the path to a struct with a dot at its end. With `sensitive`, case counts.
    """
    from pyspark.sql.types import ArrayType, DataType, StructField, StructType

    wanted = {name for name in names | inner_paths(names) if name.startswith(prefix)}
    served: dict[str, str] = {}

    def below(kind: DataType, name: str) -> DataType:
        if isinstance(kind, StructType):
            return StructType(renamed(kind.fields, names, sensitive, f"{name}."))
        if isinstance(kind, ArrayType):
            return ArrayType(below(kind.elementType, name), kind.containsNull)
        return kind

    found = []
    for field in fields:
        path = prefix + composed(field.name)
        name = path if path in wanted else _wanted(path, wanted)
        if name is None or (sensitive and name != path):
            if name is not None:
                _tell(path, name)
            found.append(field)
            continue
        own = name if sensitive else name.lower()
        if own in served:
            raise ValueError(
                f"the columns {prefix + served[own]!r} and {prefix + field.name!r} are both {name!r} "
                "to Spark: rename one, or drop it"
            )
        served[own] = field.name
        kind = below(field.dataType, name)
        found.append(StructField(name.removeprefix(prefix), kind, field.nullable, field.metadata))
    return found


def _wanted(path: str, names: set[str]) -> str | None:
    """Return the name that differs from a path in case only."""
    return min((name for name in names if name.lower() == path.lower()), default=None)


def _tell(path: str, name: str) -> None:
    """Warn once that a column would serve if case did not count."""
    if (path, name) not in _told:
        _told.add((path, name))
        logging.getLogger("rtfilter").warning(
            "%r does not serve %r, as spark.sql.caseSensitive is true: rename it, or set that false",
            path,
            name,
        )
