"""Metrics of several processes at one address: each process writes its own to a directory, one serves all.

In each process, call ``share(metrics, "/run/rtfilter")``. In one process, one of these or another,
call ``serve(Together("/run/rtfilter").registry, 17464)``. If each process can have its own port, let
Prometheus scrape all of them instead: it then shows them separately.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.util import Finalize
from os import PathLike
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rtfilter.watch.metrics import Metrics

INTERVAL = 1.0
"""Seconds between two writes of a process."""
STALE = 10.0
"""Age in seconds from which a file is one of an ended process: its gauges no longer count."""


def share(metrics: Metrics, directory: str | PathLike[str]) -> Callable[[], None]:
    """Write the metrics of this process to a directory every second, and when the process ends.

    Returns a function that writes a last time and stops. Call `share` in the process that matches, after the
    fork. Raises `OSError` when the directory cannot be written.
    """
    folder = Path(directory)
    pid = os.getpid()
    file = folder / f"{pid}.{uuid.uuid4().hex}.prom"
    draft = file.with_suffix(".draft")
    ended, writing = threading.Event(), threading.Lock()

    def write() -> None:
        with writing:
            folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(generate_latest(metrics.registry))
            os.replace(draft, file)

    def repeat() -> None:
        while not ended.wait(INTERVAL):
            with suppress(OSError):  # a full disk may have space again later
                write()

    def stop() -> None:
        if os.getpid() == pid and not ended.is_set():  # not in a forked child: it has no such thread
            ended.set()
            with suppress(OSError):
                write()
            atexit.unregister(stop)

    write()
    threading.Thread(target=repeat, daemon=True).start()
    atexit.register(stop)
    Finalize(None, stop, exitpriority=10)  # children of multiprocessing do not run atexit
    return stop


class Together(Collector):
    """The metrics that processes share in a directory.

    Counters, histograms and batches in flight are summed. Of other gauges the greatest value is shown.
    Counters and histograms of ended processes still count, their gauges do not. Files of ended processes
    stay: empty the directory while no process runs.

    Attributes
    ----------
    registry : CollectorRegistry
        Has these metrics; see `rtfilter.watch.metrics.serve`.
    """

    def __init__(self, directory: str | PathLike[str], registry: CollectorRegistry | None = None) -> None:
        self._folder = Path(directory)
        self._ended: dict[tuple[str, float], list[Metric]] = {}  # of ended processes, by file name and time
        self.registry = registry if registry is not None else CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return no metrics: their names are not known before there are files."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield each metric. The registry calls this at a scrape."""
        families: dict[str, Metric] = {}
        values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for file in sorted(self._folder.glob("*.prom")):
            live, found = self._read(file)
            for family in found:
                if family.type == "gauge" and not live:
                    continue
                families.setdefault(family.name, family)
                total = values.setdefault(family.name, {})
                for sample in family.samples:
                    key = sample.name, tuple(sorted(sample.labels.items()))
                    summed = family.type != "gauge" or sample.name == "rtfilter_in_flight_batches"
                    before = total.get(key, 0.0)
                    total[key] = before + sample.value if summed else max(before, sample.value)
        for name, family in families.items():
            merged = Metric(name, family.documentation, family.type)
            for (full_name, labels), value in values[name].items():
                merged.add_sample(full_name, dict(labels), value)
            yield merged

    def _read(self, file: Path) -> tuple[bool, list[Metric]]:
        """Return whether the process of a file is alive, and its metrics; none if the file was removed."""
        with suppress(FileNotFoundError):
            changed = file.stat().st_mtime
            live = time.time() - changed < STALE
            known = self._ended.get((file.name, changed))
            found = known or list(text_string_to_metric_families(file.read_text()))
            if not live:
                self._ended[file.name, changed] = found
            return live, found
        return False, []
