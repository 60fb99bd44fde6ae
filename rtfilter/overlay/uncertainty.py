"""The uncertain knowledge of a broker: entries with a lost connection, and neighbours not heard yet."""

from __future__ import annotations

from typing import Final

from rtfilter.overlay.broker_names import Connection, ConnectionKind, SubscriptionId
from rtfilter.overlay.core import Core

LOST: Final = Connection(ConnectionKind.LINK, "")
"""In a table, the connection of uncertain subscriptions, whose place is unknown."""


class Uncertainty:
    """Records what may be missing, so that no event is acknowledged that may have missed a subscriber.

    A subscription whose connection was lost stays in the table for `Core.grace` seconds, with the connection
    `LOST`, or until it comes back from the same connection. If it comes from another one, it stays uncertain,
    because that message may be older than the loss.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._until: dict[SubscriptionId, dict[Connection, float]] = {}
        self._doubtful_until = self._withheld_until = float("-inf")
        self.unheard: set[Connection] = set()

    def keep(self, id: SubscriptionId, connection: Connection) -> None:
        """Mark a subscription whose connection was lost as uncertain from now on."""
        assert self._core.grace is not None
        self._until.setdefault(id, {})[connection] = self._core.now + self._core.grace

    def settle(self, id: SubscriptionId, connection: Connection) -> bool:
        """Note that a subscription came back from a connection; return whether it is certain again."""
        lost = self._until.get(id, {})
        if lost.pop(connection, None) is None or lost:
            return False
        del self._until[id]
        return True

    def forget(self, id: SubscriptionId) -> None:
        """Remove a subscription that is certainly gone, or that another broker has now."""
        self._until.pop(id, None)

    def due(self) -> list[SubscriptionId]:
        """Return the subscriptions whose grace is over."""
        now = self._core.now
        return [id for id, lost in self._until.items() if max(lost.values()) <= now]

    def lost(self) -> dict[Connection, float]:
        """Return the connections whose loss made a subscription uncertain, each with the time."""
        found: dict[Connection, float] = {}
        for lost in self._until.values():
            for connection, until in lost.items():
                since = until - (self._core.grace or 0.0)
                found[connection] = min(since, found.get(connection, since))
        return found

    def doubted(self) -> float | None:
        """Return the time since when everything is uncertain; None if it is not."""
        if self._core.now >= self._doubtful_until:
            return None
        return self._doubtful_until - (self._core.grace or 0.0)

    def doubt(self) -> None:
        """Make all knowledge uncertain for the grace.

        Also confirm nothing: the broker that had this place before may not know yet that it has lost it.
        """
        if self._core.grace is not None:
            self._doubtful_until = self._withheld_until = self._core.now + self._core.grace

    def part(self) -> None:
        """Note that a linked cluster is gone; if events could stop there, confirm nothing for the grace."""
        if self._core.grace is not None and any(one.stops for one in self._core.strategies.values()):
            self._withheld_until = self._core.now + self._core.grace

    def may_confirm(self, type: str) -> bool:
        """Return whether all brokers that must know the subscriptions to a type can be reached."""
        return self._core.now >= self._withheld_until and self._core.is_whole(type)

    def is_sure(self, type: str) -> bool:
        """Return whether a designated broker knows its neighbours and their subscriptions to a type.

        Uncertain entries do not count.
        """
        core = self._core
        return core.now >= self._doubtful_until and not self.unheard and core.is_whole(type)

    def __len__(self) -> int:
        return len(self._until)
