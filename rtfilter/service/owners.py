"""The present subscriptions: their users, their expiry, and their entries in the log."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rtfilter.basics.errors import PredicateError, RTFilterError
from rtfilter.events.schema import Schema
from rtfilter.filter import inside
from rtfilter.predicates.boxes.compiling import unbounded
from rtfilter.predicates.predicate import Predicate, Source, parse
from rtfilter.predicates.templates.many import FEW as TOGETHER
from rtfilter.predicates.templates.many import compile_many
from rtfilter.service.deliver import Owned
from rtfilter.service.log_matcher import Index
from rtfilter.service.records import FilterInfo, StoredSubscription, Wish
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import RequestError, TooManyError, UnknownError
from rtfilter.store.log_tables import Entry, Kind, Logged

MOST_METADATA: Final = 4096
"""Most bytes of metadata as JSON."""
OF_SITE: Final = '{"site":true}'
"""The manner of deliveries of a subscription that another site has here."""
REMOVED: Final = "removed"
"""The reason of the end of a subscription that its user has removed."""
FEW: Final = 1000
"""Planned ends above which outdated ones are removed."""
SMALL: Final = 200
"""Most characters of a condition that waits for its index as it was read, not as text."""
SHORTEST: Final = 1.0
"""Fewest seconds of a digest."""


class Owners(dict[int, Owned]):
    """Subscriptions by id, with their counts and planned ends."""

    def __init__(self) -> None:
        super().__init__()
        self.of_user: Counter[str] = Counter()
        self.of_both: Counter[tuple[str, str]] = Counter()
        """By user and filter."""
        self.ordered: Counter[str] = Counter()
        """Subscriptions that ask for order, by filter; with those in `expired`."""
        self.changed = 0
        """Position of the last change."""
        self.expired: dict[int, Owned] = {}
        """Expired subscriptions: events before their end may still be matched."""
        self._expiries: deque[tuple[int, int]] = deque()
        self._ends: list[tuple[float, int]] = []
        self._room = FEW

    def owns(self, who: Identity, id: int) -> bool:
        """Return whether a user, or an admin, may see and change a subscription."""
        owned = self.get(id)
        return owned is not None and (owned.user == who.user or Role.ADMIN in who.roles)

    def of(self, who: Identity, id: int) -> Owned:
        """Return a subscription that the user owns. Raises `UnknownError`."""
        if not self.owns(who, id):
            raise UnknownError(f"there is no subscription {id}")
        return self[id]

    def note(self, position: int, entry: Entry) -> None:
        """Note the position of an entry, if it is a change."""
        if entry.kind is not Kind.EVENT:
            self.changed = position

    def change(self, position: int, entry: Entry) -> bool:
        """Apply a change of the log; return whether a subscription was removed before its end by time."""
        self.note(position, entry)
        id = entry.id_at(position)
        if entry.kind is not Kind.UNSUBSCRIBE:
            self.put(owned_of(id, entry.filter, entry.user, entry.expires, entry.manner))
        elif entry.expires is None:
            self.drop(id)
        else:
            self.expire(id, position)
        return entry.kind is Kind.UNSUBSCRIBE and entry.expires is None

    def put(self, owned: Owned) -> None:
        """Add a subscription, or replace the one with this id."""
        self.drop(owned.id)
        self[owned.id] = owned
        self.ordered[owned.filter] += owned.ordered
        self.of_user[owned.user] += 1
        self.of_both[owned.user, owned.filter] += 1
        if owned.expires is not None:
            self._push(owned.expires, owned.id)

    def _push(self, expires: float, id: int) -> None:
        """Plan the end of a subscription; above a bound, remove outdated ends."""
        heapq.heappush(self._ends, (expires, id))
        if len(self._ends) > self._room:
            self._ends = [(one.expires, id) for id, one in self.items() if one.expires is not None]
            heapq.heapify(self._ends)
            self._room = max(FEW, 2 * len(self._ends))

    def drop(self, id: int) -> Owned | None:
        """Remove a subscription; return it, or None."""
        owned = self.pop(id, None)
        if owned is not None:
            self.ordered[owned.filter] -= owned.ordered
            self.of_user[owned.user] -= 1
            self.of_both[owned.user, owned.filter] -= 1
            if not self.of_both[owned.user, owned.filter]:  # so that old users take no room
                del self.of_both[owned.user, owned.filter]
            if not self.of_user[owned.user]:
                del self.of_user[owned.user]
        return owned

    def expire(self, id: int, position: int) -> None:
        """Move a subscription to `expired`, until all entries up to the position of its end are settled."""
        owned = self.drop(id)
        if owned is not None:
            self.expired[id] = owned
            self.ordered[owned.filter] += owned.ordered
            self._expiries.append((position, id))

    def settle(self, position: int) -> None:
        """Remove expired subscriptions whose end is settled: it is at or below a position."""
        while self._expiries and self._expiries[0][0] <= position:
            owned = self.expired.pop(self._expiries.popleft()[1])
            self.ordered[owned.filter] -= owned.ordered

    def ended(self, moment: float) -> Iterator[Owned]:
        """Yield the subscriptions that have expired, each once."""
        while self._ends and self._ends[0][0] <= moment:
            expires, id = heapq.heappop(self._ends)
            owned = self.get(id)
            if owned is not None and owned.expires == expires:
                yield owned

    def ends_again(self, id: int) -> None:
        """Plan the end of a subscription again: it could not be written."""
        owned = self.get(id)
        if owned is not None and owned.expires is not None:
            self._push(owned.expires, id)


def owned_of(id: int, filter: str, user: str, expires: float | None, manner: str | None) -> Owned:
    """Return a subscription of the log as deliveries need it."""
    user, filter = intern(user), intern(filter)  # a million may have the same
    if manner is None:
        return Owned(id, user, filter, expires)
    found = msgspec.json.decode(manner)
    site = found.get("site", False)
    return Owned(id, user, filter, expires, found.get("digest"), found.get("order") == "key", site)


def entry_of(
    kind: Kind,
    filter: str,
    user: str,
    wish: Wish,
    at: float,
    arrived: float,
    id: int | None = None,
    predicate: Source | None = None,
) -> Entry:
    """Return the entry of the log for a new subscription, or for a replacement; `predicate` is as read."""
    body = {name: value for name, value in wish._asdict().items() if value is not None}
    expires = None if wish.ttl is None else at + wish.ttl
    manner = _manner(wish.digest, wish.order)
    text = msgspec.json.encode(body)
    return Entry(kind, filter, user, text, id, at, expires, manner, arrived, predicate)


def _manner(digest: float | None, order: str | None) -> str | None:
    manner = {name: value for name, value in (("digest", digest), ("order", order)) if value is not None}
    return msgspec.json.encode(manner).decode() if manner else None


def removal_of(owned: Owned, reason: str, at: float, arrived: float) -> Entry:
    """Return the entry of the log for the end of a subscription."""
    body = msgspec.json.encode({"reason": reason})
    return Entry(Kind.UNSUBSCRIBE, owned.filter, owned.user, body, owned.id, at, arrived=arrived)


def expiry_of(owned: Owned, at: float, arrived: float) -> Entry:
    """Return the entry of the log for an expired subscription, with the data that deliveries need."""
    ended = removal_of(owned, "expired", at, arrived)
    manner = _manner(owned.digest, "key" if owned.ordered else None)
    return replace(ended, expires=owned.expires, manner=manner)


def subscription_of(logged: Logged) -> StoredSubscription:
    """Return a subscription of the log as users see it."""
    position, entry = logged
    wish = Wish(**msgspec.json.decode(entry.body))
    id = entry.id_at(position)
    return StoredSubscription(id, entry.filter, entry.user, wish, entry.at, entry.expires)


class Checked(NamedTuple):
    """The result of a check of wishes, by row."""

    wrong: dict[int, RTFilterError]
    unbounded: list[int]
    """The rows that no box bounds, if the filter counts these."""
    predicates: dict[int, Source]
    """Of the rows that are not wrong: read, if they are few; the reader of many is faster with text."""


def check(wishes: Sequence[Wish], index: Index) -> Checked:
    """Check wishes. May take long: not for the event loop."""
    wrong: dict[int, RTFilterError] = {}
    for row, wish in enumerate(wishes):
        try:
            _check_manner(wish, index.info)
        except RequestError as error:
            wrong[row] = error
    rows = [row for row in range(len(wishes)) if row not in wrong]
    refused: dict[int, PredicateError] = {}
    sources: list[Source] = [wishes[row].where for row in rows]
    if len(rows) < TOGETHER:
        sources = [_read(source, index.info.schema) for source in sources]
    compiled = compile_many(sources, index.info.schema, refused.__setitem__)
    for place, why in refused.items():
        wrong[rows[place]] = why
    predicates = {
        row: source if _is_small(source, wishes[row].where) else wishes[row].where
        for row, source in zip(rows, sources, strict=True)
    }
    if index.info.definition.max_unbounded is None or not inside(index.filter).matcher.takes.boxes:
        return Checked(wrong, [], predicates)
    owners = compiled.owners
    free = unbounded(compiled.boxes, index.info.schema).nonzero()[0]
    taken = {int(compiled.rows[at if owners is None else owners[at]]) for at in free}
    return Checked(wrong, [rows[place] for place in sorted(taken)], predicates)


def _read(source: Source, schema: Schema) -> Source:
    """Read a predicate; return a wrong one as it is, for `compile_many` to refuse with its row."""
    with suppress(PredicateError):
        return parse(source, schema)
    return source


def _is_small(source: Source, where: Source) -> bool:
    """Return whether a predicate may wait for its index as it was read: long ones take far more memory."""
    return isinstance(source, Predicate) and len(source.filters) == 1 and len(str(where)) <= SMALL


def too_many(index: Index, rows: Sequence[int]) -> dict[int, RTFilterError]:
    """Return the errors, by row, of subscriptions that no box bounds and for which a filter has no room.

    Takes the lock of the index: not for the event loop.
    """
    most = index.info.definition.max_unbounded
    if most is None:
        return {}
    left = max(0, most - index.filter.stats()["unbounded"])
    why = (
        "nothing bounds this predicate, so that nearly every event must be checked exactly, and "
        f"this filter has {most} such subscriptions (max_unbounded); compare an attribute with a "
        "constant as well"
    )
    return {row: TooManyError(why) for row in rows[left:]}


def _check_manner(wish: Wish, info: FilterInfo) -> None:
    if not isinstance(wish.where, str | dict):
        raise RequestError('"where" is an SQL condition as text, or an event pattern as an object')
    for name, least in (("ttl", 0.0), ("digest", SHORTEST)):
        value: Any = getattr(wish, name)
        if value is not None and (type(value) not in (int, float) or not max(least, 1e-9) <= value < 1e12):
            bounds = f"{'at least 1' if least else 'above 0'} and below 1e12"
            raise RequestError(f'"{name}" is a number of seconds, {bounds}')
    if wish.order not in (None, "key"):
        raise RequestError('"order" is "key", or is left out')
    if wish.order is not None and info.key is None:
        raise RequestError(f"the filter {info.name!r} has no key attribute, so its events have no order")
    if wish.metadata is not None and (
        not isinstance(wish.metadata, dict) or len(msgspec.json.encode(wish.metadata)) > MOST_METADATA
    ):
        raise RequestError(f'"metadata" is an object of at most {MOST_METADATA} bytes as JSON')
