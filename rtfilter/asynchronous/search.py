"""The search of a batch of events that coroutines wait for; each event may have its own error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress

from rtfilter.asynchronous.waiting import PendingMatches
from rtfilter.dtypes import AnyArray
from rtfilter.errors import EventError
from rtfilter.events.reading import TEXT
from rtfilter.events.table import EventTable
from rtfilter.filter import EventFilter

Tell = Callable[[PendingMatches, AnyArray | Exception], None]
"""A function that takes the matches of an event, or its error; only the first call for an event counts."""


def search_whole(filter: EventFilter, batch: Sequence[PendingMatches], tell: Tell) -> None:
    """Match a batch as a whole, with the least work."""
    try:
        events, answers = _read(filter, batch, tell)
        found = filter.match_batch(events, arrival=batch[0].arrival)
        for answer, ids in zip(answers, found, strict=True):
            tell(answer, ids)
    except EventError:  # the matcher needs an attribute that some event lacks
        _match_each(filter, batch, tell)


def search_stream(
    filter: EventFilter, batch: Sequence[PendingMatches], tell: Tell, unwanted: Callable[[], bool]
) -> None:
    """Match a batch as a stream, and report each event once it is matched; stop once `unwanted` is True."""
    try:
        events, answers = _read(filter, batch, tell)
        with closing(filter.stream(events, arrival=batch[0].arrival)) as stream:
            for row, ids, _ in stream:
                tell(answers[row], ids)
                if unwanted():
                    return
    except EventError:
        _match_each(filter, batch, tell)


def _read(
    filter: EventFilter, batch: Sequence[PendingMatches], tell: Tell
) -> tuple[EventTable, Sequence[PendingMatches]]:
    """Return a batch as a table, with its answers; match events separately that the table cannot have."""
    read = filter.schema.read
    events = [answer.event for answer in batch]
    with suppress(Exception):  # an event may be any object
        if all(isinstance(event, TEXT) for event in events):
            return filter._road.reader.texts(events), batch
        if all(issubclass(kind, Mapping) for kind in set(map(type, events))):
            return read(events if len(events) > 1 else events[0]), batch
    good = [answer for answer in batch if _is_good(filter, answer.event)]
    chosen = set(good)
    _match_each(filter, [answer for answer in batch if answer not in chosen], tell)
    return read([answer.event for answer in good]), good


def _is_good(filter: EventFilter, event: object) -> bool:
    with suppress(Exception):
        return isinstance(event, Mapping) and len(filter.schema.read(event)) == 1
    return False


def _match_each(filter: EventFilter, batch: Sequence[PendingMatches], tell: Tell) -> None:
    """Match each event separately, so that each has its own error and counts as refused alone."""
    for answer in batch:
        try:
            tell(answer, filter.match(answer.event))
        except Exception as error:
            tell(answer, error)
