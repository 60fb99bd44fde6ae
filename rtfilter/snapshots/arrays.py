"""Snapshots: a directory of arrays with a manifest, opened by memory mapping.

The manifest names the format version and for each array its file, dtype, shape, size and checksum. Each
write uses new file names and replaces the manifest last, so a reader sees the whole old snapshot or the whole
new one, also when the writer is killed or the disk is full. All processes on a host share the mapped pages.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from rtfilter import __version__
from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.errors import RTFilterError, SnapshotError
from rtfilter.snapshots import manifest as manifests
from rtfilter.snapshots.manifest import MANIFEST, SAVED_BY, VERSION, checksum

try:
    import fcntl

    FOLDERS = True
    """True if folders can be opened, locked and synced; on Windows they cannot."""
except ImportError:
    FOLDERS = False

OURS = re.compile(r"[a-z_]+\.[0-9a-f]{12}\.bin|manifest\.json\.[0-9a-f]{12}")
"""Names of files that belong to a snapshot, besides its manifest."""
_writers = Lock()


class Snapshot(NamedTuple):
    """Content of a snapshot: `meta` as in JSON, `arrays` by name, mapped copy-on-write."""

    meta: dict[str, Any]
    arrays: dict[str, AnyArray]


def write(
    path: str | PathLike[str], kind: str, meta: Mapping[str, Any], arrays: Mapping[str, AnyArray]
) -> None:
    """Write a snapshot; an older one at the same path is replaced once the new one is whole.

    Writers of one path wait for each other, on Windows only those of one process.

    Parameters
    ----------
    path : path
        A directory that does not exist, is empty, or has a snapshot.
    kind : str
        The kind of the arrays; `read` compares it.
    meta : mapping
        Any data that JSON can contain.
    arrays : mapping of str to array
        By names of small letters and underscores.

    Raises
    ------
    SnapshotError
        There is something other than a snapshot at `path`.
    OSError
        The disk refuses; the `filename` of the error has the place. An earlier snapshot stays valid.
    """
    root = Path(path)
    if root.exists() and (not root.is_dir() or not all(map(_is_ours, root.iterdir()))):
        raise SnapshotError(f"{root} exists and is no snapshot; choose another path or remove it")
    root.mkdir(parents=True, exist_ok=True)
    with locked(root) as sync:
        stamp = uuid.uuid4().hex[:12]
        try:
            entries = {name: _write_array(root, name, stamp, array) for name, array in arrays.items()}
            manifest = {"format": kind, "version": VERSION, SAVED_BY: __version__}
            manifest |= {"meta": dict(meta), "arrays": entries}
            draft = root / f"{MANIFEST}.{stamp}"
            with open(draft, "w", encoding="utf-8") as text:
                json.dump({**manifest, "crc32": checksum(manifest)}, text, indent=1)
                text.flush()
                os.fsync(text.fileno())
            os.replace(draft, root / MANIFEST)
            sync()
        except BaseException as error:
            if isinstance(error, OSError) and error.errno is not None and error.filename is None:
                error.filename = str(root)  # the error of a full disk has no path
            if not _is_current(root, stamp):  # an interruption may come after the replacement
                _remove(root, lambda name: stamp in name)
                with contextlib.suppress(OSError):
                    root.rmdir()  # if this write made it
            raise
        # Removes the older snapshot, and files of killed writers. Processes that have mapped it keep pages.
        _remove(root, lambda name: stamp not in name and name != MANIFEST)


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


def _write_array(root: Path, name: str, stamp: str, array: AnyArray) -> dict[str, Any]:
    """Write one array and return its entry in the manifest."""
    data = np.ascontiguousarray(array)
    raw = data.reshape(-1).view(np.uint8)
    file = root / f"{name}.{stamp}.bin"
    with open(file, "wb") as stream:
        stream.write(raw.data)
        stream.flush()
        os.fsync(stream.fileno())
    return {
        "file": file.name,
        "dtype": data.dtype.str,  # of records only their size: their fields belong to the version
        "shape": data.shape,
        "bytes": data.nbytes,
        "crc32": zlib.crc32(raw.data),
    }


def _is_ours(file: Path) -> bool:
    return file.name == MANIFEST or OURS.fullmatch(file.name) is not None


def _is_current(root: Path, stamp: str) -> bool:
    try:
        return stamp.encode() in (root / MANIFEST).read_bytes()
    except OSError:
        return False


def _remove(root: Path, unwanted: Callable[[str], bool]) -> None:
    for file in root.iterdir():
        if OURS.fullmatch(file.name) and unwanted(file.name):
            # On Windows a mapped file cannot be removed; the next writer does that.
            with contextlib.suppress(*() if FOLDERS else (PermissionError,)):
                file.unlink(missing_ok=True)


@contextmanager
def opening(path: str | PathLike[str]) -> Iterator[None]:
    """Raise errors about the content of a snapshot, whose checksums fit, as `SnapshotError`."""
    try:
        yield
    except RTFilterError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise SnapshotError(
            f"{path} has content that `save` does not write: {type(error).__name__}: {error}; save it again"
        ) from error


def read(path: str | PathLike[str], kind: str) -> Snapshot:
    """Open a snapshot; verifies kind, version, sizes and checksums.

    Raises
    ------
    SnapshotError
        It is no snapshot, of another kind or version, or a file is missing, truncated or altered.
    """
    root = Path(path)
    manifest = manifests.read(root)
    while True:
        if manifest["format"] != kind:
            raise SnapshotError(f"{root} is a snapshot of {manifest['format']}, not of {kind}")
        try:
            arrays = {name: _map(root / entry["file"], entry) for name, entry in manifest["arrays"].items()}
            return Snapshot(manifest["meta"], arrays)
        except FileNotFoundError as error:
            newer = manifests.read(root)  # a writer may have replaced the snapshot meanwhile
            if newer == manifest:
                name = Path(error.filename).name
                raise SnapshotError(f"{root} is incomplete: {name} is missing; save it again") from None
            manifest = newer


def _map(file: Path, entry: Mapping[str, Any]) -> AnyArray:
    """Return one array, mapped copy-on-write: changes stay in memory."""
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        raise SnapshotError(f"{file} is no file; save it again")
    size = found.st_size
    if size != entry["bytes"]:
        raise SnapshotError(
            f"{file} is truncated or altered: {size} bytes instead of {entry['bytes']}; save it again"
        )
    dtype = np.dtype(entry["dtype"])
    shape = tuple(entry["shape"])
    array = np.asarray(np.memmap(file, dtype, "c", shape=shape)) if size else np.empty(shape, dtype)
    if zlib.crc32(array.reshape(-1).view(np.uint8).data) != entry["crc32"]:
        raise SnapshotError(f"{file} is altered: its checksum does not fit; save it again")
    return array


def info(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the manifest of a snapshot; no array is read. Raises `SnapshotError`."""
    return manifests.read(Path(path))
