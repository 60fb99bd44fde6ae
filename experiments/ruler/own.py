"""rtfilter as a program that answers as those of `peers` do: ``python -m experiments.ruler.own``."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

from experiments.ruler.worlds import attributes
from rtfilter import EventFilter, Schema
from rtfilter.index.ready import load

BATCH = 1000
ADDED = 1000
"""Patterns that are added with one call."""


def main() -> None:
    """Answer the commands from standard input, until it ends.

    The search code is loaded first: it takes some 130 MB whatever the number of rules, and the code of
    event-ruler and quamina is not counted either, as it is not on their heaps.
    """
    load()
    filter, events = EventFilter(Schema(attributes("exact"))), list[bytes]()
    for line in sys.stdin:
        command = json.loads(line)
        if "rules" in command:
            filter, answer = _loaded(command["rules"], command["limit"], command["kind"])
        elif "events" in command:
            with open(command["events"], "rb") as file:
                events = file.read().splitlines()
            answer = {"events": len(events)}
        else:
            some = events[command["first"] : command["last"]]
            answer = _matched(WAYS[command["way"]], filter, some)
        print(json.dumps(answer), flush=True)


def _loaded(name: str, limit: float, kind: str) -> tuple[EventFilter, dict[str, Any]]:
    before = _memory()
    with open(name) as file:
        patterns = [json.loads(line) for line in file]
    begun = process_time()
    filter = EventFilter(Schema(attributes(kind)), max_unbounded=None)
    added = 0
    while added < len(patterns) and process_time() - begun < limit:
        filter.subscribe_many(patterns[added : added + ADDED])
        added = min(added + ADDED, len(patterns))
    seconds = process_time() - begun
    del patterns
    return filter, {"seconds": seconds, "rules": added, "bytes": _memory() - before}


def _memory() -> int:
    """Return bytes that the process holds, without what it has freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def one_by_one(filter: EventFilter, events: Sequence[bytes]) -> list[int]:
    """Ask for one event a call."""
    found: list[int] = []
    for event in events:
        found.extend(filter.match(event).tolist())
    return found


def in_batches(filter: EventFilter, events: Sequence[bytes]) -> list[int]:
    """Ask for 1000 events a call."""
    found: list[int] = []
    for at in range(0, len(events), BATCH):
        found.extend(filter.match_batch(events[at : at + BATCH]).ids.tolist())
    return found


WAYS: dict[str, Callable[[EventFilter, Sequence[bytes]], list[int]]] = {
    "one a call": one_by_one,
    "1000 a call": in_batches,
}


def _matched(
    way: Callable[[EventFilter, Sequence[bytes]], list[int]], filter: EventFilter, events: Sequence[bytes]
) -> dict[str, Any]:
    begun = process_time()
    found = way(filter, events)
    return {"seconds": process_time() - begun, "counts": Counter(found)}


if __name__ == "__main__":
    main()
