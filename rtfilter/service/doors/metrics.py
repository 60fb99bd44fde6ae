"""What the server counts, for Prometheus. No label grows with users or subscriptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import FilterInfo
from rtfilter.watch.metrics import Metrics

RISING: Final = frozenset({"delivered", "redelivered", "acknowledged", "dropped", "expired"})
"""Counts that only rise; all others are the state of the moment."""


class Counts(Collector):
    """The counts of a pipeline, as they are when they are asked for."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def describe(self) -> Iterable[Metric]:
        """None ahead of time: which there are may change."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The counts of now."""
        for name, value in self._pipeline.counts.items():
            text = f"Server: {name.replace('_', ' ')}"
            if name in RISING:
                yield CounterMetricFamily(f"rtfilter_service_{name}", text, value=value)
            else:
                yield GaugeMetricFamily(f"rtfilter_service_{name}", text, value=value)
        yield GaugeMetricFamily(
            "rtfilter_service_ready", "1 while it is ready", value=float(self._pipeline.ready)
        )


class FilterMetrics:
    """Of all filters of a server, in one registry with those of the process.

    Attributes
    ----------
    registry : CollectorRegistry
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

    def of(self, info: FilterInfo) -> Metrics:
        """New metrics for a filter."""
        try:
            return Metrics(self.registry, info.name)
        except ValueError:  # those of a filter that had the name are still there
            return Metrics(self.registry, f"{info.name}-{info.since}")
