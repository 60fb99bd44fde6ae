"""The subscriptions that are there: whose they are, when they end; as the log has them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from sys import intern
from typing import Any, Final

import msgspec

from rtfilter.errors import PredicateError, RTFilterError
from rtfilter.predicates.boxes import unbounded
from rtfilter.predicates.many import compile_many
from rtfilter.service.deliver import Owned
from rtfilter.service.errors import RequestError, TooManyError
from rtfilter.service.match import Index
from rtfilter.service.records import FilterInfo, Subscription, Wish
from rtfilter.store.tables import Entry, Kind, Logged

MOST_METADATA: Final = 4096
"""Bytes of JSON."""
REMOVED: Final = "removed"
"""Why a subscription ended that its user has removed."""
FEW: Final = 1000
"""Ends among which none is looked for that is not needed any more."""
SHORTEST: Final = 1.0
"""Seconds of a digest."""


class Owners(dict[int, Owned]):
    """Subscriptions by id, with what is counted of them."""

    def __init__(self) -> None:
        super().__init__()
        self.of_user: Counter[str] = Counter()
        self.of_both: Counter[tuple[str, str]] = Counter()
        """By user and filter."""
        self._ends: list[tuple[float, int]] = []
        self._room = FEW

    def put(self, id: int, owned: Owned) -> Owned | None:
        """Note a subscription; returns what was there."""
        before = self.drop(id) if id in self else None
        self[id] = owned
        self.of_user[owned.user] += 1
        self.of_both[owned.user, owned.filter] += 1
        if owned.expires is not None:
            self._push(owned.expires, id)
        return before

    def _push(self, expires: float, id: int) -> None:
        """Note an end; now and then, those are forgotten that another one has replaced."""
        heapq.heappush(self._ends, (expires, id))
        if len(self._ends) > self._room:
            self._ends = [(one.expires, id) for id, one in self.items() if one.expires is not None]
            heapq.heapify(self._ends)
            self._room = max(FEW, 2 * len(self._ends))

    def drop(self, id: int) -> Owned | None:
        """Forget a subscription; returns what was there."""
        owned = self.pop(id, None)
        if owned is not None:
            self.of_user[owned.user] -= 1
            self.of_both[owned.user, owned.filter] -= 1
            if not self.of_both[owned.user, owned.filter]:  # so that old users take no room
                del self.of_both[owned.user, owned.filter]
            if not self.of_user[owned.user]:
                del self.of_user[owned.user]
        return owned

    def ended(self, moment: float) -> Iterator[tuple[int, Owned]]:
        """Those whose time has come, each once."""
        while self._ends and self._ends[0][0] <= moment:
            expires, id = heapq.heappop(self._ends)
            owned = self.get(id)
            if owned is not None and owned.expires == expires:
                yield id, owned

    def ends_again(self, id: int) -> None:
        """Have a subscription be among `ended` once more: its end could not be written."""
        owned = self.get(id)
        if owned is not None and owned.expires is not None:
            self._push(owned.expires, id)


def owned_of(id: int, filter: str, user: str, expires: float | None, manner: str | None) -> Owned:
    """What the log says of a subscription."""
    user, filter = intern(user), intern(filter)  # a million may have the same
    if manner is None:
        return Owned(id, user, filter, expires)
    found = msgspec.json.decode(manner)
    return Owned(id, user, filter, expires, found.get("digest"), found.get("order") == "key")


def entry_of(
    kind: Kind, filter: str, user: str, wish: Wish, at: float, arrived: float, id: int | None = None
) -> Entry:
    """A wish as it is put into the log."""
    body = {name: value for name, value in wish._asdict().items() if value is not None}
    manner = {name: body[name] for name in ("digest", "order") if name in body}
    return Entry(
        kind,
        filter,
        user,
        msgspec.json.encode(body),
        id,
        at,
        None if wish.ttl is None else at + wish.ttl,
        msgspec.json.encode(manner).decode() if manner else None,
        arrived,
    )


def removal_of(id: int, filter: str, user: str, reason: str, at: float, arrived: float) -> Entry:
    """The end of a subscription as it is put into the log."""
    body = msgspec.json.encode({"reason": reason})
    return Entry(Kind.UNSUBSCRIBE, filter, user, body, id, at, arrived=arrived)


def subscription_of(logged: Logged) -> Subscription:
    """What the log has, as users see it."""
    position, entry = logged
    wish = Wish(**msgspec.json.decode(entry.body))
    id = position if entry.subscription is None else entry.subscription
    return Subscription(id, entry.filter, entry.user, wish, entry.at, entry.expires)


def check(wishes: Sequence[Wish], index: Index, limited: bool = True) -> dict[int, RTFilterError]:
    """What is wrong with wishes, by row; where not limited, however many no box bounds.

    May take long: not for the event loop.
    """
    wrong: dict[int, RTFilterError] = {}
    for row, wish in enumerate(wishes):
        try:
            _check_manner(wish, index.info)
        except RequestError as error:
            wrong[row] = error
    rows = [row for row in range(len(wishes)) if row not in wrong]
    refused: dict[int, PredicateError] = {}
    compiled = compile_many([wishes[row].where for row in rows], index.info.schema, refused.__setitem__)
    for place, why in refused.items():
        wrong[rows[place]] = why
    most = index.info.definition.max_unbounded
    if not limited or most is None or not index.filter.takes.boxes:
        return wrong
    free = unbounded(compiled.boxes, index.info.schema)
    if free.any():
        owners = compiled.owners
        taken = {int(compiled.rows[at if owners is None else owners[at]]) for at in free.nonzero()[0]}
        left = most - index.filter.stats()["unbounded"]
        for place in sorted(taken)[max(left, 0) :]:
            wrong[rows[place]] = TooManyError(
                "nothing bounds this predicate, so that nearly every event must be checked exactly, and "
                f"this filter has {most} such subscriptions (max_unbounded); compare an attribute with a "
                "constant as well"
            )
    return wrong


def _check_manner(wish: Wish, info: FilterInfo) -> None:
    if not isinstance(wish.where, str | dict):
        raise RequestError('"where" is an SQL condition as text, or an event pattern as an object')
    for name, least in (("ttl", 0.0), ("digest", SHORTEST)):
        value: Any = getattr(wish, name)
        if value is not None and (type(value) not in (int, float) or not max(least, 1e-9) <= value < 1e12):
            raise RequestError(f'"{name}" is a number of seconds, {"at least 1" if least else "above 0"}')
    if wish.order not in (None, "key"):
        raise RequestError('"order" is "key", or is left out')
    if wish.order is not None and info.key is None:
        raise RequestError(f"the filter {info.name!r} has no key attribute, so its events have no order")
    if wish.metadata is not None and (
        not isinstance(wish.metadata, dict) or len(msgspec.json.encode(wish.metadata)) > MOST_METADATA
    ):
        raise RequestError(f'"metadata" is an object of at most {MOST_METADATA} bytes as JSON')
