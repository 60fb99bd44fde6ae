"""Counts and measures of the server, for Prometheus. No label grows with users or subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rtfilter.service.measures import Measures
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import FilterInfo
from rtfilter.watch.metrics import Histogram, Metrics

RISING: Final = frozenset({"published", "delivered", "redelivered", "acknowledged", "dropped", "expired"})
"""Counts that only rise; all others are the state of the moment."""
TEXTS: Final = {
    "published": "Events stored",
    "delivered": "Deliveries sent for the first time",
    "redelivered": "Deliveries sent again, since they were not acknowledged in time or the receiver went",
    "acknowledged": "Deliveries acknowledged",
    "dropped": "Deliveries dropped because a backlog had no room",
    "expired": "Deliveries dropped because they were too old",
    "waiting_deliveries": "Deliveries that are not acknowledged",
    "longest_backlog": "Deliveries that are not acknowledged, the most of one user",
    "backlog_bytes": "Size of all deliveries that are not acknowledged, about",
    "backlog_oldest_seconds": "Age of the oldest delivery that is not acknowledged",
    "waiting_entries": "Entries of the log that wait to be matched",
    "waiting_bytes": "Size of the entries that wait to be written to the log, about",
    "head": "Position of the last entry of the log",
    "settled": "Position up to which it is known what entries match",
    "subscriptions": "Subscriptions",
    "users_with_subscriptions": "Users who have subscriptions",
    "filters": "Filters",
}
"""Help texts of the counts."""


class PipelineCollector(Collector):
    """The counts and measures of a pipeline, and the text of all metrics.

    Parameters
    ----------
    pipeline : Pipeline
    registry : CollectorRegistry
        It has these counts from now on.
    """

    def __init__(self, pipeline: Pipeline, registry: CollectorRegistry) -> None:
        self._pipeline, self._registry = pipeline, registry
        self._found: list[Metric] = []
        self._making: asyncio.Task[bytes] | None = None
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the counts and measures that `text` has found."""
        return self._found

    async def text(self) -> bytes:
        """Return the text of all metrics. All who ask while it is made get the same text."""
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make())
        return await asyncio.shield(self._making)

    async def _make(self) -> bytes:
        pipeline = self._pipeline
        self._found = [*_counted(pipeline), *_of_site(pipeline), *_measured(pipeline.measures)]
        return await asyncio.to_thread(generate_latest, self._registry)


def _counted(pipeline: Pipeline) -> Iterable[Metric]:
    for name, value in pipeline.status.counts.items():
        text = TEXTS.get(name, name.replace("_", " ").capitalize())
        if name in RISING:
            yield CounterMetricFamily(f"rtfilter_service_{name}", text, value=value)
        else:
            yield GaugeMetricFamily(f"rtfilter_service_{name}", text, value=value)
    ready = float(pipeline.ready)
    yield GaugeMetricFamily("rtfilter_service_ready", "1 while it is ready", value=ready)
    standby = float(pipeline.standby is not None)
    yield GaugeMetricFamily("rtfilter_service_standby", "1 while it follows another server", value=standby)


def _of_site(pipeline: Pipeline) -> Iterable[Metric]:
    if pipeline.site is None:
        return
    shown = pipeline.site.shown
    for name, text, value in (
        (
            "neighbours",
            "Sites next to this one that it has a connection to",
            sum(one.connected for one in shown.neighbours),
        ),
        ("reached", "1 while it is in the tree: at the root, or below a parent", shown.reached),
        ("current", "1 while it misses no event of another site", shown.current),
    ):
        yield GaugeMetricFamily(f"rtfilter_service_site_{name}", text, value=float(value))
    text, stored = "Events of other sites stored", pipeline.measures.from_sites
    yield CounterMetricFamily("rtfilter_service_site_events", text, value=stored)


def _measured(measures: Measures) -> Iterable[Metric]:
    yield _histograms(
        "response_seconds",
        "Time from the arrival of an event until it is known what it matches",
        "filter",
        measures.response,
    )
    yield _histograms(
        "stage_seconds", "Time that an event, or an entry of the log, is in a stage", "stage", measures.stages
    )
    for name, text, times in (
        ("commit_seconds", "Time of a transaction of the log", measures.commits),
        ("commit_entries", "Entries that a transaction writes to the log", measures.commit_sizes),
        ("batch_entries", "Entries of the log that are matched together", measures.batch_sizes),
        ("index_write_seconds", "Time to write the index of a filter beside the log", measures.index_writes),
        ("trim_seconds", "Time to remove from the log what is needed no more", measures.trims),
    ):
        found = times.histogram()
        yield HistogramMetricFamily(f"rtfilter_service_{name}", text, found.buckets(), found.total)
    text = "Transactions and questions in which the database failed"
    yield CounterMetricFamily("rtfilter_service_database_errors", text, measures.database_errors)
    text = "Requests, lines of requests for many, and directives that were refused"
    refused = CounterMetricFamily("rtfilter_service_refused", text, labels=["door", "kind"])
    for (door, kind), count in sorted(measures.refused.items()):
        refused.add_metric([door, kind], count)
    yield refused
    text = "Requests to webhooks, by what became of them"
    requests = CounterMetricFamily("rtfilter_service_webhook_requests", text, labels=["outcome"])
    for outcome, count in measures.webhook_requests.items():
        requests.add_metric([outcome], count)
    yield requests
    webhooks = GaugeMetricFamily("rtfilter_service_webhooks", "Webhooks that users have", labels=["state"])
    for state, count in measures.webhooks().items():
        webhooks.add_metric([state], count)
    yield webhooks
    connections = GaugeMetricFamily("rtfilter_service_connections", "Open connections", labels=["door"])
    for one, count in measures.connections.items():
        connections.add_metric([one], count)
    yield connections


def _histograms(name: str, text: str, label: str, of: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(f"rtfilter_service_{name}", text, labels=[label])
    for value, histogram in of.items():
        family.add_metric([value], histogram.buckets(), histogram.total)
    return family


class FilterMetrics:
    """The metrics of all filters of a server, in one registry with those of the process.

    Attributes
    ----------
    registry : CollectorRegistry
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

    def of(self, info: FilterInfo) -> Metrics:
        """Return new metrics for a filter."""
        return Metrics(self.registry, info.name)
