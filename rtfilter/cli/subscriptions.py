"""``rtfilter subscriptions``: your subscriptions on a server."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from rtfilter.cli.arguments import json_object, subscription_id
from rtfilter.cli.connecting import WHO, add_filter, add_server, connected, served_schema
from rtfilter.cli.subscribe import add_wish, wish_of
from rtfilter.cli.terminal import show

if TYPE_CHECKING:
    from rtfilter.cli.connecting import FileEvents
    from rtfilter.client import PlainClient, ServerSubscription
    from rtfilter.events.schema import Schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = f"Show and change your subscriptions on a server, and try events with them.\n\n{WHO}"
    parser.epilog = (
        "examples:\n"
        "  rtfilter subscriptions list --user ann\n"
        '  rtfilter subscriptions replace 17 "price < 12" --ttl 3600 --user ann\n'
        "  rtfilter subscriptions match ticks.jsonl --user ann > pairs.csv\n"
        "  rtfilter subscriptions explain 17 '{\"price\": 9.5}' --user ann\n"
        "  rtfilter subscriptions remove 17 --user ann\n"
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str, id: bool = True) -> argparse.ArgumentParser:
        made = actions.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
        )
        if id:
            made.add_argument("id", type=subscription_id, metavar="ID", help="of the subscription")
        return made

    listing = action("list", "show all as JSON lines", id=False)
    listing.add_argument("--filter", metavar="NAME", help="show those of one filter only")
    action("show", "show one as JSON")
    add_wish(action("replace", "replace one as a whole: without --ttl it has no end, and so on"))
    action("remove", "remove one, with what it has matched")
    matching = action("match", "say which match each event of a file, as rtfilter match does", id=False)
    matching.add_argument("file", metavar="FILE", help=".jsonl, .csv or .parquet; - is standard input")
    add_filter(matching)
    explaining = action("explain", "say why one matches an event, or not")
    explaining.add_argument("event", type=json_object, metavar="EVENT", help="a JSON object")
    for made in actions.choices.values():
        add_server(made)


def run(arguments: argparse.Namespace) -> int:
    schema = served_schema(arguments) if arguments.action == "match" else None
    with connected(arguments) as client:
        match arguments.action:
            case "list":
                for one in client.subscriptions(arguments.filter):
                    show(_json(one))
            case "show":
                show(_json(client.subscription(arguments.id)))
            case "replace":
                client.replace(arguments.id, **wish_of(arguments))
            case "remove":
                client.unsubscribe(arguments.id)
            case "match":
                _match(client, arguments.file, arguments.filter, schema)
            case "explain":
                show(str(client.explain(arguments.id, arguments.event)))
    return 0


def _json(one: ServerSubscription) -> str:
    import msgspec

    kept = {name: value for name, value in msgspec.to_builtins(one).items() if value is not None}
    return json.dumps(kept)


def _match(client: PlainClient, file: str, filter: str, schema: Schema | None) -> None:
    from rtfilter.cli.connecting import naming_places, open_frames

    def ids(frame: FileEvents) -> list[list[int]]:
        with naming_places(frame):
            return client.match(frame.events, filter)

    first = 0
    show("event,subscription")
    for frame in open_frames(file, schema, live=False):
        for found in _answers(ids, frame):
            for id in found:
                show(f"{first},{id}")
            first += 1


def _answers(ask: Callable[[FileEvents], list[list[int]]], frame: FileEvents) -> list[list[int]]:
    """Ask for a frame; if its answer is too long for a message, ask for its halves."""
    from rtfilter.cli.connecting import FileEvents
    from rtfilter.client import RefusedError

    try:
        return ask(frame)
    except RefusedError as error:
        if error.kind != "too-large" or len(frame.events) == 1:
            raise
    half = len(frame.events) // 2
    first = _answers(ask, FileEvents(frame.events[:half], frame.places[:half]))
    return first + _answers(ask, FileEvents(frame.events[half:], frame.places[half:]))
