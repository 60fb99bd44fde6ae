"""Indexes beside the log, so that a start need not build them again.

The folder of a filter has an index, named by a position: it has all changes of the log up to there. It may
have later ones: a change may be applied twice. It is never newer than the settled position of the log; a
newer one belongs to a log that lost its end. A file beside the folders has the epoch of the log at their last
use. If that is not the epoch before, they belong to another log, or another program has changed the log.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Container
from pathlib import Path
from typing import Final, NamedTuple

from rtfilter.basics.errors import SnapshotError
from rtfilter.basics.options import whole
from rtfilter.definition import DEFAULT_CONTROLLER, Definition
from rtfilter.filter import EventFilter
from rtfilter.service.log_matcher import Index
from rtfilter.service.records import FilterInfo
from rtfilter.store.log import Log
from rtfilter.watch.metrics import Metrics

_log = logging.getLogger(__name__)


_EPOCH: Final = "epoch"
"""Name of the file with the epoch. Names of folders of filters end in a number."""


def claim(root: Path, epoch: int) -> None:
    """Remove all indexes, unless they were last used at the epoch before this one; write this epoch."""
    file = root / _EPOCH
    if not file.is_file() or file.read_bytes() != b"%d" % (epoch - 1):
        disclaim(root)
    file.write_bytes(b"%d" % epoch)


def disclaim(root: Path) -> None:
    """Remove all indexes: another server writes the log."""
    root.mkdir(parents=True, exist_ok=True)
    remove_others(root, ())
    _remove(root / _EPOCH)


def name_of(info: FilterInfo) -> str:
    """Return the name of a filter's folder."""
    return f"{info.name}-{info.since}"


def empty(info: FilterInfo, metrics: Metrics | None) -> EventFilter:
    """Return an empty filter, without `max_unbounded`, which is checked before changes are stored."""
    made = info.definition.filter(metrics=metrics)
    made.configure(max_unbounded=None)
    return made


def open_index(
    root: Path, info: FilterInfo, log: Log, settled: int, metrics: Metrics | None
) -> tuple[Index, int]:
    """Return the index of a filter as of the entry at `settled`, and how many changes no stored index has."""
    found = _newest(root / name_of(info), info.definition, settled, metrics)
    if found is None:
        index = Index(info, empty(info, metrics))
        return index, index.change(log.at(settled, info.name, info.since))
    filter, position = found
    index = Index(info, filter)
    return index, index.change(log.changes(position, settled, info.name))


def _newest(
    folder: Path, wanted: Definition, settled: int, metrics: Metrics | None
) -> tuple[EventFilter, int] | None:
    for one in sorted(kept(folder), reverse=True):
        if one.upto > settled:  # of a log that lost its end: positions come again, for others
            _log.warning("%s is newer than the log; it is removed", one.path)
            _remove(one.path)
            continue
        _log.info("opening %s", one.path)  # a large one may wait for its compiled code
        try:
            found = EventFilter.load(
                one.path,
                order=wanted.order,
                controller=wanted.controller or DEFAULT_CONTROLLER,
                metrics=metrics,
                matcher=whole(wanted.matcher),  # it may have been written before the definition was changed
            )
        except SnapshotError as error:
            _log.warning("%s; it is built from the log", error)
            _remove(one.path)
            continue
        found.configure(max_unbounded=None)
        if added := wanted.schema.added_to(found.schema):  # since it was written
            found.add_attributes(added)
        return found, one.position
    return None


class Kept(NamedTuple):
    """An index beside the log: it has all changes up to `position`, and none above `upto`."""

    position: int
    upto: int
    path: Path


def kept(folder: Path) -> list[Kept]:
    """Return the indexes in a folder."""
    named = ((re.fullmatch(r"([0-9]+)-([0-9]+)", path.name), path) for path in folder.glob("*"))
    return [Kept(int(name[1]), int(name[2]), path) for name, path in named if name is not None]


def write(folder: Path, filter: EventFilter) -> Path:
    """Write an index under a temporary name; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / "new"
    _remove(aside)
    filter.save(aside)
    return aside


def keep(aside: Path, position: int, upto: int) -> None:
    """Rename an index that `write` has written, and remove all others; see `Kept`."""
    target = aside.with_name(f"{position}-{upto}")
    if target.exists():
        _remove(aside)
        return
    aside.rename(target)
    for path in aside.parent.glob("*"):
        if path != target:
            _remove(path)


def remove_others(root: Path, known: Container[str]) -> None:
    """Remove the folders of all filters but the known ones."""
    for path in root.glob("*"):
        if path.name not in known and path.name != _EPOCH:
            _remove(path)


def _remove(path: Path) -> None:
    """Remove an index, or a file in its place."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)
