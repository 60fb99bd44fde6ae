"""Every error is a problem document, with the status that fits."""

import logging

import pytest
from sqlalchemy.exc import OperationalError

from rtfilter.service.doors import bodies, problems
from rtfilter.service.service_errors import KINDS, BusyError, TooManyError

EVENTS = "/filters/default/events"
SUBSCRIPTIONS = "/filters/default/subscriptions"
JSON = "application/json"
LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


WRONG = [
    ("GET", "/nothing", None, None, 404, "unknown", "nothing at this path"),
    ("PATCH", "/filters", None, None, 405, "method", "does not have this method"),
    ("POST", "/healthz", b"", None, 405, "method", "does not have this method"),
    ("GET", "/filters/other", None, None, 404, "unknown", "no filter 'other'"),
    ("DELETE", "/filters/other", None, None, 404, "unknown", "no filter 'other'"),
    ("POST", "/filters/other/events", b"{}", JSON, 404, "unknown", "no filter 'other'"),
    ("PUT", "/filters/a%20b", {"schema": {"x": "int"}}, None, 422, "request", "a filter's name"),
    ("PUT", "/filters/x", {"schema": {"x": "text"}}, None, 422, "request", "schema: attribute 'x'"),
    ("PUT", "/filters/x", {"schema": 7}, None, 422, "request", "schema"),
    ("PUT", "/filters/x", {"schema": {}}, None, 422, "request", "at least one attribute"),
    ("PUT", "/filters/x", {"schema": {"x": "int"}, "key": "y"}, None, 422, "request", "key 'y'"),
    ("PUT", "/filters/default", {"schema": {"x": "int"}}, None, 409, "conflict", "another schema"),
    ("PUT", "/filters/x", b"{", JSON, 400, "json", "not JSON"),
    ("PUT", "/filters/x", b"[" * 9, JSON, 400, "json", "nest 5 deep"),
    ("PUT", "/filters/x", b"[" * 50_000, JSON, 400, "json", "nest 5 deep"),
    ("PUT", "/filters/x", b"\xff", JSON, 400, "json", "not JSON"),
    ("PUT", "/filters/x", b'{"schema": {"x": NaN}}', JSON, 400, "json", "not JSON"),
    ("PUT", "/filters/x", b'{"schema": {"\\ud800": "int"}}', JSON, 400, "json", "not JSON"),
    ("GET", "/filters/", None, None, 404, "unknown", "nothing at this path"),
    ("PUT", "/filters/x", b"{}", None, 415, "media-type", JSON),
    ("PUT", "/filters/x", b"{}", JSON, 422, "request", "missing required field `schema`"),
    ("PUT", "/filters/x", b"", JSON, 400, "json", "the body is empty"),
    (
        "PUT",
        "/filters/x",
        {"schema": {}, "more": 1},
        None,
        422,
        "request",
        "the field 'more' is unknown; the fields are schema, ",
    ),
    ("POST", EVENTS, b'{"price": 1}', None, 415, "media-type", JSON),
    ("POST", EVENTS, b'{"price": 1}', "application/x-www-form-urlencoded", 415, "media-type", JSON),
    ("POST", EVENTS, b"{", JSON, 422, "event", "not JSON"),
    ("POST", EVENTS, b"[]", JSON, 422, "event", "an event is a JSON object"),
    ("POST", EVENTS, b"", JSON, 422, "event", "not JSON"),
    ("POST", EVENTS, b'{"a":[[[[[0]]]]]}', JSON, 400, "json", "nest 5 deep"),
    ("POST", EVENTS, b'{"price": 1}\n{"a":[[[[[0]]]]]}', LINES, 400, "json", "nest 5 deep"),
    ("POST", EVENTS, b"x" * 100_001, JSON, 413, "too-large", "at most 100000 bytes"),
    ("POST", EVENTS, b"\n" * 100_001, LINES, 413, "too-large", "at most 100000"),
    ("POST", EVENTS, b"no arrow", ARROW, 422, "event", "no stream of Arrow's"),
    ("GET", EVENTS + "?where=prise%3E1", None, None, 422, "predicate", "did you mean 'price'"),
    ("GET", EVENTS + "?where=%7B", None, None, 400, "json", "not JSON"),
    ("GET", EVENTS + "?since=nan", None, None, 422, "request", "since"),
    ("POST", SUBSCRIPTIONS, b"{", JSON, 400, "json", "not JSON"),
    ("POST", SUBSCRIPTIONS, b"{}", JSON, 422, "request", "missing required field `where`"),
    ("POST", SUBSCRIPTIONS, {"where": 7}, None, 422, "request", '"where" is'),
    ("POST", SUBSCRIPTIONS, {"where": "price > 1", "ttl": -1}, None, 422, "request", "ttl"),
    ("POST", SUBSCRIPTIONS, {"where": "price > 1", "ttl": "x"}, None, 422, "request", "ttl"),
    ("POST", SUBSCRIPTIONS, {"where": "price > 1", "order": "x"}, None, 422, "request", "order"),
    ("POST", SUBSCRIPTIONS, {"where": "price > 1", "order": "key"}, None, 422, "request", "key"),
    ("POST", SUBSCRIPTIONS, b"{}", ARROW, 415, "media-type", LINES),
    ("GET", "/subscriptions/999", None, None, 404, "unknown", "no subscription 999"),
    ("GET", "/subscriptions/x", None, None, 422, "request", "path.id"),
    ("GET", f"/subscriptions/{2**63}", None, None, 422, "request", "path.id"),
    ("GET", "/subscriptions?limit=0", None, None, 422, "request", "query.limit"),
    ("GET", "/subscriptions?limit=1001", None, None, 422, "request", "query.limit"),
    ("GET", "/deliveries?after=-1", None, None, 422, "request", "query.after"),
    ("GET", f"/deliveries?after={2**63}", None, None, 422, "request", "query.after"),
    ("POST", "/acknowledgements", {"positions": ["x"]}, None, 422, "request", "positions"),
    ("POST", "/acknowledgements", {"positions": 1}, None, 422, "request", "positions"),
    ("POST", "/acknowledgements", {}, None, 422, "request", "positions"),
    ("POST", "/acknowledgements", b"{", JSON, 400, "json", "not JSON"),
    ("POST", "/acknowledgements", b"{}", None, 415, "media-type", JSON),
    ("POST", "/filters/default/explain", {"event": {}, "subscription": 999}, None, 404, "unknown", "999"),
    (
        "POST",
        "/filters/default/explain",
        b'{"event": {"price": 1e999}, "subscription": 1}',
        JSON,
        422,
        "request",
        "out of range",
    ),
    ("POST", "/filters/default/explain", {"event": 1, "subscription": 1}, None, 422, "request", "event"),
]


def test_a_request_that_is_wrong_is_told_so(server):
    for method, path, body, kind, status, problem, said in WRONG:
        answer = server.ask(method, path, body, kind=kind, user="admin")
        case = (method, path, str(body)[:60], answer.body)
        assert answer.status == status, case
        assert answer.headers["content-type"] == "application/problem+json", case
        assert (answer.body["type"], answer.body["status"]) == (f"/problems/{problem}", status), case
        assert answer.body["title"] == KINDS[problem][1], case
        assert said in answer.body["detail"], case
        assert set(answer.body) <= set(problems.Problem.__struct_fields__), case


def test_it_says_where_in_the_text_and_in_which_row(server):
    answer = server.ask("POST", SUBSCRIPTIONS, {"where": "price > 1 AND prise > 2"})
    assert (answer.body["attribute"], answer.body["position"]) == ("prise", 14)
    answer = server.ask("POST", EVENTS, b'{"price": 1}\n{"price": 1e999}', kind=LINES)
    assert answer.body["row"] == 1
    assert answer.body["detail"].startswith("row 1, counted from 0: this is not JSON")
    answer = server.ask(
        "POST", SUBSCRIPTIONS, b'{"where": "price > 1"}\n\n{"where": "prise > 1"}', kind=LINES
    )
    problem = answer.body["rows"][1]["problem"]
    assert (problem["row"], problem["detail"].partition(":")[0]) == (1, "row 1, counted from 0")


def test_what_was_given_is_not_repeated(server):
    answer = server.ask("PUT", "/filters/x", {"schema": {"x": "int"}, "key": ["secret" * 100]}, user="admin")
    assert answer.status == 422
    assert b"secret" not in answer.bytes


def test_who_says_nothing_is_asked_who_it_is(server):
    for header in (None, "Basic", "Basic !!!", "Basic /////w==", "Basic Og==", "Bearer abc", "Digest x"):
        answer = server.ask("GET", "/filters", user=None, **({"Authorization": header} if header else {}))
        assert (answer.status, answer.body["type"]) == (401, "/problems/unauthenticated")
        assert answer.headers["www-authenticate"].startswith('Basic realm="rtfilter"')


def test_nobody_uploads_without_saying_who_it_is(server):
    answer = server.ask("POST", EVENTS, b"x" * 1_000_000, kind=JSON, user=None)
    assert answer.status == 401


def test_a_body_without_a_length_has_the_same_limit(server):
    def parts():
        for _ in range(200):
            yield b"x" * 1000

    import http.client

    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"Authorization": "Basic YW5uOg==", "Content-Type": JSON}
    link.request("POST", EVENTS, parts(), headers, encode_chunked=True)
    assert link.getresponse().status == 413
    link.close()


def test_a_compressed_body_is_refused(server):
    assert server.ask("POST", EVENTS, b"{}", kind=JSON, Content_Encoding="gzip").status == 415


@pytest.mark.parametrize(
    ("raised", "status", "after"),
    [
        (TooManyError("slower", 0.2), 429, "1"),
        (TooManyError("no more"), 429, None),
        (BusyError("too much waits", 2.5), 503, "3"),
        (OperationalError("INSERT secret", {"x": "secret"}, Exception("secret")), 503, "1"),
        (ZeroDivisionError("secret"), 500, None),
    ],
)
def test_what_the_server_cannot_do_now_says_when_to_come_again_and_nothing_of_its_inside(
    server, monkeypatch, caplog, raised, status, after
):
    async def fail(*_):
        raise raised

    monkeypatch.setattr(server.pipeline.publishing, "publish", fail)
    with caplog.at_level(logging.CRITICAL):
        answer = server.ask("POST", EVENTS, {"price": 1})
    assert answer.status == status
    assert answer.headers.get("retry-after") == after
    assert answer.headers["content-type"] == "application/problem+json"
    assert b"secret" not in answer.bytes


def test_the_methods_that_a_path_has_are_told(server):
    assert server.ask("DELETE", "/deliveries").headers["allow"] == "GET"
    assert server.ask("PATCH", "/subscriptions/4").headers["allow"] == "DELETE, GET, PUT"
    assert server.ask("POST", "/healthz").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"where": "price > 1", "ttll": 3}, "the field 'ttll' is unknown; the fields are where, "),
        ({"where": "price > 1", "ttl": "5"}, "ttl: Expected `float | null`, got `str`"),
        (b" ", "the body is empty; send JSON"),
    ],
)
def test_a_wrong_body_is_described_by_its_fields(server, body, detail):
    answer = server.ask("POST", SUBSCRIPTIONS, body, kind=JSON)
    assert answer.body["detail"].startswith(detail)


def test_a_last_line_without_an_end_counts(server, monkeypatch):
    monkeypatch.setattr("rtfilter.service.doors.bodies.MOST_EVENTS", 3)
    for body in (b'{"price": 1}\n' * 4, b'{"price": 1}\n' * 3 + b'{"price": 1}'):
        kind = "application/x-ndjson"
        assert server.ask("POST", "/filters/default/events", body, user="carl", kind=kind).status == 413


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("PUT", "/filters/x", JSON),
        ("PUT", "/subscriptions/1", JSON),
        ("POST", "/filters/default/explain", JSON),
        ("POST", SUBSCRIPTIONS, JSON),
    ],
)
def test_what_is_no_event_is_short(server, monkeypatch, method, path, kind):
    monkeypatch.setattr(bodies, "MOST_DOCUMENT", 1000)  # all of it is read on the event loop
    answer = server.ask(method, path, b"[" + b"1," * 1000 + b"1]", user="admin", kind=kind)
    assert (answer.status, answer.body["type"]) == (413, "/problems/too-large")
    assert "at most 1000 bytes" in answer.body["detail"]


def test_one_long_line_is_refused_among_others(server, monkeypatch):
    monkeypatch.setattr(bodies, "MOST_DOCUMENT", 1000)
    lines = b'{"where": "price > 1"}\n' + b"x" * 1001
    rows = server.ask("POST", SUBSCRIPTIONS, lines, kind=LINES).body["rows"]
    assert "subscription" in rows[0]
    assert rows[1]["problem"]["type"] == "/problems/too-large"
