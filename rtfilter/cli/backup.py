"""``rtfilter backup``: a copy of a server's data, also while the server runs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rtfilter.basics.text import numbered
from rtfilter.cli.arguments import DATABASE, add_data
from rtfilter.cli.terminal import CommandError, say

if TYPE_CHECKING:
    from collections.abc import Mapping


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Copy the data of a server into one file: events, subscriptions, backlogs, users, tokens and keys,\n"
        "as they are at one moment. The server may run, and does not wait. The copy is checked, and nobody\n"
        "else may read it."
    )
    parser.epilog = (
        "examples:\n"
        "  rtfilter backup --data alerts --out alerts-monday.tar\n"
        "  rtfilter restore alerts-monday.tar --data alerts-again\n"
    )
    add_data(parser)
    parser.add_argument("--out", required=True, metavar="FILE", help="the backup, a new file")


def run(arguments: argparse.Namespace) -> int:
    from rtfilter.store.backup_file import BackupError, back_up

    if os.environ.get(DATABASE):
        raise CommandError(
            f"{DATABASE} names a PostgreSQL database: copy it with pg_dump --format=custom, and copy the "
            f"files directly in {arguments.data}"
        )
    before = os.umask(0o077)
    try:
        told = back_up(arguments.data, Path(arguments.out))
    except BackupError as error:
        raise CommandError(str(error)) from None
    finally:
        os.umask(before)
    say(f"{arguments.out} is made and checked: {shown(told)}")
    return 0


def shown(told: Mapping[str, int]) -> str:
    """Return the contents of a backup as text."""
    parts = [numbered(told[f"{one}s"], one) for one in ("event", "subscription", "user") if f"{one}s" in told]
    return f"{', '.join(parts)}; the last position is {told.get('position', 0)}"
