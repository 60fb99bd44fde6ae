"""``rtfilter serve``: the filter as a server."""

from __future__ import annotations

import argparse

from rtfilter.cli.arguments import port
from rtfilter.cli.schemas import read_schema
from rtfilter.cli.terminal import CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Serve subscriptions, events and deliveries over HTTP and WebSocket, to programs on this machine.\n"
        "Everyone is taken for who they say they are."
    )
    parser.epilog = (
        "examples:\n  rtfilter serve --data alerts --schema schema.json\n  rtfilter serve --data alerts\n"
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with all that is kept")
    parser.add_argument("--schema", metavar="FILE", help="attributes and types, at the first start")
    parser.add_argument(
        "--port", type=port, default=8080, help="0 for any that is free (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0."""
    from pathlib import Path

    from rtfilter.service.server import DataError, serve

    schema = None if arguments.schema is None else read_schema(arguments.schema)
    try:
        serve(Path(arguments.data), schema, arguments.port)
    except DataError as error:
        raise CommandError(str(error)) from None
    return 0
