"""The filter: it takes subscriptions, matches batches of events, and releases each event once it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isnan
from numbers import Real
from os import PathLike
from time import perf_counter
from types import EllipsisType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.change_log import Changes
from rtfilter.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.errors import PredicateError, SnapshotError
from rtfilter.events.schema import Given, Schema
from rtfilter.index import ready
from rtfilter.matchers.port import Matcher
from rtfilter.matchers.registry import MATCHERS, Factory, factory_of, name_of
from rtfilter.matching.control import Control
from rtfilter.matching.cover_search import Related
from rtfilter.matching.event_reader import count_of
from rtfilter.matching.growing import LARGE, SMALL, WAITED, Growing
from rtfilter.matching.road import Road
from rtfilter.matching.stream import Stream
from rtfilter.matching.updates import Updates
from rtfilter.matching.verify import verify
from rtfilter.options import Named
from rtfilter.predicates.boxes import MAX_UNBOUNDED
from rtfilter.predicates.model import Predicate, Source, parse
from rtfilter.results import Matches
from rtfilter.scheduler import Order, resolve
from rtfilter.snapshots import arrays as snapshot
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.drafts import Draft, tell_impossible
from rtfilter.subscriptions.given import Lifetime, labels_of
from rtfilter.subscriptions.handles import LAST_MOMENT
from rtfilter.subscriptions.ids import Name, asked_ids, kind_of, new_ids, one_id
from rtfilter.subscriptions.labels import NO_LABELS, Beside
from rtfilter.subscriptions.loading import Load, OnError, require_on_error
from rtfilter.subscriptions.saved import from_arrays, to_arrays
from rtfilter.subscriptions.subscription import Subscription
from rtfilter.subscriptions.subscription_tables import Rules, no_list, read_rules, refuse_rows, refuse_twice
from rtfilter.watch.off import OFF, Off

if TYPE_CHECKING:
    from rtfilter.adaptive import Controller, MatcherChooser
    from rtfilter.predicates.explanation import Explanation
    from rtfilter.predicates.misses import Misses
    from rtfilter.watch.metrics import Metrics

KIND = "rtfilter.filter"

Table = Mapping[str, Any]
"""Columns by name, such as a pandas DataFrame or an Arrow table."""
Id = int | Name
"""An integer, text or a UUID."""
Notes = Mapping[str, Any]
"""Metadata: values that JSON can hold, with text as keys."""


class EventFilter:
    """Subscriptions over the attributes of a schema, and the events that match them.

    Safe for threads: many threads may match while another thread changes the subscriptions. A batch sees one
    version of the subscriptions, with every change that returned before the batch began. It waits for
    changes a few milliseconds at most, even if a call adds a million subscriptions.

    The ids of a filter are of one type: integers, text or UUIDs. Arrays of text and of UUIDs have the dtype
    object.

    A subscription may have a time to live. A call leaves out the subscriptions that have expired when it
    begins; a batch or a stream those that have expired when it arrives. Later changes and batches free their
    memory.

    A predicate that no event satisfies, such as ``price < 3 AND price > 5``, matches nothing. The logger
    ``rtfilter`` warns at the first call that adds such predicates; `Predicate.cost` shows each.

    Parameters
    ----------
    schema : Schema
        The attributes and their types.
    capacity : (int, int)
        Most entries of an inner node and of a leaf of the R*-tree; see `RStarTree`. The filter then is a tree
        from the start; other matchers have no nodes.
    policy : str or callable
        Order in which `stream` searches the events of a batch: "shortest" (first), "fifo", "longest", or a
        function from workloads int64 (n,) to a permutation int64 (n,), which must not call the filter.
    controller : str, mapping or Controller, optional
        Chooses the level and group size of each `stream`; by default an adaptive one, `CostController`.
        A name in `rtfilter.adaptive.CONTROLLERS`, or an object with a name and options, such as ``{"name":
        "wang", "rounds": 32, "threshold": 1000}``, is kept in snapshots; a `Controller` is not.
    metrics : bool or Metrics
        True, or a `rtfilter.watch.metrics.Metrics`, to observe for Prometheus.
    matcher : str, mapping, callable or MatcherChooser, optional
        The index. By default the filter begins with a scan, which needs no compiled code. It moves to the
        R*-tree, built by another thread, once it is large and the code of the tree is compiled. "rtree" is
        the tree from the start; other names are in `rtfilter.matchers`, or give a class of your own.
        An object has a name and options, such as ``{"name": "filter-nodes", "bit_lists": 0.1}``; snapshots
        keep it. With "auto", or a `rtfilter.adaptive.MatcherChooser`, trials choose the matcher, and `stats`
        says why.
    max_unbounded : int or None
        Most subscriptions without any bound, such as ``bid >= ask`` alone: each costs an exact check of
        nearly every event. The filter refuses more; None allows any number. Matchers that work without boxes
        have no limit. Snapshots keep the number, and load even if they hold more such subscriptions.
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
        if not isinstance(schema, Schema):
            raise TypeError(f"schema must be a Schema, as in Schema({{'price': float}}), not {schema!r}")
        if capacity is not None and matcher not in (None, LARGE):
            raise ValueError(f"capacity is only for the R*-tree; leave it out for the matcher {matcher!r}")
        options = {} if capacity is None else {"capacity": capacity}
        grows = matcher is None and capacity is None
        if matcher is None:
            matcher = SMALL if grows else LARGE
        fixed, chooser = _resolved(matcher)
        made = factory_of(fixed)(schema, **options)
        held = Subscriptions(schema, fixed, made, kind=kind_of(ids), clock=clock)
        self._configure(held, policy, controller, metrics, chooser, grows)
        self.max_unbounded = max_unbounded

    def _configure(
        self,
        subscriptions: Subscriptions,
        policy: str | Order,
        controller: Controller | Named | None,
        metrics: bool | Metrics,
        chooser: MatcherChooser | None = None,
        grows: bool = False,
    ) -> None:
        self._subscriptions = subscriptions
        control = Control(controller, subscriptions.updates)
        observer: Metrics | None = None
        if metrics is not False:
            from rtfilter.watch.metrics import Metrics

            observer = Metrics() if metrics is True else metrics
            if not isinstance(observer, Metrics):
                raise TypeError(
                    "metrics is True or a rtfilter.watch.metrics.Metrics, such as Metrics(registry); "
                    f"got the {type(metrics).__name__} {metrics!r:.60}"
                )
        self._road = Road(subscriptions, resolve(policy), control, observer)
        self._updates = Updates(self._road)
        self._told_impossible = False
        if chooser is not None:
            from rtfilter.matching.choosing import Choosing

            self._road.choosing = Choosing(self._road, self._updates, chooser)
        self._grows = grows
        if grows and subscriptions.factory == SMALL:
            self._road.growing = Growing(subscriptions, self._updates)
            self._road.look()
        if observer is not None:
            observer.observe_state(self._state)

    @property
    def schema(self) -> Schema:
        """The attributes of events and predicates; `add_attributes` adds some."""
        return self._subscriptions.schema

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.stats(), self._road.control.snapshot(self._subscriptions.updates)

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
        """The metrics; without ``metrics=True``, an object that is false and raises an error when used."""
        return OFF if self._road.metrics is None else self._road.metrics

    @metrics.setter
    def metrics(self, metrics: Metrics | Off | None) -> None:
        self._road.metrics = self._road.reader.metrics = metrics or None

    @property
    def matcher(self) -> Matcher:
        """The present index; `matcher.tree` is the `RStarTree` of one, `matcher.takes` says what it takes.

        The tree does not find patterns with long beginnings or ends, which `match` finds in a hash table.
        """
        return self._subscriptions.matcher

    @property
    def max_unbounded(self) -> int | None:
        """Most subscriptions without any bound; a number below the present one only refuses new ones."""
        return self._subscriptions.unbounded.most

    @max_unbounded.setter
    def max_unbounded(self, most: int | None) -> None:
        if most is not None and (type(most) is not int or most < 0):
            raise ValueError(f"max_unbounded is a number of subscriptions, or None for any; got {most!r:.60}")
        self._subscriptions.unbounded.most = most

    @property
    def _chooser(self) -> MatcherChooser | None:
        return None if self._road.choosing is None else self._road.choosing.chooser

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

        Parameters
        ----------
        predicate : str, mapping or Predicate
            An SQL condition, an event pattern, or a predicate object; see `docs/predicates.md`.
        id : int, str or uuid.UUID, optional
            An id that is not in use; an integer is from 0 to 2**63 - 2. By default the next free integer;
            these are never reused. The first id decides the type of all ids; see the class.
        ttl : float or timedelta, optional
            Seconds from this call until it expires, finite and above 0. By default it does not expire.
        metadata : dict, optional
            Data to keep with the subscription, at most 4096 bytes as JSON; see `metadata`.

        Raises
        ------
        PredicateError, ValueError
            The predicate or the id cannot be used; nothing is changed.
        TypeError
            The id, or a metadata key, has a wrong type; nothing is changed.
        """
        try:
            labels = NO_LABELS
            if ttl is not None or metadata is not None:
                notes = None if metadata is None else [metadata]
                lives = None if ttl is None else [ttl]
                labels = labels_of(1, lives, notes, self._subscriptions.clock)
            draft = self._subscriptions.draft([predicate])
            added = self._add(draft, None if id is None else one_id(id), labels)[0]
            return int(added) if isinstance(added, np.integer) else added
        except (PredicateError, ValueError):
            self._count_refused(1)
            raise

    def subscribe_many(
        self,
        where: Sequence[Source] | Any,
        *,
        ids: ArrayLike | Sequence[Name] | None = None,
        ttl: Lifetime | Sequence[Lifetime | None] | None = None,
        metadata: Sequence[Notes | None] | None = None,
        on_error: OnError = "raise",
    ) -> AnyArray:
        """Add many subscriptions from a list or table of predicates.

        The call adds all or none; with `on_error`, all that can be used.

        Parameters
        ----------
        where : sequence of str, mapping or Predicate
            n predicates. Predicates that differ only in constants are parsed together.
        where : DataFrame, Arrow table, stream of record batches, mapping of names to columns, or cursor
            A table with the column ``where``, or with closed bounds in the columns ``low.<attribute>`` and
            ``high.<attribute>``; and optionally ``id``, ``ttl`` (seconds) or ``expires`` (a moment), and
            ``metadata`` (an object, or JSON text). Other columns are ignored. From a cursor of a database,
            all remaining rows are fetched.
        ids : array_like of int, str or uuid.UUID (n,), optional
        ttl : float, timedelta or list of them (n,), optional
            As for `subscribe`: one for all, or one for each, where None means no expiry.
        metadata : list of dict (n,), optional
            As for `subscribe`, one for each; None for no metadata.
        on_error : "raise", "skip" or callable
            The treatment of a row that cannot be used, because of its predicate, id, time to live or
            metadata. "raise": raise an error for the first one and add nothing. "skip": leave it out, and
            log the number of such rows. A callable, such as ``bad.append``, gets a `BadSubscription` for
            each before the others are added; an exception from it ends the call, and nothing is added.

        Returns
        -------
        int64 (m,) or object (m,)
            The ids of the added subscriptions, in order.

        Raises
        ------
        PredicateError, ValueError
            A predicate or the ids cannot be used; nothing is changed. `row` is that of the predicate.
        """
        require_on_error(on_error)
        rules = read_rules(where, self.schema)
        if rules is not None:
            refuse_twice(rules, ids=ids, ttl=ttl, metadata=metadata)
            beside: dict[str, Any] = {"ids": ids, "ttl": ttl, "metadata": metadata}
            told = {name: given for name, given in beside.items() if given is not None}
            return self._load(rules._replace(**told), on_error)
        if isinstance(where, str | Mapping | Predicate):
            raise TypeError("subscribe_many takes a list of predicates; use subscribe for a single one")
        if not hasattr(where, "__len__"):
            raise no_list(where)
        refuse_rows(where, self.schema.attributes)
        if on_error != "raise":
            return self._load(Rules(where, ids, ttl, None, metadata), on_error)
        return self._add_all(where, lambda: self._subscriptions.draft(where), ids, ttl, metadata)

    def subscribe_boxes(
        self,
        low: ArrayLike | Table,
        high: ArrayLike | Table,
        *,
        ids: ArrayLike | Sequence[Name] | None = None,
        ttl: Lifetime | Sequence[Lifetime | None] | None = None,
        metadata: Sequence[Notes | None] | None = None,
    ) -> AnyArray:
        """Add many subscriptions by their bounds, one a row; all or none.

        Parameters
        ----------
        low, high : array_like (n, number of attributes), or table
            Closed bounds. Both ends infinite: don't care, the attribute may be missing. One end infinite:
            open on that side, the attribute must be present. A masked cell, None, NaT and null are infinite
            ends. A DataFrame, an Arrow table or a mapping of names to columns has the names of attributes as
            column names, and may leave out attributes. Timestamps are datetime64 or microseconds. See
            `rtfilter.predicates.bounds.compile_bounds`.
        ids, ttl, metadata : optional
            As for `subscribe_many`.

        Returns
        -------
        int64 (n,) or object (n,)

        Raises
        ------
        PredicateError, ValueError
            A bound or the ids cannot be used; nothing is changed. `row` is that of the bound.
        """
        return self._add_all(low, lambda: self._subscriptions.draft_bounds(low, high), ids, ttl, metadata)

    def _add_all(
        self, given: object, read: Callable[[], Draft], ids: Any, ttl: Any, metadata: Any
    ) -> AnyArray:
        try:
            draft = read()
            count = len(draft.filters)
            labels = labels_of(count, ttl, metadata, self._subscriptions.clock)
            return self._add(draft, None if ids is None else new_ids(ids, count), labels)
        except (PredicateError, ValueError):
            self._count_refused(count_of(given))
            raise

    def _load(self, rules: Rules, on_error: OnError) -> AnyArray:
        """Add the subscriptions that can be used, and treat the others as `on_error` says."""
        load = Load(self._subscriptions, rules, on_error)
        try:
            while True:
                with self._road.gate.reading():
                    load.note_known()
                draft, names = load.draft()
                try:
                    return self._add(draft, names, draft.labels)
                except PredicateError as error:
                    if not load.refuse_unbounded(draft, error):
                        raise
                except ValueError:  # another thread may have added one of these meanwhile
                    with self._road.gate.reading():
                        if not load.note_known():
                            raise
        finally:
            self._count_refused(len(load.bad))

    def _count_refused(self, number: int) -> None:
        if self._road.metrics is not None:
            self._road.metrics.refused += number

    def _add(self, draft: Draft, ids: IntArray | list[Name] | None, labels: Beside) -> AnyArray:
        names = self._updates.add(draft if labels is NO_LABELS else draft._replace(labels=labels), ids)
        if not self._told_impossible:
            self._told_impossible = tell_impossible(draft)
        if self._road.metrics is not None:
            self._road.metrics.added += len(names)
        return names

    def unsubscribe(self, id: Id) -> bool:
        """Remove a subscription; return False, and change nothing, if the id is unknown."""
        given: Any = id if type(id) is int else [id]
        return bool(self.unsubscribe_many(given)[0])

    def unsubscribe_many(self, ids: ArrayLike | Sequence[Name]) -> BoolArray:
        """Remove subscriptions; return which of the ids were known, bool (n,).

        Raises `TypeError` for ids of another type than those of the filter. Integers outside the range of ids
        are unknown.
        """
        known = self._updates.remove(asked_ids(ids, self._subscriptions.kind))
        if self._road.metrics is not None:
            self._road.metrics.removed += int(known.sum())
        return known

    def update(
        self,
        id: Id,
        predicate: Source | None = None,
        *,
        ttl: Lifetime | EllipsisType | None = ...,
        metadata: Notes | EllipsisType | None = ...,
    ) -> None:
        """Replace the predicate of a subscription atomically: each batch sees either the old or the new one.

        Omitted arguments change nothing: a new predicate keeps the expiry and the metadata.

        Parameters
        ----------
        id : int, str or uuid.UUID
        predicate : str, mapping or Predicate, optional
        ttl : float or timedelta, optional
            Counted from this call, as for `subscribe`; None: it does not expire. `update(id, ttl=60)` renews
            a subscription without touching the index.
        metadata : dict, optional
            New metadata in place of the old; None for none.

        Raises
        ------
        UnknownSubscriptionError, PredicateError, ValueError, TypeError
            Nothing is changed. An expired subscription is unknown; subscribe it again.
        """
        labels = NO_LABELS
        try:
            if ttl is not ... or metadata is not ...:
                labels = labels_of(
                    1,
                    None if ttl is ... else [ttl],
                    None if metadata is ... else [metadata],
                    self._subscriptions.clock,
                )
            elif predicate is None:
                raise TypeError("there is nothing to update: give a predicate, ttl or metadata")
            draft = None if predicate is None else self._subscriptions.draft([predicate])
            self._updates.replace(id, draft, labels)
            if draft is not None and not self._told_impossible:
                self._told_impossible = tell_impossible(draft)
        except (PredicateError, ValueError):
            self._count_refused(1)
            raise

    def repack(self, matcher: Factory | None = None) -> None:
        """Pack the index again: after many single subscriptions, it may then answer twice as fast.

        Another thread packs the new index, about 2 us a box; matching and changes go on meanwhile.

        Parameters
        ----------
        matcher : str, mapping or callable, optional
            Another matcher, or the same with other options, for the filter from then on; see the class.

        Raises
        ------
        ValueError
            The matcher is unknown, or does not take all subscriptions, or a `MatcherChooser` chooses it.
        """
        if matcher is not None:
            if self._road.choosing is not None:
                raise ValueError(
                    "trials choose the matcher of this filter; make a new filter for another one"
                )
            if not factory_of(matcher)(self.schema).takes.everything:
                name = name_of(matcher)
                raise ValueError(f"the matcher {name!r} does not take all subscriptions; make a new filter")
            self._updates.repack(matcher)
            self._grows = False
            return
        if self._road.choosing is None and self._road.growing is None:
            from rtfilter.matchers.rtree import tree_of

            tree_of(self.matcher)  # raises if there is none
        self._updates.repack()

    def add_attributes(self, attributes: Mapping[str, Given]) -> None:
        """Add attributes to the schema, after the present ones.

        Predicates may use them from then on. Another thread builds the index again, about 2 us a box;
        matching and changes go on meanwhile. Events of batches that began before lack the new attributes.
        Rows of values, arrays and bounds need a column more for each new attribute; make replicas and tables
        of `Schema.read` again.

        Parameters
        ----------
        attributes : mapping of str to type, str, mapping or Attribute
            As of `Schema`.

        Raises
        ------
        TypeError, ValueError
            No mapping, an unusable name, type or domain, an attribute that exists already, or a type that
            the matcher does not take.

        Examples
        --------
        >>> filter = EventFilter(Schema({"price": float}))
        >>> filter.subscribe("price > 10")
        0
        >>> filter.add_attributes({"volume": int})
        >>> filter.subscribe("price > 10 AND volume > 500")
        1
        >>> filter.match({"price": 12.0, "volume": 900}).tolist()
        [0, 1]
        """
        self._updates.extend(attributes)

    def changes(self) -> Changes:
        """Return the changes from now on, for replicas and routers; without a listener they cost nothing.

        Examples
        --------
        >>> filter = EventFilter(Schema({"price": float}))
        >>> with filter.changes() as changes:
        ...     filter.subscribe("price > 10", id=3)
        ...     filter.unsubscribe(3)
        ...     [(one.version, one.added.ids.tolist(), one.removed.tolist()) for one in changes]
        3
        True
        [(1, [3], []), (2, [], [3])]
        """
        with self._road.gate.writing():
            return self._subscriptions.listen()

    def ids(self) -> AnyArray:
        """Return the ids of all subscriptions, ascending, int64 (n,), or object (n,) for text or UUIDs."""
        with self._road.gate.reading():
            ids = self._subscriptions.ids(self._subscriptions.moment())
        return np.sort(ids) if ids.dtype == object else ids

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        held = self._subscriptions
        with self._road.gate.reading():
            return len(held) if held.labels.deadlines is None else held.count(held.moment())

    def __contains__(self, id: object) -> bool:
        with self._road.gate.reading():
            return self._subscriptions.has(id)

    # -- matching ------------------------------------------------------------------------------------

    def match(self, event: object) -> AnyArray:
        """Return the ids of the subscriptions that match one event, int64 (k,), or object (k,).

        Parameters
        ----------
        event : dict, JSON text of an object, ndarray of shape (number of attributes,), or a batch of one
            See `Schema.read`. Text is parsed faster than by ``json.loads``: see `match_batch`.
        """
        arrival, held = perf_counter(), self._subscriptions
        moment = -inf if held.labels.deadlines is None else held.moment()
        ids = self._road.match_one(event, arrival, moment)
        if moment > -inf:
            self._updates.sweep(moment)
        return ids

    def match_batch(
        self, events: object, *, at: float | None = None, arrival: float | None = None
    ) -> Matches:
        """Match a batch as a whole: the least work, all results at once.

        Parameters
        ----------
        events : list of dict or of rows, JSON text, ndarray, masked array, DataFrame or pyarrow.Table
            See `Schema.read`, whose result is also accepted. JSON text is parsed for the attributes that
            subscriptions use, and for those with a domain; the parser skips the rest. It reads the first
            events completely, and later an occasional one, to report misspelt attributes.
        at : float, optional
            The moment for expiry and for ``NOW()``, in seconds of the filter's clock: by default now. With an
            earlier moment, some subscriptions that expired since may be missing, because they are removed in
            time.
        arrival : float, optional
            `time.perf_counter()` when the batch arrived, if it has waited since: the metrics measure
            responses from then. By default it arrives with this call. It does not change which
            subscriptions have expired.
        """
        begun = perf_counter()
        moment = self._subscriptions.moment() if at is None else _moment(at)
        table = self._road.reader.many(events)
        matches = self._road.match(table, begun if arrival is None else arrival, moment)
        if at is None and moment > -inf:
            self._updates.sweep(moment)
        return matches

    def stream(self, events: object, *, arrival: float | None = None) -> Stream:
        """Match a batch so that each event is released early: return an iterator in order of completion.

        The controller chooses a level and a group size. A shared traversal to that level estimates the
        workload of each event, and the policy orders the events. Each group is released once it is searched
        (Wang et al.). You may change subscriptions while the stream is open; the stream sees neither the
        changes nor later expiries. Do not change the events themselves (dicts, frames) before it ends.

        Parameters
        ----------
        events, arrival
            As for `match_batch`. The plan is not blamed for the time that a batch waited before this call.
        """
        begun = perf_counter()
        table = self._road.reader.many(events)
        return Stream(self._road, *self._road.stream(table, begun, begun if arrival is None else arrival))

    def any_match(self, events: object) -> BoolArray:
        """Return whether each event has a match, bool (n,). Faster than `match_batch`; without metrics."""
        moment = self._subscriptions.moment()
        table = self._road.reader.many(events)
        with self._road.gate.reading(), self._road.turn:
            # The first match might be hidden or expired.
            held, now = self._subscriptions, self._subscriptions.now(moment)
            table = held.whole(table)
            unsure = table.choices is not None and (table.choices.partial is not None or held.listed)
            first_only = not unsure and not held.hides(moment)
            hits = held.matcher.match(held.searched(table, now), first_only=first_only)
            offsets, _ = verify(hits, table, held, None, moment, now)
        if moment > -inf:
            self._updates.sweep(moment)
        return np.diff(offsets) > 0

    # -- looking before adding -----------------------------------------------------------------------

    def related(self, predicate: Source) -> Related:
        """Return the subscriptions that cover a predicate, are covered by it, or mean the same.

        The result has `covers`, `covered` and `equal`, each with the certain ids and the unknown ones (see
        `Predicate.covers`). Raises `PredicateError`.
        """
        return Related(self._road, parse(predicate, self.schema))

    # -- looking inside ------------------------------------------------------------------------------

    @overload
    def explain(self, events: object, id: Id) -> Explanation: ...

    @overload
    def explain(
        self,
        events: object,
        *,
        ids: Id | ArrayLike | Sequence[Name] | None = None,
        limit: int | None = None,
    ) -> Misses: ...

    def explain(
        self, events: object, id: Id | None = None, *, ids: Any = None, limit: int | None = None
    ) -> Explanation | Misses:
        """Explain why one event matches a subscription or not, or list the nearest misses of many.

        With `id`: each constraint, and by how much it fails. For an event with lists, each conjunction is
        explained with elements that satisfy it. If there are none, the elements are those with which the
        fewest constraints fail, and of these the nearest ones.

        Without `id`: a table. Each pair of an event and a subscription is checked directly, without the
        index, which takes about 7 us a pair; other threads match meanwhile.

        Parameters
        ----------
        events : list of dict or of rows, ndarray, masked array, DataFrame or pyarrow.Table, or one event
            See `Schema.read`. One event, if there is an `id`.
        id : int, str or uuid.UUID, optional
        ids : int, str, uuid.UUID, or array or list of them, optional
            Subscriptions of the table; by default all.
        limit : int, optional
            Most pairs in the table, by default 1000: the pairs in which the fewest constraints fail, and
            among them those that miss by the least.

        Raises
        ------
        UnknownSubscriptionError
        EventError
            An event cannot be read.
        ValueError
            There are more than `rtfilter.predicates.misses.MAX_PAIRS` pairs; each choice of elements of an
            event with lists counts.

        Examples
        --------
        >>> alerts = EventFilter(Schema({"price": float}))
        >>> alerts.subscribe_many(["price < 10", "price < 15", "price > 20"]).tolist()
        [0, 1, 2]
        >>> print(alerts.explain([{"price": 12.5}, {}]))
        1 of 6 pairs match; the 5 others, nearest first
        event  subscription  constraint  value  by how much
        0      0             price < 10  12.5   too high by 2.5
        0      2             price > 20  12.5   too low by 7.5
        1      0             price < 10         missing
        1      1             price < 15         missing
        1      2             price > 20         missing
        """
        from rtfilter.matching.explaining import explain_many, explain_one

        if id is None:
            return explain_many(self._road, events, ids, limit)
        if ids is not None or limit is not None:
            raise TypeError("explain takes one event and its `id`, or events with `ids` and `limit`")
        return explain_one(self._road, events, id)

    def __getitem__(self, id: Id) -> Subscription:
        """Return a subscription: predicate, metadata (a new dict) and expiry.

        Raises
        ------
        UnknownSubscriptionError
        """
        held = self._subscriptions
        with self._road.gate.reading():
            moment = held.moment()
            predicate, text = held.predicate(id, moment), held.metadata(id, moment)
            expires = held.expires(id, moment)
        metadata = None if text is None else json.loads(text)
        checked = Predicate.checked(predicate.filters, self.schema)
        return Subscription(checked, metadata, None if expires == inf else expires)

    def __iter__(self) -> Iterator[Id]:
        """Iterate over the present ids, ascending."""
        return iter(self.ids().tolist())

    def stats(self) -> dict[str, Any]:
        """Return statistics of the index and its use, JSON-able.

        The `version` is the number of calls that changed the subscriptions; snapshots keep it.
        """
        held, choosing = self._subscriptions, self._road.choosing
        chosen = None if choosing is None else choosing.snapshot()
        with self._road.gate.reading():
            found = held.matcher.stats()
            if "updates" in found:
                found["updates"] = held.updates
            return {
                "subscriptions": len(self),
                "version": held.version,
                "unbounded": held.unbounded.count(held.labels.deadlines, held.moment()),
                "expired": held.expired,
                **found,
                "matcher": {"name": held.name} if chosen is None else chosen,
                "in_flight_batches": self._road.gate.readers - 1,
                "misspelt": self._road.reader.odd.misspelt,
                "ill_typed": self._road.reader.odd.ill_typed,
                "verified": {**held.verified.stats(), "dearest": self._dearest()},
            }

    def _dearest(self) -> list[dict[str, Any]]:
        """Return the subscriptions that were verified most often, each with its share of a sample."""
        held, found = self._subscriptions, []
        for handle, share in held.verified.dearest():
            if handle in held:
                (id,) = held.labels.ids(np.array([handle])).tolist()
                found.append({"id": id if isinstance(id, int) else str(id), "share": round(share, 3)})
        return found

    # -- keeping -------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write a snapshot: a directory that `load` maps into memory. It replaces an older one atomically.

        It has one version of the subscriptions. Another thread packs and writes a copy; matching and changes
        go on meanwhile. The copy takes the memory of a second index.
        """
        snapshot.write(path, KIND, *self._saved())

    def _saved(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        # The snapshot of a small filter has a scan: it loads at once, without compiled code.
        small = self._grows and len(self._subscriptions) < WAITED
        meta, arrays = to_arrays(self._updates.copy(SMALL if small else None))
        if self._chooser is not None:
            meta["auto"] = self._chooser.options
        if self._grows:
            meta["grows"] = True
        if self._road.control.named is not None:
            meta["controller"] = self._road.control.named
        return meta, arrays

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
        """Open a snapshot by memory mapping; changes stay in memory until you save. Raises `SnapshotError`.

        `matcher` is required if the filter was saved with a class of your own. Otherwise it replaces the
        saved matcher; "auto" may keep the saved matcher, and a name alone may keep its saved options. By
        default the `controller` has the saved name and options. Give the `clock` of the saved filter, or a
        clock with the same zero: times of expiry refer to it.
        """
        found = snapshot.read(path, KIND)
        name = found.meta.get("matcher", "rtree")
        if matcher is None and name not in list(MATCHERS):  # a damaged name may have no hash
            raise SnapshotError(f"{path} was saved with the matcher {name!r}; pass it to load as `matcher`")
        other, chooser = (None, None) if matcher is None else _resolved(matcher)
        if other is not None:
            factory_of(other)  # raises for a wrong argument, before the snapshot is blamed
        loaded = cls.__new__(cls)
        grows = matcher is None and bool(found.meta.get("grows"))
        if grows and name == LARGE:
            ready.load()
        with snapshot.opening(path):
            if matcher is None:
                chooser = _saved_chooser(found.meta)
            if chooser is not None:
                other = None if name in chooser.candidates else chooser.matcher
            held = from_arrays(found.meta, found.arrays, other, clock=clock)
            if controller is None:
                controller = _saved_controller(found.meta)
        loaded._configure(held, policy, controller, metrics, chooser, grows)
        return loaded

    def __getstate__(self) -> dict[str, Any]:
        meta, arrays = self._saved()
        copies = {name: np.asarray(array) for name, array in arrays.items()}
        chosen = {"policy": self.policy, "matcher": self._subscriptions.factory}
        return {"schema": self.schema, "meta": meta, "arrays": copies, **chosen}

    def __setstate__(self, state: dict[str, Any]) -> None:
        name = state["meta"]["matcher"]
        factory = name if name in MATCHERS else state["matcher"]
        held = from_arrays(state["meta"], state["arrays"], factory, state["schema"])
        chooser = _saved_chooser(state["meta"])
        # A copy does not have the knowledge of the controller.
        controller = _saved_controller(state["meta"])
        self._configure(held, state["policy"], controller, False, chooser, bool(state["meta"].get("grows")))

    def __repr__(self) -> str:
        return f"EventFilter({self.schema!r}, {len(self)} subscriptions)"


def part_of(filter: EventFilter, ids: ArrayLike | Sequence[Name]) -> EventFilter:
    """Return a new, packed filter with some subscriptions of another; ignore unknown ids."""
    held, road = filter._subscriptions, filter._road
    wanted = asked_ids(ids, held.kind)
    with road.gate.reading():
        part = held.part(wanted, held.moment())
    made = EventFilter.__new__(EventFilter)
    made._configure(part, filter.policy, road.control.named, False, _like(filter._chooser), filter._grows)
    return made


def _resolved(matcher: Factory | MatcherChooser) -> tuple[Factory, MatcherChooser | None]:
    """Return `rtfilter.matching.choosing.resolved`; imported here because a plain name does not need it."""
    if isinstance(matcher, str) and matcher in MATCHERS:
        return matcher, None
    from rtfilter.matching.choosing import resolved

    return resolved(matcher)


def _like(chooser: MatcherChooser | None) -> MatcherChooser | None:
    if chooser is None:
        return None
    from rtfilter.adaptive import MatcherChooser

    return MatcherChooser(**chooser.options)


def _saved_chooser(meta: Mapping[str, Any]) -> MatcherChooser | None:
    """Return the chooser of a snapshot or a pickle, if it had one. Raises `ValueError` or `TypeError`."""
    if "auto" not in meta:
        return None
    from rtfilter.adaptive import MatcherChooser

    return _resolved(MatcherChooser(**meta["auto"]))[1]


def _saved_controller(meta: Mapping[str, Any]) -> Named | None:
    """Return the name and options of the controller of a snapshot or a pickle. Raises `ValueError`."""
    named: Named | None = meta.get("controller")
    if named is not None:
        from rtfilter.adaptive import make_controller

        make_controller(named)
    return named


def _moment(at: Any) -> float:
    if isinstance(at, bool) or not isinstance(at, Real) or isnan(at):
        raise TypeError(f"at is a number of seconds of the filter's clock, not {at!r:.60}")
    return min(float(at), LAST_MOMENT)
