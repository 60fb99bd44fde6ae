"""Dashboard, rules and picture against what is exported, on a real Prometheus."""

import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import yaml
from prometheus_client import CollectorRegistry

import overview
import panels
from experiments.ports import free_port
from overview import Prometheus, filled
from rtfilter import EventFilter
from rtfilter.adaptive import PlanController
from rtfilter.filter import inside
from rtfilter.nats.pull import PulledMessage
from rtfilter.nats.worker_metrics import WorkerMetrics
from rtfilter.replay import Contender, ReplaySettings, replay
from rtfilter.replay.workloads import workload
from rtfilter.service.doors.server_metrics import PipelineCollector
from rtfilter.service.sites.peers import Credentials
from rtfilter.service.sites.site import SiteSettings
from rtfilter.spark.watch import StreamMetrics
from rtfilter.store.database import engine
from rtfilter.store.site_table import SiteTable
from rtfilter.watch.metrics import Metrics, StreamRecord, serve
from service.running import running
from service.served import served

HOME = Path(panels.__file__).parent
NAME = re.compile(r"\brtfilter_\w+")
needs_prometheus = pytest.mark.needs("prometheus")
SCRAPED = 0.5
"""Seconds between two scrapes of the Prometheus of these tests: nothing is new before."""


def watched_stream():
    """Metrics as those of a `MatchStage` after its first micro-batch."""
    streams = StreamMetrics()
    streams.observe_index(lambda: 7)
    streams.decided(False, "even", 1.02)
    return streams


def watched_worker():
    """Metrics of a worker on NATS, and its publisher."""
    subscriptions = SimpleNamespace(users={"a": "ann"}, refused={}, revision=4)
    publisher = MagicMock(stored=5, duplicates=1, repeated=2)
    publisher.__len__.return_value = 3
    measures = WorkerMetrics("trades", CollectorRegistry())
    bucket = SimpleNamespace(subscriptions=subscriptions, behind=6, marks=1)
    measures.observe(publisher, bucket, lambda: 8)
    return measures, publisher


def of_service(folder):
    """Names of all samples of a server that is a site."""

    async def script(pipeline):
        settings = SiteSettings("a", "a", "http://127.0.0.1:9", "http://127.0.0.1:9", Credentials("a"))
        pipeline.join(settings, SiteTable(engine(f"sqlite:///{folder}/site.sqlite")))
        registry = CollectorRegistry()
        await PipelineCollector(pipeline, registry).text()
        return {sample.name for family in registry.collect() for sample in family.samples}

    (names,) = served(folder, script)
    return names


def exported(folder):
    """Names of all samples."""
    filter = EventFilter(workload("narrow", dimensions=2).schema, metrics=Metrics())
    filter.subscribe_boxes([[0, 0]], [[9, 9]])
    for _ in range(3):
        list(filter.stream(np.ones((2, 2))))
    filter.match_batch(np.ones((2, 2)))
    streams = watched_stream()
    streams.record(5, 0.1, 3, 0.2, 0.1)
    streams.progressed("q", 5, 1.0, {"addBatch": 3})
    return of_service(folder) | {
        sample.name
        for registry in (
            inside(filter).metrics.registry,
            streams.registry,
            watched_worker()[0].registry,
        )
        for family in registry.collect()
        for sample in family.samples
    }


def test_the_dashboard_is_what_its_generator_makes():
    import dashboard

    assert dashboard.FILE.read_text() == dashboard.build(), "run python grafana/dashboard.py"


def test_the_dashboard_shows_all_panels():
    shown = json.loads((HOME / "dashboards" / "rtfilter.json").read_text())
    within = [part for panel in shown["panels"] for part in (panel, *panel.get("panels", []))]
    made = [panel for panel in within if panel["type"] != "row"]
    assert [panel["title"] for panel in made] == [panel.title for row in panels.ROWS for panel in row.panels]
    assert all(panel["description"] for panel in made)
    closed = [panel["title"] for panel in shown["panels"] if panel.get("collapsed")]
    assert closed == ["Service", "Sites", "Spark", "NATS"]


def test_limits_are_lines_and_those_of_the_rules():
    shown = json.loads((HOME / "dashboards" / "rtfilter.json").read_text())
    steps = {
        panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        for row in shown["panels"]
        for panel in (row, *row.get("panels", []))
        if "thresholds" in panel.get("fieldConfig", {}).get("defaults", {})
    }
    assert steps == {p.title: p.limit for row in panels.ROWS for p in row.panels if p.limit is not None}
    rules = (HOME / "rules.yml").read_text()
    assert f"vector({steps['Estimation share']})" in rules
    assert f"vector({steps['Memory'] / 1e9:.0f}e9)" in rules
    assert f'le="{steps["Mean response"]}"' in rules


def test_no_query_guesses_a_quantile():
    # Within a bucket a quantile is a guess: shares of the buckets are shown instead.
    asked = [query for row in panels.ROWS for p in row.panels for query in p.queries.values()]
    assert not [
        query for query in [*asked, (HOME / "rules.yml").read_text()] if "histogram_quantile" in query
    ]


def test_every_metric_that_is_asked_for_is_exported(tmp_path):
    queries = [query for row in panels.ROWS for p in row.panels for query in p.queries.values()]
    asked = "\n".join([*queries, panels.LEVEL_CHANGES])
    rules = re.sub(r"#.*|summary:.*|description:.*", "", (HOME / "rules.yml").read_text())
    assert set(NAME.findall(asked + rules)) <= exported(tmp_path)


@needs_prometheus
def test_configuration_and_alerts_pass_promtool():
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]):
        lean = os.environ | {"GOGC": "400", "GOMAXPROCS": "1"}
        run = subprocess.run(["promtool", *command], cwd=HOME, env=lean, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr


@needs_prometheus
def test_the_commands_of_the_page_make_a_configuration_for_a_server_with_users_and_tls(tmp_path):
    page = (HOME.parent / "docs" / "running.md").read_text()
    for name in ("prometheus.yml", "rules.yml", "compose.yaml"):
        shutil.copy(HOME / name, tmp_path)
    for command in re.findall(r"^sed .*monitoring/.*$", page, re.MULTILINE):
        command = f"NAME=alerts.example.com; {command.replace('monitoring/', f'{tmp_path}/')}"
        subprocess.run(["bash", "-c", command], check=True)
    (tmp_path / "rtfilter.token").write_text("token")
    (tmp_path / "certificate.pem").write_text("")
    check = ["promtool", "check", "config", tmp_path / "prometheus.yml"]
    run = subprocess.run(check, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (_, service) = yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"]
    assert service["authorization"] == {"credentials_file": "rtfilter.token"}
    assert service["scheme"] == "https"
    assert service["tls_config"] == {"server_name": "alerts.example.com", "ca_file": "certificate.pem"}
    volumes = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]["prometheus"]["volumes"]
    assert [volume.split(":")[1:] for volume in volumes] == [
        [f"/etc/prometheus/{name}", "ro"]
        for name in ("prometheus.yml", "rules.yml", "rtfilter.token", "certificate.pem")
    ]


# A real server


@pytest.fixture
def server(tmp_path):
    """A Prometheus with the shipped configuration, scraping two ports twice a second: it, and the ports."""
    ports = free_port(), free_port()
    config = (HOME / "prometheus.yml").read_text().replace("5s", f"{1000 * SCRAPED:.0f}ms")
    targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    assert '"127.0.0.1:17464"' in config
    (tmp_path / "prometheus.yml").write_text(config.replace('"127.0.0.1:17464"', targets))
    rules = (HOME / "rules.yml").read_text()
    for long, short in (("[5m]", "[3s]"), ("[1h]", "[5s]"), ("for: 2m", "for: 0s"), ("for: 10m", "for: 0s"),
                        ("for: 5m", "for: 0s"), ("> 2000", "> 5"), ("offset 1h", "offset 5s")):  # fmt: skip
        assert long in rules
        rules = rules.replace(long, short)
    (tmp_path / "rules.yml").write_text(rules)
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        found = Prometheus(f"http://127.0.0.1:{port}")
        until(lambda: found.now("vector(1)"))
        yield found, ports
    finally:
        process.terminate()
        process.wait()


def until(condition, seconds=60):
    """The first true value of a condition, errors of a server that starts aside."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = condition()
        except RuntimeError:
            value = None
        if value or time.monotonic() > deadline:
            assert value
            return value
        time.sleep(0.2)


def number(server, query):
    (series,) = server.now(query)
    return float(series["value"][1])


def without_data(prometheus, row, began):
    """Panels of a row, with the legend, whose query has no number since a moment."""
    missing = []
    for panel in row.panels:
        for text, query in panel.queries.items():
            found = prometheus.over(filled(query, "3s"), began, time.time())
            values = [float(v) for series in found for _, v in series["values"]]
            if not np.isfinite(values).any():
                missing.append((panel.title, text))
    return missing


def rules_without_data(prometheus, began, *groups):
    """Rules that are not well, and recorded series of some groups that have no sample since a moment."""
    missing = []
    for group in prometheus.get("rules")["groups"]:
        for rule in group["rules"]:
            recorded = rule["type"] == "recording" and group["name"] in groups
            if rule["health"] != "ok" or (recorded and not prometheus.over(rule["name"], began, time.time())):
                missing.append(rule)
    return missing


@needs_prometheus
def test_every_panel_and_rule_of_the_service_tells_what_a_server_did(server, tmp_path):
    prometheus, ports = server
    rows = [row for row in panels.ROWS if row.title in ("Service", "Sites")]
    began, published, own = time.time(), 0, f"http://127.0.0.1:{ports[0]}"
    site = {"site": "a", "address": own, "rendezvous": own}
    with running(tmp_path / "served", port=ports[0], tcp_port=0, **site) as service:
        service.ask("POST", "/filters/default/subscriptions", {"where": "price > 1"})
        missing, patience = None, time.monotonic() + 60
        while missing != []:
            body = b'{"price": 1}\n{"price": 2}\n{"price": 3}'
            service.ask("POST", "/filters/default/events", body, kind="application/x-ndjson")
            published += 3
            service.settle()
            for _ in range(2):  # the second time, they are sent again
                _, *others = service.ask("GET", "/deliveries").body["deliveries"]
            service.ask("POST", "/acknowledgements", {"positions": [one["position"] for one in others]})
            service.ask("POST", "/filters/default/events", b"{", kind="application/json")
            assert time.monotonic() < patience, missing
            time.sleep(SCRAPED)
            missing = [one for row in rows for one in without_data(prometheus, row, began)]
            missing = missing or rules_without_data(prometheus, began, "rtfilter limits", "rtfilter service")
        until(lambda: number(prometheus, "rtfilter_service_published_total") == published)
        assert number(prometheus, "rtfilter_service_response_seconds_count") == published
        assert number(prometheus, 'rtfilter_service_stage_seconds_count{stage="match"}') == published
        refused = 'rtfilter_service_refused_total{door="http", kind="event"}'
        assert number(prometheus, refused) == published / 3
        delivered = number(prometheus, "rtfilter_service_delivered_total")
        acknowledged = number(prometheus, "rtfilter_service_acknowledged_total")
        assert (delivered, acknowledged) == (2 * published / 3, 2 * published / 3 - 1)
        assert number(prometheus, "rtfilter_service_waiting_deliveries") == 1
        assert number(prometheus, "rtfilter_service_redelivered_total") > 0
        assert number(prometheus, 'rtfilter_service_stage_seconds_count{stage="deliver"}') == delivered


class Watched:
    """A workload that now and then waits until Prometheus has seen more events: rates need some samples."""

    def __init__(self, source, prometheus):
        self._source, self._prometheus, self._asked, self._seen = source, prometheus, 0, 0.0

    def __getattr__(self, name):
        return getattr(self._source, name)

    def events(self, start, count):
        self._asked += 1
        if self._asked % 25 == 0:
            until(lambda: self._prometheus.now(f"sum(rtfilter_events_total) > {self._seen}"))
            self._seen = number(self._prometheus, "sum(rtfilter_events_total)")
        return self._source.events(start, count)


@needs_prometheus
def test_every_panel_and_rule_tells_what_a_replay_did(server, tmp_path):
    prometheus, ports = server
    filter = EventFilter(
        workload("narrow").schema, matcher={"name": "rtree", "capacity": (20, 64)}, metrics=Metrics()
    )
    streams = watched_stream()
    stops = [inside(filter).metrics.serve(ports[0]), streams.serve(ports[1])]
    controller = PlanController(rounds=2, threshold=1000)
    settings = ReplaySettings(subscriptions=2000, bursts=200, sizes=(16, 128), insert=20, delete=20, check=1)
    try:
        began = time.time()
        streams.record(1000, 0.7, 30, 6.0, 0.4)  # so that rates have a beginning
        streams.progressed("alerts", 1000, 900.0, {"addBatch": 600, "walCommit": 20})
        until(lambda: prometheus.now("rtfilter_spark_events_total"))
        contender = Contender("adaptive", "shortest", controller)
        with ThreadPoolExecutor(1) as pool:
            watched = Watched(workload("narrow"), prometheus)
            running = pool.submit(replay, watched, settings, [contender], filter)
            batches = 1
            while not running.done() or batches < 10:  # a stream beside it
                streams.record(1000, 0.7, 30, 6.0, 0.4)
                streams.progressed("alerts", 1000, 900.0, {"addBatch": 600, "walCommit": 20})
                batches += 1
                time.sleep(0.5)
            report = running.result()
        (own,) = report.summary()
        events = own["events"] + 8  # the warm-up of a replay is two batches of 4
        until(lambda: number(prometheus, "sum(rtfilter_events_total)") == events)
        until(lambda: number(prometheus, "rtfilter_spark_events_total") == 1000 * batches)

        for row in panels.ROWS:
            if row.title not in ("Service", "Sites", "NATS"):
                assert not without_data(prometheus, row, began)
        changes = filled(panels.LEVEL_CHANGES, "3s").replace("[1m]", "[30s]")
        level = "rtfilter_controller_level[30s]"  # of a short replay, all that is scraped may be equal
        moves = f"max_over_time({level}) > min_over_time({level})"
        ended = time.time()
        assert bool(prometheus.over(changes, began, ended)) == bool(prometheus.over(moves, began, ended))
        assert not rules_without_data(prometheus, began, "rtfilter limits", "rtfilter")

        big = '{size_class!="4"}'
        counted = number(prometheus, f"sum(rtfilter_response_seconds_count{big})")
        assert counted == own["events"]
        mean = number(prometheus, f"sum(rtfilter_response_seconds_sum{big})") / counted
        assert mean == pytest.approx(own["response_us"] / 1e6, rel=1e-6)
        assert number(prometheus, "sum(rtfilter_batches_total)") == settings.bursts + 2
        assert number(prometheus, f"sum(rtfilter_batch_response_seconds_count{big})") == settings.bursts
        share = number(
            prometheus, f"histogram_quantile(0.5, sum by (le) (rtfilter_batch_response_seconds_bucket{big}))"
        )
        middle = float(np.median([row["response"] for row in report.rows]))
        assert middle / 2.5 <= share <= middle * 2.5
        assert number(prometheus, "rtfilter_index_updates_total") == filter.stats()["updates"]
        own_instance = f'{{instance="127.0.0.1:{ports[0]}"}}'
        assert number(prometheus, f"rtfilter_index_subscriptions{own_instance}") == settings.subscriptions
        visits = sum(row["visits"] for row in report.rows)
        seen = number(prometheus, "sum(rtfilter_estimated_visits_total)")
        assert visits <= seen <= visits + 4 * 100
        states = controller.snapshot()["classes"]
        for size_class, state in states.items():
            level = number(prometheus, f'rtfilter_controller_level{{size_class="{size_class}"}}')
            assert level == state["level"]
        moved = number(prometheus, "sum(rtfilter_controller_transitions_total)")
        assert moved == sum(state["transitions"] for state in states.values()) > 0
        assert number(prometheus, 'rtfilter_spark_query_running{query="alerts"}') == 1

        overview.main([f"{prometheus.url}", str(tmp_path / "overview.png"), "--minutes", "1", "--rate", "5s"])
        assert (tmp_path / "overview.png").stat().st_size > 30_000
    finally:
        for stop in stops:
            stop()


@needs_prometheus
def test_alerts_fire_and_clear(server):
    prometheus, ports = server
    metrics = Metrics()
    state = {"bytes": 15e9, "mode": "UNSTABLE", "seconds": 0.5, "share": 0.7}
    filter = EventFilter(workload("narrow").schema)
    filter.subscribe_boxes(np.zeros((9, 12)), np.ones((9, 12)))
    list(filter.stream(np.zeros((64, 12))))

    def now():
        controller = inside(filter).controller.snapshot()
        for fields in controller["classes"].values():
            fields["mode"] = state["mode"]
        return {**filter.stats(), "bytes": state["bytes"]}, controller

    metrics.observe_state(now)
    stop = metrics.serve(ports[0])

    def firing():
        ended, sizes, ones = np.array([state["seconds"]]), np.array([64]), np.ones(64, np.int64)
        for _ in range(20):
            metrics.record_stream(StreamRecord(64, ended, sizes, 3, ended[0] * state["share"], ones, ones))
        alerts = prometheus.get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    every = {
        "RtfilterResponseObjectiveBurnt",
        "RtfilterEstimationShareHigh",
        "RtfilterControllerNeverSettles",
        "RtfilterIndexMemoryNearLimit",
    }
    try:
        until(lambda: firing() == every)
        state.update(bytes=1e9, mode="STABLE", seconds=0.001, share=0.01)
        until(lambda: not firing())
    finally:
        stop()


def test_a_server_that_is_not_there_is_named(tmp_path, capsys):
    assert overview.main([f"http://127.0.0.1:{free_port()}", str(tmp_path / "x.png")]) == 2
    assert "does not answer" in capsys.readouterr().err


@needs_prometheus
def test_every_panel_of_nats_shows_what_a_worker_did(server):
    prometheus, ports = server
    message = PulledMessage("", "", b"", False, 1, 1, 2, time.time(), 7, 0.0)
    measures, publisher = watched_worker()
    stop = serve(measures.registry, ports[0])
    try:
        began = time.time()
        for _ in range(12):
            measures.batch([message] * 10)
            measures.matched([message] * 10, 100)
            measures.done(0.004)
            publisher.stored += 5
            time.sleep(0.5)
        until(lambda: number(prometheus, "rtfilter_nats_events_total") == 1200)
        (row,) = [row for row in panels.ROWS if row.title == "NATS"]
        assert not without_data(prometheus, row, began)
        assert number(prometheus, "rtfilter_nats_matches_unstored") == 3
        assert number(prometheus, "rtfilter_nats_pending") == 7
        assert number(prometheus, "rtfilter_nats_response_seconds_sum") == pytest.approx(0.048)
    finally:
        stop()
