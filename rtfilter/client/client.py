"""The client with asyncio."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from uuid import uuid4

from rtfilter.client.address import Address
from rtfilter.client.deliveries import Delivery
from rtfilter.client.errors import ClientError, ProtocolError
from rtfilter.client.session import Session
from rtfilter.client.subscriptions import Reasons, Subscription
from rtfilter.session import Directive

WINDOW: Final = 256
"""Deliveries that may wait in memory, by default."""
HINTS: Final = 100
"""Most hints that a client logs."""
PATIENCE: Final = 60.0
"""Seconds for which a client tries to come back, by default."""
Acknowledge = Literal["automatic", "manual"]

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Client:
    """A client for programs with asyncio, made by `connect`. It is used within one event loop.

    Parameters
    ----------
    address : Address
    window : int
        Deliveries that may wait in memory, at least 1. The server sends no more before some are taken.
    acknowledge : {"automatic", "manual"}
        Automatic: when the loop comes back for the next delivery.
    patience : float
        Seconds after the loss of a connection until it gives up.
    """

    def __init__(
        self,
        address: Address,
        *,
        window: int = WINDOW,
        acknowledge: Acknowledge = "automatic",
        patience: float = PATIENCE,
    ) -> None:
        if acknowledge not in ("automatic", "manual"):
            raise ClientError('acknowledge is "automatic" or "manual"')
        self.automatic: Final = acknowledge == "automatic"
        self.session: Final = Session(address, window, patience)
        self._hinted: set[str] = set()

    async def open(self) -> Self:
        """Connect, once; for programs that cannot use ``async with``. They call `disconnect` in the end.

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
        """The user of this client, as the server knows it."""
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
    ) -> int:
        """Subscribe to the events that match. It also works while deliveries come; none is lost.

        Parameters
        ----------
        where : str or dict
            An SQL condition, or an event pattern.
        filter : str
            Name of the filter on the server.
        metadata : dict, optional
            Kept with the subscription.
        ttl : float, optional
            Seconds to live.
        digest : float, optional
            Seconds for which events are collected, to come as one delivery; by default each comes at once.
        order : {"key"}, optional
            Events with the same value of the filter's key come in the order they were published in.
        key : str, optional
            A name of yours for the subscription: under the same key the same request is one subscription, as
            long as it is there. So a program may subscribe at each of its starts.

        Returns
        -------
        int
            The id, once the subscription is durable.

        Raises
        ------
        RefusedError
            Such as of kind ``predicate``, with the place in the condition.
        UnreachableError, ClosedError
        """
        body = {"where": where, "filter": filter, "metadata": metadata, "ttl": ttl, "digest": digest}
        answer = await self.session.request(Directive.SUBSCRIBE, **body, order=order, key=_named(key))
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
        """Replace a subscription as a whole: what is left out here, it has no more. The id stays.

        What it matched before is still delivered. Parameters and errors are those of `subscribe`.

        Returns
        -------
        float or None
            When it ends by itself, in Unix seconds; None without `ttl`.
        """
        body = {"subscription": id, "where": where, "metadata": metadata, "ttl": ttl, "digest": digest}
        return (await self.session.request(Directive.REPLACE, **body, order=order)).expires

    async def unsubscribe(self, id: int) -> bool:
        """Remove a subscription, with what waits for it. Raises as `subscribe`.

        Parameters
        ----------
        id : int
        """
        await self.session.request(Directive.UNSUBSCRIBE, subscription=id)
        return True

    async def subscription(self, id: int) -> Subscription:
        """Return one of your subscriptions. Raises as `subscribe`."""
        (found,) = _told((await self.session.request(Directive.LIST, subscription=id)).subscriptions)
        return found

    async def subscriptions(self, filter: str | None = None) -> AsyncIterator[Subscription]:
        """Yield your subscriptions, by id. Raises as `subscribe`.

        Parameters
        ----------
        filter : str, optional
            Name of a filter on the server; by default those of all filters.
        """
        after: int | None = 0
        while after is not None:
            found, after = await self.page(filter, after)
            for one in found:
                yield one

    async def page(self, filter: str | None, after: int) -> tuple[list[Subscription], int | None]:
        """Return some of your subscriptions above an id, and the id to go on after; None at the end."""
        answer = await self.session.request(Directive.LIST, filter=filter, after=after)
        return _told(answer.subscriptions), answer.next

    async def match(self, events: Any | Sequence[Any], filter: str = "default") -> list[list[int]]:
        """Return the ids of your subscriptions that each event matches; nothing is published.

        Parameters and errors are those of `publish`.
        """
        answer = await self.session.request(Directive.MATCH, filter=filter, **_one_or_several(events))
        self._warn(answer.hints)
        return _told(answer.matches)

    async def explain(self, id: int, event: Any) -> Reasons:
        """Return why one of your subscriptions matches an event, or not. Raises as `subscribe`."""
        answer = await self.session.request(Directive.EXPLAIN, subscription=id, event=event)
        return Reasons(_told(answer.matched), answer.report)

    async def publish(
        self, events: Any | Sequence[Any], filter: str = "default", key: str | None = None
    ) -> list[int]:
        """Publish an event, or several.

        Parameters
        ----------
        events : dict, or sequence of dict
            What JSON can say: also dataclasses, times, `msgspec.Raw`.
        filter : str
            Name of the filter on the server.
        key : str, optional
            For whoever may publish the same again, say after a crash: under the same key it is one. When a
            connection is lost, the client itself publishes again so that it is one.

        Returns
        -------
        list of int
            Positions in the server's log, once the events are durable. Misspelt attributes and values of
            another type are taken, and logged once.

        Raises
        ------
        RefusedError
            Nothing was published. Of kind ``event``, it has the `row`; of kind ``limit``, `retry_after`.
        UnreachableError, ClosedError
            Whether it was published is not known; with a key it can be published again.
        """
        body = _one_or_several(events)
        answer = await self.session.request(Directive.PUBLISH, filter=filter, **body, key=_named(key))
        positions = _told(answer.positions)
        if len(positions) != (len(events) if "events" in body else 1):
            raise ProtocolError("the server's answer has not as many positions as there are events")
        self._warn(answer.hints)
        return positions

    def _warn(self, hints: Sequence[str]) -> None:
        """Log misspelt attributes and values of another type, each once."""
        for hint in hints:
            what = hint.partition(": ")[2] if hint.startswith("event ") else hint
            if what not in self._hinted and len(self._hinted) < HINTS:
                self._hinted.add(what)
                _log.warning("%s", hint)

    async def ready(self) -> bool:
        """Let deliveries come. Iterating says this, and `get`, by itself."""
        return await self.session.ready()

    async def stop(self) -> bool:
        """Let no more deliveries come; a loop ends when it has taken what is here already."""
        return await self.session.stop()

    async def get(self) -> int:
        """Ask for what was not acknowledged: returns the number of deliveries that will come."""
        return await self.session.get()

    async def disconnect(self) -> bool:
        """Tell the last acknowledgements, and leave. Subscriptions stay; they collect what matches.

        Returns
        -------
        bool
            Whether the server has confirmed it.
        """
        return await self.session.disconnect()

    def __aiter__(self) -> Deliveries:
        return Deliveries(self)

    async def receive(self) -> Delivery | None:
        """Return the next delivery, None after `stop` and `disconnect`. Nothing is said to the server.

        Raises
        ------
        UnreachableError, RefusedError
            It has given up.
        """
        item = await self.session.next_item()
        return None if item is None else Delivery(item, self.session.acknowledge)


def _one_or_several(events: Any) -> dict[str, Any]:
    several = isinstance(events, Sequence) and not isinstance(events, str | bytes)
    return {"events" if several else "event": events}


def _named(key: str | None) -> str:
    """The key, or a new one; an empty one is the server's to refuse."""
    return uuid4().hex if key is None else key


def _told(value: T | None) -> T:
    if value is None:
        raise ProtocolError("the server's answer lacks what was asked for")
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
