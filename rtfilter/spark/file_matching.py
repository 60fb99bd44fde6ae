"""Matching Parquet files: tasks read row groups and write matches by Arrow, without Java between.

The directory of the result has a file for each unit of events, a plan, and in the end `_SUCCESS`. The names
of the files follow from the plan. A file appears when it is complete, so a later call with the same plan only
matches the units without a file.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rtfilter import EventFilter
from rtfilter.basics.errors import FileError
from rtfilter.basics.text import listed
from rtfilter.spark import places, refusals
from rtfilter.spark.blocks import GATHERED, Layout, joined
from rtfilter.spark.data_frames import (
    MATCHES,
    OFFSET,
    SUBSCRIPTION,
    WORKLOAD,
    matcher_in_place,
    route_to,
    settled_work,
)
from rtfilter.spark.event_files import HIDDEN, EventFiles, InputFile, find
from rtfilter.spark.file_columns import FileColumns
from rtfilter.spark.file_units import FOOTERS, Inputs, Unit, footer, read
from rtfilter.spark.physical_plans import cores_of
from rtfilter.spark.refusals import LeftOut, OnError, own_errors
from rtfilter.spark.reports import REPORT, TaskReport
from rtfilter.spark.routes import Route
from rtfilter.spark.shards import ShardedIndex
from rtfilter.spark.whole_files import DRAFTS, whole_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rtfilter.spark.blocks import Batches
    from rtfilter.spark.leases import Lease

PLAN, SUCCESS = "_plan.json", "_SUCCESS"
#: Units for each core, if files have enough row groups, and the least and the most events of a unit.
EACH, LEAST, MOST = 4, 1 << 16, 1 << 20
#: Version of the way in which a plan cuts files into units.
FORM = 1
#: Tasks of Spark for each core: each takes several units, one after the other.
TASKS = 2
#: Key in the footer of a file for the number of events that were left out.
LEFT_OUT = "rtfilter.left_out"
#: What a call may not change while its result is incomplete, in words.
ARGUMENTS = {
    "files": "the files of events differ",
    "index": "the index differs",
    "id": "id differs",
    "details": "details differ",
    "form": "the version of rtfilter differs",
}


@dataclass(frozen=True)
class FilesMatched:
    """Summary of a result of `match_files`.

    Attributes
    ----------
    files, events, matches, left_out : int
        Numbers of the whole result: files read, their events, matches, and events that cannot be used.
    seconds : float
        Duration of this call.
    """

    files: int
    events: int
    matches: int
    left_out: int
    seconds: float


@own_errors()
def match_files(
    spark: SparkSession,
    events: EventFiles,
    index: EventFilter | ShardedIndex | str | PathLike[str],
    *,
    out: str | PathLike[str],
    id: str = "id",
    details: bool = False,
    on_error: OnError = "raise",
) -> FilesMatched:
    """Write the subscriptions that match each event of Parquet files into other Parquet files.

    Executors read the row groups and write the matches themselves, so no event passes through Java; this
    takes less time than `match_frame` and a write of its result. Only columns of attributes are read.

    A call that was killed or failed may be repeated with the same arguments: it keeps the files that are
    complete, and matches the other events. After a complete result, it does nothing. Files appear in `out`
    when they are complete, then `_SUCCESS`. Only one call at a time may write to a directory.

    Parameters
    ----------
    spark : SparkSession
    events : path, URI, pattern, or sequence of these
        Parquet files with a row per event, or directories of such files: columns as for `match_frame`. In a
        pattern, ``*``, ``?`` (not in a URI) and ``[...]`` stand for a part of a name. Names that begin with
        ``_`` or ``.`` are left out, as by Spark. Names of directories (``day=1``) give no columns.
    index : EventFilter, ShardedIndex, path or URI
        See `match_frame`.
    out : path or URI
        The directory of the result. Executors reach it and the events by the same path or URI.
    id : str
        The column that names an event in the result; of one type in all files.
    details : bool
        True if the result has the columns `workload` and `offset`.
    on_error : "raise" or "skip"
        The treatment of an event that cannot be used, as it has NaN, for example: an `EventError` that names
        it; or leave it out, count it, and name it in the log of the executor. A later call may change this;
        files that are complete stay as they are.

    Returns
    -------
    FilesMatched

    Raises
    ------
    FileError
        There are no such files; one of them cannot be read, lacks the columns, or has changed; `out` has
        other files, or matches of a call with other events, index, `id` or `details`; or it cannot be
        written. After you have removed the cause, the same call continues.
    EventError
        An event cannot be used.
    SnapshotError
        The index cannot be opened.
    ValueError
        `on_error` is something else.
    """
    begun = perf_counter()
    refusals.checked(on_error)
    place = places.absolute(out)
    route, files = route_to(spark, index), find(events, place)
    inputs = Inputs.of(files, spark, route, id, on_error)
    slots = cores_of(spark.range(1))
    with _writing(place):
        plan = _plan(place, _arguments(files, route, id, details), slots, inputs.events)
        units = inputs.units(plan["unit"])
        names = [f"part-{number:05}-{plan['name']}.parquet" for number in range(len(units))]
        present = set(places.names(place))
        places.remove(places.under(place, DRAFTS))  # of killed tasks
        todo = [(name, unit) for name, unit in zip(names, units, strict=True) if name not in present]
        if not todo and SUCCESS in present:
            done = json.loads(places.read_bytes(places.under(place, SUCCESS)))
            return FilesMatched(**{**done, "seconds": perf_counter() - begun})
        places.remove(places.under(place, SUCCESS))
    _Work(place, todo, inputs.columns, route, id, details, plan["moment"]).run(spark, slots)
    with _writing(place), ThreadPoolExecutor(FOOTERS) as pool:
        if not set(names) <= set(places.names(place)):
            raise FileError(f"executors write to another {place} than this process reads: use a shared place")
        counts = list(pool.map(_counts, [places.under(place, name) for name in names]))
        matches, left_out = (sum(one[k] for one in counts) for k in (0, 1))
        result = FilesMatched(len(files), inputs.events, matches, left_out, perf_counter() - begun)
        with whole_file(place, SUCCESS) as file:
            file.write(json.dumps(asdict(result)).encode())
        places.remove(places.under(place, DRAFTS))
    return result


@contextmanager
def _writing(out: str) -> Iterator[None]:
    """Turn errors of writing into a `FileError` that says how to continue."""
    try:
        yield
    except OSError as error:
        raise FileError(
            f"{out} cannot be written: {error.strerror or error}; remove the cause, then call match_files "
            "again with the same arguments: it keeps the files that are complete"
        ) from None


def _arguments(files: list[InputFile], route: Route, id: str, details: bool) -> dict[str, Any]:
    """Return what determines the result, as JSON has it."""
    leases = [*route.leases, *([route.leaves] if route.leaves else [])]
    content = hashlib.blake2b("".join(map(_content, leases)).encode(), digest_size=16).hexdigest()
    # A URI may have credentials before the host, and as options.
    named = [[re.sub("//[^/]*@", "//", places.parted(place)[0]), *more] for place, *more in files]
    return {"files": named, "index": content, "id": id, "details": details, "form": FORM}


def _content(lease: Lease) -> str:
    """Return a text that two saves of an equal index share, unlike the names of their files."""
    manifest = json.loads(lease.manifest)
    arrays = {name: {**array, "file": ""} for name, array in manifest["arrays"].items()}
    return json.dumps([manifest["meta"], arrays], sort_keys=True)


def _plan(out: str, arguments: dict[str, Any], slots: int, events: int) -> dict[str, Any]:
    """Return the plan of a directory, which is made by the first call.

    Raises `FileError` if the directory belongs to other arguments, or has other files.
    """
    try:
        found: dict[str, Any] = json.loads(places.read_bytes(places.under(out, PLAN)))
    except FileNotFoundError:
        others = [name for name in places.names(out) if not name.startswith(HIDDEN)]
        if others:
            raise FileError(
                f"{out} has other files, {listed(others)}: choose another directory out"
            ) from None
        name = hashlib.blake2b(json.dumps(arguments).encode(), digest_size=8).hexdigest()
        unit = min(max(events // (EACH * slots), LEAST), MOST)
        found = {**arguments, "name": name, "unit": unit, "moment": time.time()}
        with whole_file(out, PLAN) as file:
            file.write(json.dumps(found).encode())
        return found
    for key, words in ARGUMENTS.items():
        if found[key] != arguments[key]:
            before, now = ({tuple(file) for file in one["files"]} for one in (found, arguments))
            changed = sorted({place for place, *_ in before ^ now})
            named = f" ({listed(changed)})" if key == "files" else ""
            raise FileError(
                f"{out} has matches of another call, as {words}{named}: choose another "
                "directory out, or remove this one to match again"
            )
    return found


@dataclass(frozen=True)
class _Work:
    """The units to match, by the names of their files in `out`; pickled for the tasks."""

    out: str
    units: list[tuple[str, Unit]]
    columns: list[FileColumns]
    route: Route
    id: str
    details: bool
    moment: float

    def run(self, spark: SparkSession, slots: int) -> None:
        """Match all units."""
        tasks = min(len(self.units), TASKS * slots)

        def task(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for name, unit in self.units[number::tasks]:
                        self._match(name, unit)
                yield batch

        if tasks:
            numbers = spark.range(0, tasks, 1, tasks)
            numbers.mapInArrow(settled_work(task, "match files"), "id long").collect()

    def _match(self, name: str, unit: Unit) -> None:
        """Write the file of a unit."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        left_out = LeftOut()
        kind = pa.int64() if self.route.leases[0].kind is int else pa.string()
        fields = [(self.id, self.columns[0].kind), (SUBSCRIPTION, kind)]
        if self.details:
            fields += [(WORKLOAD, pa.int64()), (OFFSET, pa.float64())]
        with (
            _writing(self.out),
            whole_file(self.out, name) as file,
            pq.ParquetWriter(file, pa.schema(fields), compression="zstd") as writer,
        ):
            for table in joined(self._answers(unit, left_out), MATCHES):
                writer.write_table(table)
            writer.add_key_value_metadata({LEFT_OUT: str(left_out.count)})

    def _answers(self, unit: Unit, left_out: LeftOut) -> Batches:
        """Yield the matches of a unit; add the events that cannot be used to `left_out`."""
        # Each shard is loaded once for a unit, if all of its events are there.
        size = GATHERED if self.route.leaves is None else max(sum(part.rows for part in unit), 1)
        for own, parts in groupby(unit, lambda part: part.columns):
            columns = self.columns[own]
            layout = Layout(columns.names, [[name] for name in columns.names])
            match = matcher_in_place(self.route, layout, columns.reader, self.details, True, self.moment)
            for answer in match(read(parts, columns, size)):
                if answer.schema.names == [REPORT]:
                    report = TaskReport.from_json(answer.column(REPORT)[0].as_py())
                    report.left_out.tell()
                    left_out.add(report.left_out)
                else:
                    yield answer


def _counts(place: str) -> tuple[int, int]:
    """Return the matches in a file, and the events that were left out for it."""
    found = footer(place)
    return found.num_rows, int(found.metadata[LEFT_OUT.encode()])
