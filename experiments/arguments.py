"""Arguments that experiments share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rtfilter.replay.workloads import BOXES


def natural(text: str) -> int:
    """Type of an argument: an integer of at least 0."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """Type of an argument: an integer of at least 1."""
    return _at_least(1, text)


def _at_least(least: int, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be {least} or more, not {text}")
    return int(text)


def add_workloads(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add the argument ``--workloads``, which takes names of `BOXES`."""
    parser.add_argument(
        "--workloads", nargs="+", choices=BOXES, default=default, metavar="NAME",
        help=f"one or more of {', '.join(BOXES)} ({' '.join(default)})",
    )  # fmt: skip
