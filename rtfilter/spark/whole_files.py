"""Files that appear when they are complete, at any place that executors write to."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from rtfilter.spark import places

#: Directory of unfinished files; its name hides it from readers of the directory above it.
DRAFTS = "_drafts"


@contextmanager
def whole_file(folder: str, name: str) -> Iterator[IO[bytes]]:
    """Yield a stream for the content of a file, which appears whole after the block, and replaces another.

    If the block raises an error, nothing appears. Until then, the content is in a file of the directory
    `DRAFTS`, or on other file systems in a temporary file of this machine. The latter has no name, so that
    a killed process leaves none behind.
    """
    target, unfinished = places.under(folder, name), places.under(folder, f"{DRAFTS}/{uuid.uuid4().hex}")
    path, draft = places.local(target), places.local(unfinished)
    if path is None or draft is None:
        with tempfile.TemporaryFile() as file:
            yield file
            file.flush()
            system, there = places.reach(target)
            if system.type_name != "hdfs":  # an object appears when all of it has arrived
                places.copy(f"/dev/fd/{file.fileno()}", target)
                return
            system.create_dir(places.reach(places.under(folder, DRAFTS))[1])
            places.copy(f"/dev/fd/{file.fileno()}", unfinished)
            places.remove(target)  # HDFS replaces no file
            system.move(places.reach(unfinished)[1], there)
        return
    draft.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(draft, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
