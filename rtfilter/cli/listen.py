"""``rtfilter listen``: deliveries of a server, as JSON lines."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from rtfilter.cli.arguments import positive
from rtfilter.cli.connecting import WHO, add_server, connected
from rtfilter.cli.terminal import say

if TYPE_CHECKING:
    from rtfilter.client import Arrived


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write deliveries to standard output, each event as a JSON object on a line: first what came while\n"
        "nobody listened, then what comes. What was written is acknowledged, and does not come again.\n"
        "Subscriptions that ended, and how many deliveries were dropped, are told on standard error.\n\n"
        f"{WHO}"
    )
    parser.epilog = (
        "lines:\n"
        '  {"position": 17, "subscriptions": [3], "filter": "default", "event": {"price": 9.5}, '
        '"response": 0.002}\n'
        "  response: seconds from the arrival at the server until it was known who gets the event\n"
        "  redelivered: how often it was sent before, if it was\n\n"
        "examples:\n  rtfilter listen --user ann\n  rtfilter listen --user ann --count 1 --no-acknowledge\n"
    )
    add_server(parser)
    parser.add_argument("--count", type=positive, metavar="N", help="end after so many events")
    parser.add_argument(
        "--no-acknowledge", action="store_true", help="only look: all that is shown will come again"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0 after --count events."""
    shown = 0
    with connected(arguments, acknowledge="manual") as client:
        for delivery in client:
            if delivery.dropped:
                say(f"the server has dropped {delivery.dropped:,} of your deliveries: too many, or too old")
            if delivery.ended is not None:
                say(f"subscription {delivery.subscriptions[0]} ended: {delivery.ended}")
            for line in _lines(delivery):
                sys.stdout.write(line)
            sys.stdout.flush()
            if not arguments.no_acknowledge:
                delivery.acknowledge()
            shown += len(delivery.events)
            if arguments.count is not None and shown >= arguments.count:
                break
    return 0


def _lines(delivery: Arrived) -> list[str]:
    lines = []
    for event in delivery.events:
        told = {
            "position": event.position,
            "subscriptions": event.subscriptions,
            "filter": delivery.filter,
            "event": event.body,
            "response": delivery.response,
            "redelivered": delivery.redelivered,
        }
        kept = {name: value for name, value in told.items() if value is not None and value != 0}
        lines.append(json.dumps(kept) + "\n")
    return lines
