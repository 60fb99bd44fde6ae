"""Samples that are under way, and those that count as lost because their batch never reports.

A late batch may still report. So a sample is lost once `PATIENCE` later ones have been reported, or when
`MOST` are under way and another one begins; then the oldest is lost.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)

PATIENCE = 64
"""Reports of later samples after which a sample counts as lost."""

MOST = 256
"""Largest number of samples under way; this bounds memory and time."""


class UnderWay(Generic[P]):
    """The positions of the samples under way, by their serial numbers, which only rise."""

    def __init__(self) -> None:
        self._positions: dict[int, P] = {}
        self._later: dict[int, int] = {}  # the number of later samples that were reported

    def add(self, serial: int, position: P) -> None:
        """Add a sample that begins."""
        self._positions[serial] = position
        self._later[serial] = 0

    def take(self, serial: int) -> P | None:
        """Remove a sample that reports, and return its position; None if it is not under way."""
        if serial not in self._positions:
            return None
        del self._later[serial]
        for earlier in self._later:  # in the order of their serial numbers
            if earlier > serial:
                break
            self._later[earlier] += 1
        return self._positions.pop(serial)

    def drop(self, serial: int) -> None:
        """Forget a sample, as if it had never begun."""
        self._positions.pop(serial, None)
        self._later.pop(serial, None)

    def lost(self, room: int = 0) -> list[P]:
        """Remove the lost samples, and the oldest beyond `MOST` - `room`; return their positions."""
        if not self._later:
            return []
        serials = [serial for serial, later in self._later.items() if later >= PATIENCE]
        serials += list(self._later)[: max(0, len(self._later) + room - MOST)]
        found = dict.fromkeys(serials)
        for serial in found:
            del self._later[serial]
        return [self._positions.pop(serial) for serial in found]
