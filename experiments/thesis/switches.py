"""The design choices of counting that the thesis discusses without numbers: sharing, keys, merging, copies.

Each is a switch of `rtfilter.matchers.papers.shared_counting`, so each can be measured alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from experiments.thesis.contestants import made, memory, repeated
from experiments.thesis.workload import METHODS, SCHEMA, predicates
from experiments.timing import all_cores, medians
from rtfilter.basics.dtypes import BoolArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Matcher
from rtfilter.matchers.registry import Factory, make_matcher, name_of
from rtfilter.predicates.predicate import Predicate
from rtfilter.replay.output import Row

METHOD = next(method for method in METHODS if method.name == "Match2_50_random")
"""The event satisfies half of the predicates, and nearly all constraints."""
COPIES = 4
"""Subscriptions of each predicate, where some are equal."""
SWITCHES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "equal ones stored once, none equal": ({"share": True}, {"share": False}),
    f"equal ones stored once, {COPIES} of each equal": ({"share": True}, {"share": False}),
    "counters by id, not by content": ({"keys": "id"}, {"keys": "content"}),
    "a list of collections, not merged": ({"merged": False}, {"merged": True}),
}
"""The compared options: the thesis's choice, and the alternative."""
COLUMNS = {
    "switch": "Counting, per event", "us": "us", "without": "us without", "ratio": "ratio",
    "bytes": "bytes", "bytes_without": "without",
}  # fmt: skip


def measured(count: int, times: int, repeats: int, seed: int) -> Iterator[Row]:
    """Yield rows of each switch on and off: microseconds per event, and bytes per subscription."""
    different = predicates(count, seed)
    event = SCHEMA.read([METHOD.event(count)])
    for switch, pair in SWITCHES.items():
        chosen: Sequence[Predicate] = different
        if "of each" in switch:
            chosen = [one for one in different[: count // COPIES] for _ in range(COPIES)]
        calls = {
            str(on): repeated(made("shared-counting", chosen, **options), event, times)
            for on, options in zip((True, False), pair, strict=True)
        }
        taken = medians(calls, repeats)
        on, off = (1e6 * taken[str(which)] / times for which in (True, False))
        bytes_on, bytes_off = (memory("shared-counting", chosen, **options) for options in pair)
        yield {
            "kind": "switch", "switch": switch, "us": on, "without": off, "ratio": on / off,
            "bytes": bytes_on, "bytes_without": bytes_off,
        }  # fmt: skip
    yield from threads(different, event, times, repeats)


THREADS = {
    "one thread, CAS": 1,
    "two threads, CAM": 2,
    "two threads, stamped": 2,
    "two threads, a copy of CAS each": 2,
}
"""The contestants on two cores, with their number of threads."""


def threads(chosen: Sequence[Predicate], event: EventTable, times: int, repeats: int) -> Iterator[Row]:
    """Yield events per second on all cores, by threads and copies."""
    alone = made("shared-counting-filters", chosen)
    matchers: dict[str, Matcher] = dict(
        zip(
            THREADS,
            (
                alone,
                made("shared-counting", chosen),
                made("shared-counting-stamped", chosen),
                made(ReplicatedMatcher, chosen, of="shared-counting-filters"),
            ),
            strict=True,
        )
    )
    with all_cores(), ThreadPoolExecutor(2) as pool:

        def call(matcher: Matcher, workers: int) -> Callable[[], None]:
            one = repeated(matcher, event, -(-times // workers))

            def all_workers() -> None:
                for done in [pool.submit(one) for _ in range(workers)]:
                    done.result()

            return all_workers

        taken = medians({name: call(matchers[name], THREADS[name]) for name in THREADS}, repeats)
    for name, workers in THREADS.items():
        matched = workers * -(-times // workers)
        yield {"kind": "threads", "who": name, "per_second": matched / taken[name]}


class ReplicatedMatcher:
    """Lets as many threads match at once as there are copies, although a copy takes one thread at a time.

    `of` is the matcher to copy, and `copies` their number, at least 1. Memory and the time of changes are
    those of all copies. The first copy answers all other calls: additions reach it first, and removals last.
    Raises `ValueError` if there are no copies.
    """

    def __init__(self, schema: Schema, *, of: Factory = "shared-counting", copies: int = 2) -> None:
        if copies < 1:
            raise ValueError(f"copies must be at least 1, not {copies}")
        self._copies = [make_matcher(of, schema) for _ in range(copies)]
        self._locks = [threading.Lock() for _ in self._copies]
        self._turn = count()
        self.takes = self._copies[0].takes._replace(threads=True)
        self.options = {"of": name_of(of), "copies": copies}

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        for copy in self._copies:
            copy.add(filters)

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        for copy in reversed(self._copies):
            known = copy.remove(ids)
        return known

    def match(self, events: EventTable) -> Hits:
        """See `Matcher`; the copies are used in rotation."""
        turn = next(self._turn) % len(self._copies)
        with self._locks[turn]:
            return self._copies[turn].match(events)

    def workload(self, events: EventTable) -> IntArray:
        """See `Matcher`."""
        with self._locks[0]:
            return self._copies[0].workload(events)

    def ids(self) -> IntArray:
        """See `Matcher`."""
        return self._copies[0].ids()

    def __len__(self) -> int:
        return len(self._copies[0])

    def __contains__(self, id: int) -> bool:
        return id in self._copies[0]

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """See `Matcher`."""
        return self._copies[0].content(ids)

    @property
    def updates(self) -> int:
        """Number of changes of the first copy."""
        return self._copies[0].updates

    def stats(self) -> dict[str, Any]:
        """Return the statistics of the first copy, with the memory of all."""
        own = [copy.stats() for copy in self._copies]
        return own[0] | {"bytes": sum(each["bytes"] for each in own), "copies": len(own)}
