"""Subscriptions as callers pass them: labels, and loads, which report unusable rows and add the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import timedelta
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

import numpy as np

from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import numbered, shown
from rtfilter.events.encoding import microseconds
from rtfilter.predicates.bounds.bound_columns import SIDES, Columns
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.ids import LAST_ID, NO_IDS, new_ids, refuse_kind
from rtfilter.subscriptions.labels import NO_LABELS, LabelColumns, encoded
from rtfilter.subscriptions.subscription_tables import SubscriptionTable, cell

Lifetime = float | timedelta
"""Seconds, or a timedelta."""


class BadSubscription(NamedTuple):
    """A subscription of a load that cannot be used."""

    row: int
    """Its row in the load, from 0; -1 for a Spark frame, whose rows have no order."""
    id: Any
    """The id that was passed; None without one."""
    where: Any
    """The text or pattern, as it was passed."""
    error: Exception
    """The error: `PredicateError`, `ValueError` or `TypeError`."""

    @property
    def reason(self) -> str:
        """The error and its remedy, without the row and the text."""
        return self.error.message if isinstance(self.error, PredicateError) else str(self.error)

    @property
    def attribute(self) -> str | None:
        """The attribute that the error is about; None if there is none."""
        return getattr(self.error, "attribute", None)

    @property
    def position(self) -> int | None:
        """The position of the error in the text of `where`, from 0; None if it has none."""
        return getattr(self.error, "position", None)

    def __str__(self) -> str:
        """Return the row, the id and the error, with its position in the text."""
        place = "" if self.row < 0 else f"row {self.row}, "
        text = str(self.error).removeprefix(place)
        return place + (text if self.id is None else f"id {shown(self.id)}: {text}")


_WORDS: Final[dict[type, str]] = {int: "an integer", str: "text", UUID: "a UUID"}
OnError = Literal["raise", "skip"] | Callable[[BadSubscription], object]


class Load:
    """Subscriptions of a load, to add to others, with a check that finds the unusable ones.

    `bad` has the unusable ones found so far, by row. Raises `TypeError` or `ValueError` for a column with
    another number of rows than there are subscriptions.
    """

    def __init__(self, held: Subscriptions, given: SubscriptionTable, on_error: OnError) -> None:
        self._held, self._on_error, self._place = held, on_error, given.place
        self._bounds = given.bounds
        self._where = None if given.where is None else _column("where", given.where)
        self._count = len(_ends(given.bounds)[0][1] if self._where is None else self._where)
        self._ids = None if given.ids is None else _column("ids", given.ids, self._count)
        self.bad: dict[int, BadSubscription] = {}
        self._told: set[int] = set()
        self._deadlines = self._read_deadlines(given)
        self._metadata = self._read("metadata", given.metadata, _noted if given.is_table else encoded)
        self._sound_ids = self._ids is None or self._are_sound(self._ids)
        if self._ids is not None and not self._sound_ids:
            self._check_ids(self._ids)

    def _note(self, row: int, error: Exception) -> None:
        if isinstance(error, PredicateError):
            error.row = row
            error.show_row()
        id = None if self._ids is None else self._ids[row]
        self.bad.setdefault(row, BadSubscription(row, id, self._source(row), error))

    def _source(self, row: int) -> Any:
        if self._where is not None:
            return self._where[row]
        ends = {name: column[row : row + 1].tolist()[0] for name, column in _ends(self._bounds)}
        return {name: end for name, end in ends.items() if end is not None}

    def _left(self) -> list[int]:
        return [row for row in range(self._count) if row not in self.bad]

    # -- columns beside `where` ----------------------------------------------------------------------------

    def _read(self, name: str, column: Any, read: Callable[[Any], Any]) -> list[Any] | None:
        if column is None:
            return None
        return _cells(name, column, self._count, lambda value: read(cell(value)), self._note)

    def _read_deadlines(self, given: SubscriptionTable) -> list[float] | None:
        now = self._held.clock()
        if given.expires is not None:
            return self._read("expires", given.expires, _moment)
        if given.ttl is None or (hasattr(given.ttl, "__len__") and not isinstance(given.ttl, str)):
            return self._read("ttl", given.ttl, lambda ttl: now + seconds(ttl))
        return [now + seconds(given.ttl)] * self._count

    def _are_sound(self, ids: Sequence[Any]) -> bool:
        """Return whether all ids are usable and distinct; this check is much faster than those of each."""
        try:
            kind = int if isinstance(new_ids(ids, len(ids)), np.ndarray) else type(ids[0])
        except (TypeError, ValueError):
            return False
        return self._held.kind in (None, kind)

    def _check_ids(self, ids: Sequence[Any]) -> None:
        """Note ids that are unusable, or of another type than the others."""
        kind, first = self._held.kind, -1
        for row, id in enumerate(ids):
            try:
                if cell(id) is None:
                    raise ValueError("this subscription has no id; give each one")
                if isinstance(id, Integral) and not isinstance(id, bool | np.bool_):
                    own: type = int
                    if not 0 <= int(id) <= LAST_ID:
                        raise ValueError(f"an id is an integer from 0 to 2**63 - 2, not {shown(id)}")
                elif isinstance(id, str | UUID):
                    own = str if isinstance(id, str) else UUID
                    new_ids([id], 1)
                else:
                    remedy = "; int(id) makes one" if isinstance(id, float) and id.is_integer() else ""
                    raise TypeError(f"an id is an integer, text or a UUID, not {shown(id)}{remedy}")
                if kind is None and row not in self.bad:
                    kind, first = own, row
                if kind is not None and own is not kind:
                    raise refuse_kind(kind, id) if first < 0 else self._other_kind(row, own, first, kind)
            except (TypeError, ValueError) as error:
                self._note(row, error)

    def _other_kind(self, row: int, own: type, first: int, kind: type) -> TypeError:
        id, there = shown(self._ids and self._ids[row]), self._place(first)
        return TypeError(f"the id {id} is {_WORDS[own]}, that of {there} is {_WORDS[kind]}; use one type")

    # -- drafts --------------------------------------------------------------------------------------------

    def draft(self) -> tuple[Draft, Any]:
        """Read all subscriptions that are not known to be bad; return their draft and ids.

        New bad ones are reported. Raises the first error if `on_error` is ``"raise"``.
        """
        while True:
            draft = self.read()
            left = self._left()
            twice = self._twice(left)
            if not twice:
                break
            for row, first in twice.items():
                known = f"the id {shown(self._ids and self._ids[row])} is taken already"
                self._note(row, ValueError(f"{known}, see {self._place(first)}"))
        self._tell()
        return draft._replace(labels=self._labels(left)), self._new_ids(left)

    def read(self) -> Draft:
        """Read all subscriptions that are not known to be bad; new bad ones are noted in `bad`."""
        rows = self._left()
        if self._where is not None:
            where = self._where if len(rows) == self._count else [self._where[row] for row in rows]
            return self._held.draft(where, lambda place, error: self._note(rows[place], error))
        return self._read_bounds(rows) or self._held.draft_bounds(*self._bounds_of(self._left()))

    def _bounds_of(self, rows: Sequence[int]) -> list[Columns]:
        places = np.asarray(rows, np.int64)
        return [{name: column[places] for name, column in side.items()} for side in self._bounds or ()]

    def _read_bounds(self, rows: Sequence[int]) -> Draft | None:
        """Read bounds; if some are bad, note them, which halving the rows finds, and return None."""
        try:
            return self._held.draft_bounds(*self._bounds_of(rows))
        except PredicateError as error:
            if error.row is None:
                raise
            if len(rows) == 1:
                self._note(rows[0], error)
                return None
        half = len(rows) // 2
        self._read_bounds(rows[:half])
        self._read_bounds(rows[half:])
        return None

    def note_known(self) -> bool:
        """Note ids that exist already, and return whether there are any. Batches may run meanwhile."""
        held, moment, before = self._held, self._held.moment(), len(self.bad)
        for row, id in enumerate(self._ids or ()):
            if row not in self.bad and held.handle(id, moment) >= 0:
                reason = f"subscription {shown(id)} exists already; unsubscribe or update it"
                self._note(row, ValueError(reason))
        return len(self.bad) > before

    def _twice(self, rows: list[int]) -> dict[int, int]:
        """Return rows whose id occurred in an earlier row, with that row."""
        if self._ids is None or self._sound_ids:
            return {}
        first: dict[Any, int] = {}
        found = {row: first.setdefault(self._ids[row], row) for row in rows}
        return {row: other for row, other in found.items() if row != other}

    def _labels(self, rows: list[int]) -> LabelColumns:
        if self._deadlines is None and self._metadata is None:
            return NO_LABELS
        deadlines, metadata = self._deadlines, self._metadata
        return LabelColumns(
            None,
            None if deadlines is None else np.array([deadlines[row] for row in rows], np.float64),
            None if metadata is None else [metadata[row] for row in rows],
        )

    def _new_ids(self, rows: list[int]) -> Any:
        if self._ids is None:
            return None
        return new_ids([self._ids[row] for row in rows], len(rows)) if rows else NO_IDS

    # -- errors --------------------------------------------------------------------------------------------

    def refuse_unbounded(self, draft: Draft, error: PredicateError) -> bool:
        """Note the unbounded subscriptions over the limit; return whether there are any."""
        rows = self._left()
        many = [place for place in draft.filters.unbounded().tolist() if place >= (error.row or 0)]
        for place in many:
            self._note(rows[place], PredicateError(error.message, row=rows[place]))
        return bool(many)

    def _tell(self) -> None:
        new = sorted(self.bad.keys() - self._told)
        self._told.update(new)
        if not new:
            return
        first = self.bad[new[0]]
        if self._on_error == "raise":
            error = first.error
            if len(new) > 1:
                many = numbered(len(new), "row")
                error.add_note(f'{many} cannot be used; on_error="skip" adds the others')
            if not isinstance(error, PredicateError):
                raise type(error)(str(first)) from None
            raise error
        if self._on_error == "skip":
            import logging  # slow to import

            logging.getLogger("rtfilter").warning(
                "%s of %s left out; on_error=errors.append collects all errors. The first: %s",
                f"{len(new):,}",
                numbered(self._count, "subscription"),
                first,
            )
        else:
            for row in new:
                self._on_error(self.bad[row])


def _ends(bounds: tuple[Columns, Columns] | None) -> list[tuple[str, AnyArray]]:
    assert bounds is not None
    sides = zip(SIDES, bounds, strict=True)
    return [(f"{side}.{name}", column) for side, columns in sides for name, column in columns.items()]


def labels_of(
    count: int,
    ttl: Lifetime | Sequence[Lifetime | None] | None,
    metadata: Sequence[Mapping[str, Any] | None] | None,
    clock: Callable[[], float],
) -> LabelColumns:
    """Return the labels of `count` subscriptions; `ttl` may be one value for all of them.

    Raises `TypeError` and `ValueError`, with the row if there are several subscriptions.
    """
    if ttl is None and metadata is None:
        return NO_LABELS

    def refuse(row: int, error: Exception) -> None:
        raise (error if count == 1 else type(error)(f"row {row}, {error}")) from None

    texts = None if metadata is None else _cells("metadata", metadata, count, encoded, refuse)
    if ttl is None:
        return LabelColumns(None, None, texts)
    now = clock()
    if not isfinite(now):
        raise ValueError(f"the clock returned {shown(now)}, but a time to live needs finite seconds")
    if isinstance(ttl, Real | timedelta | np.timedelta64 | str):
        return LabelColumns(None, np.full(count, now + seconds(ttl)), texts)
    return LabelColumns(None, now + np.array(_cells("ttl", ttl, count, seconds, refuse), np.float64), texts)


def seconds(ttl: object) -> float:
    """Return a time to live in seconds, inf for None.

    Raises `TypeError`; `ValueError` if it is not above 0.
    """
    if ttl is None:
        return inf
    if isinstance(ttl, timedelta):
        value = ttl.total_seconds()
    elif isinstance(ttl, np.timedelta64) and np.datetime_data(ttl.dtype)[0] not in ("Y", "M"):
        value = float(ttl / np.timedelta64(1, "s"))
    elif isinstance(ttl, Real) and not isinstance(ttl, bool | np.timedelta64):
        try:
            value = float(ttl)
        except OverflowError:
            value = inf
    else:
        raise TypeError(f"a time to live is a number of seconds or a timedelta, not {shown(ttl)}")
    if not (value > 0 and isfinite(value)):
        raise ValueError(
            f"a time to live is finite and above 0, not {shown(ttl)}; "
            "leave it out if the subscription never expires"
        )
    return value


def _cells(
    name: str,
    column: Any,
    count: int,
    read: Callable[[Any], Any],
    refuse: Callable[[int, Exception], None],
) -> list[Any]:
    """Read the cells of a column; `refuse` gets the row and the error of each unusable one."""
    found: list[Any] = []
    for row, value in enumerate(_column(name, column, count)):
        try:
            found.append(read(value))
        except (TypeError, ValueError) as error:
            refuse(row, error)
            found.append(None)
    return found


def _column(name: str, given: Any, count: int | None = None) -> list[Any]:
    """Return a column as a list with a cell for each subscription."""
    if isinstance(given, str | bytes | Mapping | Set) or not hasattr(given, "__len__"):
        raise TypeError(f"{name} must be a list with a value for each subscription, not {shown(given)}")
    if isinstance(given, np.ndarray) and given.dtype.kind in "mM":
        given = list(given)  # `tolist` makes integers of nanoseconds
    cells = given if isinstance(given, list) else given.tolist() if hasattr(given, "tolist") else list(given)
    if count is not None and len(cells) != count:
        raise ValueError(f"{name} has {len(cells)} rows for {count} subscriptions")
    return cells


def _noted(metadata: object) -> bytes | None:
    """Return the JSON text of metadata, which may be JSON text already."""
    if isinstance(metadata, str | bytes):
        try:
            metadata = json.loads(metadata)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"metadata as text must be JSON, but {shown(metadata)} is not: {error}"
            ) from None
    return encoded(metadata)


def _moment(expires: object) -> float:
    """Return an expiry in seconds since 1970, of a time or of seconds; inf for None."""
    if expires is None:
        return inf
    if isinstance(expires, Real) and not isinstance(expires, bool | np.bool_):
        value = float(expires)
        if value == value:
            return value
    found = microseconds(expires)
    if found is None:
        raise ValueError(f"expires must be a time or seconds since 1970, not {shown(expires)}")
    return found / 1e6
