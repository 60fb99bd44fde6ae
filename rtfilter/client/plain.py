"""The client without asyncio: it runs the other client in a background thread."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

from rtfilter.client.address import Address
from rtfilter.client.background import Background
from rtfilter.client.client import PATIENCE, WINDOW, Acknowledge, Client
from rtfilter.client.client_errors import ClosedError
from rtfilter.client.deliveries import Arrived
from rtfilter.client.ledger import Item
from rtfilter.client.server_subscriptions import Reasons, ServerSubscription


class PlainDelivery(Arrived):
    """A delivery to a program without asyncio."""

    def __init__(self, item: Item, done: Callable[[Item], None]) -> None:
        super().__init__(item)
        self._done = done

    def acknowledge(self) -> None:
        """Acknowledge this delivery: the server will not send it again.

        The acknowledgement is sent a moment later, and by `PlainClient.disconnect` at the latest.
        """
        self._done(self._item)


class PlainClient:
    """A session of a user with a server; made by `connect_plain`. Any thread may use it.

    Operations, parameters and errors are those of `Client`.
    """

    def __init__(
        self,
        address: Address,
        *,
        window: int = WINDOW,
        acknowledge: Acknowledge = "automatic",
        patience: float = PATIENCE,
    ) -> None:
        self._client = Client(address, window=window, acknowledge=acknowledge, patience=patience)
        self._background = Background()
        weakref.finalize(self, self._background.close)
        try:
            self._background.call(self._client.session.open())
        except BaseException:
            self._background.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    @property
    def user(self) -> str:
        """The user name of this client at the server."""
        return self._client.user

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of this user."""
        return self._client.roles

    def subscribe(
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
        """Subscribe to the events that match; see `Client.subscribe`."""
        return self._background.call(
            self._client.subscribe(
                where, filter=filter, metadata=metadata, ttl=ttl, digest=digest, order=order, key=key
            )
        )

    def replace(
        self,
        id: int,
        where: str | Mapping[str, Any],
        *,
        metadata: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        digest: float | None = None,
        order: Literal["key"] | None = None,
    ) -> float | None:
        """Replace a subscription as a whole; see `Client.replace`."""
        return self._background.call(
            self._client.replace(id, where, metadata=metadata, ttl=ttl, digest=digest, order=order)
        )

    def unsubscribe(self, id: int) -> bool:
        """Remove a subscription; see `Client.unsubscribe`."""
        return self._background.call(self._client.unsubscribe(id))

    def subscription(self, id: int) -> ServerSubscription:
        """Return one of your subscriptions; see `Client.subscription`."""
        return self._background.call(self._client.subscription(id))

    def subscriptions(self, filter: str | None = None) -> Iterator[ServerSubscription]:
        """Yield your subscriptions; see `Client.subscriptions`."""
        after: int | None = 0
        while after is not None:
            found, after = self._background.call(self._client.page(filter, after))
            yield from found

    def match(self, events: Any | Sequence[Any], filter: str = "default") -> list[list[int]]:
        """Return the ids of your subscriptions that each event matches; see `Client.match`."""
        return self._background.call(self._client.match(events, filter))

    def explain(self, id: int, event: Any) -> Reasons:
        """Return why one of your subscriptions matches an event or not; see `Client.explain`."""
        return self._background.call(self._client.explain(id, event))

    def publish(
        self, events: Any | Sequence[Any], filter: str = "default", key: str | None = None
    ) -> list[int]:
        """Publish an event, or several; see `Client.publish`."""
        return self._background.call(self._client.publish(events, filter, key))

    def ready(self) -> bool:
        """Start deliveries; see `Client.ready`."""
        return self._background.call(self._client.ready())

    def stop(self) -> bool:
        """Stop deliveries; see `Client.stop`."""
        return self._background.call(self._client.stop())

    def get(self) -> int:
        """Ask for deliveries without acknowledgement; see `Client.get`."""
        return self._background.call(self._client.get())

    def disconnect(self) -> bool:
        """Send the last acknowledgements, disconnect, and end the thread; see `Client.disconnect`."""
        try:
            return self._background.call(self._client.disconnect())
        except ClosedError:  # it is disconnected already
            return False
        finally:
            self._background.close()

    def __iter__(self) -> Iterator[PlainDelivery]:
        return self.deliveries()

    def deliveries(self, timeout: float | None = None) -> Iterator[PlainDelivery]:
        """Yield deliveries as they arrive.

        Parameters
        ----------
        timeout : float, optional
            Seconds without a delivery after which the iteration ends; by default it ends at `stop` or
            `disconnect`.
        """
        self._background.call(self._client.session.begin())
        last: PlainDelivery | None = None
        while True:
            if last is not None and self._client.automatic:
                last.acknowledge()
            item = self._background.call(self._next(timeout))
            if item is None:
                return
            last = PlainDelivery(item, self._acknowledge)
            yield last

    async def _next(self, timeout: float | None) -> Item | None:
        try:
            async with asyncio.timeout(timeout):
                return await self._client.session.next_item()
        except TimeoutError:
            return None

    def _acknowledge(self, item: Item) -> None:
        async def acknowledge() -> None:
            self._client.session.acknowledge(item)

        with suppress(ClosedError):  # the server will send it again
            self._background.submit(acknowledge())
