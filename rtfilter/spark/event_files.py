"""Finding files of events: by paths, URIs, directories and patterns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import quote

from rtfilter.basics.errors import FileError
from rtfilter.reading.files import damaged
from rtfilter.spark import places

EventFiles = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: Characters of a pattern, and the first ones of names that readers of a directory leave out.
WILD, HIDDEN = "*?[", ("_", ".")


class InputFile(NamedTuple):
    """A file as it was when it was found."""

    place: str
    size: int
    changed: int
    """Nanoseconds since 1970; 0 if the file system does not know it."""


def find(events: EventFiles, out: str) -> list[InputFile]:
    """Return the files at a path, URI or pattern, in a directory, or at several of these; sorted, each once.

    The directory `out` may lie among them; its files are none of these.

    Raises
    ------
    FileError
        There are none at one of the places, or it cannot be read.
    """
    given = [events] if isinstance(events, str | os.PathLike) else list(events)
    inside, _ = places.parted(out)
    found: dict[str, InputFile] = {}
    for place in map(places.absolute, given):
        with reading(place):
            own = [file for file in _at(place) if not file.place.startswith(f"{inside}/")]
        if not own:
            raise FileError(f"{place}: there are no files; give a file, a directory, or a pattern with *")
        found.update((file.place, file) for file in own)
    if not found:
        raise FileError("events are a list of no files; name at least one")
    return sorted(found.values())


def _at(place: str) -> list[InputFile]:
    """Return the files at a path, URI or pattern."""
    path = places.local(place)
    head, options = places.parted(place)
    names = head.split("/")
    wild = [any(map(name.__contains__, WILD)) for name in names]
    if not any(wild) or (path is not None and path.exists()):
        return _below(place, [])
    first = wild.index(True)
    return _below("/".join(names[:first]) + options or "/", names[first:])


def _below(base: str, pattern: list[str]) -> list[InputFile]:
    """Return the file at a place or those in a directory there, or those that match a pattern below it."""
    from pyarrow import fs

    system, root = places.reach(base)
    infos = [system.get_file_info(root)]
    for name in pattern:
        infos = [
            info
            for above in infos
            if above.type == fs.FileType.Directory
            for info in system.get_file_info(fs.FileSelector(above.path))
            if fnmatchcase(info.base_name, name) and not info.base_name.startswith(HIDDEN)
        ]
    for above in list(infos):
        if above.type == fs.FileType.Directory:
            inner = system.get_file_info(fs.FileSelector(above.path, recursive=True))
            infos += [info for info in inner if not re.search("/[._]", info.path[len(above.path) :])]
    return [
        InputFile(_place_of(base, info.path[len(root) :].lstrip("/")), info.size, info.mtime_ns or 0)
        for info in infos
        if info.type == fs.FileType.File
    ]


def _place_of(base: str, path: str) -> str:
    """Return the place of a file by its path below a base; without one, the base."""
    if not path:
        return base
    return places.under(base, path) if places.local(base) else places.under(base, quote(path))


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Turn errors of reading a file into a `FileError` that names it."""
    from pyarrow import ArrowException

    try:
        yield
    except FileNotFoundError:
        raise FileError(f"{place}: there is no such file or directory") from None
    except (ArrowException, OSError) as error:
        raise damaged(place, error) from None
