"""The subscriptions of a bucket in an `EventFilter`, and their snapshot on disk.

A snapshot is a folder named by its revision: an index, and a table with the users. The index has all changes
up to that revision, and perhaps later ones, which are then applied again. That changes nothing, because the
last change of a key decides.
"""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from rtfilter.basics.errors import PredicateError, SnapshotError
from rtfilter.definition import Definition
from rtfilter.filter import EventFilter
from rtfilter.nats.bucket_entries import BucketChange, BucketEntry, BucketRefusal, entry_of
from rtfilter.nats.subjects import RESERVED, BucketShard
from rtfilter.subscriptions.loading import BadSubscription
from rtfilter.watch.metrics import Metrics

_log = logging.getLogger(__name__)
FORMAT: Final = 2
"""Of the table of a snapshot."""


class SnapshotTable(msgspec.Struct):
    """The part of a snapshot beside the index.

    Attributes
    ----------
    format : int
    bucket : str
        When the bucket was made: another bucket of the same name has another history.
    definition : dict
    revision : int
    users : dict of str to str
        The user of each subscription, by key.
    others : list of str
        Keys without a usable subscription; see `BucketFilter.keys`.
    refused : list of BucketRefusal
    needs_user : bool
        Whether subscriptions without a user are refused.
    """

    format: int
    bucket: str
    definition: dict[str, Any]
    revision: int
    users: dict[str, str]
    others: list[str]
    refused: list[BucketRefusal]
    needs_user: bool


class BucketFilter:
    """Subscriptions by key. Not thread-safe; its filter is.

    Parameters
    ----------
    definition : Definition
    shard : BucketShard
        Other subscriptions are left out.
    needs_user : bool
        Refuse subscriptions without a user.
    bucket : str
        When the bucket was made.
    metrics : Metrics, optional
        Of the filter.

    Attributes
    ----------
    whole : bool
        Whether it has all subscriptions of the bucket, not a shard.
    filter : EventFilter
        Its ids are keys.
    users : dict of str to str
    revision : int
        All changes up to this sequence of the bucket are applied.
    refused : dict of str to BucketRefusal
        The refused subscriptions, by key.
    changed : int
        Changes since the last snapshot.
    """

    def __init__(
        self,
        definition: Definition,
        shard: BucketShard,
        needs_user: bool = True,
        bucket: str = "",
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._definition, self._shard, self._needs_user = definition, shard, needs_user
        self._bucket, self._clock, self._metrics = bucket, clock, metrics
        self.whole = shard.count == 1
        self.filter = EventFilter(
            definition.schema,
            order=definition.order,
            controller=definition.controller,
            metrics=metrics,
            matcher=definition.matcher,
            max_unbounded=definition.max_unbounded,
            ids=str,
            clock=clock,
        )
        self.users: dict[str, str] = {}
        self.refused: dict[str, BucketRefusal] = {}
        self.revision = self.changed = 0
        self._others: set[str] = set()

    @property
    def keys(self) -> int:
        """Number of keys of the bucket that were seen, also removed ones; only for the whole, not a shard."""
        return len(self.users) + len(self._others)

    def apply(self, changes: Iterable[BucketChange], max_age: float = 0.0) -> list[BucketRefusal]:
        """Apply consecutive changes; return those of them that cannot be used.

        A key of a refused change has no subscription. `max_age` is the time to live of all keys of the
        bucket in seconds, or 0.
        """
        latest: dict[str, BucketChange] = {}
        for change in changes:
            self.revision = max(self.revision, change.revision)
            self.changed += 1
            latest[change.key] = change
        mine = {key: one for key, one in latest.items() if key not in RESERVED and self._shard.has(key)}
        if self.whole:
            self._others.update(latest)
        if not mine:
            return []
        self.filter.unsubscribe_many(list(mine))
        for key in mine:
            self.users.pop(key, None)
            self.refused.pop(key, None)
        found: dict[str, tuple[BucketEntry, float | None]] = {}
        refusals: list[BucketRefusal] = []
        for key, change in mine.items():
            if change.value is None:
                continue
            try:
                entry = entry_of(change.value, self._needs_user)
            except PredicateError as error:
                refusals.append(BucketRefusal(key, change.revision, str(error)))
                continue
            ends = min(one for one in (entry.ttl, max_age or None, float("inf")) if one is not None)
            left = change.created + ends - self._clock()
            if left > 0:
                found[key] = entry, None if left == float("inf") else left
        bad: list[BadSubscription] = []
        if found:
            self.filter.subscribe_many(
                [entry.where for entry, _ in found.values()],
                ids=list(found),
                ttl=[left for _, left in found.values()],
                on_error=bad.append,
            )
        for one in bad:
            refusals.append(BucketRefusal(one.id, mine[one.id].revision, one.reason))
            del found[one.id]
        self.users.update((key, entry.user) for key, (entry, _) in found.items())
        if self.whole:
            self._others.difference_update(found)
        self.refused.update((one.key, one) for one in refusals)
        return refusals

    def keep_only(self, keys: set[str]) -> int:
        """Remove subscriptions whose keys the bucket no longer has; return their number."""
        gone = [key for key in self.users if key not in keys]
        self.filter.unsubscribe_many(gone)
        for key in gone:
            del self.users[key]
        self._others &= keys
        for key in [key for key in self.refused if key not in keys]:
            del self.refused[key]
        return len(gone)

    def save(self, folder: Path, table: SnapshotTable) -> None:
        """Write a snapshot, and remove older ones. May run in a thread, with a table of before."""
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"draft-{uuid.uuid4().hex}"
        try:
            self.filter.save(draft / "index")
            (draft / "table").write_bytes(msgspec.msgpack.encode(table))
            place = folder / str(table.revision)
            if not place.exists():
                draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        for older in _saved(folder)[1:]:
            shutil.rmtree(older, ignore_errors=True)

    def table(self) -> SnapshotTable:
        """Return what a snapshot of now has, and count changes from now on."""
        self.changed = 0
        others, definition = sorted(self._others), self._definition.to_json()
        users, refused = dict(self.users), list(self.refused.values())
        return SnapshotTable(
            FORMAT, self._bucket, definition, self.revision, users, others, refused, self._needs_user
        )

    def load(self, folder: Path, last: int) -> bool:
        """Take over the newest snapshot that fits, up to the revision `last`; return whether there is one."""
        for place in _saved(folder):
            try:
                table = msgspec.msgpack.decode((place / "table").read_bytes(), type=SnapshotTable)
                if not self._fits(table, last):
                    continue
                loaded = EventFilter.load(
                    place / "index",
                    order=self._definition.order,
                    metrics=self._metrics,
                    clock=self._clock,
                )
            except (OSError, msgspec.MsgspecError, SnapshotError, ValueError) as error:
                _log.warning("the snapshot %s cannot be used, and is left out: %s", place, error)
                continue
            loaded.configure(max_unbounded=self._definition.max_unbounded)
            self.filter, self.users = loaded, table.users
            self.revision, self._others = table.revision, set(table.others)
            self.refused = {one.key: one for one in table.refused}
            return True
        return False

    def _fits(self, table: SnapshotTable, last: int) -> bool:
        mine = FORMAT, self._bucket, self._definition.to_json(), self._needs_user
        same = (table.format, table.bucket, table.definition, table.needs_user) == mine
        return same and table.revision <= last


def _saved(folder: Path) -> list[Path]:
    """Return the snapshots in a folder, the newest first."""
    if not folder.is_dir():
        return []
    found = [place for place in folder.iterdir() if place.name.isdecimal()]
    return sorted(found, key=lambda place: int(place.name), reverse=True)
