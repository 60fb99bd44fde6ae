"""The deliveries to a program: an event, a digest of several, or the end of a subscription."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rtfilter.client.client_errors import ClientError
from rtfilter.client.ledger import Item
from rtfilter.client.server_messages import Digest, Ended, EventDelivery


class DeliveredEvent(NamedTuple):
    """An event of a delivery."""

    position: int
    """Its position in the server's log."""
    body: dict[str, Any]
    """The attributes."""
    at: float
    """Unix seconds of the event's arrival at the server."""
    subscriptions: tuple[int, ...]
    """Your subscriptions that match it."""


class Arrived:
    """A delivery, without a method to acknowledge it.

    Attributes
    ----------
    events : tuple of DeliveredEvent
        One event; several in a digest; none if a subscription ended.
    position : int
        Position of the last event, or of the end, in the server's log.
    subscriptions : tuple of int
        Your subscriptions that the delivery is for.
    filter : str
    response : float or None
        Seconds from the arrival of the event at the server until its recipients were known.
    redelivered : int
        Number of earlier deliveries of the same, 0 for the first: otherwise you may have had it already.
    dropped : int
        Number of your deliveries that the server dropped before this one: they were too many, or too old.
    ended : str or None
        Reason for the end of the subscription in `subscriptions`; None for an event or a digest.
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
            case EventDelivery():
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
        """The attributes of the only event.

        Raises
        ------
        ClientError
            The delivery is a digest, or reports the end of a subscription.
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
        """Acknowledge this delivery: the server will not send it again.

        The acknowledgement is sent a moment later, and by `Client.disconnect` at the latest.
        """
        self._done(self._item)
