"""The filter: subscriptions in, batches of events matched, each event released as soon as it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtfilter.adaptive import Controller, Plan, PlanController, Ticket
from rtfilter.errors import EventError, PredicateError, UnknownSubscriptionError
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.tree import DEFAULT_CAPACITY, Hits, IntArray, RStarTree
from rtfilter.matching.batch import BatchRun, Stream
from rtfilter.matching.gate import Gate
from rtfilter.predicates.boxes import bounds_predicate, compile_bounds, compile_predicate
from rtfilter.predicates.explain import Explanation, explain
from rtfilter.predicates.model import Predicate
from rtfilter.predicates.parse import parse
from rtfilter.predicates.store import Kept, PredicateStore, kept
from rtfilter.results import Matches
from rtfilter.scheduler import Order, resolve
from rtfilter.snapshots import arrays as snapshot

if TYPE_CHECKING:
    from rtfilter.watch.metrics import Metrics

KIND = "rtfilter.filter"

#: Samples of each plan that the default controller compares. In simulation 16 settle in a quarter of the
#: batches of the paper's 64, and then cost 0.3 % more response time if batches scatter by 5 %, 1.5 % by 50 %.
ROUNDS = 16

#: An SQL condition, an event pattern, or a predicate object.
Source = str | Mapping[str, Any] | Predicate


class EventFilter:
    """Subscriptions over the attributes of a schema, and the events that match them.

    Safe for threads: many may match while one changes the subscriptions. A batch sees one version of the
    subscriptions from its estimate to its last release, and every change that returned before it began.

    Parameters
    ----------
    schema : Schema
    capacity : (int, int)
        Entries of an inner node and of a leaf of the index; see `RStarTree`.
    policy : str or callable
        Order in which `stream` searches the events of a batch: "shortest" (first), "fifo", "longest", or a
        function from workloads int64 (n,) to a permutation int64 (n,), which must not call the filter.
    controller : Controller, optional
        Chooses the level and group size of each `stream`; by default an adaptive one, `PlanController`.
        See `adaptive`.
    metrics : bool or Metrics
        True, or a `rtfilter.watch.metrics.Metrics`, to observe for Prometheus.
    """

    def __init__(
        self,
        schema: Schema,
        capacity: tuple[int, int] = DEFAULT_CAPACITY,
        policy: str | Order = "shortest",
        controller: Controller | None = None,
        metrics: bool | Metrics = False,
    ) -> None:
        if not isinstance(schema, Schema):
            raise TypeError(f"schema must be a Schema, as in Schema({{'price': float}}), not {schema!r}")
        self._start(schema, RStarTree(schema.dimensions, capacity), PredicateStore(), set(), 0)
        self._configure(policy, controller, metrics)

    def _start(
        self, schema: Schema, tree: RStarTree, predicates: PredicateStore, boxless: set[int], next_id: int
    ) -> None:
        self.schema, self.tree, self._predicates = schema, tree, predicates
        self._next_id = next_id
        self._boxless = boxless  # ids of unsatisfiable predicates: known, but in no box
        self._gate = Gate()
        self._controller_lock = threading.Lock()

    def _configure(self, policy: str | Order, controller: Controller | None, metrics: bool | Metrics) -> None:
        self.policy = resolve(policy)
        for method in ("plan", "report", "on_update", "snapshot"):
            if controller is not None and not callable(getattr(controller, method, None)):
                raise TypeError(
                    f"a controller has the methods of those in `adaptive`; {controller!r} has no {method}"
                )
        self.controller: Controller = controller if controller is not None else PlanController(rounds=ROUNDS)
        self.metrics: Metrics | None = None
        if metrics is not False:
            from rtfilter.watch.metrics import Metrics

            self.metrics = Metrics() if metrics is True else metrics
            self.metrics.observe_state(lambda: (self.stats(), self._controller_state()))

    # -- subscriptions -------------------------------------------------------------------------------

    def subscribe(self, predicate: Source, id: int | None = None) -> int:
        """Add a subscription; batches that begin after this returns see it.

        Parameters
        ----------
        predicate : str, mapping or Predicate
            An SQL condition, an event pattern, or a predicate object; see `docs/predicates.md`.
        id : int, optional
            Its id, not negative and not in use. By default the next free one; those are never reused.

        Raises `PredicateError`, or `ValueError` for an unusable id; nothing is changed then.
        """
        return int(self.subscribe_many([predicate], ids=None if id is None else [index(id)])[0])

    @overload
    def subscribe_many(
        self, low: Sequence[Source], high: None = None, *, ids: ArrayLike | None = None
    ) -> IntArray: ...

    @overload
    def subscribe_many(
        self, low: ArrayLike, high: ArrayLike, *, ids: ArrayLike | None = None
    ) -> IntArray: ...

    def subscribe_many(self, low: Any, high: Any = None, *, ids: ArrayLike | None = None) -> IntArray:
        """Add many subscriptions at once, all or none: `subscribe_many(low, high)` or a list of predicates.

        Parameters
        ----------
        low, high : array_like of float64 (n, number of attributes)
            Closed bounds, one subscription a row. Both ends infinite: don't care, the attribute may be
            missing. One end infinite: open on that side, the attribute must be present.
        low : sequence of str, mapping or Predicate
            Without `high`: n predicates.
        ids : array_like of int (n,), optional

        Returns
        -------
        int64 (n,)
            The ids.
        """
        if high is None:
            return self._subscribe_predicates(low, ids)
        lower, upper = compile_bounds(low, high, self.schema)
        with self._changing():
            names = self._new_ids(ids, len(lower))
            try:
                self.tree.extend(names, lower, upper)
            except BaseException:  # interrupted: all or none
                self._forget(names)
                raise
            self._count_added(names)
            return names

    def _subscribe_predicates(self, sources: Sequence[Source], ids: ArrayLike | None) -> IntArray:
        if isinstance(sources, str | Mapping | Predicate):
            raise TypeError("subscribe_many takes a list of predicates; use subscribe for a single one")
        predicates = []
        for row, source in enumerate(sources):
            try:
                predicates.append(parse(source, self.schema))
            except PredicateError as error:
                if len(sources) > 1:
                    error.add_note(f"in predicate {row} of {len(sources)}")
                raise
        boxes = [compile_predicate(predicate, self.schema) for predicate in predicates]
        counts = [len(own.low) for own in boxes]
        keep = [kept(predicate, own.exact) for predicate, own in zip(predicates, boxes, strict=True)]
        with self._changing():
            names = self._new_ids(ids, len(predicates))
            of_box = np.repeat(names, counts)
            try:
                for id, predicate, count in zip(names.tolist(), keep, counts, strict=True):
                    self._predicates.put(id, predicate)  # before its boxes: these may ask for it
                    if not count:
                        self._boxless.add(id)
                if len(of_box):
                    low, high, exact = (np.concatenate(sides) for sides in zip(*boxes, strict=True))
                    self.tree.extend(of_box, low, high, exact=exact)
            except BaseException:
                self._forget(names)
                raise
            self._count_added(names)
            return names

    def unsubscribe(self, id: int) -> bool:
        """Remove a subscription; False, and nothing is changed, when the id is unknown."""
        return bool(self.unsubscribe_many([id])[0])

    def unsubscribe_many(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Remove subscriptions; bool (n,): which of the ids were known."""
        names = np.atleast_1d(np.asarray(ids))
        if names.size and names.dtype.kind not in "iu":
            raise TypeError(f"ids must be integers, not {names.dtype}")
        with self._changing():
            known = self._forget(names.astype(np.int64))
            if self.metrics is not None:
                self.metrics.removed += int(known.sum())
            return known

    def repack(self) -> None:
        """Pack the index anew: one that has grown by single subscriptions may then answer twice as fast.

        Batches wait meanwhile, about 2 us a box (`RStarTree.repack`).
        """
        with self._changing():
            self.tree.repack()

    def part(self, ids: ArrayLike) -> EventFilter:
        """A filter of its own with these of the subscriptions, packed; unknown ids are ignored."""
        wanted = np.unique(np.asarray(ids, np.int64))
        part = EventFilter(self.schema, self.tree.capacity, self.policy)
        with self._gate.reading():
            of_box, low, high, exact = self.tree.content()
            own = np.isin(of_box, wanted)
            part.tree.extend(of_box[own], low[own], high[own], exact=exact[own])
            kept_ids = np.fromiter(self._predicates, np.int64)
            for id in kept_ids[np.isin(kept_ids, wanted)].tolist():
                predicate = self._predicates.kept(id)
                if predicate is not None:
                    part._predicates.put(id, predicate)
            part._boxless = self._boxless.intersection(wanted.tolist())
            part._next_id = self._next_id
        return part

    def _forget(self, names: IntArray) -> NDArray[np.bool_]:
        """Remove all that is known of some ids; where it was interrupted, it can be done again.

        Returns bool (n,): which were known; one that is named twice was known the first time.
        """
        known = self.tree.delete_many(names)
        for row, id in enumerate(names.tolist()):
            if id in self._boxless:
                self._boxless.remove(id)
                known[row] = True
            self._predicates.remove(id)
        return known

    def update(self, id: int, predicate: Source) -> None:
        """Replace the predicate of a subscription at once: no batch sees neither or both.

        Raises `UnknownSubscriptionError` or `PredicateError`; nothing is changed then.
        """
        parsed = parse(predicate, self.schema)
        boxes = compile_predicate(parsed, self.schema)
        new = kept(parsed, boxes.exact)
        with self._changing():
            if id not in self:
                raise UnknownSubscriptionError(id)
            old, old_boxes = self._predicates.kept(id), self.tree.boxes_and_exactness_of(id)
            try:
                self._replace(id, new, boxes)
            except BaseException:
                self._replace(id, old, old_boxes)
                raise

    def _replace(self, id: int, predicate: Kept | None, boxes: tuple[Any, Any, Any]) -> None:
        low, high, exact = boxes
        self._forget(np.array([id]))
        if predicate is not None:
            self._predicates.put(id, predicate)
        if len(low):
            self.tree.extend(np.full(len(low), id), low, high, exact=exact)
        else:
            self._boxless.add(id)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Have the index alone, and tell the controller afterwards how many boxes came and went."""
        with self._gate.writing():
            before = self.tree.updates
            try:
                yield
            finally:
                with self._controller_lock:
                    self.controller.on_update(self.tree.updates - before)

    def _new_ids(self, ids: ArrayLike | None, count: int) -> IntArray:
        if ids is None:
            names = np.arange(self._next_id, self._next_id + count)
        else:
            given = np.asarray(ids)
            if given.shape != (count,) or (count and given.dtype.kind not in "iu"):
                raise ValueError(f"ids must be {count} integers, not {given.dtype} of shape {given.shape}")
            names = given.astype(np.int64)
            if count and not 0 <= names.min() <= names.max() < 2**63 - 1:
                raise ValueError(f"subscription ids must be in 0..2**63 - 2: {given.min()} to {given.max()}")
            if len(np.unique(names)) != count:
                raise ValueError("ids must be distinct")
            for id in names.tolist():
                if id in self:
                    raise ValueError(f"subscription {id} exists already; unsubscribe or update it")
        self._next_id = max(self._next_id, int(names.max(initial=-1)) + 1)
        return names

    def _count_added(self, names: IntArray) -> None:
        if self.metrics is not None:
            self.metrics.added += len(names)

    def ids(self) -> IntArray:
        """Ids of all subscriptions, ascending, int64 (n,)."""
        with self._gate.reading():
            return np.union1d(self.tree.ids(), np.array(sorted(self._boxless), np.int64))

    def __len__(self) -> int:
        """Number of subscriptions."""
        return len(self.tree) + len(self._boxless)

    def __contains__(self, id: int) -> bool:
        return id in self.tree or id in self._boxless

    # -- matching ------------------------------------------------------------------------------------

    def _read(self, events: object) -> EventTable:
        if isinstance(events, EventTable):
            return events
        if isinstance(events, Mapping):
            raise EventError("a batch is a list of dicts, an array or a table; for a single event use match")
        return self.schema.read(events)

    def match(self, event: object) -> IntArray:
        """Ids of the subscriptions that match one event (a dict, or a batch of one), int64 (k,)."""
        table = event if isinstance(event, EventTable) else self.schema.read(event)
        if len(table) != 1:
            raise ValueError(f"match takes one event, not {len(table)}; use match_batch")
        return self.match_batch(table).ids

    def match_batch(self, events: object) -> Matches:
        """Match a batch as a whole: the least work, all results at once.

        Parameters
        ----------
        events : list of dict, ndarray, masked array, pandas.DataFrame or pyarrow.Table
            See `Schema.read`, whose result is taken as well.
        """
        arrival = perf_counter()
        table = self._read(events)
        with self._gate.reading():
            offsets, ids = self._refine(table, np.arange(len(table)), self.tree.hits(table.points))
        if self.metrics is not None and len(table):
            self.metrics.record_whole(len(table), perf_counter() - arrival, len(ids))
        return Matches(offsets, ids)

    def any_match(self, events: object) -> NDArray[np.bool_]:
        """Whether each event matches any subscription, bool (n,). Cheaper than `match_batch`; no metrics."""
        table = self._read(events)
        with self._gate.reading():
            hits = self.tree.hits(table.points, first_only=True)
            offsets, _ = self._refine(table, np.arange(len(table)), hits)
        return np.diff(offsets) > 0

    def count(self, events: object) -> IntArray:
        """Number of subscriptions that match each event, int64 (n,)."""
        return self.match_batch(events).counts

    def workload(self, events: object) -> IntArray:
        """Leaves of the index that matching each event will visit, int64 (n,): estimated work (W-2)."""
        table = self._read(events)
        with self._gate.reading():
            return self.tree.frontier(table.points, self.tree.height - 1).workload

    def stream(self, events: object) -> Stream:
        """Match a batch so that events are known soon: an iterator over events in order of completion.

        The controller names a level and a group size, one shared traversal to that level estimates each
        event's workload, the policy orders the events, and each group is released when it is done (W-2,
        W-3). Subscriptions may be changed while the stream is open; it does not see the change. The events
        themselves (dicts, frames) must not be changed before it ends.
        """
        arrival = perf_counter()
        table = self._read(events)
        with self._gate.reading():
            with self._controller_lock:
                ticket = self.controller.plan(len(table), self.tree.height) if len(table) else None
            run = BatchRun(
                self.tree,
                table.points,
                ticket.plan if ticket is not None else Plan(0, None),
                self.policy,
                lambda rows, hits: self._refine(table, rows, hits),
                arrival,
            )
            token = self._gate.open_stream(run.finish_for_change)
        return Stream(run, lambda: self._gate.close_stream(token), self._reporter(ticket))

    def _reporter(self, ticket: Ticket | None) -> Callable[[BatchRun], None]:
        """Tells controller and metrics, once, of a stream that is done."""
        reported = threading.Lock()

        def report(run: BatchRun) -> None:
            if ticket is not None and reported.acquire(blocking=False):
                with self._controller_lock:
                    self.controller.report(ticket, run.mean_busy_response)
                if self.metrics is not None:
                    self._record_stream(self.metrics, run, ticket)

        return report

    def _refine(self, table: EventTable, rows: IntArray, hits: Hits) -> tuple[IntArray, IntArray]:
        """Ask the predicates of inexact hits. `rows` are the rows of `table` that `hits` is about."""
        if hits.exact is None or hits.exact.all():
            return hits.offsets, hits.ids
        asked = np.flatnonzero(hits.exact == 0)
        keep = np.ones(len(hits.ids), np.bool_)
        local = np.repeat(np.arange(len(rows)), np.diff(hits.offsets))
        seen, event = -1, {}
        for hit in asked.tolist():
            if local[hit] != seen:
                seen = local[hit]
                event = table.row(int(rows[seen]))
            predicate = self._predicates.get(int(hits.ids[hit]))
            keep[hit] = predicate is not None and predicate.matches(event)
        counts = np.bincount(local[keep], minlength=len(rows))
        return np.concatenate([[0], np.cumsum(counts)]), hits.ids[keep]

    # -- looking inside ------------------------------------------------------------------------------

    def explain(self, event: object, id: int) -> Explanation:
        """Why an event does or does not match a subscription: each constraint, and by how much it fails.

        Raises `UnknownSubscriptionError`.
        """
        table = self.schema.read(event)
        if len(table) != 1:
            raise ValueError(f"explain takes one event, not {len(table)}")
        with self._gate.reading():
            return explain(self._predicate(id), table.row(0))

    def predicate(self, id: int) -> Predicate:
        """The predicate of a subscription. Raises `UnknownSubscriptionError`."""
        with self._gate.reading():
            return self._predicate(id)

    def _predicate(self, id: int) -> Predicate:
        predicate = self._predicates.get(id)
        if predicate is not None:
            return predicate
        low, high = self.tree.boxes_of(id)
        if not len(low):
            raise UnknownSubscriptionError(id)
        return bounds_predicate(low[0], high[0], self.schema)

    def stats(self) -> dict[str, Any]:
        """Statistics of the index and its use, JSON-able."""
        with self._gate.reading():
            tree = self.tree.stats()
            return {
                "subscriptions": len(self),
                **tree,
                "in_flight_batches": self._gate.readers - 1,
            }

    @staticmethod
    def _record_stream(metrics: Metrics, run: BatchRun, ticket: Ticket) -> None:
        from rtfilter.watch.metrics import StreamRecord

        sizes = np.diff(run.cuts)
        record = StreamRecord(
            ticket.size_class, run.ended, sizes, run.match_count, run.estimation, run.workload, run.visits
        )
        metrics.record_stream(record)

    def _controller_state(self) -> dict[str, Any]:
        with self._controller_lock:
            return self.controller.snapshot()

    # -- keeping -------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write a snapshot: a directory that `load` maps into memory. Replaces an older one atomically."""
        with self._gate.reading():
            meta = {
                "schema": self.schema.to_json(),
                "next_id": self._next_id,
                "subscriptions": len(self),
            }
            snapshot.write(path, KIND, meta, self._arrays())

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        policy: str | Order = "shortest",
        controller: Controller | None = None,
        metrics: bool | Metrics = False,
    ) -> EventFilter:
        """Open a snapshot by memory mapping; changes stay in memory until saved. Raises `SnapshotError`."""
        found = snapshot.read(path, KIND)
        loaded = cls.__new__(cls)
        loaded._restore(Schema.from_json(found.meta["schema"]), found.arrays, found.meta["next_id"])
        loaded._configure(policy, controller, metrics)
        return loaded

    def _arrays(self) -> dict[str, NDArray[Any]]:
        tree = {f"tree_{name}": array for name, array in self.tree.to_arrays().items()}
        boxless = np.array(sorted(self._boxless), np.int64)
        return {**tree, **self._predicates.to_arrays(), "boxless_ids": boxless}

    def _restore(self, schema: Schema, arrays: dict[str, NDArray[Any]], next_id: int) -> None:
        prefix = "tree_"
        tree = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        boxless = set(arrays["boxless_ids"].tolist())
        self._start(schema, RStarTree.from_arrays(tree), PredicateStore.from_arrays(arrays), boxless, next_id)

    def __getstate__(self) -> dict[str, Any]:
        with self._gate.reading():
            arrays = {name: np.array(array) for name, array in self._arrays().items()}
            return {
                "schema": self.schema,
                "arrays": arrays,
                "next_id": self._next_id,
                "policy": self.policy,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._restore(state["schema"], state["arrays"], state["next_id"])
        self._configure(state["policy"], None, False)  # what a controller has learnt belongs to its process

    def __repr__(self) -> str:
        return f"EventFilter({self.schema!r}, {len(self)} subscriptions)"
