"""What the doors of HTTP answer, each with its status."""

import asyncio
import gc
import json
import socket
import threading
import time
import tracemalloc
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest
from starlette.responses import Response

from rtfilter.basics.results import Matches
from rtfilter.service.doors import bodies, management, streamed, timeouts
from rtfilter.service.doors.bodies import RequestLimits
from rtfilter.service.doors.door import Door
from rtfilter.service.measures import Measures
from rtfilter.service.pipeline import Pipeline
from service.running import running
from service.webhooks.asking import until

EVENTS = "/filters/default/events"
SUBSCRIPTIONS = "/filters/default/subscriptions"
LINES = "application/x-ndjson"


def subscribe(server, where, user="ann", **more):
    answer = server.ask("POST", SUBSCRIPTIONS, {"where": where, **more}, user=user)
    assert answer.status == 201, answer.body
    server.settle()
    return answer.body["subscription"]


def publish(server, *events, user="carl"):
    positions = []
    for event in events:
        answer = server.ask("POST", EVENTS, event, user=user)
        assert answer.status == 202, answer.body
        positions += answer.body["positions"]
    server.settle()
    return positions


def test_an_event_comes_until_it_is_acknowledged(server):
    id = subscribe(server, "price > 100", user="one")
    (position,) = publish(server, {"price": 120.5, "symbol": "ACME"})
    (delivery,) = server.ask("GET", "/deliveries", user="one").body["deliveries"]
    assert delivery["response"] > 0
    assert delivery["at"] > 1.7e9
    del delivery["response"], delivery["at"]
    assert delivery == {
        "position": position,
        "subscriptions": [id],
        "filter": "default",
        "event": {"price": 120.5, "symbol": "ACME"},
        "redelivered": 0,
    }
    assert server.ask("GET", "/deliveries", user="one").body["deliveries"][0]["redelivered"] == 1
    answer = server.ask("POST", "/acknowledgements", {"positions": [position, 999]}, user="one")
    assert (answer.status, answer.bytes) == (204, b"")
    assert server.ask("GET", "/deliveries", user="one").body == {"deliveries": [], "next": None}


def test_deliveries_have_pages(server):
    subscribe(server, "symbol = 'paged'", user="two")
    positions = publish(server, *[{"symbol": "paged"}] * 5)
    found, path = [], "/deliveries?limit=2"
    while path is not None:
        page = server.ask("GET", path, user="two").body
        found.append([one["position"] for one in page["deliveries"]])
        path = page["next"]
    assert found == [positions[:2], positions[2:4], positions[4:]]


def test_stored_events_have_pages_and_are_found_by_predicate_and_time(server):
    positions = publish(server, *({"price": price, "symbol": "stored"} for price in range(5)))
    found, path = [], f"{EVENTS}?where=symbol+%3D+'stored'+AND+price+%3E+0&limit=3"
    while path is not None:
        page = server.ask("GET", path).body
        found += page["events"]
        path = page["next"]
    assert [one["position"] for one in found] == positions[1:]
    assert found[0]["event"] == {"price": 1, "symbol": "stored"}
    assert found[0]["user"] == "carl"
    pattern = '{"symbol":["stored"]}'.replace("{", "%7B").replace("}", "%7D").replace('"', "%22")
    at = found[1]["at"]
    again = server.ask("GET", f"{EVENTS}?where={pattern}&since={at!r}").body["events"]
    assert [one["position"] for one in again] == [one["position"] for one in found if one["at"] >= at]
    assert server.ask("GET", f"{EVENTS}?where={pattern}&until=1").body == {"events": [], "next": None}


def test_a_subscription_is_shown_replaced_and_removed(server):
    id = subscribe(server, "price > 1", user="three", metadata={"a": [1]}, ttl=1000, digest=5)
    path = f"/subscriptions/{id}"
    shown = server.ask("GET", path, user="three").body
    assert shown["expires"] == pytest.approx(shown["since"] + 1000)
    assert {
        name: shown[name] for name in ("subscription", "filter", "user", "where", "metadata", "digest")
    } == {
        "subscription": id,
        "filter": "default",
        "user": "three",
        "where": "price > 1",
        "metadata": {"a": [1]},
        "digest": 5.0,
    }
    replaced = server.ask("PUT", path, {"where": "price > 2", "ttl": 9}, user="three").body
    assert replaced["subscription"] == id
    assert replaced["expires"] == server.ask("GET", path, user="three").body["expires"]
    replaced = server.ask("PUT", path, {"where": {"price": [7]}}, user="three").body
    assert replaced == {"subscription": id, "expires": None}
    shown = server.ask("GET", path, user="three").body
    assert (shown["where"], shown["metadata"], shown["expires"]) == ({"price": [7]}, None, None)
    assert server.ask("DELETE", path, user="three").status == 204
    assert server.ask("GET", path, user="three").status == 404
    assert server.ask("DELETE", path, user="three").status == 404


def test_subscriptions_have_pages(server):
    ids = [subscribe(server, f"price > {i}", user="four") for i in range(5)]
    found, path = [], "/subscriptions?limit=2&filter=default"
    while path is not None:
        page = server.ask("GET", path, user="four").body
        found.append([one["subscription"] for one in page["subscriptions"]])
        path = page["next"]
    assert found == [ids[:2], ids[2:4], ids[4:]]
    assert (
        server.ask("GET", "/subscriptions?user=four&limit=1", user="admin")
        .body["next"]
        .endswith(f"user=four&limit=1&after={ids[0]}")
    )


def test_many_subscriptions_are_reported_row_by_row(server):
    rows = ['{"where": "price > 1"}\n', '{"where": 7}', "{", '{"wher": 1}']
    rows += ['{"where": "prize > 1"}', '{"where": "symbol = 1"}', ""]
    lines = "\n".join(rows).encode()
    answer = server.ask("POST", SUBSCRIPTIONS, lines, kind=LINES, user="six")
    assert answer.status == 200
    rows = answer.body["rows"]
    made = [row["subscription"] for row in rows if "subscription" in row]
    listed = server.ask("GET", "/subscriptions", user="six").body["subscriptions"]
    assert [one["subscription"] for one in listed] == made
    assert [
        (at, row["problem"]["type"], row["problem"]["row"]) for at, row in enumerate(rows) if "problem" in row
    ] == [
        (1, "/problems/request", 1),
        (2, "/problems/json", 2),
        (3, "/problems/request", 3),
        (4, "/problems/predicate", 4),
        (5, "/problems/predicate", 5),
    ]


@pytest.mark.parametrize(
    ("path", "body"), [(EVENTS, {"price": 1}), (SUBSCRIPTIONS, {"where": "price > 5000"})]
)
def test_a_request_that_is_repeated_with_its_key_is_done_once(server, path, body):
    first, again = (server.ask("POST", path, body, user="seven", Idempotency_Key="k" + path) for _ in "12")
    assert first.body == again.body
    other = server.ask(
        "POST", path, dict.fromkeys(body, "price > 1"), user="seven", Idempotency_Key="k" + path
    )
    assert other.status in (409, 422)


def test_matching_asks_without_storing(server):
    id = subscribe(server, "price > 100", user="eight")
    head = server.pipeline.status.counts["head"]
    found = server.ask(
        "POST", "/filters/default/match", b'{"price": 7}\n{"price": 101}', kind=LINES, user="eight"
    )
    assert id in found.body["matches"][1]
    assert id not in found.body["matches"][0]
    assert server.pipeline.status.counts["head"] == head


def test_explaining_says_what_is_missing(server):
    id = subscribe(server, "price > 100", user="nine")
    asked = {"event": {"price": 90}, "subscription": id}
    found = server.ask("POST", "/filters/default/explain", asked, user="nine").body
    assert found["matched"] is False
    assert any("too low by 10" in line for line in found["report"])


def test_filters_are_added_shown_and_removed(server):
    path = "/filters/trucks"
    asked = {"schema": {"speed": "float", "truck": {"type": "int", "low": 0}}, "key": "truck"}
    added = server.ask("PUT", path, asked, user="admin")
    assert added.status == 200
    assert server.ask("GET", path).body == added.body == server.ask("PUT", path, asked, user="admin").body
    assert added.body["name"] == "trucks"
    assert [one["name"] for one in added.body["schema"]] == ["speed", "truck"]
    assert {"default", "trucks"} <= {one["name"] for one in server.ask("GET", "/filters").body["filters"]}
    assert server.ask("PUT", path, {"schema": {"speed": "int"}}, user="admin").status == 409
    assert server.ask("DELETE", path, user="admin").status == 204
    assert server.ask("GET", path).status == 404


def test_a_filter_shows_how_it_matches_and_takes_another_matcher(server):
    path, schema = "/filters/matched", {"schema": {"speed": "float"}}
    wanted = {**schema, "matcher": "counting", "controller": {"name": "wang", "rounds": 2}, "order": "fifo"}
    assert server.ask("PUT", path, wanted, user="admin").status == 200
    shown = server.ask("GET", path).body
    assert {name: shown[name] for name in wanted if name != "schema"} == {
        name: wanted[name] for name in wanted if name != "schema"
    }
    assert shown["max_unbounded"] == 1000
    wanted["matcher"] = {"name": "filter-nodes", "bit_lists": 0.1}
    assert server.ask("PUT", path, wanted, user="admin").body["matcher"] == wanted["matcher"]
    for wrong, status, said in (
        ({"matcher": "tree"}, 422, "unknown matcher 'tree'; choose one of scan"),
        ({"controller": {"name": "wang", "N": 4}}, 422, "it has rounds, threshold"),
        ({"order": "lifo"}, 422, "order is one of fifo, shortest, longest"),
        ({}, 409, "name a matcher, and neither may be 'auto'"),
    ):
        answer = server.ask("PUT", path, {**schema, **wrong}, user="admin")
        assert (answer.status, said in answer.body["detail"]) == (status, True), answer.body
    assert server.ask("GET", path).body["matcher"] == wanted["matcher"]
    assert server.ask("DELETE", path, user="admin").status == 204


def test_the_server_tells_how_it_is(server):
    assert server.ask("GET", "/healthz", user=None).body == {"status": "ok"}
    assert server.ask("GET", "/readyz", user=None).body == {"status": "ok"}
    assert server.ask("GET", "/statistics").body["user"] == "ann"
    lines = server.ask("GET", "/metrics", user=None).bytes.decode().splitlines()
    counted = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert counted["rtfilter_service_ready"] == "1.0"
    assert "rtfilter_service_delivered_total" in counted
    assert float(counted["rtfilter_service_head"]) == server.pipeline.status.counts["head"]
    assert not any("user=" in name or "ann" in name for name in counted)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_may_ask_for_the_head_of_a_health_page(server, path, monkeypatch):
    for status in (200, 503):
        answer, plain = (server.ask(method, path, user=None) for method in ("HEAD", "GET"))
        assert (answer.status, plain.status, answer.bytes) == (status, status, b"")
        for name in ("content-type", "content-length"):
            assert answer.headers[name] == plain.headers[name]
        for name in ("healthy", "ready"):
            monkeypatch.setattr(Pipeline, name, False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (EVENTS, [1]),
        (SUBSCRIPTIONS, {"where": "price > 1"}),
        (SUBSCRIPTIONS, {"where": "prize > 1"}),
        ("/filters/default/match", {"price": 1}),
        ("/filters/default/explain", {"event": {"price": 1}, "subscription": 999}),
    ],
)
def test_a_body_is_let_go_of_with_the_answer(server, monkeypatch, path, body):
    gone, whole = threading.Event(), bodies.whole

    class Body(bytes):
        def __del__(self):
            gone.set()

    async def noted(*given):
        return Body(await whole(*given))

    monkeypatch.setattr(bodies, "whole", noted)
    gc.disable()  # a connection is in a circle
    try:
        server.ask("POST", path, body)
        assert gone.wait(60)
    finally:
        gc.enable()


def test_many_subscriptions_are_read_beside_the_event_loop(server, monkeypatch):
    threads, wish = set(), management._wish

    def noted(*given):
        threads.add(threading.current_thread())
        return wish(*given)

    monkeypatch.setattr(management, "_wish", noted)
    answer = server.ask("POST", SUBSCRIPTIONS, b'{"where": "price > 1"}\n' * 2, kind=LINES)
    assert len(answer.body["rows"]) == 2

    async def loop():
        return threading.current_thread()

    assert threads
    assert server.run(loop()) not in threads


@pytest.mark.parametrize("door", ["events", "match"])
def test_an_error_of_the_servers_code_is_told_and_logged(server, door, monkeypatch, caplog):
    async def fail(*_, **__):
        raise ZeroDivisionError("of the server's inside")

    part = server.pipeline.publishing if door == "events" else server.pipeline.asking
    monkeypatch.setattr(part, "publish" if door == "events" else "match", fail)
    answer = server.ask("POST", f"/filters/default/{door}", {"price": 1})
    assert (answer.status, answer.body["type"]) == (500, "/problems/internal")
    assert "inside" not in answer.body["detail"]
    end = time.monotonic() + 30
    while "ZeroDivisionError" not in caplog.text:  # it is logged after the answer
        assert time.monotonic() < end


def test_long_deliveries_are_written_in_parts(server, monkeypatch):
    ids = [subscribe(server, "symbol = 'long'", user="long") for _ in range(5)]
    (first, second) = publish(server, {"symbol": "long"}, {"symbol": "long", "more": '"subscriptions":['})
    plain = server.ask("GET", "/deliveries", user="long")
    monkeypatch.setattr(streamed, "IDS", 2)
    monkeypatch.setattr(streamed, "PART", 20)
    found = server.ask("GET", "/deliveries", user="long")
    assert (plain.headers["content-length"], found.headers["transfer-encoding"]) == (
        str(len(plain.bytes)),
        "chunked",
    )
    one, other = found.body["deliveries"]
    assert (one["position"], other["position"], other["subscriptions"]) == (first, second, ids)
    for delivery in (*plain.body["deliveries"], one, other):
        del delivery["redelivered"]
    assert found.body == plain.body


def test_many_matches_of_one_event_are_written_in_parts():
    async def found():
        ids = np.arange(100_000) + 10**9
        yield Matches(np.array([0, 0, 0]), ids[:0])
        yield Matches(np.array([0, 2, 2, 100_000]), ids)
        yield Matches(np.array([0, 1]), ids[:1])

    async def written():
        return [part async for part in streamed.matches_as_json(found(), {"hints": []})]

    made = asyncio.run(written())
    assert max(map(len, made)) < 2 * streamed.PART
    first, second, *ids = range(10**9, 10**9 + 100_000)
    assert json.loads(b"".join(made)) == {"matches": [[], [], [first, second], [], ids, [first]], "hints": []}


async def answered(function, receive, send):
    """Answer a request at an open door."""
    scope = {"type": "http", "method": "GET", "headers": [], "app": SimpleNamespace(pipeline=None)}
    await Door("GET", "/", function, answers={}, open=True).app(scope, receive, send)


def test_an_answer_in_parts_ends_where_the_peer_leaves_and_gives_its_room_back():
    made, left = [], []

    async def some():
        for number in range(5):
            made.append(number)
            yield b"x"

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    async def show(call):
        call._leaves.append(lambda: left.append(True))
        return streamed.PartsResponse(call, some(), "application/json")

    asyncio.run(answered(show, receive, send))
    assert (made, left) == ([0], [True])


@pytest.mark.parametrize("size", [0, streamed.PART, streamed.PART + 1])
def test_an_answer_keeps_its_room_until_the_peer_has_taken_it(size):
    """uvicorn waits before it sends a message, until the peer has taken most of the earlier ones."""
    sent, kept = [], []

    async def send(message):
        sent.append(message.get("body", b""))
        kept.append(list(room))

    async def show(call):
        call._leaves.append(room.clear)
        return Response(b"x" * size)

    room = [True]
    asyncio.run(answered(show, None, send))
    assert b"".join(sent) == b"x" * size
    assert len(sent[-1]) <= streamed.PART
    assert (kept[-1], room) == ([True], [])


def test_few_answers_of_a_user_wait_for_their_peers(tmp_path, monkeypatch):
    asked, plain = [], timeouts.Http.connection_made

    def little(self, transport):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
        plain(self, transport)

    monkeypatch.setattr(timeouts.Http, "connection_made", little)
    monkeypatch.setattr("rtfilter.service.doors.http.MOST_ANSWERS", 2)
    with running(tmp_path) as server, ExitStack() as links:
        lines = b'{"symbol": "%s"}\n' % (b"x" * 9_000) * 100
        publish = server.ask("POST", "/filters/default/events", lines, kind="application/x-ndjson")
        assert publish.status == 202
        id = subscribe(server, "price > 1")
        query = server.pipeline.asking.query

        async def noted(*given):
            found = await query(*given)
            asked.append(found)
            return found

        monkeypatch.setattr(server.pipeline.asking, "query", noted)
        for _ in range(2):
            link = links.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
            link.connect(("127.0.0.1", server.port))
            link.sendall(b"GET /filters/default/events?limit=1000 HTTP/1.1\r\nHost: localhost\r\n")
            link.sendall(b"Connection: close\r\nAuthorization: Basic YW5uOg==\r\n\r\n")
        until(lambda: len(asked) == 2)
        monkeypatch.setattr(bodies, "ROOM_WITHIN", 0.0)
        question = {"subscription": id, "event": {}}
        for method, path, body, status in (
            ("GET", "/filters/default/events", None, 503),
            ("GET", "/subscriptions", None, 503),
            ("GET", "/deliveries", None, 503),
            ("POST", "/filters/default/match", {}, 503),
            ("POST", "/filters/default/explain", question, 503),
            ("POST", "/filters/default/events", {}, 202),
        ):
            assert server.ask(method, path, body).status == status, (method, path)
        assert server.ask("POST", SUBSCRIPTIONS, b"{}", kind=LINES).status == 503
        assert server.ask("GET", "/subscriptions", user="bob").status == 200
        while link.recv(2**20):
            pass
        until(lambda: server.ask("GET", "/subscriptions").status == 200)


def test_refused_lines_take_little_memory():
    """Each is kept as its row of the answer, not as an error."""
    body = b'{"where": "price > 1", "what": 1}\n' * 2_000
    tracemalloc.start()
    try:
        _, wrong = management._wishes(body, RequestLimits(), Measures())
        assert len(wrong) == 2_000
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        del wrong  # what this frees is theirs; servers of other tests may run
        gc.collect()
        assert 0 < before - tracemalloc.get_traced_memory()[0] < 2_000 * 1_000
    finally:
        tracemalloc.stop()


def test_what_takes_long_to_read_has_the_place_of_its_user(server, monkeypatch):
    """Other threads authenticate, which would wait for it."""
    others, plain = [], asyncio.to_thread

    def noted(work, *given):
        others.append(work.__name__)
        return plain(work, *given)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    id = subscribe(server, "price > 100", user="five")
    event, schema = {"price": [1, 120]}, {"schema": {"x": "float"}}
    asked = [
        server.ask("POST", EVENTS, event, user="five"),
        server.ask("POST", "/filters/default/match", event, user="five"),
        server.ask("POST", "/filters/default/explain", {"event": event, "subscription": id}, user="five"),
        server.ask("POST", SUBSCRIPTIONS, b'{"where": "price > 1"}', user="five", kind=LINES),
        server.ask("GET", "/subscriptions", user="five"),
        server.ask("PUT", "/filters/five", schema, user="admin"),
        server.ask("DELETE", "/filters/five", user="admin"),
    ]
    assert [one.status for one in asked] == [202, 200, 200, 200, 200, 200, 204]
    assert {"_events", "_table", "one", "_wishes", "_report", "_page", "_definition"}.isdisjoint(others)
