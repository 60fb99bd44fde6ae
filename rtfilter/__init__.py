"""rtfilter: which subscriptions match an event, and how soon is that known?

>>> from rtfilter import EventFilter, Schema
>>> alerts = EventFilter(Schema({"price": float, "symbol": str}))
>>> cheap = alerts.subscribe("symbol = 'ACME' AND price < 10")
>>> alerts.match({"symbol": "ACME", "price": 9.5}).tolist()
[0]

`EventFilter` takes subscriptions and matches events one by one, in batches, or as streams in which each
event is released as soon as it is known; `AsyncFilter` does so for coroutines. `RStarTree` is the index
below, for plain boxes and points. What predicates mean is written in `docs/predicates.md`.
"""

from typing import TYPE_CHECKING

from rtfilter.errors import EventError, PredicateError, RTFilterError, SnapshotError, UnknownSubscriptionError
from rtfilter.events.schema import Attribute, Schema
from rtfilter.filter import EventFilter
from rtfilter.index.tree import RStarTree
from rtfilter.matching.stream import Completion, Stream
from rtfilter.matching.tracker import Tracker
from rtfilter.matching.transitions import Transition, Transitions
from rtfilter.predicates.cost import Cost
from rtfilter.predicates.explain import Explanation
from rtfilter.predicates.misses import Misses
from rtfilter.predicates.model import Predicate
from rtfilter.results import Matches, Related
from rtfilter.subscriptions.loading import BadRule

if TYPE_CHECKING:
    from rtfilter.asynchronous.filter import AsyncFilter
else:

    def __getattr__(name):
        """Import what needs asyncio when it is asked for."""
        if name != "AsyncFilter":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from rtfilter.asynchronous.filter import AsyncFilter

        return AsyncFilter


__version__ = "0.2.0"

__all__ = [
    "AsyncFilter",
    "Attribute",
    "BadRule",
    "Completion",
    "Cost",
    "EventError",
    "EventFilter",
    "Explanation",
    "Matches",
    "Misses",
    "Predicate",
    "PredicateError",
    "RStarTree",
    "RTFilterError",
    "Related",
    "Schema",
    "SnapshotError",
    "Stream",
    "Tracker",
    "Transition",
    "Transitions",
    "UnknownSubscriptionError",
]
