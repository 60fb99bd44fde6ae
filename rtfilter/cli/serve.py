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
FLAGS = {
    "doors": {
        "host": ("NAME", "where to listen (default: 127.0.0.1)"),
        "port": ("PORT", "of HTTP and WebSocket, 0 for any that is free (default: 8080)"),
        "tcp-port": ("PORT", "of sessions over TCP (default: none)"),
        "certificate": ("FILE", "for TLS, as PEM"),
        "certificate-key": ("FILE", "the key of the certificate, as PEM"),
        "trusted-proxies": (
            "ADDRESSES",
            "and networks, with commas: proxies whose header X-Forwarded-For is believed (default: none)",
        ),
    },
    "what is kept": {
        "database": (
            "URL",
            "postgresql+psycopg://user@host/name (default: SQLite in DIR); with a password, give it as "
            "RTFILTER_DATABASE, because others on this machine can see arguments",
        ),
        "durability": ("WHAT", "process, or power: what an answer survives (default: process)"),
        "retention": ("SECONDS", "how long events stay in the log (default: 7 days)"),
        "backlog-count": ("N", "deliveries that wait for a user (default: 10000)"),
        "backlog-bytes": ("N", "their bytes (default: 64 MiB)"),
        "backlog-age": ("SECONDS", "how long they wait (default: 1 day)"),
        "backlog-policy": (
            "WHAT",
            "beyond that: drop-oldest, drop-newest, or refuse publishers (default: drop-oldest)",
        ),
        "redeliver": ("SECONDS", "until a delivery is sent again, first time (default: 30)"),
    },
    "sites": {
        "site": ("NAME", "of this server among several that subscribe at each other (default: it is alone)"),
        "cluster": ("NAME", "of the sites near this one (default: that of the site)"),
        "address": ("URL", "at which other sites reach this one (default: that of this server)"),
        "rendezvous": ("URL", "of the site that knows the root, the same at all (default: this one)"),
        "strategy": (
            "NAME",
            "hybrid, profile_forwarding, event_forwarding, hierarchical or rendezvous, the same at all sites "
            "(default: hybrid)",
        ),
        "rendezvous-for": ("FILTER=CLUSTER", "with commas: where events meet, with the strategy rendezvous"),
        "slack": ("SHARE", "of a box that may be empty, so that neighbours get fewer (default: none)"),
        "heartbeat": ("SECONDS", "the same at all sites (default: 1)"),
        "site-password": ("FILE", "with the password of this site, a user of the role site at the others"),
    },
    "limits": {
        "body": ("BYTES", "of a request (default: 16 MiB)"),
        "frame": ("BYTES", "of a message of a session, and twice an event (default: 1 MiB)"),
        "nesting": ("N", "how deep JSON may nest (default: 64)"),
        "subscriptions": ("N", "of a user (default: 1000000)"),
        "connections": ("N", "of a user (default: 100)"),
        "webhook-tries": ("N", "that fail in a row before a webhook is parked (default: 12)"),
        "rate": ("EVENTS", "a second that a user may publish (default: any)"),
        "drain": ("SECONDS", "to send what was accepted, when the server ends (default: 10)"),
    },
}
"""The settings of the server with their help, but for those that `add_arguments` declares, by group."""
_KINDS = {"PORT": port, "N": positive, "BYTES": positive}


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
    for title, flags in FLAGS.items():
        group = parser.add_argument_group(title)
        for name, (metavar, text) in flags.items():
            group.add_argument(f"--{name}", metavar=metavar, type=_KINDS.get(metavar, str), help=text)
    parser.add_argument(
        "--standby",
        action="store_true",
        default=None,
        help="where another server has the database: follow it, and take over when it ends",
    )
    group.add_argument(
        "--webhook-private",
        action="store_true",
        default=None,
        help="let webhooks be in private networks, on this machine, and without TLS",
    )


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
