"""Events of a file in frames, each for one message to a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from rtfilter.cli.terminal import CommandError, say
from rtfilter.errors import FileError
from rtfilter.reading.events import EventBatch, open_events
from rtfilter.reading.tables import Tables

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema

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
