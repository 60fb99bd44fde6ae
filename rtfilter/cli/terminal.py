"""Messages of the command line: on standard error, so that standard output holds results only."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")
_CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - {*b"\t\n"}, "?")


class CommandError(Exception):
    """An expected failure: the text says what is wrong, where, and what to do; no traceback is shown."""


def say(message: str) -> None:
    """Print a message on standard error. What a server has said in it does not drive the terminal."""
    print(f"rtfilter: {message.translate(_CONTROLS)}", file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print a result on standard output; what it cannot encode, such as lone surrogates, is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def progress_bar(unit: str, always: bool) -> Any:
    """Return a `tqdm` that counts on standard error, and shows only on a terminal unless `always`."""
    from tqdm import tqdm

    hidden = not (always or sys.stderr.isatty())
    return tqdm(file=sys.stderr, unit=f" {unit}", unit_scale=True, leave=False, disable=hidden)


def counted(items: Iterable[T], unit: str, always: bool) -> Iterable[T]:
    """Yield `items`, and show their number as they pass; see `progress_bar`."""
    with progress_bar(unit, always) as bar:
        for item in items:
            yield item
            bar.update()
