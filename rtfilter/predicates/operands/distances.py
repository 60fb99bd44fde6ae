"""Great-circle distances: the distance of an event from a point, and boxes around it (`docs/predicates.md`).

The Earth is a sphere, and distances use the haversine formula. Latitudes reach from -90 to 90 and longitudes
from -180 to 180 degrees; other coordinates have no distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import asin, cos, degrees, pi, radians, sin, sqrt
from typing import Final, NamedTuple

import numpy as np

from rtfilter.dtypes import BoolArray, FloatArray
from rtfilter.errors import PredicateError
from rtfilter.events.encoding import number
from rtfilter.predicates.operands.attribute_names import written
from rtfilter.text import shown

RADIUS: Final = 6371.0088
"""Kilometres: the mean radius of the Earth (IUGG)."""
SLACK: Final = 0.001
"""Most kilometres by which a computed distance is wrong; most errors are near the opposite point."""

Interval = tuple[float, float]
"""A closed interval, in degrees."""


class _Distance(NamedTuple):
    latitude: str
    longitude: str
    north: float
    east: float


class Distance(_Distance):
    """The distance of two attributes, in kilometres, from a point: an operand of comparisons with numbers.

    Parameters
    ----------
    latitude, longitude : str
        Attributes, in degrees.
    north, east : float
        The point, in degrees: its latitude from -90 to 90, its longitude from -180 to 180.

    Raises
    ------
    PredicateError
        A name is no string, or the point is out of range.
    """

    __slots__ = ()

    def __new__(cls, latitude: str, longitude: str, north: float, east: float) -> Distance:
        """Check the point."""
        point = []
        for value, most, what in ((north, 90, "latitude"), (east, 180, "longitude")):
            found = number(value)
            if found is None or not -most <= found <= most:
                raise PredicateError(f"a {what} is a number from -{most} to {most}; got {shown(value)}")
            point.append(float(found) + 0.0)
        if not (isinstance(latitude, str) and isinstance(longitude, str)):
            raise PredicateError("the latitude and the longitude of events are attributes")
        return tuple.__new__(cls, (latitude, longitude, *point))

    def of(self, row: Mapping[str, object]) -> float | None:
        """Return the distance of a flat event; None if it has none."""
        latitude, longitude = number(row.get(self.latitude)), number(row.get(self.longitude))
        if latitude is None or longitude is None or not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
            return None
        return distance(latitude, longitude, self.north, self.east)

    def columns(self, latitude: FloatArray, longitude: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return the distances of k events, up to `SLACK`, from their coordinates; and which have none."""
        none = ~((np.abs(latitude) <= 90) & (np.abs(longitude) <= 180))
        own, other = np.radians(np.where(none, 0, latitude)), radians(self.north)
        east = np.radians(np.where(none, 0, longitude) - self.east)
        part = np.sin((own - other) / 2) ** 2 + np.cos(own) * cos(other) * np.sin(east / 2) ** 2
        return 2 * RADIUS * np.arcsin(np.sqrt(np.minimum(part, 1))), none

    def around(self, radius: float) -> tuple[Interval, list[Interval]]:
        """Return intervals that contain all latitudes and longitudes within a radius.

        Longitudes are one interval, or two across the 180th meridian; none if all longitudes are within.
        """
        if radius < 0:
            return (self.north, self.north), [(self.east, self.east)]
        angle = min((radius + SLACK) / RADIUS, pi)
        low, high = self.north - degrees(angle), self.north + degrees(angle)
        if low <= -90 or high >= 90:  # a pole is within, and so are all meridians
            return (max(low, -90.0), min(high, 90.0)), []
        wide = degrees(asin(min(sin(angle) / cos(radians(self.north)), 1.0)) + SLACK / RADIUS)
        west, east = self.east - wide, self.east + wide
        if west <= -180:
            return (low, high), [(-180.0, east), (west + 360, 180.0)]
        if east >= 180:
            return (low, high), [(-180.0, east - 360), (west, 180.0)]
        return (low, high), [(west, east)]

    def latitudes(self, radius: float) -> list[float]:
        """Return the latitudes at about a distance on the meridian of the point."""
        angle = degrees(min(max(radius, 0), RADIUS * pi) / RADIUS)
        return [own for own in (self.north + angle, self.north - angle) if -90 <= own <= 90]

    def __str__(self) -> str:
        names = f"{written(self.latitude)}, {written(self.longitude)}"
        return f"DISTANCE_KM({names}, {self.north!r}, {self.east!r})"


def distance(latitude: float, longitude: float, north: float, east: float) -> float:
    """Return the distance of two points in kilometres; the coordinates are in degrees."""
    own, other = radians(latitude), radians(north)
    part = sin((own - other) / 2) ** 2 + cos(own) * cos(other) * sin(radians(longitude - east) / 2) ** 2
    return 2 * RADIUS * asin(sqrt(min(part, 1.0)))
