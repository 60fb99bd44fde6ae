"""Indexes larger than a process: shards that executors build, and a small index of all their leaves.

Everything lies in one directory on a file system that driver and executors reach::

    versions/00000001.json   names the shards of a version, and its index of leaves; written last, by one
    shards/<name>/           snapshots of filters, never changed
    leaves/<name>/           the same: a "subscription" for the box of each leaf of each shard

A change makes a new version: it writes the shards it touches and shares the others. Readers of an older
version finish on it. Of several programs that change a version, one makes the next.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np

from rtfilter import EventFilter, Schema, SnapshotError
from rtfilter.basics.dtypes import AnyArray, BoolArray
from rtfilter.basics.options import require_on_error
from rtfilter.basics.text import numbered
from rtfilter.filter import Ids, inside
from rtfilter.matchers.registry import make_matcher
from rtfilter.matchers.rtree import tree_of
from rtfilter.snapshots import manifest as snapshot
from rtfilter.spark import places, versions
from rtfilter.spark.cuts import Cuts
from rtfilter.spark.leases import Lease
from rtfilter.spark.refusals import own_errors
from rtfilter.spark.routes import LEAVES, Route
from rtfilter.spark.subscribing import (
    BUILT,
    NO_ROW,
    SAMPLE,
    Built,
    Shard,
    SubscriptionFrame,
    collected,
    empty_shard,
    ids_of,
    save,
    tell,
    without,
    written,
)
from rtfilter.subscriptions.ids import asked_ids
from rtfilter.subscriptions.loading import BadSubscription, OnError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rtfilter.spark.blocks import Batches

#: Name and number of the format of the files of versions.
FORMAT = "rtfilter.sharded", 2
#: Seconds after which files that no version names are removed.
ABANDONED = 86_400.0
#: Subscriptions of a shard, by default.
SIZE = 1_000_000
#: Subscriptions from which a shard may be cut, if it has twice as many as shards had at first.
LEAST = 10_000


Arguments = ParamSpec("Arguments")


def _change(
    method: Callable[Concatenate[ShardedIndex, Arguments], ShardedIndex],
) -> Callable[Concatenate[ShardedIndex, Arguments], ShardedIndex]:
    """Let a method raise errors of rtfilter, and say so if another program has replaced its version."""

    @wraps(method)
    def run(self: ShardedIndex, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> ShardedIndex:
        try:
            with own_errors():
                return method(self, *arguments, **named)
        except SnapshotError:
            if max(_versions(self.place), default=0) > self.version:  # it may have removed shards of this one
                raise _taken(self.place, self.version + 1) from None
            raise

    return run


@dataclass(frozen=True)
class ShardedIndex:
    """A version of an index in shards. Never changes; `append` and `remove` return the next version.

    Attributes
    ----------
    place : str
        Absolute path or URI of its directory.
    version : int
        Its number, from 1.
    schema : Schema
    shards : list of Shard
    """

    place: str
    version: int
    schema: Schema
    capacity: tuple[int, int]
    most: int
    """Most subscriptions of a shard; a larger one is cut into several."""
    cuts: Cuts
    shards: list[Shard]
    leaves: Shard

    @classmethod
    def open(cls, path: str | PathLike[str], version: int | None = None) -> ShardedIndex:
        """Return the newest version of the index that `build_sharded` made there, or the given one.

        Raises `SnapshotError`.
        """
        place = places.absolute(path)
        if version is None:
            newest = cls.find(place)
            if newest is None:
                raise SnapshotError(f"{place} is no index in shards; make one with build_sharded")
            return newest
        numbers = _versions(place)
        if version not in numbers:
            raise SnapshotError(f"{place} has the versions {', '.join(map(str, numbers))}, not {version}")
        return cls._read(place, version)

    @classmethod
    def find(cls, path: str | PathLike[str]) -> ShardedIndex | None:
        """Return the newest version there, or None if there is no index in shards. Raises `SnapshotError`."""
        place, before = places.absolute(path), 0
        while numbers := _versions(place):
            try:
                return cls._read(place, numbers[-1])
            except FileNotFoundError:
                if numbers[-1] == before:
                    raise
                before = numbers[-1]  # it has expired meanwhile, so there is a newer one
        return None

    @property
    def kind(self) -> type:
        """The type of the ids: int or str."""
        return self._lease(self.shards[0]).kind

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return sum(shard.subscriptions for shard in self.shards)

    def __repr__(self) -> str:
        """Return a single line, because the parts would fill pages."""
        counts = f"{numbered(len(self), 'subscription')} in {numbered(len(self.shards), 'shard')}"
        return f"ShardedIndex({self.place!r}, version {self.version}, {counts})"

    def route(self) -> Route:
        """Return the route of events to its shards."""
        leaves = Lease(self._place("leaves", self.leaves.name), self.leaves.manifest)
        return Route(self._leases(), leaves, np.array([shard.subscriptions + 1.0 for shard in self.shards]))

    @_change
    def append(self, subscriptions: DataFrame, *, on_error: OnError = "raise") -> ShardedIndex:
        """Add subscriptions, all or none; only their shards are built again.

        Parameters
        ----------
        subscriptions : DataFrame
        on_error : "raise", "skip" or callable
            See `build_sharded`. An id that the index has already cannot be used.

        Returns
        -------
        ShardedIndex
            The next version.

        Raises
        ------
        ValueError
            Ids occur twice, or are in the index already.
        PredicateError
            A subscription cannot be used.
        RuntimeError
            Another program has made the next version meanwhile; this change has no effect.
        """
        require_on_error(on_error)
        given, _ = SubscriptionFrame.of(subscriptions, self.schema, self.kind).usable(on_error)
        known = self._known(subscriptions.sparkSession, given.ids()).tolist()
        remedy = "exists already; remove it first, or use `update`"
        if known and on_error == "raise":
            raise ValueError(f"subscription {known[0]} {remedy}")
        if known:
            tell([BadSubscription(NO_ROW, id, None, ValueError(remedy)) for id in known], on_error)
            given = replace(given, frame=without(given.frame, known))
        return self._next(self._built(given, self._leases()))

    @_change
    def update(
        self, subscriptions: DataFrame, removed: Ids = (), *, on_error: OnError = "raise"
    ) -> ShardedIndex:
        """Add or replace subscriptions, and remove others, in one version; see `append` and `remove`.

        If `on_error` leaves out a subscription, the one that it would replace stays.
        """
        require_on_error(on_error)
        gone = self._asked(removed)
        given, _ = SubscriptionFrame.of(subscriptions, self.schema, self.kind).usable(on_error)
        old = np.concatenate([given.ids(), gone])
        rest = self._without(subscriptions.sparkSession, old)
        leases = self._leases()
        for one in rest:
            leases[one.number] = self._lease(one.shard)
        added = self._built(given, leases)
        again = {one.number for one in added}
        built = [one for one in rest if one.number not in again] + added
        try:
            return self._next(built) if built else self
        finally:
            for one in rest:
                if one.number in again:  # written twice, and no version names the first
                    places.remove(self._lease(one.shard).place)

    @_change
    def remove(self, ids: DataFrame | Ids) -> ShardedIndex:
        """Remove subscriptions; unknown ids are ignored.

        Parameters
        ----------
        ids : DataFrame or array_like of int or str (n,)
            A DataFrame has them in a column `id`.

        Returns
        -------
        ShardedIndex
            The next version, or this one if it had none of them.

        Raises
        ------
        RuntimeError
            Another program has made the next version meanwhile.
        """
        from pyspark.sql import DataFrame, SparkSession

        if isinstance(ids, DataFrame):
            spark = ids.sparkSession
            gone = self._asked(ids_of(ids))
        else:
            spark = SparkSession.active()
            gone = self._asked(ids)
        built = self._without(spark, gone)
        return self._next(built) if built else self

    def expire(self, keep: int = 1) -> int:
        """Remove older versions, and the shards that only they had; return the number of removed versions.

        Of the versions up to this one, the last `keep` stay. Matching against a removed version fails. Files
        that failed changes have left are removed once they are a day old.
        """
        if keep < 1:
            raise ValueError(f"at least 1 version is kept, not {keep}")
        numbers = _versions(self.place)
        gone = [number for number in numbers if number < self.version][: -(keep - 1) or None]
        names = {number: self._names_of(number) for number in numbers}
        known = set().union(*(own for number, own in names.items() if number not in gone))
        for number in gone:
            places.remove(versions.file_of(self._place("versions"), number))
            for name in names[number] - known:
                places.remove(self._place(name))
            known |= names[number]
        for folder in ("shards", "leaves", "versions"):
            for name in places.names(self._place(folder), older_than=ABANDONED):
                abandoned = ".json." in name if folder == "versions" else f"{folder}/{name}" not in known
                if abandoned:
                    places.remove(self._place(folder, name))
        return len(gone)

    # -- within --------------------------------------------------------------------------------------

    def _place(self, *names: str) -> str:
        """Return the place of a file or directory of the index."""
        return places.under(self.place, "/".join(names))

    def _lease(self, shard: Shard) -> Lease:
        return Lease(self._place("shards", shard.name), shard.manifest)

    def _leases(self) -> list[Lease]:
        return [self._lease(shard) for shard in self.shards]

    def _built(self, given: SubscriptionFrame, shards: Sequence[Lease | None]) -> list[Built]:
        return given.build(self.cuts, shards, self._place("shards"), self.capacity, self.most)

    def _asked(self, ids: Any) -> AnyArray:
        """Return ids to look up, int64 (n,), or object (n,) of text. Raises `TypeError` for other ids."""
        found = asked_ids(ids, self.kind)
        return np.array(found, object) if isinstance(found, list) else found

    def _names_of(self, number: int) -> set[str]:
        """Return the directories of another version; none if another program has removed it meanwhile."""
        try:
            return self._read(self.place, number)._names()
        except FileNotFoundError:
            return set()

    def _names(self) -> set[str]:
        """Return the directories of its snapshots."""
        return {*(f"shards/{shard.name}" for shard in self.shards), f"leaves/{self.leaves.name}"}

    def _each(self, spark: SparkSession) -> DataFrame:
        """Return a frame with a row for each shard, each in its own task."""
        return spark.range(0, len(self.shards), 1, len(self.shards))

    def _known(self, spark: SparkSession, ids: AnyArray) -> AnyArray:
        """Return those of the ids that are in the index."""
        leases, name = self._leases(), "long" if self.kind is int else "string"

        def known(batches: Batches) -> Batches:
            import pyarrow as pa

            for number in _numbers(batches):
                present = ids[_among(ids, leases[number].open().ids())]
                kind = pa.int64() if name == "long" else pa.string()
                yield pa.RecordBatch.from_arrays([pa.array(present, kind)], ["id"])

        return ids_of(self._each(spark).mapInArrow(known, f"id {name}"))

    def _without(self, spark: SparkSession, ids: AnyArray) -> list[Built]:
        """Write the shards that have any of the ids again without them, and return these."""
        leases, place = self._leases(), self._place("shards")

        def without(batches: Batches) -> Batches:
            for number in _numbers(batches):
                if _among(leases[number].open().ids(), ids).any():
                    filter = leases[number].load()
                    filter.unsubscribe_many(ids)
                    yield written(number, filter, place)

        return collected(self._each(spark).mapInArrow(without, BUILT))

    def _next(self, built: list[Built]) -> ShardedIndex:
        """Publish the version in which these shards replace their predecessors."""
        shards, cuts, boxes = list(self.shards), self.cuts, {}
        for one in built:
            number = one.number if one.part == 0 else len(shards)
            if one.cuts.cuts:
                cuts = cuts.with_parts(number, one.cuts, len(shards))
            shards[number : number + 1] = [one.shard]
            boxes[number] = one.leaves
        old = self.route().leaves if len(boxes) < len(shards) else None
        leaves = EventFilter(self.schema, matcher="rtree")
        tree = tree_of(inside(leaves).matcher)
        if old is not None:
            ids, low, high, _ = tree_of(inside(old.open()).matcher).content()
            keep = ~np.isin(ids // LEAVES, list(boxes))
            tree.extend(ids[keep], low[keep], high[keep])
        for number, sides in boxes.items():
            low, high = sides.reshape(2, -1, self.schema.dimensions)
            tree.extend(number * LEAVES + np.arange(len(low)), low, high)
        name = uuid.uuid4().hex
        manifest = save(leaves, self._place("leaves", name))
        made = replace(
            self,
            version=self.version + 1,
            cuts=cuts,
            shards=shards,
            leaves=Shard(name, len(leaves), manifest),
        )
        try:
            made._publish()
        except (versions.VersionTakenError, SnapshotError):  # then no version names what was written for it
            for place in (*(self._lease(one.shard).place for one in built), self._place("leaves", name)):
                places.remove(place)
            raise
        return made

    def _publish(self) -> None:
        for shard in self.shards:
            place = self._lease(shard).place
            try:
                present = places.read_bytes(places.under(place, snapshot.MANIFEST)) == shard.manifest
            except OSError:
                present = False
            if not present:
                raise SnapshotError(
                    f"the driver does not see what an executor wrote in {place}: "
                    "build the index on a file system that all of them share"
                )
        content: dict[str, Any] = {
            "format": FORMAT[0],
            "format_version": FORMAT[1],
            "schema": self.schema.to_json(),
            "capacity": self.capacity,
            "most": self.most,
            "cuts": self.cuts.to_json(),
            "shards": [_shard_to_json(shard) for shard in self.shards],
            "leaves": _shard_to_json(self.leaves),
        }
        text = json.dumps({**content, "crc32": snapshot.checksum(content)}, indent=1)
        try:
            versions.publish(self._place("versions"), self.version, text.encode())
        except versions.VersionTakenError:
            raise _taken(self.place, self.version) from None

    @classmethod
    def _read(cls, place: str, number: int) -> ShardedIndex:
        file = versions.file_of(places.under(place, "versions"), number)
        text = places.read_bytes(file)
        try:
            content = json.loads(text)
            checksum = content.pop("crc32")
            if (content["format"], content["format_version"]) != FORMAT:
                raise SnapshotError(
                    f"{file} has format {content['format']} {content['format_version']}, this rtfilter reads "
                    f"{FORMAT[0]} {FORMAT[1]}; build it again with this version"
                )
            if checksum != snapshot.checksum(content):
                raise SnapshotError(f"{file} is altered: its checksum does not fit; build the index again")
            return cls(
                place,
                number,
                Schema.from_json(content["schema"]),
                (content["capacity"][0], content["capacity"][1]),
                content["most"],
                Cuts.from_json(content["cuts"]),
                [_shard_from_json(shard) for shard in content["shards"]],
                _shard_from_json(content["leaves"]),
            )
        except SnapshotError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise SnapshotError(f"{file} is truncated or altered: {error}; build the index again") from None


@own_errors()
def build_sharded(
    subscriptions: DataFrame,
    path: str | PathLike[str],
    schema: Schema,
    *,
    shards: int | None = None,
    capacity: tuple[int, int] | None = None,
    on_error: OnError = "raise",
) -> ShardedIndex:
    """Build an index of any size on the executors, in shards of neighbouring subscriptions.

    Space is cut on a sample of the subscriptions by the rule that packs the nodes of the R*-tree. Each task
    packs one shard; the driver gets only the boxes of the leaves. Shards are R*-trees, whose leaves give the
    shards of an event; a filter with another matcher goes to `match_frame` as a whole.

    Parameters
    ----------
    subscriptions : DataFrame
        A row each: `id` (distinct; text, or integers that are not negative), and either `where`, an SQL
        condition, or closed bounds in columns ``low.<attribute>`` and ``high.<attribute>`` or in structs
        `low` and `high`; null is no bound, and an attribute without both may be missing. Optional columns are
        `ttl`, seconds or a day-time interval from this call on, or `expires`, timestamps or seconds since
        1970, and `metadata`, JSON objects as strings; null is none.
    path : path or URI
        A directory that does not exist or is empty, on a file system that driver and executors share. Of
        URIs, those that Arrow reaches: file, hdfs, s3, gs, abfs; with its options, such as
        ``s3://bucket/path?region=eu-west-1``.
    schema : Schema
        Schema of the events.
    shards : int, optional
        Their number; by default one for each million subscriptions. A task takes the memory of a shard.
    capacity : (int, int), optional
        See `RStarTree`.
    on_error : "raise", "skip" or callable
        The treatment of a subscription that cannot be used: raise an error for one of them and build nothing;
        leave it out and name it in the log; or call this with a `rtfilter.BadSubscription` for each, before
        all others are added. The search for all of them takes a job of its own.

    Returns
    -------
    ShardedIndex
        Version 1.

    Raises
    ------
    ValueError
        `shards` is below 1, or ids are null, negative or not distinct.
    PredicateError
        A subscription or its label cannot be used; names it by its id.
    SnapshotError
        The path is not empty, another program builds there, or the executors write to a file system that
        the driver does not see.
    """
    if shards is not None and shards < 1:
        raise ValueError(f"an index has at least 1 shard, not {shards}")
    require_on_error(on_error)
    options = {} if capacity is None else {"capacity": capacity}
    capacity = tree_of(make_matcher("rtree", schema, **options)).capacity  # raises the error
    place = places.absolute(path)
    taken = SnapshotError(f"{place} is not empty; choose another path, or open what is there and append")
    if _versions(place) or places.names(place):
        raise taken
    given, count = SubscriptionFrame.of(subscriptions, schema).usable(on_error)
    number = min(shards or -(-count // SIZE), count) or 1
    ids, low, high = given.sample(min(1.0, 1.1 * SAMPLE * number / max(count, 1)))
    cuts = Cuts.into(min(number, len(ids)) or 1, low, high, ids)
    number = len(cuts.cuts) + 1
    nothing = Shard("", 0, b"")
    most = 2 * SIZE if shards is None else max(2 * -(-count // number), LEAST)
    draft = ShardedIndex(place, 0, schema, capacity, most, cuts, [nothing] * number, nothing)
    try:
        versions.publish(draft._place("versions"), 0, b"")  # so that no other program builds there
    except versions.VersionTakenError:
        raise taken from None
    try:
        made = draft._next(_built(given, draft))
    except BaseException:
        for folder in ("shards", "leaves", "versions"):
            places.remove(draft._place(folder))
        raise
    places.remove(versions.file_of(draft._place("versions"), 0))
    return made


def _built(given: SubscriptionFrame, draft: ShardedIndex) -> list[Built]:
    """Return the shards of a new index, some of them perhaps empty."""
    number, place, schema, capacity = len(draft.shards), draft._place("shards"), draft.schema, draft.capacity
    kind = given.reader.kind
    built = draft._built(given, [None] * number)
    missing = set(range(number)) - {one.number for one in built}  # shards that a small sample missed
    if missing:

        def empty(batches: Batches) -> Batches:
            for shard in _numbers(batches):
                if shard in missing:
                    yield written(shard, empty_shard(schema, capacity, kind), place)

        built += collected(draft._each(given.frame.sparkSession).mapInArrow(empty, BUILT))
    return built


def _among(ids: AnyArray, others: AnyArray) -> BoolArray:
    """Return which of n ids are among others of the same type, bool (n,)."""
    import pandas as pd

    found: BoolArray = pd.Index(ids).isin(others)
    return found


def _numbers(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _taken(place: str, number: int) -> versions.VersionTakenError:
    return versions.VersionTakenError(
        f"another program has made version {number} of {place}: open it again, and repeat the change"
    )


def _versions(place: str) -> list[int]:
    try:
        return versions.numbers(places.under(place, "versions"))
    except OSError as error:
        raise SnapshotError(f"{place} cannot be read: {error}") from None


def _shard_to_json(shard: Shard) -> dict[str, Any]:
    return {**shard._asdict(), "manifest": shard.manifest.decode()}


def _shard_from_json(data: Mapping[str, Any]) -> Shard:
    return Shard(data["name"], data["subscriptions"], data["manifest"].encode())
