"""The arguments of commands that talk to a server: its address, and the user."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from rtfilter.basics.errors import FileError
from rtfilter.cli.terminal import CommandError, say
from rtfilter.reading.events import EventBatch, Tables, open_events

if TYPE_CHECKING:
    from rtfilter.client import PlainClient
    from rtfilter.client.link import Address
    from rtfilter.events.schema import Schema

T = TypeVar("T")
URL = "RTFILTER_URL"
TOKEN = "RTFILTER_TOKEN"
PASSWORD = "RTFILTER_PASSWORD"
WHO = f"""\
Who you are: --token-file, or the environment variable {TOKEN}; or --user, with {PASSWORD}
where the server has users. Secrets are no arguments, because others on this machine can see these.
"""
"""Part of the descriptions of these commands."""


def add_server(parser: argparse.ArgumentParser) -> None:
    """Declare --url, --user and --token-file."""
    parser.add_argument(
        "--url",
        default=os.environ.get(URL, "ws://127.0.0.1:8080"),
        help=f"of the server, with TLS wss://host:port; of a server and its standby both, with a comma "
        f"(default: {URL}, or ws://127.0.0.1:8080)",
    )
    parser.add_argument("--user", metavar="NAME", help="your name")
    parser.add_argument("--token-file", metavar="FILE", help="holds your token")


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Declare --filter."""
    parser.add_argument(
        "--filter", default="default", metavar="NAME", help="on the server (default: default)"
    )


@contextmanager
def connected(
    arguments: argparse.Namespace, acknowledge: Literal["automatic", "manual"] = "automatic"
) -> Iterator[PlainClient]:
    """Connect as the arguments say, and disconnect at the end.

    Raises
    ------
    CommandError
        The server cannot be reached, or refuses something.
    """
    from rtfilter.client import ClientError, RefusedError, connect_plain

    token = _token(arguments)
    hints = logging.getLogger("rtfilter.client.client")
    hints.disabled = True  # the commands themselves report odd events, with their place in the file
    try:
        with connect_plain(
            arguments.url,
            user=arguments.user if token is None else None,
            password=os.environ.get(PASSWORD) if token is None else None,
            token=token,
            acknowledge=acknowledge,
        ) as client:
            yield client
    except RefusedError as error:
        raise CommandError(_explained(error.kind, str(error))) from None
    except ClientError as error:
        raise CommandError(str(error)) from None
    finally:
        hints.disabled = False


def served_schema(arguments: argparse.Namespace) -> Schema:
    """Return the schema of the filter that the arguments name, from the server or its standby.

    Raises
    ------
    CommandError
        No server can be reached, or one refuses the request.
    """
    from urllib.parse import quote

    from rtfilter.events.schema import Schema

    path = f"/filters/{quote(arguments.filter, safe='')}"
    try:
        return asked(arguments, path, lambda found: Schema.from_json(found["schema"]))
    except AwayError as error:
        raise AwayError(f"the schema cannot be read from {error}; give --schema") from None


class AwayError(CommandError):
    """A server does not answer, or not now, or it is no server of ours."""


def asked(arguments: argparse.Namespace, path: str, read: Callable[[Any], T], url: str | None = None) -> T:
    """Return what `read` makes of the JSON at a path of a server or its standby, by default at --url.

    Raises
    ------
    AwayError
        None answers; the message begins with the URL.
    CommandError
        One refuses the request.
    """
    from rtfilter.client import ClientError
    from rtfilter.client.link import addresses_of

    token = _token(arguments)
    user, password = (arguments.user, os.environ.get(PASSWORD)) if token is None else (None, None)
    away = AwayError()
    try:
        addresses = addresses_of(url or arguments.url, user, password, token)
    except ClientError as error:
        raise CommandError(str(error)) from None
    for address in addresses:
        try:
            return _asked_at(address, path, read)
        except AwayError as error:
            away = error
    raise away


def _asked_at(address: Address, path: str, read: Callable[[Any], T]) -> T:
    import json
    from urllib.error import HTTPError
    from urllib.request import urlopen

    request = address.request(path)
    url = request.full_url
    try:
        with urlopen(request, timeout=30, context=address.ssl) as answer:
            return read(json.load(answer))
    except HTTPError as error:
        with error:
            detail = _detail(error.read())
        if error.code == 503:
            raise AwayError(f"{url}: {detail or error}") from None
        kind = "unauthenticated" if error.code == 401 else ""
        raise CommandError(_explained(kind, detail or f"{url} answers {error.code}")) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise AwayError(f"{url}: {error}") from None


def _detail(body: bytes) -> str | None:
    """Return the detail of a problem document; None if there is none."""
    import json

    try:
        detail = json.loads(body)["detail"]
    except (ValueError, LookupError, TypeError):
        return None
    return detail if isinstance(detail, str) else None


def _token(arguments: argparse.Namespace) -> str | None:
    if arguments.token_file is not None:
        if arguments.user is not None:
            raise CommandError("give either --user or --token-file: a token belongs to a user")
        found = Path(arguments.token_file).read_text()
        if not found.strip():
            raise CommandError(f"{arguments.token_file} holds no token")
        return found.strip()
    if arguments.user is not None:
        return None
    if TOKEN in os.environ:
        return os.environ[TOKEN]
    raise CommandError(f"say who you are: --user NAME, --token-file FILE, or the variable {TOKEN}")


def _explained(kind: str, message: str) -> str:
    if kind == "unauthenticated":
        return f"{message}; see --user, --token-file, {TOKEN} and {PASSWORD}"
    return message


MOST = 1000
"""Most events of a frame."""
MOST_BYTES = 2**19
"""Most bytes of its events as JSON, half of the default limit of a server's messages."""


class FileEvents(NamedTuple):
    """Some events, and the place of each in the file."""

    events: list[dict[str, Any]]
    places: list[str]


@contextmanager
def naming_places(frame: FileEvents, then: str = "") -> Iterator[None]:
    """Replace the error about an event by a `CommandError` with its place in the file, and with `then`."""
    from rtfilter.client import RefusedError
    from rtfilter.client.client_errors import UnwritableError

    try:
        yield
    except (RefusedError, UnwritableError) as error:
        if error.row is None or not 0 <= error.row < len(frame.places):
            raise
        reason = str(error).removeprefix(f"event {error.row}: ")  # the row counts from 0 within the frame
        raise CommandError(f"{frame.places[error.row]}: {reason}{then}") from None


def open_frames(path: str, schema: Schema | None, live: bool) -> Iterator[FileEvents]:
    """Yield all events of a file in frames.

    Parameters
    ----------
    path : str
        As for `open_events`.
    schema : Schema, optional
        Decides the types of CSV cells. For each attribute, the first misspelt name and the first value of
        another type are reported; if the schema is strict, they are errors. By default types are inferred
        and reported.
    live : bool
        Yield the events that are there instead of waiting until a frame is full. Otherwise the frames of a
        file are always the same.

    Raises
    ------
    OSError, CommandError
        The file cannot be read; the message has the place.
    """
    batches = open_events(path, say).whole_batches(schema, 1 if live else MOST)
    if schema is not None:
        batches = _looked_at(batches, schema)
    frames = map(_frame, batches)
    return chain.from_iterable(map(_cut, _joined(frames) if live else frames))


def _looked_at(batches: Iterator[EventBatch], schema: Schema) -> Iterator[EventBatch]:
    """Yield the batches, and report odd events in them."""
    reader = Tables(schema, say)
    for batch in batches:
        try:
            reader.read(batch)
        except FileError:
            if schema.strict:
                raise  # otherwise the server would refuse it
        yield batch


def _frame(batch: EventBatch) -> FileEvents:
    return FileEvents(batch.objects(), [batch.place(row) for row in range(len(batch))])


def _cut(frame: FileEvents) -> Iterator[FileEvents]:
    """Split a frame into parts that fit a message of the server; a larger single event is a part."""
    first = size = 0
    for row, event in enumerate(frame.events):
        more = _size(event)
        if row > first and size + more > MOST_BYTES:
            yield FileEvents(frame.events[first:row], frame.places[first:row])
            first, size = row, 0
        size += more
    yield FileEvents(frame.events[first:], frame.places[first:])


def _size(event: dict[str, Any]) -> int:
    from rtfilter.client.client_errors import UnwritableError
    from rtfilter.client.protocol import encoded

    try:
        return len(bytes(encoded(event))) + 1
    except UnwritableError:  # the client reports it
        return 0


def _joined(single: Iterator[FileEvents]) -> Iterator[FileEvents]:
    """Join the frames that arrive while the consumer uses the last one; another thread reads."""
    queue: Queue[FileEvents | Exception | None] = Queue(2 * MOST)

    def read() -> None:
        end = None
        try:
            for frame in single:
                queue.put(frame)
        except Exception as error:
            end = error
        queue.put(end)

    Thread(target=read, daemon=True).start()
    found: FileEvents | Exception | None
    while isinstance(found := queue.get(), FileEvents):
        events, places = found
        while len(events) < MOST:
            try:
                found = queue.get_nowait()
            except Empty:
                break
            if not isinstance(found, FileEvents):
                break
            events += found.events
            places += found.places
        yield FileEvents(events, places)
        if not isinstance(found, FileEvents):
            break
    if found is not None:
        raise found
