"""What one user has not acknowledged yet: low mark, gaps and bounds. No I/O, no clock.

An entry of the log is *settled* when it is known whom it concerns. All up to `settled` are; events above it
may be known before others below them, since the shortest are searched first.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from rtfilter.service.records import Delivery
from rtfilter.store.tables import Mark, Row

BESIDE: Final = 200
"""Bytes that a delivery takes beside its event, about."""


class Policy(StrEnum):
    """What becomes of a delivery for which there is no room."""

    DROP_OLDEST = "drop-oldest"
    DROP_NEWEST = "drop-newest"
    REFUSE = "refuse"
    """Publishers are refused while a backlog is full. What was taken in before may exceed it."""


class Bounds(NamedTuple):
    """Of each user's backlog.

    Attributes
    ----------
    most, bytes : int
        Deliveries, and bytes of them all.
    age : float
        Seconds after which a delivery is dropped as expired.
    policy : Policy
    """

    most: int = 10_000
    bytes: int = 64 * 2**20
    age: float = 86_400.0
    policy: Policy = Policy.DROP_OLDEST


class Backlog:
    """The deliveries of one user, in the order in which they became known, until they are acknowledged.

    Parameters
    ----------
    bounds : Bounds
    mark : Mark
        What was acknowledged before a restart.

    Attributes
    ----------
    pending : dict of int to Delivery
        By position; others change nothing in it.
    sent : dict of int to int
        How often each position was sent so far.
    """

    def __init__(self, bounds: Bounds = Bounds(), mark: Mark = Mark()) -> None:  # noqa: B008  # immutable
        self._bounds = bounds
        self._low, self._beyond = mark.low, set(mark.beyond)
        self.pending: dict[int, Delivery] = {}
        self.sent: dict[int, int] = {}
        self._bytes = 0
        self._unwritten: set[int] = set()
        self._row_of: dict[int, int] = {}
        self._rows: dict[int, int] = {}  # deliveries that are left of each row that was written
        self._next_row = 1
        self._gone: list[int] = []

    @property
    def full(self) -> bool:
        """Whether one more would be too many."""
        return len(self.pending) >= self._bounds.most or self._bytes >= self._bounds.bytes

    def knows(self, position: int) -> bool:
        """Whether a position is pending, or was acknowledged."""
        return position <= self._low or position in self._beyond or position in self.pending

    def add(self, delivery: Delivery) -> list[int]:
        """Keep a delivery that is not known; returns the positions that were dropped to make room.

        Its own position among them says that it is not kept.
        """
        policy, dropped = self._bounds.policy, []
        if policy == Policy.DROP_NEWEST and self.full:
            self._beyond.add(delivery.position)
            return [delivery.position]
        self._put(delivery)
        self._unwritten.add(delivery.position)
        if policy == Policy.DROP_OLDEST:
            while len(self.pending) > self._bounds.most or self._bytes > self._bounds.bytes:
                oldest = next(iter(self.pending))
                self._take(oldest)
                dropped.append(oldest)
        return dropped

    def restore(self, row: int, deliveries: Iterable[Delivery]) -> None:
        """Take back a row that was written before a restart."""
        self._next_row = max(self._next_row, row + 1)
        left = [one for one in deliveries if not self.knows(one.position)]
        for delivery in left:
            self._put(delivery)
            self._row_of[delivery.position] = row
        self._rows[row] = len(left)
        if not left:
            del self._rows[row]
            self._gone.append(row)

    def _put(self, delivery: Delivery) -> None:
        self.pending[delivery.position] = delivery
        self._bytes += len(delivery.body) + BESIDE

    def _take(self, position: int) -> bool:
        """Remove what is pending; it counts as acknowledged."""
        delivery = self.pending.pop(position, None)
        if delivery is None:
            return False
        self._bytes -= len(delivery.body) + BESIDE
        self._beyond.add(position)
        self.sent.pop(position, None)
        self._unwritten.discard(position)
        row = self._row_of.pop(position, None)
        if row is not None:
            self._rows[row] -= 1
            if not self._rows[row]:
                del self._rows[row]
                self._gone.append(row)
        return True

    def acknowledge(self, positions: Iterable[int]) -> int:
        """Take deliveries away; returns how many were pending. Others are left alone."""
        return sum(self._take(position) for position in positions)

    def forget(self, subscription: int) -> None:
        """Drop the deliveries of a subscription that was removed."""
        for position, delivery in list(self.pending.items()):
            if subscription in delivery.subscriptions and delivery.ended is None:
                left = tuple(one for one in delivery.subscriptions if one != subscription)
                if left:
                    self.pending[position] = delivery._replace(subscriptions=left)
                else:
                    self._take(position)

    def expire(self, moment: float) -> int:
        """Drop what arrived longer ago than the bounds let it stay; returns how many."""
        passed = []
        for position, delivery in self.pending.items():  # from the oldest on, nearly
            if delivery.at + self._bounds.age > moment:
                break
            passed.append(position)
        return self.acknowledge(passed)

    def mark(self, settled: int) -> Mark:
        """What is acknowledged, to be kept; `settled` as above."""
        low = min(min(self.pending, default=settled + 1), settled + 1) - 1
        self._low = max(self._low, low)
        self._beyond = {position for position in self._beyond if position > self._low}
        return Mark(self._low, frozenset(self._beyond))

    def unwritten(self, user: str) -> Row | None:
        """What has become pending since this was last asked, as a row to be written."""
        if not self._unwritten:
            return None
        row, positions = self._next_row, sorted(self._unwritten)
        self._next_row += 1
        self._unwritten.clear()
        self._rows[row] = len(positions)
        self._row_of.update(dict.fromkeys(positions, row))
        held = [(at, self.pending[at].subscriptions, self.pending[at].ended) for at in positions]
        return Row(user, row, held)

    def emptied(self) -> list[int]:
        """The rows of which nothing is left since this was last asked."""
        gone, self._gone = self._gone, []
        return gone
