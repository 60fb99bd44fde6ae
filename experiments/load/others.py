"""The load of the machine by other processes during a measurement."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time, sleep


class Others:
    """The CPU time that other processes use, from the creation of this object on."""

    def __init__(self) -> None:
        self._begun, self._busy, self._own = perf_counter(), _busy(), process_time()

    def cores(self, ours: Sequence[float] = ()) -> float:
        """Return the mean number of cores that other processes have used.

        Parameters
        ----------
        ours : sequence of float
            CPU seconds that do not count: those of all our processes, this one included. By default this
            process alone is ours.

        Returns
        -------
        float
            NaN if the system does not report it.
        """
        now = perf_counter()
        spent = sum(ours) if ours else process_time() - self._own
        return max(_busy() - self._busy - spent, 0) / (now - self._begun)


def wait_for_quiet(most: float, patience: float) -> None:
    """Wait until other processes use at most `most` cores, but no longer than `patience` seconds."""
    limit = perf_counter() + patience
    while perf_counter() < limit:
        others = Others()
        sleep(0.1)
        if not others.cores() > most:
            return


def _busy() -> float:
    """Return the CPU seconds of all processes since the machine started; NaN if that is unknown."""
    listing = Path("/proc/stat")
    if not listing.exists():
        return float("nan")
    ticks = [int(field) for field in listing.read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")
