"""What one user has not acknowledged yet: low mark and gaps. No I/O.

An event is *settled* when it is known whom it matches. All up to `settled` are; events above it may be known
before others below them, since the shortest are searched first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rtfilter.service.log import Mark


class Delivery(NamedTuple):
    """An event for a user: the deliveries (position, subscription) of all of the user's subscriptions.

    Attributes
    ----------
    position : int
    subscriptions : tuple of str
    body : bytes
        The event as JSON.
    """

    position: int
    subscriptions: tuple[str, ...]
    body: bytes


class Backlog:
    """The deliveries of one user, in the order in which they became known, until they are acknowledged."""

    def __init__(self, mark: Mark = Mark()) -> None:  # noqa: B008  # it is immutable
        self._low, self._beyond = mark.low, set(mark.beyond)
        self.pending: dict[int, Delivery] = {}

    def add(self, delivery: Delivery) -> bool:
        """Keep a delivery; False where it was acknowledged before a restart."""
        if delivery.position <= self._low or delivery.position in self._beyond:
            return False
        self.pending[delivery.position] = delivery
        return True

    def forget(self, subscription: str) -> None:
        """Drop the deliveries of a subscription that was removed."""
        for position, delivery in list(self.pending.items()):
            if subscription in delivery.subscriptions:
                left = tuple(one for one in delivery.subscriptions if one != subscription)
                if left:
                    self.pending[position] = delivery._replace(subscriptions=left)
                else:
                    del self.pending[position]

    def acknowledge(self, positions: Iterable[int]) -> None:
        """Take deliveries away. Those that are not pending are left alone."""
        for position in positions:
            if self.pending.pop(position, None) is not None:
                self._beyond.add(position)

    def mark(self, settled: int) -> Mark:
        """What is acknowledged, to be kept; `settled` as above."""
        low = min(min(self.pending, default=settled + 1), settled + 1) - 1
        self._low = max(self._low, low)
        self._beyond = {position for position in self._beyond if position > self._low}
        return Mark(self._low, frozenset(self._beyond))
