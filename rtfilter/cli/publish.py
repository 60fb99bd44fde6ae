"""``rtfilter publish``: the events of a file, to a server."""

from __future__ import annotations

import argparse
from time import perf_counter, sleep
from typing import TYPE_CHECKING
from uuid import uuid4

from rtfilter.basics.text import numbered
from rtfilter.cli.connecting import WHO, add_filter, add_server, connected, served_schema
from rtfilter.cli.inputs import add_progress
from rtfilter.cli.schemas import add_strict, read_schema, strict
from rtfilter.cli.terminal import CommandError, progress_bar, say
from rtfilter.reading import files
from rtfilter.reading.files import STDIN

if TYPE_CHECKING:
    from rtfilter.cli.connecting import FileEvents
    from rtfilter.client import PlainClient
    from rtfilter.events.schema import Schema

LONGEST = 60.0
"""Longest wait in seconds before a refused frame is sent again, whatever the server asks for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Publish the events of a file. All are durable on the server when this ends with exit code 0.\n"
        f"If the connection is lost, it goes on where it was, and no event is published twice.\n\n{WHO}"
    )
    parser.epilog = (
        "events: .jsonl (each line a JSON object), .csv and .parquet, as rtfilter match reads them; without\n"
        "FILE, or with -, JSON lines from standard input, which are published as they come.\n\n"
        "examples:\n  rtfilter publish ticks.jsonl --user ann\n"
        "  rtfilter publish ticks.csv --user ann --key monday\n"
    )
    parser.add_argument("file", metavar="FILE", nargs="?", default=STDIN, help="of events")
    add_server(parser)
    add_filter(parser)
    parser.add_argument(
        "--schema",
        metavar="SCHEMA",
        help="attribute types, JSON or a file of it; by default the server's. They decide how CSV is read",
    )
    add_strict(parser)
    parser.add_argument(
        "--key",
        metavar="NAME",
        help="names this publication: the same file again under the same name is not published twice",
    )
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    from rtfilter.cli.connecting import open_frames

    key = uuid4().hex if arguments.key is None else arguments.key
    live = arguments.file == STDIN and arguments.key is None
    frames, count = open_frames(arguments.file, _schema(arguments), live), 0
    with connected(arguments) as client:
        begun = perf_counter()
        try:
            with progress_bar("event", arguments.progress) as bar:
                for frame in frames:
                    _publish(client, frame, arguments.filter, f"{key} {count}")
                    count += len(frame.events)
                    bar.update(len(frame.events))
        finally:
            rate = count / max(perf_counter() - begun, 1e-9)
            say(f"published {numbered(count, 'event')}, {rate:,.0f} a second")
    return 0


def _schema(arguments: argparse.Namespace) -> Schema | None:
    """Return the schema; None if neither flags nor the server give one and the file has its own types."""
    found = _types(arguments)
    return strict(found) if arguments.strict and found is not None else found


def _types(arguments: argparse.Namespace) -> Schema | None:
    if arguments.schema is not None:
        return read_schema(arguments.schema)
    form = files.check(arguments.file)
    try:
        return served_schema(arguments)
    except CommandError:
        if form == "csv":
            raise
        return None  # the session reports the error, if there is one


def _publish(client: PlainClient, frame: FileEvents, filter: str, key: str) -> None:
    from rtfilter.cli.connecting import naming_places
    from rtfilter.client import RefusedError

    told = False
    while True:
        try:
            with naming_places(frame, "; this frame and what follows was not published"):
                client.publish(frame.events, filter, key)
        except RefusedError as error:
            if error.retry_after is None:
                raise
            if not told and error.kind == "busy":
                say(f"the server is busy: {error}; trying again until it accepts the events")
                told = True
            sleep(min(max(error.retry_after, 0.01), LONGEST))  # beyond a limit of the server
        else:
            return
