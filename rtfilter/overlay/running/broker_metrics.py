"""The metrics of a broker for Prometheus. No label grows with clients or subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rtfilter.watch.metrics import Histogram

WITHIN: Final = 5.0
"""Seconds to wait for the broker's answer to a scrape."""
GAUGES: Final = {
    "entries": ("router", "entries", "Entries of the routing table"),
    "replica_entries": ("router", "replica", "Entries of the designated broker's table, at another member"),
    "suppressed": ("router", "suppressed", "Subscriptions not told to a neighbour, which knows wider ones"),
    "in_suspense": ("router", "in_suspense", "Subscriptions whose neighbour is lost, and waited for"),
    "index_bytes": ("router", "bytes", "Memory of the indexes of the routing table"),
    "clients": ("clients", "clients", "Clients that are connected"),
    "subscriptions": ("clients", "subscriptions", "Subscriptions of the broker's own clients"),
    "unacknowledged": ("clients", "unacknowledged", "Publications that have not arrived everywhere"),
    "undelivered": ("clients", "undelivered", "Deliveries that clients do not have yet"),
    "keeping": ("process", "keeping", "1 while state can be stored"),
    "links": ("process", "links", "Connections to other brokers"),
    "reached": ("process", "reached", "1 while it is in the tree: at the root, or below a parent"),
}
"""Each metric by its part and its name there, with its text."""
COUNTERS: Final = {
    "resent": ("clients", "resent", "Publications sent again"),
    "elections": ("process", "elections", "Brokers that came to stand for the cluster"),
    "moves": ("process", "moves", "Clusters that came to be above this one"),
    "datagrams_refused": ("process", "datagrams_refused", "Datagrams of those who do not have the key"),
}
Snapshot = tuple[dict[str, dict[str, Any]], Histogram]
"""Counts by part, and the delays from publications to their acknowledgements."""


class BrokerMetrics(Collector):
    """Metrics of one broker and its process, computed at each scrape.

    `snapshot` is called on the thread of the scrape.
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the metrics are only known at a scrape."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield the current metrics."""
        stats, delays = self._snapshot()
        for name, (part, own, text) in GAUGES.items():
            yield GaugeMetricFamily(f"rtfilter_overlay_{name}", text, stats[part][own])
        for name, (part, own, text) in COUNTERS.items():
            yield CounterMetricFamily(f"rtfilter_overlay_{name}", text, stats[part][own])
        strategy = GaugeMetricFamily(
            "rtfilter_overlay_strategy", "1 for the strategy in use", labels=["strategy"]
        )
        strategy.add_metric([stats["router"]["strategy"]], 1)
        yield strategy
        sent = CounterMetricFamily("rtfilter_overlay_messages", "Messages sent, by kind", labels=["kind"])
        for kind, count in sorted(stats["sent"].items()):
            sent.add_metric([kind], count)
        yield sent
        yield HistogramMetricFamily(
            "rtfilter_overlay_acknowledged_seconds",
            "Time from a publication until all receivers have it",
            delays.buckets(),
            delays.total,
        )


def on_loop(loop: asyncio.AbstractEventLoop, ask: Callable[[], Snapshot]) -> Callable[[], Snapshot]:
    """Return a function that calls `ask` on the thread of an event loop, from any other thread."""

    async def asked() -> Snapshot:
        return ask()

    return lambda: asyncio.run_coroutine_threadsafe(asked(), loop).result(WITHIN)
