"""The client with asyncio, and its deliveries: an event, a digest, or the end of a subscription."""

from __future__ import annotations

import logging
import ssl as tls
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar
from uuid import uuid4

from rtfilter.basics.session_states import Directive
from rtfilter.client.client_errors import ClientError, ProtocolError
from rtfilter.client.ledger import Item
from rtfilter.client.link import addresses_of
from rtfilter.client.protocol import Ended, EventDelivery, Reasons, ServerSubscription
from rtfilter.client.session import Session

URL: Final = "ws://127.0.0.1:8080"
"""The default address of `rtfilter serve`."""
HINTS: Final = 100
"""Most different hints about events that a client logs."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


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

    def __init__(self, item: Item, done: Callable[[Item], None] = lambda item: None) -> None:
        arrival = item.arrival
        self._item, self._done = item, done
        self.filter = arrival.filter
        self.redelivered = max(arrival.redelivered, item.again)
        self.dropped = arrival.dropped
        self.response: float | None = None
        self.ended: str | None = None
        self.events: tuple[DeliveredEvent, ...] = ()
        self.subscriptions: tuple[int, ...]
        if isinstance(arrival, Ended):
            self.position, self.subscriptions = arrival.position, (arrival.subscription,)
            self.ended = arrival.reason
            return
        self.subscriptions = arrival.subscriptions
        self.position = max((one.position for one in arrival.events), default=0)
        self.events = tuple(
            DeliveredEvent(one.position, one.event, one.at, one.subscriptions or arrival.subscriptions)
            for one in arrival.events
        )
        if isinstance(arrival, EventDelivery):
            self.response = arrival.response

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

    async def acknowledge(self) -> None:
        """Acknowledge this delivery: the server will not send it again.

        The acknowledgement is sent a moment later, and by `Client.disconnect` at the latest.
        """
        self._done(self._item)


class Client:
    """A client for programs with asyncio, made by `connect`. Use it within one event loop."""

    def __init__(self, session: Session, automatic: bool) -> None:
        self.session, self.automatic = session, automatic
        self._hinted: set[str] = set()

    async def open(self) -> Self:
        """Connect, for programs that cannot use ``async with``. Call it once, and `disconnect` at the end.

        Raises
        ------
        UnreachableError, RefusedError
        """
        await self.session.open()
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    @property
    def user(self) -> str:
        """The user name of this client at the server."""
        return self.session.user

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of this user."""
        return self.session.roles

    async def subscribe(
        self,
        where: str | Mapping[str, Any],
        *,
        filter: str = "default",
        metadata: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        digest: float | None = None,
        order: Literal["key"] | None = None,
        key: str | None = None,
        everywhere: bool = False,
    ) -> int:
        """Subscribe to the events that satisfy a condition. Deliveries go on meanwhile, and none is lost.

        Parameters
        ----------
        where : str or dict
            An SQL condition, or an event pattern.
        filter : str
            Name of the filter on the server.
        metadata : dict, optional
            Data to keep with the subscription.
        ttl : float, optional
            Seconds until the subscription expires.
        digest : float, optional
            Seconds for which events are collected into one delivery; by default each event comes at once.
        order : {"key"}, optional
            Events with the same value of the filter's key arrive in the order of their publication.
        key : str, optional
            Your own name for the subscription. While it exists, the same request with the same key returns
            its id instead of a second subscription. So a program may subscribe at each start.
        everywhere : bool
            Return only once all sites of the server's network that must know the subscription do: then it
            gets all later events of all sites.

        Returns
        -------
        int
            The id, once the subscription is durable.

        Raises
        ------
        RefusedError
            For example of kind ``predicate``, with the place in the condition.
        UnreachableError, ClosedError
        """
        body = {"where": where, "filter": filter, "metadata": metadata, "ttl": ttl, "digest": digest}
        body |= {"order": order, "key": _named(key), "everywhere": everywhere or None}
        answer = await self.session.request(Directive.SUBSCRIBE, **body)
        return _told(answer.subscription)

    async def replace(
        self,
        id: int,
        where: str | Mapping[str, Any],
        *,
        metadata: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        digest: float | None = None,
        order: Literal["key"] | None = None,
    ) -> float | None:
        """Replace all of a subscription except its id; omitted arguments get their defaults.

        Earlier matches are still delivered. Parameters and errors are those of `subscribe`.

        Returns
        -------
        float or None
            Time of expiry, in Unix seconds; None without `ttl`.
        """
        body = {"subscription": id, "where": where, "metadata": metadata, "ttl": ttl, "digest": digest}
        return (await self.session.request(Directive.REPLACE, **body, order=order)).expires

    async def unsubscribe(self, id: int) -> bool:
        """Remove a subscription and its waiting deliveries. Raises as `subscribe`.

        Parameters
        ----------
        id : int
        """
        await self.session.request(Directive.UNSUBSCRIBE, subscription=id)
        return True

    async def subscription(self, id: int) -> ServerSubscription:
        """Return one of your subscriptions. Raises as `subscribe`."""
        (found,) = _told((await self.session.request(Directive.LIST, subscription=id)).subscriptions)
        return found

    async def subscriptions(self, filter: str | None = None) -> AsyncIterator[ServerSubscription]:
        """Yield your subscriptions, by id. Raises as `subscribe`.

        Parameters
        ----------
        filter : str, optional
            Name of a filter on the server; by default all filters.
        """
        after: int | None = 0
        while after is not None:
            found, after = await self.page(filter, after)
            for one in found:
                yield one

    async def page(self, filter: str | None, after: int) -> tuple[list[ServerSubscription], int | None]:
        """Return a page of your subscriptions, with ids above `after`, and the next `after` or None."""
        answer = await self.session.request(Directive.LIST, filter=filter, after=after)
        return _told(answer.subscriptions), answer.next

    async def match(self, events: Any | Sequence[Any], filter: str = "default") -> list[list[int]]:
        """Return the ids of your subscriptions that each event matches, without publishing it.

        Parameters and errors are those of `publish`.
        """
        answer = await self.session.request(Directive.MATCH, filter=filter, **_one_or_several(events))
        self._warn(answer.hints)
        return _told(answer.matches)

    async def explain(self, id: int, event: Any) -> Reasons:
        """Return why one of your subscriptions matches an event or not. Raises as `subscribe`."""
        answer = await self.session.request(Directive.EXPLAIN, subscription=id, event=event)
        return Reasons(_told(answer.matched), answer.report)

    async def publish(
        self, events: Any | Sequence[Any], filter: str = "default", key: str | None = None
    ) -> list[int]:
        """Publish an event, or several.

        Parameters
        ----------
        events : dict, or sequence of dict
            Values that JSON can represent; also dataclasses, times and `msgspec.Raw`.
        filter : str
            Name of the filter on the server.
        key : str, optional
            For programs that may publish the same again, such as after a crash: the server stores only one
            publication per key. After the loss of a connection, the client itself repeats its publication
            with the same key.

        Returns
        -------
        list of int
            Positions in the server's log, once the events are durable. Misspelt attributes and values of
            another type are accepted, and logged once.

        Raises
        ------
        RefusedError
            Nothing was published. The kind ``event`` has the `row`; the kind ``limit`` has `retry_after`.
        UnreachableError, ClosedError
            The event may or may not be published; with a key you can publish it again.
        """
        body = _one_or_several(events)
        answer = await self.session.request(Directive.PUBLISH, filter=filter, **body, key=_named(key))
        positions = _told(answer.positions)
        if len(positions) != (len(events) if "events" in body else 1):
            raise ProtocolError("the server's answer has another number of positions than of events")
        self._warn(answer.hints)
        return positions

    def _warn(self, hints: Sequence[str]) -> None:
        """Log each misspelt attribute and each value of another type once."""
        for hint in hints:
            what = hint.partition(": ")[2] if hint.startswith("event ") else hint
            if what not in self._hinted and len(self._hinted) < HINTS:
                self._hinted.add(what)
                _log.warning("%s", hint)

    async def ready(self) -> bool:
        """Start deliveries. Iterating calls this and `get`."""
        return await self.session.ready()

    async def stop(self) -> bool:
        """Stop deliveries; a loop ends after those that have arrived already."""
        return await self.session.stop()

    async def get(self) -> int:
        """Ask for the deliveries that are not acknowledged; return their number."""
        return await self.session.get()

    async def disconnect(self) -> bool:
        """Send the last acknowledgements, and disconnect; subscriptions stay, and their matches wait.

        Returns
        -------
        bool
            True if the server has confirmed it.
        """
        return await self.session.disconnect()

    def __aiter__(self) -> Deliveries:
        return Deliveries(self)

    async def receive(self) -> Delivery | None:
        """Return the next delivery; None after `stop` and `disconnect`. This sends nothing to the server.

        Raises
        ------
        UnreachableError, RefusedError
            The client does not try to reconnect any more.
        """
        item = await self.session.next_item()
        return None if item is None else Delivery(item, self.session.acknowledge)


def _one_or_several(events: Any) -> dict[str, Any]:
    several = isinstance(events, Sequence) and not isinstance(events, str | bytes)
    return {"events" if several else "event": events}


def _named(key: str | None) -> str:
    """Return the key, or a new one for None. The server itself refuses an empty key."""
    return uuid4().hex if key is None else key


def _told(value: T | None) -> T:
    if value is None:
        raise ProtocolError("the server's answer lacks the requested value")
    return value


class Deliveries:
    """A loop over the deliveries of a client."""

    def __init__(self, client: Client) -> None:
        self._client, self._begun = client, False
        self._last: Delivery | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        last, self._last = self._last, None
        if last is not None:
            await last.acknowledge()
        if not self._begun:
            await self._client.session.begin()
            self._begun = True
        delivery = await self._client.receive()
        if delivery is None:
            raise StopAsyncIteration
        if self._client.automatic:
            self._last = delivery
        return delivery


def connect(
    url: str = URL,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    window: int = 256,
    acknowledge: Literal["automatic", "manual"] = "automatic",
    patience: float = 60.0,
    ssl: tls.SSLContext | None = None,
) -> Client:
    """Return a client for programs with asyncio: ``async with connect(...) as client``.

    Parameters
    ----------
    url : str
        ``ws://host:port``, or ``wss://`` with TLS; ``http`` and ``https`` mean the same. The default path is
        ``/session``. Of a server and its standby, both URLs, with a comma.
    user, password : str, optional
    token : str, optional
        A token, instead of user and password.
    window : int
        Deliveries that may wait in memory, at least 1: the server sends no more until the program takes some.
    acknowledge : {"automatic", "manual"}
        Automatic: a delivery is acknowledged when the loop asks for the next one. Manual: by its
        ``acknowledge()``.
    patience : float
        Seconds for which a client tries to reconnect after the loss of a connection. The first connection has
        only one attempt.
    ssl : ssl.SSLContext, optional
        For ``wss`` and ``https``; by default the certificates that this machine trusts, or the file in the
        variable ``SSL_CERT_FILE``.

    Raises
    ------
    ClientError
        An argument cannot be used.
    UnreachableError, RefusedError
        On entering: the server does not answer, or refuses this user.
    """
    if acknowledge not in ("automatic", "manual"):
        raise ClientError('acknowledge is "automatic" or "manual"')
    session = Session(addresses_of(url, user, password, token, ssl), window, patience)
    return Client(session, acknowledge == "automatic")
