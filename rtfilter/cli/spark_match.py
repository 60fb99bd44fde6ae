"""``rtfilter spark-match``: match the events of files on Spark, with `rtfilter.spark.match_frame`."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from time import perf_counter
from typing import TYPE_CHECKING

from rtfilter.basics.text import composed, listed, numbered
from rtfilter.cli import inputs
from rtfilter.cli.arguments import positive
from rtfilter.cli.subscription_files import is_index
from rtfilter.cli.terminal import CommandError, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rtfilter.events.schema import Schema

FORMATS = ("parquet", "json")
OTHERS = (".csv", ".tsv")
"""Endings of unsupported formats; a path without a known ending is read as Parquet."""
BEGINNING = 2**20
"""Characters of JSON events to read before Spark starts."""
SETTINGS = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT")
"""Variables that may give paths another file system; spark-submit sets the last one."""

_JAVA = re.compile(r"([\w$]+\.)+[\w$]+(Exception|Error): ")
_SQLSTATE = re.compile(r" SQLSTATE: \w+$")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Match events against a saved index on Spark. The result is Parquet files with a row per match:\n"
        "the event's id, and the subscription. Needs the extra spark and Java 17 or newer."
    )
    parser.epilog = """events:
  what Spark reads: a file or directory of Parquet, or of JSON lines, on any file system it reaches,
  with a column for each attribute, and one that names the event. The index is a path that this process
  sees (executors that do not are sent it), a URI of hdfs, s3, gs or abfs, or what build_sharded made.

examples:
  rtfilter index build alerts.jsonl --schema ticks.json --out alerts-index
  rtfilter spark-match alerts-index ticks.parquet --out matches
  rtfilter spark-match alerts-index hdfs:///ticks --id tick --out hdfs:///matches --master spark://host:7077
  spark-submit --master yarn "$(python -c 'import rtfilter; print(*rtfilter.__path__)')/__main__.py" \\
      spark-match alerts-index hdfs:///ticks --out hdfs:///matches
"""
    add = parser.add_argument
    add("index", metavar="INDEX", help="a saved index, or one in shards")
    add("events", metavar="EVENTS", help="file or directory of events")
    add("--out", metavar="DIR", required=True, help="directory for the result; must not exist")
    add("--id", metavar="COLUMN", default="id", help="column that names an event (default id)")
    add(
        "--format", choices=FORMATS, help="of the events; by default JSON if EVENTS ends with .json or .jsonl"
    )
    add(
        "--partitions",
        metavar="N",
        type=positive,
        help="deal events out to N tasks; by default only where it pays",
    )
    add("--details", action="store_true", help="with the estimated workload and the seconds to each answer")
    add(
        "--master",
        metavar="URL",
        help="of the cluster, or sc://HOST; by default what spark-submit was told, or local[*]",
    )
    inputs.add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    remote = "://" in arguments.index
    if not remote and not is_index(arguments.index):
        raise CommandError(f"{arguments.index}: is no saved index; make one with rtfilter index build")
    _refuse_missing(arguments)
    columns = _columns(arguments) if _local(arguments.events) else []
    if columns:  # Spark itself reports names that differ in case
        _require_id(arguments, columns)
    try:
        from rtfilter.spark import match_frame  # first, because its error says what to install
    except ImportError as error:
        raise CommandError(str(error)) from None
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from rtfilter.spark.column_names import spelled
    from rtfilter.spark.sessions import hide_traces, session

    try:
        spark = session(arguments.master, progress=arguments.progress or sys.stderr.isatty())
        hide_traces(spark)
    except RuntimeError as error:
        raise CommandError(str(error)) from None
    except (PySparkException, Py4JError) as error:
        raise CommandError(
            f"there is no Spark at {arguments.master or 'its master'}: {_reason(str(error))}"
        ) from None
    kind = arguments.format or _format(arguments.events)
    began = perf_counter()
    try:
        events = spark.read.format(kind).option("mode", "FAILFAST").load(arguments.events)
        schema = _schema(arguments.index)
        events = spelled(events, [arguments.id, *schema.names])
        _require_id(arguments, events.columns)
        absent = [name for name in schema.names if not _has(events, name)]
        if absent:
            say(f"events have no column {', '.join(absent)}: counts as missing in all of them")
        result = match_frame(
            events,
            arguments.index,
            id=arguments.id,
            partitions=arguments.partitions,
            details=arguments.details,
        )
        result.write.parquet(arguments.out)
        matches = spark.read.parquet(arguments.out).count()
    except (PySparkException, Py4JError) as error:
        reason = _reason(str(error))
        if "PATH_ALREADY_EXISTS" in reason:
            raise CommandError(f"{arguments.out} already exists; choose another --out") from None
        named = any(path in reason for path in (arguments.events, arguments.out))
        raise CommandError(reason if named else f"{arguments.events}: {reason}") from None
    except (RuntimeError, ValueError) as error:
        raise CommandError(str(error)) from None
    say(f"{numbered(matches, 'match')} in {perf_counter() - began:.1f} s, in {arguments.out}")
    return 0


def _refuse_missing(arguments: argparse.Namespace) -> None:
    """Refuse local paths that Spark would refuse, and events in CSV, before Spark starts."""
    if _local(arguments.events) and not os.path.exists(arguments.events):
        raise CommandError(f"{arguments.events}: there is no such file or directory")
    if arguments.format is None and _ending(arguments.events) in OTHERS:
        raise CommandError(
            f"{arguments.events}: spark-match reads Parquet and JSON lines; rtfilter match reads CSV, and "
            "Spark writes it as Parquet: spark.read.csv(...).write.parquet(...)"
        )
    if _local(arguments.out) and os.path.lexists(arguments.out):
        raise CommandError(f"{arguments.out} already exists; choose another --out")


def _require_id(arguments: argparse.Namespace, columns: list[str]) -> None:
    """Refuse events without the column of ids."""
    if arguments.id.lower() not in {composed(name).lower() for name in columns}:
        raise CommandError(
            f"{arguments.events}: events have no column {arguments.id!r} with their ids; name another one "
            f"by --id: {listed(columns)}"
        )


def _columns(arguments: argparse.Namespace) -> list[str]:
    """Return the columns of local events from the beginning of a file; none if only Spark can read them."""
    path = arguments.events
    if os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if name[0] not in "._")
        path = os.path.join(path, names[0]) if names else ""
    if not os.path.isfile(path):  # for example a folder for each value of a column
        return []
    try:
        if (arguments.format or _format(arguments.events)) == "parquet":
            from pyarrow.parquet import read_schema

            return list(read_schema(path).names)
        with open(path, encoding="utf-8") as lines:
            events = [json.loads(line) for line in lines.readlines(BEGINNING) if line.strip()]
        if not all(isinstance(event, dict) for event in events):
            return []
        return list(dict.fromkeys(name for event in events for name in event))
    except (ImportError, OSError, ValueError):  # pyarrow raises these, too
        return []


def _local(path: str) -> bool:
    """Return whether Spark reads a path as one local path, without settings for another file system."""
    return not (any(name in os.environ for name in SETTINGS) or any(sign in path for sign in ":*?{[,"))


def _schema(index: str) -> Schema:
    from rtfilter.spark import ShardedIndex, leases, places

    found = ShardedIndex.find(index)
    return leases.lease_of(places.absolute(index)).schema if found is None else found.schema


def _has(events: DataFrame, attribute: str) -> bool:
    return attribute in events.columns or attribute.partition(".")[0] in events.columns


def _format(path: str) -> str:
    return "json" if _ending(path) in (".json", ".jsonl", ".ndjson") else "parquet"


def _ending(path: str) -> str:
    return os.path.splitext(path.lower().removesuffix(".gz"))[1]


def _reason(text: str) -> str:
    """Return the cause in Spark's long message: the error of rtfilter in a worker, if there is one."""
    from rtfilter.spark.refusals import own_error

    own = own_error(text)
    if own is not None:
        return str(own)
    if "Malformed records" in text:
        return "holds a line that is no JSON object"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return _SQLSTATE.sub("", _JAVA.sub("", causes[-1] if causes else lines[0]))
