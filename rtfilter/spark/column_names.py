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
        The same frame if nothing is to be renamed. Unless case counts, a column is left out whose name
        differs from a wanted one in case only, if that one exists.

    Raises
    ------
    ValueError
        Several columns could serve a name.
    """
    wanted = frozenset(names)
    sensitive = str(frame.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"
    given = frame.schema.fields
    found = renamed(given, wanted, sensitive)
    present = {field.name for field in found} & (wanted | inner_paths(wanted))
    folded = {name.lower() for name in present}
    kept = [sensitive or field.name in present or field.name.lower() not in folded for field in found]
    if all(kept) and [(one.name, one.dataType) for one in found] == [
        (one.name, one.dataType) for one in given
    ]:
        return frame
    from pyspark.sql import functions as sf

    by_place = frame.toDF(*(f"c{place}" for place in range(len(given))))  # names may differ in case only
    columns = []
    for place, (old, new) in enumerate(zip(given, found, strict=True)):
        if kept[place]:
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
    from pyspark.sql.types import StructField, StructType

    wanted = {name for name in names | inner_paths(names) if name.startswith(prefix)}
    paths = [prefix + composed(field.name) for field in fields]
    served: dict[str, str] = {}
    found = []
    for field, path in zip(fields, paths, strict=True):
        name = path if path in wanted else _wanted(path, wanted.difference(paths))
        if name is not None and name != path and sensitive:
            _tell(path, name)
            name = None
        if name is not None and name != path and served.setdefault(name, path) != path:
            raise ValueError(
                f"the columns {served[name]!r} and {path!r} differ in case only, and none is {name!r}: "
                "rename the one that is meant, or drop the other"
            )
        kind = field.dataType
        if name is not None and isinstance(kind, StructType):
            kind = StructType(renamed(kind.fields, names, sensitive, f"{name}."))
        own = field.name if name is None else name.removeprefix(prefix)
        found.append(StructField(own, kind, field.nullable, field.metadata))
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
