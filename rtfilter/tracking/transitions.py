"""Changes from one event to the next: subscriptions that a key enters, stays inside, or leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.basics.extras import needed
from rtfilter.basics.results import Matches

ENTERED, INSIDE, LEFT = 1, 0, -1
"""The codes of `Transitions`."""
_BITS = 63
"""Bits of a non-negative int64."""


class Transition(NamedTuple):
    """The changes with one event: subscription ids (k,) each, as in `Transitions`."""

    entered: AnyArray
    """Subscriptions that match this event, but not the previous event of its key."""
    inside: AnyArray
    """Subscriptions that match both."""
    left: AnyArray
    """Subscriptions that match the previous event, but not this one."""


@dataclass(frozen=True, eq=False)
class Transitions:
    """The changes with each of n events, compared with the previous event of its key.

    Event `i` concerns the subscriptions `ids[offsets[i]:offsets[i + 1]]`, each with a code.

    Attributes
    ----------
    offsets : int64 (n + 1,)
        The start of each event's ids.
    ids : int64 or object (offsets[n],)
        Subscription ids, each at most once per event; integers ascend within an event.
    codes : int8 (offsets[n],)
        1: entered. 0: inside, as before. -1: left.
    kind : type
        The type of the ids: int, str or uuid.UUID.
    """

    offsets: IntArray
    ids: AnyArray
    codes: NDArray[np.int8]
    kind: type = int

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.offsets) - 1

    def __getitem__(self, event: int) -> Transition:
        """Return the changes with the event in row `event`; negative rows count from the end."""
        row = event + len(self) if event < 0 else event
        if not 0 <= row < len(self):
            raise IndexError(f"event {event} of a batch of {len(self)}")
        own = slice(self.offsets[row], self.offsets[row + 1])
        ids, codes = self.ids[own], self.codes[own]
        return Transition(ids[codes > 0], ids[codes == 0], ids[codes < 0])

    def __iter__(self) -> Iterator[Transition]:
        return (self[row] for row in range(len(self)))

    @cached_property
    def entered(self) -> Matches:
        """For each event, the subscriptions that match it, but not the previous one of its key."""
        return self._only(self.codes == ENTERED)

    @cached_property
    def inside(self) -> Matches:
        """For each event, the subscriptions that match both it and the previous one of its key."""
        return self._only(self.codes == INSIDE)

    @cached_property
    def left(self) -> Matches:
        """For each event, the subscriptions that match the previous one of its key, but not it."""
        return self._only(self.codes == LEFT)

    @property
    def changed(self) -> BoolArray:
        """True for each event that enters or leaves a subscription, bool (n,)."""
        moved = np.concatenate([[0], np.cumsum(self.codes != INSIDE)])
        found: BoolArray = np.diff(moved[self.offsets]) > 0
        return found

    def matches(self) -> Matches:
        """Return the subscriptions that match each event."""
        return self._only(self.codes >= INSIDE)

    def _only(self, wanted: BoolArray) -> Matches:
        kept = np.concatenate([[0], np.cumsum(wanted)])
        offsets, ids = kept[self.offsets], self.ids[wanted]
        return Matches(offsets, ids) if self.kind is int else Matches.named(offsets, ids, self.kind)

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table` with a row per event: lists `entered`, `inside`, `left`.

        Needs extra `arrow`.
        """
        with needed("arrow", "to_arrow()"):
            import pyarrow as pa
        lists = {"entered": self.entered, "inside": self.inside, "left": self.left}
        return pa.table({name: found.to_arrow() for name, found in lists.items()})


def transitions(before: Matches, now: Matches) -> Transitions:
    """Compare n pairs of lists of ids: row i of `before`, in any order, with row i of `now`."""
    count = len(now)
    ids: AnyArray = np.concatenate([before.ids, now.ids])
    if not len(ids):
        return Transitions(np.zeros(count + 1, np.int64), now.ids, np.empty(0, np.int8))
    # One integer for each row, id and side sorts all lists at once: equal neighbours are inside.
    codes, bits, names = _coded(ids, _BITS - 1 - count.bit_length())
    rows = np.arange(count) << (bits + 1)
    keys = codes << 1
    keys[: len(before.ids)] += np.repeat(rows, before.counts)
    keys[len(before.ids) :] += np.repeat(rows + 1, now.counts)
    keys.sort()
    pairs = keys >> 1
    found = (((keys & 1) << 1) - 1).astype(np.int8)
    twins = pairs[1:] == pairs[:-1]
    found[1:][twins] = INSIDE
    kept = np.ones(len(pairs), np.bool_)
    kept[:-1] = ~twins
    pairs, found = pairs[kept], found[kept]
    offsets = np.searchsorted(pairs, np.arange(count + 1) << bits)
    codes = pairs & ((1 << bits) - 1)
    return Transitions(offsets, codes if names is None else names[codes], found)


def transitions_of_one(before: bytes, now: Matches) -> tuple[Transitions, bytes]:
    """Compare the packed list of one event with its new matches; return the changes and the new packed list.

    Most often nothing changes: the lists are equal, or one has nothing.
    """
    ids = np.sort(now.ids)
    data = ids.tobytes()
    if before and data and before != data:
        return transitions(unpacked([before]), now), data
    code = INSIDE if before == data else LEFT if before else ENTERED
    own = ids if data else np.frombuffer(before, np.int64)
    return Transitions(np.array([0, len(own)]), own, np.full(len(own), code, np.int8)), data


def _coded(ids: AnyArray, room: int) -> tuple[IntArray, int, AnyArray | None]:
    """Return integers in the order of ids, their bits, and the ids by integer; None if the ids serve."""
    bits = int(ids.max()).bit_length()
    if bits <= room:
        return ids, bits, None
    names, codes = np.unique(ids, return_inverse=True)
    return codes, len(names).bit_length(), names


def rows_of(lists: Matches, rows: IntArray) -> Matches:
    """Return some of the lists, int64 (k,), in this order; a list may occur several times."""
    counts = lists.counts[rows]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(offsets[-1]) + np.repeat(lists.offsets[rows] - offsets[:-1], counts)
    return Matches(offsets, lists.ids[places])


def joined(first: Matches, second: Matches) -> Matches:
    """Return the lists of both, one after the other."""
    offsets = np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]])
    return Matches(offsets, np.concatenate([first.ids, second.ids]))


def unpacked(lists: Sequence[bytes]) -> Matches:
    """Return lists of ids from the bytes of int64 arrays."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)) >> 3, out=offsets[1:])
    return Matches(offsets, np.frombuffer(b"".join(lists), np.int64))


def packed(lists: Matches, rows: IntArray) -> list[bytes]:
    """Return some of the lists, int64 (k,), as the bytes of int64 arrays; see `unpacked`."""
    data, cuts = lists.ids.astype(np.int64, copy=False).tobytes(), lists.offsets << 3
    ends = zip(cuts[rows].tolist(), cuts[rows + 1].tolist(), strict=True)
    return [data[begin:end] for begin, end in ends]
