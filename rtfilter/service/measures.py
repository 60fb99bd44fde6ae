"""The measures of the server's stages. An event costs an append; histograms are made when they are read.

Of an event that comes in a request, the stages of `STAGES` but the last follow each other without a gap, so
their means add up to the mean of `Measures.response`.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from time import perf_counter
from typing import Final, Literal

import numpy as np

from rtfilter.service.service_errors import KINDS
from rtfilter.watch.metrics import SECONDS, Histogram

STAGES: Final = {
    "read": "from its arrival until its body is there and it is known who sends it",
    "parse": "from then until it is checked against the schema",
    "store": "from then until it is durable; entries of the log",
    "queue": "from then until it is taken into a batch; entries of the log",
    "match": "from then until it is known what it matches",
    "deliver": "from then until it is in the backlogs, and sent to receivers; of events that match",
}
"""The stages of an event, in this order. Each reading is of one event, unless the text says otherwise."""
SIZES: Final = tuple(float(digit * 10**power) for power in range(5) for digit in (1, 2, 5))
"""Bounds of numbers of entries."""
Door = Literal["http", "websocket", "tcp"]
DOORS: Final[tuple[Door, ...]] = ("http", "websocket", "tcp")
FOLD_AT: Final = 1024
"""Most records that wait before they are added to a histogram."""
FOLD_EVENTS: Final = 1 << 14
"""Most events of waiting records, about."""


class Times:
    """A histogram of seconds, or of other numbers, that is made when it is read. Any thread may add to it.

    Parameters
    ----------
    bounds : tuple of float
        Upper bounds of the buckets.
    """

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._found = Histogram(bounds)
        self._waiting: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def add(self, value: float, times: int = 1) -> None:
        """Count a value so many times."""
        self._waiting.append((value, times))
        if len(self._waiting) >= FOLD_AT:
            self._fold()

    @contextmanager
    def around(self) -> Iterator[None]:
        """Count the seconds of the context, also if it fails."""
        begun = perf_counter()
        try:
            yield
        finally:
            self.add(perf_counter() - begun)

    def _fold(self) -> None:
        with self._lock:
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if waiting:
                values, times = np.array(waiting).T
                self._found.add(values, times)

    def histogram(self) -> Histogram:
        """Return the histogram of all values so far."""
        self._fold()
        with self._lock:
            return _copy(self._found)


class Measures:
    """The measures of all stages. Labels are of closed sets, but for the names of filters, which admins give.

    Attributes
    ----------
    commits, commit_sizes : Times
        Seconds of each transaction of the log, and the entries that it writes.
    batch_sizes : Times
        Entries that are matched together.
    index_writes, trims : Times
        Seconds of writing the index of one filter, and of removing from the log what is needed no more.
    published : int
        Events that were stored.
    from_sites : int
        Those of them that came from other sites.
    database_errors : int
        Transactions that failed.
    refused : Counter of (str, str)
        Refusals by door and kind: of requests, of lines of requests for many, of directives.
    connections : Counter of str
        Open connections, by door.
    webhook_requests : Counter of str
        By outcome: ``delivered``, ``failed``, and ``parked`` for the last one before a webhook was parked.
    webhooks : callable
        Returns the numbers of ``active`` and ``parked`` ones; `rtfilter.service.webhooks` sets it.
    """

    def __init__(self) -> None:
        self.commits, self.index_writes, self.trims = Times(), Times(), Times()
        self.commit_sizes, self.batch_sizes = Times(SIZES), Times(SIZES)
        self.published = self.from_sites = self.database_errors = 0
        self.refused = Counter[tuple[Door, str]](dict.fromkeys(product(DOORS, [*KINDS, "other"]), 0))
        self.connections = Counter[Door](dict.fromkeys(DOORS, 0))
        self.webhook_requests = Counter[str](delivered=0, failed=0, parked=0)
        self.webhooks: Callable[[], dict[str, int]] = lambda: {"active": 0, "parked": 0}
        self._stages = {stage: Times() for stage in STAGES if stage != "match"}
        self.read, self.parse, self.store, self.queue, self.deliver = self._stages.values()
        self._match = Histogram(SECONDS)
        self._response: dict[str, Histogram] = {}
        self._known: deque[tuple[str, float, Sequence[float | None], Sequence[float]]] = deque()
        self._events = 0  # in these, about: threads may lose some to each other
        self._lock = threading.Lock()

    def begin(self, filter: str) -> None:
        """Start the response times of a new filter."""
        with self._lock:
            self._response[filter] = Histogram(SECONDS)

    def forget(self, filter: str) -> None:
        """Remove the response times of a filter."""
        with self._lock:
            self._response.pop(filter, None)

    def matched(
        self, filter: str, taken: float, arrived: Sequence[float | None], known: Sequence[float]
    ) -> None:
        """Record when the matches of some events became known.

        Parameters
        ----------
        filter : str
        taken : float
            When their batch was taken, by `time.perf_counter` as all of these.
        arrived : sequence of float or None
            When each came to the server; None where that was before a restart, which counts as no response.
        known : sequence of float
            When its matches became known.
        """
        self._known.append((filter, taken, arrived, known))
        self._events += len(known)
        if self._events >= FOLD_EVENTS or len(self._known) >= FOLD_AT:
            self._fold()

    def _fold(self) -> None:
        """Add the waiting records at once: a call of NumPy takes microseconds, also for few events."""
        with self._lock:
            self._events = 0
            of: dict[str, tuple[list[float], list[float | None], list[float]]] = {}
            for filter, taken, arrived, known in [self._known.popleft() for _ in range(len(self._known))]:
                columns = of.setdefault(filter, ([], [], []))
                columns[0].extend([taken] * len(known))
                columns[1].extend(arrived)
                columns[2].extend(known)
            for filter, columns in of.items():
                since, came, told = (np.array(column, np.float64) for column in columns)  # None is NaN
                self._match.add(told - since)
                response = (told - came)[~np.isnan(came)]
                if filter in self._response:  # or it was removed
                    self._response[filter].add(response)

    @property
    def response(self) -> dict[str, Histogram]:
        """Seconds from the arrival of each event until it is known what it matches, by filter."""
        self._fold()
        with self._lock:
            return {filter: _copy(found) for filter, found in self._response.items()}

    @property
    def stages(self) -> dict[str, Histogram]:
        """Seconds that events spent in each of `STAGES`."""
        self._fold()
        with self._lock:
            match = _copy(self._match)
        found = {stage: times.histogram() for stage, times in self._stages.items()} | {"match": match}
        return {stage: found[stage] for stage in STAGES}

    def refuse(self, door: Door, kind: str) -> None:
        """Count a refusal; `kind` is that of the answer."""
        with self._lock:  # threads refuse lines of a request for many
            self.refused[door, kind if kind in KINDS else "other"] += 1


def _copy(histogram: Histogram) -> Histogram:
    made = Histogram(histogram.bounds)
    made.counts, made.total = histogram.counts.copy(), histogram.total
    return made
