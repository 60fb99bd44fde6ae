"""Stage 5: to the users whose subscriptions match, now or when they ask."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from rtfilter.service.backlog import Backlog, Bounds
from rtfilter.service.records import Delivery
from rtfilter.store.tables import Logged, Mark, Progress, Row

SWEEP: Final = 10.0
"""Seconds at most between two looks for deliveries that are too old."""


class Owned(NamedTuple):
    """What delivering needs to know of a subscription; see `rtfilter.service.records.Wish`.

    Attributes
    ----------
    user, filter : str
    expires : float or None
        In seconds since 1970.
    digest : float or None
    ordered : bool
    """

    user: str
    filter: str
    expires: float | None = None
    digest: float | None = None
    ordered: bool = False


class Part(Enum):
    """Of the users that an event concerns, where events of one key have an order."""

    ALL = "all"
    AT_ONCE = "at once"
    """Those who did not ask for order."""
    IN_TURN = "in turn"
    """Those who did."""


class Receiver(Protocol):
    """Where the deliveries of a user go at once."""

    def send(self, positions: Sequence[int], digest: bool = False) -> None:
        """Send these, or leave them in the backlog where the receiver is slow. Never waits."""

    def unacknowledged(self) -> list[int]:
        """The positions that were sent, or were to be, in order."""

    def tick(self, now: float) -> None:
        """Send again what has waited too long; `now` is in seconds of the clock."""


class _Digest:
    def __init__(self, due: float) -> None:
        self.due, self.positions = due, list[int]()


class Deliver:
    """The backlog of each user, and who receives.

    Of several receivers of a user, the last that became ready has the deliveries. When it goes, the one
    before it has them, and what the first one did not acknowledge.

    Parameters
    ----------
    owners : mapping of int to Owned
        The subscriptions that are there; others change it.
    bounds : Bounds
    marks : mapping of str to Mark
        What was acknowledged before a restart.
    clock : callable
        Seconds that never go back.

    Attributes
    ----------
    counts : Counter of str
        Deliveries since the start: delivered, redelivered, acknowledged, dropped, expired.
    """

    def __init__(
        self,
        owners: Mapping[int, Owned],
        bounds: Bounds = Bounds(),  # noqa: B008  # immutable
        marks: Mapping[str, Mark] = {},
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owners, self._bounds, self._clock = owners, bounds, clock
        self._backlogs = {user: Backlog(bounds, mark) for user, mark in marks.items()}
        self._receivers: dict[str, list[Receiver]] = {}
        self._digests: dict[tuple[str, str], _Digest] = {}
        self._swept = 0.0
        self._changed: set[str] = set()  # users whose progress is not written
        self._unwritten = Progress(0)  # what a failed transaction did not write
        self.counts: Counter[str] = Counter(delivered=0, redelivered=0, acknowledged=0, dropped=0, expired=0)

    # -- from the log ----------------------------------------------------------------------------------------

    def restore(self, row: Row, events: Mapping[int, Logged]) -> None:
        """Take back what waited for a user before a restart."""
        self._of(row.user).restore(row.number, self._restored(row, events))
        self._changed.add(row.user)  # a row may be needed no more

    def _restored(self, row: Row, events: Mapping[int, Logged]) -> Iterator[Delivery]:
        for position, subscriptions, ended in row.deliveries:
            there = tuple(subscriptions)
            if ended is None:
                there = tuple(id for id in there if id in self._owners)
            if there and position in events:
                entry = events[position].entry
                body = entry.body if ended is None else b"null"
                yield Delivery(position, there, body, entry.filter, entry.at, None, ended)

    def tell(self, event: Logged, ids: Iterable[int], response: float | None, part: Part = Part.ALL) -> None:
        """Keep and send what an event matches. What is known already is left alone."""
        position, entry = event
        of: dict[str, list[int]] = {}
        owners = self._owners
        for id in ids:
            owned = owners.get(id)  # or it was removed since
            if owned is not None and (owned.expires is None or entry.at < owned.expires):
                of.setdefault(owned.user, []).append(id)
        for user, mine in of.items():
            if part is Part.AT_ONCE and any(owners[id].ordered for id in mine):
                continue  # in turn, all are told who do not know it: subscriptions may have changed meanwhile
            delivery = Delivery(position, tuple(sorted(mine)), entry.body, entry.filter, entry.at, response)
            if self._keep(user, delivery):
                self._push(user, delivery)

    def end(self, position: int, at: float, filter: str, user: str, id: int, reason: str) -> None:
        """Tell a user that a subscription ended; the position is that of the change."""
        delivery = Delivery(position, (id,), b"null", filter, at, None, reason)
        if self._keep(user, delivery):
            self._push(user, delivery)

    def _of(self, user: str) -> Backlog:
        found = self._backlogs.get(user)
        if found is None:
            found = self._backlogs[user] = Backlog(self._bounds)
        return found

    def _keep(self, user: str, delivery: Delivery) -> bool:
        backlog = self._of(user)
        if backlog.knows(delivery.position):
            return False
        self._changed.add(user)
        dropped = backlog.add(delivery)
        self.counts["dropped"] += len(dropped)
        return delivery.position not in dropped

    def _push(self, user: str, delivery: Delivery) -> None:
        receivers = self._receivers.get(user)
        if receivers is None:
            return
        period = self._period(delivery)
        if period is None:
            receivers[-1].send([delivery.position])
            return
        name = user, delivery.filter
        if name not in self._digests:
            self._digests[name] = _Digest(self._clock() + period)
        self._digests[name].positions.append(delivery.position)

    def _period(self, delivery: Delivery) -> float | None:
        """Seconds that a delivery may wait for others; None where it goes at once."""
        if delivery.ended is not None:
            return None
        periods = [self._owners[id].digest for id in delivery.subscriptions]
        found = [period for period in periods if period is not None]
        return min(found) if len(found) == len(periods) else None

    # -- what users ask for ----------------------------------------------------------------------------------

    def pending(self, user: str) -> Sequence[Delivery]:
        """What a user has not acknowledged, in the order in which it became known."""
        return list(self._backlogs[user].pending.values()) if user in self._backlogs else []

    def get(self, user: str, position: int) -> Delivery | None:
        """One of these."""
        return self._backlogs[user].pending.get(position) if user in self._backlogs else None

    def note_sent(self, user: str, position: int) -> int:
        """A pending delivery is being sent; returns how often it was sent before."""
        sent = self._backlogs[user].sent
        before = sent.get(position, 0)
        sent[position] = before + 1
        self.counts["redelivered" if before else "delivered"] += 1
        return before

    def acknowledge(self, user: str, positions: Iterable[int]) -> None:
        """Take deliveries of a user away. It is kept with the next `progress`."""
        if user in self._backlogs:
            self.counts["acknowledged"] += self._backlogs[user].acknowledge(positions)
            self._changed.add(user)

    def forget(self, user: str, subscription: int) -> None:
        """A subscription was removed; what it matched is not delivered any more."""
        if user in self._backlogs:
            self._backlogs[user].forget(subscription)
            self._changed.add(user)

    @property
    def clock(self) -> Callable[[], float]:
        """Of digests and redeliveries."""
        return self._clock

    def receives(self, user: str) -> bool:
        """Whether a user has a receiver."""
        return user in self._receivers

    def begin(self, user: str, receiver: Receiver) -> None:
        """Send a user's deliveries there from now on."""
        self._receivers.setdefault(user, []).append(receiver)

    def stop(self, user: str, receiver: Receiver) -> None:
        """Send no more there. Does nothing where that is so already."""
        before = self._receivers.get(user, [])
        left = [one for one in before if one is not receiver]
        if not left:
            self._receivers.pop(user, None)
            for name in [name for name in self._digests if name[0] == user]:
                del self._digests[name]  # they stay in the backlog
            return
        self._receivers[user] = left
        if before[-1] is receiver:
            left[-1].send([at for at in receiver.unacknowledged() if self.get(user, at) is not None])

    # -- as time goes by -------------------------------------------------------------------------------------

    def tick(self, moment: float) -> None:
        """Send the digests that are due, and drop what is too old; `moment` is in seconds since 1970."""
        now = self._clock()
        for name in [name for name, digest in self._digests.items() if digest.due <= now]:
            user, positions = name[0], self._digests.pop(name).positions
            if user in self._receivers:
                self._receivers[user][-1].send(positions, digest=True)
        for receivers in list(self._receivers.values()):
            receivers[-1].tick(now)
        if now - self._swept < min(self._bounds.age / 100, SWEEP):
            return
        self._swept = now
        for user, backlog in self._backlogs.items():
            expired = backlog.expire(moment)
            if expired:
                self.counts["expired"] += expired
                self._changed.add(user)

    @property
    def full(self) -> Iterator[str]:
        """Users whose backlog has no room."""
        return (user for user, backlog in self._backlogs.items() if backlog.full)

    @property
    def waiting(self) -> tuple[int, int]:
        """How many deliveries are pending, and the most of one user."""
        sizes = [len(backlog.pending) for backlog in self._backlogs.values()]
        return sum(sizes), max(sizes, default=0)

    def progress(self, settled: int) -> Progress:
        """What is to be written now; `settled` as of `Progress`."""
        before, self._unwritten = self._unwritten, Progress(0)
        rows, gone = list(before.rows), list(before.gone)
        marks = {}
        for user in self._changed:
            backlog = self._backlogs[user]
            marks[user] = backlog.mark(settled)
            row = backlog.unwritten(user)
            if row is not None:
                rows.append(row)
            gone += ((user, number) for number in backlog.emptied())
        self._changed.clear()
        kept = set(gone)
        written = [row for row in rows if (row.user, row.number) not in kept]
        return Progress(settled, marks, written, gone)

    def not_written(self, progress: Progress) -> None:
        """It could not be written; it comes with the next one."""
        self._changed |= progress.marks.keys()
        self._unwritten = Progress(0, {}, progress.rows, progress.gone)
