"""Generated subscriptions to flights: alerts for travellers, crews, airlines and airports.

Each alert is made from a random flight of the data. So a route, carrier, airport or aircraft is asked for as
often as it flies: a few are very popular, most are not. Thresholds come from short lists, because people
choose round numbers; so many alerts are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

SQL_SHARE = 0.05
"""Share of the alerts that are SQL conditions. The others are event patterns, which parse faster."""
# Minutes of delay; a value that is asked for more often occurs more often.
_DELAYS = (15, 15, 20, 30, 30, 30, 45, 45, 60, 60, 60, 60, 90, 120, 120, 180, 240)


class Term(NamedTuple):
    """A constraint on an attribute."""

    attribute: str
    operator: str
    """``=``, ``<``, ``<=``, ``>``, ``>=``, ``between`` (closed), ``in``, ``prefix`` or ``missing``."""
    value: Any = None


Filter = tuple[Term, ...]
"""All of its terms must hold; they are on different attributes."""


@dataclass(frozen=True)
class Alert:
    """Holds if any of its filters does; written as an event pattern or as an SQL condition."""

    filters: tuple[Filter, ...]
    as_sql: bool = False

    def source(self) -> str | dict[str, Any]:
        """Return the alert in its own notation."""
        return self.sql() if self.as_sql else self.pattern()

    def pattern(self) -> dict[str, Any]:
        """Return the alert as an event pattern."""
        patterns = [{term.attribute: [_matcher(term)] for term in terms} for terms in self.filters]
        for pattern, terms in zip(patterns, self.filters, strict=True):
            pattern.update({term.attribute: list(term.value) for term in terms if term.operator == "in"})
        return patterns[0] if len(patterns) == 1 else {"$or": patterns}

    def sql(self) -> str:
        """Return the alert as an SQL condition."""
        filters = [" AND ".join(map(_condition, terms)) for terms in self.filters]
        return filters[0] if len(filters) == 1 else " OR ".join(f"({text})" for text in filters)


def _matcher(term: Term) -> Any:
    match term.operator:
        case "=":
            return term.value
        case "between":
            return {"numeric": [">=", term.value[0], "<=", term.value[1]]}
        case "prefix":
            return {"prefix": term.value}
        case "missing":
            return {"exists": False}
        case _:
            return {"numeric": [term.operator, term.value]}


def _condition(term: Term) -> str:
    match term.operator:
        case "between":
            return f"{term.attribute} BETWEEN {_literal(term.value[0])} AND {_literal(term.value[1])}"
        case "in":
            return f"{term.attribute} IN ({', '.join(map(_literal, term.value))})"
        case "prefix":
            return f"{term.attribute} LIKE {_literal(term.value + '%')}"
        case "missing":
            return f"{term.attribute} IS NULL"
        case _:
            return f"{term.attribute} {term.operator} {_literal(term.value)}"


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


class _Draw:
    """A random flight, and random numbers for the choices of its alert.

    `others` are destinations of other random flights.
    """

    def __init__(self, flight: dict[Any, Any], others: list[str], chances: list[float]) -> None:
        self.flight = flight
        self.others = others
        self._chances = iter(chances)

    def same(self, *attributes: str) -> Filter:
        """Return terms that ask for the values of the flight."""
        return tuple(Term(name, "=", self.flight[name]) for name in attributes)

    def late(self, attribute: str) -> Term:
        return Term(attribute, ">", self.one_of(*_DELAYS))

    def one_of(self, *values: Any) -> Any:
        return values[int(next(self._chances) * len(values))]


_CHOICES = 6
"""Largest number of choices for one alert."""


def _route(draw: _Draw) -> list[Filter]:
    return [(*draw.same("origin", "dest"), draw.late(draw.one_of("dep_delay", "arr_delay")))]


def _my_flight(draw: _Draw) -> list[Filter]:
    return [(*draw.same("carrier", "flight", "origin"), draw.late("dep_delay"))]


def _journey(draw: _Draw) -> list[Filter]:
    """Return a route in a window of one to seven days, late or cancelled."""
    departure = draw.flight["sched_dep"].to_pydatetime()  # ten times faster than pandas' own
    day = datetime(departure.year, departure.month, departure.day)
    until = day + timedelta(days=draw.one_of(1, 1, 2, 3, 7), minutes=-1)
    window = Term("sched_dep", "between", (f"{day.isoformat()}Z", f"{until.isoformat()}Z"))
    journey = (*draw.same("origin", "dest"), window)
    return [(*journey, draw.late("dep_delay")), (*journey, Term("dep_time", "missing"))]


def _aircraft(draw: _Draw) -> list[Filter]:
    if pd.isna(draw.flight["tailnum"]):  # a cancelled flight that had no aircraft
        return _cancelled(draw)
    more = draw.one_of((), (draw.late("arr_delay"),))
    return [(*draw.same("tailnum"), *more)]


def _fleet(draw: _Draw) -> list[Filter]:
    """Return aircraft whose registrations start with the same characters."""
    if pd.isna(draw.flight["tailnum"]):
        return _cancelled(draw)
    start = Term("tailnum", "prefix", draw.flight["tailnum"][: draw.one_of(2, 3, 3, 4, 4)])
    return [(start, *draw.same("carrier"), draw.late("dep_delay"))]


def _carrier(draw: _Draw) -> list[Filter]:
    return [(*draw.same("carrier", "origin"), draw.late("arr_delay"))]


def _evening(draw: _Draw) -> list[Filter]:
    first = int(draw.flight["hour"])
    hours = Term("hour", "between", (first, first + draw.one_of(1, 2, 3)))
    return [(*draw.same("carrier", "origin"), hours, draw.late("dep_delay"))]


def _destinations(draw: _Draw) -> list[Filter]:
    size = draw.one_of(2, 3, 3, 4, 5)
    chosen = sorted({draw.flight["dest"], *draw.others[: size - 1]})
    where = Term("dest", "in", tuple(chosen))
    return [(*draw.same("origin"), where, draw.late("dep_delay"))]


def _cancelled(draw: _Draw) -> list[Filter]:
    what = draw.one_of(("origin", "dest"), ("origin", "carrier"), ("carrier", "dest"))
    return [(*draw.same(*what), Term("dep_time", "missing"))]


def _long_haul(draw: _Draw) -> list[Filter]:
    reached = [miles for miles in (1000, 1500, 2000, 2400) if miles <= draw.flight["distance"]]
    if not reached:
        return _carrier(draw)
    late = Term("arr_delay", ">", draw.one_of(60, 90, 120, 180, 240))
    return [(*draw.same("carrier"), Term("distance", ">=", draw.one_of(*reached)), late)]


def _wind(draw: _Draw) -> list[Filter]:
    strong = (*draw.same("origin"), Term("wind_speed", ">=", draw.one_of(20, 23, 25, 28, 30)))
    gusty = (*draw.same("origin"), Term("wind_gust", ">=", draw.one_of(30, 35, 40, 45)))
    kinds: tuple[list[Filter], ...] = ([strong], [gusty], [strong, gusty])
    chosen: list[Filter] = draw.one_of(*kinds)
    return chosen


def _fog(draw: _Draw) -> list[Filter]:
    fog = Term("visib", "<", draw.one_of(0.5, 1, 2, 3))
    return [(*draw.same(*draw.one_of(("origin",), ("origin", "carrier"))), fog)]


def _snow(draw: _Draw) -> list[Filter]:
    cold = Term("temp", "<=", draw.one_of(28, 32, 34))
    return [(*draw.same("origin", "dest"), cold, Term("precip", ">", draw.one_of(0, 0.01, 0.05)))]


_KINDS: tuple[tuple[float, Callable[[_Draw], list[Filter]]], ...] = (
    (0.20, _route),
    (0.18, _my_flight),
    (0.15, _journey),
    (0.12, _aircraft),
    (0.08, _destinations),
    (0.06, _cancelled),
    (0.05, _carrier),
    (0.05, _evening),
    (0.04, _fleet),
    (0.03, _long_haul),
    (0.02, _wind),
    (0.01, _fog),
    (0.01, _snow),
)
"""The kinds of alerts, each with its share."""


def draw_alerts(rng: np.random.Generator, rows: int, flights: pd.DataFrame) -> list[Alert]:
    """Draw `rows` alerts about the flights of `rtfilter.replay.workloads.flights.load`."""
    chosen = rng.choice(len(_KINDS), rows, p=[share for share, _ in _KINDS])
    drawn = flights.iloc[rng.integers(len(flights), size=rows)].to_dict("records")
    others = flights["dest"].to_numpy()[rng.integers(len(flights), size=(rows, 4))].tolist()
    chances = rng.random((rows, _CHOICES)).tolist()
    as_sql = rng.random(rows) < SQL_SHARE
    return [
        Alert(tuple(_KINDS[kind][1](_Draw(*choices))), bool(sql))
        for kind, sql, *choices in zip(chosen, as_sql, drawn, others, chances, strict=True)
    ]
