"""The arguments that commands share: subscriptions, events, and their schema."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rtfilter.cli import schemas
from rtfilter.cli.schemas import read_definition, to_line
from rtfilter.cli.subscription_files import build_filter, is_index, open_index
from rtfilter.cli.terminal import CommandError, say
from rtfilter.reading.events import EventBatch, EventFile, Tables, open_events
from rtfilter.reading.inference import SAMPLE

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema
    from rtfilter.filter import EventFilter

SUBSCRIPTION_FILES = """\
subscriptions:
  .jsonl    each line a JSON string, an SQL condition, or an object:
              "symbol = 'ACME' AND price < 10"
              {"id": 7, "where": "price BETWEEN 5 AND 10 OR symbol LIKE 'AC%'"}
              {"id": 8, "where": {"symbol": ["ACME"], "price": [{"numeric": ["<", 10]}]}}
              {"id": 9, "low.price": 5, "high.price": 10}
  .csv, .parquet
            a column where (SQL conditions), or columns low.<attribute> and high.<attribute>
            (closed bounds, empty is open)
  Optional, as keys and as columns: id, ttl (seconds from now on) or expires (ISO 8601, or seconds since
  1970), and metadata (a JSON object). Ids are integers or text, in a file of one type. In CSV they are
  integers if all are. UUIDs are text, or of that type in Parquet.
  Without ids, subscriptions are numbered by their rows, from 0.
"""
SCHEMA_FILE = """\
schema, as JSON or a file of it (types int, float, str, bool, timestamp; a domain for numbers, timestamps):
  {"symbol": "str", "price": "float", "size": {"type": "int", "low": 0, "high": 65535}}
or with how the filter matches, where the default does not do; see rtfilter serve --help:
  {"schema": {"price": "float"}, "matcher": {"name": "filter-nodes", "bit_lists": 0.1}}
"""
FILES = f"""{SUBSCRIPTION_FILES}  A directory is an index saved by rtfilter index build.

events:
  .jsonl    each line a JSON object; an object inside gives names with dots, as in "url.path"
  .csv      a header and rows, separated by commas, semicolons or tabs; an empty cell is a missing attribute
  .parquet  columns by name; null is a missing attribute
  -         JSON lines from standard input
  .jsonl.gz and .csv.gz are read too. Parquet needs the extra arrow.

{SCHEMA_FILE}"""
"""The formats of files, for help texts."""


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Declare SUBSCRIPTIONS, EVENTS, --schema and --on-error."""
    add = parser.add_argument
    add("subscriptions", metavar="SUBSCRIPTIONS", help="file of subscriptions, or a saved index")
    add("events", metavar="EVENTS", help="file of events, or - for standard input")
    add(
        "--schema",
        metavar="SCHEMA",
        help="types of the attributes: JSON, or a file of it; by default they are inferred from the first "
        f"{SAMPLE:,} events and shown. A saved index has its own",
    )
    schemas.add_strict(parser)
    add_on_error(parser)


def add_on_error(parser: argparse.ArgumentParser) -> None:
    """Declare --on-error."""
    parser.add_argument(
        "--on-error",
        choices=("stop", "skip"),
        default="stop",
        help="what to do with a subscription that cannot be used: end with exit code 2 (default), or leave "
        "it out and say so on standard error, with its row and the reason",
    )


def add_progress(parser: argparse.ArgumentParser) -> None:
    """Declare --progress."""
    parser.add_argument(
        "--progress", action="store_true", help="show progress even where standard error is no terminal"
    )


def open_inputs(
    subscriptions: str,
    events: str,
    schema: str | None,
    *,
    batch: int,
    only: str | None = None,
    progress: bool = False,
    skip: bool = False,
    strict: bool = False,
) -> tuple[EventFilter, Iterator[EventBatch], Tables]:
    """Return the filter of the subscriptions, the batches of events, and the tables that read them.

    Parameters
    ----------
    subscriptions, events, schema : str
        As for `add_inputs`. Without a schema, it is inferred from the events and reported.
    batch : int
        Most events in a batch, at least 1.
    only : str, optional
        Read only the subscription with this id, if `subscriptions` is a file.
    progress : bool
        Show progress even if standard error is no terminal.
    skip : bool
        Leave out subscriptions that cannot be used, and report each on standard error.
    strict : bool
        Refuse events with other attributes than the schema's, or with values of another type.

    Raises
    ------
    OSError, CommandError
        A file cannot be read; the message has the place.
    """
    file = open_events(events, say)
    if is_index(subscriptions):
        if schema is not None:
            raise CommandError(f"{subscriptions} is an index and has its own schema; leave out --schema")
        target = open_index(subscriptions)
        return target, *_read(file, target.schema, batch, strict)
    if schema is not None:
        definition = read_definition(schema, max_unbounded=None)
    else:
        from rtfilter.definition import Definition

        definition = Definition(file.infer(), max_unbounded=None)
        say(
            "schema inferred from the events; to keep or correct it, save this for --schema:\n"
            + to_line(definition.schema)
        )
    target = build_filter(subscriptions, definition, progress=progress, only=only, skip=skip)
    return target, *_read(file, definition.schema, batch, strict)


def _read(
    file: EventFile, attributes: Schema, size: int, strict: bool
) -> tuple[Iterator[EventBatch], Tables]:
    schema = schemas.strict(attributes) if strict else attributes
    return file.batches(schema, size), Tables(schema, say)
