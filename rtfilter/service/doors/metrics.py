"""What the server counts, for Prometheus. No label grows with users or subscriptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rtfilter.service.pipeline import Pipeline

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


def registry(pipeline: Pipeline) -> CollectorRegistry:
    """All metrics of a server: its own, and those of the process."""
    made = CollectorRegistry()
    made.register(Counts(pipeline))
    ProcessCollector(registry=made)
    return made
