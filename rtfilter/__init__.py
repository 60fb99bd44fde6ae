"""rtfilter: which subscriptions match an event, and how soon is that known?

>>> from rtfilter import EventFilter, Schema
>>> alerts = EventFilter(Schema({"price": float, "symbol": str}))
>>> cheap = alerts.subscribe("symbol = 'ACME' AND price < 10")
>>> alerts.match({"symbol": "ACME", "price": 9.5}).tolist()
[0]

`EventFilter` takes subscriptions and matches events singly, in batches, or as streams, which release each
event once its matches are known; `AsyncFilter` does so for coroutines. `RStarTree` is the index below, for
plain boxes and points. `docs/predicates.md` defines the meaning of predicates.
"""

from typing import TYPE_CHECKING

from rtfilter.basics.errors import (
    EventError,
    FileError,
    PredicateError,
    RTFilterError,
    SnapshotError,
    UnknownSubscriptionError,
)
from rtfilter.basics.lazy import at_first_use

if TYPE_CHECKING:
    from rtfilter.asynchronous.async_filter import AsyncFilter
    from rtfilter.basics.results import Matches, RelatedIds
    from rtfilter.events.reading import BadEvent
    from rtfilter.events.schema import Attribute, Schema
    from rtfilter.filter import EventFilter
    from rtfilter.index.tree import RStarTree
    from rtfilter.matching.cover_search import Related
    from rtfilter.matching.stream import Completion, Stream
    from rtfilter.predicates.boxes.cost import Cost
    from rtfilter.predicates.explanations.explanation import Explanation
    from rtfilter.predicates.explanations.misses import Misses
    from rtfilter.predicates.predicate import Predicate
    from rtfilter.reading import infer_schema, read_events
    from rtfilter.subscriptions.loading import BadSubscription
    from rtfilter.subscriptions.stored import Subscription
    from rtfilter.tracking.tracker import Tracker
    from rtfilter.tracking.transitions import Transition, Transitions
else:
    _PLACES = {
        "AsyncFilter": "asynchronous.async_filter",
        "Attribute": "events.schema",
        "BadEvent": "events.reading",
        "BadSubscription": "subscriptions.loading",
        "Completion": "matching.stream",
        "Cost": "predicates.boxes.cost",
        "EventFilter": "filter",
        "Explanation": "predicates.explanations.explanation",
        "Matches": "basics.results",
        "Misses": "predicates.explanations.misses",
        "Predicate": "predicates.predicate",
        "RStarTree": "index.tree",
        "Related": "matching.cover_search",
        "RelatedIds": "basics.results",
        "Schema": "events.schema",
        "Stream": "matching.stream",
        "Subscription": "subscriptions.stored",
        "Tracker": "tracking.tracker",
        "Transition": "tracking.transitions",
        "Transitions": "tracking.transitions",
        "infer_schema": "reading",
        "read_events": "reading",
    }
    # A client of the service needs no compiler.
    __getattr__, __dir__ = at_first_use(globals(), _PLACES)


__version__ = "0.2.0"

__all__ = [
    "AsyncFilter",
    "Attribute",
    "BadEvent",
    "BadSubscription",
    "Completion",
    "Cost",
    "EventError",
    "EventFilter",
    "Explanation",
    "FileError",
    "Matches",
    "Misses",
    "Predicate",
    "PredicateError",
    "RStarTree",
    "RTFilterError",
    "Related",
    "RelatedIds",
    "Schema",
    "SnapshotError",
    "Stream",
    "Subscription",
    "Tracker",
    "Transition",
    "Transitions",
    "UnknownSubscriptionError",
    "infer_schema",
    "read_events",
]
