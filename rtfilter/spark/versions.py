"""Numbered files of a directory, for the versions of an index: of several writers, one makes each.

Number 0 is no version: it stands for an index that a program is building.

On a file system of the operating system, a writer holds a lock while it looks for later versions and links
its file. The lock of a killed writer is free.

Other file systems replace a file that exists. There a writer first writes its file under a name of its own, a
*claim*, and then lists the directory. If it sees no other claim to this number, no file of this number and
none of a later one, it moves its claim there. Of two writers, each lists after it has claimed, so at least
one sees the other; one that sees a claim of a lesser name withdraws. This holds if listings show all files
that were written before, as those of S3, Google Cloud Storage, Azure and HDFS do. A claim that is `STALE` is
that of a killed writer.
"""

from __future__ import annotations

import fcntl
import os
import random
import uuid
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from rtfilter.spark import places

if TYPE_CHECKING:
    from pyarrow import fs

#: Seconds after which a claim no longer counts, and within which a writer must move its own.
STALE, PATIENCE = 600.0, 60.0
#: Seconds between two looks at the claims of others, at first and at most.
PAUSE, LONGEST = 0.05, 2.0


class VersionTakenError(RuntimeError):
    """Raised if another program has made a version, or a later one."""


def file_of(folder: str, number: int) -> str:
    """Return the place of the file of a version."""
    return places.under(folder, f"{number:08d}.json")


def numbers(folder: str) -> list[int]:
    """Return the numbers of the versions, ascending, from 1."""
    return [number for number in _numbers(places.names(folder)) if number]


def publish(folder: str, number: int, content: bytes) -> None:
    """Make the file of a version, whole or not at all.

    Raises `VersionTakenError` if there is one, or one of a later version. After an `OSError`, the file
    may exist or not.
    """
    path = places.local(file_of(folder, number))
    if path is None:
        _publish_far(folder, number, content)
    else:
        _publish_here(path, number, content)


def _numbers(names: list[str]) -> list[int]:
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def _require_newest(number: int, names: list[str]) -> None:
    """Raise `VersionTakenError` if the version exists; if it has expired, a later one exists."""
    if max(_numbers(names), default=-1) >= number:
        raise VersionTakenError(f"version {number} exists")


def _publish_here(path: Path, number: int, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with open(path.with_name(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _require_newest(number, os.listdir(path.parent))
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _publish_far(folder: str, number: int, content: bytes) -> None:
    system, there = places.reach(folder)
    system.create_dir(there)
    path, begun, pause = places.reach(file_of(folder, number))[1], monotonic(), PAUSE
    while monotonic() < begun + PATIENCE:
        claim = f"{path}.{uuid.uuid4().hex}"
        with system.open_output_stream(claim) as file:
            file.write(content)
        try:
            alone = _is_alone(system, path, claim, number, begun + PATIENCE)
        except VersionTakenError:
            system.delete_file(claim)
            raise
        if alone:
            system.move(claim, path)  # after an error the claim stays, as this may still happen
            return
        system.delete_file(claim)
        sleep(random.uniform(PAUSE, pause))
        pause = min(2 * pause, LONGEST)
    raise OSError(
        f"another program has begun to write version {number} in {folder}, and was perhaps killed: "
        f"try again in {STALE / 60:.0f} minutes"
    )


def _is_alone(system: fs.FileSystem, path: str, claim: str, number: int, until: float) -> bool:
    """Return True as soon as no other writer claims a version, and False if this one has to withdraw."""
    from pyarrow import fs

    folder, _, own = claim.rpartition("/")
    name = path.rpartition("/")[2]
    while True:
        found = {info.base_name: info.mtime for info in system.get_file_info(fs.FileSelector(folder))}
        if own not in found:
            raise OSError(f"{folder} does not list {own}, which was just written: use another file system")
        _require_newest(number, list(found))
        # A claim that is moved during the listing may be in it under neither name.
        if system.get_file_info(path).type != fs.FileType.NotFound:
            raise VersionTakenError(f"version {number} exists")
        others = [other for other in found if other.startswith(f"{name}.") and other != own]
        others = [other for other in others if (found[own] - found[other]).total_seconds() < STALE]
        if monotonic() > until or min(others, default=own) < own:
            return False
        if not others:
            return True
        sleep(PAUSE)
