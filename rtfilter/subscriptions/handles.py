"""Handles: the integers by which a subscription goes inside, what they stand for, and who may change them.

Where ids are integers, handles are ids. Where they are text or UUIDs (`rtfilter.subscriptions.names`), a
handle is given out again once its subscription is gone: changes run alone, and batches put ids for handles
before one may begin, so no batch sees a handle stand for two.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from math import inf
from typing import Final

import numpy as np

from rtfilter.dtypes import IntArray
from rtfilter.subscriptions.ids import LAST_ID, NO_IDS, Name, among, missing_ids, refuse_kinds
from rtfilter.subscriptions.labels import Labels

LAST_MOMENT: Final = sys.float_info.max
"""Deadlines of inf are none, so nobody asks for a later moment."""


class ClaimedError(Exception):
    """A large change is at these ids; wait until it has ended."""


class Handles:
    """The handles of a filter, and the labels of what they stand for.

    Attributes
    ----------
    labels : Labels
        Ids that are no integers, deadlines and metadata.
    kind : type or None
        Of ids: int, str or UUID; None until the first one comes.
    clock : callable
        Seconds, to which deadlines are compared.
    version : int
        The number of changes so far.
    next_id : int
        The next handle that was never given out.
    claimed : int64 (n,), ascending
        Handles that a large change is at; nobody else may change them.
    claimed_names : set
        The same of ids that are no integers, which may have no handles yet.
    hidden : int64 (n,), ascending
        Claimed handles that nobody may see: those being added, and those that were removed and are still
        there.
    """

    def __init__(
        self, next_id: int = 0, kind: type | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.kind, self._settled, self.clock = kind, kind is not None, clock
        self.labels = Labels(kind)
        self.next_id, self.version = next_id, 0
        # Handles that were given out, and stand for nothing: one by one, and of large removals.
        self._free: list[int] = []
        self._freed: list[IntArray] = []
        self.claimed = self.hidden = NO_IDS
        self.claimed_names: frozenset[Name] = frozenset()
        self._hidden_count = 0  # the number of hidden handles that exist
        self._reserved = 0  # while new ids are claimed that were given: the first one behind them

    def moment(self) -> float:
        """Now, for those who ask what is there; free of cost where nothing has a deadline."""
        return -inf if self.labels.deadlines is None else min(self.clock(), LAST_MOMENT)

    def now(self, moment: float) -> float:
        """The moment of a batch whose `moment` is as above, for predicates that ask for it."""
        return self.clock() if moment == -inf else moment

    # -- giving out ----------------------------------------------------------------------------------------

    def settle(self, kind: type, made_up: bool = False) -> None:
        """Let ids be of a type, or refuse it. Nothing is settled before a change is made."""
        if self.kind is kind:
            return
        if self.kind is not None and (self._settled or self.version):
            raise missing_ids(self.kind) if made_up else refuse_kinds(self.kind, kind)
        self.labels = Labels(kind)
        self.kind = kind

    def next_ids(self, count: int) -> IntArray:
        """Handles that were never given out, ascending, int64 (n,). Raises `ValueError` if none are left."""
        first = max(self.next_id, self._reserved)
        if count > LAST_ID + 1 - first:
            raise ValueError(
                f"no ids are left: the next would be {first}, the last is 2**63 - 2; give ids that are free"
            )
        self.next_id = first + count
        return np.arange(first, self.next_id)

    def next_handles(self, count: int) -> IntArray:
        """Handles that stand for nothing, ascending, int64 (n,). If a change is cut short now, they are lost.

        While handles are claimed none is given out again: those of a large change that failed are free, but
        hidden.
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
        """Let all handles be given out again that stand for nothing; for what was just loaded."""
        if self.labels.names is not None:
            self._freed = [np.setdiff1d(np.arange(self.next_id), self.labels.names.used())]

    def follow(self, source: Handles) -> None:
        """Be of the same version as the subscriptions that these are a copy of."""
        self.version, self.next_id = source.version, source.next_id

    # -- claims of large changes -----------------------------------------------------------------------------

    @property
    def claims(self) -> bool:
        """True if any handle or name is claimed."""
        return len(self.claimed) > 0 or len(self.claimed_names) > 0

    def claim(self, handles: IntArray) -> None:
        """Claim handles, ascending; nothing else may be claimed but their names."""
        self.claimed = handles

    def claim_names(self, names: frozenset[Name], kind: type | None = None) -> None:
        """Claim ids that are no integers; with `kind`, new ones."""
        if kind is not None:
            self.settle(kind)
        self.claimed_names = names

    def claim_new(self, ids: IntArray) -> None:
        """Claim ids that are to be added, ascending: the next ones lie behind them."""
        self.settle(int)
        self.claimed, self._reserved = ids, int(ids[-1]) + 1

    def claim_next(self, count: int) -> IntArray:
        """Claim the next ids, or handles for new names that are claimed already, ascending; returns them."""
        if not len(self.claimed_names):
            self.settle(int, made_up=True)
        following = self.next_ids if self.labels.names is None else self.next_handles
        self.claimed = handles = following(count)
        return handles

    def release(self) -> None:
        """Release what is claimed, when nothing is hidden any more."""
        self.claimed, self._reserved = NO_IDS, 0
        self.claimed_names = frozenset()

    def refuse_claimed(self, ids: IntArray | list[Name]) -> None:
        """Raise `ClaimedError` for what is claimed."""
        if isinstance(ids, list):
            claimed = bool(self.claimed_names) and not self.claimed_names.isdisjoint(ids)
        else:
            claimed = len(self.claimed) > 0 and bool(among(ids, self.claimed).any())
        if claimed:
            raise ClaimedError
