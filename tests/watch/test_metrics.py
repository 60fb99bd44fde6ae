"""Metrics against what was done: every count must agree with the batches that were matched."""

import socket
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from time import perf_counter

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

import rtfilter
from rtfilter import EventError, EventFilter, PredicateError, Schema
from rtfilter.adaptive import FixedPlan, LevelController
from rtfilter.filter import inside
from rtfilter.index.kernels import counts
from rtfilter.watch.metrics import FOLD_AT, Metrics, serve


def make(**options):
    filter = EventFilter(
        Schema({"a": float, "b": float}),
        matcher={"name": "rtree", "capacity": (4, 8)},
        metrics=Metrics(),
        **options,
    )
    ends = np.sort(np.random.default_rng(0).random((200, 2, 2)), axis=1)
    filter.subscribe_boxes(ends[:, 0], ends[:, 1])
    return filter


def value(filter, name, **labels):
    return inside(filter).metrics.registry.get_sample_value(name, labels)


@pytest.mark.parametrize("given", [CollectorRegistry(), "x", True, False])
def test_what_is_no_metrics_is_refused(given):
    with pytest.raises(TypeError, match=r"metrics is a rtfilter\.watch\.metrics\.Metrics"):
        EventFilter(Schema({"a": float}), metrics=given)


def test_every_event_is_in_one_histogram():
    filter = make(controller=FixedPlan(1, 5))
    rng = np.random.default_rng(1)
    matches = 0
    for size in (1, 3, 3, 64, 100):
        matches += len(filter.match_batch(rng.random((size, 2))).ids)
        matches += len(filter.stream(rng.random((size, 2))).matches().ids)
    classes = {"1": 2, "2": 12, "64": 328}
    for size_class, events in classes.items():
        assert value(filter, "rtfilter_response_seconds_count", size_class=size_class) == events
    batches = {"1": 2, "2": 4, "64": 4}
    for size_class, count in batches.items():
        assert value(filter, "rtfilter_batches_total", size_class=size_class) == count
        assert value(filter, "rtfilter_batch_response_seconds_count", size_class=size_class) == count
    assert value(filter, "rtfilter_events_total") == 342
    assert value(filter, "rtfilter_matches_total") == matches
    assert value(filter, "rtfilter_estimation_seconds_count") == 5
    assert value(filter, "rtfilter_workload_nodes_count") == 171


def test_response_times_are_those_of_the_stream():
    filter = make(controller=FixedPlan(1, 4))
    stream = filter.stream(np.random.default_rng(2).random((50, 2)))
    response = stream.response
    total = value(filter, "rtfilter_response_seconds_sum", size_class="32")
    assert total == pytest.approx(response.sum())
    mean = value(filter, "rtfilter_batch_response_seconds_sum", size_class="32")
    assert mean == pytest.approx(response.mean())
    assert value(filter, "rtfilter_workload_nodes_sum") == stream.workload.sum()
    visited = sum(visits for _, _, visits in inside(filter).metrics.totals().estimated)
    assert visited == stream.visits.sum() != stream.workload.sum()
    for bound in ("2.5e-05", "0.001", "10.0"):
        expected = (response <= float(bound)).sum()
        assert value(filter, "rtfilter_response_seconds_bucket", size_class="32", le=bound) == expected


def test_responses_count_from_the_arrival_but_no_plan_answers_for_the_wait():
    log: list[dict] = []
    filter = make(controller=FixedPlan(1, 4, log=log.append))
    long_ago = perf_counter() - 1e6
    points = np.random.default_rng(2).random((8, 2))
    list(filter.stream(points))  # loads kernels, which is not reported
    log.clear()
    filter.match_batch(points, arrival=long_ago)
    assert 8e6 <= value(filter, "rtfilter_response_seconds_sum", size_class="8") < 9e6
    assert (filter.stream(points, arrival=long_ago).response >= 1e6).all()
    assert 16e6 <= value(filter, "rtfilter_response_seconds_sum", size_class="8") < 17e6
    (report,) = [entry for entry in log if entry["kind"] == "report"]
    assert 0 < report["mean_response"] <= report["elapsed"] < 1e6


def test_buckets_begin_at_a_microsecond():
    filter = make()
    filter.match({"a": 0.5, "b": 0.5})
    text = generate_latest(inside(filter).metrics.registry).decode()
    assert 'rtfilter_response_seconds_bucket{le="1e-06",size_class="1"}' in text


def test_index_and_subscriptions_follow_changes():
    filter = make()
    filter.unsubscribe_many([0, 1, 1000])
    filter.subscribe("a > 0.5")
    assert value(filter, "rtfilter_subscriptions_added_total") == 201
    assert value(filter, "rtfilter_subscriptions_removed_total") == 2
    stats = filter.stats()
    assert value(filter, "rtfilter_index_subscriptions") == 199 == stats["subscriptions"]
    assert value(filter, "rtfilter_index_boxes") == stats["boxes"]
    assert value(filter, "rtfilter_index_height") == stats["height"]
    assert value(filter, "rtfilter_index_bytes") == stats["bytes"]
    assert value(filter, "rtfilter_index_updates_total") == 203


@pytest.mark.parametrize("count", [1, 50])
def test_what_ended_is_counted_once_and_apart_from_what_was_unsubscribed(count):
    now = [0.0]
    filter = EventFilter(Schema({"a": float}), metrics=Metrics(), clock=lambda: now[0])
    filter.subscribe_many(["a > 1"] * 100, ids=range(100), ttl=5)
    filter.subscribe_many(["a > 1"] * 3, ids=[200, 201, 202])
    filter.unsubscribe_many([0, 1, 200])
    assert value(filter, "rtfilter_subscriptions_expired_total") == 0
    now[0] = 5.0
    filter.subscribe_many(["a > 1"] * count, ids=range(10, 10 + count))
    for _ in range(40):
        now[0] += 1
        filter.match({"a": 2.0})
    assert value(filter, "rtfilter_subscriptions_expired_total") == 98
    assert value(filter, "rtfilter_subscriptions_removed_total") == 3
    assert value(filter, "rtfilter_subscriptions_added_total") == 103 + count
    assert value(filter, "rtfilter_index_subscriptions") == 2 + count


def test_what_nothing_bounds_is_shown():
    filter = EventFilter(Schema({"a": float, "b": float}), metrics=Metrics())
    filter.subscribe_many(["a > b", "a > 1"])
    assert value(filter, "rtfilter_index_unbounded") == 1


def test_an_open_stream_is_in_flight():
    filter = make()
    stream = filter.stream(np.random.default_rng(0).random((20, 2)))
    assert value(filter, "rtfilter_in_flight_batches") == 1
    list(stream)
    assert value(filter, "rtfilter_in_flight_batches") == 0


def test_the_controllers_state_is_shown():
    filter = make(controller=LevelController(rounds=1, threshold=2, drift=False))  # times may drift
    rng = np.random.default_rng(0)
    for _ in range(200):
        list(filter.stream(rng.random((16, 2))))
    state = inside(filter).controller.snapshot()["classes"]["16"]
    assert value(filter, "rtfilter_controller_level", size_class="16") == state["level"]
    assert value(filter, "rtfilter_controller_group_events", size_class="16") == 1
    assert value(filter, "rtfilter_controller_probing", size_class="16") == 0
    assert value(filter, "rtfilter_controller_threshold_updates") == 2
    assert value(filter, "rtfilter_controller_transitions_total", size_class="16") == state["transitions"]
    filter.subscribe_many(["a > 1", "b > 1"])
    assert value(filter, "rtfilter_controller_probing", size_class="16") == 1


def test_records_are_folded_before_they_pile_up():
    filter = make()
    for _ in range(FOLD_AT + 5):
        filter.match({"a": 0.5, "b": 0.5})
    assert len(inside(filter).metrics._wholes) == 5
    assert value(filter, "rtfilter_events_total") == FOLD_AT + 5


def test_a_signal_handler_may_match_while_records_are_folded(monkeypatch):
    metrics, add = Metrics(), Metrics._add

    def interrupted(*arguments):
        for _ in range(FOLD_AT if metrics._events == 0 else 0):
            metrics.record_whole(1, 0.001, 2)
        add(*arguments)

    monkeypatch.setattr(Metrics, "_add", interrupted)
    metrics.record_whole(1, 0.001, 2)
    folding = threading.Thread(target=metrics.fold, daemon=True)
    folding.start()
    folding.join(30)
    assert not folding.is_alive()
    assert metrics.totals()[:2] == (FOLD_AT + 1, 2 * (FOLD_AT + 1))


def test_filters_do_not_share_registries_and_refuse_to():
    one, other = make(), make()
    one.match({"a": 0.5})
    assert value(one, "rtfilter_events_total") == 1
    assert value(other, "rtfilter_events_total") == 0
    with pytest.raises(ValueError, match="one Metrics"):
        EventFilter(Schema({"a": float}), metrics=inside(one).metrics)


@pytest.mark.parametrize("given", [None, Metrics()])
def test_only_a_registry_is_served(given):
    with pytest.raises(TypeError, match=r"such as metrics\.registry .*metrics=metrics"):
        serve(given, 0)


def test_own_registry_and_no_metrics():
    registry = CollectorRegistry()
    EventFilter(Schema({"a": float}), metrics=Metrics(registry)).match({"a": 1})
    assert registry.get_sample_value("rtfilter_events_total") == 1
    assert inside(EventFilter(Schema({"a": float}))).metrics is None


def test_metrics_are_served_and_a_closed_port_is_named():
    filter = make()
    filter.match({"a": 0.5, "b": 0.5})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        with pytest.raises(OSError, match=f"127.0.0.1:{port}.*choose another port"):
            inside(filter).metrics.serve(port)
    stop = inside(filter).metrics.serve(port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert "rtfilter_events_total 1.0" in answer.read().decode()
    finally:
        stop()


def test_filters_of_one_registry_are_told_apart_by_their_names():
    registry = CollectorRegistry()
    schema = Schema({"a": float})
    one, other = (EventFilter(schema, metrics=Metrics(registry, name)) for name in ("one", "other"))
    one.match({"a": 1})
    other.match_batch([{"a": 1}, {"a": 2}])
    for name, count in (("one", 1), ("other", 2)):
        assert registry.get_sample_value("rtfilter_events_total", {"filter": name}) == count
        assert registry.get_sample_value("rtfilter_index_subscriptions", {"filter": name}) == 0
    text = generate_latest(registry).decode()
    assert text.count("# TYPE rtfilter_events_total ") == 1
    assert text.count("rtfilter_build_info{") == 1
    assert text.count("\nrtfilter_kernels_compiled_total ") == 1


@pytest.mark.parametrize("name", ["", "alerts"])
def test_one_registry_has_one_filter_of_a_name(name):
    registry = CollectorRegistry()
    kept = Metrics(registry, name)
    with pytest.raises(ValueError, match=r"already; give each a name of its own: Metrics\(registry, name="):
        Metrics(registry, name)
    kept.refused = 3
    labels = {"filter": name} if name else {}
    assert registry.get_sample_value("rtfilter_subscriptions_refused_total", labels) == 3


def test_refused_events_and_subscriptions_are_counted():
    filter = make()
    for events in (
        {"a": float("nan")},
        [{"a": 1}, {"a": float("inf")}],
        np.full((3, 2), np.nan),
        5,
        np.array(5),
    ):
        with pytest.raises(EventError):
            filter.match(events)
    assert value(filter, "rtfilter_events_refused_total") == 1 + 2 + 3 + 1 + 1
    assert value(filter, "rtfilter_events_total") == 0
    for refused in (
        lambda: filter.subscribe("c > 1"),
        lambda: filter.subscribe_many(["a > 1", "a >"]),
        lambda: filter.subscribe_boxes([[1, 1]], [[0, 0]]),
        lambda: filter.subscribe("a > 1", id=0),  # taken
        lambda: filter.update(0, "c > 1"),
    ):
        with pytest.raises((PredicateError, ValueError)):
            refused()
    assert value(filter, "rtfilter_subscriptions_refused_total") == 1 + 2 + 1 + 1 + 1
    assert value(filter, "rtfilter_subscriptions_added_total") == 200
    with pytest.raises(EventError):
        filter.explain({"a": float("nan")}, 0)
    assert value(filter, "rtfilter_events_refused_total") == 8  # nobody wanted to match that one


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_exact_checks_are_counted(stream):
    filter = make(controller=FixedPlan(1, 7))
    filter.subscribe_many(["a < b", "a + b > 1", "a * b > 0.2 OR a / b < 0.1"])
    points = np.random.default_rng(3).random((100, 2))
    for _ in range(2):
        if stream:
            filter.stream(points).matches()
        else:
            filter.match_batch(points)
    a, b = points.T
    found = [int((2 * one).sum()) for one in (a < b, a + b > 1, (a * b > 0.2) | (a / b < 0.1))]
    checks = value(filter, "rtfilter_exact_checks_total", kind="python")
    refused = value(filter, "rtfilter_exact_checks_refused_total")
    assert checks - refused == sum(found)  # what has been checked, and was not refused, matches
    assert sum(found) < checks <= 600
    assert 0 < value(filter, "rtfilter_exact_check_seconds_total", kind="python") < 10
    assert value(filter, "rtfilter_index_unbounded") == 3


def test_boxes_that_decide_need_no_exact_checks():
    filter = make()
    filter.match_batch(np.random.default_rng(3).random((100, 2)))
    assert value(filter, "rtfilter_exact_checks_total", kind="python") == 0


def test_an_own_registry_tells_of_the_process_and_of_the_version():
    filter = make()
    assert value(filter, "process_resident_memory_bytes") > 1e6
    assert value(filter, "rtfilter_build_info", version=rtfilter.__version__) == 1
    assert value(filter, "rtfilter_kernels_compiled_total") == counts.compiled
    shared = CollectorRegistry()
    Metrics(shared)
    assert shared.get_sample_value("process_resident_memory_bytes") is None  # its owner decides


def test_metrics_of_a_short_job_are_pushed():
    received = []

    class Gateway(BaseHTTPRequestHandler):
        def do_PUT(self):
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    filter = make()
    filter.match_batch(np.zeros((5, 2)))
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        inside(filter).metrics.push(f"127.0.0.1:{server.server_port}", "short")
        thread.join()
        port = server.server_port
    ((path, text),) = received
    assert path == "/metrics/job/short"
    assert "rtfilter_events_total 5.0" in text
    with pytest.raises(OSError, match="refused"):
        inside(filter).metrics.push(f"127.0.0.1:{port}", "short")
