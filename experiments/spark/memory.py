"""Memory of the processes that this process started. Pages that they share count once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

INTERVAL = 0.5
"""Seconds between two looks."""


class Use(NamedTuple):
    """The largest numbers of bytes that were seen."""

    together: int
    """Of all processes together; a page that n of them share counts 1/n for each."""
    largest: int
    """Of one process, with the pages that it shares."""
    name: str
    """Name of that process."""


class Watch:
    """Context manager that watches all processes that this process started, directly or not.

    `use` holds the largest numbers so far. They are 0 on systems without /proc.

    Parameters
    ----------
    root : callable
        Returns the id of the process whose descendants are watched, by default this one.
    """

    def __init__(self, root: Callable[[], int] = os.getpid) -> None:
        self.use = Use(0, 0, "")
        self._root, self._end = root, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(INTERVAL):
            self.look()

    def look(self) -> None:
        """Read the numbers once."""
        together, largest, name = self.use
        total = 0
        for pid in descendants(self._root()):
            with suppress(OSError):  # the process has ended
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in text.splitlines()[1:]}
                total += sizes["Pss:"]
                if sizes["Rss:"] > largest:
                    largest, name = sizes["Rss:"], Path(f"/proc/{pid}/comm").read_text().strip()
        self.use = Use(max(together, total), largest, name)


def descendants(root: int) -> list[int]:
    """Return ids of the processes that a process started, directly or not; without itself."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after_name = entry.read_text().rpartition(")")[2].split()
            children.setdefault(int(after_name[1]), []).append(int(entry.parent.name))
    found: list[int] = []
    pending = [root]
    while pending:
        own = children.get(pending.pop(), [])
        found += own
        pending += own
    return found
