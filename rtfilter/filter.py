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

from rtfilter.basics.dtypes import AnyArray, BoolArray
from rtfilter.basics.options import Named
from rtfilter.basics.results import Matches
from rtfilter.events.schema import Given, Schema
from rtfilter.matchers.registry import Factory
from rtfilter.matching.cover_search import Related
from rtfilter.matching.filter_parts import FilterParts
from rtfilter.matching.stream import Stream
from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
from rtfilter.predicates.predicate import Source, parse
from rtfilter.scheduler import Order
from rtfilter.subscriptions.change_log import Changes
from rtfilter.subscriptions.ids import Name
from rtfilter.subscriptions.loading import Lifetime, OnError
from rtfilter.subscriptions.stored import Subscription

if TYPE_CHECKING:
    from rtfilter.adaptive import Controller, MatcherChooser
    from rtfilter.events.reading import OnBadEvent
    from rtfilter.predicates.explanations.explanation import Explanation
    from rtfilter.predicates.explanations.misses import Misses
    from rtfilter.watch.metrics import Metrics

Table = Mapping[str, Any]  # columns by name, such as a DataFrame or an Arrow table
Id = int | Name  # an integer, text or a UUID
Ids = ArrayLike | Sequence[Name]  # several of one type: int64, or object for text and UUIDs
Notes = Mapping[str, Any]  # metadata: values that JSON can hold, with text as keys
Lifetimes = Lifetime | Sequence[Lifetime | None]  # for all or for each; None: no expiry


class EventFilter:
    """Subscriptions over the attributes of a schema, and the events that match them.

    Safe for threads: a batch sees one version of the subscriptions, with every change that returned before
    the batch began. The ids of a filter are of one type: integers, text or UUIDs; arrays of text and of UUIDs
    have the dtype object. A call leaves out the subscriptions that expired before it began.

    Parameters
    ----------
    schema : Schema
        The attributes and their types.
    matcher : str, mapping, callable or MatcherChooser, optional
        The index. By default the filter begins with a scan, which needs no compiled code, and moves to the
        R*-tree once it is large. Else a name in `rtfilter.matchers`, such as "rtree" for the tree from the
        start; a name with options, such as ``{"name": "rtree", "capacity": (64, 512)}``, the most entries of
        an inner node and of a leaf; or a class of your own. With "auto", or a chooser, trials choose it.
    order : str or callable
        Order in which `stream` searches the events of a batch: "shortest" (first), "fifo", "longest", or a
        function from workloads int64 (n,) to a permutation int64 (n,), which must not call the filter.
    controller : str, mapping or Controller, optional
        Chooses the plan of each `stream`; by default `CostController`. A name in
        `rtfilter.adaptive.CONTROLLERS`, or ``{"name": "wang", "rounds": 32, "threshold": 1000}``, is kept in
        snapshots; a `Controller` is not.
    metrics : rtfilter.watch.metrics.Metrics, optional
        Observes the filter for Prometheus.
    ids : type, optional
        Type of all ids: int, str or uuid.UUID. By default the type of the first id.
    max_unbounded : int or None
        Most subscriptions without any bound, such as ``bid >= ask`` alone, which each verify nearly every
        event. None allows any number. Matchers that work without boxes have no limit.
    clock : callable
        Function that returns the time in seconds since 1970, for times to live and ``NOW()``.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        matcher: Factory | MatcherChooser | None = None,
        order: str | Order = "shortest",
        controller: Controller | Named | None = None,
        metrics: Metrics | None = None,
        ids: type | None = None,
        max_unbounded: int | None = MAX_UNBOUNDED,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._take(FilterParts.new(schema, matcher, order, controller, metrics, ids, clock))
        self._parts.configure(None, None, max_unbounded)

    def _take(self, parts: FilterParts) -> None:
        self._parts, self._road, self._subscriptions = parts, parts.road, parts.subscriptions

    @property
    def schema(self) -> Schema:
        """The schema of events and predicates; `add_attributes` extends it."""
        return self._subscriptions.schema

    def configure(
        self,
        *,
        order: str | Order | None = None,
        controller: Controller | Named | None = None,
        max_unbounded: int | EllipsisType | None = ...,
    ) -> None:
        """Change settings, given as for the constructor. A wrong one raises, and changes nothing."""
        self._parts.configure(order, controller, max_unbounded)

    # -- subscriptions -------------------------------------------------------------------------------

    @overload
    def subscribe(
        self, predicate: Source, id: int | None = None, *, ttl: Any = None, metadata: Notes | None = None
    ) -> int: ...

    @overload
    def subscribe(self, predicate: Source, id: Name, *, ttl: Any = None, metadata: Any = None) -> Name: ...

    def subscribe(
        self,
        predicate: Source,
        id: Id | None = None,
        *,
        ttl: Lifetime | None = None,
        metadata: Notes | None = None,
    ) -> Id:
        """Add a subscription; batches that begin after the call returns see it.

        Raises `PredicateError`, `ValueError` or `TypeError`, and then changes nothing.

        Parameters
        ----------
        predicate : SQL condition (str), event pattern (mapping) or Predicate
        id : int, str or uuid.UUID, optional
            An id that is not in use, 0 to 2**63 - 2 if an integer. By default the next free integer.
        ttl : float or timedelta, optional
            Seconds until it expires, finite and above 0. By default it does not expire.
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
            ``high.<attribute>``; optionally ``id``, ``ttl`` (seconds) or ``expires``, and ``metadata``.
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
            Closed bounds; timestamps are datetime64 or microseconds. Both ends infinite: don't care, the
            attribute may be missing. One end infinite: it must be present. A masked cell, None, NaT and null
            are infinite ends. The columns of a table, or mapping, are some of the attributes.
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

        Omitted arguments change nothing: ``update(id, ttl=60)`` renews it, from this call on. With the ttl
        None, it does not expire. Raises `UnknownSubscriptionError`, and the errors of `subscribe`.
        """
        self._parts.subscriber.replace(id, predicate, ttl, metadata)

    def repack(self, matcher: Factory | None = None) -> None:
        """Pack the index again, to make it smaller and faster; with `matcher`, replace the matcher.

        Other threads match meanwhile. Raises `ValueError`, or `TypeError` if there is no R*-tree to pack.
        """
        self._parts.repack(matcher)

    def add_attributes(self, attributes: Mapping[str, Given]) -> None:
        """Add attributes, given as for `Schema`, after the present ones. Later predicates may use them.

        Rows, arrays and bounds then need a column more for each; make replicas and tables of `Schema.read`
        again. Other threads match meanwhile. Raises `TypeError` or `ValueError`.
        """
        self._parts.updates.extend(attributes)

    def changes(self) -> Changes:
        """Return an object that collects the changes of subscriptions from now on, such as for a replica."""
        return self._parts.changes()

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

        The event is a dict, JSON text of an object, an array of its values, or a batch of one.
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
            `time.perf_counter()` when the batch arrived, from which the metrics measure responses.
        """
        return self._parts.match_batch(events, on_error, at, arrival)

    def stream(
        self, events: object, *, on_error: OnBadEvent = "raise", arrival: float | None = None
    ) -> Stream:
        """Match a batch; return an iterator that yields each event as soon as its matches are known.

        The controller chooses a plan, and `order` sorts the events by their estimated workload (Wang et al.).
        The stream sees neither later changes nor later expiries. Do not change the events themselves (dicts,
        frames) before it ends. The parameters are those of `match_batch`.
        """
        return self._parts.stream(events, on_error, arrival)

    # -- looking inside

    def related(self, predicate: Source) -> Related:
        """Return the subscriptions that cover a predicate, are covered by it, or mean the same.

        The result has `covers`, `covered` and `equal`, each with the certain and the unknown ids.
        Raises `PredicateError`.
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

        Raises `UnknownSubscriptionError`, `EventError`, and `ValueError` for too many pairs.

        Parameters
        ----------
        events : as for `match_batch`; one event, if there is an `id`
        id : int, str or uuid.UUID, optional
            The subscription to explain constraint by constraint. Of lists, the elements count with which the
            fewest constraints fail.
        ids : int, str, uuid.UUID, or array or list of them, optional
            Without `id`: subscriptions of the table, by default all. A pair takes about 7 us.
        limit : int, optional
            Most pairs in the table, by default 1000: the nearest ones.
        """
        return self._parts.explain(events, id, ids, limit)

    def stats(self) -> dict[str, Any]:
        """Return statistics of the index and its use, as a dict for JSON."""
        return self._parts.stats()

    # -- keeping -------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write a snapshot: a directory that `load` maps into memory. It replaces an older one atomically.

        Matching and changes go on meanwhile. Takes the memory of a second index.
        """
        self._parts.save(path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        matcher: Factory | MatcherChooser | None = None,
        order: str | Order = "shortest",
        controller: Controller | Named | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> EventFilter:
        """Open a snapshot that `save` wrote, by memory mapping. Changes stay in memory until you save again.

        Raises `SnapshotError`. The parameters are those of the constructor. By default, `matcher` and
        `controller` are the saved ones; a class of your own must be given again, and the `clock`, too, if it
        is not that of the constructor: times of expiry refer to it.
        """
        loaded = cls.__new__(cls)
        loaded._take(FilterParts.load(path, matcher, order, controller, metrics, clock))
        return loaded

    def __getstate__(self) -> dict[str, Any]:
        return self._parts.state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._take(FilterParts.of_state(state))

    def __repr__(self) -> str:
        return f"EventFilter({self.schema!r}, {len(self)} subscriptions)"


def inside(filter: EventFilter) -> FilterParts:
    """Return the parts of a filter: its matcher, its controller, and other things that users do not need."""
    return filter._parts


def part_of(filter: EventFilter, ids: Ids) -> EventFilter:
    """Return a new, packed filter with some subscriptions of another; ignore unknown ids."""
    made = EventFilter.__new__(EventFilter)
    made._take(filter._parts.part(ids))
    return made
