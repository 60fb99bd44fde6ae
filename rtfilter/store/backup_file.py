"""A copy of the folder of a server, made while it runs, as one file; and a folder restored from it.

The file is a tar with the database, the other files that belong to the server, such as keys, and a list of
them with their hashes. Indexes are not in it: they are a cache.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from rtfilter.basics.errors import RTFilterError
from rtfilter.store.folder import private

DATABASE: Final = "log.sqlite"
LIST: Final = "backup.json"
FORMAT: Final = 1
STEP: Final = 1000
"""Pages of the database that are copied at once."""
CHUNK: Final = 2**20
COUNTED: Final = {
    "events": "SELECT count(*) FROM log WHERE subscription IS NULL",
    "subscriptions": "SELECT count(*) FROM log WHERE until IS NULL AND subscription IS NOT NULL",
    "users": "SELECT count(*) FROM user_accounts",
    "position": "SELECT max(coalesce((SELECT max(position) FROM log), 0),"
    " coalesce((SELECT value FROM state WHERE name = 'head'), 0))",
    "version": "SELECT value FROM state WHERE name = 'version'",
}
"""The reported counts of a database; `position` is the last one."""


class BackupError(RTFilterError, ValueError):
    """A backup cannot be made, or is damaged."""


def back_up(folder: Path, out: Path) -> dict[str, int]:
    """Copy the folder of a server, which may run; return the counts of the copy, as in `COUNTED`.

    The database is read as it was at one moment. The server continues to write, and waits for nothing. Raises
    `BackupError` and `OSError`.
    """
    if out.exists():
        raise BackupError(f"{out} exists already; give another name")
    if not (folder / DATABASE).is_file():
        raise BackupError(f"{folder} has no {DATABASE}: give the folder of a server that has started")
    with _beside(out) as aside:
        try:
            _copy(folder / DATABASE, aside / DATABASE)
            told = _checked(aside / DATABASE)
        except sqlite3.Error as error:
            raise BackupError(f"{folder / DATABASE} cannot be read: {error}") from None
        files = {DATABASE: aside / DATABASE, **{one.name: one for one in _others(folder)}}
        part = aside / "part"
        with part.open("xb") as file:
            _pack(file, files, told)
            _sync(file)
        part.rename(out)
        _sync_folder(out.parent)
    return told


def restore(file: Path, folder: Path) -> dict[str, int]:
    """Make the folder of a server from a backup; return its counts, as in `COUNTED`.

    Raises `BackupError`, and makes nothing, if the folder exists and is not empty, or the file is damaged.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BackupError(f"{folder} is not empty; restore into a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _beside(folder) as aside:
        made = aside / "made"
        made.mkdir(mode=0o700)
        try:
            _unpack(file, made)
            told = _checked(made / DATABASE, new=True)
        except BackupError:
            raise
        except (tarfile.TarError, sqlite3.Error, KeyError, TypeError, ValueError) as error:
            raise BackupError(f"{file} is no backup, or damaged: {error}") from None
        _sync_folder(made)
        made.rename(folder)  # it may exist, and be empty
        _sync_folder(folder.parent)
    return told


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=".rtfilter-", dir=path.absolute().parent) as made:
        yield Path(made)


def _others(folder: Path) -> list[Path]:
    """Return the files of the server that belong neither to its database nor to a lock."""
    mine = (DATABASE, *(f"{DATABASE}-{name}" for name in ("wal", "shm", "journal", "reserve")), "lock", LIST)
    found = (one for one in folder.iterdir() if one.is_file() and not one.is_symlink())
    return sorted(one for one in found if one.name not in mine)


def _copy(source: Path, target: Path) -> None:
    with (
        closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True, timeout=10)) as there,
        closing(sqlite3.connect(target)) as here,
    ):
        there.isolation_level = None
        there.execute("BEGIN")  # so that the copy is of one moment, and never begins again
        there.execute("SELECT count(*) FROM sqlite_master").fetchone()
        there.backup(here, pages=STEP)
        there.execute("ROLLBACK")
        here.execute("PRAGMA journal_mode = DELETE")  # in one file


def _checked(file: Path, new: bool = False) -> dict[str, int]:
    """Check a database that no process uses; with `new`, give it an epoch that no index was written with."""
    with closing(sqlite3.connect(file)) as database:
        found = database.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            raise BackupError(f"the database is damaged: {found[0][0]}")
        if new and database.execute("SELECT 1 FROM sqlite_master WHERE name = 'state'").fetchone():
            epoch = secrets.randbelow(2**62)
            database.execute("UPDATE state SET value = ? WHERE name = 'epoch'", (epoch,))
            with suppress(sqlite3.OperationalError):  # it is no site
                database.execute("DELETE FROM site_state WHERE name = 'log'")  # its positions come again
            database.commit()
        told = {}
        for name, query in COUNTED.items():
            with suppress(sqlite3.OperationalError):  # there are no users yet, or the folder is new
                told[name] = int(database.execute(query).fetchone()[0])
    return told


def _pack(out: IO[bytes], files: dict[str, Path], told: dict[str, int]) -> None:
    kept: dict[str, Any] = {"format": FORMAT, "made": time.time(), "holds": told, "sha256": {}}
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, path in files.items():
            with path.open("rb") as file:
                kept["sha256"][name] = hashlib.file_digest(file, "sha256").hexdigest()
                entry = _entry(name, file.tell())
                file.seek(0)
                tar.addfile(entry, file)
        text = json.dumps(kept, indent=1).encode()
        tar.addfile(_entry(LIST, len(text)), io.BytesIO(text))


def _entry(name: str, size: int) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.mode, made.mtime = size, 0o600, int(time.time())
    return made


def _unpack(file: Path, folder: Path) -> None:
    """Write the files of a backup, if all are unchanged. Raises `BackupError`."""
    found: dict[str, str] = {}
    with tarfile.open(file, "r:") as tar:
        for entry in tar:
            name, packed = entry.name, tar.extractfile(entry)
            if packed is None or name != Path(name).name or name in found:
                raise BackupError(f"{file} is no backup of rtfilter: it has a file {name!r}")
            with open(folder / name, "x+b", opener=private) as out:
                shutil.copyfileobj(packed, out, CHUNK)
                _sync(out)
                out.seek(0)
                found[name] = hashlib.file_digest(out, "sha256").hexdigest()
    if LIST not in found:
        raise BackupError(f"{file} is no backup of rtfilter, or cut off; use another copy")
    kept = json.loads((folder / LIST).read_bytes())
    if kept["format"] != FORMAT:
        raise BackupError(f"{file} was made by another version of rtfilter; restore it with that one")
    (folder / LIST).unlink()
    del found[LIST]
    if found != kept["sha256"] or DATABASE not in found:
        raise BackupError(f"{file} is damaged: its files have changed; use another copy")


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    if os.name != "posix":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
