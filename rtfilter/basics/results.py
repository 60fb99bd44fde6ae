"""Results of matching a batch: ids, candidates that may need verification, and the record of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, Flags, FloatArray, IntArray
from rtfilter.basics.extras import needed


class Hits(NamedTuple):
    """The candidates of n points from a search; those of inexact boxes are not yet verified."""

    offsets: IntArray
    """int64 (n + 1,): point i has ``ids[offsets[i]:offsets[i + 1]]``."""
    ids: IntArray
    """int64 (hits,), each at most once per point."""
    exact: Flags | None
    """uint8 (hits,): 0 if the box is only a superset; None if all boxes are exact."""
    visits: IntArray
    """int64 (n,): operations per point; for the R*-tree, the visited nodes."""

    @classmethod
    def of_one(cls, ids: IntArray, exact: Flags | None, visits: int = 0) -> Hits:
        """Return the hits of one point; `visits` is 0 if the caller does not count them."""
        return cls(np.array((0, len(ids))), ids, exact, np.array((visits,)))

    @classmethod
    def joined(cls, parts: Sequence[Hits], ids: IntArray, exact: Flags | None) -> Hits:
        """Return the hits of several searches as one; `ids` and `exact` are those of all."""
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        visits = np.concatenate([part.visits for part in parts])
        return cls(np.concatenate([[0], np.cumsum(counts)]), ids, exact, visits)

    def only(self, wanted: BoolArray) -> Hits:
        """Return the hits chosen by `wanted`, bool (hits,)."""
        others = (~wanted).nonzero()[0]  # mostly few
        if not len(others):
            return self
        exact = None if self.exact is None else self.exact[wanted]
        offsets = self.offsets - others.searchsorted(self.offsets)
        return Hits(offsets, self.ids[wanted], exact, self.visits)


class RelatedIds(NamedTuple):
    """The subscriptions with one relation to a predicate, such as all that cover it."""

    ids: AnyArray
    """The ids for which the answer is certain, int64 (n,), or object (n,) of text or UUIDs; ascending."""
    unknown: AnyArray
    """The ids for which the answer is unknown; ascending. No other id is related; see `docs/covering.md`."""
    visits: int
    """Operations of the index; for the R*-tree, the visited nodes."""


class StreamRecord(NamedTuple):
    """A record of one stream of n events in g groups, for observers."""

    size_class: int
    ended: FloatArray
    """float64 (g,): seconds from the arrival of the batch to the end of each group."""
    sizes: IntArray
    """int64 (g,): events of each group."""
    matches: int
    estimation: float
    """Seconds for the estimate and the order."""
    workload: IntArray
    """int64 (n,): the estimated work of each event."""
    visits: IntArray
    """int64 (n,): operations of the search of each event, after the estimate."""


@dataclass(frozen=True, eq=False)
class Matches:
    """Matches of n events as two arrays; event `i` matches `ids[offsets[i]:offsets[i + 1]]`.

    Attributes
    ----------
    offsets : int64 (n + 1,)
        The first match of each event; `offsets[0]` is 0 and `offsets[n]` the number of matches.
    ids : int64 (offsets[n],), or object (offsets[n],)
        Subscription ids, each at most once per event, in no particular order; object for text or UUIDs.
    kind : type
        Type of the ids: int, str or uuid.UUID.
    """

    offsets: IntArray
    ids: AnyArray
    kind: type = field(default=int, init=False, repr=False)

    @classmethod
    def named(cls, offsets: IntArray, ids: AnyArray, kind: type) -> Matches:
        """Return matches whose ids have the type `kind`, str or uuid.UUID."""
        made = cls(offsets, ids)
        object.__setattr__(made, "kind", kind)
        return made

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.offsets) - 1

    def __getitem__(self, event: int) -> AnyArray:
        """Return the ids that match the event in row `event`; negative rows count from the end."""
        row = event + len(self) if event < 0 else event
        if not 0 <= row < len(self):
            raise IndexError(f"event {event} is outside a batch of {len(self)} events")
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[AnyArray]:
        return (self[row] for row in range(len(self)))

    def only(self, wanted: Sequence[bool] | BoolArray) -> Matches:
        """Return the matches chosen by `wanted`, bool (offsets[n],)."""
        kept = np.concatenate([[0], np.cumsum(wanted, dtype=np.int64)])
        return Matches.named(kept[self.offsets], self.ids[np.asarray(wanted, np.bool_)], self.kind)

    def lists(self) -> list[Sequence[Any]]:
        """Return the ids of each event; an empty tuple if it has none."""
        ids, ends = self.ids.tolist(), self.offsets.tolist()
        return [ids[first:last] if first < last else () for first, last in pairwise(ends)]

    @property
    def counts(self) -> IntArray:
        """Matches per event, int64 (n,)."""
        return np.diff(self.offsets)

    @property
    def any(self) -> BoolArray:
        """True for each event that has a match, bool (n,)."""
        return self.offsets[1:] > self.offsets[:-1]

    def pairs(self) -> AnyArray:
        """Return event rows and subscription ids, int64 (2, matches), or object; events ascend."""
        return np.stack([np.repeat(np.arange(len(self)), self.counts), self.ids])

    def to_arrow(self) -> Any:
        """Return a `pyarrow.LargeListArray`: one list of ids per event. Needs the extra `arrow`.

        Ids are int64, large_string, or binary(16), which is how Arrow stores UUIDs.
        """
        with needed("arrow", "to_arrow()"):
            import pyarrow as pa
        # Large offsets: a batch may have more than 2**31 matches.
        return pa.LargeListArray.from_arrays(pa.array(self.offsets), arrow_ids(self.ids, self.kind))


def arrow_ids(ids: AnyArray, kind: type) -> Any:
    """Return ids of one type as an array of Arrow: int64, large_string or binary(16)."""
    import pyarrow as pa

    if kind is int:
        return pa.array(ids)
    if kind is UUID:
        return pa.array([id.bytes for id in ids.tolist()], pa.binary(16))
    return pa.array(ids, pa.large_string())
