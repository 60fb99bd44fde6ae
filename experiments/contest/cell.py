"""A cell of the contest: time per event, memory, time to build and to change, operations, right answers.

`run` starts a process, which runs this module: it reads a case as JSON from standard input and writes its
row to standard output. So the memory of one matcher does not mix with another's, and a crash ends no contest.

Matchers are asked as a filter asks them: with events that are encoded already, and with the exact check of
hits that are supersets. The times to read, parse and compile are the same for all, and left out.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np

from experiments.peers.cost import available_memory, memory, seconds
from experiments.timing import WARM, in_process, one_core, rounds, timed
from rtfilter.basics.dtypes import BoolArray, IntArray
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.kernels import counts
from rtfilter.matchers import MATCHERS
from rtfilter.matchers.port import Matcher, Takes, refuse_missing
from rtfilter.matchers.registry import make_matcher
from rtfilter.matching.verify import verify
from rtfilter.predicates.bounds.ends import EndStore
from rtfilter.predicates.predicate import Predicate
from rtfilter.replay.output import Row
from rtfilter.replay.workloads import WORKLOADS, Bounds, Workload, workload
from rtfilter.subscriptions import drafts
from rtfilter.subscriptions.checks import Checks
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.stored import StoredSubscriptions
from rtfilter.subscriptions.verification import Verified

INDEX = ("matcher", "workload", "subscriptions")
"""The fields of `Case` that identify its cell."""
REFERENCES = ("masks", "counting")
"""The reference matchers for answers. The second replaces the first where the first is measured itself."""
PYTHON_MOST = 100_000
"""Most subscriptions of a matcher that works on predicates, which is Python."""
PYTHON_SECONDS = 30
"""Longest time to build such a matcher."""
EVENTS = 1000
"""Different events."""
CHECKED = 20
"""Events whose answers are compared, before and after changes."""
COUNTED = 100
"""Events whose operations are counted."""
CHANGES, FEWEST = 100, 10
"""Subscriptions that come and go one by one, at most and at least."""
SAMPLE, LEAST = 1 / 50, 1000
"""Costs are estimated from this share of the subscriptions, but at least from this number of them."""
ROOM = 0.8
"""Share of the free memory that a matcher may be expected to take."""


def run(case: Case) -> Row:
    """Return the row of a case; where it has no numbers, ``refused``, ``gave_up`` or ``failed`` says why."""
    limit = 300 + 4 * case.build_seconds + 6 * case.ask_seconds  # estimates may be wrong, but not by much
    row, why, told = in_process("experiments.contest.cell", case, limit)
    if why:
        return case.row() | ({"failed": told} if why == "failed" else {"gave_up": f"it {told}"})
    found: Row = row
    return found


class GaveUpError(Exception):
    """A matcher would take too long, or too much memory."""


def measure(case: Case) -> Row:
    """Return the row of a case, measured in this process."""
    try:
        return case.row() | _measured(case)
    except (PredicateError, EventError) as error:
        return case.row() | {"refused": error.reason or str(error)}
    except GaveUpError as error:
        return case.row() | {"gave_up": str(error)}
    except AssertionError as error:
        return case.row() | {"failed": str(error)}


def _measured(case: Case) -> Row:
    source = workload(case.workload, case.seed)
    make = partial(make_matcher, case.matcher, source.schema)
    try:
        takes = make().takes
    except ValueError as error:
        raise PredicateError(str(error), reason=str(error)) from None
    table = source.schema.read(source.events(0, EVENTS)).searched
    few = read_draft(source, case.matcher, takes, 0, min(case.subscriptions, LEAST))
    if not takes.missing:
        refuse_missing(case.matcher, table, source.schema)
    if not takes.boxes and case.subscriptions > PYTHON_MOST:
        raise GaveUpError(f"it is Python, which is asked for up to {PYTHON_MOST:,}")
    _load(make, few, source.schema, table)
    every = read_draft(source, case.matcher, takes, 0, case.subscriptions)
    _refuse_large(make, every, case if takes.boxes else case._replace(build_seconds=PYTHON_SECONDS))
    before = memory()
    with _no_longer_than(None if takes.boxes else PYTHON_SECONDS):
        made, built = timed(lambda: _with(make(), every))
    after = memory()
    ask = partial(ask_matcher, made, Known(every, source.schema))
    first = seconds(lambda: ask([table.rows(range(1))]))
    if first > case.ask_seconds:
        raise GaveUpError(f"an event takes {first:,.0f} s")
    budget = case.ask_seconds / len(case.batches) / case.repeats
    us: dict[str, float] = {}
    asked: dict[str, int] = {}
    times: dict[str, list[float]] = {}
    for batch in case.batches:
        tables = _tables(ask, table, batch, budget)
        name, count = str(batch), sum(map(len, tables))
        taken_each = rounds({"": partial(ask, tables)}, case.repeats, WARM)[""]
        asked[name], times[name] = count, [1e6 * time / count for time in taken_each]
        us[name] = median(times[name])
    checked = table.rows(range(max(1, min(CHECKED, max(asked.values())))))
    answers = ask([checked])
    counted = table.rows(range(max(1, min(COUNTED, max(asked.values())))))
    visits = made.match(counted).visits
    changes = _changes(made, read_draft(source, case.matcher, takes, case.subscriptions, CHANGES), case)
    if not _same(ask([checked]), answers):
        raise AssertionError("other answers after as many subscriptions went as came")
    _compare(case, source, takes, every, checked, answers)
    return {
        "build_us": 1e6 * built / case.subscriptions,
        "bytes": None if before is None or after is None else (after - before) / case.subscriptions,
        "own_bytes": made.stats()["bytes"] / case.subscriptions,
        "us": us,
        "asked": asked,
        "rounds": times,
        "matches": float(np.mean(np.diff(answers[0][0]))),
        "visits": float(visits.mean()),
        "unit": made.stats()["unit"],
        **changes,
    }


class Known:
    """The predicates by id for verification; ids are rows."""

    def __init__(self, draft: Draft, schema: Schema) -> None:
        self.ends, self.checks = EndStore(draft.filters.ends), Checks(schema)
        self._filters = draft.filters

    listed: frozenset[int] = frozenset()
    verified = Verified()

    def now(self, moment: float) -> float:
        """Return the moment unchanged: no predicate uses it."""
        return moment

    def visible(self, ids: IntArray, moment: float) -> BoolArray | None:
        """Return None: all subscriptions are visible."""
        return None

    def get(self, id: int) -> Predicate | None:
        """Return the predicate of a row."""
        return self._filters.predicates()[id]

    read = get


Answer = tuple[IntArray, IntArray]
"""Offsets and ids."""


def ask_matcher(made: Matcher, known: Known, tables: Sequence[EventTable]) -> list[Answer]:
    """Return the answers to each batch."""
    return [verify(made.match(table), table, cast(StoredSubscriptions, known)) for table in tables]


def read_draft(source: Workload, name: str, takes: Takes, start: int, count: int) -> Draft:
    """Return some subscriptions, as a filter with a matcher reads them; ids are 0..count - 1."""
    chosen = source.subscriptions(start, count)
    if isinstance(chosen, Bounds):
        return drafts.of_bounds(*chosen, source.schema, takes, name)
    return drafts.of_sources(chosen, source.schema, takes, name)


def _with(made: Matcher, draft: Draft) -> Matcher:
    made.add(draft.filters)
    return made


def _load(make: Callable[[], Matcher], few: Draft, schema: Schema, table: EventTable) -> None:
    """Use a small one in all ways: compiled code is loaded, which is not to count."""
    last = len(few.filters) - 1
    made = make()
    made.add(few.filters.piece(0, last))
    ask_matcher(made, Known(few, schema), [table.rows(range(2)), table.rows(range(1))])
    for _ in range(2):
        made.add(few.filters.piece(last, last + 1))
        made.remove(few.filters.ids[last:])
    made.stats()


def _refuse_large(make: Callable[[], Matcher], every: Draft, case: Case) -> None:
    """Give up if building would take too long, or more memory than there is, by a sample."""
    sample = max(LEAST, int(case.subscriptions * SAMPLE))
    times = case.subscriptions / sample
    if times <= 1:
        return
    part = every.filters.piece(0, sample)
    before, begun = memory(), perf_counter()
    made = make()
    made.add(part)
    build = (perf_counter() - begun) * times
    after, room = memory(), available_memory()
    if build > case.build_seconds:
        raise GaveUpError(f"building would take {build:,.0f} s")
    if before is not None and after is not None and room is not None:
        need = (after - before) * times
        if need > ROOM * room:
            raise GaveUpError(f"it would need {need / 2**30:,.1f} GiB of {room / 2**30:,.1f}")


@contextmanager
def _no_longer_than(most: float | None) -> Iterator[None]:
    """Give up after some seconds, which only Python code can: compiled code is not interrupted."""

    def stop(*_: object) -> None:
        raise GaveUpError(f"building takes more than {most:,.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, most or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tables(
    ask: Callable[[Sequence[EventTable]], object], table: EventTable, batch: int, budget: float
) -> list[EventTable]:
    """Return the batches that fit into a time, or a smaller one if not even one fits."""
    count = 1
    while count < len(table):
        tables = _cut(table, count, batch)
        each = seconds(partial(ask, tables)) / count
        affordable = min(len(table), int(budget / max(each, 1e-9)))
        if affordable <= 2 * count or each * len(table) > budget / 2:
            count = max(1, affordable)
            break
        count = min(len(table), 10 * count)
    return _cut(table, count - count % batch if count > batch else count, batch)


def _cut(table: EventTable, count: int, batch: int) -> list[EventTable]:
    return [table.rows(range(at, min(at + batch, count))) for at in range(0, count, batch)]


def _changes(made: Matcher, fresh: Draft, case: Case) -> Row:
    """Subscribe and unsubscribe one by one, as many as there is time for: microseconds each."""
    budget = case.ask_seconds / 5
    added: list[float] = []
    pieces = [
        fresh.filters.piece(row, row + 1).named(np.array([case.subscriptions + row]))
        for row in range(len(fresh.filters))
    ]
    for piece in pieces:
        loads = counts.loads
        added.append(seconds(partial(made.add, piece)))
        if counts.loads > loads:  # this kind of change was the first: again, with the code at hand
            made.remove(piece.ids)
            added[-1] = seconds(partial(made.add, piece))
        if sum(added) > budget and len(added) >= FEWEST:
            break
    gone = [seconds(partial(made.remove, piece.ids)) for piece in pieces[: len(added)]]
    return {
        "changes": len(added),
        "subscribe_us": 1e6 * median(added),
        "subscribe_most_us": 1e6 * max(added),
        "unsubscribe_us": 1e6 * median(gone),
        "unsubscribe_most_us": 1e6 * max(gone),
    }


def _same(some: Sequence[Answer], others: Sequence[Answer]) -> bool:
    return all(
        np.array_equal(offsets, wanted)
        and all(map(np.array_equal, _sorted(offsets, ids), _sorted(wanted, names)))
        for (offsets, ids), (wanted, names) in zip(some, others, strict=True)
    )


def _sorted(offsets: IntArray, ids: IntArray) -> list[IntArray]:
    return [np.sort(own) for own in np.split(ids, offsets[1:-1])]


def _compare(
    case: Case,
    source: Workload,
    takes: Takes,
    every: Draft,
    checked: EventTable,
    answers: Sequence[Answer],
) -> None:
    """Raise `AssertionError` where the reference answers otherwise."""
    name = next(name for name in REFERENCES if name != case.matcher)
    reference = make_matcher(name, source.schema)
    if not takes.boxes:  # a draft for a matcher of predicates has no boxes
        every = read_draft(source, name, reference.takes, 0, case.subscriptions)
    wanted = ask_matcher(_with(reference, every), Known(every, source.schema), [checked])
    if not _same(answers, wanted):
        counts = [int(offsets[-1]) for offsets, _ in (answers[0], wanted[0])]
        raise AssertionError(f"wrong answers: {counts[0]:,} matches, but {counts[1]:,} of {name}")


class Case(NamedTuple):
    """The cell that a process measures."""

    matcher: str
    workload: str
    subscriptions: int
    batches: Sequence[int]
    seed: int
    repeats: int
    build_seconds: float
    """Longest time to build, and, of another, to build what answers are compared with."""
    ask_seconds: float
    """Longest time for one event, and about the time for all rounds of all batch sizes."""

    @property
    def key(self) -> tuple[str, str, int]:
        """The values of `INDEX`."""
        return self.matcher, self.workload, self.subscriptions

    def row(self) -> Row:
        """Return the first cells of its row."""
        return dict(zip(INDEX, self.key, strict=True))


class Plan(NamedTuple):
    """The settings of a contest's measurements."""

    workloads: tuple[str, ...]
    subscriptions: tuple[int, ...]
    batches: tuple[int, ...]
    """Events a call."""
    repeats: int
    """Rounds; their median counts."""
    build_seconds: float
    ask_seconds: float

    def cases(self, matchers: Sequence[str], seed: int) -> list[Case]:
        """Return all cells, small ones first, so that a slow matcher gives up early."""
        return [
            Case(matcher, workload, size, self.batches, seed, *self[3:])
            for size in self.subscriptions
            for workload in self.workloads
            for matcher in matchers
        ]

    def settings(self, seed: int) -> dict[str, Any]:
        """Return the settings that must be equal when a contest continues. The set of cells may differ."""
        left = ("workloads", "subscriptions")
        return {key: value for key, value in self._asdict().items() if key not in left} | {"seed": seed}


ENTRANTS: Sequence[str] = tuple(MATCHERS)
"""The matchers of the contest."""
FULL = Plan(
    workloads=tuple(WORKLOADS),
    subscriptions=(1000, 10_000, 100_000, 1_000_000),
    batches=(1, 1000),
    repeats=5,
    build_seconds=120,
    ask_seconds=10,
)
QUICK = FULL._replace(
    workloads=("narrow", "strings"),
    subscriptions=(1000,),
    repeats=3,
    build_seconds=2,
    ask_seconds=0.2,
)


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    with one_core():
        print(json.dumps(measure(Case._make(given))))
