"""The deliveries to a program: an event, a digest of several, or the end of a subscription."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rtfilter.client.errors import ClientError
from rtfilter.client.ledger import Item
from rtfilter.client.messages import Digest, Ended, Event


class DeliveredEvent(NamedTuple):
    """An event of a delivery."""

    position: int
    """In the server's log."""
    body: dict[str, Any]
    """The attributes."""
    at: float
    """Unix seconds of its arrival at the server."""
    subscriptions: tuple[int, ...]
    """Yours that match it."""


class Arrived:
    """A delivery, without the way to acknowledge it.

    Attributes
    ----------
    events : tuple of DeliveredEvent
        One; several in a digest; none where a subscription ended.
    position : int
        Of the last event, or of the end, in the server's log.
    subscriptions : tuple of int
        Yours that it is for.
    filter : str
    response : float or None
        Seconds from the arrival of the event at the server until it was known who gets it.
    redelivered : int
        How often it was sent before, 0 for the first time: if not, you may have had it already.
    dropped : int
        How many of your deliveries the server has dropped before this one: they were too many, or too old.
    ended : str or None
        Why the subscription in `subscriptions` ended; None if this is no such notice.
    """

    def __init__(self, item: Item) -> None:
        arrival = item.arrival
        self._item: Final = item
        self.filter = arrival.filter
        self.redelivered = max(arrival.redelivered, item.again)
        self.dropped = arrival.dropped
        self.response: float | None = None
        self.ended: str | None = None
        self.events: tuple[DeliveredEvent, ...] = ()
        match arrival:
            case Event():
                self.position, self.subscriptions = arrival.position, arrival.subscriptions
                self.response = arrival.response
                self.events = (
                    DeliveredEvent(arrival.position, arrival.event, arrival.at, arrival.subscriptions),
                )
            case Digest():
                self.subscriptions = arrival.subscriptions
                self.position = max((one.position for one in arrival.events), default=0)
                self.events = tuple(
                    DeliveredEvent(
                        one.position, one.event, one.at, one.subscriptions or arrival.subscriptions
                    )
                    for one in arrival.events
                )
            case Ended():
                self.position, self.subscriptions = arrival.position, (arrival.subscription,)
                self.ended = arrival.reason

    @property
    def event(self) -> dict[str, Any]:
        """The attributes of the one event.

        Raises
        ------
        ClientError
            It is a digest, or the news that a subscription ended.
        """
        if self.ended is not None:
            raise ClientError(
                f"subscription {self.subscriptions[0]} ended ({self.ended}): look at .ended before .event"
            )
        if len(self.events) != 1:
            raise ClientError("a digest has several events: look at .events")
        return self.events[0].body

    def __repr__(self) -> str:
        what = f"ended={self.ended!r}" if self.ended is not None else f"{len(self.events)} event(s)"
        return f"<{type(self).__name__} {self.position}, subscriptions {self.subscriptions}, {what}>"


class Delivery(Arrived):
    """A delivery to a program with asyncio."""

    def __init__(self, item: Item, done: Callable[[Item], None]) -> None:
        super().__init__(item)
        self._done = done

    async def acknowledge(self) -> None:
        """Tell the server that this is done: it will not come again.

        It is told a moment later, and by `Client.disconnect` at the latest.
        """
        self._done(self._item)
