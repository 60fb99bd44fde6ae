"""Handles: the integers that stand for subscriptions inside the package, their labels, and claims on them.

Where ids are integers, handles are ids. Where they are text or UUIDs (`rtfilter.subscriptions.labels`), a
handle is used again once its subscription is removed. No batch sees a handle stand for two subscriptions:
changes run alone, and a batch replaces handles by ids before a change may begin.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from math import inf
from typing import Final

import numpy as np

from rtfilter.basics.dtypes import IntArray
from rtfilter.subscriptions.ids import LAST_ID, NO_IDS, WORDS, Name, among
from rtfilter.subscriptions.labels import Labels

LAST_MOMENT: Final = sys.float_info.max
"""The latest moment that is asked for: an expiry of inf means none."""


class ClaimedError(Exception):
    """Raised if a large change has claimed these ids; wait until it has ended."""


class Handles:
    """The handles of a filter, and the labels of the subscriptions that they stand for.

    Attributes
    ----------
    labels : Labels
        Ids that are no integers, expiry and metadata.
    kind : type or None
        The type of the ids: int, str or UUID; None before the first one.
    clock : callable
        Returns seconds; subscriptions expire by it.
    version : int
        The number of changes so far.
    next_id : int
        The next handle that was never used.
    claimed : int64 (n,), ascending
        Handles of a large change; no other change may change them.
    claimed_names : set
        The claimed ids that are no integers; some may have no handle yet.
    hidden : int64 (n,), ascending
        Claimed handles that no reader may see: they are being added, or are removed but still in the matcher.
    """

    def __init__(
        self, next_id: int = 0, kind: type | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.kind, self._settled, self.clock = kind, kind is not None, clock
        self.labels = Labels(kind)
        self.next_id, self.version = next_id, 0
        # Handles that were used and stand for nothing now: one by one, and of large removals.
        self._free: list[int] = []
        self._freed: list[IntArray] = []
        self.claimed = self.hidden = NO_IDS
        self.claimed_names: frozenset[Name] = frozenset()
        self._hidden_count = 0  # the number of hidden handles that exist
        self._reserved = 0  # while given new ids are claimed: the first id behind them

    def moment(self) -> float:
        """Return the present moment for look-ups, -inf if no subscription expires, which takes no time."""
        return -inf if self.labels.deadlines is None else min(self.clock(), LAST_MOMENT)

    def now(self, moment: float) -> float:
        """Return the moment of a batch for predicates that need it; `moment` is the result of `moment()`."""
        return self.clock() if moment == -inf else moment

    # -- assigning -------------------------------------------------------------------------------------------

    def settle(self, kind: type, made_up: bool = False) -> None:
        """Set the type of the ids, or raise `TypeError` or `ValueError` if they have another one.

        The type can still change until a change has succeeded.
        """
        if self.kind is kind:
            return
        if self.kind is not None and (self._settled or self.version):
            own = f"the ids of this filter are {WORDS[self.kind]}"
            if made_up:
                raise ValueError(f"{own}: give each subscription an id")
            raise TypeError(f"{own}, the given ids are {WORDS[kind]}: use one type, or another filter")
        self.labels = Labels(kind)
        self.kind = kind

    def next_ids(self, count: int) -> IntArray:
        """Return handles that were never used, ascending, int64 (n,).

        Raises `ValueError` if none are left.
        """
        first = max(self.next_id, self._reserved)
        if count > LAST_ID + 1 - first:
            raise ValueError(
                f"no ids are left: the next would be {first}, the last is 2**63 - 2; give ids that are free"
            )
        self.next_id = first + count
        return np.arange(first, self.next_id)

    def next_handles(self, count: int) -> IntArray:
        """Return free handles, ascending, int64 (n,). A change that is interrupted now loses them.

        While handles are claimed, no handle is used again: the handles of a large change that failed are
        free, but hidden.
        """
        again: list[int] = []
        if not len(self.claimed):
            again = self._free[-count:]
            del self._free[len(self._free) - len(again) :]
            while self._freed and len(again) < count:
                last = self._freed.pop()
                cut = max(len(last) - count + len(again), 0)
                if cut:
                    self._freed.append(last[:cut])
                again += last[cut:].tolist()
        others = self.next_ids(count - len(again))
        return np.concatenate([np.sort(np.array(again, np.int64)), others])

    def reuse(self) -> None:
        """Make all free handles usable again, after a load from a snapshot."""
        if self.labels.names is not None:
            self._freed = [np.setdiff1d(np.arange(self.next_id), self.labels.names.used())]

    def follow(self, source: Handles) -> None:
        """Take the version and the next id of the subscriptions that these are a copy of."""
        self.version, self.next_id = source.version, source.next_id

    # -- claims of large changes -----------------------------------------------------------------------------

    @property
    def claims(self) -> bool:
        """True if any handle or name is claimed."""
        return len(self.claimed) > 0 or len(self.claimed_names) > 0

    def claim(self, handles: IntArray) -> None:
        """Claim handles, ascending; only their names may be claimed as well."""
        self.claimed = handles

    def claim_names(self, names: frozenset[Name], kind: type | None = None) -> None:
        """Claim ids that are no integers; `kind` is the type of new ids."""
        if kind is not None:
            self.settle(kind)
        self.claimed_names = names

    def claim_new(self, ids: IntArray) -> None:
        """Claim given ids that are to be added, ascending; the next free id lies behind them."""
        self.settle(int)
        self.claimed, self._reserved = ids, int(ids[-1]) + 1

    def claim_next(self, count: int) -> IntArray:
        """Claim and return the next ids, or handles for new names that are claimed already, ascending."""
        if not len(self.claimed_names):
            self.settle(int, made_up=True)
        following = self.next_ids if self.labels.names is None else self.next_handles
        self.claimed = handles = following(count)
        return handles

    def release(self) -> None:
        """Release all claims, once no handle is hidden."""
        self.claimed, self._reserved = NO_IDS, 0
        self.claimed_names = frozenset()

    def refuse_claimed(self, ids: IntArray | list[Name]) -> None:
        """Raise `ClaimedError` if any of some ids is claimed."""
        if isinstance(ids, list):
            claimed = bool(self.claimed_names) and not self.claimed_names.isdisjoint(ids)
        else:
            claimed = len(self.claimed) > 0 and bool(among(ids, self.claimed).any())
        if claimed:
            raise ClaimedError
