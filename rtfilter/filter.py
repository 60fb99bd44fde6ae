"""The filter: it takes subscriptions, matches batches, and releases each event once its matches are known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from os import PathLike
from time import perf_counter
from types import EllipsisType
from typing import TYPE_CHECKING, Any, overload

from numpy.typing import ArrayLike

from rtfilter.change_log import Changes
from rtfilter.dtypes import AnyArray, BoolArray
from rtfilter.events.schema import Given, Schema
from rtfilter.matchers.port import Matcher
from rtfilter.matchers.registry import Factory
from rtfilter.matching.cover_search import Related
from rtfilter.matching.filter_parts import FilterParts, moment_of
from rtfilter.matching.stream import Stream
from rtfilter.options import Named
from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
from rtfilter.predicates.predicate import Source, parse
from rtfilter.results import Matches
from rtfilter.scheduler import Order
from rtfilter.subscriptions.ids import Name
from rtfilter.subscriptions.loading import Lifetime, OnError
from rtfilter.subscriptions.stored import Subscription
from rtfilter.watch.off import OFF, Off

if TYPE_CHECKING:
    from rtfilter.adaptive import Controller, MatcherChooser
    from rtfilter.events.reading import OnBadEvent
    from rtfilter.predicates.explanations.explanation import Explanation
    from rtfilter.predicates.explanations.misses import Misses
    from rtfilter.watch.metrics import Metrics

Table = Mapping[str, Any]
"""Columns by name, such as a pandas DataFrame or an Arrow table."""
Id = int | Name
"""An integer, text or a UUID."""
Ids = ArrayLike | Sequence[Name]
"""Several of one type: int64, or object for text and UUIDs."""
Notes = Mapping[str, Any]
"""Metadata: values that JSON can hold, with text as keys."""
Lifetimes = Lifetime | Sequence[Lifetime | None]
"""Seconds or a timedelta, for all or for each; None: no expiry."""


class EventFilter:
    """Subscriptions over the attributes of a schema, and the events that match them.

    Safe for threads: a batch sees one version of the subscriptions, with every change that returned before
    the batch began. The ids of a filter are of one type: integers, text or UUIDs; arrays of text and of UUIDs
    have the dtype object. A call leaves out the subscriptions that expired before it began.

    Parameters
    ----------
    schema : Schema
        The attributes and their types.
    capacity : (int, int)
        Most entries of an inner node and of a leaf of the R*-tree; the filter then is a tree from the start.
    policy : str or callable
        Order in which `stream` searches the events of a batch: "shortest" (first), "fifo", "longest", or a
        function from workloads int64 (n,) to a permutation int64 (n,), which must not call the filter.
    controller : str, mapping or Controller, optional
        Chooses the plan of each `stream`; by default `CostController`. A name in
        `rtfilter.adaptive.CONTROLLERS`, or ``{"name": "wang", "rounds": 32, "threshold": 1000}``, is kept in
        snapshots; a `Controller` is not.
    metrics : bool or Metrics
        True, or a `rtfilter.watch.metrics.Metrics`, to observe for Prometheus.
    matcher : str, mapping, callable or MatcherChooser, optional
        The index. By default the filter begins with a scan, which needs no compiled code, and moves to the
        R*-tree once it is large. "rtree" is the tree from the start; other names are in `rtfilter.matchers`,
        or give a class of your own. An object has a name and options, such as ``{"name": "filter-nodes",
        "bit_lists": 0.1}``. With "auto", or a `rtfilter.adaptive.MatcherChooser`, trials choose the matcher.
    max_unbounded : int or None
        Most subscriptions without any bound, such as ``bid >= ask`` alone: each costs an exact check of
        nearly every event. None allows any number. Matchers that work without boxes have no limit.
    ids : type, optional
        Type of all ids: int, str or uuid.UUID. By default the type of the first id.
    clock : callable
        Function that returns the time in seconds since 1970, for times to live and ``NOW()``.
    """

    def __init__(
        self,
        schema: Schema,
        capacity: tuple[int, int] | None = None,
        policy: str | Order = "shortest",
        controller: Controller | Named | None = None,
        metrics: bool | Metrics = False,
        matcher: Factory | MatcherChooser | None = None,
        max_unbounded: int | None = MAX_UNBOUNDED,
        ids: type | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._take(FilterParts.new(schema, capacity, policy, controller, metrics, matcher, ids, clock))
        self.max_unbounded = max_unbounded

    def _take(self, parts: FilterParts) -> None:
        self._parts, self._road, self._subscriptions = parts, parts.road, parts.subscriptions

    @property
    def schema(self) -> Schema:
        """The schema of events and predicates; `add_attributes` extends it."""
        return self._subscriptions.schema

    @property
    def policy(self) -> Order:
        """Order in which `stream` searches the events of a batch."""
        return self._road.policy

    @policy.setter
    def policy(self, policy: Order) -> None:
        self._road.policy = policy

    @property
    def controller(self) -> Controller:
        """The controller that chooses the plan of each `stream`."""
        return self._road.control.controller

    @controller.setter
    def controller(self, controller: Controller | Named) -> None:
        self._road.control.controller = controller

    @property
    def metrics(self) -> Metrics | Off:
        """The metrics; without ``metrics=True``, a false object whose attributes raise an error."""
        return OFF if self._road.metrics is None else self._road.metrics

    @metrics.setter
    def metrics(self, metrics: Metrics | Off | None) -> None:
        self._road.metrics = self._road.reader.metrics = metrics or None

    @property
    def matcher(self) -> Matcher:
        """The index in use; ``matcher.tree`` is its `RStarTree`, if any, ``matcher.takes`` what it can store.

        The tree does not find patterns with long beginnings or ends, which `match` finds in a hash table.
        """
        return self._subscriptions.matcher

    @property
    def max_unbounded(self) -> int | None:
        """Most subscriptions without any bound. A smaller number than exist now refuses only new ones."""
        return self._subscriptions.unbounded.most

    @max_unbounded.setter
    def max_unbounded(self, most: int | None) -> None:
        self._parts.limit_unbounded(most)

    # -- subscriptions -------------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        predicate: Source,
        id: int | None = None,
        *,
        ttl: Lifetime | None = None,
        metadata: Notes | None = None,
    ) -> int: ...

    @overload
    def subscribe(
        self, predicate: Source, id: Name, *, ttl: Lifetime | None = None, metadata: Notes | None = None
    ) -> Name: ...

    def subscribe(
        self,
        predicate: Source,
        id: Id | None = None,
        *,
        ttl: Lifetime | None = None,
        metadata: Notes | None = None,
    ) -> Id:
        """Add a subscription; batches that begin after the call returns see it.

        Raises `PredicateError`, `ValueError` or `TypeError` for an unusable argument; nothing is changed.

        Parameters
        ----------
        predicate : str, mapping or Predicate
            An SQL condition, an event pattern, or a predicate object.
        id : int, str or uuid.UUID, optional
            An id that is not in use, 0 to 2**63 - 2 if an integer. By default the next free integer.
        ttl : float or timedelta, optional
            Seconds from this call until it expires, finite and above 0. By default it does not expire.
        metadata : dict, optional
            Data to keep with the subscription, at most 4096 bytes as JSON.
        """
        return self._parts.subscriber.one(predicate, id, ttl, metadata)

    def subscribe_many(
        self,
        where: Sequence[Source] | Any,
        *,
        ids: Ids | None = None,
        ttl: Lifetimes | None = None,
        metadata: Sequence[Notes | None] | None = None,
        on_error: OnError = "raise",
    ) -> AnyArray:
        """Add many subscriptions, all or none; return their ids in order, int64 (m,) or object (m,).

        Raises `PredicateError` or `ValueError` with the `row` of an unusable predicate or id.

        Parameters
        ----------
        where : sequence of str, mapping or Predicate (n,), or table
            A table is a DataFrame, Arrow table, stream of record batches, mapping of names to columns, or
            cursor. It has the column ``where``, or closed bounds in ``low.<attribute>`` and
            ``high.<attribute>``; and optionally ``id``, ``ttl`` (seconds) or ``expires`` (a moment), and
            ``metadata``.
        ids, ttl, metadata : (n,), optional
            As for `subscribe`, one for each; a single `ttl` is for all. None: no expiry, no metadata.
        on_error : "raise", "skip" or callable
            "skip" leaves out the rows that cannot be used, and logs their number. A callable, such as
            ``bad.append``, gets a `BadSubscription` for each before the others are added.
        """
        return self._parts.subscriber.many(where, ids, ttl, metadata, on_error)

    def subscribe_boxes(
        self,
        low: ArrayLike | Table,
        high: ArrayLike | Table,
        *,
        ids: Ids | None = None,
        ttl: Lifetimes | None = None,
        metadata: Sequence[Notes | None] | None = None,
    ) -> AnyArray:
        """Add many subscriptions, all or none, from bounds with a row for each; return their ids, (n,).

        Parameters
        ----------
        low, high : array_like (n, number of attributes), or table
            Closed bounds. Both ends infinite: don't care, the attribute may be missing. One end infinite:
            open on that side, the attribute must be present. A masked cell, None, NaT and null are infinite
            ends. The columns of a table, also a mapping of names to columns, are some of the attributes.
            Timestamps are datetime64 or microseconds.
        ids, ttl, metadata : (n,), optional
            As for `subscribe_many`; so are the errors.
        """
        return self._parts.subscriber.boxes(low, high, ids, ttl, metadata)

    def unsubscribe(self, id: Id) -> bool:
        """Remove a subscription; return False, and change nothing, if the id is unknown."""
        given: Any = id if type(id) is int else [id]
        return bool(self.unsubscribe_many(given)[0])

    def unsubscribe_many(self, ids: Ids) -> BoolArray:
        """Remove subscriptions; return which of the ids were known, bool (n,).

        Raises `TypeError` for ids of another type than those of the filter.
        """
        return self._parts.subscriber.remove(ids)

    def update(
        self,
        id: Id,
        predicate: Source | None = None,
        *,
        ttl: Lifetime | EllipsisType | None = ...,
        metadata: Notes | EllipsisType | None = ...,
    ) -> None:
        """Replace the predicate of a subscription atomically: each batch sees either the old or the new one.

        Omitted arguments change nothing. `ttl` counts from this call; None: it does not expire.
        ``update(id, ttl=60)`` renews a subscription without touching the index. Raises
        `UnknownSubscriptionError` also for an expired one, else the errors of `subscribe`.
        """
        self._parts.subscriber.replace(id, predicate, ttl, metadata)

    def repack(self, matcher: Factory | None = None) -> None:
        """Pack the index again, to make it smaller and faster; with `matcher`, replace the matcher.

        After many single subscriptions it may then answer twice as fast. Others match meanwhile. Raises
        `ValueError` for a matcher that cannot be had, `TypeError` if there is no R*-tree to pack.
        """
        self._parts.repack(matcher)

    def add_attributes(self, attributes: Mapping[str, Given]) -> None:
        """Add attributes, given as for `Schema`, after the present ones. Later predicates may use them.

        Matching and changes go on meanwhile. Rows of values, arrays and bounds need a column more for each
        new attribute; make replicas and tables of `Schema.read` again. Raises `TypeError` or `ValueError` for
        an attribute that cannot be added.
        """
        self._parts.updates.extend(attributes)

    def changes(self) -> Changes:
        """Return an object that collects the changes of subscriptions from now on, such as for a replica."""
        with self._road.gate.writing():
            return self._subscriptions.listen()

    def ids(self) -> AnyArray:
        """Return the ids of all subscriptions, ascending, int64 (n,), or object (n,) for text or UUIDs."""
        return self._parts.ids()

    def __iter__(self) -> Iterator[Id]:
        """Iterate over the present ids, ascending."""
        return iter(self.ids().tolist())

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return self._parts.count()

    def __contains__(self, id: object) -> bool:
        return self._parts.has(id)

    def __getitem__(self, id: Id) -> Subscription:
        """Return a subscription, or raise `UnknownSubscriptionError`; its metadata is a new dict."""
        return self._parts.subscription(id)

    # -- matching ------------------------------------------------------------------------------------

    def match(self, event: object) -> AnyArray:
        """Return the ids of the subscriptions that match one event, int64 (k,), or object (k,).

        The event is a dict, JSON text of an object, an ndarray of shape (number of attributes,), or a batch
        of one; see `match_batch`.
        """
        arrival, held = perf_counter(), self._subscriptions
        moment = -inf if held.labels.deadlines is None else held.moment()
        ids = self._road.match_one(event, arrival, moment)
        if moment > -inf:
            self._parts.updates.sweep(moment)
        return ids

    def match_batch(
        self,
        events: object,
        *,
        on_error: OnBadEvent = "raise",
        at: float | None = None,
        arrival: float | None = None,
    ) -> Matches:
        """Match a batch as a whole, with the least work; return all results at once.

        Parameters
        ----------
        events : list of dict or of rows, JSON text, ndarray, masked array, DataFrame or pyarrow.Table
            See `Schema.read`, whose result is also accepted. JSON text is parsed only for the attributes that
            subscriptions use, and for those with a domain.
        on_error : "raise", "skip" or callable
            By default an `EventError` refuses the batch. "skip" logs the number of unusable events, which
            match nothing; a callable, such as ``bad.append``, gets a `BadEvent` for each before the search.
        at : float, optional
            The moment for expiry and for ``NOW()``, in seconds of the filter's clock: by default now. With an
            earlier moment, some subscriptions that expired since may be missing.
        arrival : float, optional
            `time.perf_counter()` when the batch arrived, if it has waited since: the metrics measure
            responses from then.
        """
        begun = perf_counter()
        moment = self._subscriptions.moment() if at is None else moment_of(at)
        table = self._road.reader.many(events, on_error=on_error)
        matches = self._road.match(table, begun if arrival is None else arrival, moment)
        if at is None and moment > -inf:
            self._parts.updates.sweep(moment)
        return matches

    def stream(
        self, events: object, *, on_error: OnBadEvent = "raise", arrival: float | None = None
    ) -> Stream:
        """Match a batch; return an iterator that yields each event as soon as its matches are known.

        The controller chooses a plan, and the policy orders the events by their estimated workload (Wang et
        al.). The stream sees neither later changes nor later expiries. Do not change the events themselves
        (dicts, frames) before it ends. The parameters are those of `match_batch`.
        """
        begun = perf_counter()
        table = self._road.reader.many(events, on_error=on_error)
        return Stream(self._road, *self._road.stream(table, begun, begun if arrival is None else arrival))

    def any_match(self, events: object, *, on_error: OnBadEvent = "raise") -> BoolArray:
        """Return whether each event has a match, bool (n,). Faster than `match_batch`; not in the metrics."""
        moment = self._subscriptions.moment()
        found = self._road.any_match(self._road.reader.many(events, on_error=on_error), moment)
        if moment > -inf:
            self._parts.updates.sweep(moment)
        return found

    # -- looking inside ------------------------------------------------------------------------------

    def related(self, predicate: Source) -> Related:
        """Return the subscriptions that cover a predicate, are covered by it, or mean the same.

        The result has `covers`, `covered` and `equal`, each with the certain ids and the unknown ones (see
        `Predicate.covers`). Raises `PredicateError`.
        """
        return Related(self._road, parse(predicate, self.schema))

    @overload
    def explain(self, events: object, id: Id) -> Explanation: ...

    @overload
    def explain(self, events: object, *, ids: Id | Ids | None = None, limit: int | None = None) -> Misses: ...

    def explain(
        self, events: object, id: Id | None = None, *, ids: Any = None, limit: int | None = None
    ) -> Explanation | Misses:
        """Explain why one event matches a subscription or not, or list the nearest misses of many.

        Raises `UnknownSubscriptionError`, `EventError`, and `ValueError` for more than
        `rtfilter.predicates.explanations.misses.MAX_PAIRS` pairs.

        Parameters
        ----------
        events : as for `match_batch`; one event, if there is an `id`
        id : int, str or uuid.UUID, optional
            The subscription to explain constraint by constraint. For an event with lists, the elements are
            those with which the fewest constraints fail, and of these the nearest ones.
        ids : int, str, uuid.UUID, or array or list of them, optional
            Without `id`: subscriptions of the table, by default all. A pair takes about 7 us.
        limit : int, optional
            Most pairs in the table, by default 1000: the nearest ones.
        """
        from rtfilter.matching.explaining import explain_many, explain_one

        if id is None:
            return explain_many(self._road, events, ids, limit)
        if ids is not None or limit is not None:
            raise TypeError("explain takes one event and its `id`, or events with `ids` and `limit`")
        return explain_one(self._road, events, id)

    def stats(self) -> dict[str, Any]:
        """Return statistics of the index and its use, as a dict for JSON.

        The `version` is the number of calls that changed the subscriptions; snapshots keep it.
        """
        return self._parts.stats()

    # -- keeping -------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write a snapshot: a directory that `load` maps into memory. It replaces an older one atomically.

        Another thread packs and writes a copy of one version; matching and changes go on meanwhile. The copy
        takes the memory of a second index.
        """
        self._parts.save(path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        policy: str | Order = "shortest",
        controller: Controller | Named | None = None,
        metrics: bool | Metrics = False,
        matcher: Factory | MatcherChooser | None = None,
        clock: Callable[[], float] = time.time,
    ) -> EventFilter:
        """Open a snapshot that `save` wrote, by memory mapping. Raises `SnapshotError`.

        Changes stay in memory until you save again.

        `matcher` is required if the filter was saved with a class of your own. Otherwise it replaces the
        saved matcher; "auto" may keep the saved matcher, and a name alone may keep its saved options. By
        default the `controller` has the saved name and options. Give the `clock` of the saved filter, or a
        clock with the same zero: times of expiry refer to it.
        """
        loaded = cls.__new__(cls)
        loaded._take(FilterParts.load(path, policy, controller, metrics, matcher, clock))
        return loaded

    def __getstate__(self) -> dict[str, Any]:
        return self._parts.state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._take(FilterParts.of_state(state))

    def __repr__(self) -> str:
        return f"EventFilter({self.schema!r}, {len(self)} subscriptions)"


def part_of(filter: EventFilter, ids: Ids) -> EventFilter:
    """Return a new, packed filter with some subscriptions of another; ignore unknown ids."""
    made = EventFilter.__new__(EventFilter)
    made._take(filter._parts.part(ids))
    return made
