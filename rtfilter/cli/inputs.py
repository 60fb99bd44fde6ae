"""The arguments that commands share: subscriptions, events, and their schema."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rtfilter.cli.events import EventBatch, open_events
from rtfilter.cli.schemas import SAMPLE, read_schema, to_line
from rtfilter.cli.subscriptions import build_filter, is_index, open_index
from rtfilter.cli.terminal import CommandError, say

if TYPE_CHECKING:
    from rtfilter.filter import EventFilter

SUBSCRIPTION_FILES = """\
subscriptions:
  .jsonl    each line a JSON string, an SQL condition, or an object:
              "symbol = 'ACME' AND price < 10"
              {"id": 7, "where": "price BETWEEN 5 AND 10 OR symbol LIKE 'AC%'"}
              {"id": 8, "pattern": {"symbol": ["ACME"], "price": [{"numeric": ["<", 10]}]}}
  .csv, .parquet
            a column where (SQL conditions), or columns low.<attribute> and high.<attribute>
            (closed bounds, empty is open), and optionally a column id
  Without ids, subscriptions are numbered by their rows, from 0.
"""
SCHEMA_FILE = """\
schema (types int, float, str, bool, timestamp; numbers and timestamps may have a domain):
  {"symbol": "str", "price": "float", "size": {"type": "int", "low": 0, "high": 65535}}
"""
FILES = f"""{SUBSCRIPTION_FILES}  A directory is an index saved by rtfilter index build.

events:
  .jsonl    each line a JSON object; an object inside gives names with dots, as in "url.path"
  .csv      a header and rows; an empty cell is a missing attribute
  .parquet  columns by name; null is a missing attribute
  -         JSON lines from standard input
  .jsonl.gz and .csv.gz are read too. Parquet needs pyarrow: pip install 'rtree-filter[arrow]'

{SCHEMA_FILE}"""
"""What the files look like, for help texts."""


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Declare SUBSCRIPTIONS, EVENTS and --schema."""
    parser.add_argument(
        "subscriptions", metavar="SUBSCRIPTIONS", help="file of subscriptions, or a saved index"
    )
    parser.add_argument("events", metavar="EVENTS", help="file of events, or - for standard input")
    parser.add_argument(
        "--schema",
        metavar="FILE",
        help="JSON file with the types of the attributes; by default they are inferred from the first "
        f"{SAMPLE:,} events and shown. A saved index has its own",
    )


def add_progress(parser: argparse.ArgumentParser) -> None:
    """Declare --progress."""
    parser.add_argument(
        "--progress", action="store_true", help="show progress even where standard error is no terminal"
    )


def positive(text: str) -> int:
    """Read an integer above 0 from the command line."""
    value = int(text) if text.isascii() and text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be an integer above 0, not {text!r}")
    return value


def open_inputs(
    arguments: argparse.Namespace, batch: int, only: int | None = None
) -> tuple[EventFilter, Iterator[EventBatch]]:
    """Return the filter of the subscriptions and the batches of events, by the arguments of `add_inputs`.

    Parameters
    ----------
    arguments : argparse.Namespace
    batch : int
        Events in a batch.
    only : int, optional
        Read only the subscription with this id.

    Raises
    ------
    OSError, CommandError
        A file cannot be read; with its place.
    """
    events = open_events(arguments.events)
    if is_index(arguments.subscriptions):
        if arguments.schema is not None:
            raise CommandError(
                f"{arguments.subscriptions} is an index and has its own schema; leave out --schema"
            )
        target = open_index(arguments.subscriptions)
        return target, events.batches(target.schema, batch)
    if arguments.schema is not None:
        schema = read_schema(arguments.schema)
    else:
        schema = events.infer()
        say(
            "schema inferred from the events; to keep or correct it, save this for --schema:\n"
            + to_line(schema)
        )
    progress = getattr(arguments, "progress", False)
    target = build_filter(arguments.subscriptions, schema, progress=progress, only=only)
    return target, events.batches(schema, batch)
