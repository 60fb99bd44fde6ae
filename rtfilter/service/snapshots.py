"""Indexes beside the log, so that a start need not build them again.

A folder per filter has an index by the position of the log that it holds at least. It may hold changes
beyond: making them again does no harm. It is never newer than what the log knows to be settled; one that is
belongs to another log.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Container
from pathlib import Path

from rtfilter.errors import SnapshotError
from rtfilter.filter import EventFilter
from rtfilter.service.match import Index
from rtfilter.service.records import FilterInfo
from rtfilter.store.log import Log
from rtfilter.watch.metrics import Metrics

_log = logging.getLogger(__name__)


def name_of(info: FilterInfo) -> str:
    """Of the folder of a filter."""
    return f"{info.name}-{info.since}"


def empty(info: FilterInfo, metrics: Metrics | None) -> EventFilter:
    """An empty filter. How many subscriptions nothing bounds is looked at before they are stored."""
    return EventFilter(info.schema, max_unbounded=None, metrics=metrics or False)


def open_index(
    root: Path, info: FilterInfo, log: Log, settled: int, metrics: Metrics | None
) -> tuple[Index, int]:
    """The index of a filter as of the entry at `settled`, and how many changes no written index has."""
    found = _newest(root / name_of(info), settled, metrics)
    if found is None:
        index = Index(info, empty(info, metrics))
        return index, index.change(log.at(settled, info.name, info.since))
    filter, position = found
    index = Index(info, filter)
    return index, index.change(log.entries(position, settled, info.name))


def _newest(folder: Path, settled: int, metrics: Metrics | None) -> tuple[EventFilter, int] | None:
    for position in sorted(positions(folder), reverse=True):
        path = folder / str(position)
        if position > settled:  # of a log that lost its end: positions come again, for others
            _log.warning("%s is newer than the log; it is removed", path)
            _remove(path)
            continue
        try:
            found = EventFilter.load(path, metrics=metrics or False)
        except SnapshotError as error:
            _log.warning("%s; it is built from the log", error)
            _remove(path)
            continue
        found.max_unbounded = None
        return found, position
    return None


def positions(folder: Path) -> list[int]:
    """Of the indexes in a folder."""
    return [int(path.name) for path in folder.glob("*") if path.name.isascii() and path.name.isdecimal()]


def write(folder: Path, filter: EventFilter) -> Path:
    """Write an index aside."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / "new"
    _remove(aside)
    filter.save(aside)
    return aside


def keep(aside: Path, position: int) -> None:
    """Have an index that was written aside used from now on, and remove others."""
    folder = aside.parent
    old = positions(folder)
    if position in old:
        shutil.rmtree(aside)
        return
    aside.rename(folder / str(position))
    for one in old:
        _remove(folder / str(one))


def remove_others(root: Path, known: Container[str]) -> None:
    """Remove the folders of filters that are there no more."""
    for path in root.glob("*"):
        if path.name not in known:
            _remove(path)


def _remove(path: Path) -> None:
    """Remove an index, or what lies in its place."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
