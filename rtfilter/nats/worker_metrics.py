"""Metrics of a worker for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import time
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rtfilter.watch.metrics import SECONDS, Histogram

if TYPE_CHECKING:
    from rtfilter.nats.bucket import SubscriptionBucket
    from rtfilter.nats.publisher import Publisher
    from rtfilter.nats.pull import PulledMessage

AT_ONCE = 1000
"""Times that become a histogram together."""


class WorkerMetrics(Collector):
    """Metrics of one worker, with the label ``filter``.

    Attributes
    ----------
    registry : CollectorRegistry
    refused_events, reconnects : int
    """

    def __init__(self, filter: str, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._filter = filter
        self.refused_events = self.reconnects = 0
        self._messages = self._events = self._batches = self._redelivered = self._pending = 0
        self._response, self._age = Histogram(SECONDS), Histogram(SECONDS)
        self._times: list[float] = []
        self._publisher: Publisher | None = None
        self._bucket: SubscriptionBucket | None = None
        self._held: Callable[[], int] = lambda: 0
        if registry is None:
            ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def observe(self, publisher: Publisher, bucket: SubscriptionBucket, held: Callable[[], int]) -> None:
        """Set what each scrape reads; `held` returns the number of unacknowledged messages."""
        self._publisher, self._bucket, self._held = publisher, bucket, held

    def batch(self, messages: Sequence[PulledMessage]) -> None:
        """Note messages that were taken."""
        self._batches += 1
        self._messages += len(messages)
        self._redelivered += sum(message.delivered > 1 for message in messages)
        self._pending = messages[-1].pending

    def matched(self, messages: Sequence[PulledMessage], events: int) -> None:
        """Note that all matches of messages are known."""
        self._events += events
        self._age.add(np.maximum(0.0, time() - np.array([message.stored for message in messages])))

    def done(self, seconds: float) -> None:
        """Note a message whose matches are stored, so many seconds after it came."""
        self._times.append(seconds)
        if len(self._times) >= AT_ONCE:
            self._fold()

    def _fold(self) -> None:
        times, self._times = self._times, []
        self._response.add(np.array(times))

    def collect(self) -> Iterable[Metric]:
        """Yield every metric with its present value."""
        self._fold()
        for name, text, histogram in (
            ("response", "Time from the arrival of a message until its matches are stored", self._response),
            (
                "age",
                "Time from the moment when the engine stored a message until its matches are known",
                self._age,
            ),
        ):
            family = HistogramMetricFamily(f"rtfilter_nats_{name}_seconds", text, labels=["filter"])
            family.add_metric([self._filter], histogram.buckets(), histogram.total)
            yield family
        counters = {
            "messages": ("Messages of events", self._messages),
            "events": ("Events matched", self._events),
            "events_refused": ("Events, or messages of them, that cannot be used", self.refused_events),
            "batches": ("Batches", self._batches),
            "redelivered": ("Messages that the engine has delivered before", self._redelivered),
            "reconnects": ("New connections after a lost one", self.reconnects),
        }
        gauges = {
            "pending": ("Messages that the consumer has not delivered yet", self._pending),
            "unacknowledged": ("Messages in this worker", self._held()),
        }
        if self._publisher is not None and self._bucket is not None:
            published, subscriptions = self._publisher, self._bucket.subscriptions
            counters |= {
                "matches_stored": ("Messages of matches that the engine has stored", published.stored),
                "matches_duplicate": ("Those of them that it had already", published.duplicates),
                "matches_repeated": ("Messages of matches that were sent again", published.repeated),
                "marks": ("Writes to the bucket to know its end", self._bucket.marks),
            }
            gauges |= {
                "matches_unstored": ("Messages of matches that are not stored yet", len(published)),
                "subscriptions": ("Subscriptions of this worker", len(subscriptions.users)),
                "subscriptions_refused": ("Subscriptions that cannot be used", len(subscriptions.refused)),
                "revision": ("Revision of the bucket that this worker has", subscriptions.revision),
                "behind": ("Changes of the bucket that the last batch waited for", self._bucket.behind),
            }
        for family_of, values in ((CounterMetricFamily, counters), (GaugeMetricFamily, gauges)):
            for name, (text, value) in values.items():
                made = family_of(f"rtfilter_nats_{name}", text, labels=["filter"])
                made.add_metric([self._filter], value)
                yield made
