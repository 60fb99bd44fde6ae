"""Counts of odd values in the events of a filter; the log gets each name once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rtfilter.events.table import Oddity

LOGGER: Final = "rtfilter.events"
"""The logger of the hints."""
_MOST: Final = 100
"""Most hints of one filter: a publisher may send ever new names."""


class OddValues:
    """Counts odd values, and logs the first one of each name.

    Attributes
    ----------
    misspelt : int
        Names in events that look like an attribute which the event lacks.
    ill_typed : int
        Values of another type than their attribute, at most one for each attribute of an event.
    """

    def __init__(self) -> None:
        self.misspelt = self.ill_typed = 0
        self._logged: set[tuple[str, bool]] = set()
        self._lock = threading.RLock()  # reentrant, because a signal handler may match

    def note(self, found: Sequence[Oddity]) -> None:
        """Count the oddities of a batch, and log new ones."""
        misspelt = sum(one.events for one in found if one.misspelt)
        ill_typed = sum(one.events for one in found if not one.misspelt)
        with self._lock:
            self.misspelt += misspelt
            self.ill_typed += ill_typed
            new = [one for one in found if not one.told and (one.name, one.misspelt) not in self._logged]
            new = new[: _MOST - len(self._logged)]
            self._logged.update((one.name, one.misspelt) for one in new)
        if new:
            import logging  # slow to import

            for one in new:
                logging.getLogger(LOGGER).warning(
                    "event %d: %s (logged once; stats() counts them)",
                    one.row,
                    one,
                )
