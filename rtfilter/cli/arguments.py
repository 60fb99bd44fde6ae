"""Whole numbers and paths as arguments: all commands read and refuse them in the same way."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from rtfilter.basics.text import cut

MOST = 1_000_000_000
"""Largest count."""
DATA = "RTFILTER_DATA"
DATABASE = "RTFILTER_DATABASE"
"""Variable with the address of a server's database, if it is another one than in its folder."""


def add_data(parser: ArgumentParser) -> None:
    """Declare --data, the folder of a server that exists; the variable `DATA` may name it."""
    folder, told = os.environ.get(DATA) or None, f"folder of the server (default: {DATA})"
    parser.add_argument(
        "--data", default=folder, required=folder is None, type=some_path, metavar="DIR", help=told
    )


def natural(text: str) -> int:
    """Read a count from 0.

    Raises
    ------
    ArgumentTypeError
        The text is no such count, or more than `MOST`.
    """
    return _whole(text, 0, MOST)


def positive(text: str) -> int:
    """Read a count from 1; raises as `natural`."""
    return _whole(text, 1, MOST)


def port(text: str) -> int:
    """Read the number of a port, 0 for any free one; raises as `natural`."""
    try:
        return _whole(text, 0, 65_535)
    except ArgumentTypeError:
        raise ArgumentTypeError(f"{cut(text)!r} is no port, 0 to 65535; choose another port") from None


def row(text: str) -> int:
    """Read a row or a seed; raises as `natural`."""
    return _whole(text, 0, 2**63 - 1)


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    ArgumentTypeError
        The text is no JSON object.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ArgumentTypeError(f"{cut(text)!r} is not a JSON object")
    return found


def subscription_id(text: str) -> int:
    """Read the id of a subscription; raises as `natural`."""
    try:
        return _whole(text, 0, 2**63 - 2)
    except ArgumentTypeError:
        raise ArgumentTypeError(f"an id is an integer from 0 to 2**63 - 2; got {cut(text)!r}") from None


def some_path(text: str) -> Path:
    """Read a path; raise `ArgumentTypeError` for an empty text, which would be the current folder."""
    if not text:
        raise ArgumentTypeError("an empty text is no path; write . for this folder")
    return Path(text)


def _whole(text: str, least: int, most: int) -> int:
    digits = text.lstrip("0") if text.isascii() and text.isdecimal() else ""
    if len(digits) > 20 or (digits and int(digits) > most):
        raise ArgumentTypeError(f"{cut(text)} is too large; at most {most} is possible")
    if not (text.isascii() and text.isdecimal()) or int(digits or "0") < least:
        raise ArgumentTypeError(f"{cut(text)!r} is not a whole number of at least {least}")
    return int(digits or "0")
