"""Ids of requests, and what is logged of them."""

import asyncio
import json
import logging
import time

import pytest
from structlog.contextvars import bound_contextvars, get_contextvars
from websockets.sync.client import connect

from rtfilter.service.doors.problems import told
from rtfilter.service.errors import RequestError
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
            found = [one for one in caplog.records if one.name == "rtfilter.service.doors.requests"]
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
    answer = server.ask(method, path, X_Request_Id="mine")
    assert (answer.status, answer.body["request"]) == (status, "mine")


def test_a_request_that_another_host_sends_has_an_id_too(server):
    answer = server.ask("GET", "/filters", Origin="http://elsewhere.example", X_Request_Id="mine")
    assert (answer.status, answer.body["request"], answer.headers["x-request-id"]) == (403, "mine", "mine")


def test_the_id_is_bound_while_a_problem_is_told():
    assert "request" not in json.loads(told(RequestError("x")).response().body)
    with bound_contextvars(request="mine"):
        assert json.loads(told(RequestError("x")).response().body)["request"] == "mine"


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
    while pipeline.sessions:
        await asyncio.sleep(0.01)


def test_what_a_session_logs_has_its_connection(server, monkeypatch):
    bound = []

    async def publish(*given):
        bound.append(get_contextvars())
        return [1]

    monkeypatch.setattr(server.pipeline, "publish", publish)
    with connect(f"ws://127.0.0.1:{server.port}/session") as session:
        session.send('{"directive": "CONNECT", "user": "ann"}')
        id = json.loads(session.recv(timeout=60))["connection"]
        session.send('{"directive": "PUBLISH", "event": {"price": 1}}')
        session.recv(timeout=60)
    assert bound[0]["connection"] == id
