"""Memory of running processes and all they started, shared pages counted once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

#: Seconds between two looks.
INTERVAL = 0.5


class Use(NamedTuple):
    """Most memory that was seen, in bytes."""

    together: int
    """Of all processes at once; a page that n of them share counts 1/n for each."""
    largest: int
    """Of one process, with all that it shares."""
    name: str
    """Of that process."""


class Watch:
    """Looks at the descendants of this process while it is open; `use` tells what it saw.

    Where the system has no /proc it sees nothing.
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
        """Look once."""
        together, largest, name = self.use
        total = 0
        for pid in descendants(self._root()):
            with suppress(OSError):  # it has ended
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in text.splitlines()[1:]}
                total += sizes["Pss:"]
                if sizes["Rss:"] > largest:
                    largest, name = sizes["Rss:"], Path(f"/proc/{pid}/comm").read_text().strip()
        self.use = Use(max(together, total), largest, name)


def descendants(root: int) -> list[int]:
    """Processes that a process started, and those that they did; not itself."""
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
