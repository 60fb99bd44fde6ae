"""rtfilter: which subscriptions match an event, and how soon is that known?

>>> from rtfilter import EventFilter, Schema
>>> alerts = EventFilter(Schema({"price": float, "symbol": str}))
>>> cheap = alerts.subscribe("symbol = 'ACME' AND price < 10")
>>> alerts.match({"symbol": "ACME", "price": 9.5}).tolist()
[0]

`EventFilter` takes subscriptions and matches events one by one, in batches, or as streams in which each
event is released as soon as it is known. `RStarTree` is the index below, for plain boxes and points. What
predicates mean is written in `rtfilter/predicates.md`.
"""

from rtfilter.batch import Completion, Stream
from rtfilter.errors import (
    EventError,
    PredicateError,
    RTFilterError,
    SnapshotError,
    UnknownSubscriptionError,
)
from rtfilter.explain import Explanation
from rtfilter.filter import EventFilter
from rtfilter.matches import Matches
from rtfilter.predicate import Predicate
from rtfilter.schema import Attribute, Schema
from rtfilter.tree import RStarTree

__all__ = [
    "Attribute",
    "Completion",
    "EventError",
    "EventFilter",
    "Explanation",
    "Matches",
    "Predicate",
    "PredicateError",
    "RStarTree",
    "RTFilterError",
    "Schema",
    "SnapshotError",
    "Stream",
    "UnknownSubscriptionError",
]
