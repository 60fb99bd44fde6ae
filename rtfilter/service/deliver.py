"""Stage 5: deliveries to the users whose subscriptions match, at once or on request."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Final, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from rtfilter.basics.dtypes import IntArray
from rtfilter.service.backlog import Backlog, BacklogLimits, Policy
from rtfilter.service.origins import Origin, is_foreign, neighbour_of
from rtfilter.service.records import UserDelivery
from rtfilter.store.log_tables import Acknowledged, Entry, Logged, Progress, Row

_log = logging.getLogger(__name__)
FEWEST: Final = 16
"""Fewest users of one progress, if so many have changed."""
MOST_PARTS: Final = 8
"""Most progresses until each changed user was in one."""
MOST_WRITTEN: Final = 4000
"""Unwritten deliveries of one progress, about."""
SWEEP: Final = 10.0
"""Most seconds between two searches for expired deliveries."""
SEARCH: Final = 0.01
"""Seconds of one step of such a search, after which it continues at the next tick."""
STEP: Final = 2000
"""Matches that are sorted by user in one step."""
FEW: Final = 1000
"""Positions of a digest above which those that are pending no more are removed."""


class Owned(Struct, frozen=True, gc=False):
    """The part of a subscription that delivering needs; see `rtfilter.service.records.Wish`."""

    id: int
    """A shared object wherever it is stored: an event for many users has millions of ids."""
    user: str
    filter: str
    expires: float | None = None
    digest: float | None = None
    ordered: bool = False
    site: bool = False
    """True if its user is another site."""


class MatchedEvent(NamedTuple):
    """An event, and what it matches; for `response` and `key` see `UserDelivery`."""

    event: Logged
    ids: IntArray
    """Of subscriptions, int64, as Python's integers take more memory; ascending if they are above `STEP`."""
    response: float | None
    at_once: bool = False
    """True if users with ordered subscriptions get it later, in the order of its key."""
    key: int | None = None


class Receiver(Protocol):
    """A receiver to which a user's deliveries are sent at once."""

    def send(self, positions: Sequence[int], digest: bool = False) -> None:
        """Send deliveries, or leave them in the backlog if the receiver is slow. Never waits."""

    def take_over(self, positions: Sequence[int]) -> None:
        """Send deliveries that another receiver has not acknowledged."""

    def unacknowledged(self) -> list[int]:
        """Return the positions that were sent or wait to be sent, ascending."""

    def tick(self, now: float) -> None:
        """Send again the deliveries that were not acknowledged in time; `now` is in seconds of the clock."""


class _Digest:
    """Positions that are sent together at the time `due`; some may be pending no more."""

    def __init__(self, due: float) -> None:
        self.due, self.positions, self.room = due, list[int](), FEW

    def add(self, position: int, pending: Container[int]) -> None:
        """Add a position; above a bound, remove those that are pending no more."""
        if len(self.positions) >= self.room:
            self.positions = [one for one in self.positions if one in pending]
            self.room = max(FEW, 2 * len(self.positions))
        self.positions.append(position)


class Deliver:
    """The backlogs and receivers of all users.

    Of several receivers of a user, the last one that became ready gets the deliveries. When it stops, the
    one before it gets them, and those that the last one did not acknowledge.

    The caller changes `owners`, the present subscriptions, and `expired`, whose earlier matches are still
    delivered. `site` is the name of this one, where there are several.

    Attributes
    ----------
    backlogs : dict of str to Backlog
        By user; for reading only.
    counts : Counter of str
        Deliveries since the start, by outcome.
    full : set of str
        Users whose backlog has no room, where publishers are refused then.
    written : int
        The settled position in the last progress; -1 where it was not written.
    """

    def __init__(
        self,
        owners: Mapping[int, Owned],
        expired: Mapping[int, Owned] = {},
        bounds: BacklogLimits = BacklogLimits(),  # noqa: B008  # immutable
        clock: Callable[[], float] = time.monotonic,
        site: str = "",
    ) -> None:
        self._owners, self._expired, self._bounds, self.clock = owners, expired, bounds, clock
        self._site = site
        self._receivers: dict[str, list[Receiver]] = {}
        self._digests: dict[tuple[str, str], _Digest] = {}
        self._swept = -inf
        self._unswept: list[str] = []  # users whose backlogs the present search has still to visit
        self._removed: dict[str, set[int]] | None = None  # by user, since `tell` began
        self._periods: dict[tuple[str, int], float | None] = {}  # of deliveries of many subscriptions
        self._forgetting: dict[str, Iterator[None]] = {}  # by user whose deliveries have removed ones
        self._changed: dict[str, None] = {}  # users whose progress is not written, the first to change first
        self._round: dict[str, None] = {}  # users that had changed when the round began, to be written
        self._of_round = self._part = 0  # what was settled then; users of each part
        self._given: int | None = None  # the settled position in the last progress
        self._durable = 0  # a lower bound of the settled position in the log
        self.full: set[str] = set()
        self.written = 0
        self._warned = set[str]()  # users whose dropped deliveries are logged
        self._unwritten = Progress(None)  # what a failed transaction did not write
        self.counts: Counter[str] = Counter(delivered=0, redelivered=0, acknowledged=0, dropped=0, expired=0)
        self.backlogs: dict[str, Backlog] = {}

    # -- from the log ----------------------------------------------------------------------------------------

    def remember(self, marks: Mapping[str, Acknowledged]) -> None:
        """Begin with the positions that were acknowledged before a restart."""
        self.backlogs = {user: Backlog(self._bounds, mark, self.counts) for user, mark in marks.items()}

    def restore(self, row: Row, events: Mapping[int, Logged], key_of: Callable[[Entry], int | None]) -> None:
        """Restore deliveries that waited for a user before a restart; `key_of` is for `UserDelivery.key`."""
        backlog = self._of(row.user)
        backlog.restore(row.number, list(self._restored(row, events, key_of)), len(row.deliveries))
        self._note(row.user, backlog)  # a row may be needed no more

    def _restored(
        self, row: Row, events: Mapping[int, Logged], key_of: Callable[[Entry], int | None]
    ) -> Iterator[UserDelivery]:
        for position, subscriptions, ended in row.deliveries:
            if position not in events:
                continue
            entry = events[position].entry
            if ended is not None:
                yield UserDelivery(
                    position, tuple(subscriptions), b"null", entry.filter, entry.at, None, ended
                )
                continue
            owned = [one for id in subscriptions if (one := self._owned(id)) is not None]
            if owned:
                key = key_of(entry) if any(one.ordered for one in owned) else None
                ids = tuple(one.id for one in owned)
                source = self._source(position, entry) if owned[0].site else None
                yield UserDelivery(position, ids, entry.body, entry.filter, entry.at, None, None, key, source)

    def tell(self, found: Iterable[MatchedEvent]) -> Iterator[None]:
        """Add matches to the backlogs and send them, in steps. Known ones are skipped.

        Other work may run between two steps; a subscription that it removes gets no more deliveries.
        """
        self._removed, new, matches = {}, dict[str, list[UserDelivery]](), 0
        for one in found:
            of: dict[str, list[Owned]] = {}
            position, entry = one.event
            for first in range(0, len(one.ids), STEP):
                self._sort(one, one.ids[first : first + STEP].tolist(), of)
                yield
            for user, mine in of.items():
                if len(mine) > STEP:
                    ids, ordered, self._periods[user, position] = yield from _joined(mine)
                else:
                    ids, ordered = sorted(owned.id for owned in mine), any(owned.ordered for owned in mine)
                if one.at_once and ordered:
                    continue  # it comes again for all users that lack it: owners may have changed
                key, shared = one.key if ordered else None, self._of(user).same(tuple(ids))
                source = self._source(position, entry) if mine[0].site else None
                delivery = UserDelivery(
                    position, shared, entry.body, entry.filter, entry.at, one.response, None, key, source
                )
                new.setdefault(user, []).append(delivery)
                if len(one.ids) > STEP:
                    yield
            matches += len(one.ids)
            if matches >= STEP:
                yield from self._take_all(new)
                new, matches = {}, 0
        yield from self._take_all(new)
        self._removed = None
        self._periods.clear()

    def _sort(self, one: MatchedEvent, ids: Iterable[int], of: dict[str, list[Owned]]) -> None:
        at, owners, expired = one.event.entry.at, self._owners, self._expired
        neighbour = neighbour_of(one.event.entry.user)  # that has it already
        for id in ids:
            owned = owners.get(id) or expired.get(id)  # or it was removed since
            if owned is None or (owned.site and owned.user == neighbour):
                continue
            if owned.expires is None or at < owned.expires:
                of.setdefault(owned.user, []).append(owned)

    def _take_all(self, new: Mapping[str, list[UserDelivery]]) -> Iterator[None]:
        for user, deliveries in new.items():
            removed = self._removed and self._removed.get(user)
            self._take(user, _without(removed, deliveries) if removed else deliveries)
            yield

    def _source(self, position: int, entry: Entry) -> str:
        """Return the origin of an event, for another site."""
        if is_foreign(entry.user):
            return entry.user
        return Origin(entry.user, self._site, position, entry.at).text

    def end(self, position: int, at: float, filter: str, user: str, id: int, reason: str) -> None:
        """Deliver the end of a subscription to its user; `position` is that of the change."""
        self._take(user, [UserDelivery(position, (id,), b"null", filter, at, None, reason)])

    def _owned(self, id: int) -> Owned | None:
        """Return a present subscription, or an expired one whose earlier events are not all settled."""
        return self._owners.get(id) or self._expired.get(id)

    def _of(self, user: str) -> Backlog:
        found = self.backlogs.get(user)
        if found is None:
            found = self.backlogs[user] = Backlog(self._bounds, counts=self.counts)
        return found

    def _note(self, user: str, backlog: Backlog) -> None:
        self._changed[user] = None
        if not backlog.pending:
            self._warned.discard(user)
        if backlog.full and self._bounds.policy == Policy.REFUSE:
            self.full.add(user)
        else:
            self.full.discard(user)

    def _take(self, user: str, deliveries: Iterable[UserDelivery]) -> None:
        """Add a user's new deliveries to the backlog, and send them now or with the next digest."""
        backlog = self._of(user)
        new = []
        for one in deliveries:
            if not backlog.knows(one.position):
                self._drop(user, backlog, "dropped", len(backlog.add(one)))
                new.append(one)
        if not new:
            return
        self._note(user, backlog)
        receivers = self._receivers.get(user)
        if receivers is None:
            return
        at_once = []
        for one in new:
            if one.position not in backlog.pending:
                continue  # it was dropped
            period = self._period(user, one)
            if period is None:
                at_once.append(one.position)
            else:
                self._put_off(user, one, period)
        if at_once:
            receivers[-1].send(at_once)

    def _drop(self, user: str, backlog: Backlog, how: str, count: int) -> None:
        """Count dropped deliveries, and log them once until the backlog is empty."""
        if not count:
            return
        self.counts[how] += count
        if user not in self._warned:
            self._warned.add(user)
            why = "the backlog has no room" if how == "dropped" else "they have waited too long"
            _log.warning("deliveries are dropped: %s; the next one says how many", why, extra={"user": user})

    def _put_off(self, user: str, delivery: UserDelivery, period: float) -> None:
        name, due = (user, delivery.filter), self.clock() + period
        digest = self._digests.setdefault(name, _Digest(due))
        digest.due = min(digest.due, due)
        digest.add(delivery.position, self.backlogs[user].pending)

    def _period(self, user: str, delivery: UserDelivery) -> float | None:
        """Return the seconds that a delivery may wait for others, or None if it is sent at once."""
        if delivery.ended is not None:
            return None
        if (user, delivery.position) in self._periods:
            return self._periods[user, delivery.position]
        shortest = inf
        for id in delivery.subscriptions:
            owned = self._owned(id)
            if owned is None or owned.digest is None:
                return None
            shortest = min(shortest, owned.digest)
        return shortest

    # -- what users ask for ----------------------------------------------------------------------------------

    def backlog(self, user: str) -> Backlog:
        """Return the backlog of a user; an empty one, which is not kept, where there is none."""
        return self.backlogs.get(user) or Backlog(self._bounds)

    def acknowledge(self, user: str, positions: Iterable[int]) -> Callable[[], None]:
        """Remove acknowledged deliveries; the next `progress` stores it. Return a function that undoes it."""
        backlog = self.backlogs.get(user)
        if backlog is None:
            return lambda: None
        taken = backlog.acknowledge(positions)
        self.counts["acknowledged"] += len(taken)
        self._note(user, backlog)

        def undo() -> None:
            backlog.put_back(taken)
            self.counts["acknowledged"] -= len(taken)
            self._note(user, backlog)

        return undo

    def leave(self, user: str) -> None:
        """Remove the deliveries of a removed user, whose name may be given to another one."""
        backlog = self.backlogs.get(user)
        if backlog is not None:
            self.counts["acknowledged"] += len(backlog.pending)
            backlog.leave()
            self._note(user, backlog)

    def forget(self, user: str, subscriptions: Collection[int]) -> None:
        """Drop the pending deliveries of removed subscriptions: of a few now, the others by `forget_some`.

        `Backlog.get` returns none of them.
        """
        if self._removed is not None:
            self._removed.setdefault(user, set()).update(subscriptions)
        backlog = self.backlogs.get(user)
        if backlog is not None:
            backlog.forget(subscriptions)
            if user not in self._forgetting:
                self._forgetting[user] = backlog.forgetting()
                self._forget_some_of(user)

    @property
    def forgetting(self) -> bool:
        """True if `forget_some` has work."""
        return bool(self._forgetting)

    def forget_some(self) -> None:
        """Drop some more deliveries of removed subscriptions."""
        self._forget_some_of(next(iter(self._forgetting)))

    def _forget_some_of(self, user: str) -> None:
        if next(self._forgetting[user], True):  # `forgetting` has ended
            del self._forgetting[user]
        self._note(user, self.backlogs[user])

    def receives(self, user: str) -> bool:
        """Return whether a user has a receiver."""
        return user in self._receivers

    def begin(self, user: str, receiver: Receiver, first: bool = False) -> None:
        """Send a user's deliveries to a receiver from now on; with `first`, only while there is no other."""
        receivers = self._receivers.setdefault(user, [])
        receivers.insert(0 if first else len(receivers), receiver)

    def stop(self, user: str, receiver: Receiver) -> None:
        """Send no more to a receiver. Does nothing if it does not receive."""
        before = self._receivers.get(user, [])
        left = [one for one in before if one is not receiver]
        if not left:
            self._receivers.pop(user, None)
            for name in [name for name in self._digests if name[0] == user]:
                del self._digests[name]  # they stay in the backlog
            return
        self._receivers[user] = left
        if len(left) < len(before):
            known, pending = set(left[-1].unacknowledged()), self.backlog(user).pending
            theirs = (at for at in receiver.unacknowledged() if at not in known)
            left[-1].take_over([at for at in theirs if at in pending])

    # -- as time goes by -------------------------------------------------------------------------------------

    def tick(self, moment: float) -> None:
        """Send due digests and redeliveries, drop expired deliveries; `moment` is in seconds since 1970."""
        now = self.clock()
        for name in [name for name, digest in self._digests.items() if digest.due <= now]:
            user, positions = name[0], self._digests.pop(name).positions
            if user in self._receivers:
                self._receivers[user][-1].send(positions, digest=True)
        for receivers in list(self._receivers.values()):
            receivers[-1].tick(now)
        if not self._unswept and now - self._swept >= min(self._bounds.age / 100, SWEEP):
            self._swept, self._unswept = now, list(self.backlogs)
        end = time.perf_counter() + SEARCH
        while self._unswept:
            user = self._unswept.pop()
            backlog = self.backlogs.get(user)
            expired = 0 if backlog is None else backlog.expire(moment)
            if backlog is not None and expired:
                self._drop(user, backlog, "expired", expired)
                self._note(user, backlog)
            if time.perf_counter() >= end:
                return

    def progress(self, settled: int, anew: bool) -> Progress:
        """Return the progress to write now; with `anew`, its round must contain all changes until now.

        It has some users, and later ones have the others, so that each stays short. Only the last progress of
        such a round has a settled position: that of the moment when the round began, or began anew.
        """
        if self._given is not None:
            self._durable = self._given
        if anew or not self._round:
            self._round, self._of_round = self._round | self._changed, settled
            self._changed.clear()
            self._part = max(FEWEST, -(-len(self._round) // MOST_PARTS))
        users = list(self._next_users())
        before, self._unwritten = self._unwritten, Progress(None)
        rows = {(row.user, row.number): row for row in before.rows}
        gone, marks = list(before.gone), {}
        for user in users:
            del self._round[user]
            self._changed.pop(user, None)
            marks[user], new, emptied = self.backlogs[user].written(self._of_round, self._durable)
            rows |= {(user, number): Row(user, number, held) for number, held in new.items()}
            gone += ((user, number) for number in emptied)
        for row in gone:
            rows.pop(row, None)
        self._given = None
        if not self._round:
            self._given = self.written = self._of_round
        return Progress(self._given, marks, list(rows.values()), gone)

    def _next_users(self) -> Iterator[str]:
        """Yield the users of the next part, none after `MOST_WRITTEN` unwritten deliveries."""
        count = 0
        for user in islice(self._round, self._part):
            yield user
            count += self.backlogs[user].unwritten
            if count >= MOST_WRITTEN:
                return

    def owes(self, user: str) -> bool:
        """Return whether a later progress must contain changes of a user."""
        return user in self._changed or user in self._round

    def not_written(self, progress: Progress) -> None:
        """Take back a progress that was not written; the next one contains it."""
        self._given, self.written = None, -1
        for user in progress.marks:
            self.backlogs[user].not_written()
        self._round = dict.fromkeys(progress.marks) | self._round
        self._unwritten = Progress(None, {}, progress.rows, progress.gone)


def _joined(mine: Sequence[Owned]) -> Generator[None, None, tuple[list[int], bool, float | None]]:
    """Return the ids of many subscriptions, in steps, whether one is ordered, and the period of `_period`."""
    ids, ordered, shortest, at_once = list[int](), False, inf, False
    for first in range(0, len(mine), STEP):
        for owned in mine[first : first + STEP]:
            ids.append(owned.id)
            ordered |= owned.ordered
            at_once |= owned.digest is None
            shortest = min(shortest, owned.digest or inf)
        yield
    return ids, ordered, None if at_once else shortest


def _without(removed: Collection[int], deliveries: Iterable[UserDelivery]) -> Iterator[UserDelivery]:
    for one in deliveries:
        ids = tuple(id for id in one.subscriptions if id not in removed)
        if ids:
            yield replace(one, subscriptions=ids)
