"""The parts of a filter: made from arguments, from a snapshot, or from another filter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import inf, isnan
from numbers import Real
from os import PathLike
from time import perf_counter
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.errors import SnapshotError
from rtfilter.basics.options import Named
from rtfilter.basics.results import Matches
from rtfilter.events.schema import Schema
from rtfilter.index import ready
from rtfilter.matchers.port import Matcher
from rtfilter.matchers.registry import MATCHERS, Factory, factory_of, name_of
from rtfilter.matching.control import Control
from rtfilter.matching.growing import LARGE, SMALL, WAITED, Growing
from rtfilter.matching.road import Road
from rtfilter.matching.stream import Stream
from rtfilter.matching.subscriber import Subscriber
from rtfilter.matching.updates import Updates
from rtfilter.predicates.predicate import Predicate
from rtfilter.scheduler import Order, resolve
from rtfilter.snapshots import arrays as snapshot
from rtfilter.subscriptions.change_log import Changes
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.handles import LAST_MOMENT
from rtfilter.subscriptions.ids import Name, asked_ids, kind_of
from rtfilter.subscriptions.saved import from_arrays, to_arrays
from rtfilter.subscriptions.stored import Subscription

if TYPE_CHECKING:
    from rtfilter.adaptive import Controller, MatcherChooser
    from rtfilter.events.reading import OnBadEvent
    from rtfilter.predicates.explanations.explanation import Explanation
    from rtfilter.predicates.explanations.misses import Misses
    from rtfilter.watch.metrics import Metrics

KIND = "rtfilter.filter"


class FilterParts:
    """The subscriptions of a filter, and all that searches and changes them.

    Parameters
    ----------
    subscriptions : Subscriptions
    order, controller, metrics
        As of `EventFilter`.
    chooser : MatcherChooser, optional
    grows : bool
        True if the filter may move to the R*-tree, or has moved.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        order: str | Order,
        controller: Controller | Named | None,
        metrics: Metrics | None = None,
        chooser: MatcherChooser | None = None,
        grows: bool = False,
    ) -> None:
        control = Control(controller, subscriptions.updates)
        if metrics is not None:
            from rtfilter.watch.metrics import Metrics

            if not isinstance(metrics, Metrics):
                raise TypeError(
                    "metrics is a rtfilter.watch.metrics.Metrics, such as Metrics(registry); "
                    f"got the {type(metrics).__name__} {metrics!r:.60}"
                )
        self.subscriptions = subscriptions
        self.road = Road(subscriptions, resolve(order), control, metrics)
        self.updates = Updates(self.road)
        self.subscriber = Subscriber(self.road, self.updates)
        self._grows = grows
        if chooser is not None:
            from rtfilter.matching.choosing import Choosing

            self.road.choosing = Choosing(self.road, self.updates, chooser)
        if grows and subscriptions.factory == SMALL:
            self.road.growing = Growing(subscriptions, self.updates.grow)
            self.road.look()
        if metrics is not None:
            metrics.observe_state(lambda: (self.stats(), control.snapshot(subscriptions.updates)))

    @classmethod
    def new(
        cls,
        schema: Schema,
        matcher: Factory | MatcherChooser | None,
        order: str | Order,
        controller: Controller | Named | None,
        metrics: Metrics | None,
        ids: type | None,
        clock: Callable[[], float],
    ) -> Self:
        """Make the parts of an empty filter; the parameters are those of `EventFilter`."""
        if not isinstance(schema, Schema):
            raise TypeError(f"schema must be a Schema, as in Schema({{'price': float}}), not {schema!r}")
        fixed, chooser = _resolved(SMALL if matcher is None else matcher)
        held = Subscriptions(schema, fixed, factory_of(fixed)(schema), kind=kind_of(ids), clock=clock)
        return cls(held, order, controller, metrics, chooser, grows=matcher is None)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        matcher: Factory | MatcherChooser | None,
        order: str | Order,
        controller: Controller | Named | None,
        metrics: Metrics | None,
        clock: Callable[[], float],
    ) -> Self:
        """Open a snapshot; the parameters are those of `EventFilter.load`."""
        found = snapshot.read(path, KIND)
        name = found.meta.get("matcher", "rtree")
        if matcher is None and name not in list(MATCHERS):  # a damaged name may have no hash
            raise SnapshotError(f"{path} was saved with the matcher {name!r}; pass it to load as `matcher`")
        other, chooser = (None, None) if matcher is None else _resolved(matcher)
        if other is not None:
            factory_of(other)  # raises for a wrong argument, before the snapshot is blamed
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
        return cls(held, order, controller, metrics, chooser, grows)

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """Make the parts of a copy, from what `state` returned. It lacks the controller's knowledge."""
        meta, matcher = state["meta"], state["meta"]["matcher"]
        held = from_arrays(
            meta, state["arrays"], matcher if matcher in MATCHERS else state["matcher"], state["schema"]
        )
        chooser, controller = _saved_chooser(meta), _saved_controller(meta)
        return cls(held, state["order"], controller, None, chooser, bool(meta.get("grows")))

    def part(self, ids: Any) -> FilterParts:
        """Make the parts of a packed filter that has some of these subscriptions; ignore unknown ids."""
        wanted = asked_ids(ids, self.subscriptions.kind)
        with self.road.gate.reading():
            part = self.subscriptions.part(wanted, self.subscriptions.moment())
        chooser = self._chooser
        if chooser is not None:
            chooser = type(chooser)(**chooser.options)
        return FilterParts(part, self.road.order, self.road.control.named, None, chooser, self._grows)

    @property
    def matcher(self) -> Matcher:
        """The index in use. An R*-tree lacks the long beginnings and ends, which a hash table finds."""
        return self.subscriptions.matcher

    @property
    def metrics(self) -> Metrics | None:
        """The metrics, if the filter has any."""
        return self.road.metrics

    @property
    def controller(self) -> Controller:
        """The controller that chooses the plan of each stream."""
        return self.road.control.controller

    def configure(
        self,
        order: str | Order | None,
        controller: Controller | Named | None,
        max_unbounded: int | EllipsisType | None,
    ) -> None:
        """Change the settings that are given; see `EventFilter.configure`."""
        new, limits = self.road.order if order is None else resolve(order), self.subscriptions.unbounded
        most = limits.most if max_unbounded is ... else _checked_limit(max_unbounded)
        if controller is not None:
            self.road.control.controller = controller  # raises for a wrong one, before the rest is changed
        self.road.order, limits.most = new, most

    @property
    def _chooser(self) -> MatcherChooser | None:
        return None if self.road.choosing is None else self.road.choosing.chooser

    # -- saving --------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write a snapshot."""
        snapshot.write(path, KIND, *self._saved())

    def state(self) -> dict[str, Any]:
        """Return what a pickle has."""
        meta, arrays = self._saved()
        copies = {name: np.asarray(array) for name, array in arrays.items()}
        chosen = {"order": self.road.order, "matcher": self.subscriptions.factory}
        return {"schema": self.subscriptions.schema, "meta": meta, "arrays": copies, **chosen}

    def _saved(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        # The snapshot of a small filter has a scan: it loads at once, without compiled code.
        small = self._grows and len(self.subscriptions) < WAITED
        meta, arrays = to_arrays(self.updates.copy(SMALL if small else None))
        if self._chooser is not None:
            meta["auto"] = self._chooser.options
        if self._grows:
            meta["grows"] = True
        if self.road.control.named is not None:
            meta["controller"] = self.road.control.named
        return meta, arrays

    # -- the index -----------------------------------------------------------------------------------

    def repack(self, matcher: Factory | None = None) -> None:
        """Pack the index again, or build another; see `EventFilter.repack`."""
        if matcher is not None:
            if self.road.choosing is not None:
                raise ValueError(
                    "trials choose the matcher of this filter; make a new filter for another one"
                )
            if not factory_of(matcher)(self.subscriptions.schema).takes.everything:
                name = name_of(matcher)
                raise ValueError(f"the matcher {name!r} does not take all subscriptions; make a new filter")
            self.updates.repack(matcher)
            self._grows = False
            return
        if self.road.choosing is None and self.road.growing is None:
            from rtfilter.matchers.rtree import tree_of

            tree_of(self.subscriptions.matcher)  # raises if there is none
        self.updates.repack()

    # -- matching ------------------------------------------------------------------------------------

    def match_batch(
        self, events: object, on_error: OnBadEvent, at: float | None, arrival: float | None
    ) -> Matches:
        """Match a batch as a whole; see `EventFilter.match_batch`."""
        begun = perf_counter()
        moment = self.subscriptions.moment() if at is None else moment_of(at)
        table = self.road.reader.many(events, on_error=on_error)
        matches = self.road.match(table, begun if arrival is None else arrival, moment)
        if at is None and moment > -inf:
            self.updates.sweep(moment)
        return matches

    def stream(self, events: object, on_error: OnBadEvent, arrival: float | None) -> Stream:
        """Match a batch event by event; see `EventFilter.stream`."""
        begun = perf_counter()
        table = self.road.reader.many(events, on_error=on_error)
        return Stream(self.road, *self.road.stream(table, begun, begun if arrival is None else arrival))

    def explain(
        self, events: object, id: int | Name | None, ids: Any, limit: int | None
    ) -> Explanation | Misses:
        """Explain one pair, or many; see `EventFilter.explain`."""
        from rtfilter.matching.explaining import explain_many, explain_one

        if id is None:
            return explain_many(self.road, events, ids, limit)
        if ids is not None or limit is not None:
            raise TypeError("explain takes one event and its `id`, or events with `ids` and `limit`")
        return explain_one(self.road, events, id)

    # -- the subscriptions ---------------------------------------------------------------------------

    def changes(self) -> Changes:
        """Return an object that collects the changes from now on."""
        with self.road.gate.writing():
            return self.subscriptions.listen()

    def ids(self) -> AnyArray:
        """Return the present ids, ascending."""
        with self.road.gate.reading():
            ids = self.subscriptions.ids(self.subscriptions.moment())
        return np.sort(ids) if ids.dtype == object else ids

    def has(self, id: object) -> bool:
        """Return whether an id is that of a subscription."""
        with self.road.gate.reading():
            return self.subscriptions.has(id)

    def subscription(self, id: int | Name) -> Subscription:
        """Return a subscription; raise `UnknownSubscriptionError`."""
        held = self.subscriptions
        with self.road.gate.reading():
            moment = held.moment()
            predicate, text = held.predicate(id, moment), held.metadata(id, moment)
            expires = held.expires(id, moment)
        metadata = None if text is None else json.loads(text)
        checked = Predicate.checked(predicate.filters, held.schema)
        return Subscription(checked, metadata, None if expires == inf else expires)

    def count(self) -> int:
        """Return the number of present subscriptions."""
        held = self.subscriptions
        with self.road.gate.reading():
            return len(held) if held.labels.deadlines is None else held.count(held.moment())

    def stats(self) -> dict[str, Any]:
        """Return statistics of the index and its use; see `EventFilter.stats`."""
        held, road = self.subscriptions, self.road
        chosen = None if road.choosing is None else road.choosing.snapshot()
        with road.gate.reading():
            found = held.matcher.stats()
            if "updates" in found:
                found["updates"] = held.updates
            return {
                "subscriptions": self.count(),
                "version": held.version,
                "unbounded": held.unbounded.count(held.labels.deadlines, held.moment()),
                "expired": held.expired,
                **found,
                "matcher": {"name": held.name} if chosen is None else chosen,
                "in_flight_batches": road.gate.readers - 1,
                "misspelt": road.reader.odd.misspelt,
                "ill_typed": road.reader.odd.ill_typed,
                "verified": {**held.verified.stats(), "dearest": self._dearest()},
            }

    def _dearest(self) -> list[dict[str, Any]]:
        """Return the subscriptions that were verified most often, as a sample has them; see `Dear`."""
        held, found = self.subscriptions, []
        for handle, share, matched in held.verified.dearest():
            if handle in held:
                (id,) = held.labels.ids(np.array([handle])).tolist()
                name = id if isinstance(id, int) else str(id)
                found.append({"id": name, "share": round(share, 3), "matched": round(matched, 3)})
        return found


def _resolved(matcher: Factory | MatcherChooser) -> tuple[Factory, MatcherChooser | None]:
    """Return `rtfilter.matching.choosing.resolved`; imported here because a plain name does not need it."""
    if isinstance(matcher, str) and matcher in MATCHERS:
        return matcher, None
    from rtfilter.matching.choosing import resolved

    return resolved(matcher)


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


def _checked_limit(most: Any) -> int | None:
    if most is not None and (type(most) is not int or most < 0):
        raise ValueError(f"max_unbounded is a number of subscriptions, or None for any; got {most!r:.60}")
    return most


def moment_of(at: Any) -> float:
    """Return the moment that a caller passed, in seconds of the filter's clock."""
    if isinstance(at, bool) or not isinstance(at, Real) or isnan(at):
        raise TypeError(f"at is a number of seconds of the filter's clock, not {at!r:.60}")
    return min(float(at), LAST_MOMENT)
