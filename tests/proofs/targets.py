"""What bytes from strangers reach, each as a function of bytes: it returns what became of them.

`AssertionError`, or an error that is not the project's, where a claim is wrong.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from proofs import arrow_bodies, frames
from rtfilter import EventFilter, Schema
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.basics.session_states import TABLE, Directive
from rtfilter.definition import Definition
from rtfilter.service.access import Access
from rtfilter.service.conversation import Conversation
from rtfilter.service.doors.frames import ClientDirective, Frame, write
from rtfilter.service.log_matcher import Index
from rtfilter.service.owners import check
from rtfilter.service.parse import Parse, require_shallow, require_shallow_lines
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import FilterInfo, Wish
from rtfilter.service.roles import Identity
from rtfilter.service.service_errors import DirectiveError, NotJSONError
from rtfilter.store.database import engine
from rtfilter.store.log import Log
from rtfilter.store.user_store import Users

SCHEMA = Schema({"price": float, "symbol": str, "size": int, "open": bool, "at": datetime, "to.city": str})
NESTING = 64
MOST = 4096
"""Bytes of an input."""
KINDS = [
    "directive",
    "json",
    "request",
    "predicate",
    "event",
    "unauthenticated",
    "forbidden",
    "unknown",
    "conflict",
    "too-large",
    "limit",
    "busy",
]
"""Of errors, in docs/protocol.md; `frame` is the door's."""


class Target(NamedTuple):
    """What is fuzzed."""

    run: Callable[[bytes], str]
    valid: list[bytes]
    """Inputs to begin with."""
    words: list[bytes]
    """That are put into them."""


# -- frames ----------------------------------------------------------------------------------------------


def cut(data: bytes) -> str:
    """Frames in one and in pieces; the last byte says how long these are."""
    step = data[-1] % 32 + 1 + len(data) // 50 if data else 1
    found, errors = frames.read([data])
    assert (found, errors) == frames.read([data[at : at + step] for at in range(0, len(data), step)])
    for frame in found:
        try:
            frames.message_of(frame)
        except DirectiveError:
            return "body refused"
    return "refused" if errors else "taken"


# -- sessions --------------------------------------------------------------------------------------------


@cache
def _pipeline() -> tuple[asyncio.AbstractEventLoop, Pipeline]:
    """One for all sessions, until `end`."""
    folder = Path(tempfile.mkdtemp(prefix="rtfilter-fuzz-"))
    loop = asyncio.new_event_loop()

    async def start() -> Pipeline:
        database = engine(f"sqlite:///{folder}/log.sqlite")
        pipeline = Pipeline(Log(database), folder, Access(Users(database)))
        await pipeline.start()
        await pipeline.filters.add(Identity("root"), "default", Definition(SCHEMA), "symbol")
        return pipeline

    return loop, loop.run_until_complete(start())


def end() -> None:
    """Stop what `talk` has started."""
    if _pipeline.cache_info().currsize:
        loop, pipeline = _pipeline()
        loop.run_until_complete(pipeline.stop())
        loop.close()
        _pipeline.cache_clear()


CONNECT = b'{"directive": "CONNECT", "user": "ann"}'


def talk(data: bytes) -> str:
    """A session of a message on each line: each is answered once, as documented, and it goes on.

    Where the first line begins with a space, the client is connected already.
    """
    loop, pipeline = _pipeline()
    return loop.run_until_complete(_talk(pipeline, data.split(b"\n")[:16]))


async def _talk(pipeline: Pipeline, lines: list[bytes]) -> str:
    session = Conversation(pipeline, NESTING)
    told = []
    try:
        if lines[0][:1] == b" ":
            await session.hear(CONNECT)
            _said(session)
        for line in lines:
            before = session.state
            await session.hear(line)
            (answer,) = (one for one in _said(session) if one["directive"] in ("CONNECTED", "ACK", "ERROR"))
            told.append(answer.get("kind", answer["directive"]))
            if answer["directive"] == "ERROR":
                assert answer["kind"] in KINDS, answer
                assert session.state is before, answer
        for directive in Directive:  # it is as usable as ever
            if directive not in TABLE[session.state]:
                await session.hear(json.dumps({"directive": directive, "tag": 7}))
                (answer,) = (one for one in _said(session) if one["directive"] == "ERROR")
                assert (answer["tag"], answer["kind"]) == (7, "directive"), answer
    finally:
        session.lost()
    assert pipeline.healthy, "a stage has ended"
    return " ".join(sorted(set(told)))


def _said(session: Conversation) -> list[Any]:
    found = [session.outbox.get_nowait() for _ in range(session.outbox.qsize())]
    session.sent()
    return [json.loads(one) for one in found if one is not None]


# -- events ----------------------------------------------------------------------------------------------

PARSE = Parse(SCHEMA)


def events(data: bytes) -> str:
    """JSON lines, and one event: to be stored and to be matched, both or neither."""
    try:
        require_shallow_lines(data, NESTING)
    except NotJSONError:
        return "too deep"
    lines, table = _of(PARSE.lines, data), _of(partial(PARSE.lines, stored=False), data)
    one, table_of_one = _of(PARSE.one, data), _of(partial(PARSE.one, stored=False), data)
    for stored, matched in ((lines, table), (one, table_of_one)):
        assert isinstance(stored, str) == isinstance(matched, str), (stored, matched)
        assert stored == matched or not isinstance(stored, str), (stored, matched)
    if isinstance(one, str):
        return "refused" if isinstance(lines, str) else "lines"
    assert PARSE.objects([msgspec.json.decode(data)], lone=True), "no event when it is decoded"
    assert not isinstance(table_of_one, str)
    assert len(table_of_one.table) == 1
    return "event"


def _of(read: Callable[[bytes], Any], data: bytes) -> Any:
    """What is read, or the error as text."""
    try:
        return read(data)
    except EventError as error:
        return str(error)


# -- predicates ------------------------------------------------------------------------------------------


@cache
def _index() -> Index:
    return Index(FilterInfo("default", Definition(SCHEMA), "symbol", 0), EventFilter(SCHEMA))


EVENT = {"price": 120.5, "symbol": "ACME", "size": 3, "open": True, "to": {"city": "Rom"}}


def sql(data: bytes) -> str:
    """A condition."""
    try:
        return _checked(data.decode())
    except UnicodeDecodeError:
        return "no text"


def pattern(data: bytes) -> str:
    """A pattern, as it comes from JSON."""
    try:
        require_shallow(data, NESTING)
        said = msgspec.json.decode(data)
    except (NotJSONError, msgspec.DecodeError, UnicodeDecodeError):
        return "no JSON"
    return _checked(said) if isinstance(said, dict) else "no object"


def _checked(where: Any) -> str:
    """Whether it is refused, and then by a predicate's error; what is taken can be subscribed to."""
    wrong = check([Wish(where)], _index()).wrong
    if wrong:
        assert isinstance(wrong[0], PredicateError), wrong[0]
        assert str(wrong[0])
        return "refused"
    one = EventFilter(SCHEMA)
    id = one.subscribe(where)
    found = one.match(EVENT)
    assert one.explain(EVENT, id).matched == (id in found), "matched, but explained otherwise"
    return "matched" if id in found else "taken"


# -- streams of Arrow's ----------------------------------------------------------------------------------


def arrow(data: bytes) -> str:
    """A stream of Arrow's."""
    return arrow_bodies.read(data)


# --------------------------------------------------------------------------------------------------------

_SESSION = b"\n".join(
    json.dumps(one).encode()
    for one in (
        {"directive": "SUBSCRIBE", "where": "price > 1", "ttl": 60, "metadata": {"a": 1}, "key": "k"},
        {"directive": "PUBLISH", "events": [{"price": 2, "symbol": "A"}], "key": "e"},
        {"directive": "GET"},
        {"directive": "CREDIT", "more": 3},
        {"directive": "READY", "tag": 1},
        {"directive": "PUBLISH", "event": {"price": 3}},
        {"directive": "ACK", "upto": 1},
        {"directive": "REPLACE", "subscription": 2, "where": "price > 2"},
        {"directive": "LIST", "after": 1, "limit": 5, "filter": "default"},
        {"directive": "MATCH", "events": [{"price": 2}]},
        {"directive": "EXPLAIN", "subscription": 2, "event": {"price": 3}},
        {"directive": "STOP"},
        {"directive": "UNSUBSCRIBE", "subscription": 2},
        {"directive": "DISCONNECT"},
    )
)
_JSON = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"true",
    b"1e999",
    b"NaN",
    b"-0",
    b"9007199254740993",
]
_JSON += [b"\\ud800", b"\\u0000", b"\xff", b"\xc3\xa9", b"18446744073709551616", b"1e-400"]
_NAMES = [name.encode() for name in SCHEMA.attributes]
_FIELDS = (
    b"directive tag where filter metadata ttl digest order key event events subscription upto more user"
).split()
_SQL = (
    b"AND OR NOT IN LIKE ESCAPE BETWEEN IS NULL TRUE FALSE DATE TIMESTAMP LOWER UPPER CIDR ( ) = <> < <= >"
).split()
_MATCHERS = (
    b"numeric anything-but exists exactly prefix suffix wildcard shellstyle equals-ignore-case cidr $or"
).split()

TARGETS = {
    "frames": Target(
        cut,
        [b"".join(write(one, body) for one in ClientDirective) for body in frames.BODIES]
        + [
            b"".join(
                write(*frame)
                for frame in (Frame(ClientDirective.READY, b""), Frame(ClientDirective.ACK, b'{"upto":1}'))
            )
        ],
        [b"\x00\x00\x00\x01", b"\x00\x00\x01\x00", b'"directive"', *_JSON],
    ),
    "session": Target(
        talk,
        [CONNECT + b"\n" + _SESSION, *(b" " + line for line in _SESSION.split(b"\n"))],
        [*_JSON, *_FIELDS, *(one.encode() for one in Directive)],
    ),
    "events": Target(
        events,
        [
            b'{"price": 1.5, "symbol": "A", "size": 2, "open": true, "at": "2026-01-01T00:00:00Z"}',
            b'{"price": 1}\n\n{"to": {"city": "Rom"}}\r\n{"symbol": null}',
            b'{"at": 1767225600.25, "more": [1, {"a": []}]}',
        ],
        [*_JSON, *_NAMES],
    ),
    "sql": Target(
        sql,
        [
            b"price > 100 AND symbol = 'ACME'",
            b"NOT (size BETWEEN 1 AND 5 OR symbol LIKE 'A%_\\%b' ESCAPE '\\') OR open",
            b"symbol NOT IN ('a', 'b''c') AND at >= TIMESTAMP '2026-01-01T00:00:00Z' AND to.city IS NULL",
            b"price * 2 - (size + 1) / 3 <> -1e3 AND LOWER(symbol) = 'a' AND CIDR(symbol, '10.0.0.0/8')",
            b"\"price\" <= 1 AND DATE '2026-01-01' < at AND UPPER(symbol) LIKE '%A'",
        ],
        [*_SQL, *_NAMES, b"''", b"'", b'"', b"%", b"_", b"\\", b"1e308", b"-", b"/", b"0x1", b"--", b"/*"],
    ),
    "patterns": Target(
        pattern,
        [
            b'{"symbol": ["A", null, {"prefix": "B"}], "price": [{"numeric": [">", 1, "<=", 5]}]}',
            b'{"$or": [{"size": [1, 2]}, {"to": {"city": [{"anything-but": ["a"]}]}}], "open": [true]}',
            b'{"symbol": [{"wildcard": "a*\\\\*b"}, {"cidr": "10.0.0.0/8"}, {"exists": false}]}',
            b'{"symbol": [{"anything-but": {"suffix": ["x"]}}, {"equals-ignore-case": "a"}]}',
            b'{"at": ["2026-01-01"]}',
        ],
        [*_JSON, *_NAMES, *_MATCHERS, b'"numeric"', b'">="', b'"="', b"*"],
    ),
    "arrow": Target(arrow, arrow_bodies.streams(), arrow_bodies.WORDS),
}
