"""Ids of requests, and what is logged of them."""

import asyncio
import json
import logging
import socket
import time

import pytest
from structlog.contextvars import bound_contextvars, get_contextvars
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rtfilter.service.doors.problems import response
from rtfilter.service.service_errors import RequestError
from service.running import running

EVENT = {"price": 1.0}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("data")) as one:
        yield one


@pytest.fixture
def lines(caplog):
    """The first lines on requests, as (text, status, user): each comes after the answer."""
    caplog.set_level(logging.INFO, "rtfilter")

    def first(count):
        end = time.monotonic() + 60
        while True:
            found = [one for one in caplog.records if one.name == "rtfilter.service.doors.http"]
            if len(found) >= count or time.monotonic() > end:
                return [(one.getMessage(), one.status, getattr(one, "user", None)) for one in found]
            time.sleep(0.01)

    return first


@pytest.mark.parametrize("id", ["a", "A-b_c.9", "x" * 64])
def test_an_id_that_was_given_comes_back(server, id):
    assert server.ask("GET", "/filters", X_Request_Id=id).headers["x-request-id"] == id


@pytest.mark.parametrize("id", ["", "x" * 65, "a b", "é", '"', "<b>"])
def test_an_id_that_does_not_do_is_replaced(server, id):
    found = server.ask("GET", "/filters", X_Request_Id=id.encode("latin-1")).headers["x-request-id"]
    assert len(found) == 16
    assert int(found, 16) >= 0


def test_no_two_requests_have_the_same(server):
    assert len({server.ask("GET", "/filters").headers["x-request-id"] for _ in range(9)}) == 9


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("GET", "/subscriptions/99", 404), ("PUT", "/filters/x", 415)],
)
def test_a_problem_has_the_id(server, method, path, status):
    answer = server.ask(method, path, user="admin", X_Request_Id="mine")
    assert (answer.status, answer.body["request"]) == (status, "mine")


def test_a_request_that_another_host_sends_has_an_id_too(server):
    answer = server.ask("GET", "/filters", Origin="http://elsewhere.example", X_Request_Id="mine")
    assert (answer.status, answer.body["request"], answer.headers["x-request-id"]) == (403, "mine", "mine")


def test_the_id_is_bound_while_a_problem_is_told():
    assert "request" not in json.loads(response(RequestError("x")).body)
    with bound_contextvars(request="mine"):
        assert json.loads(response(RequestError("x")).body)["request"] == "mine"


def test_control_and_errors_are_logged_without_queries_and_events_are_not(server, lines):
    server.ask("GET", "/subscriptions?after=5")
    server.ask("POST", "/filters/default/events", EVENT)
    server.ask("GET", "/deliveries")
    server.ask("GET", "/readyz", user=None)
    server.ask("POST", "/filters/none/events", EVENT)
    server.ask("GET", "/fil%1bters", user=None)
    assert lines(3) == [
        ("GET /subscriptions", 200, "ann"),
        ("POST /filters/none/events", 404, "ann"),
        ("GET /fil%1bters", 404, None),
    ]


def test_debugging_shows_all(server, lines, caplog):
    caplog.set_level(logging.DEBUG, "rtfilter")
    server.ask("POST", "/filters/default/events", EVENT)
    assert lines(1) == [("POST /filters/default/events", 202, "ann")]


def test_a_session_is_logged_with_its_connection(server, caplog):
    caplog.set_level(logging.INFO, "rtfilter")
    with connect(f"ws://127.0.0.1:{server.port}/session") as session:
        assert session.response.headers["x-request-id"]
        session.send('{"directive": "CONNECT", "user": "ann"}')
        id = json.loads(session.recv(timeout=60))["connection"]
    server.run(gone(server.pipeline))
    told = [one.getMessage() for one in caplog.records if getattr(one, "connection", None) == id]
    assert told == ["a session begins", "a session ends"]


async def gone(pipeline):
    while pipeline.presence.sessions:
        await asyncio.sleep(0.01)


def test_what_a_session_logs_has_its_connection(server, monkeypatch):
    bound = []

    async def publish(*given):
        bound.append(get_contextvars())
        return [1]

    monkeypatch.setattr(server.pipeline.publishing, "publish", publish)
    with connect(f"ws://127.0.0.1:{server.port}/session") as session:
        session.send('{"directive": "CONNECT", "user": "ann"}')
        id = json.loads(session.recv(timeout=60))["connection"]
        session.send('{"directive": "PUBLISH", "event": {"price": 1}}')
        session.recv(timeout=60)
    assert bound[0]["connection"] == id


def test_who_leaves_in_the_middle_of_a_body_is_no_error(server, lines, caplog):
    head = b"POST /filters/%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOg==\r\n"
    for path in (b"default/events", b"default/subscriptions"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
            link.sendall(head % path + b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
    found = sorted(lines(2))
    assert [status for _, status, _ in found] == [0, 0]
    server.ask("GET", "/healthz")  # what comes after the lines has been logged, too
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_session_that_is_refused_is_no_error(server, caplog):
    asked = b"GET /session HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(asked)
        assert link.recv(1000).startswith(b"HTTP/1.1 400")  # by the library, without a key
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://127.0.0.1:{server.port}/session", origin="http://elsewhere.example")
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://127.0.0.1:{server.port}/nothing")
    server.ask("GET", "/healthz")
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
