"""Arguments that experiments share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import inf
from pathlib import Path

from rtfilter.replay.workloads import BOXES


def natural(text: str) -> int:
    """Parse an integer of at least 0."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """Parse an integer of at least 1."""
    return _at_least(1, text)


def _at_least(least: int, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be {least} or more, not {text}")
    return int(text)


def above_zero(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text}")
    return number


def new_folder(text: str) -> Path:
    """Parse a folder to write to, and make it now, so that errors come before the measurement."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} is no folder to write to: {error.strerror}") from None
    return path


def new_file(text: str) -> Path:
    """Parse a file to write, and make its folder, as `new_folder` does."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder, not a file to write")
    new_folder(str(path.parent))
    return path


def add_workloads(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add the argument ``--workloads``, which takes names of `BOXES`."""
    parser.add_argument(
        "--workloads", nargs="+", choices=BOXES, default=default, metavar="NAME",
        help=f"one or more of {', '.join(BOXES)} ({' '.join(default)})",
    )  # fmt: skip
