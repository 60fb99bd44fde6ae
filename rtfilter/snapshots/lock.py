"""Folders that one writer has alone, as far as the system can do that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

try:
    import fcntl

    FOLDERS = True
    """True if folders can be opened, locked and synced; on Windows they cannot."""
except ImportError:
    FOLDERS = False

_writers = Lock()


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Keep other writers out of a folder; yields what makes the names in it last.

    Where folders cannot be locked, only the writers of this process wait for each other.
    """
    if not FOLDERS:
        with _writers:
            yield lambda: None
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield lambda: os.fsync(descriptor)
    finally:
        os.close(descriptor)
