"""The folder of a process: no other one may use it meanwhile."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from errno import ENOTDIR
from pathlib import Path

from rtfilter.errors import RTFilterError


class InUseError(RTFilterError, ValueError):
    """Another process uses the folder."""


def make(folder: Path) -> None:
    """Make a folder with those above it, for this user only, where it is not there. Raises `OSError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(one for one in (folder, *folder.parents) if one.exists())
        raise NotADirectoryError(ENOTDIR, "is a file; name a folder with --data", str(file)) from None


def locked(folder: Path) -> AbstractContextManager[object]:
    """Keep other processes out of a folder, until this one ends. Raises `InUseError` and `OSError`."""
    try:
        import fcntl
    except ImportError:  # on Windows
        return nullcontext()
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InUseError(f"another process uses {folder}") from None
    return file
