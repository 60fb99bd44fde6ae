"""Folders with one writer at a time, if the system can lock folders."""

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
    """Lock a folder against other writers; yield a function that makes the names in it durable.

    If folders cannot be locked, only the writers of this process wait for each other.
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
