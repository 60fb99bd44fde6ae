"""``rtfilter subscribe``: one subscription on a server."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rtfilter.cli.connecting import WHO, add_filter, add_server, connected
from rtfilter.cli.terminal import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Subscribe to the events that match a condition, and print the id of the subscription. It stays\n"
        f"until it is removed, and collects what matches; rtfilter listen shows it.\n\n{WHO}"
    )
    parser.epilog = (
        "examples:\n  rtfilter subscribe \"symbol = 'ACME' AND price < 10\" --user ann\n"
        '  rtfilter subscribe \'{"price": [{"numeric": ["<", 10]}]}\' --ttl 3600 --user ann\n'
        "  rtfilter subscribe --remove 17 --user ann\n"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "where", metavar="CONDITION", nargs="?", help="in SQL, or an event pattern, which is a JSON object"
    )
    what.add_argument("--remove", type=int, metavar="ID", help="remove this subscription")
    add_server(parser)
    add_filter(parser)
    parser.add_argument(
        "--metadata", type=_object, metavar="JSON", help="an object to keep with the subscription"
    )
    parser.add_argument("--ttl", type=_seconds, metavar="SECONDS", help="to live")
    parser.add_argument(
        "--digest",
        type=_seconds,
        metavar="SECONDS",
        help="collect events for so long, and deliver them as one",
    )
    parser.add_argument(
        "--order", choices=["key"], help="events with the same value of the filter's key come in their order"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0."""
    with connected(arguments) as client:
        if arguments.remove is not None:
            client.unsubscribe(arguments.remove)
            return 0
        where = arguments.where
        id = client.subscribe(
            json.loads(where) if where.lstrip().startswith("{") else where,
            filter=arguments.filter,
            metadata=arguments.metadata,
            ttl=arguments.ttl,
            digest=arguments.digest,
            order=arguments.order,
        )
    show(str(id))
    return 0


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return found


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return found
