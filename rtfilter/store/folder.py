"""The folder of a process: locked against other processes, and private to the user."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import AbstractContextManager, nullcontext
from errno import ENOTDIR
from pathlib import Path
from typing import Final

from rtfilter.basics.errors import RTFilterError

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
"""The permissions of the group and of all others."""
_log = logging.getLogger(__name__)


class InUseError(RTFilterError, ValueError):
    """Another process uses the folder."""


def make(folder: Path) -> None:
    """Make a folder, and those above it, for this user only; make an existing one private, with a warning."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(one for one in (folder, *folder.parents) if one.exists())
        raise NotADirectoryError(ENOTDIR, "is a file; name a folder with --data", str(file)) from None
    if os.name == "posix":
        _shut(folder)


def private(path: str, flags: int) -> int:
    """Open a file that nobody else may read: an opener for `open`."""
    return os.open(path, flags, 0o600)


def _shut(folder: Path) -> None:
    """Make a folder and the files in it private to this user."""
    for path in (folder, *folder.iterdir()):
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode) or not mode & OTHERS:
                continue
            if mode & stat.S_ISVTX:
                raise PermissionError("it is a folder for all users; use a folder of its own")
            path.chmod(stat.S_IMODE(mode) & ~OTHERS)
        except FileNotFoundError:
            continue  # another process has removed it meanwhile
        except OSError as error:
            _log.warning("others may read %s, which cannot be changed: %s", path, error)
        else:
            _log.warning("others could read %s; it is private now", path)


def locked(folder: Path) -> AbstractContextManager[object]:
    """Lock a folder against other processes, until this one ends. Raises `InUseError` and `OSError`."""
    try:
        import fcntl
    except ImportError:  # on Windows
        return nullcontext()
    file = os.fdopen(private(str(folder / "lock"), os.O_RDWR | os.O_CREAT), "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InUseError(f"another process uses {folder}; end it, or use another folder") from None
    return file
