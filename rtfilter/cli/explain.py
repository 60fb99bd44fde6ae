"""``rtfilter explain``: why events do or do not match subscriptions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rtfilter.basics.text import numbered
from rtfilter.cli import inputs
from rtfilter.cli.arguments import positive, row
from rtfilter.cli.subscription_files import asked_id
from rtfilter.cli.terminal import CommandError, progress_bar, say, show
from rtfilter.reading import files

if TYPE_CHECKING:
    from rtfilter.events.table import EventTable
    from rtfilter.filter import EventFilter
    from rtfilter.reading.events import EventBatch, Tables

BATCH = 1000
LIMIT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say why an event does or does not match a subscription: each constraint, the event's value, and\n"
        "by how much it misses. Without --event, without --id, or without both: a table of the nearest\n"
        "misses among all events, all subscriptions, or all pairs of them. Near is what fails in few\n"
        "constraints; among those, what misses by little."
    )
    parser.epilog = f"""{inputs.FILES}
examples: the event in row 3, the fourth of the file, and the subscription with the id 7;
which events nearly match it; which subscriptions the event nearly matches
  rtfilter explain alerts.jsonl ticks.csv --event 3 --id 7
  rtfilter explain alerts.jsonl ticks.csv --id 7
  rtfilter explain alerts.jsonl ticks.csv --event 3 --limit 50
"""
    inputs.add_inputs(parser)
    add = parser.add_argument
    add(
        "--event",
        metavar="ROW",
        type=row,
        help="row of the event, from 0, as match prints it; by default all events",
    )
    add("--id", metavar="ID", help="id of the subscription, as match prints it; by default all subscriptions")
    add(
        "--limit",
        metavar="N",
        type=positive,
        default=LIMIT,
        help=f"pairs of an event and a subscription in the table (default {LIMIT})",
    )
    inputs.add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0, whether anything matches or not."""
    from rtfilter.basics.errors import UnknownSubscriptionError

    target, batches, tables = inputs.open_inputs(
        arguments.subscriptions,
        arguments.events,
        arguments.schema,
        batch=BATCH,
        only=arguments.id,
        progress=arguments.progress,
        skip=arguments.on_error == "skip",
        strict=arguments.strict,
    )
    if arguments.id is not None:
        first = next(iter(target), None)
        arguments.id = asked_id(arguments.id, None if first is None else type(first))
        try:
            _ = target[arguments.id]
        except UnknownSubscriptionError:
            raise CommandError(
                f"{arguments.subscriptions}: there is no subscription with the id {arguments.id}"
            ) from None
    numbers = _numbered(batches)
    if arguments.event is not None:
        numbers = _only(numbers, arguments.event, files.place(arguments.events))
    if arguments.event is None or arguments.id is None:
        _table(target, tables, numbers, arguments)
        return 0
    for number, event in numbers:
        explanation = target.explain(tables.read(event), arguments.id)
        predicate = target[arguments.id].predicate
        show(f"event {number} ({event.place(0)}) and subscription {arguments.id}: {predicate}")
        show(str(explanation))
    return 0


def _table(
    target: EventFilter, tables: Tables, batches: Iterator[tuple[int, EventBatch]], given: argparse.Namespace
) -> None:
    """Print the nearest misses."""
    from rtfilter.predicates.explanations.misses import MAX_PAIRS, MissSearch
    from rtfilter.predicates.model.list_tests import events_of

    ids = target.ids().tolist() if given.id is None else [given.id]
    if len(ids) > MAX_PAIRS:
        raise CommandError(f"{len(ids):,} subscriptions are more than {MAX_PAIRS:,}; name one with --id")
    subscriptions = [(id, target[id].predicate) for id in ids]
    search = MissSearch(given.limit)
    left = MAX_PAIRS // max(len(ids), 1)  # events, or choices of list elements
    with progress_bar("pairs", given.progress) as bar:
        for first, batch in batches:
            table = tables.read(batch)
            count = _affordable(table, left)
            some = table.rows(range(count))
            rows, left = events_of(some), left - len(some.searched)
            for id, predicate in subscriptions:
                search.look(id, predicate, rows, first)
                bar.update(count)
            if count < len(table):
                seen = numbered(first + count, "event")
                say(f"only the first {seen} were explained: at most {MAX_PAIRS:,} pairs are")
                break
    show(str(search.misses()))


def _affordable(table: EventTable, left: int) -> int:
    """Return how many events of a table can be explained within `left` choices of list elements."""
    if table.choices is None:
        return min(len(table), left)
    return int(table.choices.offsets[1:].searchsorted(left, side="right"))


def _numbered(batches: Iterator[EventBatch]) -> Iterator[tuple[int, EventBatch]]:
    """Yield the batches, each with the row of its first event."""
    first = 0
    for batch in batches:
        yield first, batch
        first += len(batch)


def _only(batches: Iterator[tuple[int, EventBatch]], row: int, path: str) -> Iterator[tuple[int, EventBatch]]:
    """Yield the event in a row, as a batch of one."""
    count = 0
    for first, batch in batches:
        count = first + len(batch)
        if row < count:
            yield row, batch.one(row - first)
            return
    there = f"the rows are 0 to {count - 1}" if count else "the file has no events"
    raise CommandError(f"{path}: there is no event in row {row}; {there}")
