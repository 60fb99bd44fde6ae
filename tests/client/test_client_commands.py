"""``rtfilter subscribe``, ``publish`` and ``listen``, with the real server."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_server import RefusalError, served
from real_server import ENVIRONMENT, RealServer, serving

import forks
from lengths import long_but
from rtfilter.cli import FAILED, INTERRUPTED, PIPE_CLOSED, main
from rtfilter.client import PlainClient, RefusedError, connect_plain

pytestmark = pytest.mark.slow
ROWS = [{"symbol": f"S{i}", "price": float(i)} for i in range(10)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("served"))
    yield server
    server.kill()


@pytest.fixture
def asked(server, monkeypatch, capsys):
    """Run a command; its exit code, lines and messages."""
    monkeypatch.setenv("RTFILTER_URL", server.url)
    monkeypatch.delenv("RTFILTER_TOKEN", raising=False)

    def ask(*arguments):
        code = main([*map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err

    return ask


def started(server, *arguments, **options):
    return forks.python(
        *("-m", "rtfilter", *arguments, "--url", server.url),
        **{"env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


def written(folder, form):
    path = folder / f"ticks.{form}"
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    match form:
        case "jsonl":
            path.write_text(lines)
        case "jsonl.gz":
            path.write_bytes(gzip.compress(lines.encode()))
        case "csv":
            path.write_text("symbol,price\n" + "".join(f"{row['symbol']},{row['price']}\n" for row in ROWS))
        case "parquet":
            pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("form", long_but(["jsonl", "jsonl.gz", "csv", "parquet"], ("jsonl",)))
def test_subscribe_publish_listen(asked, tmp_path, form):
    user = f"ann-{form}"
    code, (id,), _ = asked("subscribe", "price > 7", "--user", user, "--metadata", '{"to": "x"}')
    assert code == 0
    code, lines, said = asked("publish", written(tmp_path, form), "--user", "bob")
    assert (code, lines) == (0, [])
    assert re.search(r"published 10 events, [0-9,]+ a second", said)
    assert "%|" not in said  # no progress where nobody looks
    code, lines, _ = asked("listen", "--user", user, "--count", "1", "--no-acknowledge")
    assert (code, len(lines)) == (0, 1)
    code, lines, said = asked("listen", "--user", user, "--count", "2")
    found = [json.loads(line) for line in lines]
    assert [one["event"] for one in found] == ROWS[8:]
    assert all(one["subscriptions"] == [int(id)] and one["filter"] == "default" for one in found)
    assert found[0]["redelivered"] == 1
    assert "redelivered" not in found[1] or found[1]["redelivered"] == 1
    assert asked("subscriptions", "remove", id, "--user", user)[0] == 0
    with connect_plain(os.environ["RTFILTER_URL"], user=user) as client:
        assert client.get() == 0


def test_subscriptions_are_shown_changed_and_tried(asked, tmp_path):
    me = ("--user", "gus")
    first, second = (
        asked("subscribe", where, "--ttl", "900", *me)[1][0] for where in ("price > 7", "price > 8")
    )
    shown = [json.loads(line) for line in asked("subscriptions", "list", *me)[1]]
    assert [(one["subscription"], one["where"]) for one in shown] == [
        (int(first), "price > 7"),
        (int(second), "price > 8"),
    ]
    assert all(one["expires"] == pytest.approx(one["since"] + 900) for one in shown)
    pattern = '{"symbol": ["S9"]}'
    assert asked("subscriptions", "replace", second, pattern, "--metadata", '{"a": 1}', *me)[0] == 0
    (line,) = asked("subscriptions", "show", second, *me)[1]
    one = json.loads(line)
    assert (one["where"], one["metadata"]) == (json.loads(pattern), {"a": 1})
    assert "expires" not in one
    code, lines, _ = asked("subscriptions", "match", written(tmp_path, "csv"), *me)
    assert (code, lines) == (0, ["event,subscription", f"8,{first}", f"9,{first}", f"9,{second}"])
    code, lines, _ = asked("subscriptions", "explain", first, '{"price": 5}', *me)
    assert (code, lines[0]) == (0, "no match")
    assert asked("subscriptions", "remove", first, *me)[0] == 0
    assert len(asked("subscriptions", "list", *me)[1]) == 1


def test_a_bad_event_that_is_tried_is_told_with_its_line(asked, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(
        '{"price": 1}\n' + json.dumps({"price": [*range(50)], "symbol": [*map(str, range(50))]}) + "\n"
    )
    code, _, said = asked("subscriptions", "match", path, "--user", "gus")
    assert code == FAILED
    assert f"{path}:2: " in said


def test_a_subscription_with_a_name_is_one(asked):
    ids = [asked("subscribe", "price > 7", "--key", "mine", "--user", "hal")[1] for _ in range(2)]
    assert ids[0] == ids[1]


def test_a_named_publication_is_one(asked, tmp_path):
    path = written(tmp_path, "jsonl")
    with connect_plain(os.environ["RTFILTER_URL"], user="bob") as client:
        assert asked("publish", path, "--user", "bob", "--key", "monday")[0] == 0
        (first,) = client.publish({"price": 1.0})
        assert asked("publish", path, "--user", "bob", "--key", "monday")[0] == 0
        (second,) = client.publish({"price": 1.0})
    assert second == first + 1


def test_publish_needs_no_tqdm(asked, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    code, _, said = asked("publish", written(tmp_path, "jsonl"), "--user", "bob")
    assert (code, "published 10 events" in said) == (0, True)


def test_a_pipe_is_published_as_it_comes(server):
    with connect_plain(server.url, user="pipe") as client:
        id = client.subscribe("price > 100")
        deliveries = client.deliveries(timeout=60)
        with started(server, "publish", "--user", "bob", stdin=subprocess.PIPE) as program:
            for price in (101.0, 102.0):
                program.stdin.write(json.dumps({"price": price}) + "\n")
                program.stdin.flush()
                assert next(deliveries).event == {"price": price}
            program.stdin.write("nonsense\n")
            program.stdin.close()
            assert program.wait(60) == FAILED
            said = program.stderr.read()
        assert "published 2 events" in said
        assert "error: <stdin>:3: not JSON" in said
        client.unsubscribe(id)


def test_a_bad_event_is_told_with_its_line(asked, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"price": 1}\n\n{"price": 1e400}\n')
    code, _, said = asked("publish", path, "--user", "bob")
    assert code == FAILED
    assert f"error: {path}:3: not JSON: Number out of range" in said
    assert "published 0 events" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["subscribe", "price >", "--user", "ann"], "    price >\n"),
        (["subscribe", "price > 1"], "say who you are: --user NAME, --token-file FILE"),
        (["subscriptions", "remove", "123456", "--user", "ann"], "no subscription 123456"),
        (["publish", "absent.jsonl", "--user", "ann"], "absent.jsonl: No such file"),
        (["listen", "--user", "ann", "--url", "ws://127.0.0.1:9"], "cannot be reached"),
        (["listen", "--user", "ann", "--url", "nowhere"], "'nowhere' is not the URL of a server"),
        (["listen", "--user", "ann", "--token-file", "t"], "give either --user or --token-file"),
        (["listen", "--token-file", "absent"], "absent: No such file"),
        (["publish", "--filter", "other", "--user", "ann", "FILE"], "other"),
    ],
)
def test_errors_are_clear(asked, tmp_path, arguments, message):
    path = str(written(tmp_path, "jsonl"))
    code, lines, said = asked(*[path if one == "FILE" else one for one in arguments])
    assert (code, lines) == (FAILED, [])
    assert message in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "arguments", [["--ttl", "0"], ["--digest", "x"], ["--metadata", "[]"], ["--metadata", "{"]]
)
def test_arguments_that_cannot_be_used(asked, arguments):
    code, _, said = asked("subscribe", "price > 1", "--user", "ann", *arguments)
    assert code == 2
    assert "error: argument" in said


def test_interrupts_and_closed_pipes_are_clean(server):
    with connect_plain(server.url, user="eve") as client:
        id = client.subscribe("price > 200")
        for end in (INTERRUPTED, PIPE_CLOSED):
            with started(server, "listen", "--user", "eve") as program:
                client.publish({"price": 201.0})
                assert json.loads(program.stdout.readline())["event"] == {"price": 201.0}
                if end == INTERRUPTED:
                    program.send_signal(signal.SIGINT)
                else:
                    program.stdout.close()
                    client.publish({"price": 202.0})
                assert program.wait(60) == end
                said = program.stderr.read()
            assert said == ("rtfilter: interrupted\n" if end == INTERRUPTED else "")
        deliveries = client.deliveries(timeout=60)
        while next(deliveries).event["price"] != 202.0:  # nobody had it
            pass
        client.unsubscribe(id)


def test_the_end_of_a_subscription_is_told(server):
    with connect_plain(server.url, user="ted") as client:
        client.subscribe("price > 300", ttl=0.2)
    with started(server, "listen", "--user", "ted") as program:
        assert re.match(r"rtfilter: subscription \d+ ended: ", program.stderr.readline())
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == INTERRUPTED


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (["--user", "ann"], {}, {"user": "ann", "password": ""}),
        (
            ["--user", "ann"],
            {"RTFILTER_PASSWORD": "p", "RTFILTER_TOKEN": "t"},
            {"user": "ann", "password": "p"},
        ),
        ([], {"RTFILTER_TOKEN": "t"}, {"token": "t"}),
        (["--token-file", "FILE"], {"RTFILTER_TOKEN": "t", "RTFILTER_PASSWORD": "p"}, {"token": "of file"}),
    ],
)
def test_who_asks(asked, tmp_path, monkeypatch, arguments, variables, said):
    (tmp_path / "token").write_text("of file\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with served() as server:
        given = [str(tmp_path / "token") if one == "FILE" else one for one in arguments]
        code, lines, _ = asked("subscribe", "price > 1", *given, "--url", server.url)
        assert (code, lines) == (0, ["1"])
        assert server.credentials == said


def test_wrong_credentials_are_told(asked, monkeypatch):
    monkeypatch.setenv("RTFILTER_PASSWORD", "wrong")
    with served() as server:
        code, _, said = asked("listen", "--user", "ann", "--url", server.url)
    assert code == FAILED
    assert "see --user, --token-file, RTFILTER_TOKEN and RTFILTER_PASSWORD" in said


def test_what_the_server_refuses_is_told_with_its_line_alone(asked, tmp_path):
    with served() as server:
        server.refuse["PUBLISH"] = RefusalError("event", "event 1: an event has a price", row=1)
        path = written(tmp_path, "jsonl")
        code, _, said = asked("publish", path, "--user", "bob", "--url", server.url)
    assert code == FAILED
    assert f"error: {path}:2: an event has a price; this frame" in said


def test_a_time_to_wait_that_makes_no_sense_is_not_waited(asked, tmp_path):
    with served() as server:
        server.refuse["PUBLISH"] = RefusalError("busy", "too much waits", retry_after=-1e308)
        assert asked("publish", written(tmp_path, "jsonl"), "--user", "bob", "--url", server.url)[0] == 0
        assert len(server.log) == 10


def test_users_with_passwords_and_tokens(tmp_path, asked, monkeypatch):
    def users(*arguments):
        code, lines, said = asked("users", "--data", tmp_path / "data", *arguments)
        assert code == 0, said
        return lines

    (tmp_path / "password").write_text("correct horse\n")
    given = ("--password-file", tmp_path / "password")
    users("add", "root", "--role", "admin", *given)
    users("add", "ann", "--role", "subscriber", *given)
    (tmp_path / "token").write_text(users("token", "ann")[-1])
    with serving(tmp_path) as server:
        url = ("--url", server.url)
        code, _, said = asked("subscribe", "price > 1", "--user", "ann", *url)
        assert code == FAILED
        assert "see --user, --token-file, RTFILTER_TOKEN and RTFILTER_PASSWORD" in said
        monkeypatch.setenv("RTFILTER_PASSWORD", "wrong horse")
        assert asked("subscribe", "price > 1", "--user", "ann", *url)[0] == FAILED
        monkeypatch.setenv("RTFILTER_PASSWORD", "correct horse")
        assert asked("subscribe", "price > 1", "--user", "ann", *url)[0] == 0
        assert asked("subscribe", "price > 2", "--token-file", tmp_path / "token", *url)[0] == 0
        monkeypatch.setenv("RTFILTER_TOKEN", (tmp_path / "token").read_text())
        assert asked("subscribe", "price > 3", *url)[0] == 0
        code, _, said = asked("publish", written(tmp_path, "jsonl"), *url)
        assert code == FAILED
        assert "publisher" in said
        with connect_plain(server.url, token=os.environ["RTFILTER_TOKEN"]) as client:
            assert (client.user, client.roles) == ("ann", ("subscriber",))


def test_what_matches_more_than_a_message_says_is_asked_for_in_halves(asked, tmp_path, monkeypatch):
    def match(client, events, filter):
        if len(events) > 2:
            raise RefusedError("too much", "too-large")
        return [[int(event["price"])] for event in events]

    monkeypatch.setattr(PlainClient, "match", match)
    code, lines, _ = asked("subscriptions", "match", written(tmp_path, "jsonl"), "--user", "ann")
    assert (code, lines[1:]) == (0, [f"{row},{row}" for row in range(10)])


def test_a_file_of_long_events_is_published(asked, tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps({"price": i, "more": "x" * 5000}) + "\n" for i in range(500)))
    code, _, said = asked("publish", path, "--user", "ann", "--key", "long")
    assert (code, "published 500 events" in said) == (0, True), said
