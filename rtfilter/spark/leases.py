"""Bringing an index to the executors: as a snapshot that every process maps, named by its content.

A task carries a `Lease`: the manifest and the path of the snapshot, but not the index. An executor that has
the same snapshot at that path (one host, a shared file system) maps it there. Otherwise it takes the files
that Spark has sent, or fetches them from another file system, once per host and content, into a directory.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rtfilter import EventFilter, Schema, SnapshotError
from rtfilter.index import ready
from rtfilter.matchers.registry import MATCHERS
from rtfilter.matching.filter_parts import KIND
from rtfilter.matching.growing import LARGE, MOVED, SMALL
from rtfilter.snapshots import manifest as snapshot
from rtfilter.spark import places
from rtfilter.spark.sessions import connected
from rtfilter.subscriptions.ids import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Bytes of indexes that a worker process keeps open, besides the one in use.
OPEN = 1 << 29
#: Seconds after which an unused directory of fetched files is removed.
UNUSED = 3600.0
#: Times that a snapshot is read while another program replaces it.
TRIES = 5

_lock = threading.Lock()
_open: OrderedDict[str, EventFilter] = OrderedDict()
_held: dict[str, int] = {}
"""Open directories, locked, of leases that are held."""
_sent: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""The snapshots that the executors of a session have."""
_saved: WeakKeyDictionary[EventFilter, tuple[tuple[int, int], Path]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Lease:
    """The data that a task needs to open an index.

    Attributes
    ----------
    place : str
        Path of the snapshot on the driver, or a URI.
    manifest : bytes
        Its manifest, which names its files and their checksums.
    """

    place: str
    manifest: bytes

    @property
    def digest(self) -> str:
        """Hash of the manifest, which names the content."""
        return hashlib.blake2b(self.manifest, digest_size=16).hexdigest()

    @property
    def schema(self) -> Schema:
        """The schema of the index."""
        return Schema.from_json(json.loads(self.manifest)["meta"]["schema"])

    @property
    def kind(self) -> type:
        """The type of its ids: int, str or uuid.UUID."""
        return KINDS[json.loads(self.manifest)["meta"].get("ids") or "int"]

    @property
    def subscriptions(self) -> int:
        """Number of subscriptions in the index."""
        return int(json.loads(self.manifest)["meta"].get("subscriptions", 0))

    @property
    def scan(self) -> bool:
        """True if the index was saved as a scan, before it moved to a tree."""
        return bool(json.loads(self.manifest)["meta"].get("matcher") == SMALL)

    @property
    def matcher(self) -> str:
        """The matcher of all executors: that of the index, with its saved options.

        A scan stays one while it is small, so that all estimate work alike. An R*-tree replaces the matcher
        that trials chose, and a class of your own, which executors may not have.
        """
        meta = json.loads(self.manifest)["meta"]
        saved = meta.get("matcher")
        if saved == SMALL and self.subscriptions < MOVED:
            return SMALL
        return saved if saved in MATCHERS and saved != SMALL and "auto" not in meta else LARGE

    def open(self) -> EventFilter:
        """Return the index, mapped once by this process. Raises `SnapshotError`."""
        with _lock:
            found = _open.pop(self.digest, None)
            if found is None:
                found = self.load()
                if self.matcher == LARGE:
                    ready.load()  # here, so that no batch waits for the compiled code
            _open[self.digest] = found
            if _bytes_open() > OPEN:
                while len(_open) > 1 and _bytes_open() > OPEN // 2:  # half of them, as collecting takes long
                    _open.popitem(last=False)
                _collect()
            return found

    def held(self) -> Lease:
        """Return a lease of the same content in a new directory, which stays until `release` or the end."""
        home = Path(tempfile.mkdtemp(prefix="held-", dir=_own_directory()))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        _clean(home.parent)  # of processes that were killed, as those of Spark Connect are
        self._assemble(home)
        _held[str(home)] = in_use = os.open(home, os.O_RDONLY)
        fcntl.flock(in_use, fcntl.LOCK_SH)  # so that `_clean` does not remove it
        return Lease(str(home), self.manifest)

    def release(self) -> None:
        """Remove the directory that `held` made."""
        shutil.rmtree(self.place, ignore_errors=True)
        os.close(_held.pop(self.place))

    def load(self, clock: Callable[[], float] = time.time) -> EventFilter:
        """Return the index, mapped again, so that it may be changed in memory. Raises `SnapshotError`."""
        path = places.local(self.place)
        if path is not None and self.lies_in(path):
            with suppress(SnapshotError):
                here = EventFilter.load(path, matcher=self.matcher, clock=clock)
                if _manifest(path) == self.manifest:  # it was not replaced while it was read
                    return here
        home = _own_directory() / self.digest
        while True:
            with _alone(home):
                if not self.lies_in(home):
                    _clean(home.parent)
                    self._assemble(home)
            try:
                os.utime(home)
                in_use = os.open(home, os.O_RDONLY)
            except FileNotFoundError:
                continue  # removed just now
            found = None
            try:
                fcntl.flock(in_use, fcntl.LOCK_SH)  # so that `_clean` does not remove it
                if self.lies_in(home):
                    found = EventFilter.load(home, matcher=self.matcher, clock=clock)
                    return found
            finally:
                if found is None:
                    os.close(in_use)
                else:
                    weakref.finalize(found, os.close, in_use)

    def lies_in(self, path: Path) -> bool:
        """Return whether this process can read the whole snapshot at a path."""
        return _manifest(path) == self.manifest and all(
            os.access(path / name, os.R_OK) for name in snapshot.files(self.manifest)
        )

    def _assemble(self, home: Path) -> None:
        """Put the files together as a snapshot at `home`, as a whole or not at all."""
        draft = Path(tempfile.mkdtemp(prefix=f"{self.digest}.", dir=home.parent))
        try:
            for name in snapshot.files(self.manifest):
                self._fetch(name, draft / name)
            (draft / snapshot.MANIFEST).write_bytes(self.manifest)
            shutil.rmtree(home, ignore_errors=True)  # the rest after a cleanup of temporary files
            os.rename(draft, home)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _fetch(self, name: str, target: Path) -> None:
        path = places.local(self.place)
        if path is None:
            try:
                places.copy(places.under(self.place, name), str(target))
            except OSError as error:
                raise SnapshotError(f"{self.place} cannot be read by this executor: {error}") from None
            return
        for source in _sources(path, name):
            with suppress(FileNotFoundError):
                try:
                    os.link(source, target)
                except FileNotFoundError:
                    raise
                except OSError:  # another file system
                    shutil.copyfile(source, target)
                return
        raise SnapshotError(
            f"the index {self.place} has changed since match_frame was called, or this "
            "executor cannot see it; call match_frame again, with a path that all executors see"
        )


def _sources(path: Path, name: str) -> Iterator[Path]:
    """Yield the paths of a file of a snapshot: in its directory, and where Spark sends it."""
    from pyspark import SparkFiles

    yield path / name
    with suppress(AssertionError):  # Spark sends nothing to a client of Spark Connect
        yield Path(SparkFiles.get(name))


def _bytes_open() -> int:
    return sum(index.stats()["bytes"] for index in _open.values())


def _collect() -> None:
    """Release indexes that are no longer open: they refer to themselves, and may be frozen."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if frozen:
        gc.freeze()


def _own_directory() -> Path:
    """Return a directory for temporary files to which no other user can write."""
    path = Path(tempfile.gettempdir()) / f"rtfilter-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise SnapshotError(
            f"{path} is not a directory of this user alone; remove it, or set TMPDIR to another"
        )
    return path


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Lock a directory of this host: no other process makes or removes it meanwhile."""
    with open(home.with_name(f"{home.name}.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _clean(directory: Path) -> None:
    """Remove directories that no process has open and that were not opened for `UNUSED` seconds."""
    for home in directory.iterdir():
        with suppress(OSError):
            if not home.is_dir() or time.time() - home.stat().st_mtime < UNUSED:
                continue
            file = os.open(home, os.O_RDONLY)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(home)
            finally:
                os.close(file)


def lend(spark: SparkSession, index: EventFilter | str | PathLike[str]) -> Lease:
    """Return a lease of a saved index, or of a filter's present content, sent to a cluster's executors."""
    if isinstance(index, EventFilter):
        lease = lease_of(str(_save(index)))
    else:
        lease = lease_of(places.absolute(index))
    send(spark, lease)
    return lease


def send(spark: SparkSession, lease: Lease) -> None:
    """Send the files of a snapshot at a path to all executors that may not see it there, once in a session.

    Spark sends all files to each new executor, so they must stay as long as the application runs.
    """
    sent = _sent.setdefault(spark, set())
    if places.local(lease.place) is None or lease.digest in sent:
        return
    if not _all_see(spark, lease):
        path = Path(lease.held().place)
        spark.addArtifacts(*(str(path / name) for name in snapshot.files(lease.manifest)), file=True)
    sent.add(lease.digest)


def _all_see(spark: SparkSession, lease: Lease) -> bool:
    """Return whether all executors see the snapshot at its path: at least those within the driver do."""
    if not str(spark.conf.get("spark.master", "")).startswith("local"):
        return False
    if not connected(spark):
        return True

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"seen": [lease.lies_in(Path(lease.place))]})

    return bool(spark.range(1).mapInArrow(look, "seen boolean").collect()[0][0])


def lease_of(place: str) -> Lease:
    """Return a lease of the snapshot at an absolute path or URI; only the manifest is read.

    Raises
    ------
    SnapshotError
        It cannot be read, or is no snapshot of an `EventFilter` of this version.
    """
    try:
        manifest = places.read_bytes(places.under(place, snapshot.MANIFEST))
    except (FileNotFoundError, NotADirectoryError):
        raise SnapshotError(
            f"{place} is no snapshot of an EventFilter; make one with EventFilter.save, "
            "or an index in shards with build_sharded"
        ) from None
    except OSError as error:
        raise SnapshotError(f"{place} cannot be read: {error}") from None
    found = snapshot.parse(manifest, place)
    if found["format"] != KIND:
        raise SnapshotError(f"{place} is a snapshot of {found['format']}, not of {KIND}")
    return Lease(place, manifest)


def _save(index: EventFilter) -> Path:
    """Save a filter in a temporary directory, once per version."""
    stats = index.stats()
    version = int(stats["version"]), int(stats.get("updates", 0))
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
    except OSError:  # it does not exist, or this user may not read it
        return None
