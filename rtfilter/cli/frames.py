"""Events of a file in frames, each for one message to a server."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, Queue
from threading import Thread
from typing import Any, NamedTuple

from rtfilter.cli import files
from rtfilter.cli.events import EventBatch, open_events
from rtfilter.cli.schemas import read_schema, to_line
from rtfilter.cli.terminal import say
from rtfilter.events.schema import Schema

MOST = 1000
"""Events of a frame."""


class Frame(NamedTuple):
    """Some events, and where in the file each of them is."""

    events: list[dict[str, Any]]
    places: list[str]


def open_frames(path: str, schema: str | None, live: bool) -> Iterator[Frame]:
    """Yield the events of a file.

    Parameters
    ----------
    path : str
        As of `open_events`.
    schema : str, optional
        As of `read_schema`, for files without types; by default they are inferred and told.
    live : bool
        Yield what is there instead of waiting until a frame is full. Otherwise the frames of a file are
        always the same.

    Raises
    ------
    OSError, CommandError
        It cannot be read; with the place.
    """
    file = open_events(path)
    attributes = Schema({"none": float})
    if schema is not None:
        attributes = read_schema(schema)
    elif files.check(path) != "jsonl":  # which has types
        attributes = file.infer()
        say(
            "types inferred from the events; to keep or correct them, save this for --schema:\n"
            + to_line(attributes)
        )
    if live:
        return _joined(map(_frame, file.batches(attributes, 1)))
    return map(_frame, file.batches(attributes, MOST))


def _frame(batch: EventBatch) -> Frame:
    places = [batch.place(row) for row in range(len(batch))]
    if isinstance(batch.events, list):
        return Frame(batch.events, places)
    rows = batch.events.to_pylist()
    return Frame([{name: row[name] for name in row if row[name] is not None} for row in rows], places)


def _joined(single: Iterator[Frame]) -> Iterator[Frame]:
    """Join what comes while the last frame is in use; another thread reads."""
    queue: Queue[Frame | Exception | None] = Queue(2 * MOST)

    def read() -> None:
        end = None
        try:
            for frame in single:
                queue.put(frame)
        except Exception as error:
            end = error
        queue.put(end)

    Thread(target=read, daemon=True).start()
    found: Frame | Exception | None
    while isinstance(found := queue.get(), Frame):
        events, places = found
        while len(events) < MOST:
            try:
                found = queue.get_nowait()
            except Empty:
                break
            if not isinstance(found, Frame):
                break
            events += found.events
            places += found.places
        yield Frame(events, places)
        if not isinstance(found, Frame):
            break
    if found is not None:
        raise found
