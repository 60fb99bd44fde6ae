"""The match step for your own pipeline: it adds the recipients to each event.

The thesis on the Matching Tree and Counting describes such a server: authenticate, parse, store, determine
the recipients, send.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from rtfilter.basics.errors import UnknownSubscriptionError
from rtfilter.filter import EventFilter
from rtfilter.predicates.predicate import Source

R = TypeVar("R", bound=Hashable)


class Handled(NamedTuple, Generic[R]):
    """An event, and its recipients.

    Attributes
    ----------
    event : object
        The event, unchanged.
    recipients : tuple
        Each recipient once, in the order of the ids of their subscriptions.
    """

    event: Any
    recipients: tuple[R, ...]


class RecipientStage(Generic[R]):
    """A match step with the owner of each subscription; it finds the recipients of events. Not thread-safe.

    Parameters
    ----------
    filter : EventFilter
        Other code may use it, too; its subscriptions have no recipient here.
    receiving : callable, optional
        Returns whether a recipient is present; absent recipients are left out. By default all are present.

    Examples
    --------
    >>> from rtfilter import EventFilter, Schema
    >>> stage = RecipientStage(EventFilter(Schema({"price": float})))
    >>> id = stage.subscribe("ann", "price > 10")
    >>> stage.handle({"price": 12.0}).recipients
    ('ann',)
    """

    def __init__(self, filter: EventFilter, receiving: Callable[[R], bool] | None = None) -> None:
        self.filter = filter
        self._receiving = receiving
        self._owners: dict[Any, R] = {}

    def subscribe(self, recipient: R, predicate: Source) -> Any:
        """Add a subscription of a recipient, and return its id. Raises `PredicateError`."""
        id = self.filter.subscribe(predicate)
        self._owners[id] = recipient
        return id

    def unsubscribe(self, id: Any) -> None:
        """Remove a subscription. Raises `UnknownSubscriptionError`."""
        if self._owners.pop(id, None) is None:
            raise UnknownSubscriptionError(id)
        self.filter.unsubscribe(id)

    def handle(self, event: Any) -> Handled[R]:
        """Return an event with its recipients. Raises `EventError`."""
        return Handled(event, self._recipients(self.filter.match(event).tolist()))

    def handle_batch(self, events: Sequence[Any]) -> Iterator[Handled[R]]:
        """Yield events with their recipients, each once its matches are known. Raises `EventError`."""
        for row, ids, _ in self.filter.stream(events):
            yield Handled(events[row], self._recipients(ids.tolist()))

    def _recipients(self, ids: Iterable[Any]) -> tuple[R, ...]:
        found = dict.fromkeys(self._owners[id] for id in sorted(ids) if id in self._owners)
        if self._receiving is None:
            return tuple(found)
        return tuple(one for one in found if self._receiving(one))
