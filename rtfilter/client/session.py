"""A user's session, over any number of connections.

`Session` keeps a connection, and makes another one when it is lost. It stores the requests without an answer,
the wishes of the program (the backlog, new deliveries), and the state of each delivery; on a new connection
it sends the messages that follow from these.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from time import monotonic
from typing import Any, Final

from rtfilter.basics.session_states import Directive, State
from rtfilter.client.client_errors import ClientError, ClosedError, RefusedError, UnreachableError
from rtfilter.client.ledger import Item, Ledger
from rtfilter.client.link import Address, Link, join
from rtfilter.client.protocol import Confirmation, Connected, Error, Message, encoded

FIRST: Final = 0.1
"""Longest delay before the second attempt to connect, in seconds."""
MOST: Final = 5.0
"""Longest delay between two attempts, in seconds."""
SOON: Final = 0.02
"""Longest delay of an acknowledgement in seconds."""
LEAVING: Final = 5.0
"""Seconds to wait for the confirmation of DISCONNECT."""
STEADY: Final = 5.0
"""Seconds after which a connection counts as stable."""
PAUSING: Final = frozenset({Directive.SUBSCRIBE, Directive.UNSUBSCRIBE, Directive.GET})
"""The directives that need a pause of deliveries; the client stops and resumes them."""
OF_CONNECTION: Final = frozenset(
    {
        Directive.CONNECT,
        Directive.READY,
        Directive.STOP,
        Directive.GET,
        Directive.ACK,
        Directive.CREDIT,
        Directive.DISCONNECT,
    }
)
"""The directives about the connection itself. The client repeats all others on the next connection."""


class _Request:
    """A request without an answer. `own`: made by the client itself, so that nobody waits for the answer."""

    def __init__(self, directive: Directive, body: dict[str, Any], own: bool = False) -> None:
        self.directive, self.body, self.own = directive, body, own
        self.answer: asyncio.Future[Confirmation] = asyncio.get_running_loop().create_future()
        self.asked, self.since = 0, monotonic()

    def settle(self, found: Confirmation | ClientError) -> None:
        """Give the answer, or the error, to the caller, who may have been cancelled."""
        if self.answer.done():
            return
        if isinstance(found, Confirmation):
            self.answer.set_result(found)
        elif not self.own:
            self.answer.set_exception(found)


class Session:
    """A session. Use it within one event loop; `window` and `patience` are those of `connect`."""

    def __init__(self, addresses: Sequence[Address], window: int, patience: float) -> None:
        if window < 1:
            raise ClientError("window must be at least 1 delivery")
        self.addresses, self._patience, self.ledger = addresses, patience, Ledger(window)
        self.user, self.roles = "", tuple[str, ...]()
        self._link: Link | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._requests: dict[int, _Request] = {}  # by tag
        self._tag = 0
        self._backlog = self._receiving = self._stopped = False  # the wishes of the program
        self._gotten = False  # True if GET was sent on this connection
        self._useful = False  # True after a delivery, or an answer to a waiting request
        self._news = asyncio.Event()
        self._telling: asyncio.TimerHandle | None = None
        self._leaving = False
        self._error: ClientError | None = None

    # -- its life --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, once; see `Client.open`."""
        if self._keeper is not None or self._error is not None:
            raise ClientError("this client was opened before; make a new one")
        try:
            link = await join(self.addresses)
        except RefusedError as error:
            if error.kind != "standby" or len(self.addresses) == 1:
                raise
            link, _ = await self._again(str(error), 0)  # it is about to take over
        self._settle_in(link)
        self._keeper = asyncio.create_task(self._keep(link))

    async def disconnect(self) -> bool:
        """Send the last acknowledgements, and disconnect; see `Client.disconnect`."""
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
                if self._is_receiving:
                    self._say(Directive.STOP)
                self._ask(request)
                ends: list[asyncio.Future[Any]] = [request.answer, self._keeper]
                await asyncio.wait(ends, timeout=LEAVING, return_when="FIRST_COMPLETED")
            return request.answer.done() and request.answer.exception() is None
        finally:
            request.answer.cancel()
            self._keeper.cancel()
            self._end(ClosedError("the client is disconnected"))
            await asyncio.gather(self._keeper, return_exceptions=True)

    async def _keep(self, link: Link) -> None:
        """Receive, and reconnect after each loss, until `disconnect` or an error ends the session."""
        tries, good = 0, monotonic()
        try:
            while True:
                since, self._useful = monotonic(), False
                reason = await link.run(self._hear)
                self._link = None
                if self._leaving:
                    return
                self._give_up_some(link)
                if self._useful or monotonic() - since > STEADY:
                    tries, good = 0, monotonic()
                elif monotonic() - good > self._patience:
                    raise UnreachableError(f"the connection is lost again and again ({reason})")
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
        """Connect again, with delays, until it works or `patience` seconds have passed."""
        end = monotonic() + self._patience
        wait = _delay(tries)
        while True:
            if monotonic() + wait > end:
                raise UnreachableError(
                    f"there is no connection ({reason}), and none could be made within {self._patience:g} s"
                )
            await asyncio.sleep(wait)
            tries += 1
            try:
                return await join(self.addresses), tries
            except UnreachableError as error:
                reason, wait = str(error), _delay(tries)
            except RefusedError as error:
                if not error.passing:
                    raise
                reason, wait = str(error), max(_delay(tries), error.retry_after or 0)

    def _give_up_some(self, link: Link) -> None:
        """Fail the requests that are too large for the server, or that have ended several connections."""
        for tag, request in list(self._requests.items()):
            error: ClientError | None = None
            if link.too_large and request.directive in (Directive.PUBLISH, Directive.MATCH):
                error = RefusedError(
                    "this is more at once than the server takes; send fewer events, or smaller ones",
                    "too-large",
                )
            elif request.asked > 2 and monotonic() - request.since > self._patience:
                error = UnreachableError(f"the connection was lost {request.asked} times before the answer")
            if error is not None:
                del self._requests[tag]
                request.settle(error)

    def _settle_in(self, link: Link) -> None:
        """Repeat unanswered requests, and the wishes of the program, on a new connection."""
        self._link, self._gotten = link, False
        self.user, self.roles = link.connected.user, link.connected.roles
        credit = self.ledger.begin()
        waiting = [one for one in self._requests.values() if not one.own and not one.answer.done()]
        self._requests.clear()
        self._say(Directive.CREDIT, more=credit)
        for request in waiting:
            if request.directive not in OF_CONNECTION:
                self._ask(request)
        asked = {request.directive: request for request in waiting if request.directive in OF_CONNECTION}
        again = self._receiving or (self._backlog and not self._stopped)
        for directive, wanted in ((Directive.GET, again), (Directive.READY, self._receiving)):
            if wanted or directive in asked:
                self._ask(asked.get(directive) or _Request(directive, {}, own=True))
        for request in waiting:
            if request.directive is Directive.STOP or (
                request.directive in OF_CONNECTION and asked[request.directive] is not request
            ):
                request.settle(Confirmation(pending=0))

    def _end(self, error: ClientError) -> None:
        """End the session: fail all requests with the error."""
        self._error = self._error or error
        self._link = None
        if self._telling is not None:
            self._telling.cancel()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.settle(self._error)
        self._news.set()

    # -- asking and hearing ------------------------------------------------------------------------------

    def _ask(self, request: _Request) -> None:
        """Send a request now, or on the next connection."""
        if self._error is not None:
            raise self._error
        self._tag += 1
        if self._link is not None:
            message = self._link.protocol.ask(request.directive, self._tag, **request.body)
            self._link.outgoing.put_nowait(message)
            request.asked += 1
            self._gotten = self._gotten or request.directive is Directive.GET
        self._requests[self._tag] = request

    def _say(self, directive: Directive, **body: Any) -> None:
        self._ask(_Request(directive, body, own=True))

    async def request(self, directive: Directive, **body: Any) -> Confirmation:
        """Send a request, and return the answer, over any number of connections; None is left out of `body`.

        Raises `RefusedError`, `UnreachableError`, `ClosedError`, and `ClientError` for a value without JSON.
        """
        if self._leaving:
            raise ClosedError("the client is disconnected")
        given = {name: encoded(value, name) for name, value in body.items() if value is not None}
        request = _Request(directive, given)
        if directive in PAUSING and self._is_receiving:
            self._say(Directive.STOP)
            self._ask(request)
            if not self._gotten:  # matches during the pause are in the backlog, which READY sends after GET
                self._say(Directive.GET)
            self._say(Directive.READY)
        else:
            self._ask(request)
        return await request.answer

    @property
    def _is_receiving(self) -> bool:
        """True if deliveries arrive once all requests are confirmed."""
        return self._link is not None and self._link.protocol.expected is State.RECEIVING

    def _hear(self, message: Message) -> None:
        match message:
            case Confirmation():
                request = self._requests.pop(message.tag or 0, None)
                if request is not None:
                    self._confirmed(request, message)
            case Error(tag=None):
                assert self._link is not None
                self._link.drop(message.error)
            case Error():
                request = self._requests.pop(message.tag or 0, None)
                if request is not None:
                    self._refused(request, message)
            case Connected():
                pass
            case _:
                self._useful = True
                self.ledger.arrive(message)
                self._news.set()
                if self.ledger.untold:
                    self._tell_soon()

    def _confirmed(self, request: _Request, answer: Confirmation) -> None:
        self._useful = self._useful or not request.own
        if request.directive is Directive.ACK:
            self.ledger.confirmed(request.body["upto"], set(request.body.get("numbers", ())))
        request.settle(answer)

    def _refused(self, request: _Request, answer: Error) -> None:
        error = RefusedError(answer.error, answer.kind, answer.retry_after, answer.row)
        if request.directive is Directive.UNSUBSCRIBE and request.asked > 1 and answer.kind == "unknown":
            request.settle(Confirmation())  # the earlier request was done, and only its answer was lost
        elif not request.own:
            request.settle(error)
        elif not error.passing:
            raise error
        elif self._link is not None:
            self._link.drop(str(error))  # to connect again after a delay

    # -- wishes of the program -------------------------------------------------------------------------------

    async def ready(self) -> bool:
        """Start deliveries; see `Client.ready`."""
        if not self._receiving:
            self._receiving, self._stopped = True, False
            try:
                if self._backlog and not self._gotten:
                    await self.request(Directive.GET)
                if not self._is_receiving:  # a new connection may have started them already
                    await self.request(Directive.READY)
            except RefusedError:
                self._receiving = False
                raise
        return True

    async def stop(self) -> bool:
        """Stop deliveries; see `Client.stop`."""
        self._receiving = False
        if self._is_receiving:
            await self.request(Directive.STOP)
        if not self._receiving:  # otherwise another task has started them again
            self._stopped = True
            self._news.set()
        return True

    async def get(self) -> int:
        """Ask for deliveries without acknowledgement; return how many will come."""
        self._backlog, self._stopped = True, False
        try:
            return (await self.request(Directive.GET)).pending or 0
        except RefusedError:
            self._backlog = False
            raise

    async def begin(self) -> None:
        """Start the deliveries of the backlog and of new events, unless they have started.

        If the client disconnects meanwhile, there is no error: the loop over deliveries ends, too.
        """
        if not self._receiving:
            with nullcontext() if self._leaving else suppress(ClosedError):
                await self.get()
                await self.ready()

    # -- deliveries ------------------------------------------------------------------------------------------

    async def next_item(self, endless: bool = False) -> Item | None:
        """Return the next delivery; None after `disconnect`, and after `stop` unless endless.

        Raises `UnreachableError` or `RefusedError` if the session has stopped to reconnect.
        """
        while True:
            if isinstance(self._error, ClosedError):
                return None
            if self._error is not None:
                raise self._error
            item = self.ledger.take()
            if item is not None:
                self._tell_soon()
                return item
            if self._stopped and not endless:
                return None
            self._news.clear()
            await self._news.wait()

    def acknowledge(self, item: Item) -> None:
        """Acknowledge an item from `next_item`."""
        self.ledger.acknowledge(item)
        self._tell_soon()

    def _tell_soon(self) -> None:
        """Send acknowledgements and credit: at once if there are many, otherwise a moment later."""
        if self._link is not None and not self._leaving:
            self._say_due(max(1, self.ledger.window // 4))
            if self._telling is None and self.ledger.untold:
                self._telling = asyncio.get_running_loop().call_later(SOON, self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._telling = None
        if self._link is not None:
            self._say_due(1)

    def _say_due(self, least: int) -> None:
        upto, credit = self.ledger.due(least)
        numbers = self.ledger.apart(least)
        if upto or numbers:
            self._say(Directive.ACK, upto=upto, **({"numbers": numbers} if numbers else {}))
        if credit:
            self._say(Directive.CREDIT, more=credit)


def _delay(tries: int) -> float:
    """Return a random delay in seconds, so that clients of a lost server do not all reconnect at once."""
    return random.uniform(0.5, 1.0) * min(MOST, FIRST * 2.0 ** min(tries, 20))
