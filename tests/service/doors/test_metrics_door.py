"""What `/metrics` tells of the stages, of what is refused, and of who is connected."""

import asyncio
import http.client
import json
import re
import socket

import pytest
from prometheus_client import CollectorRegistry
from websockets.sync.client import connect

from rtfilter.service.doors import server_metrics
from rtfilter.service.measures import DOORS, KINDS
from service.running import running
from service.served import served

pytestmark = pytest.mark.slow
EVENTS = "/filters/default/events"
SUBSCRIPTIONS = "/filters/default/subscriptions"


@pytest.fixture
def server(tmp_path):
    with running(tmp_path, tcp_port=0) as found:
        yield found


def shown(server):
    """Every sample, by name with its labels."""
    lines = server.ask("GET", "/metrics", user=None).bytes.decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def refused(server):
    """How often what was refused, by door and kind."""
    name = re.compile(r'rtfilter_service_refused_total{door="(.*?)",kind="(.*?)"}')
    found = ((name.fullmatch(sample), value) for sample, value in shown(server).items())
    return {match.groups(): value for match, value in found if match and value}


def test_every_event_is_in_the_histograms(server):
    server.ask("POST", SUBSCRIPTIONS, {"where": "price > 2"})
    lines = b"\n".join(json.dumps({"price": price}).encode() for price in range(10))
    server.ask("POST", EVENTS, lines, kind="application/x-ndjson")
    server.settle()
    found = shown(server)
    assert found['rtfilter_service_response_seconds_count{filter="default"}'] == 10
    for stage, count in {"read": 10, "parse": 10, "store": 11, "queue": 11, "match": 10}.items():
        assert found[f'rtfilter_service_stage_seconds_count{{stage="{stage}"}}'] == count
    assert found["rtfilter_service_published_total"] == 10
    assert found["rtfilter_service_commit_entries_sum"] == found["rtfilter_service_batch_entries_sum"] == 11


def test_the_backlog_is_told_with_its_size_and_age(server):
    server.ask("POST", SUBSCRIPTIONS, {"where": "price > 2"})
    before = shown(server)
    assert before["rtfilter_service_backlog_bytes"] == before["rtfilter_service_backlog_oldest_seconds"] == 0
    server.ask("POST", EVENTS, {"price": 3})
    server.settle()
    found = shown(server)
    assert found["rtfilter_service_waiting_deliveries"] == 1
    assert found["rtfilter_service_backlog_bytes"] > 0


def test_what_is_refused_is_counted_by_kind(server):
    server.ask("POST", EVENTS, [1])
    server.ask("POST", SUBSCRIPTIONS, {"where": "prize > 1"})
    rows = b'{"where": "price > 1"}\n{"where": "prize > 1"}\n{"were": 1}'
    server.ask("POST", SUBSCRIPTIONS, rows, kind="application/x-ndjson")
    server.ask("GET", "/no/such/path")
    server.ask("GET", "/filters", Origin="http://other.example")
    assert refused(server) == {
        ("http", "event"): 1,
        ("http", "predicate"): 2,
        ("http", "request"): 1,
        ("http", "unknown"): 1,
        ("http", "origin"): 1,
    }


def test_what_is_no_http_is_counted(server):
    with socket.create_connection(("127.0.0.1", server.port), 10) as link:
        link.sendall(b"rubbish\r\n\r\n")
        while link.recv(1000):
            pass
    assert refused(server) == {("http", "malformed"): 1}


def test_what_a_session_is_refused_is_counted_with_its_door(server):
    with connect(f"ws://127.0.0.1:{server.port}/session") as link:
        link.send('{"directive": "READY"}')
        link.recv()
    assert refused(server) == {("websocket", "directive"): 1}


def test_frames_that_are_none_are_counted(server):
    with socket.create_connection(("127.0.0.1", server.opened.tcp_port), 10) as link:
        link.sendall(b"\xff" * 8)
        while link.recv(1000):
            pass
    assert set(refused(server)) == {("tcp", "frame")}


def test_no_text_of_a_client_becomes_a_label(server):
    strange = "strange-text-of-a-client"
    server.ask("PUT", f"/{strange}", {strange: strange})
    server.ask("POST", f"/filters/{strange}/events", {strange: strange}, user=strange)
    server.ask("POST", SUBSCRIPTIONS, {"where": f"{strange} > 1", "metadata": strange}, user=strange)
    server.ask("GET", "/filters", Origin=f"http://{strange}")
    with connect(f"ws://127.0.0.1:{server.port}/session") as link:
        link.send(json.dumps({"directive": strange, "tag": strange}))
        link.recv()
    found = shown(server)
    assert not [name for name in found if strange in name]
    assert {door for door, _ in refused(server)} == {"http", "websocket"}
    counted = [name for name in found if name.startswith("rtfilter_service_refused_total{")]
    assert len(counted) == len(DOORS) * len([*KINDS, "other"])


def test_open_connections_are_counted_by_door(server):
    def now():
        found = shown(server)
        return [found[f'rtfilter_service_connections{{door="{door}"}}'] for door in DOORS]

    assert now() == [1, 0, 0]  # the one that asks
    idle = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    idle.request("GET", "/healthz")
    idle.getresponse().read()
    with connect(f"ws://127.0.0.1:{server.port}/session") as link:
        link.send('{"directive": "READY"}')
        link.recv()
        assert now() == [2, 1, 0]
    idle.close()
    with socket.create_connection(("127.0.0.1", server.opened.tcp_port), 10) as framed:
        framed.sendall(b"\xff" * 8)
        while framed.recv(1000):
            pass
    while now() != [1, 0, 0]:  # until the server hears of their ends
        pass


def test_a_filter_that_is_removed_and_added_again_has_metrics_of_its_own(server):
    schema = server.ask("GET", "/filters/default").body["schema"]
    for _ in range(2):
        assert server.ask("PUT", "/filters/other", {"schema": schema}, user="admin").status in (200, 201)
        server.ask("POST", "/filters/other/events", {"price": 1})
        server.settle()
        found = {name for name in shown(server) if 'filter="other' in name}
        assert {name.partition("{")[0] for name in found} >= {
            "rtfilter_events_total",
            "rtfilter_service_response_seconds_count",
        }
        assert all('filter="other"' in name for name in found)
        server.ask("DELETE", "/filters/other", user="admin")
        assert not [name for name in shown(server) if 'filter="other' in name]


def test_who_asks_while_the_text_is_made_waits_for_the_same(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(server_metrics, "generate_latest", lambda registry: made.append(registry) or b"text")

    async def script(pipeline):
        counts = server_metrics.PipelineCollector(pipeline, CollectorRegistry())
        return await asyncio.gather(*(counts.text() for _ in range(5)))

    ((*texts,),) = served(tmp_path, script)
    assert texts == [b"text"] * 5
    assert len(made) == 1


def test_who_leaves_takes_the_text_from_nobody_else(tmp_path):
    async def script(pipeline):
        counts = server_metrics.PipelineCollector(pipeline, CollectorRegistry())
        first, second = (asyncio.create_task(counts.text()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    (text,) = served(tmp_path, script)
    assert b"rtfilter_service_published_total 0.0" in text
