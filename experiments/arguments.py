"""Arguments that experiments share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from rtfilter.replay.workloads import BOXES

Size = TypeVar("Size")


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


def command(name: str, doc: str | None, *common: str) -> argparse.ArgumentParser:
    """Return the parser of an experiment with some `COMMON` arguments; described by its module."""
    first = (doc or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog=f"python -m experiments {name}", description=first)
    for own in common:
        parser.add_argument(f"--{own}", **COMMON[own])
    return parser


COMMON: Mapping[str, dict[str, Any]] = {
    "quick": {"action": "store_true", "help": "a short trial, without targets"},
    "seed": {"type": int, "default": 1, "help": "seed of the workloads (%(default)s)"},
    "out": {"type": new_file, "help": "JSON file for the results"},
    "figure": {"type": new_file, "help": "picture file of the results"},
}
"""Arguments of several experiments, by name."""


def add_workloads(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add the argument ``--workloads``, which takes names of `BOXES`."""
    parser.add_argument(
        "--workloads", nargs="+", choices=BOXES, default=default, metavar="NAME",
        help=f"one or more of {', '.join(BOXES)} ({' '.join(default)})",
    )  # fmt: skip


def add_sizes(parser: argparse.ArgumentParser, full: Any, **helps: str) -> None:
    """Add an argument for some fields of the size of a measurement, a NamedTuple of positive numbers."""
    for name, text in helps.items():
        usual = getattr(full, name)
        several = isinstance(usual, tuple)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=above_zero if isinstance(usual, float) else positive,
            nargs="+" if several else None,
            help=f"{text} ({' '.join(map(str, usual)) if several else f'{usual:,}'})",
        )


def sized(given: argparse.Namespace, quick: Size, full: Size) -> Size:
    """Return the size that the arguments of `add_sizes` ask for."""
    size: Any = quick if getattr(given, "quick", False) else full
    asked = {name: value for name, value in vars(given).items() if name in size._fields and value is not None}
    found: Size = size._replace(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in asked.items()}
    )
    return found
