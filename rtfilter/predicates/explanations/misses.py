"""A table of the nearest misses: the reasons why many events do not match many subscriptions.

A pair of an event and a subscription that do not match has in the table the failing constraints of the
subscription's nearest filter. A filter is near if few constraints fail; among equally many, if they miss by
little. The size of the table is limited, for any number of pairs.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rtfilter.basics.extras import needed
from rtfilter.basics.results import arrow_ids
from rtfilter.basics.text import numbered, printable, shown
from rtfilter.events.encoding import Timestamp
from rtfilter.predicates.explanations.explanation import (
    ConstraintExplanation,
    distance_order,
    fewest_failing,
    nearest,
)
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import Constraint, Quantified
from rtfilter.predicates.model.list_tests import Event
from rtfilter.predicates.operands.expressions import text
from rtfilter.predicates.predicate import Predicate

MAX_PAIRS: Final = 1_000_000
"""Most pairs of an event and a subscription that are examined for one table.

For an event with lists, each choice of elements counts.
"""
MISSES: Final = 1000
"""Most pairs in a table, by default."""
_LINE: Final = 100
"""Characters of a printed line."""
_LEAST: Final = ((8, 36, 24, 12, 32), (8, 36, 16, 8, 24))
"""Characters that the printed columns keep if the line is too long; if need be, the second row."""
_ROWS: Final = 100
"""Most rows that are printed."""
_HEADER: Final = ("event", "subscription", "constraint", "value", "by how much")


class Miss(NamedTuple):
    """A constraint that fails: one row of the table."""

    event: int
    """Row of the event, from 0."""
    subscription: Any
    """The id of the subscription."""
    failing: int
    """Number of failing constraints of the filter; if 1, this constraint alone prevents a match."""
    filter: int
    """The number of the nearest conjunction of the subscription, from 1; 0 if it has none."""
    attribute: str
    """The attribute, or the left side of a comparison."""
    operator: str
    """The operator; for a quantified constraint, ``any`` or ``all``."""
    wanted: object
    """The constant, a tuple for a set, None if there is none; for a comparison, its right value."""
    value: object
    """The value of the event, None if missing; for a comparison, the value of the left side."""
    distance: float | None
    """The distance of a number or a timestamp from an accepted value, in `unit`; None if unknown."""
    unit: str
    """``s``, or empty for the attribute's unit."""
    agrees: int | None
    """The number of first characters of text, or first bits of an address, that are as wanted."""
    constraint: str
    """The constraint in SQL."""
    by: str
    """The amount by which it fails, as a phrase."""
    element: str = ""
    """The place of the value in a list, as ``tags[2]``; all places of a comparison; empty for no list."""


@dataclass(frozen=True, repr=False)
class Misses(Sequence[Miss]):
    """The nearest misses; a sequence of `Miss`, nearest pairs first. ``str()`` prints a table.

    Attributes
    ----------
    rows : tuple of Miss
        One row for each failing constraint of a pair.
    pairs : int
        Number of examined pairs.
    matched : int
        Number of pairs that match; they are not in the table.
    told : int
        Number of pairs in the table.
    kind : type
        The type of the ids: int, str or uuid.UUID.
    """

    rows: tuple[Miss, ...]
    pairs: int
    matched: int
    told: int
    kind: type = field(default=int)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, row: Any) -> Any:
        return self.rows[row]

    def __iter__(self) -> Iterator[Miss]:
        return iter(self.rows)

    @property
    def missed(self) -> int:
        """Number of pairs that do not match, in the table or not."""
        return self.pairs - self.matched

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns of `Miss` by name."""
        return {name: [row[place] for row in self.rows] for place, name in enumerate(Miss._fields)}

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with the rows. Needs pandas."""
        with needed("replay", "to_pandas()"):
            import pandas as pd
        return pd.DataFrame(self.columns()).astype({"distance": "float64", "agrees": "Int64"})

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table` with the rows; `wanted` and `value` are text. Needs the extra `arrow`."""
        with needed("arrow", "to_arrow()"):
            import numpy as np
            import pyarrow as pa
        columns = self.columns()
        ids = np.array(columns.pop("subscription"), np.int64 if self.kind is int else object)
        texts = {name: [_shown(one) for one in columns.pop(name)] for name in ("wanted", "value")}
        types = {"event": pa.int64(), "failing": pa.int64(), "filter": pa.int64(), "agrees": pa.int64()}
        made = {
            name: pa.array(_encodable(column), types.get(name, pa.string()))
            for name, column in ({**columns, **texts}).items()
            if name != "distance"
        }
        made |= {
            "subscription": arrow_ids(ids, self.kind),
            "distance": pa.array(columns["distance"], pa.float64()),
        }
        return pa.table({name: made[name] for name in Miss._fields})

    def __repr__(self) -> str:
        return f"Misses({self._summary()})"

    def __str__(self) -> str:
        lines = [self._summary()]
        if self.rows:
            lines += _table([_HEADER, *_cells(self.rows[:_ROWS])])
        if len(self.rows) > _ROWS:
            lines.append(f"... and {numbered(len(self.rows) - _ROWS, 'more row')}")
        return "\n".join(lines)

    def _summary(self) -> str:
        said = f"{self.matched:,} of {numbered(self.pairs, 'pair')} match"
        if self.told < self.missed:
            return f"{said}; the nearest {self.told:,} of the {self.missed:,} others"
        return f"{said}; the {self.missed:,} others, nearest first" if self.missed else said


class MissSearch:
    """Examines pairs of an event and a subscription, and keeps the nearest misses.

    Parameters
    ----------
    limit : int
        Most pairs to keep.
    """

    def __init__(self, limit: int = MISSES) -> None:
        if type(limit) is not int or limit < 0:
            raise ValueError(f"limit is the number of pairs in the table, from 0 on; got {shown(limit)}")
        self.limit = limit
        self.pairs = self.matched = 0
        self._kept: list[tuple[tuple[Any, ...], _Pair]] = []  # with their sort keys, which are distinct

    def look(self, id: Any, predicate: Predicate, rows: Sequence[Event], first: int = 0) -> None:
        """Examine a subscription and some events.

        Parameters
        ----------
        id : int, str or UUID
            The id; all ids must be of one type.
        predicate : Predicate
        rows : sequence of mapping or Elements
            A result of `rtfilter.predicates.model.list_tests.events_of`.
        first : int
            Number of the first event.
        """
        self.pairs += len(rows)
        for number, row in enumerate(rows, first):
            fails = [fewest_failing(one, row) for one in predicate.filters]
            if 0 in fails:
                self.matched += 1
            elif self._may_keep(fails):
                pairs = [
                    _Pair(number, id, at, nearest(predicate.filters[at - 1], row).failing if at else ())
                    for at in _least(fails)
                ]
                insort(self._kept, min((_order(pair), pair) for pair in pairs))
                del self._kept[self.limit :]

    def _may_keep(self, fails: list[int]) -> bool:
        """Return whether a pair may be near enough; most pairs need no explanation."""
        if len(self._kept) < self.limit:
            return True
        return bool(self._kept) and (not fails, min(fails, default=0)) <= self._kept[-1][0][:2]

    def misses(self, kind: type = int) -> Misses:
        """Return the table; `kind` is the type of the ids."""
        rows = [row for _, pair in self._kept for row in _rows(pair)]
        return Misses(tuple(rows), self.pairs, self.matched, len(self._kept), kind)


class _Pair(NamedTuple):
    """An event and a subscription that do not match, with the nearest filter."""

    event: int
    id: Any
    filter: int
    """From 1; 0 if there is none."""
    failing: tuple[ConstraintExplanation, ...]


def _least(fails: list[int]) -> list[int]:
    """Return the filters, from 1, in which the fewest constraints fail; 0 if there are no filters."""
    least = min(fails, default=0)
    return [place for place, failing in enumerate(fails, 1) if failing == least] or [0]


def _order(pair: _Pair) -> tuple[Any, ...]:
    """Return the sort key of a pair, nearest first."""
    distance = distance_order(pair.failing)
    return not pair.filter, len(pair.failing), *distance, pair.event, pair.id, pair.filter


def _rows(pair: _Pair) -> Iterator[Miss]:
    if not pair.filter:
        nothing = "no filter: nothing can match"
        yield Miss(pair.event, pair.id, 0, 0, "", "", None, None, None, "", None, "FALSE", nothing)
    for one in pair.failing:
        test, by = one.constraint, one.shortfall
        operator = test.quantifier if isinstance(test, Quantified) else test.operator
        if isinstance(test, Comparison):
            attribute, (value, wanted) = text(test.left), one.value
            if one.unit == "s":
                value, wanted = (Timestamp(side) if isinstance(side, int) else side for side in one.value)
            if one.distance and not isinstance(test.right, int | float):
                by += f" for {shown(wanted)}"
        else:
            own = one.telling.constraint if one.telling is not None else test
            attribute, value = test.attribute, one.value
            wanted = own.value if isinstance(own, Constraint) else None
        yield Miss(
            pair.event, pair.id, len(pair.failing), pair.filter, attribute, operator,
            tuple(sorted(wanted)) if isinstance(wanted, frozenset) else wanted,
            value, one.distance, one.unit, one.agrees, str(test), by, one.element,
        )  # fmt: skip


def _shown(value: object) -> str | None:
    return None if value is None else shown(value)


def _encodable(column: list[Any]) -> list[Any]:
    """Return text without lone surrogates, which Arrow cannot hold."""
    return [
        one.encode("utf-8", "backslashreplace").decode() if isinstance(one, str) else one for one in column
    ]


def _cells(rows: Sequence[Miss]) -> Iterator[tuple[str, ...]]:
    """Yield the printed cells of each row; only the first row of a pair names it."""
    before = None
    for row in rows:
        pair = (row.event, row.subscription)
        names = ("", "") if pair == before else (f"{row.event}", printable(f"{row.subscription}"))
        before = pair
        value = "" if row.value is None else shown(row.value)
        if row.element:
            value += f" ({row.element})"
        yield *names, printable(row.constraint), printable(value), printable(row.by)


def _table(lines: list[tuple[str, ...]]) -> list[str]:
    """Return lines of columns, at most `_LINE` characters wide: columns above `_LEAST` are cut."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    over = sum(widths) + 2 * (len(widths) - 1) - _LINE
    for least in _LEAST:
        for place in (3, 2, 4, 1, 0):
            cut = max(min(over, widths[place] - least[place]), 0)
            widths[place] -= cut
            over -= cut
    return ["  ".join(map(_fitted, line, widths)).rstrip() for line in lines]


def _fitted(cell: str, width: int) -> str:
    return (cell if len(cell) <= width else cell[: width - 3] + "...").ljust(width)
