"""Metrics of streams for Prometheus: micro-batches of a `MatchStage`, and the progress of Spark's queries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from rtfilter.adaptive import powers_of_two
from rtfilter.spark.tracking import LEFT_OUT
from rtfilter.watch.metrics import SECONDS, Histogram, serve

#: Micro-batches take longer than events.
BATCH_SECONDS = (*SECONDS[SECONDS.index(0.01) :], 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)


class StreamMetrics(Collector):
    """Metrics of one `MatchStage` and any `ChangeStage`, in a new registry unless one is given.

    Seconds of a batch are those until its result is written, when all its matches are known. Offsets are
    seconds from the start of a task to an answer within it.

    Attributes
    ----------
    registry : CollectorRegistry
    versions : int
        Number of times that the index had changed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self.versions = 0
        self._lock = threading.Lock()
        self._seconds: dict[int, Histogram] = {}
        self._events = self._matches = self._left_out = self._changes_left_out = 0
        self._offset = self._slowest = 0.0
        self._queries: dict[str, dict[str, Any]] = {}
        self._decisions: dict[tuple[bool, str], int] = {}
        self._skew = 1.0
        self._subscriptions: Callable[[], int] = lambda: 0
        self.registry.register(self)

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: no other process could be scraped."""
        raise TypeError(
            "metrics of a MatchStage need a classic session: Spark Connect runs the stage on its server; "
            "leave out `metrics`, and use metrics.listen(spark) for the progress of queries"
        )

    def serve(self, port: int, address: str = "127.0.0.1") -> Callable[[], None]:
        """Expose the registry at http://address:port/metrics; see `rtfilter.watch.metrics.serve`."""
        return serve(self.registry, port, address)

    def listen(self, spark: SparkSession) -> Callable[[], None]:
        """Collect the progress of the session's queries from now on; return a function that ends this."""
        listener = _Listener(self)
        spark.streams.addListener(listener)
        return lambda: spark.streams.removeListener(listener)

    def observe_index(self, subscriptions: Callable[[], int]) -> None:
        """Set the function that returns the number of subscriptions at each scrape."""
        self._subscriptions = subscriptions

    def record(
        self, size: int, seconds: float, matches: int, offset: float, slowest: float, left_out: int = 0
    ) -> None:
        """Record a micro-batch.

        Parameters
        ----------
        size : int
            Number of its events.
        seconds : float
            Its duration.
        matches : int
        offset, slowest : float
            The sum of the offsets of the matches, and the greatest, in seconds.
        left_out : int
            Number of events that cannot be used.
        """
        size_class = powers_of_two(size)
        with self._lock:
            self._seconds.setdefault(size_class, Histogram(BATCH_SECONDS)).add(np.array([seconds]))
            self._events += size
            self._matches += matches
            self._left_out += left_out
            self._offset += offset
            self._slowest = slowest

    def left_out_events(self, count: int) -> None:
        """Record events of a query of `track_stream` that cannot be used."""
        with self._lock:
            self._left_out += count

    def left_out_changes(self, count: int) -> None:
        """Record changes of subscriptions that cannot be used."""
        with self._lock:
            self._changes_left_out += count

    def decided(self, dealt: bool, reason: str, skew: float | None) -> None:
        """Record whether a micro-batch was dealt out, and why; see `rtfilter.spark.balance.DealDecision`."""
        with self._lock:
            self._decisions[dealt, reason] = self._decisions.get((dealt, reason), 0) + 1
            self._skew = self._skew if skew is None else skew

    def progressed(self, query: str, rows: int, per_second: float, phases: dict[str, int]) -> None:
        """Record the progress of a query: rows of a batch, rows per second, milliseconds of its phases."""
        with self._lock:
            state = self._queries.setdefault(query, {"rows": 0, "rate": 0.0, "phases": {}, "running": 1})
            state["rows"] += rows
            state["rate"], state["running"] = per_second, 1
            for phase, milliseconds in phases.items():
                state["phases"][phase] = state["phases"].get(phase, 0.0) + milliseconds / 1000

    def ended(self, query: str) -> None:
        """Record that a query has stopped or failed."""
        with self._lock:
            if query in self._queries:
                self._queries[query].update(running=0, rate=0.0)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics for their names, so that a registry refuses a second set of them."""
        return self._work()

    def collect(self) -> Iterable[Metric]:
        """Yield every metric with its present value; called by the registry at a scrape."""
        with self._lock:
            yield from self._work()
        name, text = "rtfilter_spark_index_subscriptions", "Subscriptions that streams see"
        yield Gauge(name, text, float(self._subscriptions()))

    def _work(self) -> Iterable[Metric]:
        seconds = HistogramMetricFamily(
            "rtfilter_spark_batch_seconds",
            "Time from the start of a micro-batch until its result is written",
            labels=["size_class"],
        )
        batches = Counter("rtfilter_spark_batches", "Micro-batches matched", labels=["size_class"])
        for size_class, histogram in sorted(self._seconds.items()):
            seconds.add_metric([str(size_class)], histogram.buckets(), histogram.total)
            batches.add_metric([str(size_class)], int(histogram.counts.sum()))
        decisions = Counter(
            "rtfilter_spark_decisions",
            "Micro-batches that were dealt out, or matched where they were, by the reason",
            labels=["dealt", "reason"],
        )
        for (dealt, reason), number in sorted(self._decisions.items()):
            decisions.add_metric(["yes" if dealt else "no", reason], number)
        yield from (seconds, batches, decisions)
        for family, name, text, value in (
            (
                Gauge,
                "skew",
                "Work of the slowest core, as a multiple of the mean, if the last micro-batch stays "
                "where it is",
                self._skew,
            ),
            (Counter, "events", "Events matched in micro-batches", self._events),
            (Counter, "events_left_out", "Events that cannot be used", self._left_out),
            (Counter, "changes_left_out", "Changes that cannot be used", self._changes_left_out),
            (Counter, "matches", "Matches found in micro-batches", self._matches),
            (
                Counter,
                "offset_seconds",
                "Time from the start of a task to a match in it, summed over matches",
                self._offset,
            ),
            (Gauge, "last_offset_seconds", "The greatest of the last micro-batch", self._slowest),
            (Counter, "index_versions", "Times that the index was another", self.versions),
        ):
            yield family(f"rtfilter_spark_{name}", text, value)
        for family, name, text, key in (
            (Counter, "input_rows", "Rows read by a query", "rows"),
            (Gauge, "processed_rows_per_second", "Of the last micro-batch", "rate"),
            (Gauge, "query_running", "1 until it ends", "running"),
        ):
            of_queries = family(f"rtfilter_spark_{name}", text, labels=["query"])
            for query, state in sorted(self._queries.items()):
                of_queries.add_metric([query], state[key])
            yield of_queries
        phases = Counter(
            "rtfilter_spark_phase_seconds", "Time of a query by phase", labels=["query", "phase"]
        )
        for query, state in sorted(self._queries.items()):
            for phase, spent in sorted(state["phases"].items()):
                phases.add_metric([query, phase], spent)
        yield phases


class _Listener(StreamingQueryListener):
    """Passes the progress of the session's queries to `StreamMetrics`, by their names."""

    def __init__(self, metrics: StreamMetrics) -> None:
        self._metrics = metrics
        self._names: dict[Any, str] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self._names[event.id] = event.name or "unnamed"
        self._metrics.progressed(self._names[event.id], 0, 0.0, {})

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        self._names[progress.id] = progress.name or "unnamed"
        tracked = progress.observedMetrics.get(LEFT_OUT)
        if tracked is not None:
            self._metrics.left_out_events(tracked[0] or 0)
        per_second = progress.processedRowsPerSecond
        self._metrics.progressed(
            self._names[progress.id],
            max(progress.numInputRows, 0),
            per_second if np.isfinite(per_second) else 0.0,
            progress.durationMs,
        )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._metrics.ended(self._names.pop(event.id, "unnamed"))
