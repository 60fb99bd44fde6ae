"""The path of a batch, from its plan to the release of its last event.

    plan      the controller names a level and a group size          Road.stream
    frontier  one shared traversal to that level; workloads          Batch._estimate
    order     shortest job first, cut into groups                    Batch._estimate
    search    group by group, each from its frontier                 Batch.advance
    verify    candidates, by their predicates                        verify
    release   a group's events are known when the group has ended    Batch.step, read by `Stream`
    report    to the controller and the metrics, once                Road.report

A plan without a group searches the batch as a whole: it skips frontier and order. Wang et al. describe the
plan with groups of one event.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from rtfilter.adaptive import WHOLE, Plan, Shape, Ticket
from rtfilter.basics.dtypes import AnyArray, IntArray
from rtfilter.basics.results import Matches
from rtfilter.events.table import EventTable, ranges
from rtfilter.index.kernels import counts
from rtfilter.matching.control import Control
from rtfilter.matching.event_reader import QUICK, EventReader
from rtfilter.matching.gate import Gate, Hold
from rtfilter.matching.growing import BATCHES, VERIFIED, Growing
from rtfilter.matching.outcome import Group, Outcome
from rtfilter.matching.verify import verify, verify_one
from rtfilter.scheduler import Order, schedule
from rtfilter.subscriptions.content import Subscriptions

if TYPE_CHECKING:
    from rtfilter.adaptive import MatcherChooser
    from rtfilter.watch.metrics import Metrics


class Trials(Protocol):
    """The choice of the matcher; see `rtfilter.matching.choosing`, which builds on this module."""

    chooser: MatcherChooser

    def observe(self, searched: EventTable, seconds: float, streamed: bool = False) -> None:
        """Take a timed batch of at least one event with its seconds."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the chooser, JSON-able."""


class Road:
    """The common state of all batches of a filter.

    Attributes
    ----------
    subscriptions : Subscriptions
    reader : EventReader
    gate : Gate
        The lock of the index: a batch sees one version of the subscriptions.
    order : Order
    control : Control
    metrics : Metrics or None
    turn : context manager
        Entered during a search, if threads may not share the matcher.
    sweep : callable
        Called with its moment after a batch, to remove expired subscriptions.
    choosing : Trials or None
        Chooses the matcher, if it is not fixed.
    growing : Growing or None
        Moves the filter to the R*-tree, if it began with a scan.
    untimed : iterator
        Each batch takes one item; once it is exhausted, a batch is timed, or the filter checks whether to
        move. A fixed matcher has an endless one.
    """

    def __init__(
        self, subscriptions: Subscriptions, order: Order, control: Control, metrics: Metrics | None
    ) -> None:
        self.order, self.control, self.metrics = order, control, metrics
        self.subscriptions, self.reader = subscriptions, EventReader(subscriptions, metrics)
        self.gate = Gate(subscriptions.recover)
        self._threads = subscriptions.matcher.takes.threads
        self.turn = contextlib.nullcontext() if self._threads else threading.RLock()
        self.sweep: Callable[[float], None] = _nothing
        self.choosing: Trials | None = None
        self.growing: Growing | None = None
        self.untimed: Iterator[None] = repeat(None)
        self._ends: set[_End] = set()
        self._forgotten: deque[_End] = deque()

    def match(self, events: EventTable, arrival: float, moment: float) -> Matches:
        """Match a batch as a whole.

        `arrival` is its arrival by `perf_counter`; subscriptions that are expired at `moment` are left out.
        """
        timed = next(self.untimed, True)
        with self.gate.reading():
            if timed:
                begun, loads = perf_counter(), counts.loads
            held = self.subscriptions
            events = held.whole(events)
            searched = events.searched
            offsets, ids = self._found(events, moment)
            names = held.labels.names
            if names is not None:  # before the next change, which may reuse handles
                matches = Matches.named(offsets, names.take(ids), names.kind)
            else:
                matches = Matches(offsets, ids)
        if timed and self.choosing is not None and loads == counts.loads and len(searched):
            self.choosing.observe(searched, perf_counter() - begun)
        if timed or self._verified_much:
            self.look()
        if self.metrics is not None and len(events):
            self.metrics.record_whole(len(events), perf_counter() - arrival, len(ids))
        return matches

    def _found(self, events: EventTable, moment: float) -> tuple[IntArray, IntArray]:
        """Search a batch and verify the candidates; return offsets and handles.

        The caller holds the index.
        """
        held, now = self.subscriptions, None  # boxes do not need it: `verify` reads the clock if it must
        asked = events.searched
        if asked is not events or not held.matcher.takes.boxes:
            now = held.now(moment)
            asked = held.searched(events, now)
        if self._threads:  # even a free lock takes time
            hits = held.matcher.match(asked)
        else:
            with self.turn:
                hits = held.matcher.match(asked)
        return verify(hits, events, held, None, moment, now)

    def match_one(self, given: object, arrival: float, moment: float) -> AnyArray:
        """Match one event as `match` does, without the arrays for several events.

        Returns ids, int64 (k,) or object (k,).
        """
        quick = type(given) in QUICK
        event = None if quick else self.reader.lone(given)  # may run code of the caller
        if next(self.untimed, True):
            return self.match(event or self.reader.lone(given), arrival, moment).ids
        with self.gate.reading():
            held = self.subscriptions
            event = self.reader.one(given) if event is None else held.whole(event)
            ids: AnyArray
            if held.single is None or event.choices is not None:
                _, ids = self._found(event, moment)
            else:
                ids = verify_one(*held.single.match_one(event), event, held, moment)
            names = held.labels.names
            if names is not None:  # before the next change, which may reuse handles
                ids = names.take(ids)
        if quick:
            if event.odd:
                self.reader.note(event)
            event.free()
        if self.growing is not None and self._verified_much:
            self.look()
        if self.metrics is not None:
            self.metrics.record_whole(1, perf_counter() - arrival, len(ids))
        return ids

    @property
    def _verified_much(self) -> bool:
        """True if a growing filter may move at once, because Python has verified many candidates."""
        return self.growing is not None and self.subscriptions.verified.by_python >= VERIFIED

    def look(self) -> None:
        """Check whether a growing filter should move, and schedule the next check after some batches."""
        growing = self.growing
        if growing is not None:
            self.untimed = repeat(None, BATCHES)
            growing.look()
        elif self.choosing is None:  # it has moved
            self.untimed = repeat(None)

    def stream(self, events: EventTable, begun: float, arrival: float) -> tuple[Batch, Hold]:
        """Begin a batch by the controller's plan; return it with its hold of the index.

        The work of the plan counts from `begun`, and the responses of the events from `arrival`, both of
        `perf_counter`: a wait before the batch began does not count against the plan.
        """
        # Before the index is held: a controller may use the filter.
        while self._forgotten:
            end = None
            with contextlib.suppress(IndexError):  # another thread may take the last one
                end = self._forgotten.popleft()
            if end is not None and end.outcome is not None:
                self._ends.discard(end)
                self._tell(end.outcome)
        moment = self.subscriptions.moment()
        held = self.subscriptions
        shape = Shape(held.levels.height, len(held.matcher), held.packed)
        ticket = self.control.plan(len(events), shape, held.updates) if len(events) else None
        with self.gate.reading():
            plan = WHOLE if ticket is None else ticket.plan
            events = held.whole(events)
            batch = Batch(self, events, plan, ticket, begun, arrival, moment)
            return batch, self.gate.open_stream(batch.finish_for_change, batch.steps)

    def watch(self, stream: object, batch: Batch) -> None:
        """Report a batch, as far as it got, once its stream is garbage-collected.

        The collection itself must run no Python code of this package.
        """
        if batch.outcome.ticket is not None:
            end = _End(stream, self._forgotten.append)
            self._ends.add(end)
            end.outcome, batch.end = batch.outcome, end

    def report(self, batch: Batch) -> None:
        """Report a finished or abandoned batch to the controller and the metrics, once."""
        if not len(batch) or not self._tell(batch.outcome):
            return
        if batch.end is not None:
            self._ends.discard(batch.end)
            batch.end = None
        timed = batch.done and next(self.untimed, True)
        if timed and self.choosing is not None:
            batch.tell(self.choosing)
        if timed or self._verified_much:
            self.look()
        if self.metrics is None or not batch.done:
            return
        outcome, ticket = batch.outcome, batch.outcome.ticket
        if ticket is None:
            self.metrics.record_whole(len(batch), outcome.groups[-1].ended, outcome.match_count)
        else:
            self.metrics.record_stream(outcome.record(ticket.size_class, batch.workload))

    def _tell(self, outcome: Outcome) -> bool:
        """Report a batch to the controller; return False if it was reported before."""
        if not outcome.reported.acquire(blocking=False):
            return False
        # Loading a kernel takes longer than hundreds of batches, and is not the fault of the plan.
        if outcome.ticket is not None and outcome.loads == counts.loads:
            self.control.report(outcome.ticket, outcome.report())
        elif outcome.ticket is not None:
            self.control.drop(outcome.ticket)
        return True


def _nothing(moment: float) -> None:
    """Remove no expired subscriptions: the sweep of a filter that has had no change."""


class Batch:
    """A batch of n events; any thread may compute its groups.

    Attributes
    ----------
    plan : Plan
    moment : float
        The arrival in seconds of the filter's clock: expired subscriptions are left out.
    steps : Gate
        The lock of the computation: one thread at a time.
    workload, order, cuts : int64 (n,), int64 (n,), int64 (g + 1,), or None
        Estimated work; rows in the order of their search; group k is ``order[cuts[k]:cuts[k + 1]]``. None for
        a batch that is searched as a whole.
    outcome : Outcome
        The results of the finished groups.
    end : weak reference or None
        Refers to its stream until the batch is reported; see `Road.watch`.
    """

    # The values of a batch that is searched as a whole; `_estimate` sets them for others.
    workload: IntArray | None = None
    order: IntArray | None = None
    cuts: IntArray | None = None
    group_count = 1
    end: _End | None = None
    _groups: Any = None  # the argument of the matcher's `resume_part`
    _error: Exception | None = None
    _closed = False

    def __init__(
        self,
        road: Road,
        events: EventTable,
        plan: Plan,
        ticket: Ticket | None,
        begun: float,
        arrival: float,
        moment: float,
    ) -> None:
        self._road, self._events, self._arrival, self.moment = road, events, arrival, moment
        self._now = road.subscriptions.now(moment)
        self._searched = road.subscriptions.searched(events, self._now)
        self.plan, self.steps = plan, Gate()
        self._names = road.subscriptions.labels.names
        self.outcome = Outcome(len(events), ticket, int if self._names is None else self._names.kind)
        if plan.group is not None:
            self._estimate()
        elif not len(events):
            self.group_count = 0
        self.outcome.worked = perf_counter() - begun

    def _estimate(self) -> None:
        begun = perf_counter()
        with self._road.turn:
            frontier = self._road.subscriptions.levels.frontier(self._searched, self.plan.level)
        self.workload, self.outcome.estimation_visits = frontier.workload, frontier.visits
        choices = self._events.choices
        if choices is not None:
            self.workload = choices.sums(frontier.workload)
        self.order, self.cuts = schedule(self._road.order, self.workload, self.plan.group)
        order, cuts = self.order, self.cuts
        if choices is not None:  # a group of events is searched as all of their choices
            order, ends = ranges(choices.offsets, order)
            cuts = ends[cuts]
        self._groups = frontier.split(order, cuts)
        self.group_count = len(self.cuts) - 1
        self.outcome.estimation = perf_counter() - begun

    def step(self, group: int) -> Group:
        """Return the result of a group; compute it, and the groups before it, if that has not been done."""
        with self.steps.writing():
            while len(self.outcome.groups) <= group:
                # After the index was released, the rest cannot be computed.
                if self._error is not None:
                    raise self._error
                if self._closed:
                    raise RuntimeError("the stream was closed before this event was computed")
                try:
                    self.advance()
                except Exception as error:
                    self._try_again(error)
                    raise
            return self.outcome.groups[group]

    def _try_again(self, error: Exception) -> None:
        """Compute the group again after an error.

        An error of the batch occurs again, an error of a signal handler does not.
        """
        try:
            self.advance()
        except Exception:
            self._error = error

    def advance(self) -> None:
        """Compute the next group. The caller must have the batch alone; other callers use `step`."""
        group, begun = len(self.outcome.groups), perf_counter()
        rows: IntArray | None = None
        held, choices = self._road.subscriptions, self._events.choices
        with self._road.turn:
            if self.order is None or self.cuts is None:
                hits = held.matcher.match(self._searched)
            else:
                rows = self.order[self.cuts[group] : self.cuts[group + 1]]
                hits = held.levels.resume_part(self._groups, group)
        offsets, ids = verify(hits, self._events, held, rows, self.moment, self._now)
        visits = hits.visits if choices is None else choices.sums(hits.visits, rows)
        if self._names is not None:  # while the index is held: the next change may reuse handles
            ids = self._names.take(ids)
        now = perf_counter()
        worked = self.outcome.worked = self.outcome.worked + now - begun
        self.outcome.groups.append(Group(rows, offsets, ids, visits, now - self._arrival, worked))

    def finish(self) -> None:
        """Compute the remaining groups."""
        if self.group_count:
            self.step(self.group_count - 1)

    def finish_for_change(self) -> None:
        """Compute the remaining groups for a thread that wants to change the index.

        Errors are raised to the consumer of the stream only.
        """
        try:
            self.finish()
        except Exception:
            if self._error is None and not self._closed:  # it could not even begin
                raise

    def close(self) -> None:
        """Prevent any further computation; wait for a thread that computes."""
        with self.steps.writing():
            self._closed = True

    def __len__(self) -> int:
        return len(self._events)

    def tell(self, choosing: Trials) -> None:
        """Report the time of the batch to the chooser, unless kernels were loaded meanwhile."""
        if self.outcome.loads == counts.loads:
            choosing.observe(self._searched, self.outcome.worked, streamed=True)

    @property
    def done(self) -> bool:
        """True if all groups are finished."""
        return len(self.outcome.groups) == self.group_count


class _End(ref[Any]):
    """A weak reference whose callback notes that a stream was garbage-collected."""

    outcome: Outcome | None = None
    """None if the call that began the stream was interrupted."""

    # A `ref` has the hash of its target, which may not exist any more.
    __hash__ = object.__hash__
    __eq__ = object.__eq__
