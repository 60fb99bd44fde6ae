"""How an index reaches the executors: as a snapshot that every process maps, named by its content.

A task carries a `Lease`: the manifest of the snapshot and where the driver saw it, nothing of the index. An
executor that sees the same snapshot at that path (one host, a shared file system) maps it there. Otherwise
Spark has sent it the files, and they are linked, once for a host and a content, into a directory of their
own.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import threading
from collections import OrderedDict
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rtfilter import EventFilter, SnapshotError, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Indexes that a worker process keeps open.
OPEN = 2

_lock = threading.Lock()
_open: OrderedDict[str, EventFilter] = OrderedDict()
_saved: WeakKeyDictionary[EventFilter, tuple[int, Path]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Lease:
    """What a task needs to open an index.

    Attributes
    ----------
    path : str
        Of the snapshot, as the driver sees it.
    manifest : bytes
        Its manifest, which names its files and their checksums.
    """

    path: str
    manifest: bytes

    @property
    def digest(self) -> str:
        """Name of the content."""
        return hashlib.blake2b(self.manifest, digest_size=16).hexdigest()

    def open(self) -> EventFilter:
        """The index, mapped once by this process. Raises `SnapshotError` that says what to do."""
        with _lock:
            found = _open.pop(self.digest, None)
            if found is None:
                found = EventFilter.load(self._directory())
            _open[self.digest] = found
            while len(_open) > OPEN:
                _open.popitem(last=False)
            return found

    def _directory(self) -> Path:
        if self._lies_in(Path(self.path)):
            return Path(self.path)
        home = _own_directory() / self.digest
        if not self._lies_in(home):
            self._assemble(home)
        return home

    def _lies_in(self, path: Path) -> bool:
        """Whether this process can read the whole snapshot there."""
        return _manifest(path) == self.manifest and all(
            os.access(path / name, os.R_OK) for name in snapshot.files(self.manifest)
        )

    def _assemble(self, home: Path) -> None:
        """Make a snapshot of the files that Spark has sent, whole or not at all."""
        from pyspark import SparkFiles

        draft = Path(tempfile.mkdtemp(prefix=f"{self.digest}.", dir=home.parent))
        try:
            for name in snapshot.files(self.manifest):
                sent = Path(SparkFiles.get(name))
                try:
                    os.link(sent, draft / name)
                except FileNotFoundError:
                    raise SnapshotError(
                        f"the index {self.path} is not what it was when match_frame was called, or this "
                        "executor cannot see it; call match_frame again, with a path that all executors see"
                    ) from None
                except OSError:  # another file system
                    shutil.copyfile(sent, draft / name)
            (draft / snapshot.MANIFEST).write_bytes(self.manifest)
            try:
                os.rename(draft, home)
            except OSError:
                if not self._lies_in(home):  # else another process of this host was faster
                    shutil.rmtree(home)  # what a cleaner of temporary files has left
                    os.rename(draft, home)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _own_directory() -> Path:
    """A directory for temporary files that no other user can write to."""
    path = Path(tempfile.gettempdir()) / f"rtfilter-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise SnapshotError(
            f"{path} is not a directory of this user alone; remove it, or set TMPDIR to another"
        )
    return path


def lend(spark: SparkSession, index: EventFilter | str | PathLike[str]) -> Lease:
    """A lease of a saved index, or of the present content of a filter; sent to the executors of a cluster."""
    path = _save(index) if isinstance(index, EventFilter) else Path(index).absolute()
    manifest = _manifest(path)
    if manifest is None:
        raise SnapshotError(f"{path} is no snapshot of an EventFilter; make one with EventFilter.save")
    context = _context(spark)
    if not context.master.startswith("local"):
        sent = set(context.listFiles)
        for name in snapshot.files(manifest):
            if not any(file.endswith(f"/{name}") for file in sent):
                context.addFile(str(path / name))
    return Lease(str(path), manifest)


def _context(spark: SparkSession) -> Any:
    try:
        return spark.sparkContext
    except Exception:
        raise RuntimeError(
            "rtfilter.spark needs a classic Spark session, not Spark Connect: "
            "build it with master('local[*]') or the URL of a cluster"
        ) from None


def _save(index: EventFilter) -> Path:
    """Save a filter in a temporary directory, once per version."""
    version = index.tree.updates
    with _lock:
        before = _saved.get(index)
        if before is not None and before[0] == version:
            return before[1]
        path = Path(tempfile.mkdtemp(prefix="rtfilter-index-"))
        atexit.register(shutil.rmtree, path, ignore_errors=True)
        index.save(path)
        _saved[index] = version, path
        return path


def _manifest(path: Path) -> bytes | None:
    try:
        return (path / snapshot.MANIFEST).read_bytes()
    except OSError:  # not there, or not for this user
        return None
