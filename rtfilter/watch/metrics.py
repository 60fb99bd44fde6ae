"""Prometheus metrics of a filter: response times, decisions of the controller, and the index.

Each batch appends one record. The records become histograms when Prometheus scrapes, or when many wait. The
state of the controller and of the index is read at the scrape. So a batch pays for one append. Metrics are in
base units (seconds, bytes), and the number of their labels does not grow with the number of subscriptions.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rtfilter.basics.dtypes import AnyArray, FloatArray, IntArray
from rtfilter.basics.results import StreamRecord

SECONDS = (*(float(f"{m}e{e}") for e in range(-6, 1) for m in (1, 2.5, 5)), 10.0)
NODES = tuple(2.0**e for e in range(15))
FOLD_AT = 1024
"""Most records that wait for a scrape."""
FOLD_EVENTS = 1 << 20
"""Most events of streams whose records wait for a scrape."""


class Histogram:
    """Counts per bucket, and the sum of the values."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = np.zeros(len(bounds) + 1, np.int64)
        self.total = 0.0

    def add(self, values: AnyArray, weights: AnyArray | None = None) -> NDArray[np.intp]:
        """Count each value, as often as its weight says; return the bucket of each value."""
        bucket = np.searchsorted(self.bounds, values, side="left")  # a value on a bound is in its bucket
        self.counts += np.bincount(bucket, weights, len(self.counts)).astype(np.int64)
        self.total += float(values.sum() if weights is None else values @ weights)
        return bucket

    def buckets(self) -> list[tuple[str, float]]:
        """Return upper bounds, and how many values are at most that, in the form of Prometheus."""
        names = [repr(bound) for bound in self.bounds] + ["+Inf"]
        return list(zip(names, np.cumsum(self.counts).astype(float).tolist(), strict=True))


class Totals(NamedTuple):
    """The counts up to a time, and the state at that time."""

    events: int
    matches: int
    batches: dict[int, int]
    """By class of sizes."""
    estimated: list[tuple[float, int, int]]
    """Upper bound of an estimate in nodes, events of streams with an estimate up to that and above the bound
    before, and nodes visited by them. Bounds without events are left out."""
    statistics: dict[str, Any]
    """See `EventFilter.stats`."""
    controller: dict[str, Any]
    """The snapshot of the controller."""


class Metrics(Collector):
    """Metrics of one filter.

    Attributes
    ----------
    registry : CollectorRegistry
        Has these metrics, and by default no others than those of the process. Expose it yourself, or call
        `serve`.
    name : str
        The label ``filter`` of all samples, which distinguishes filters of one registry; without a name there
        is no such label.
    added, removed, refused : int
        Subscriptions.
    refused_events : int

    Raises
    ------
    ValueError
        The registry has metrics of a filter of this name already.
    """

    def __init__(self, registry: CollectorRegistry | None = None, name: str = "") -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self.name = name
        self.added = self.removed = self.refused = self.refused_events = 0
        # Threads append to these while `fold` empties them: append and popleft of a deque are atomic.
        self._wholes: deque[tuple[int, float, int]] = deque()
        self._streams: deque[StreamRecord] = deque()
        self._waiting = 0
        self._lock, self._folding = threading.RLock(), False
        self._response: dict[int, Histogram] = {}
        self._mean: dict[int, Histogram] = {}
        self._batches: dict[int, int] = {}
        self._estimation = Histogram(SECONDS)
        self._workload = Histogram(NODES)
        self._estimated = np.zeros((2, len(NODES) + 1))  # events and visits by bucket of workload
        self._stream_seconds = 0.0
        self._events = 0
        self._matches = 0
        self._state: Callable[[], tuple[dict[str, Any], dict[str, Any]]] | None = None
        if registry is None:
            ProcessCollector(registry=self.registry)
        _join(self)

    def leave(self) -> None:
        """Remove the metrics from the registry, for a removed filter. Its name may be used again."""
        with _joining:
            filters = _joined[id(self.registry)]
            if filters.members.get(self.name) is not self:
                return
            del filters.members[self.name]
            if not filters.members:
                self.registry.unregister(filters)
                del _joined[id(self.registry)]

    def observe_state(self, state: Callable[[], tuple[dict[str, Any], dict[str, Any]]]) -> None:
        """Set the function that each scrape calls for the index's statistics and the controller's snapshot.

        Raises `ValueError` when the metrics already belong to another filter.
        """
        if self._state is not None:
            raise ValueError("these metrics belong to another filter; make one Metrics() for each filter")
        self._state = state

    def serve(self, port: int, address: str = "127.0.0.1") -> Callable[[], None]:
        """Expose the registry at http://address:port/metrics; see `serve`."""
        return serve(self.registry, port, address)

    def push(self, gateway: str, job: str) -> None:
        """Send the present values to a Pushgateway at host:port. For jobs that end before they are scraped.

        Raises `OSError` when it cannot be reached.
        """
        from http.client import HTTPException

        from prometheus_client import push_to_gateway

        try:
            push_to_gateway(gateway, job, self.registry)
        except (OSError, HTTPException, ValueError) as error:
            raise OSError(f"cannot push metrics to {gateway}: {error}; is a Pushgateway there?") from None

    def record_whole(self, size: int, seconds: float, matches: int) -> None:
        """Record a batch of `size` events that were all released after `seconds`."""
        self._wholes.append((size, seconds, matches))
        if len(self._wholes) >= FOLD_AT:
            self.fold()

    def record_stream(self, record: StreamRecord) -> None:
        """Record a stream, after its last group."""
        self._streams.append(record)
        self._waiting += len(record.workload)
        if len(self._streams) >= FOLD_AT or self._waiting >= FOLD_EVENTS:
            self.fold()

    def fold(self) -> None:
        """Add the waiting records to the histograms and counters."""
        with self._lock:
            if self._folding:  # a signal handler or a finalizer matches events during the call
                return
            try:
                self._folding = True
                self._fold()
            finally:
                self._folding = False

    def _fold(self) -> None:
        wholes = [self._wholes.popleft() for _ in range(len(self._wholes))]
        if wholes:
            # NumPy on whole columns: a Python loop over the records would slow down matching.
            sizes, seconds, matches = (np.array(column) for column in zip(*wholes, strict=True))
            classes = np.left_shift(1, np.frexp(sizes)[1] - 1)  # powers of two, as in the controllers
            for size_class in np.unique(classes).tolist():
                own = classes == size_class
                self._add(size_class, seconds[own], sizes[own], seconds[own], int(matches[own].sum()))
        self._waiting = 0
        for record in [self._streams.popleft() for _ in range(len(self._streams))]:
            mean = np.array([np.average(record.ended, weights=record.sizes)])
            self._add(record.size_class, record.ended, record.sizes, mean, record.matches)
            self._estimation.add(np.array([record.estimation]))
            bucket = self._workload.add(record.workload)
            self._estimated[0] += np.bincount(bucket, minlength=len(NODES) + 1)
            self._estimated[1] += np.bincount(bucket, record.visits, len(NODES) + 1)
            self._stream_seconds += float(record.ended[-1]) if len(record.ended) else 0.0

    def _add(
        self,
        size_class: int,
        ended: FloatArray,
        sizes: IntArray,
        means: FloatArray,
        matches: int,
    ) -> None:
        """Add batches of one class: end and size of each group, mean response time of each batch."""
        self._response.setdefault(size_class, Histogram(SECONDS)).add(ended, sizes)
        self._mean.setdefault(size_class, Histogram(SECONDS)).add(means)
        self._batches[size_class] = self._batches.get(size_class, 0) + len(means)
        self._events += int(sizes.sum())
        self._matches += matches

    def totals(self) -> Totals:
        """Return the data of `collect`, for programs other than Prometheus."""
        self.fold()
        with self._lock:
            rows = zip((*NODES, float("inf")), *self._estimated.tolist(), strict=True)
            estimated = [(bound, int(events), int(visits)) for bound, events, visits in rows if events]
            counted = self._events, self._matches, dict(self._batches), estimated
        index, controller = self._state() if self._state is not None else ({}, {})
        return Totals(*counted, index, controller)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics for their names: a registry refuses another collector with the same names."""
        return self._work()

    def collect(self) -> Iterable[Metric]:
        """Yield each metric with its present value, without the label `filter`; called at a scrape."""
        self.fold()
        with self._lock:
            work = list(self._work())
        yield from work
        if self._state is not None:
            index, controller = self._state()
            yield from _index_metrics(index)
            yield from controller_metrics(controller)

    def _work(self) -> Iterable[Metric]:
        for name, text, histograms in (
            ("response", "Time from a batch's arrival to an event's release", self._response),
            ("batch_response", "Mean response time of a batch", self._mean),
        ):
            family = HistogramMetricFamily(f"rtfilter_{name}_seconds", text, labels=["size_class"])
            for size_class, histogram in sorted(histograms.items()):
                family.add_metric([str(size_class)], histogram.buckets(), histogram.total)
            yield family
        for name, text, histogram in (
            ("estimation_seconds", "Time to estimate and order a batch", self._estimation),
            ("workload_nodes", "Estimated workload of an event, in nodes", self._workload),
        ):
            buckets = histogram.buckets()
            yield HistogramMetricFamily(f"rtfilter_{name}", text, buckets=buckets, sum_value=histogram.total)
        text = "Time from the arrival of streams to their last release"
        yield _counter("stream_seconds", text, self._stream_seconds)
        names = [f"{bound:05.0f}" for bound in NODES] + ["more"]  # their order as texts
        for name, text, values in (
            ("events", "Events of streams by estimated workload: at most so many nodes", self._estimated[0]),
            ("visits", "Nodes visited after the estimate by events of that workload", self._estimated[1]),
        ):
            own = {names[at]: float(values[at]) for at in np.flatnonzero(self._estimated[0]).tolist()}
            yield _labelled(CounterMetricFamily, f"estimated_{name}", text, "nodes", own)
        by_class = dict(sorted(self._batches.items()))
        yield _labelled(CounterMetricFamily, "batches", "Batches matched", "size_class", by_class)
        for name, text, total in (
            ("events", "Events matched", self._events),
            ("events_refused", "Events refused, with the batch that they came in", self.refused_events),
            ("matches", "Matches found", self._matches),
            ("subscriptions_added", "Subscriptions added", self.added),
            ("subscriptions_removed", "Subscriptions removed", self.removed),
            ("subscriptions_refused", "Subscriptions refused, with those of the same call", self.refused),
        ):
            yield _counter(name, text, total)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"rtfilter_{name}", text, value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"rtfilter_{name}", text, value)


def _labelled(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    text: str,
    label: str,
    values: Mapping[Any, float],
) -> Metric:
    """Return a metric with a value for each value of a label."""
    family = kind(f"rtfilter_{name}", text, labels=[label])
    for own, value in values.items():
        family.add_metric([str(own)], value)
    return family


class _Filters(Collector):
    """The metrics of all filters of one registry, in which each name occurs once."""

    def __init__(self) -> None:
        self.members: dict[str, Metrics] = {}

    def describe(self) -> Iterable[Metric]:
        yield from _process_metrics()
        yield from next(iter(self.members.values())).describe()

    def collect(self) -> Iterable[Metric]:
        yield from _process_metrics()
        families: dict[str, Metric] = {}
        for name, metrics in list(self.members.items()):
            for family in metrics.collect():
                if name:
                    family.samples = [
                        sample._replace(labels={"filter": name} | sample.labels) for sample in family.samples
                    ]
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples += family.samples
        yield from families.values()


def _process_metrics() -> Iterable[Metric]:
    version = str(sys.modules["rtfilter"].__version__)
    text = "1, with the version of rtfilter"
    yield _labelled(GaugeMetricFamily, "build_info", text, "version", {version: 1})
    counts = sys.modules.get("rtfilter.index.kernels.counts")  # which stands higher
    text = "Kernels that the process compiled because no cache had them"
    yield _counter("kernels_compiled", text, getattr(counts, "compiled", 0))


_joining = threading.Lock()
_joined: WeakValueDictionary[int, _Filters] = WeakValueDictionary()
"""The filters of each registry, by the registry's `id`."""


def _join(metrics: Metrics) -> None:
    """Add metrics to their registry."""
    with _joining:
        known = _joined.get(id(metrics.registry))
        if known is not None and metrics.name in known.members:
            called = f"called {metrics.name!r}" if metrics.name else "without a name"
            raise ValueError(
                f"the registry has metrics of a filter {called} already; "
                "give each a name of its own: Metrics(registry, name=...)"
            )
        if known is not None:
            known.members[metrics.name] = metrics
            return
        filters = _Filters()
        filters.members[metrics.name] = metrics
        metrics.registry.register(filters)
        _joined[id(metrics.registry)] = filters


def serve(registry: CollectorRegistry, port: int, address: str = "127.0.0.1") -> Callable[[], None]:
    """Expose a registry at http://address:port/metrics from a thread; return a function that stops it.

    Raises
    ------
    OSError
        The port cannot be opened; the message has its number.
    TypeError
        There is no registry, as for a filter without metrics.
    """
    if not hasattr(registry, "collect") or isinstance(registry, Metrics):
        raise TypeError(
            "serve takes the registry of metrics, such as metrics.registry of an EventFilter(schema, "
            f"metrics=metrics); got {registry!r:.60}"
        )
    try:
        server, thread = start_http_server(port, address, registry=registry)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OSError(f"cannot serve metrics on {address}:{port} ({reason}); choose another port") from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _index_metrics(index: dict[str, Any]) -> Iterable[Metric]:
    for key, name, text in (
        ("subscriptions", "index_subscriptions", "Subscriptions in the index"),
        ("in_flight_batches", "in_flight_batches", "Batches being matched now"),
        (
            "unbounded",
            "index_unbounded",
            "Subscriptions that nothing bounds: each costs an exact check of nearly every event",
        ),
    ):
        yield _gauge(name, text, index[key])
    for key, name, text in (
        ("expired", "subscriptions_expired", "Subscriptions removed because their time to live was over"),
        (
            "misspelt",
            "values_misspelt",
            "Names of events that stand for an attribute which the event lacks",
        ),
        ("ill_typed", "values_ill_typed", "Values of events that are of another type than their attribute"),
    ):
        yield _counter(name, text, index[key])
    verified = index["verified"]
    for key, name, text in (
        ("candidates", "exact_checks", "Candidates that no box decides, verified by the predicate"),
        ("seconds", "exact_check_seconds", "Time of exact checks"),
    ):
        own = {kind: counts[key] for kind, counts in verified["kinds"].items()}
        yield _labelled(CounterMetricFamily, name, text, "kind", own)
    text = "Candidates that did not satisfy the predicate"
    yield _counter("exact_checks_refused", text, verified["refused"])
    yield from _matcher_metrics(index.get("matcher", {}))
    for key, text in (
        ("boxes", "Distinct boxes in the index"),
        ("height", "Levels of the index"),
        ("bytes", "Memory of the index"),
    ):
        if key in index:  # a matcher of constraints has no boxes
            yield _gauge(f"index_{key}", text, index[key])
    if "updates" in index:
        yield _counter("index_updates", "Boxes inserted and deleted", index["updates"])


def _matcher_metrics(matcher: dict[str, Any]) -> Iterable[Metric]:
    used = {matcher["name"]: 1} if matcher else {}
    yield _labelled(GaugeMetricFamily, "matcher", "1 for the matcher in use", "matcher", used)
    for key, text in (
        ("moves", "Times that another matcher was chosen"),
        ("trials", "Trials of another matcher beside the one in use"),
        ("trial_seconds", "Time of these trials"),
    ):
        yield _counter(f"matcher_{key}", text, matcher.get(key, 0))


def controller_metrics(controller: dict[str, Any]) -> Iterable[Metric]:
    """Yield the metrics of a controller, from its snapshot."""
    classes = controller.get("classes", {})
    # Key in the snapshot, name and text of the metric. A group of None is the whole batch, shown as 0.
    for key, name, text in (
        ("level", "level", "Level that batches of this class share a traversal to"),
        ("group", "group_events", "Events searched and released together, 0 for the whole batch"),
        ("updates", "updates", "Index updates since the class last probed"),
    ):
        own = {size_class: state[key] or 0 for size_class, state in classes.items()}
        yield _labelled(GaugeMetricFamily, f"controller_{name}", text, "size_class", own)
    probing = {size_class: float(state["mode"] != "STABLE") for size_class, state in classes.items()}
    text = "1 while the class compares plans, 0 when stable"
    yield _labelled(GaugeMetricFamily, "controller_probing", text, "size_class", probing)
    text = "Index updates after which a stable class probes again, 0 where that is not counted"
    yield _gauge("controller_threshold_updates", text, controller.get("threshold") or 0)
    for key, name, text in (
        ("transitions", "transitions", "Changes between stable and probing"),
        ("moves", "plan_changes", "Changes of the plan, level or group"),
        ("anomalies", "anomalies", "Probing loops in which both neighbours were better"),
        ("tries", "tries", "Batches by a plan that is not thought best, to learn"),
        ("alarms", "alarms", "Times that responses were not what they had been"),
    ):
        # each kind of controller has its own keys
        own = {size_class: state.get(key, 0) for size_class, state in classes.items()}
        yield _labelled(CounterMetricFamily, f"controller_{name}", text, "size_class", own)
