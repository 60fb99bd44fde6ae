"""The client with asyncio: it comes back by itself when the connection is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from uuid import uuid4

from rtfilter.client.address import Address
from rtfilter.client.backoff import delay
from rtfilter.client.deliveries import Delivery
from rtfilter.client.errors import ClientError, ClosedError, ProtocolError, RefusedError, UnreachableError
from rtfilter.client.ledger import Item, Ledger
from rtfilter.client.link import Link, join
from rtfilter.client.messages import Ack, Connected, Error, Message
from rtfilter.client.protocol import Directive, State, encoded

WINDOW: Final = 256
"""Deliveries that may wait in memory, by default."""
PATIENCE: Final = 60.0
"""Seconds for which a client tries to come back, by default."""
SOON: Final = 0.02
"""Seconds within which acknowledgements are told."""
LEAVING: Final = 5.0
"""Seconds within which the server should confirm DISCONNECT."""
STEADY: Final = 5.0
"""Seconds after which a connection counts as a good one."""
PAUSING: Final = frozenset({Directive.SUBSCRIBE, Directive.UNSUBSCRIBE, Directive.GET})
"""What is not allowed while deliveries come; the client stops them for it, and lets them come again."""
LASTING: Final = frozenset({Directive.PUBLISH, Directive.SUBSCRIBE, Directive.UNSUBSCRIBE})
"""What is asked again on the next connection. The others are about the connection itself."""

T = TypeVar("T")
Acknowledge = Literal["automatic", "manual"]


class _Request:
    """Something asked, until it is answered. `own`: by the client itself, nobody waits for the answer."""

    def __init__(self, directive: Directive, body: dict[str, Any], own: bool = False) -> None:
        self.directive, self.body, self.own = directive, body, own
        self.answer: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        self.asked, self.since = 0, monotonic()


def _answer(request: _Request, answer: Ack) -> None:
    if not request.answer.done():  # its caller may have been cancelled
        request.answer.set_result(answer)


def _fail(request: _Request, error: ClientError) -> None:
    if not request.answer.done() and not request.own:
        request.answer.set_exception(error)


def _told(value: T | None) -> T:
    if value is None:
        raise ProtocolError("the server's answer lacks what was asked for")
    return value


class Client:
    """A session of a user with a server. Made by `connect`; used within one event loop.

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
        if window < 1:
            raise ClientError("a window has room for at least 1 delivery")
        if acknowledge not in ("automatic", "manual"):
            raise ClientError('acknowledge is "automatic" or "manual"')
        self._address, self._patience = address, patience
        self.automatic: Final = acknowledge == "automatic"
        self._ledger = Ledger(window)
        self._link: Link | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._requests: dict[int, _Request] = {}  # by tag
        self._tag = 0
        self._backlog = self._receiving = self._stopped = False  # what the program wants
        self._gotten = self._counted = False  # whether GET was said, and answered, on this connection
        self._pending: int | None = None  # deliveries that its first GET brings, until they are here
        self._news = asyncio.Event()
        self._telling: asyncio.TimerHandle | None = None
        self._leaving = False
        self._error: ClientError | None = None
        self.user, self.roles = "", tuple[str, ...]()
        """Who the server takes this client for, and what it may do."""

    # -- the life of the client --------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect, once.

        Raises
        ------
        UnreachableError, RefusedError
        """
        if self._keeper is not None or self._error is not None:
            raise ClientError("a client is opened once")
        link = await join(self._address)
        self._settle_in(link)
        self._keeper = asyncio.create_task(self._keep(link))
        return self

    async def __aenter__(self) -> Self:
        return self if self._keeper is not None else await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    async def disconnect(self) -> bool:
        """Tell the last acknowledgements, and leave. Subscriptions stay; they collect what matches.

        Returns
        -------
        bool
            Whether the server has confirmed it.
        """
        if self._leaving or self._keeper is None or self._keeper.done():
            self._leaving = True
            if self._keeper is not None:
                await asyncio.wait([self._keeper])
            return False
        self._leaving = True
        request = _Request(Directive.DISCONNECT, {})
        try:
            if self._link is not None:
                self._tell()
                if self._link.protocol.expected is State.RECEIVING:
                    self._ask(_Request(Directive.STOP, {}, own=True))
                self._ask(request)
                ends: list[asyncio.Future[Any]] = [request.answer, self._keeper]
                await asyncio.wait(ends, timeout=LEAVING, return_when="FIRST_COMPLETED")
            return request.answer.done() and request.answer.exception() is None
        finally:
            request.answer.cancel()
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
            self._end(ClosedError("the client is disconnected"))

    async def _keep(self, link: Link) -> None:
        """Stay connected until told otherwise."""
        tries = 0
        try:
            while True:
                since = monotonic()
                reason = await link.run(self._hear)
                self._link = None
                if self._leaving:
                    return
                self._give_up_some(link)
                tries = 0 if monotonic() - since > STEADY else tries
                link, tries = await self._again(reason, tries)
                self._settle_in(link)
        except ClientError as error:
            self._end(error)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._end(ClientError(f"the client has failed: {error!r}"))
            raise
        finally:
            self._link = None

    async def _again(self, reason: str, tries: int) -> tuple[Link, int]:
        """Connect until it works, for as long as there is patience."""
        end = monotonic() + self._patience
        wait = delay(tries)
        while True:
            if monotonic() + wait > end:
                raise UnreachableError(
                    f"the connection was lost ({reason}), and could not be made again within "
                    f"{self._patience:g} s"
                )
            await asyncio.sleep(wait)
            tries += 1
            try:
                return await join(self._address), tries
            except UnreachableError as error:
                reason, wait = str(error), delay(tries)
            except RefusedError as error:
                if not error.passing:
                    raise
                reason, wait = str(error), max(delay(tries), error.retry_after or 0)

    def _give_up_some(self, link: Link) -> None:
        """Fail what breaks each connection on which it is said, or might."""
        for tag, request in list(self._requests.items()):
            error: ClientError | None = None
            if link.too_large and request.directive is Directive.PUBLISH:
                error = RefusedError("more events at once than the server takes; send fewer", "too-large")
            elif request.asked > 2 and monotonic() - request.since > self._patience:
                error = UnreachableError(f"the connection was lost {request.asked} times before the answer")
            if error is not None:
                del self._requests[tag]
                _fail(request, error)

    def _settle_in(self, link: Link) -> None:
        """On a new connection: what was not answered, and what the program wants."""
        self._link, self._pending, self._gotten = link, None, False
        self._counted = False
        self.user, self.roles = link.connected.user, link.connected.roles
        credit = self._ledger.begin()
        waiting = [request for request in self._requests.values() if not request.own]
        self._requests.clear()
        self._ask(_Request(Directive.CREDIT, {"more": credit}, own=True))
        for request in waiting:
            if request.directive in LASTING:
                self._ask(request)
        asked = {request.directive: request for request in waiting if request.directive not in LASTING}
        again = self._receiving or (self._backlog and not self._stopped)
        for directive, wanted in ((Directive.GET, again), (Directive.READY, self._receiving)):
            if wanted or directive in asked:
                self._ask(asked.get(directive) or _Request(directive, {}, own=True))
        for request in waiting:
            if request.directive is Directive.STOP or (
                request.directive not in LASTING and asked[request.directive] is not request
            ):
                _answer(request, Ack(pending=0))

    def _end(self, error: ClientError) -> None:
        """Nothing more will come: everybody who waits is told."""
        self._error = self._error or error
        self._link = None
        if self._telling is not None:
            self._telling.cancel()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            _fail(request, self._error)
        self._news.set()

    # -- asking and hearing ------------------------------------------------------------------------------

    def _ask(self, request: _Request) -> None:
        """Say it now, or on the next connection."""
        if self._error is not None:
            raise self._error
        self._tag += 1
        if self._link is not None:
            self._link.send(self._link.protocol.ask(request.directive, self._tag, **request.body))
            request.asked += 1
            self._gotten = self._gotten or request.directive is Directive.GET
        self._requests[self._tag] = request

    async def _request(self, directive: Directive, **body: Any) -> Ack:
        """Ask, and wait for the answer, over as many connections as it takes."""
        if self._leaving:
            raise ClosedError("the client is disconnected")
        given = {name: encoded(value) for name, value in body.items() if value is not None}
        request, link = _Request(directive, given), self._link
        if directive in PAUSING and link is not None and link.protocol.expected is State.RECEIVING:
            self._ask(_Request(Directive.STOP, {}, own=True))
            self._ask(request)
            if not self._gotten:  # what matches meanwhile is in the backlog, which READY has sent after GET
                self._ask(_Request(Directive.GET, {}, own=True))
            self._ask(_Request(Directive.READY, {}, own=True))
        else:
            self._ask(request)
        return await request.answer

    def _hear(self, message: Message) -> None:
        match message:
            case Ack():
                request = self._requests.pop(message.tag or 0, None)
                if request is not None:
                    self._confirmed(request, message)
            case Error():
                request = self._requests.pop(message.tag or 0, None)
                if request is not None:
                    self._refused(request, message)
            case Connected():
                pass
            case _:
                self._ledger.arrive(message)
                if self._pending is not None and self._ledger.resent(self._pending):
                    self._pending = None
                self._news.set()
                if self._ledger.untold:
                    self._tell_soon()

    def _confirmed(self, request: _Request, answer: Ack) -> None:
        match request.directive:
            case Directive.ACK:
                self._ledger.confirmed(request.body["upto"])
            case Directive.GET if not self._counted:
                self._counted, self._pending = True, answer.pending
        _answer(request, answer)

    def _refused(self, request: _Request, answer: Error) -> None:
        error = RefusedError(answer.error, answer.kind, answer.retry_after, answer.row)
        if request.directive is Directive.UNSUBSCRIBE and request.asked > 1 and answer.kind == "unknown":
            _answer(request, Ack())  # the first time it was done, and the answer was lost
        elif not request.own:
            _fail(request, error)
        elif not error.passing:
            raise error
        elif self._link is not None:
            self._link.drop(str(error))  # and begin again, after a while

    # -- what a program asks for -------------------------------------------------------------------------

    async def subscribe(
        self,
        where: str | Mapping[str, Any],
        *,
        filter: str = "default",
        metadata: Mapping[str, Any] | None = None,
        ttl: float | None = None,
        digest: float | None = None,
        order: Literal["key"] | None = None,
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
        answer = await self._request(Directive.SUBSCRIBE, **body, order=order, key=uuid4().hex)
        return _told(answer.subscription)

    async def unsubscribe(self, id: int) -> bool:
        """Remove a subscription, with what waits for it. Raises as `subscribe`.

        Parameters
        ----------
        id : int
        """
        await self._request(Directive.UNSUBSCRIBE, subscription=id)
        return True

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
            Positions in the server's log, once the events are durable.

        Raises
        ------
        RefusedError
            Nothing was published. Of kind ``event``, it has the `row`; of kind ``limit``, `retry_after`.
        UnreachableError, ClosedError
            Whether it was published is not known; with a key it can be published again.
        """
        several = isinstance(events, Sequence) and not isinstance(events, str | bytes)
        body = {"events": events} if several else {"event": events}
        answer = await self._request(Directive.PUBLISH, filter=filter, **body, key=key or uuid4().hex)
        return _told(answer.positions)

    async def ready(self) -> bool:
        """Let deliveries come. Iterating says this, and `get`, by itself."""
        if not self._receiving:
            self._receiving, self._stopped = True, False
            try:
                if self._backlog and not self._gotten:
                    await self._request(Directive.GET)
                await self._request(Directive.READY)
            except RefusedError:
                self._receiving = False
                raise
        return True

    async def stop(self) -> bool:
        """Let no more deliveries come; a loop ends when it has taken what is here already."""
        if self._receiving:
            self._receiving = False
            await self._request(Directive.STOP)
        self._stopped = True
        self._news.set()
        return True

    async def get(self) -> int:
        """Ask for what was not acknowledged: returns the number of deliveries that will come."""
        self._backlog, self._stopped = True, False
        try:
            return _told((await self._request(Directive.GET)).pending)
        except RefusedError:
            self._backlog = False
            raise

    # -- deliveries --------------------------------------------------------------------------------------

    def __aiter__(self) -> Deliveries:
        return Deliveries(self)

    async def receive(self) -> Delivery | None:
        """Return the next delivery, None after `stop` and `disconnect`. Nothing is said to the server.

        Raises
        ------
        UnreachableError, RefusedError
            It has given up.
        """
        item = await self.next_item()
        return None if item is None else Delivery(item, self.acknowledge)

    async def next_item(self, endless: bool = False) -> Item | None:
        """Return what `receive` does, for other kinds of clients; endless: `stop` does not end it."""
        while True:
            if isinstance(self._error, ClosedError):
                return None
            if self._error is not None:
                raise self._error
            item = self._ledger.take()
            if item is not None:
                self._tell_soon()
                return item
            if self._stopped and not endless:
                return None
            self._news.clear()
            await self._news.wait()

    async def begin(self) -> None:
        """Have the backlog and what is new come, unless they do already."""
        if not self._receiving:
            await self.get()
            await self.ready()

    def acknowledge(self, item: Item) -> None:
        """Acknowledge what `next_item` returned."""
        self._ledger.acknowledge(item)
        self._tell_soon()

    def _tell_soon(self) -> None:
        """Tell acknowledgements and credit: at once where there are many, otherwise a moment later."""
        if self._link is not None and not self._leaving:
            self._say_due(max(1, self._ledger.window // 4))
            if self._telling is None and self._ledger.untold:
                self._telling = asyncio.get_running_loop().call_later(SOON, self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._telling = None
        if self._link is not None:
            self._say_due(1)

    def _say_due(self, least: int) -> None:
        upto, credit = self._ledger.due(least)
        if upto:
            self._ask(_Request(Directive.ACK, {"upto": upto}, own=True))
        if credit:
            self._ask(_Request(Directive.CREDIT, {"more": credit}, own=True))


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
            await self._client.begin()
            self._begun = True
        delivery = await self._client.receive()
        if delivery is None:
            raise StopAsyncIteration
        if self._client.automatic:
            self._last = delivery
        return delivery
