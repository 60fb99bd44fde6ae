"""Metrics of several processes at one address: each writes its own to a directory, one of them serves all.

In each process, ``share(filter.metrics, "/run/rtfilter")``; in one of them or another,
``serve(Together("/run/rtfilter").registry, 9464)``. Where each process can have a port of its own, let
Prometheus scrape them all instead: it then tells them apart.
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

#: Seconds between two writes, and after which what is in flight or in the index counts no more.
INTERVAL, STALE = 1.0, 10.0


def share(metrics: Metrics, directory: str | PathLike[str]) -> Callable[[], None]:
    """Write the metrics of this process to a directory every second, and when it ends.

    Returns what writes a last time and stops. To be called after a fork, in the process that matches. Raises
    `OSError` when the directory cannot be written.
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
            with suppress(OSError):  # a full disk may have room later
                write()

    def stop() -> None:
        if os.getpid() == pid and not ended.is_set():  # a forked child has none of this
            ended.set()
            with suppress(OSError):
                write()
            atexit.unregister(stop)

    write()
    threading.Thread(target=repeat, daemon=True).start()
    atexit.register(stop)
    Finalize(None, stop, exitpriority=10)  # children of multiprocessing skip atexit
    return stop


class Together(Collector):
    """The metrics that processes share in a directory: counters and histograms summed, gauges the greatest.

    Those of processes that have ended still count, but for gauges. Batches in flight are summed. Files of
    ended processes stay: empty the directory when none runs.

    Attributes
    ----------
    registry : CollectorRegistry
    """

    def __init__(self, directory: str | PathLike[str], registry: CollectorRegistry | None = None) -> None:
        self._folder = Path(directory)
        self._ended: dict[tuple[str, float], list[Metric]] = {}  # what stale files held
        self.registry = registry if registry is not None else CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are known when there are files."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield every metric; called by the registry at a scrape."""
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
        """Whether a file is of a living process, and what it holds; nothing if it was removed just now."""
        with suppress(FileNotFoundError):
            changed = file.stat().st_mtime
            live = time.time() - changed < STALE
            known = self._ended.get((file.name, changed))
            found = known or list(text_string_to_metric_families(file.read_text()))
            if not live:
                self._ended[file.name, changed] = found
            return live, found
        return False, []
