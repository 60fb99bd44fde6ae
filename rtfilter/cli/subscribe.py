"""``rtfilter subscribe``: one subscription on a server."""

from __future__ import annotations

import argparse
from typing import Any

from rtfilter.cli.arguments import json_object
from rtfilter.cli.connecting import WHO, add_filter, add_server, connected
from rtfilter.cli.terminal import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Subscribe to the events that match a condition, and print the id of the subscription. It stays\n"
        "until it is removed, and collects what matches; rtfilter listen shows it. See also\n"
        f"rtfilter subscriptions.\n\n{WHO}"
    )
    parser.epilog = (
        "examples:\n  rtfilter subscribe \"symbol = 'ACME' AND price < 10\" --user ann\n"
        '  rtfilter subscribe \'{"price": [{"numeric": ["<", 10]}]}\' --ttl 3600 --user ann\n'
        '  rtfilter subscribe "price < 10" --key cheap --user ann\n'
    )
    add_wish(parser)
    add_server(parser)
    add_filter(parser)
    parser.add_argument(
        "--key",
        metavar="NAME",
        help="names the subscription: the same again under the same name is the one that is there",
    )
    parser.add_argument(
        "--everywhere", action="store_true", help="wait until all sites that must know the subscription do"
    )


def add_wish(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that describe a subscription."""
    add = parser.add_argument
    add(
        "where",
        type=_condition,
        metavar="CONDITION",
        help="in SQL, or an event pattern, which is a JSON object",
    )
    add("--metadata", type=json_object, metavar="JSON", help="an object to keep with the subscription")
    add("--ttl", type=_seconds, metavar="SECONDS", help="expire the subscription after this time")
    add(
        "--digest",
        type=_seconds,
        metavar="SECONDS",
        help="collect events for so long, and deliver them as one",
    )
    add("--order", choices=["key"], help="events with the same value of the filter's key come in their order")


def _condition(text: str) -> str | dict[str, Any]:
    return json_object(text) if text.lstrip().startswith("{") else text


def wish_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `add_wish` as parameters of the client."""
    return {
        "where": arguments.where,
        "metadata": arguments.metadata,
        "ttl": arguments.ttl,
        "digest": arguments.digest,
        "order": arguments.order,
    }


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        wish, everywhere = wish_of(arguments), arguments.everywhere
        id = client.subscribe(**wish, filter=arguments.filter, key=arguments.key, everywhere=everywhere)
    show(str(id))
    return 0


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return found
