"""Directories on any file system: local paths, and URIs of those that Arrow reaches (hdfs, s3, gs, abfs).

A URI may end with options of Arrow: ``s3://bucket/path?region=eu-west-1``.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import pyarrow.fs


def local(place: str) -> Path | None:
    """Return the path of a place that the operating system reaches; None for other places."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in place else Path(place)


def parted(place: str) -> tuple[str, str]:
    """Return a place without the options of a URI, and these with their question mark, or an empty text."""
    head, mark, options = place.partition("?") if local(place) is None else (place, "", "")
    return head, mark + options


def absolute(place: str | os.PathLike[str]) -> str:
    """Return a path or URI that every process understands."""
    text = os.fspath(place)
    path = local(text)
    if path is not None:
        return str(path.absolute())
    head, options = parted(text)
    return head.rstrip("/") + options


def under(place: str, name: str) -> str:
    """Return the place of a file or directory in a directory; the options of a URI stay at its end."""
    head, options = parted(place)
    return f"{head}/{name}{options}"


def reach(place: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Return the file system of a place, and the path there.

    Raises
    ------
    OSError
        There is no such file system, or it cannot be reached.
    """
    from pyarrow import ArrowException, fs

    path = local(place)
    if path is not None:
        return fs.LocalFileSystem(), str(path.absolute())
    try:
        found: tuple[Any, str] = fs.FileSystem.from_uri(place)
    except ArrowException as error:
        raise OSError(f"{place}: {error}; give a path, or a URI of hdfs, s3, gs or abfs") from None
    return found


def read_bytes(place: str) -> bytes:
    """Return the content of a file. Raises `FileNotFoundError` or another `OSError`."""
    system, path = reach(place)
    with system.open_input_file(path) as file:
        content: bytes = file.read()
    return content


def names(place: str, *, older_than: float = 0.0) -> list[str]:
    """Return the names of the files and directories there, sorted; none if there is no directory.

    With `older_than`, only names that are known to be unchanged for more than so many seconds.
    """
    from pyarrow import fs

    system, path = reach(place)
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    if older_than:
        limit = time.time() - older_than
        found = [info for info in found if info.mtime is not None and info.mtime.timestamp() < limit]
    return sorted(info.base_name for info in found)


def copy(source: str, target: str) -> None:
    """Copy a file, or all files of a directory."""
    from pyarrow import fs

    from_system, from_path = reach(source)
    to_system, to_path = reach(target)
    if from_system.get_file_info(from_path).type == fs.FileType.Directory:
        to_system.create_dir(to_path)
    fs.copy_files(from_path, to_path, source_filesystem=from_system, destination_filesystem=to_system)


def remove(place: str) -> None:
    """Remove a file, or a directory with its content; do nothing if there is neither.

    Another program may remove it at the same time.
    """
    from pyarrow import fs

    system, path = reach(place)
    kind = system.get_file_info(path).type
    with suppress(FileNotFoundError):
        if kind == fs.FileType.Directory:
            system.delete_dir(path)
        elif kind == fs.FileType.File:
            system.delete_file(path)
