"""Messages of the command line: on standard error, so that standard output has only results."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from time import monotonic
from typing import Any, Self, TypeVar

T = TypeVar("T")
_CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - {*b"\t\n"}, "?")


class CommandError(Exception):
    """An expected failure: the text says what is wrong, where, and what to do. Users see no traceback."""


def say(message: str) -> None:
    """Print a message on standard error, without control characters, which a server may have sent."""
    print(f"rtfilter: {message.translate(_CONTROLS)}", file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print a result on standard output; escape characters that it cannot encode, such as lone surrogates."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


class _Lines:
    """A counter without `tqdm`: it prints a line on standard error every few seconds."""

    EVERY = 5.0

    def __init__(self, unit: str, hidden: bool) -> None:
        self._unit, self._hidden = unit, hidden
        self._count, self._said = 0, monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def update(self, more: int = 1) -> None:
        """Add to the count."""
        self._count += more
        if not self._hidden and monotonic() >= self._said + self.EVERY:
            self._said = monotonic()
            say(f"{self._count} {self._unit}")


def progress_bar(unit: str, always: bool) -> Any:
    """Return a `tqdm` that counts on standard error; it shows only on a terminal, unless `always`.

    Without the package, which the extra `progress` installs, lines show the count.
    """
    hidden = not (always or sys.stderr.isatty())
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return _Lines(unit, hidden)
    return tqdm(file=sys.stderr, unit=f" {unit}", unit_scale=True, leave=False, disable=hidden)


def counted(items: Iterable[T], unit: str, always: bool) -> Iterable[T]:
    """Yield `items`, and show their number as they pass; see `progress_bar`."""
    with progress_bar(unit, always) as bar:
        for item in items:
            yield item
            bar.update()
