"""``rtfilter restore``: the folder of a server, from a backup."""

from __future__ import annotations

import argparse
from pathlib import Path

from rtfilter.cli.arguments import some_path
from rtfilter.cli.backup import shown
from rtfilter.cli.terminal import CommandError, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Make a new folder from what rtfilter backup wrote; rtfilter serve goes on from there. What came\n"
        "after the backup is lost, and its positions are given again."
    )
    parser.epilog = "example:\n  rtfilter restore alerts-monday.tar --data alerts-again\n"
    parser.add_argument("file", metavar="FILE", help="the backup")
    parser.add_argument(
        "--data", required=True, type=some_path, metavar="DIR", help="a folder that is new, or empty"
    )


def run(arguments: argparse.Namespace) -> int:
    from rtfilter.store.backup_file import BackupError, restore

    try:
        told = restore(Path(arguments.file), arguments.data)
    except BackupError as error:
        raise CommandError(str(error)) from None
    say(f"restored into {arguments.data}: {shown(told)}")
    return 0
