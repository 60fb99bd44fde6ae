"""``rtfilter serve``: the filter as a server."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rtfilter.cli.arguments import port, positive
from rtfilter.cli.schemas import MATCHING, add_strict, read_definition, with_strict
from rtfilter.cli.terminal import CommandError, show

SETTINGS = "RTFILTER_SETTINGS"
NO_SETTINGS = ("command", "schema", "strict", "settings", "show_settings")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command: `schema`, and all of `rtfilter.service.settings.Settings`."""
    parser.description = (
        "Serve subscriptions, events and deliveries over HTTP, WebSocket and TCP.\n"
        "Without users, the server listens for this machine only; see rtfilter users --help."
    )
    parser.epilog = (
        f"{MATCHING}\n"
        "Each flag but --schema, --strict and --show-settings is also a variable of the environment, as\n"
        "RTFILTER_DATA, and but --settings a line of the file, such as: backlog_count = 5000. A flag counts\n"
        "more than a variable, and that more than the file.\n\n"
        "examples:\n"
        '  rtfilter serve --data alerts --schema \'{"symbol": "str", "price": "float"}\'\n'
        "  rtfilter serve --data alerts --schema schema.json\n"
        '  rtfilter serve --data alerts --schema \'{"schema": {"price": "float"}, "matcher": "counting"}\'\n'
        "  rtfilter serve --data alerts\n"
        "  rtfilter serve --settings rtfilter.toml --show-settings\n"
    )
    add = parser.add_argument
    add("--data", metavar="DIR", help="folder with all that is kept")
    add(
        "--schema",
        metavar="SCHEMA",
        help='attributes and types of the filter "default", at the first start, or a definition as below: '
        "JSON, or a file of it",
    )
    add_strict(parser)
    add(
        "--settings",
        metavar="FILE",
        help=f"TOML with what no flag and no variable says (default: {SETTINGS})",
    )
    add(
        "--show-settings",
        action="store_true",
        help="show all of them as TOML, where they come from, and exit",
    )
    add("--log-level", metavar="LEVEL", help="debug, info, warning or error (default: info)")
    doors = parser.add_argument_group("doors")
    add = doors.add_argument
    add("--host", metavar="NAME", help="where to listen (default: 127.0.0.1)")
    add("--port", type=port, help="of HTTP and WebSocket, 0 for any that is free (default: 8080)")
    add("--tcp-port", type=port, metavar="PORT", help="of sessions over TCP (default: none)")
    add("--certificate", metavar="FILE", help="for TLS, as PEM")
    add("--certificate-key", metavar="FILE", help="the key of the certificate, as PEM")
    add(
        "--trusted-proxies",
        metavar="ADDRESSES",
        help="and networks, with commas: proxies whose header X-Forwarded-For is believed (default: none)",
    )
    kept = parser.add_argument_group("what is kept")
    add = kept.add_argument
    add(
        "--database",
        metavar="URL",
        help="postgresql+psycopg://user@host/name (default: SQLite in DIR); with a password, give it as "
        "RTFILTER_DATABASE, because others on this machine can see arguments",
    )
    add("--durability", metavar="WHAT", help="process, or power: what an answer survives (default: process)")
    add("--retention", metavar="SECONDS", help="how long events stay in the log (default: 7 days)")
    add(
        "--backlog-count", type=positive, metavar="N", help="deliveries that wait for a user (default: 10000)"
    )
    add("--backlog-bytes", type=positive, metavar="N", help="their bytes (default: 64 MiB)")
    add("--backlog-age", metavar="SECONDS", help="how long they wait (default: 1 day)")
    add(
        "--backlog-policy",
        metavar="WHAT",
        help="beyond that: drop-oldest, drop-newest, or refuse publishers (default: drop-oldest)",
    )
    add("--redeliver", metavar="SECONDS", help="until a delivery is sent again, first time (default: 30)")
    limits = parser.add_argument_group("limits")
    add = limits.add_argument
    add("--body", type=positive, metavar="BYTES", help="of a request (default: 16 MiB)")
    add(
        "--frame",
        type=positive,
        metavar="BYTES",
        help="of a message of a session, and twice an event (default: 1 MiB)",
    )
    add("--nesting", type=positive, metavar="N", help="how deep JSON may nest (default: 64)")
    add("--subscriptions", type=positive, metavar="N", help="of a user (default: 1000000)")
    add("--connections", type=positive, metavar="N", help="of a user (default: 100)")
    add(
        "--webhook-private",
        action="store_true",
        default=None,
        help="let webhooks be in private networks, on this machine, and without TLS",
    )
    add(
        "--webhook-tries",
        type=positive,
        metavar="N",
        help="that fail in a row before a webhook is parked (default: 12)",
    )
    add("--rate", metavar="N", help="events a second that a user may publish (default: any)")
    add("--drain", metavar="SECONDS", help="to send what was accepted, when the server ends (default: 10)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0, or 1 if the server ended with an error."""
    from rtfilter.service import settings
    from rtfilter.service.settings import SettingsError

    flags = {name: value for name, value in vars(arguments).items() if name not in NO_SETTINGS}
    name = arguments.settings or os.environ.get(SETTINGS)
    file = Path(name) if name else None
    try:
        if arguments.show_settings:
            show(settings.show(file, **flags))
            return 0
        definition = None if arguments.schema is None else read_definition(arguments.schema)
        if arguments.strict:
            if definition is None:
                raise CommandError("--strict is about the filter that --schema makes; give --schema, too")
            definition = with_strict(definition)
        made = settings.settings(file, **flags)
    except SettingsError as error:
        raise CommandError(str(error)) from None
    from rtfilter.service.server import DataError, serve  # imported here, because it is slow

    try:
        return serve(made, definition)
    except DataError as error:
        raise CommandError(str(error)) from None
