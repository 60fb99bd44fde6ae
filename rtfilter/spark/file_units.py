"""Cutting Parquet files of events into units, and reading these by Arrow."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rtfilter.basics.errors import FileError
from rtfilter.spark import places
from rtfilter.spark.event_files import InputFile, reading
from rtfilter.spark.file_columns import FileColumns, folded
from rtfilter.spark.refusals import OnError
from rtfilter.spark.routes import Route

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    from rtfilter.spark.blocks import Batches

#: Files whose footers are read at the same time.
FOOTERS = 16


class FilePart(NamedTuple):
    """Row groups of a file."""

    file: InputFile
    columns: int
    """Place of its columns in `Inputs.columns`."""
    groups: list[int]
    rows: int


Unit = list[FilePart]
"""Events that one task reads, matches and writes, all or none."""


@dataclass(frozen=True)
class Inputs:
    """The events of all files.

    Attributes
    ----------
    columns : list of FileColumns
        Those of each schema that files have.
    parts : list of FilePart
        Each row group.
    """

    columns: list[FileColumns]
    parts: list[FilePart]

    @classmethod
    def of(
        cls, files: list[InputFile], spark: SparkSession, route: Route, id: str, on_error: OnError
    ) -> Inputs:
        """Read the footers of files.

        Raises
        ------
        FileError
            A file cannot be read or used, or ids have another type than in the first one.
        """
        found: dict[pa.Schema, int] = {}
        columns: list[FileColumns] = []
        parts: list[FilePart] = []
        with ThreadPoolExecutor(FOOTERS) as pool:
            for file, (given, rows) in zip(files, pool.map(_layout, files), strict=True):
                _require_columns(file, [id, *route.schema.names])
                if given not in found:
                    try:
                        columns.append(FileColumns.of(given, spark, route, id, on_error))
                    except ValueError as error:
                        raise FileError(f"{file.place}: {error}") from None
                    found[given] = len(columns) - 1
                own = found[given]
                if columns[own].kind != columns[0].kind:
                    raise FileError(
                        f"{file.place}: the column {id!r} is {columns[own].kind}, but "
                        f"{columns[0].kind} in {files[0].place}; match these files on their own"
                    )
                parts += [FilePart(file, own, [group], number) for group, number in enumerate(rows) if number]
        return cls(columns, parts)

    @property
    def events(self) -> int:
        """Number of events."""
        return sum(part.rows for part in self.parts)

    def units(self, size: int) -> list[Unit]:
        """Return units of about `size` events, or of one row group with more; at least one unit."""
        units: dict[int, Unit] = {}
        before = 0
        for part in self.parts:
            unit = units.setdefault((before + part.rows // 2) // size, [])
            before += part.rows
            if unit and unit[-1].file == part.file:
                last = unit.pop()
                part = last._replace(groups=last.groups + part.groups, rows=last.rows + part.rows)
            unit.append(part)
        return list(units.values()) or [[]]


def read(parts: Iterable[FilePart], columns: FileColumns, size: int) -> Batches:
    """Yield the events of parts with these columns, `size` together.

    Raises `FileError` for a file that has changed, or that cannot be read.
    """
    import pyarrow.parquet as pq

    for part in parts:
        with reading(part.file.place):
            system, path = places.reach(part.file.place)
            _require_unchanged(part.file, system.get_file_info(path))
            far = places.local(part.file.place) is None
            with system.open_input_file(path) as source, pq.ParquetFile(source, pre_buffer=far) as file:
                yield from columns.batches(file, part.groups, size)
            _require_unchanged(part.file, system.get_file_info(path))


def footer(place: str) -> pq.FileMetaData:
    """Return the footer of a file. Raises `FileError`."""
    import pyarrow.parquet as pq

    with reading(place):
        system, path = places.reach(place)
        with system.open_input_file(path) as source:
            return pq.read_metadata(source)


def _layout(file: InputFile) -> tuple[pa.Schema, list[int]]:
    """Return the schema of a file, and the number of events in each row group."""
    found = footer(file.place)
    rows = [found.row_group(group).num_rows for group in range(found.num_row_groups)]
    return found.schema.to_arrow_schema().remove_metadata(), rows


def _require_columns(file: InputFile, names: list[str]) -> None:
    """Refuse a file in a directory such as ``day=1`` that Spark would turn into a column."""
    for key in re.findall("/([^/=]+)=[^/]*(?=/)", file.place):
        if folded(key) in map(folded, names):
            raise FileError(
                f"{file.place}: {key!r} is in the name of a directory, but match_files reads only columns "
                "within files; use match_frame"
            )


def _require_unchanged(file: InputFile, info: Any) -> None:
    if (info.size, info.mtime_ns or 0) != (file.size, file.changed):
        raise FileError(
            f"{file.place} has changed since match_files was called; call it again, with another out"
        )
