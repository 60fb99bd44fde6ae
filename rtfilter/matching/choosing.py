"""The choice of the matcher while a filter is used.

This module does the work that a `MatcherChooser` asks for. Some batches are timed, in at most two thousandths
of the time, and their points are kept. If the chooser wants a trial, a thread does it while batches and
changes go on: it builds a candidate from a sample, or from a copy of all subscriptions, and matches the kept
points with both matchers. To move to the candidate, the filter adopts the copy.

The cost of a batch that is matched as a whole is its time. The cost of a streamed batch is the mean response
of its events, by the best of some plans.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from time import get_clock_info, perf_counter, thread_time
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.adaptive import WHOLE, MatcherChooser, Plan
from rtfilter.adaptive.matchers import PASSES, Content, Move, Pair, Trial, Try
from rtfilter.adaptive.plans import plans_of
from rtfilter.adaptive.sizes import powers_of_two
from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.basics.options import require
from rtfilter.events.fields import Field
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.kernels import counts
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Matcher, leveled
from rtfilter.matchers.registry import Factory, make_matcher
from rtfilter.matching.copies import Copy
from rtfilter.matching.gate import Gate
from rtfilter.matching.road import Road
from rtfilter.matching.updates import Updates
from rtfilter.scheduler import Order, schedule
from rtfilter.subscriptions.ids import NO_IDS

FIRST, PERIOD = 0.0005, 0.1
"""Seconds of matching, about, from one timed batch to the next: at first, and later.

Timing costs up to 0.2 ms.
"""
EVENTS, BATCHES, FEW = 1024, 4, 16
"""Kept: events of a batch, batches of a class, and batches of a class with fewer events than this."""
BLOCK, AT_ONCE = 64, 2048
"""Subscriptions of a sample that lie together, and subscriptions that one step reads."""
LOOKED_AT = 1024
"""Subscriptions whose kind is examined."""
MOST_PASSES, SPENT = 25, 0.02
"""Most passes over the batches, and the seconds after which no further pass begins."""
SLOW = 8.0
"""A candidate whose first pass takes this many times as long is matched only once."""
PART = 0.05
"""Seconds of batches that are timed together, about."""
RUNS, WARM = 3, 0.05
"""Runs for one time: the least run counts, without the first. From `WARM` seconds on, one run is enough."""
GROUPS: Final = (16, 64, 256)
"""Group sizes of the plans that are tried, in events."""

# The time of the thread, if the clock is fine enough: other threads use the core meanwhile.
clock = thread_time if get_clock_info("thread_time").resolution < 1e-5 else perf_counter

AUTO: Final = "auto"
"""The name for a `MatcherChooser` with its defaults."""


def resolved(matcher: Factory | MatcherChooser) -> tuple[Factory, MatcherChooser | None]:
    """Return the matcher to begin with, and the chooser, if there is one.

    Raises `ValueError` for a matcher that cannot be a candidate.
    """
    if matcher == AUTO:
        matcher = MatcherChooser()
    if isinstance(matcher, Mapping) and matcher.get("name") == AUTO:
        options = {name: value for name, value in matcher.items() if name != "name"}
        require(f"the matcher {AUTO!r}", MatcherChooser, options)
        matcher = MatcherChooser(**options)
    if not isinstance(matcher, MatcherChooser):
        return matcher, None
    for name in matcher.candidates:
        takes = make_matcher(name, _ANY).takes
        if not (takes.boxes and takes.everything and takes.missing and takes.threads):
            raise ValueError(
                f"the matcher {name!r} cannot be a candidate: a candidate takes all subscriptions, works on "
                "boxes and allows several threads; choose from rtree, split, hem, masks and counting"
            )
    return matcher.matcher, matcher


class Choosing:
    """Chooses the matcher of a filter, as `chooser` asks for it."""

    def __init__(self, road: Road, updates: Updates, chooser: MatcherChooser) -> None:
        subscriptions = road.subscriptions
        self.chooser, self._road, self._updates = chooser, road, updates
        self._gate, self._held = road.gate, subscriptions
        self._turns = Gate()
        self._random = random.Random(0)
        self._told, self._period = subscriptions.updates, FIRST
        self._rest(0)
        self._kept: dict[tuple[int, bool], deque[EventTable]] = {}  # by class of sizes, and whether streamed
        self._thread: threading.Thread | None = None
        self._warm: set[str] = set()
        if subscriptions.name != chooser.matcher:
            chooser.begin(subscriptions.name)

    def observe(self, searched: EventTable, seconds: float, streamed: bool = False) -> None:
        """Take a timed batch of at least one event with its seconds, and begin a trial if one is due.

        Do not call it while the thread holds the index.
        """
        copy = _copied(searched)  # before: it may run code of the caller
        try:
            with self._turns.writing():
                batches = self._skipped + 1
                self._rest(self._pause(seconds))
                count, self._told = self._held.updates - self._told, self._held.updates
                if count > 0:
                    self.chooser.update(count)
                label = powers_of_two(len(searched))
                most = FEW if label < FEW else BATCHES
                self._kept.setdefault((label, streamed), deque(maxlen=most)).append(copy)
                if not self.chooser.observe(len(searched), seconds, batches, streamed) or self.busy:
                    return
                # A daemon thread: the program ends without waiting for a trial.
                self._thread = threading.Thread(target=self.run, name="rtfilter matcher", daemon=True)
                self._thread.start()
        except RuntimeError:  # from within a signal handler, or no more threads
            self._rest(self._skipped)

    @property
    def busy(self) -> bool:
        """True while a thread tries or moves to a matcher."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the thread that tries or moves to a matcher, at most `timeout` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the chooser, JSON-able."""
        with self._turns.writing():
            return self.chooser.snapshot()

    def _rest(self, batches: int) -> None:
        """Leave the next `batches` batches untimed."""
        self._skipped, self._road.untimed = batches, repeat(None, batches)

    def _pause(self, seconds: float) -> int:
        """Return the number of batches to leave untimed; it is random, to follow no rhythm of the batches."""
        period, self._period = self._period, min(2 * self._period, PERIOD)
        return int(self._random.uniform(0.5, 1.5) * period / max(seconds, 1e-7))

    # -- in a thread of its own ------------------------------------------------------------------------------

    def run(self) -> None:
        """Do what the chooser asks for, until it asks for nothing more."""
        wanted = self._ask(self._content())
        while wanted is not None:
            name, begun = wanted.matcher, clock()
            try:
                wanted = self._move(wanted) if isinstance(wanted, Move) else self._try(wanted)
            except Exception as error:
                seconds = clock() - begun
                logging.getLogger("rtfilter").warning("the matcher %r is not tried: %s", name, error)
                with self._turns.writing():
                    self.chooser.failed(name, f"{type(error).__name__}: {error}", seconds)
                wanted = self._ask(self._content())

    def _ask(self, content: Content) -> Try | Move | None:
        with self._turns.writing():
            return self.chooser.step(content)

    def _try(self, wanted: Try) -> Try | Move | None:
        self._load(wanted.matcher)
        content = self._content()
        if wanted.of >= content.subscriptions:
            return self._try_all(wanted)
        sample = self._sample(wanted.of)
        begun, build, own, other = self._built(wanted.matcher, sample)
        self._tell(wanted, len(sample), False, begun, build, other, self._costs(own))
        return self._ask(content)

    def _try_all(self, wanted: Try) -> Try | Move | None:
        with self._updates.alone():
            begun = clock()
            copy = Copy(self._gate, self._held, of=wanted.matcher)
            build, other = clock() - begun, copy.content.matcher
            own = Costs(self._held.matcher, self._road.order, self._gate.reading)
            self._tell(wanted, len(other), True, begun, build, other, own)
            next_one = self._ask(self._content())
            if next_one != Move(wanted.matcher):
                return next_one
            begun = clock()
            self._updates.put_in_place(copy)
            return self._moved(wanted.matcher, begun)

    def _move(self, wanted: Move) -> Try | Move | None:
        """Move to a matcher by another copy, if the copy of the trial is gone."""
        begun = clock()
        self._updates.repack(wanted.matcher)
        return self._moved(wanted.matcher, begun)

    def _moved(self, matcher: str, begun: float) -> Try | Move | None:
        with self._turns.writing():
            self.chooser.moved(matcher, clock() - begun)
            self._told = self._held.updates
        return self._ask(self._content())

    def _tell(
        self, wanted: Try, of: int, whole: bool, begun: float, build: float, other: Matcher, own: Costs
    ) -> None:
        """Match the kept batches with both matchers, and report the costs to the chooser."""
        taken = int(other.stats()["bytes"])
        if wanted.most_bytes is not None and taken > wanted.most_bytes:
            raise MemoryError(f"it takes {taken:,} bytes, and at most {wanted.most_bytes:,} are allowed")
        costs = self._costs(other)
        found = [pair for label, some in self._batches().items() for pair in pairs(*label, some, own, costs)]
        gradual = other.takes.gradual
        spent = clock() - begun
        trial = Trial(wanted.matcher, max(of, 1), whole, spent, build, taken, gradual, found)
        with self._turns.writing():
            self.chooser.tried(trial)

    def _costs(self, matcher: Matcher) -> Costs:
        return Costs(matcher, self._road.order)

    def _load(self, matcher: str) -> None:
        """Load the kernels of a matcher before its trial: a process loads them once."""
        if matcher not in self._warm:
            self._built(matcher, self._sample(BLOCK))
            self._warm.add(matcher)

    def _built(self, matcher: str, sample: Filters) -> tuple[float, float, Matcher, Matcher]:
        """Return the start, the candidate's build time, a matcher like the one in use, and the candidate."""
        while True:
            begun, loads = clock(), counts.loads
            own = make_matcher(self._held.factory, self._held.schema, **self._held.matcher.options)
            own.add(sample)
            built = clock()
            other = make_matcher(matcher, self._held.schema)
            other.add(sample)
            build = clock() - built
            for (_, streamed), batches in self._batches().items():
                for one in (own, other):
                    one.match(batches[0])
                    if streamed:
                        self._costs(one).plan(batches[0])
            if loads == counts.loads:
                return begun, build, own, other

    def _batches(self) -> dict[tuple[int, bool], list[EventTable]]:
        with self._turns.writing():
            return {label: list(batches) for label, batches in self._kept.items()}

    def _content(self) -> Content:
        held = self._held
        low, high, exact = self._sample(LOOKED_AT).boxes()[1:]
        ended = np.isfinite(low) | np.isfinite(high)
        with self._gate.reading():
            count, taken = len(held.matcher), int(held.matcher.stats()["bytes"])
        if not len(exact):
            return Content(count, held.schema.dimensions, bytes=taken)
        equal = float((low == high).any(axis=1).mean())
        return Content(
            count, held.schema.dimensions, float(ended.mean()), equal, float(1 - exact.mean()), taken
        )

    def _sample(self, of: int) -> Filters:
        """Return about `of` subscriptions, in blocks at random places, or all."""
        parts: list[Filters] = []
        with self._gate.reading():
            scannable = self._held.scannable
            places: Sequence[int] | IntArray
            places = range(scannable.rows) if scannable is not None else self._held.matcher.ids()
        blocks = math.ceil(len(places) / BLOCK)
        chosen = sorted(self._random.sample(range(blocks), min(blocks, math.ceil(of / BLOCK))))
        at_once = AT_ONCE // BLOCK
        for first in range(0, len(chosen), at_once):
            with self._gate.reading():
                for block in chosen[first : first + at_once]:
                    own = places[block * BLOCK : (block + 1) * BLOCK]
                    if isinstance(own, range) and self._held.scannable is not None:
                        rows = self._held.scannable.rows  # fewer if the index was packed meanwhile
                        own = range(min(own.start, rows), min(own.stop, rows))
                        parts.append(self._held.scannable.scan(own))
                    elif not isinstance(own, range):
                        known = [id for id in np.asarray(own).tolist() if id in self._held.matcher]
                        parts.append(self._held.matcher.content(known))
        return Filters.joined(self._held.schema, parts, NO_IDS)


class Costs:
    """The costs of batches with one matcher; `reading` returns a context that each batch is matched in."""

    def __init__(
        self,
        matcher: Matcher,
        order: Order,
        reading: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._matcher, self._levels = matcher, leveled(matcher)
        self._order, self._reading = order, reading

    def of(self, events: EventTable, plan: Plan | None) -> float:
        """Return the seconds of a batch, or with a plan the mean response of its events."""
        with self._reading():
            begun = clock()
            if plan is None or plan.group is None:
                self._matcher.match(events)
                return clock() - begun
            frontier = self._levels.frontier(events, plan.level)
            order, cuts = schedule(self._order, frontier.workload, plan.group)
            groups, waited = frontier.split(order, cuts), 0.0
            for group in range(len(cuts) - 1):
                self._levels.resume_part(groups, group)
                waited += float(cuts[group + 1] - cuts[group]) * (clock() - begun)
            return waited / len(events)

    def plan(self, events: EventTable) -> Plan:
        """Return the plan with the least mean response."""
        plans = plans_of(len(events), self._levels.height, GROUPS)
        return min(plans, key=lambda plan: self.of(events, plan))


def pairs(
    size_class: int, streamed: bool, batches: Sequence[EventTable], own: Costs, other: Costs
) -> list[Pair]:
    """Match batches of one class with both matchers, alternately."""
    begun, loads = clock(), counts.loads
    whole = WHOLE if streamed else None
    first = Pair(
        size_class, len(batches[0]), own.of(batches[0], whole), other.of(batches[0], whole), streamed
    )
    if loads == counts.loads and first.other > SLOW * first.own:
        return [first]
    plans = [one.plan(batches[0]) if streamed else None for one in (own, other)]
    size = min(len(batches), max(1, int(PART / max(first.own, first.other))))
    parts = [batches[begin : begin + size] for begin in range(0, len(batches) - size + 1, size)]
    found: list[Pair] = []
    while len(found) < PASSES or (len(found) < MOST_PASSES and clock() - begun < SPENT):
        part = parts[len(found) % len(parts)]
        if len(found) % 2:
            after = _seconds(other, part, plans[1])
            before = _seconds(own, part, plans[0])
        else:
            before, after = _seconds(own, part, plans[0]), _seconds(other, part, plans[1])
        found.append(Pair(size_class, sum(map(len, part)), before, after, streamed))
    return found


def _seconds(one: Costs, part: Sequence[EventTable], plan: Plan | None) -> float:
    """Return the least time of some runs over batches.

    The first run counts only if it is long: the other matcher has used the caches.
    """
    first = math.fsum(one.of(batch, plan) for batch in part)
    if first >= WARM:
        return first
    return min(math.fsum(one.of(batch, plan) for batch in part) for _ in range(RUNS - 1))


def _copied(searched: EventTable) -> EventTable:
    """Return the first events, as far as matchers of boxes need them: their points, and their texts."""
    points = searched.points[:EVENTS].copy()  # the caller may change the array
    texts = [field.name for field in searched.fields if field.family == "str"]
    values = {name: searched.values(name, range(len(points))) for name in texts}
    return EventTable(points, _Texts(values), searched.fields)


class _Texts(NamedTuple):
    by_name: dict[str, Sequence[object]]

    def row(self, index: int) -> dict[str, object]:
        raise NotImplementedError

    def values(self, name: str, rows: Sequence[int]) -> Sequence[object]:
        own = self.by_name[name]
        return [own[row] for row in rows]

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        raise NotImplementedError


_ANY: Final = Schema({"x": float})
