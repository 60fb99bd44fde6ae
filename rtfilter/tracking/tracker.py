"""Enter and leave: the matches of the last event of each key, and the changes with its next event."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np

from rtfilter.basics.dtypes import AnyArray, IntArray
from rtfilter.basics.results import Matches
from rtfilter.basics.text import shown
from rtfilter.events.foreign import readable_twice
from rtfilter.events.keys import attribute_keys, from_text, given_keys, last_rows, to_text
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.filter import EventFilter
from rtfilter.matching.gate import Gate
from rtfilter.snapshots import arrays as snapshot
from rtfilter.subscriptions.ids import NO_IDS, asked_ids
from rtfilter.tracking.codes import Codes
from rtfilter.tracking.transitions import (
    Transition,
    Transitions,
    joined,
    packed,
    rows_of,
    transitions,
    transitions_of_one,
    unpacked,
)

KIND = "rtfilter.tracker"
MAX_KEYS, MAX_MATCHES = 1_000_000, 100_000_000
"""The default limits of kept keys and matches: up to 1 GB."""

Key = str | Callable[[Any], Hashable] | None
"""The source of the keys of events: the name of an attribute, a function of an event, or none."""


class _Undo(NamedTuple):
    """The data to undo a change of the kept matches."""

    keys: Sequence[Hashable]
    lists: Sequence[bytes]
    """The matches of these keys before the change."""
    gone: list[tuple[Hashable, bytes]]
    """Keys that are dropped, least recently seen first."""
    batches: int
    dropped: int
    held: int


class _State(NamedTuple):
    """All data that the tracker keeps."""

    keys: list[Hashable]
    lists: list[bytes]
    names: list[Hashable] | None
    """Ids that are no integers, by code; None for integers."""
    batches: int
    dropped: int


class Tracker:
    """The subscriptions of a filter that events enter, stay inside and leave, by key.

    Each event is compared with the previous event of its key, in this batch or an earlier one. A subscription
    is *entered* if only this event matches it, *inside* if both do, and *left* if only the previous one did.
    All matches of the first event of a key are entered. So a key enters a subscription again only after it
    has left it.

    The reason makes no difference: a key also leaves a subscription that was replaced or removed, and enters
    one that was added, with its next event. A subscription that is removed and added again under the same id
    counts as the same.

    The tracker keeps the matches of the last event for each key that is inside a subscription: about 200
    bytes, the key, and 8 bytes for each match. After each batch, it drops the keys least recently seen until
    at most `max_keys` keys and `max_matches` matches are left. A dropped key reports no ``left``, and is new
    when it is seen again.

    Safe for threads. Threads match in parallel, and compare one after the other; with several threads, send
    all events of a key from one thread. A call that fails changes nothing. A call that is interrupted changes
    nothing or, at its very end, everything: `batches` shows which.

    Parameters
    ----------
    filter : EventFilter
        Its subscriptions may change at any time.
    key : str, callable or None
        Name of an attribute, of the schema or not; or a function of an event of a list; or None if you pass
        keys with each batch.
    max_keys : int
        Most keys to keep.
    max_matches : int
        Most matches to keep, of all keys together.

    Attributes
    ----------
    batches : int
        Number of batches so far; kept in snapshots.
    dropped : int
        Number of keys dropped because of the limits; kept in snapshots.

    Examples
    --------
    >>> from rtfilter import EventFilter, Schema, Tracker
    >>> zones = EventFilter(Schema({"x": float}))
    >>> zones.subscribe("x BETWEEN 0 AND 10", id=7)
    7
    >>> tracker = Tracker(zones, "vehicle")
    >>> batch = [{"vehicle": "a", "x": x} for x in (5, 6, 99)]
    >>> for entered, inside, left in tracker.match_batch(batch):
    ...     entered.tolist(), inside.tolist(), left.tolist()
    ([7], [], [])
    ([], [7], [])
    ([], [], [7])
    """

    def __init__(
        self,
        filter: EventFilter,
        key: Key = None,
        max_keys: int = MAX_KEYS,
        max_matches: int = MAX_MATCHES,
    ) -> None:
        if not (key is None or callable(key) or (isinstance(key, str) and key)):
            raise TypeError(
                "a key is the name of an attribute, such as 'vehicle', or a function of an event, "
                f"not {shown(key)}"
            )
        for name, most in (("max_keys", max_keys), ("max_matches", max_matches)):
            if isinstance(most, bool) or not isinstance(most, int) or most < 1:
                raise ValueError(f"{name} is an integer of at least 1, not {shown(most)}")
        self.filter, self.key = filter, key
        self.max_keys, self.max_matches = max_keys, max_matches
        self.batches = self.dropped = 0
        self._name = key if isinstance(key, str) else None
        self._apart = None if self._name in (None, *filter.schema.names) else Schema({str(key): str})
        self._lists: OrderedDict[Hashable, bytes] = OrderedDict()  # least recently seen first; see `packed`
        self._held = 0  # matches in all lists
        self._codes: Codes | None = None  # codes in the lists instead of ids that are no integers
        self._undo: _Undo | None = None
        self._gate = Gate(self._recover)

    # -- events --------------------------------------------------------------------------------------

    def match_batch(self, events: object, keys: Any = None) -> Transitions:
        """Match a batch as a whole, and compare each event with the previous one of its key.

        Parameters
        ----------
        events : list of dict or of rows, ndarray, masked array, DataFrame or pyarrow.Table
            The events, those of a key in their order. See `Schema.read`.
        keys : sequence of hashable (n,), optional
            The key of each event: a list, a column of pandas, Polars or Arrow, or an array. By default the
            tracker's `key` gives them. Equal keys are the same key: 1 and 1.0, but not "1".

        Raises
        ------
        EventError
            An event cannot be read, has no key, or has a key that is not hashable; nothing is changed.
        TypeError, ValueError
            Keys are missing, or their number differs from that of the events.
        """
        if keys is None and self._apart is not None:
            events = readable_twice(events)
        table = self.filter._road.reader.many(events, whole=True)
        found_keys = self._keys(events, table) if keys is None else given_keys(keys, len(table))
        rows = last_rows(found_keys, self._name if keys is None else None)
        found = self.filter.match_batch(table)
        with self._gate.writing():
            return self._follow(found_keys, rows, found)

    def match(self, event: object, key: Hashable = None) -> Transition:
        """Match one event, and compare it with the previous one of its key.

        Parameters
        ----------
        event : dict, ndarray of shape (number of attributes,), or a batch of one
        key : hashable, optional
            By default the tracker's `key` gives it.
        """
        batch: Any = event
        if isinstance(event, Mapping):
            batch = [event]
        elif isinstance(event, np.ndarray) and event.ndim == 1:
            batch = event[np.newaxis]
        if len(batch) != 1:
            raise ValueError(f"match takes one event, not {len(batch)}; match_batch takes several")
        return self.match_batch(batch, None if key is None else [key])[0]

    def _keys(self, events: Any, table: EventTable) -> list[Any]:
        if self.key is None:
            raise TypeError(
                "this tracker has no key: pass keys=..., or make it with Tracker(filter, 'vehicle')"
            )
        if not callable(self.key):
            return attribute_keys(self.key, self._apart, events, table)
        if not isinstance(events, list | tuple):
            raise TypeError(
                f"the key is a function of an event, and {type(events).__name__} is no list of events: "
                "pass keys=... with one key for each event"
            )
        return list(map(self.key, events))

    def _follow(self, keys: list[Any], rows: dict[Hashable, int], found: Matches) -> Transitions:
        """Compare the matches of events with the previous ones, and keep the last of each key."""
        now = self._coded(found)
        known = [self._lists.get(key, b"") for key in rows]
        if len(keys) == 1:
            changes, matched = transitions_of_one(known[0], now)
            new = [matched]
        else:
            before = unpacked(known)
            if len(rows) < len(keys):
                before = rows_of(joined(before, now), _previous(keys, rows))
            changes = transitions(before, now)
            new = packed(changes.matches(), np.fromiter(rows.values(), np.int64, len(rows)))
        if self._codes is not None:
            names = self._codes.names(changes.ids)
            changes = Transitions(changes.offsets, names, changes.codes, found.kind)
        elif not len(changes.ids):  # only the filter knows the type of its ids
            changes = Transitions(changes.offsets, found.ids, changes.codes, found.kind)
        self._put(list(rows), known, new)
        if self._codes is not None and self._codes.many:
            self._forget_names(self._codes)
        return changes

    # -- ids that are text or UUIDs ------------------------------------------------------------------

    def _coded(self, found: Matches) -> Matches:
        """Return matches with codes instead of ids that are no integers."""
        if not len(found.ids):
            return Matches(found.offsets, NO_IDS)
        if found.ids.dtype != object and self._codes is None:
            return found
        if self._codes is None and not self._lists:
            self._codes = Codes()
        if found.ids.dtype != object or self._codes is None:
            raise TypeError("the tracker has matches with ids of another type; make a new tracker")
        return Matches(found.offsets, self._codes.of(found.ids))

    def _forget_names(self, codes: Codes) -> None:
        """Keep only the names that occur in a list."""
        held = unpacked(list(self._lists.values()))
        needed, places = np.unique(held.ids, return_inverse=True)
        lists = packed(Matches(held.offsets, places), np.arange(len(held)))
        kept = OrderedDict(zip(self._lists, lists, strict=True))
        self._lists, self._codes = kept, Codes(codes.names(needed).tolist())

    def _ids(self, matched: bytes) -> AnyArray:
        """Return the ids of a packed list."""
        ids = np.frombuffer(matched, np.int64)
        return ids if self._codes is None else self._codes.names(ids)

    # -- keys ----------------------------------------------------------------------------------------

    def inside(self, key: Hashable) -> AnyArray:
        """Return the ids of the subscriptions that matched the last event of a key, (k,); none if unknown."""
        with self._gate.writing():
            return self._ids(self._lists.get(key, b""))

    def keys(self) -> list[Hashable]:
        """Return the keys that are inside a subscription, least recently seen first."""
        with self._gate.writing():
            return list(self._lists)

    def __len__(self) -> int:
        """Return the number of keys that are inside a subscription."""
        with self._gate.writing():
            return len(self._lists)

    def __contains__(self, key: Hashable) -> bool:
        with self._gate.writing():
            return key in self._lists

    def forget(self, key: Hashable) -> AnyArray:
        """Drop a key, and return the ids that it was inside, (k,); its next event counts as the first."""
        with self._gate.writing():
            old = self._lists.get(key, b"")
            ids = self._ids(old)
            self._put([key], [old], [b""], seen=False)
            return ids

    def forget_subscriptions(self, ids: Any) -> None:
        """Drop some subscriptions, by id, from all kept matches; no ``left`` is reported for them.

        It takes as long as a pass over all keys. Use it for removed subscriptions whose ``left`` nobody
        needs, or whose ids get another meaning.
        """
        wanted = asked_ids(ids, self.filter._road.subscriptions.kind)
        with self._gate.writing():
            if isinstance(wanted, list):
                gone = NO_IDS if self._codes is None else self._codes.known(wanted)
            else:
                gone = NO_IDS if self._codes is not None else wanted
            keys, lists = list(self._lists), list(self._lists.values())
            held = unpacked(lists)
            kept = ~np.isin(held.ids, gone)
            ends = np.concatenate([[0], np.cumsum(kept)])[held.offsets]
            rows = np.flatnonzero(np.diff(ends) < held.counts)
            some = rows.tolist()
            new = packed(Matches(ends, held.ids[kept]), rows)
            self._put([keys[row] for row in some], [lists[row] for row in some], new, seen=False)

    # -- the kept matches ----------------------------------------------------------------------------

    def _put(
        self, keys: Sequence[Hashable], old: Sequence[bytes], new: Sequence[bytes], seen: bool = True
    ) -> None:
        """Keep other lists for distinct keys, all or none; keys of `seen` events become the most recent."""
        undo = self._undo = _Undo(keys, old, [], self.batches, self.dropped, self._held)
        lists = self._lists
        for key, ids in zip(keys, new, strict=True):
            if ids:
                lists[key] = ids
                if seen:
                    lists.move_to_end(key)
            else:
                lists.pop(key, None)
        count, held = len(lists), self._held + (sum(map(len, new)) - sum(map(len, old)) >> 3)
        for one in lists.items():
            if count <= self.max_keys and held <= self.max_matches:
                break
            undo.gone.append(one)
            count, held = count - 1, held - (len(one[1]) >> 3)
        for _ in undo.gone:
            lists.popitem(last=False)
        self._held = held
        self.dropped += len(undo.gone)
        self.batches += seen
        self._undo = None

    def _recover(self) -> None:
        """Undo an interrupted change. An interrupted undo can be repeated."""
        undo = self._undo
        if undo is None:
            return
        for key, ids in reversed(undo.gone):
            self._lists[key] = ids
            self._lists.move_to_end(key, last=False)
        for key, ids in zip(undo.keys, undo.lists, strict=True):
            if ids:
                self._lists[key] = ids
            else:
                self._lists.pop(key, None)
        self.batches, self.dropped, self._held = undo.batches, undo.dropped, undo.held
        self._undo = None

    def _state(self) -> _State:
        with self._gate.writing():
            codes = self._codes
            names = None if codes is None else codes.names(np.arange(len(codes))).tolist()
            return _State(list(self._lists), list(self._lists.values()), names, self.batches, self.dropped)

    # -- saving --------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the kept matches, so that a program that restarts does not report everything as entered.

        It writes a directory, replaced at once, as `EventFilter.save` does; the filter is not in it. Raises
        `TypeError` for keys other than text, numbers, UUIDs and tuples of these; with other keys, pickle the
        tracker.
        """
        state = self._state()
        held = unpacked(state.lists)
        arrays = {"keys": _as_array(state.keys), "offsets": held.offsets, "ids": held.ids}
        if state.names is not None:
            arrays["names"] = _as_array(state.names)
        meta = {"key": self._name, "max_keys": self.max_keys, "max_matches": self.max_matches}
        snapshot.write(path, KIND, meta | {"batches": state.batches, "dropped": state.dropped}, arrays)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        filter: EventFilter,
        key: Key = None,
        max_keys: int | None = None,
        max_matches: int | None = None,
    ) -> Self:
        """Return a tracker that continues from a saved one, on a filter with the same subscriptions.

        Parameters
        ----------
        path : path
            The directory that `save` wrote.
        filter : EventFilter
        key : str or callable, optional
            By default the saved name. A function is not saved: pass it again.
        max_keys, max_matches : int, optional
            By default the saved limits.

        Raises
        ------
        SnapshotError
        """
        # A wrong argument is not an error of the snapshot.
        cls(
            filter,
            key,
            MAX_KEYS if max_keys is None else max_keys,
            MAX_MATCHES if max_matches is None else max_matches,
        )
        found = snapshot.read(path, KIND)
        with snapshot.opening(path):
            meta, arrays = found.meta, found.arrays
            made = cls(
                filter,
                meta["key"] if key is None else key,
                meta["max_keys"] if max_keys is None else max_keys,
                meta["max_matches"] if max_matches is None else max_matches,
            )
            keys, offsets, ids = from_text(arrays["keys"].tobytes()), arrays["offsets"], arrays["ids"]
            if not offsets.dtype == ids.dtype == np.int64 or not len(offsets) == len(set(keys)) + 1:
                raise ValueError("keys and their lists do not fit together")
            if offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 1).any():
                raise ValueError("the lists of the keys do not follow one another")
            names = from_text(arrays["names"].tobytes()) if "names" in arrays else None
            if names is not None and (ids >= len(names)).any():
                raise ValueError("there are fewer names than ids")
            lists = packed(Matches(offsets, ids), np.arange(len(keys)))
            made._resume(_State(keys, lists, names, int(meta["batches"]), int(meta["dropped"])))
        return made

    def _resume(self, state: _State) -> None:
        self._lists.update(zip(state.keys, state.lists, strict=True))
        self._held = sum(map(len, state.lists)) >> 3
        self._codes = None if state.names is None else Codes(state.names)
        self.batches, self.dropped = state.batches, state.dropped

    def __getstate__(self) -> dict[str, Any]:
        made = {"filter": self.filter, "key": self.key}
        return made | {"max_keys": self.max_keys, "max_matches": self.max_matches, "state": self._state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Tracker.__init__(self, state["filter"], state["key"], state["max_keys"], state["max_matches"])
        self._resume(state["state"])

    def __repr__(self) -> str:
        return f"Tracker({shown(self.key)}, {len(self)} keys inside)"


def _as_array(keys: list[Hashable]) -> AnyArray:
    return np.frombuffer(to_text(keys), np.uint8)


def _previous(keys: list[Any], rows: dict[Hashable, int]) -> IntArray:
    """Return the row of the list that each event is compared with, int64 (n,).

    The first rows are the kept lists of the keys, in the order of `rows`; the events follow.
    """
    latest = dict(zip(rows, range(len(rows)), strict=True))
    previous = []
    for row, key in enumerate(keys, len(rows)):
        previous.append(latest[key])
        latest[key] = row
    return np.array(previous, np.int64)
