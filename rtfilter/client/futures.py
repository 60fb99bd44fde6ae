"""Operations that return futures, and a handler for events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from rtfilter.client.address import Address
from rtfilter.client.background import Background
from rtfilter.client.client import Client
from rtfilter.client.client_errors import ClientError, ClosedError
from rtfilter.client.deliveries import Arrived
from rtfilter.client.ledger import Item

T = TypeVar("T")
EventHandler = Callable[[Arrived], object]
ErrorHandler = Callable[[Exception], object]


class ClientApi:
    """A session of a user with a server, with futures; made by `get_client`.

    A future completes when the message that confirms its operation was processed; it fails when the server
    refuses, or can no longer be reached.
    """

    def __init__(self, address: Address) -> None:
        self._client = Client(address, acknowledge="manual")
        self._background = Background()
        self._handler: EventHandler | None = None
        self._on_error: ErrorHandler | None = None
        self._thread: threading.Thread | None = None
        self._left = False
        try:
            self._background.call(self._client.session.open())
        except BaseException:
            self._background.close()
            raise

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
        """Start the delivery of new events to the handler.

        Raises
        ------
        ClientError
            There is no handler yet.
        """
        self._listen("ready")
        return self._submit(self._client.ready())

    def stop_sending(self) -> Future[bool]:
        """Stop deliveries."""
        return self._submit(self._client.stop())

    def get(self) -> Future[bool]:
        """Start the delivery of all that is not acknowledged, such as events from before the connection.

        Raises
        ------
        ClientError
            There is no handler yet.
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
        future.add_done_callback(self._look)
        return future

    def _look(self, future: Future[Any]) -> None:
        if not future.cancelled() and isinstance(error := future.exception(), Exception):
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(error)

    def _listen(self, operation: str) -> None:
        if self._handler is None:
            raise ClientError(f"call set_event_received_handler before {operation}: events need a handler")
        if self._thread is None:
            self._thread = threading.Thread(target=self._hand_out, name="rtfilter events", daemon=True)
            self._thread.start()

    def _hand_out(self) -> None:
        """Call the handler with each delivery, until the client is closed."""
        while True:
            try:
                item = self._background.call(self._client.session.next_item(endless=True))
            except ClosedError:
                return
            except Exception as error:
                return self._tell(error)
            if item is None:
                return None
            try:
                assert self._handler is not None
                self._handler(Arrived(item))
            except Exception as error:
                self._tell(error)
            else:
                with suppress(ClosedError):  # the server will send it again
                    self._background.submit(self._acknowledge(item))

    async def _acknowledge(self, item: Item) -> None:
        self._client.session.acknowledge(item)
