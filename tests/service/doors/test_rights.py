"""Every door, for every role, the right owner and the wrong one."""

import json
import socket
from contextlib import contextmanager, nullcontext

import pytest
from websockets.sync.client import connect

from rtfilter.basics.session_states import Directive
from rtfilter.service.access import tokens
from rtfilter.service.doors import frames
from rtfilter.store.database import engine
from rtfilter.store.user_store import Users
from service.running import running

ROLES = {
    "root": ["admin"],
    "ann": ["subscriber"],
    "bob": ["subscriber"],
    "carl": ["publisher"],
}
LINES = "application/x-ndjson"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with users; and the token of each."""
    folder = tmp_path_factory.mktemp("guarded")
    database = engine(f"sqlite:///{folder}/log.sqlite")
    users, made = Users(database), {}
    for name, roles in ROLES.items():
        users.add(name, "no password", roles)
        made[name] = tokens.new()
        users.add_token(name, tokens.digest(made[name]))
    database.dispose()
    with running(folder, tcp_port=0, webhook_private=True) as server:

        def ask(user, method, path, body=None, **more):
            header = {} if user is None else {"Authorization": f"Bearer {made[user]}"}
            return server.ask(method, path, body, user=None, **header, **more)

        ask.server, ask.tokens = server, made
        yield ask


@contextmanager
def owned(guarded):
    """A subscription of ann's, with a delivery."""
    made = guarded("ann", "POST", "/filters/default/subscriptions", {"where": "price > 100"})
    assert guarded("carl", "POST", "/filters/default/events", {"price": 101}).status == 202
    guarded.server.settle()
    yield made.body["subscription"]
    guarded("root", "DELETE", f"/subscriptions/{made.body['subscription']}")


@pytest.fixture
def own(guarded):
    with owned(guarded) as id:
        yield id


# Who asks: nobody, root, ann (whose subscription it is), bob, carl.
TABLE = [
    ("GET", "/healthz", None, (200, 200, 200, 200, 200)),
    ("GET", "/readyz", None, (200, 200, 200, 200, 200)),
    ("GET", "/openapi.json", None, (200, 200, 200, 200, 200)),
    ("GET", "/", None, (200, 200, 200, 200, 200)),
    ("GET", "/metrics", None, (401, 200, 403, 403, 403)),
    ("GET", "/status", None, (401, 200, 403, 403, 403)),
    ("GET", "/site", None, (401, 404, 403, 403, 403)),  # it is none
    ("PUT", "/site/strategy", {"strategy": "hybrid"}, (401, 404, 403, 403, 403)),
    ("DELETE", "/site/sites/none", None, (401, 404, 403, 403, 403)),
    ("GET", "/nothing", None, (404, 404, 404, 404, 404)),
    ("GET", "/filters", None, (401, 200, 200, 200, 200)),
    ("GET", "/filters/default", None, (401, 200, 200, 200, 200)),
    ("PUT", "/filters/more", {"schema": {"x": "int"}}, (401, 200, 403, 403, 403)),
    ("DELETE", "/filters/none", None, (401, 404, 403, 403, 403)),
    ("POST", "/filters/default/events", {"price": 1}, (401, 202, 403, 403, 202)),
    ("GET", "/filters/default/events", None, (401, 200, 200, 200, 200)),
    ("POST", "/filters/default/match", {"price": 1}, (401, 200, 200, 200, 403)),
    ("POST", "/filters/default/explain", {"event": {}, "subscription": "OWN"}, (401, 200, 200, 404, 403)),
    ("POST", "/filters/default/subscriptions", {"where": "price > 1e9"}, (401, 201, 201, 201, 403)),
    ("GET", "/subscriptions", None, (401, 200, 200, 200, 200)),
    ("GET", "/subscriptions?user=ann", None, (401, 200, 403, 403, 403)),
    ("GET", "/subscriptions?everyone=true", None, (401, 200, 403, 403, 403)),
    ("GET", "/subscriptions/OWN", None, (401, 200, 200, 404, 404)),
    ("PUT", "/subscriptions/OWN", {"where": "price > 100"}, (401, 200, 200, 404, 403)),
    ("DELETE", "/subscriptions/OWN", None, (401, 204, 204, 404, 404)),
    ("GET", "/deliveries", None, (401, 200, 200, 200, 403)),
    ("POST", "/acknowledgements", {"positions": []}, (401, 204, 204, 204, 403)),
    ("PUT", "/webhook", {"url": "https://ann.example/"}, (401, 200, 200, 200, 403)),
    ("GET", "/webhook", None, (401, 200, 200, 200, 403)),
    ("GET", "/webhook?user=ann", None, (401, 200, 403, 403, 403)),
    ("POST", "/webhook/secret", None, (401, 200, 200, 200, 403)),
    ("POST", "/webhook/resume", None, (401, 200, 200, 200, 403)),
    ("DELETE", "/webhook", None, (401, 204, 204, 204, 403)),
    ("DELETE", "/webhook?user=ann", None, (401, 204, 403, 403, 403)),
    ("GET", "/statistics", None, (401, 200, 200, 200, 200)),
]


def answer_of(guarded, user, method, path, body):
    """The answer to a user, for a subscription of ann's where the request names one."""
    if path.startswith("/webhook"):
        for name in {user, "ann"} & {"root", "ann", "bob"}:
            assert guarded(name, "PUT", "/webhook", {"url": "https://ann.example/"}).status == 200
    if "OWN" not in path and "OWN" not in (body or {}).values():
        return guarded(user, method, path, body)
    with owned(guarded) as id:
        if body is not None and "subscription" in body:
            body = {**body, "subscription": id}
        return guarded(user, method, path.replace("OWN", str(id)), body)


@pytest.mark.slow
def test_a_door_is_open_to_those_who_may(guarded):
    wrong = []
    for method, path, body, statuses in TABLE:
        for user, status in zip([None, *ROLES], statuses, strict=True):
            answer = answer_of(guarded, user, method, path, body)
            if answer.status != status:
                wrong.append((user, method, path, answer.status, status))
            if answer.status == 401:
                assert answer.body["type"] == "/problems/unauthenticated"
    assert wrong == []


@pytest.mark.slow
def test_every_documented_door_is_in_the_table(guarded):
    document = guarded(None, "GET", "/openapi.json").body
    documented = {
        (method.upper(), path.replace("{id}", "OWN").replace("{filter}", "default").replace("{site}", "none"))
        for path, item in document["paths"].items()
        for method in item
    }
    tried = {(method, path.partition("?")[0]) for method, path, _, _ in TABLE}
    tried |= {("PUT", "/filters/default"), ("DELETE", "/filters/default")}  # tried with other names
    assert documented - tried == set()


def test_nobody_learns_of_anothers_subscriptions_and_deliveries(guarded, own):
    seen = guarded("ann", "GET", "/deliveries?limit=1000").body["deliveries"]
    assert own in {id for one in seen for id in one.get("subscriptions", [])}
    assert guarded("bob", "GET", "/deliveries").body["deliveries"] == []
    listed = guarded("bob", "GET", "/subscriptions").body["subscriptions"]
    assert {one["user"] for one in listed} <= {"bob"}
    assert guarded("bob", "POST", "/filters/default/match", {"price": 101}).body == {"matches": [[]]}
    positions = [one["position"] for one in seen]
    assert guarded("bob", "POST", "/acknowledgements", {"positions": positions}).status == 204
    assert guarded("ann", "GET", "/deliveries").body["deliveries"]
    theirs, nobodys = (guarded("bob", "GET", f"/subscriptions/{id}").body for id in (own, 10**9))
    assert theirs.pop("request") != nobodys.pop("request")
    assert theirs == {**nobodys, "detail": nobodys["detail"].replace(str(10**9), str(own))}
    assert "server" not in guarded("bob", "GET", "/statistics").body


def test_a_publisher_reads_back_its_own_events_only(guarded, own):
    assert guarded("root", "POST", "/filters/default/events", {"price": 5}).status == 202
    for user, users in (("ann", {"root", "carl"}), ("carl", {"carl"})):
        found = guarded(user, "GET", "/filters/default/events?limit=1000").body["events"]
        assert {one["user"] for one in found} == users


# What a session of each is answered: root, ann (whose subscription it is), bob, carl.
DIRECTIVES = [
    (Directive.SUBSCRIBE, {"where": "price > 1e9"}, ("ACK", "ACK", "ACK", "forbidden")),
    (Directive.UNSUBSCRIBE, {"subscription": "OWN"}, ("ACK", "ACK", "unknown", "unknown")),
    (
        Directive.REPLACE,
        {"subscription": "OWN", "where": "price > 100"},
        ("ACK", "ACK", "unknown", "forbidden"),
    ),
    (Directive.LIST, {}, ("ACK",) * 4),
    (Directive.LIST, {"subscription": "OWN"}, ("ACK", "ACK", "unknown", "unknown")),
    (Directive.MATCH, {"event": {"price": 1}}, ("ACK", "ACK", "ACK", "forbidden")),
    (Directive.EXPLAIN, {"subscription": "OWN", "event": {}}, ("ACK", "ACK", "unknown", "forbidden")),
    (Directive.PUBLISH, {"event": {"price": 1}}, ("ACK", "forbidden", "forbidden", "ACK")),
    (Directive.GET, {}, ("ACK", "ACK", "ACK", "forbidden")),
    (Directive.READY, {}, ("ACK", "ACK", "ACK", "forbidden")),
    (Directive.ACK, {"upto": 0}, ("ACK", "ACK", "ACK", "forbidden")),
    (Directive.CREDIT, {"more": 1}, ("ACK", "ACK", "ACK", "ACK")),
    (Directive.SITE, {"site": "s", "cluster": "s", "message": ""}, ("directive", *["forbidden"] * 3)),
    (Directive.STOP, {}, ("directive",) * 4),
    (Directive.CONNECT, {"user": "ann", "password": "no password"}, ("directive",) * 4),
    (Directive.DISCONNECT, {}, ("ACK",) * 4),
]


def test_every_directive_is_in_the_table():
    assert {directive for directive, _, _ in DIRECTIVES} == set(Directive)


@contextmanager
def over_websocket(server):
    """Says a message over WebSocket, and returns what comes."""
    with connect(f"ws://127.0.0.1:{server.port}/session", max_queue=None) as link:

        def say(message):
            link.send(json.dumps(message))
            return json.loads(link.recv(timeout=60))

        yield say


@contextmanager
def over_tcp(server):
    """The same over TCP."""
    with socket.create_connection(("127.0.0.1", server.opened.tcp_port), timeout=60) as link:
        reader = frames.Reader(frames.ServerDirective)

        def say(message):
            directive = frames.ClientDirective[message.pop("directive")]
            link.sendall(frames.write(directive, json.dumps(message).encode()))
            while not (came := list(reader)):
                reader.feed(link.recv(4096))
            name = frames.ServerDirective(came[0].directive).name
            return {"directive": name, **json.loads(came[0].body or b"{}")}

        yield say


def told_to(guarded, door, user, directive, more):
    """What a session of a user is told, for a subscription of ann's where the directive names one."""
    with door(guarded.server) as say, owned(guarded) if "subscription" in more else nullcontext() as id:
        connected = say({"directive": "CONNECT", "token": guarded.tokens[user]})
        assert connected["directive"] == "CONNECTED"
        answer = say({"directive": str(directive), **more, **({} if id is None else {"subscription": id})})
    return answer["kind"] if answer["directive"] == "ERROR" else answer["directive"]


@pytest.mark.slow
@pytest.mark.parametrize("door", [over_websocket, over_tcp])
def test_a_session_does_what_its_user_may(guarded, door):
    wrong = []
    for directive, more, answers in DIRECTIVES:
        for user, answer in zip(ROLES, answers, strict=True):
            told = told_to(guarded, door, user, directive, more)
            if told != answer:
                wrong.append((user, directive, told, answer))
    assert wrong == []


@pytest.mark.parametrize("door", [over_websocket, over_tcp])
def test_nobody_comes_in_without_proof(guarded, door):
    for given in ({"user": "ann"}, {"user": "ann", "password": "wrong"}, {"token": "rtf_x"}, {}):
        with door(guarded.server) as say:
            assert say({"directive": "CONNECT", **given})["directive"] == "ERROR", given
            answer = say({"directive": "GET"})
            assert (answer["directive"], answer["kind"]) == ("ERROR", "directive"), given


@contextmanager
def begun(guarded, user, method, path):
    """A request without the end of its body."""
    with socket.create_connection(("127.0.0.1", guarded.server.port), timeout=60) as link:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
        head += f"Content-Type: application/json\r\nAuthorization: Bearer {guarded.tokens[user]}\r\n\r\n"
        link.sendall(head.encode() + b"{" + b" " * 900)
        yield link


REFUSED = [
    (user, method, path.replace("OWN", "1"))
    for method, path, _, statuses in TABLE
    for user, status in zip(ROLES, statuses[1:], strict=True)
    if method in ("POST", "PUT") and status == 403
]


def test_every_door_with_a_body_refuses_someone():
    """So that each needs a role, and is tried next."""
    doors = {(method, path.replace("OWN", "1")) for method, path, _, _ in TABLE if method in ("POST", "PUT")}
    assert {one[1:] for one in REFUSED} == doors


@pytest.mark.parametrize(("user", "method", "path"), REFUSED)
def test_no_body_is_read_of_who_may_not_send_it(guarded, user, method, path):
    with begun(guarded, user, method, path) as link:
        assert link.recv(10_000).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("path", ["/webhook/secret", "/webhook/resume"])
def test_no_body_is_read_where_none_is_needed(guarded, path):
    assert guarded("ann", "PUT", "/webhook", {"url": "https://ann.example/"}).status == 200
    with begun(guarded, "ann", "POST", path) as link:
        assert link.recv(10_000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("method", "path", "kind", "body"),
    [
        ("POST", "/filters/default/events", "application/json", '{"price": 1}'),
        ("POST", "/filters/default/match", "application/json", '{"price": 1}'),
        ("POST", "/filters/default/subscriptions", LINES, '{"where": "price > 1e9"}'),
        ("POST", "/acknowledgements", "application/json", '{"positions": []}'),
        ("PUT", "/webhook", "application/json", '{"url": "https://ann.example/"}'),
        ("PUT", "/filters/default", "application/json", '{"schema": {"price": "float", "symbol": "str"}}'),
    ],
)
def test_a_body_counts_only_if_its_user_may_still_send_it(guarded, method, path, kind, body):
    server, token = guarded.server, tokens.new()
    database = engine(f"sqlite:///{server.opened.settings.data}/log.sqlite")
    users = Users(database)
    id = users.add_token("root", tokens.digest(token))
    server.run(server.pipeline.users._read())
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        head += f"Content-Type: {kind}\r\nAuthorization: Bearer {token}\r\nExpect: 100-continue\r\n\r\n"
        link.sendall(head.encode())
        assert link.recv(10_000).startswith(b"HTTP/1.1 100")  # the body is read now
        users.revoke(id)
        server.run(server.pipeline.users._read())
        link.sendall(body.encode())
        assert link.recv(10_000).startswith(b"HTTP/1.1 401")
    database.dispose()
