"""The unacknowledged deliveries of one user: low mark, gaps and bounds. No I/O, no clock.

An entry of the log is *settled* when its matches are known and in the backlogs. All entries up to `settled`
are; an event above it may become known before one below it, since the shortest searches come first.

Pending deliveries are stored in rows, each written once for many deliveries. A row is written again when few
of its deliveries are left. So the acknowledged positions to remember are bounded by the pending ones: each is
still in a row, or above the settled position of the log, and would be sent again after a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

from msgspec.structs import replace

from rtfilter.service.records import Sending, UserDelivery
from rtfilter.store.log_tables import Acknowledged, Held

BESIDE: Final = 200
"""Bytes that a delivery takes beside its event and its ids, about."""
OF_ID: Final = 8
"""Bytes that an id takes: it is kept once for all deliveries."""
SMALL: Final = 16
"""Most deliveries of a row that is never written again, however few of them are left."""
STEP: Final = 5000
"""Ids from which subscriptions that were removed are dropped in one step."""
OTHER: Final = 10
"""Ids that take as long as a delivery beside its ids, about."""


class Policy(StrEnum):
    """The treatment of a delivery for which there is no room."""

    DROP_OLDEST = "drop-oldest"
    DROP_NEWEST = "drop-newest"
    REFUSE = "refuse"
    """Publishers are refused while a backlog is full. Events that were accepted before may exceed it."""


class BacklogLimits(NamedTuple):
    """The bounds of each user's backlog."""

    most: int = 10_000
    """Deliveries."""
    bytes: int = 64 * 2**20
    """Bytes of them all."""
    age: float = 86_400.0
    """Seconds after which a delivery is dropped as expired."""
    policy: Policy = Policy.DROP_OLDEST


class _Row:
    """The positions of a row that was written, and how many of them are pending."""

    def __init__(self, positions: Collection[int], pending: int) -> None:
        self.positions, self.pending = positions, pending


class BacklogChanges(NamedTuple):
    """The changes of a user's backlog that are to be written."""

    mark: Acknowledged
    rows: dict[int, Sequence[Held]]
    """By number: new rows, and rows that replace written ones."""
    gone: Sequence[int]
    """The numbers of rows to remove."""


class Taken(NamedTuple):
    """An acknowledged delivery: how often it was sent, and how many dropped deliveries it reported."""

    delivery: UserDelivery
    sent: int
    told: int


class Backlog:
    """The deliveries of one user, in the order in which they became known, until they are acknowledged.

    `mark` has the acknowledged positions before a restart; `counts` also counts the sendings.

    Attributes
    ----------
    pending : dict of int to UserDelivery
        By position; for reading only. They may have removed subscriptions; see `forget`.
    bytes : int
        Of the pending deliveries, about.
    dropped : int
        Deliveries that were dropped since the start: there was no room, or they were too old.
    """

    def __init__(
        self,
        bounds: BacklogLimits = BacklogLimits(),  # noqa: B008  # immutable
        mark: Acknowledged = Acknowledged(),  # noqa: B008
        counts: Counter[str] | None = None,
    ) -> None:
        self._bounds, self._counts = bounds, Counter[str]() if counts is None else counts
        self._low, self._beyond = mark.low, set(mark.beyond)
        self._before = self._low, tuple(self._beyond)  # the mark before the last `written`
        self.pending: dict[int, UserDelivery] = {}
        self._sent: dict[int, int] = {}  # how often each position was sent
        self.dropped, self._untold = 0, mark.dropped
        self._told: dict[int, int] = {}  # number of dropped deliveries, by the delivery that reports it
        self.bytes = 0
        self._ids: tuple[int, ...] = ()  # of the last delivery
        self._removed: set[int] = set()  # subscriptions that deliveries may still have
        self._unwritten: set[int] = set()
        self._row_of: dict[int, int] = {}
        self._rows: dict[int, _Row] = {}
        self._next_row = 1
        self._worn: set[int] = set()
        self._gone: list[int] = []

    @property
    def oldest(self) -> float:
        """Arrival of the first pending delivery, in seconds since 1970; infinite if nothing is pending."""
        return next((one.at for one in self.pending.values()), inf)

    @property
    def full(self) -> bool:
        """True if there is no room for another delivery."""
        return len(self.pending) >= self._bounds.most or self.bytes >= self._bounds.bytes

    @property
    def unwritten(self) -> int:
        """Number of deliveries that are in no row yet."""
        return len(self._unwritten)

    def same(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return these ids as the object of the last delivery, if equal: events in a row match alike."""
        if ids != self._ids:
            self._ids = ids
        return self._ids

    def knows(self, position: int) -> bool:
        """Return whether a position is pending, or was acknowledged."""
        return position <= self._low or position in self._beyond or position in self.pending

    def get(self, position: int) -> UserDelivery | None:
        """Return a pending delivery, without subscriptions that were removed, or None."""
        found, removed = self.pending.get(position), self._removed
        if not removed or found is None or found.ended is not None or removed.isdisjoint(found.subscriptions):
            return found
        left = tuple(one for one in found.subscriptions if one not in removed)
        if not left:
            self._take(position)
            return None
        self.bytes -= OF_ID * (len(found.subscriptions) - len(left))
        found = self.pending[position] = replace(found, subscriptions=left)
        return found

    def add(self, delivery: UserDelivery) -> list[int]:
        """Add a delivery that is not known; return the positions that were dropped to make room.

        Its own position among them means that it was dropped itself.
        """
        policy, dropped = self._bounds.policy, []
        if policy == Policy.DROP_NEWEST and self.full:
            self._beyond.add(delivery.position)
            self._lose(1)
            return [delivery.position]
        self._put(delivery)
        self._unwritten.add(delivery.position)
        if policy == Policy.DROP_OLDEST:
            while len(self.pending) > self._bounds.most or self.bytes > self._bounds.bytes:
                oldest = next(iter(self.pending))
                if self.get(oldest) is not None:
                    self._take(oldest)
                    dropped.append(oldest)
            self._lose(len(dropped))
        return dropped

    @property
    def untold(self) -> int:
        """Number of dropped deliveries that no acknowledged delivery has reported."""
        return self._untold + sum(self._told.values())

    def _lose(self, count: int) -> None:
        self.dropped += count
        self._untold += count

    def note_sent(self, position: int) -> Sending:
        """Count a sending of a pending delivery; return the data to send beside it.

        The first delivery after dropped ones reports their number, also when it is sent again.
        """
        before = self._sent.get(position, 0)
        self._sent[position] = before + 1
        self._counts["redelivered" if before else "delivered"] += 1
        if self._untold and position not in self._told:
            self._told[position], self._untold = self._untold, 0
        return Sending(before, self._told.get(position, 0))

    def following(self, again: Iterable[int], sent: Iterable[int]) -> set[int]:
        """Return the sent positions that must follow redelivered ones: later events of the same keys."""
        pending, first = self.pending, dict[int, int]()
        for position in again:
            if position in pending and (key := pending[position].key) is not None:
                first[key] = min(position, first.get(key, position))
        keys = ((at, pending[at].key) for at in sent if at in pending) if first else ()
        return {at for at, key in keys if key is not None and at > first.get(key, at)}

    def restore(self, row: int, deliveries: Sequence[UserDelivery], size: int) -> None:
        """Restore a row that was written before a restart with `size` deliveries; some may be missing."""
        self._next_row = max(self._next_row, row + 1)
        left = [one for one in deliveries if not self.knows(one.position)]
        for delivery in left:
            self._put(delivery)
        if left:
            self._note_row(row, [one.position for one in left])
            if len(left) < size:
                self._worn.add(row)  # the written row has more than these
        else:
            self._gone.append(row)

    def _note_row(self, row: int, positions: Collection[int]) -> None:
        self._rows[row] = _Row(positions, len(positions))
        self._row_of.update(dict.fromkeys(positions, row))

    def _forget_row(self, row: int) -> None:
        for position in self._rows.pop(row).positions:
            del self._row_of[position]

    def _put(self, delivery: UserDelivery) -> None:
        self.pending[delivery.position] = delivery
        self.bytes += _size(delivery)

    def _take(self, position: int, arrived: bool = False) -> Taken | None:
        """Remove a pending delivery, which then counts as acknowledged, arrived or not."""
        delivery = self.pending.pop(position, None)
        if delivery is None:
            return None
        self.bytes -= _size(delivery)
        self._beyond.add(position)
        sent = self._sent.pop(position, 0)
        told = self._told.pop(position, 0)
        if not arrived:  # another delivery has to report them
            self._untold += told
        self._unwritten.discard(position)
        number = self._row_of.get(position)
        if number is not None:
            row = self._rows[number]
            row.pending -= 1
            if not row.pending:
                self._forget_row(number)
                self._worn.discard(number)
                self._gone.append(number)
            elif SMALL < len(row.positions) >= 2 * row.pending:
                self._worn.add(number)
        if not self.pending:  # all of these are empty, but keep the memory for their most elements
            self.pending, self._sent, self._row_of, self._rows, self._unwritten = {}, {}, {}, {}, set()
            self._removed = set()
        return Taken(delivery, sent, told)

    def acknowledge(self, positions: Iterable[int]) -> list[Taken]:
        """Remove acknowledged deliveries; return those that were pending. Other positions are ignored."""
        found = (self._take(position, arrived=True) for position in positions)
        return [one for one in found if one is not None]

    def put_back(self, taken: Iterable[Taken]) -> None:
        """Restore deliveries whose acknowledgement was not written; see also `not_written`."""
        for delivery, sent, told in taken:
            position = delivery.position
            self._beyond.discard(position)
            self._put(delivery)
            if sent:
                self._sent[position] = sent
            if told:
                self._told[position] = told
            if position in self._row_of:
                self._rows[self._row_of[position]].pending += 1
            else:
                self._unwritten.add(position)
        self.pending = dict(sorted(self.pending.items()))

    def leave(self) -> None:
        """Remove all deliveries of a removed user; the next user of the name gets no report of them."""
        self.acknowledge(list(self.pending))
        self._untold = self.dropped = 0

    def forget(self, subscriptions: Collection[int]) -> None:
        """Drop the deliveries of removed subscriptions: `get` does so of one, `forgetting` of all."""
        if self.pending:
            self._removed.update(subscriptions)

    def forgetting(self) -> Iterator[None]:
        """Drop the deliveries of all removed subscriptions, in steps; other work may come between two."""
        while self._removed:
            removed, count = frozenset(self._removed), 0
            for position, one in list(self.pending.items()):
                self.get(position)
                count += OTHER + len(one.subscriptions)
                if count >= STEP:
                    yield
                    count = 0
            self._removed -= removed

    def expire(self, moment: float) -> int:
        """Drop the deliveries that are older than the bounds allow; return their number."""
        passed = []
        for position, delivery in self.pending.items():  # nearly from the oldest on
            if delivery.at + self._bounds.age > moment:
                break
            passed.append(position)
        left = [position for position in passed if self.get(position) is not None]
        for position in left:
            self._take(position)
        self._lose(len(left))
        return len(left)

    def written(self, settled: int, durable: int) -> BacklogChanges:
        """Return the changes to write now; they count as written from here on.

        `durable` is a lower bound of the settled position in the log, which is written last.
        """
        rows: dict[int, Sequence[Held]] = {}
        for number in self._worn:
            left = [position for position in self._rows[number].positions if position in self.pending]
            self._forget_row(number)
            rows[number] = self._row(number, left)
        self._worn.clear()
        if self._unwritten:
            rows[self._next_row] = self._row(self._next_row, sorted(self._unwritten))
            self._unwritten.clear()
            self._next_row += 1
        gone, self._gone = self._gone, []
        return BacklogChanges(self._mark(settled, durable), rows, gone)

    def not_written(self) -> None:
        """Take back the mark of the last `written`: it was not stored, and acknowledgements may fail."""
        low, beyond = self._before
        self._low, self._beyond = low, self._beyond.union(beyond)

    def _row(self, number: int, positions: Sequence[int]) -> Sequence[Held]:
        self._note_row(number, positions)
        found = [self.pending[position] for position in positions]
        return [(one.position, one.subscriptions, one.ended) for one in found]

    def _mark(self, settled: int, durable: int) -> Acknowledged:
        self._before = self._low, tuple(self._beyond)  # a set would take ten times the memory
        low = min(min(self.pending, default=settled + 1), settled + 1) - 1
        self._low = low = max(self._low, low)
        row_of = self._row_of
        self._beyond = {at for at in self._beyond if at > low and (at > durable or at in row_of)}
        return Acknowledged(low, frozenset(self._beyond), self.untold)


def _size(delivery: UserDelivery) -> int:
    return len(delivery.body) + BESIDE + OF_ID * len(delivery.subscriptions)
