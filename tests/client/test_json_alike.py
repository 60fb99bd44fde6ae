"""JSON means the same at every door: library, command, HTTP, WebSocket, TCP and client."""

import json
from codecs import BOM_UTF8

import pytest
from doors import Http, Socket, Tcp
from real_server import RealServer
from websockets.exceptions import ConnectionClosed

from rtfilter import EventFilter, Schema
from rtfilter.basics.errors import RTFilterError
from rtfilter.cli import main
from rtfilter.client import connect_plain
from rtfilter.service.doors.frames import ClientDirective, write

pytestmark = pytest.mark.slow
TYPES = {"x": "float", "i": "int", "s": "str", "a.b": "int", "idle": "float"}
CONDITIONS = ["x = 2", "x IS NOT NULL", "i >= 9007199254740993", "i = 9007199254740993", '"a.b" = 1']
TWO, REFUSED = {"x = 2", "x IS NOT NULL"}, None
BEFORE = b'{"x": 1}'

ALIKE = {
    b'{"x": 1, "x": 2}': TWO,
    b'{"x": "a", "x": 2, "o": 1, "o": 2}': TWO,
    b'{"a": {"b": 2}, "a": {"b": 1}}': {'"a.b" = 1'},
    b'{"a": {"b": 1}, "a.b": 1}': REFUSED,
    b'{"i": 9007199254740993}': {"i >= 9007199254740993", "i = 9007199254740993"},
    b'{"i": 1180591620717411303424, "x": 2}': {"i >= 9007199254740993", *TWO},
    b'{"x": 1180591620717411303424}': {"x IS NOT NULL"},
    b'{"x": 2, "o": 1180591620717411303424}': TWO,
    b'{"x": 1e400}': REFUSED,
    b'{"x": 1e400, "x": 2}': REFUSED,
    b'{"x": %s}' % (b"9" * 400): REFUSED,
    b'{"x": %s}' % (b"9" * 5000): REFUSED,
    b'{"x": NaN}': REFUSED,
    b'{"x": 2, "o": NaN}': REFUSED,
    b'{"x": Infinity}': REFUSED,
    b'{"x": 2, "o": -Infinity}': REFUSED,
    b'{"s": "\xff"}': REFUSED,
    b'{"x": 2, "o": "\xff"}': REFUSED,
    b'{"x": 2, "\xff": 1}': REFUSED,
    b'{"s": "\\ud800"}': REFUSED,
    b'{"x": 2, "o": "\\udfff"}': REFUSED,
    b'{"x": 2, "o": "\\ud83d\\ude00"}': TWO,
    b'{"x": %s2%s}' % (b"[" * 20_000, b"]" * 20_000): REFUSED,
    b'{"x": 2, "o": %s%s}' % (b"[" * 20_000, b"]" * 20_000): REFUSED,
    b'{"x": 2, "o": %s%s}' % (b"[" * 60, b"]" * 60): TWO,
    BOM_UTF8 + b'{"x": 2}': TWO,
    b'{"x": 2} ]': REFUSED,
    b'{"x": 2} {"x": 2}': REFUSED,
    b'{"x": 2,}': REFUSED,
    b'{"x": 2, "o": 01}': REFUSED,
    b"null": REFUSED,
    b"3": REFUSED,
    b'{"x": null}': set(),
    b'{"x": "2"}': {"x IS NOT NULL"},
    b'{"x": true}': {"x IS NOT NULL"},
    b'{"x": 2, "idle": "2"}': TWO,
    b'{"x": 2, "a": 1}': TWO,
}
"""Events, with the conditions that hold."""
EMPTY = [b"", b" ", BOM_UTF8]
"""No event: refused alone; in lines there is no event."""
UNREAD = [b"1e400", b"9" * 5000, b"[1e400]"]
"""Values that a filter of the library skips where nobody asks for the attribute."""


@pytest.fixture(scope="module")
def filter():
    made = EventFilter(Schema(TYPES))
    made.subscribe_many(CONDITIONS)
    return made


LIBRARY = {
    "match": lambda filter, text: filter.match(text),
    "match_batch": lambda filter, text: filter.match_batch([BEFORE, text])[1],
    "of_one": lambda filter, text: filter.match_batch([text])[0],
    "lines": lambda filter, text: filter.match_batch(text + b"\n" + BEFORE)[0],
    "stream": lambda filter, text: {row: ids for row, ids, _ in filter.stream([BEFORE, text])}[1],
    "explain": lambda filter, text: [id for id in range(len(CONDITIONS)) if filter.explain(text, id).matched],
}
ALL = ALIKE | dict.fromkeys(EMPTY, REFUSED)


def judged(read, *given):
    """The conditions that hold, or `REFUSED`."""
    try:
        return {CONDITIONS[id] for id in read(*given)}
    except (RTFilterError, ValueError):
        return REFUSED


@pytest.mark.parametrize("way", LIBRARY)
def test_the_library(filter, way):
    read = LIBRARY[way]
    for text, holds in (ALIKE if way == "lines" else ALL).items():
        assert judged(read, filter, text) == holds, text[:50]


@pytest.mark.parametrize("way", [way for way in LIBRARY if way != "explain"])
def test_attributes_that_nobody_asks_for_refuse_nothing(filter, way):
    """At no time: some events are read completely, to report misspelt names."""
    for number in range(600):
        name, value = (b"o", b"idle")[number % 2], UNREAD[number % 3]
        assert judged(LIBRARY[way], filter, b'{"x": 2, "%s": %s}' % (name, value)) == TWO, (name, value[:6])


def everywhere():
    """Events with the conditions that hold where the door reads all attributes."""
    unread = [b'{"x": 2, "%s": %s}' % (name, value) for name in (b"o", b"idle") for value in UNREAD]
    return ALIKE | dict.fromkeys(unread, REFUSED)


def test_the_command(tmp_path, capsys):
    subscriptions, events = tmp_path / "subs.jsonl", tmp_path / "events.jsonl"
    subscriptions.write_text("\n".join(map(json.dumps, CONDITIONS)))

    def read(text):
        events.write_bytes(text + b"\n")
        if main(["match", str(subscriptions), str(events), "--schema", json.dumps(TYPES)]):
            raise RTFilterError
        return [int(row.split(",")[1]) for row in capsys.readouterr().out.split()[1:]]

    for text, holds in everywhere().items():
        assert judged(read, text) == holds, text[:50]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("json"), "--schema", json.dumps(TYPES))
    door = Http(server)
    server.ids = [door.ask("SUBSCRIBE", where=where)["subscription"] for where in CONDITIONS]
    yield server
    server.kill()


def http(server, text, kind="application/json", path="match"):
    answer = Http(server).send("POST", f"/filters/default/{path}", text, {"Content-Type": kind})
    if isinstance(answer, str):
        raise RTFilterError(answer)
    return answer


def http_one(server, text):
    return http(server, text)["matches"][0]


def http_lines(server, text):
    return http(server, text + b"\n" + BEFORE, "application/x-ndjson")["matches"][0]


def http_explain(server, text):
    event = text.removeprefix(BOM_UTF8)
    asked = {id: b'{"subscription": %d, "event": %s}' % (id, event) for id in server.ids}
    return [id for id, body in asked.items() if http(server, body, path="explain")["matched"]]


def message(text, directive=b""):
    """Begins with the byte order mark of the event."""
    event = text.removeprefix(BOM_UTF8)
    return text[: len(text) - len(event)] + b'{%s"tag": 1, "event": %s}' % (directive, event)


def websocket(server, text):
    door = Socket(server)
    try:
        door._socket.send(message(text, b'"directive": "MATCH", '), text=True)
        return heard(door)
    except ConnectionClosed as error:  # not UTF-8
        raise RTFilterError from error
    finally:
        door.close()


def tcp(server, text):
    door = Tcp(server)
    try:
        door._peer._socket.sendall(write(ClientDirective.MATCH, message(text)))
        return heard(door)
    finally:
        door.close()


def heard(door):
    answer = door.hear()
    if answer["directive"] == "ERROR":
        raise RTFilterError(answer["error"])
    return answer["matches"][0]


def client(server, text):
    """With what Python's own decoder makes of the text, which takes more."""
    try:
        event = json.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise RTFilterError from error
    with connect_plain(server.url, user="ann") as connected:
        return connected.match(event)[0]


@pytest.mark.parametrize("door", [http_one, http_lines, http_explain, websocket, tcp, client])
def test_the_server(server, door):
    def read(text):
        return map(server.ids.index, door(server, text))

    given = everywhere() | ({} if door is http_lines else dict.fromkeys(EMPTY, REFUSED))
    if door is client:
        del given[b'{"x": 1e400, "x": 2}']  # Python's decoder forgets the first value
    for text, holds in given.items():
        assert judged(read, text) == holds, text[:50]
