"""The content of a filter by handle: the matcher, and the data that its boxes do not have.

Readers see no expired subscription. The filter removes expired ones later, some at a time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.basics.errors import PredicateError, UnknownSubscriptionError
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index import ready
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Adopting, Matcher, Replacing, Scannable, Single, leveled
from rtfilter.matchers.registry import Factory, factory_of, name_of
from rtfilter.matchers.scan import ScanMatcher
from rtfilter.predicates.bounds.ends import EndStore
from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
from rtfilter.predicates.model.disjunction import names_of
from rtfilter.predicates.predicate import Predicate
from rtfilter.predicates.stored.predicate_store import Kept, PredicateStore, as_bytes, kept
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.expiries import Expiries
from rtfilter.subscriptions.handles import Handles
from rtfilter.subscriptions.ids import among, is_integer
from rtfilter.subscriptions.labels import NO_LABELS
from rtfilter.subscriptions.verification import Verified

if TYPE_CHECKING:
    from rtfilter.subscriptions.checks import Checks


class Subscription(NamedTuple):
    """A predicate, with its metadata and expiry, as a filter shows it."""

    predicate: Predicate
    metadata: dict[str, Any] | None
    """None if the subscription has no metadata."""
    expires: float | None
    """The time at which it expires, in seconds of the filter's clock; None if it does not expire."""


class UsedAttributes:
    """Names of attributes that subscriptions use; names are added, never removed. Others are not read.

    Attributes
    ----------
    names : frozenset of str
        Attributes that a subscription uses or has used, and attributes with a domain, which each event is
        checked against.
    """

    def __init__(self, schema: Schema) -> None:
        fields = schema.fields
        self.names = frozenset(fields.names[place] for place, _ in fields.bounded)
        texts = {field.name: as_bytes(json.dumps(field.name, ensure_ascii=False)) for field in fields}
        self._others = [
            (field.name, texts[field.name], fields.places[field.name], field.width)
            for field in fields
            if field.name not in self.names
        ]
        """Attributes that no subscription uses so far: name, name as JSON, first coordinate and width."""

    def note(self, filters: Filters, boxes: bool) -> None:
        """Add the attributes that the matcher needs: bounded ones for boxes, else all that are named."""
        if not self._others:
            return
        if not boxes:
            self.add(chain.from_iterable(map(names_of, filters.predicates())))
            return
        _, low, high, _ = filters.boxes()
        if len(low) == 1:  # faster than the line below
            least, most = low[0].tolist(), high[0].tolist()
        elif len(low):
            least, most = low.max(axis=0).tolist(), high.min(axis=0).tolist()
        else:
            return
        self.add(
            name
            for name, _, first, width in self._others
            if any(least[at] > -inf or most[at] < inf for at in range(first, first + width))
        )

    def note_kept(self, texts: Iterable[Kept]) -> None:
        """Add all attributes that some predicates name. A constant that equals a name counts as well."""
        for text in texts if self._others else ():
            found = [name for name, quoted, _, _ in self._others if quoted in text]
            if found:
                self.add(found)

    def add(self, names: Iterable[str]) -> None:
        """Use some attributes from now on."""
        new = frozenset(names) - self.names
        if new:
            self.names |= new
            self._others = [one for one in self._others if one[0] not in new]


class Unbounded:
    """Unbounded subscriptions, of which each must be verified for nearly every event.

    Attributes
    ----------
    boxes : bool
        Whether the matcher works on boxes; with other matchers no subscription counts as unbounded.
    handles : set of int
        Unbounded subscriptions, those being added included.
    most : int or None
        The limit that `admit` enforces; None for no limit.
    """

    def __init__(self, boxes: bool) -> None:
        self.boxes = boxes
        self.handles: set[int] = set()
        self.most: int | None = MAX_UNBOUNDED

    def admit(
        self, filters: Filters, deadlines: Expiries | None, moment: float, replaced: int | None = None
    ) -> None:
        """Raise `PredicateError` if new filters would exceed the limit at a moment.

        `replaced` is the handle of a subscription that they replace.
        """
        if self.most is None or not self.boxes:
            return
        rows = filters.unbounded()
        if not len(rows) or len(self.handles) + len(rows) <= self.most:
            return
        others = self.count(deadlines, moment) - (replaced in self.handles)
        if others + len(rows) > self.most:
            error = PredicateError(
                "nothing bounds this predicate, so that nearly every event must be checked exactly: there "
                f"are {others} such subscriptions already, and at most {self.most} are allowed "
                "(max_unbounded); compare an attribute with a constant as well, or allow more",
                row=int(rows[max(self.most - others, 0)]),
            )
            if len(filters) == 1:
                error.row = None
            error.show_row()
            raise error

    def note(self, filters: Filters) -> None:
        """Count the unbounded ones of some subscriptions from now on."""
        if self.boxes:
            rows = filters.unbounded()
            if len(rows):
                self.handles.update(filters.ids[rows].tolist())

    def among(self, ascending: IntArray) -> list[int]:
        """Return the unbounded ones among some handles, at least one and ascending."""
        if not self.handles:
            return []
        counted = np.array(list(self.handles))
        found: list[int] = counted[among(counted, ascending)].tolist()
        return found

    def count(self, deadlines: Expiries | None, moment: float) -> int:
        """Return the number of unbounded subscriptions at a moment, those being added included."""
        if deadlines is None or moment < deadlines.earliest or not self.handles:
            return len(self.handles)
        passed = deadlines.passed(np.array(list(self.handles)), moment)
        return len(self.handles) - (0 if passed is None else int(passed.sum()))


class StoredSubscriptions(Handles):
    """All data of subscriptions. Threads may read at the same time; a change must run alone.

    Attributes
    ----------
    schema : Schema
    factory, name : Factory, str
        The maker of the matcher, and its name.
    matcher : Matcher
    levels : Resumable or Flat
        The matcher, searched level by level.
    before : (int, int)
        `updates` and `packed` of the matchers that this one has replaced.
    replacing, scannable, adopting, single : Replacing, Scannable, Adopting, Single, or None
        The matcher, if it has this protocol: an `isinstance` check takes longer than a change.
    predicates : PredicateStore
        Predicates that the matcher's boxes do not hold.
    unmatchable : set of int
        Handles that no event can match; the matcher does not have them.
    unbounded : Unbounded
    used : UsedAttributes
    verified : Verified
    nothing : Filters
        Filters of no subscription.
    """

    _checks: Checks | None = None

    def __init__(
        self,
        schema: Schema,
        factory: Factory = "rtree",
        matcher: Matcher | None = None,
        predicates: PredicateStore | None = None,
        unmatchable: Iterable[int] = (),
        next_id: int = 0,
        kind: type | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take a matcher that `factory` made, and the data stored with it; by default, begin empty."""
        super().__init__(next_id, kind, clock)
        matcher = factory_of(factory)(schema) if matcher is None else matcher
        predicates = PredicateStore() if predicates is None else predicates
        self.schema, self.predicates = schema, predicates
        self.unmatchable, self.unbounded = set(unmatchable), Unbounded(matcher.takes.boxes)
        self.used, self.verified = UsedAttributes(schema), Verified()
        self.use(matcher, factory)
        self.nothing = Filters.of_predicates(schema, [])

    def use(self, matcher: Matcher, factory: Factory, before: tuple[int, int] = (0, 0)) -> None:
        """Use a matcher from now on, which has the same subscriptions; a repeated call does nothing."""
        self.matcher, self.levels = matcher, leveled(matcher)
        self.name, self.before = name_of(factory), before
        self.factory = self.name if isinstance(factory, Mapping) else factory  # the matcher has the options
        self.replacing = matcher if isinstance(matcher, Replacing) else None
        self.scannable = matcher if isinstance(matcher, Scannable) else None
        self.adopting = matcher if isinstance(matcher, Adopting) else None
        self.single = matcher if isinstance(matcher, Single) else None

    def whole(self, events: EventTable) -> EventTable:
        """Return events with all attributes that subscriptions use now.

        Events that arrived before an extension of the schema lack the new attributes.
        """
        read, fields = events.read, self.schema.fields
        if read is not None and not self.used.names <= read:
            events = events.again(self.used.names)
        return events if len(events.fields) == len(fields) else events.extended(fields)

    def searched(self, events: EventTable, now: float) -> EventTable:
        """Return the events of a batch for the matcher; only matchers without boxes need the moment."""
        return events.searched if self.matcher.takes.boxes else events.searched.at(now)

    @property
    def checks(self) -> Checks | None:
        """The compiled constraints for verification; None for a scan while no compiled code is loaded."""
        if self._checks is None and (ready.ready() or not isinstance(self.matcher, ScanMatcher)):
            from rtfilter.subscriptions.checks import Checks

            self._checks = Checks(self.schema)
        return self._checks

    @property
    def updates(self) -> int:
        """Number of boxes or filters that were added or removed, over all matchers so far."""
        return self.before[0] + self.matcher.updates

    @property
    def packed(self) -> int:
        """The number of times the matcher was built as a whole or replaced by another."""
        return self.before[1] + self.levels.packed

    # -- changes without reports -----------------------------------------------------------------------------

    def put(self, handles: IntArray, draft: Draft) -> None:
        """Add new handles; the filters of the draft may lack handles that match nothing."""
        # All data before the matcher has the handles: verification of its candidates needs it.
        self.put_beside(handles, draft)
        self.fill(handles, draft.filters)

    def put_beside(self, handles: IntArray, draft: Draft) -> None:
        """Add the data beside the matcher."""
        if draft.labels is not NO_LABELS:
            self.labels.put(handles.tolist(), draft.labels)
        if draft.predicates is not None:
            self.used.note_kept(draft.predicates)
            for handle, predicate in zip(handles.tolist(), draft.predicates, strict=True):
                self.predicates.put(handle, predicate)
        self.predicates.ends.add(draft.filters.ends)

    def fill(self, handles: IntArray, filters: Filters) -> None:
        """Add handles to the matcher; those that it leaves out match nothing, and are stored beside it."""
        filters, before = filters.of(self.schema), len(self.matcher)
        self.note(filters)
        self.matcher.add(filters)
        if len(self.matcher) - before == len(handles):
            return
        left_out = [row for row, handle in enumerate(handles.tolist()) if handle not in self.matcher]
        for row in left_out:
            handle = int(handles[row])
            self.unmatchable.add(handle)
            if handle not in self.predicates:
                self.predicates.put(handle, kept(filters.predicates()[row]))

    def note(self, filters: Filters) -> None:
        """Count unbounded subscriptions, and add attributes, from now on."""
        self.unbounded.note(filters)
        self.used.note(filters, self.matcher.takes.boxes)

    def strip(self, handles: IntArray) -> None:
        """Remove the predicates of some handles; an interrupted call can be repeated."""
        self.matcher.remove(handles)
        self.predicates.ends.remove(handles)
        if self._checks is not None:
            self._checks.forget(handles)
        for handle in handles.tolist():
            self.unmatchable.discard(handle)
            self.verified.forget(handle)
            self.unbounded.handles.discard(handle)
            self.predicates.remove(handle)

    def forget(self, handles: IntArray) -> None:
        """Remove all data of some handles; an interrupted call can be repeated."""
        if not len(handles):  # the matcher needs as long for nothing as for a few
            return
        self.strip(handles)
        if not self.labels.plain:
            self._free += self.labels.drop(handles)

    # -- all of them -----------------------------------------------------------------------------------------

    def handles(self) -> IntArray:
        """Return all handles that are not hidden, ascending, int64 (n,)."""
        own = np.union1d(self.matcher.ids(), np.array(sorted(self.unmatchable), np.int64))
        visible = self.visible(own)
        return own if visible is None else own[visible]

    def ids(self, moment: float = -inf) -> AnyArray:
        """Return the ids that exist at a moment, int64 or object (n,); integers ascend."""
        handles = self.handles()
        passed = self.labels.passed(handles, moment)
        return self.labels.ids(handles if passed is None else handles[~passed])

    def visible(self, handles: IntArray, moment: float = -inf) -> BoolArray | None:
        """Return which of some handles are neither hidden nor expired, bool (n,); None for all."""
        shown = ~among(handles, self.hidden) if len(self.hidden) else None
        if self.labels.deadlines is not None:
            passed = self.labels.deadlines.passed(handles, moment)
            if passed is not None:
                return ~passed if shown is None else shown & ~passed
        return shown

    def hides(self, moment: float) -> bool:
        """Return whether the matcher may find a hidden or expired subscription at a moment."""
        deadlines = self.labels.deadlines
        return len(self.hidden) > 0 or (deadlines is not None and deadlines.earliest <= moment)

    def count_all(self) -> int:
        """Return the number of all subscriptions, hidden and expired ones included."""
        return len(self.matcher) + len(self.unmatchable)

    def __len__(self) -> int:
        """Return the number of subscriptions that are not hidden, expired ones included."""
        return self.count_all() - self._hidden_count

    def count(self, moment: float) -> int:
        """Return the number of subscriptions that exist at a moment."""
        if self.labels.deadlines is None or moment < self.labels.deadlines.earliest:
            return len(self)
        passed = self.labels.deadlines.all_passed(moment)
        hidden = int(among(passed, self.hidden).sum()) if len(self.hidden) else 0
        return len(self) - len(passed) + hidden

    def known(self, handles: IntArray, moment: float = -inf) -> BoolArray:
        """Return which of some handles exist at a moment, bool (n,)."""
        there = np.array([handle in self for handle in handles.tolist()], np.bool_)
        passed = self.labels.passed(handles, moment)
        return there if passed is None else there & ~passed

    # -- one of them -----------------------------------------------------------------------------------------

    def __contains__(self, handle: int) -> bool:
        """Return whether a handle exists and is not hidden; it may be expired."""
        known = handle in self.matcher or handle in self.unmatchable
        return known and not (len(self.hidden) and among(np.array([handle]), self.hidden)[0])

    def handle(self, id: object, moment: float = -inf) -> int:
        """Return the handle of an id that exists at a moment, else -1."""
        handle = self.labels.handle(id)
        return handle if handle in self and not self.labels.has_passed(handle, moment) else -1

    def has(self, id: object) -> bool:
        """Return whether an id exists now."""
        if self.labels.plain:
            return (type(id) is int or is_integer(id)) and id in self  # type: ignore[operator]
        return self.handle(id, self.moment()) >= 0

    def require(self, id: object, moment: float = -inf) -> int:
        """Return the handle of an id that exists at a moment, else raise `UnknownSubscriptionError`."""
        handle = self.handle(id, moment)
        if handle < 0:
            raise UnknownSubscriptionError(id)
        return handle

    def predicate(self, id: object, moment: float = -inf) -> Predicate:
        """Return the predicate of a subscription. Raises `UnknownSubscriptionError`."""
        predicate = self.read(self.require(id, moment))
        assert predicate is not None
        return predicate

    def metadata(self, id: object, moment: float = -inf) -> bytes | None:
        """Return the metadata of a subscription as JSON text. Raises `UnknownSubscriptionError`."""
        handle = self.require(id, moment)
        return None if self.labels.metadata is None else self.labels.metadata.get(handle)

    def expires(self, id: object, moment: float = -inf) -> float:
        """Return the expiry of a subscription, inf if it has none. Raises `UnknownSubscriptionError`."""
        handle = self.require(id, moment)
        return inf if self.labels.deadlines is None else self.labels.deadlines.get(handle)

    def get(self, handle: int) -> Predicate | None:
        """Return the predicate of a handle, which is then cached for later matches; None if it is unknown."""
        return self._found(self.predicates.get, handle)

    def read(self, handle: int) -> Predicate | None:
        """Return the predicate of a handle for a single use, None if it is unknown."""
        return self._found(self.predicates.read, handle)

    def _found(self, get: Callable[[int], Predicate | None], handle: int) -> Predicate | None:
        if len(self.hidden) and handle not in self:
            return None
        predicate = get(handle)
        if predicate is None and handle in self.matcher:
            return self.content([index(handle)]).predicates()[0]
        return predicate

    @property
    def listed(self) -> Collection[int]:
        """Handles whose exact boxes are not exact for events with lists."""
        return self.predicates.listed

    @property
    def ends(self) -> EndStore:
        """Exact ends of bounds that their boxes do not hold, by handle."""
        return self.predicates.ends

    def content(self, handles: Sequence[int]) -> Filters:
        """Return the matcher's content for some handles, with the exact ends of bounds."""
        content = self.matcher.content(handles)
        return content.with_ends(self.ends.of(np.array(handles, np.int64))) if self.ends else content
