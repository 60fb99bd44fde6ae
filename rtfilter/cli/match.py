"""``rtfilter match``: which subscriptions match each event of a file."""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import TYPE_CHECKING

from rtfilter.cli import inputs
from rtfilter.cli.arguments import positive
from rtfilter.cli.pairs import check_pairs, open_pairs
from rtfilter.cli.terminal import progress_bar, say
from rtfilter.dtypes import AnyArray
from rtfilter.text import numbered

if TYPE_CHECKING:
    from rtfilter.events.table import EventTable
    from rtfilter.filter import EventFilter

BATCH = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Match events against subscriptions. The result is pairs of an event's row (from 0) and a\n"
        "subscription's id, ordered by both."
    )
    parser.epilog = f"""{inputs.FILES}
examples:
  rtfilter match alerts.jsonl ticks.csv > pairs.csv
  rtfilter match alerts.jsonl ticks.jsonl.gz --schema ticks.json --out pairs.parquet
  tail -n 1000 ticks.jsonl | rtfilter match saved-index -
"""
    inputs.add_inputs(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the pairs to FILE, .csv, .jsonl or .parquet, which appears when it is complete; "
        "by default they go to standard output as CSV",
    )
    parser.add_argument(
        "--batch",
        metavar="N",
        type=positive,
        default=BATCH,
        help=f"events matched together (default {BATCH}): more is faster per event, less takes less memory",
    )
    inputs.add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.out is not None:
        check_pairs(arguments.out, [arguments.subscriptions, arguments.events, arguments.schema])
    target, batches, tables = inputs.open_inputs(
        arguments.subscriptions,
        arguments.events,
        arguments.schema,
        batch=arguments.batch,
        progress=arguments.progress,
        skip=arguments.on_error == "skip",
        strict=arguments.strict,
    )
    empty = target.match_batch([])  # so that the rate does not include the time to load compiled code
    events = matches = 0
    began = perf_counter()
    text = empty.kind is not int
    with open_pairs(arguments.out, text) as write, progress_bar("events", arguments.progress) as bar:
        for batch in batches:
            pairs = _pairs(target, tables.read(batch))
            pairs[0] += events
            write(pairs)
            events += len(batch)
            matches += pairs.shape[1]
            bar.update(len(batch))
    seconds = perf_counter() - began
    rate = events / max(seconds, 1e-9)
    found, stats = f"{numbered(events, 'event')}, {numbered(matches, 'match')}", target.stats()
    say(f"{found} in {seconds:.2f} s, {rate:,.0f} events/s")
    odd = {"misspelt name": stats["misspelt"], "value": stats["ill_typed"]}
    if any(odd.values()):
        names, values = (numbered(count, what) for what, count in odd.items())
        say(f"the events had {names} and {values} of another type than their attribute")
    return 0


def _pairs(target: EventFilter, events: EventTable) -> AnyArray:
    """Return rows of the batch and ids, int64 (2, k), or objects where ids are text; ordered by both."""
    import numpy as np

    found = target.match_batch(events)
    pairs = found.pairs()
    if found.kind is int:
        return pairs[:, np.lexsort((pairs[1], pairs[0]))]
    names, codes = np.unique(pairs[1], return_inverse=True)
    written = np.array([str(name) for name in names.tolist()], object)  # UUIDs sort like their text
    order = np.lexsort((codes, pairs[0].astype(np.int64)))
    return np.stack([pairs[0][order], written[codes[order]]])
