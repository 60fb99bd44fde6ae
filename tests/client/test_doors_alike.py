"""HTTP, WebSocket, TCP and the commands take the same, and refuse the same."""

import base64
import json
import urllib.error
import urllib.request
from unicodedata import normalize

import pytest
from doors import Http, Socket, Tcp
from real_server import RealServer

from rtfilter.cli import FAILED, main
from rtfilter.client import connect_plain

pytestmark = pytest.mark.slow
NFC, NFD = (normalize(form, "größe") for form in ("NFC", "NFD"))
MARK = "\ufeff"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RealServer(
        tmp_path_factory.mktemp("alike"),
        "--schema",
        json.dumps({NFD: "int", "x": "float", "at": "timestamp"}),
    )
    yield server
    server.kill()


@pytest.fixture(params=[Http, Socket, Tcp], ids=["http", "websocket", "tcp"])
def door(request, server):
    door = request.param(server)
    yield door
    if not isinstance(door, Http):
        door.close()


@pytest.mark.parametrize("body", [{"event": {"x": 1}}, {"events": [{"x": 1}, {"x": 2}]}], ids=list)
def test_a_byte_order_mark_is_taken(door, body):
    answer = door.ask("PUBLISH", MARK, **body)
    assert len(answer["positions"]) == len(body.get("events", [1])), answer
    assert door.ask("SUBSCRIBE", MARK, where="x > 1")["subscription"]


@pytest.mark.parametrize("name", [NFC, NFD], ids=["nfc", "nfd"])
def test_a_name_is_taken_in_every_spelling(door, name):
    assert door.ask("SUBSCRIBE", where=f"{name} = 7")["subscription"]
    assert door.ask("SUBSCRIBE", where={name: [7]})["subscription"]
    assert door.ask("PUBLISH", event={name: 7})["positions"]
    refused = door.ask("PUBLISH", events=[{name: 7}, {NFC: 7, NFD: 8}])
    assert "two spellings" in refused


@pytest.mark.parametrize("seconds", [True, "60", 0, -1, [1], {"s": 1}], ids=str)
@pytest.mark.parametrize("name", ["ttl", "digest"])
def test_seconds_are_numbers_above_zero(door, name, seconds):
    refused = door.ask("SUBSCRIBE", where="x > 1", **{name: seconds})
    assert isinstance(refused, str), refused
    assert name in refused or "time to live" in refused


@pytest.mark.parametrize("seconds", [60, 60.5])
def test_seconds_that_are_taken(door, seconds):
    assert door.ask("SUBSCRIBE", where="x > 1", ttl=seconds, digest=seconds)["subscription"]


def test_an_event_that_is_taken_is_delivered_to_a_client_of_the_field(server, door):
    """`websockets` takes 1 MiB by default."""
    name = type(door).__name__
    fits = {"door": name, "filler": "x" * (2**19 - 50)}
    assert len(json.dumps(fits)) < 2**19
    listener = Socket(server, f"listener to {name}")
    listener.ask("SUBSCRIBE", where="x IS NULL AND at IS NULL")
    listener.ask("READY")
    assert door.ask("PUBLISH", event=fits)["positions"]
    assert listener.hear()["event"] == fits
    listener.close()
    longer = {**fits, "more": "x" * 50}
    assert "an event has at most 524288 bytes as JSON, and this one has" in door.ask("PUBLISH", event=longer)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A server that keeps two deliveries for each user."""
    server = RealServer(tmp_path_factory.mktemp("small"), "--backlog-count", "2")
    yield server
    server.kill()


@pytest.fixture
def dropped(small, request):
    """Have five deliveries of another user dropped; the user."""
    user = request.node.name
    with connect_plain(small.url, user=user) as client:
        client.subscribe("price > 0", key="one")
        client.publish([{"price": 1}] * 7)
    http = Http(small, user)
    assert any(http.send("GET", "/statistics")["dropped"] == 5 for _ in range(10_000))
    return user


def test_who_pulls_learns_what_was_dropped(small, dropped):
    door = Http(small, dropped)
    for _ in range(2):
        first, second = door.send("GET", "/deliveries")["deliveries"]
        assert (first["dropped"], "dropped" in second) == (5, False)
    assert door.send("GET", "/statistics")["dropped"] == 5
    positions = {"positions": [first["position"]]}
    door.send(
        "POST", "/acknowledgements", json.dumps(positions).encode(), {"Content-Type": "application/json"}
    )
    assert "dropped" not in door.send("GET", "/deliveries")["deliveries"][0]


@pytest.mark.parametrize("kind", [Socket, Tcp])
def test_a_session_learns_what_was_dropped(small, dropped, kind):
    door = kind(small, dropped)
    door.ask("GET")
    first, second = door.hear(), door.hear()
    assert (first["dropped"], "dropped" in second) == (5, False)
    door.close()


def test_the_client_and_listen_learn_what_was_dropped(small, dropped, capsys):
    with connect_plain(small.url, user=dropped, acknowledge="manual") as client:
        assert [one.dropped for _, one in zip(range(2), client, strict=False)] == [5, 0]
    assert main(["listen", "--count", "2", "--user", dropped, "--url", small.url]) == 0
    assert "dropped 5 of your deliveries" in capsys.readouterr().err


def test_a_key_of_a_subscription_that_has_ended_stands_for_a_new_one(door):
    wish = {"where": "x > 1", "key": f"key of {type(door).__name__}"}
    first = door.ask("SUBSCRIBE", **wish)["subscription"]
    assert door.ask("SUBSCRIBE", **wish)["subscription"] == first
    door.ask("UNSUBSCRIBE", subscription=first)
    assert door.ask("SUBSCRIBE", **wish)["subscription"] > first


@pytest.mark.parametrize("name", [NFC, NFD], ids=["nfc", "nfd"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_commands_take_a_name_in_every_spelling(server, tmp_path, capsys, name, form):
    path, rules = tmp_path / f"events.{form}", tmp_path / "rules.jsonl"
    path.write_text(MARK + (f"{name}\n7\n" if form == "csv" else json.dumps({name: 7}) + "\n"))
    rules.write_text(json.dumps(f"{NFC} = 7"))
    assert main(["publish", str(path), "--user", "ann", "--url", server.url]) == 0
    capsys.readouterr()
    assert main(["match", str(rules), str(path)]) == 0
    assert capsys.readouterr().out.split() == ["event,subscription", "0,0"]
    rules.write_text(json.dumps({"where": f"{NFC} = 7", "ttl": True}))
    assert main(["match", str(rules), str(path)]) == FAILED
    assert "a time to live is a number of seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2024-05-31x12:00:00Z", "between date and time is T, t or a blank"),
        ("2016-12-31T23:59:60Z", "it is a leap second"),
        ("2024-05-31T24:00:00Z", "its hour is 24"),
        ("2024-152", "it is an ordinal date"),
    ],
)
def test_a_text_that_is_no_timestamp_is_said_to_be_none(server, door, text, why):
    assert why in door.ask("SUBSCRIBE", where=f"at > '{text}'")
    assert why in door.ask("SUBSCRIBE", where={"at": [text]})
    assert door.ask("SUBSCRIBE", where="at > '2024-05-31t12:00:00z'")["subscription"]
    assert door.ask("PUBLISH", event={"at": text})["positions"]  # as a value of another type
    id = door.ask("SUBSCRIBE", where="at > '2000-01-01'")["subscription"]
    report = Http(server).ask("EXPLAIN", event={"at": text}, subscription=id)["report"]
    assert why in "\n".join(report)


ODD = [
    ({"X": 1, "y": 1}, "unknown attribute 'X'; did you mean 'x'?"),
    ({"x": "9.5"}, "attribute 'x' is a number, and '9.5' is none"),
    ({"x": 1, "at": 1717156800}, "attribute 'at' is a timestamp, and 1717156800 is none"),
]


@pytest.mark.parametrize(("event", "said"), ODD, ids=str)
def test_what_may_not_be_meant_is_taken_with_a_hint(door, event, said):
    assert door.ask("PUBLISH", event=event)["hints"] == [said]
    assert door.ask("PUBLISH", events=[{"x": 1}, event])["hints"] == [f"event 1: {said}"]
    assert "hints" not in door.ask("PUBLISH", event={"x": 1, "y": 1})


@pytest.fixture(scope="module")
def strict(server):
    schema = {"strict": True, "attributes": {"x": "float", "at": "timestamp"}}
    headers = {
        "Authorization": "Basic " + base64.b64encode(b"admin:").decode(),
        "Content-Type": "application/json",
    }
    url = f"http://localhost:{server.port}/filters/strict"
    request = urllib.request.Request(url, json.dumps({"schema": schema}).encode(), headers, method="PUT")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["schema"]["strict"] is True


@pytest.mark.parametrize(("event", "said"), [*ODD, ({"x": 1, "y": 1}, "unknown attribute 'y'")], ids=str)
def test_a_strict_filter_refuses_it(strict, door, event, said):
    assert said.removeprefix("event 1: ") in door.ask("PUBLISH", filter="strict", events=[{"x": 1}, event])
    assert door.ask("PUBLISH", filter="strict", event={"x": 1})["positions"]
