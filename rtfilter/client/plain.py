"""Clients without asyncio: each runs a `Client` on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rtfilter.client.client import URL, Arrived, Client, connect
from rtfilter.client.client_errors import ClientError, ClosedError
from rtfilter.client.ledger import Item
from rtfilter.client.protocol import ServerSubscription

P = ParamSpec("P")
T = TypeVar("T")


class Background:
    """Runs coroutines in another thread. The thread does not prevent the end of the program."""

    def __init__(self) -> None:
        self._made: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, name="rtfilter client", daemon=True)
        self._lock, self._closed = threading.RLock(), False
        try:
            self._thread.start()
            self._made.result()
        except BaseException:  # an interrupt, or too many open files
            self.close()
            raise

    def _run(self) -> None:
        with self._lock:
            if self._closed:  # the caller of the constructor was interrupted
                return
            try:
                loop = asyncio.new_event_loop()  # in the thread, because no interrupt comes here
            except BaseException as error:
                self._made.set_exception(error)
                return
            self._made.set_result(loop)
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            while left := asyncio.all_tasks(loop):  # cancelled tasks may start others
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(asyncio.sleep(0))  # cancelled connections close their sockets
            loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the thread, and return its future. Raises `ClosedError` after `close`."""
        with self._lock:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self._made.result())
        work.close()
        raise ClosedError("the client is disconnected")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, and wait for its result. An interrupt cancels it.

        Raises `ClosedError` if the thread has ended, or ends meanwhile.
        """
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:  # cancelled by `close`
            raise ClosedError("the client is disconnected") from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread, and cancel its coroutines."""
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._made.done() and not self._made.exception():
                    loop = self._made.result()
                    loop.call_soon_threadsafe(loop.stop)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)


class _InBackground:
    """A client that is connected in a thread."""

    def __init__(self, client: Client) -> None:
        self._client, self._background = client, Background()
        try:
            self._background.call(client.session.open())
        except BaseException:
            self._background.close()
            raise

    def _acknowledge(self, item: Item) -> None:
        async def acknowledge() -> None:
            self._client.session.acknowledge(item)

        with suppress(ClosedError):  # the server will send it again
            self._background.submit(acknowledge())


def _waiting(
    operation: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[PlainClient, P], T]:
    """Return a method that runs an operation of `Client`, and waits for its result."""

    @wraps(operation)
    def method(self: PlainClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._background.call(operation(self._client, *args, **kwargs))

    return method


class PlainDelivery(Arrived):
    """A delivery to a program without asyncio."""

    def acknowledge(self) -> None:
        """Acknowledge this delivery: the server will not send it again.

        The acknowledgement is sent a moment later, and by `PlainClient.disconnect` at the latest.
        """
        self._done(self._item)


class PlainClient(_InBackground):
    """A session of a user with a server; made by `connect_plain`. Any thread may use it.

    Operations, parameters and errors are those of `Client`.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        weakref.finalize(self, self._background.close)

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

    subscribe = _waiting(Client.subscribe)
    replace = _waiting(Client.replace)
    unsubscribe = _waiting(Client.unsubscribe)
    subscription = _waiting(Client.subscription)
    match = _waiting(Client.match)
    explain = _waiting(Client.explain)
    publish = _waiting(Client.publish)
    ready = _waiting(Client.ready)
    stop = _waiting(Client.stop)
    get = _waiting(Client.get)

    def subscriptions(self, filter: str | None = None) -> Iterator[ServerSubscription]:
        """Yield your subscriptions; see `Client.subscriptions`."""
        after: int | None = 0
        while after is not None:
            found, after = self._background.call(self._client.page(filter, after))
            yield from found

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


EventHandler = Callable[[Arrived], object]
ErrorHandler = Callable[[Exception], object]


class ClientApi(_InBackground):
    """A session of a user with a server, with futures; made by `get_client`.

    A future completes when the message that confirms its operation was processed; it fails when the server
    refuses, or can no longer be reached.
    """

    def __init__(self, client: Client) -> None:
        self._handler: EventHandler | None = None
        self._on_error: ErrorHandler | None = None
        self._thread: threading.Thread | None = None
        self._left = False
        super().__init__(client)

    def set_event_received_handler(self, handler: EventHandler) -> None:
        """Set the function to call with each delivery, one after the other, in a thread of its own.

        The delivery is acknowledged when the handler returns; if the handler raises, it will come again.
        """
        self._handler = handler

    def set_server_response_exception_handler(self, handler: ErrorHandler) -> None:
        """Set the function to call with each error of the server, the connection and the other handler."""
        self._on_error = handler

    def subscribe(self, where: str | Mapping[str, Any], filter: str = "default") -> Future[int]:
        """Subscribe to the events that match; the result of the future is the id."""
        return self._submit(self._client.subscribe(where, filter=filter))

    def unsubscribe(self, id: int) -> Future[bool]:
        """Remove a subscription."""
        return self._submit(self._client.unsubscribe(id))

    def ready(self) -> Future[bool]:
        """Start the delivery of new events to the handler. Raises `ClientError` if there is none."""
        self._listen("ready")
        return self._submit(self._client.ready())

    def stop_sending(self) -> Future[bool]:
        """Stop deliveries."""
        return self._submit(self._client.stop())

    def get(self) -> Future[bool]:
        """Start the delivery of all that is not acknowledged, such as events from before the connection.

        Raises `ClientError` if there is no handler.
        """
        self._listen("get")

        async def get() -> bool:
            await self._client.get()
            return True

        return self._submit(get())

    def disconnect(self) -> Future[bool]:
        """Disconnect; subscriptions stay. The client cannot be used afterwards."""
        future = self._submit(self._client.disconnect())
        self._left = True
        future.add_done_callback(lambda _: threading.Thread(target=self._background.close).start())
        return future

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._left:
            work.close()
            future: Future[T] = Future()
            future.set_exception(ClosedError("the client is disconnected"))
        else:
            future = self._background.submit(work)
        future.add_done_callback(self._report_failure)
        return future

    def _report_failure(self, future: Future[Any]) -> None:
        if not future.cancelled() and isinstance(error := future.exception(), Exception):
            self._report(error)

    def _report(self, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(error)

    def _listen(self, operation: str) -> None:
        if self._handler is None:
            raise ClientError(f"call set_event_received_handler before {operation}: events need a handler")
        if self._thread is None:
            self._thread = threading.Thread(target=self._handle, name="rtfilter events", daemon=True)
            self._thread.start()

    def _handle(self) -> None:
        """Call the handler with each delivery, until the client is closed."""
        while True:
            try:
                item = self._background.call(self._client.session.next_item(endless=True))
            except ClosedError:
                return
            except Exception as error:
                return self._report(error)
            if item is None:
                return None
            try:
                assert self._handler is not None
                self._handler(Arrived(item))
            except Exception as error:
                self._report(error)
            else:
                self._acknowledge(item)


def _with_parameters_of(model: Callable[P, object]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Return a decorator that gives a function the parameters of another one, also for `help`."""

    def decorate(function: Callable[..., T]) -> Callable[P, T]:
        signature = inspect.signature(model).replace(return_annotation=function.__annotations__["return"])
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return decorate


@_with_parameters_of(connect)
def connect_plain(*args: Any, **kwargs: Any) -> PlainClient:
    """Return a client for programs without asyncio: ``with connect_plain(...) as client``.

    A background thread has connected it already. Parameters and errors are those of `connect`.
    """
    return PlainClient(connect(*args, **kwargs))


def get_client(login: str, passcode: str, url: str = URL) -> ClientApi:
    """Return a client whose operations return futures, and which passes events to a handler.

    It is already connected; `login` and `passcode` are user and password. Errors are those of `connect`.
    """
    return ClientApi(connect(url, user=login, password=passcode, acknowledge="manual"))
