"""``rtfilter explain``: why one event does or does not match one subscription."""

from __future__ import annotations

import argparse

from rtfilter.cli import files, inputs
from rtfilter.cli.arguments import row, subscription_id
from rtfilter.cli.terminal import CommandError, show

BATCH = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Say why an event does or does not match a subscription: each constraint, the event's value, and\n"
        "by how much it misses."
    )
    parser.epilog = f"""{inputs.FILES}
example: the event in row 3, the fourth of the file, and the subscription with the id 7
  rtfilter explain alerts.jsonl ticks.csv --event 3 --id 7
"""
    inputs.add_inputs(parser)
    parser.add_argument(
        "--event",
        metavar="ROW",
        type=row,
        required=True,
        help="row of the event, from 0, as match prints it",
    )
    parser.add_argument(
        "--id",
        metavar="ID",
        type=subscription_id,
        required=True,
        help="id of the subscription, as match prints it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0 whether the event matches or not."""
    from rtfilter.errors import UnknownSubscriptionError

    target, batches = inputs.open_inputs(
        arguments.subscriptions, arguments.events, arguments.schema, batch=BATCH, only=arguments.id
    )
    try:
        predicate = target.predicate(arguments.id)
    except UnknownSubscriptionError:
        raise CommandError(
            f"{arguments.subscriptions}: there is no subscription with the id {arguments.id}"
        ) from None
    seen = 0
    for batch in batches:
        if arguments.event < seen + len(batch):
            event = batch.one(arguments.event - seen)
            with event.naming_places():
                explanation = target.explain(event.events, arguments.id)
            show(f"event {arguments.event} ({event.place(0)}) and subscription {arguments.id}: {predicate}")
            show(str(explanation))
            return 0
        seen += len(batch)
    raise CommandError(_beyond(files.place(arguments.events), arguments.event, seen))


def _beyond(path: str, row: int, count: int) -> str:
    if not count:
        return f"{path}: there is no event in row {row}; the file has no events"
    return f"{path}: there is no event in row {row}; the rows are 0 to {count - 1}"
