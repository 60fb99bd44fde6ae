"""An event loop in its own thread, for programs without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from rtfilter.client.client_errors import ClosedError

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
        """Run a coroutine in the thread, and return its future.

        Raises
        ------
        ClosedError
            The thread has ended.
        """
        with self._lock:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self._made.result())
        work.close()
        raise ClosedError("the client is disconnected")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, and wait for its result. An interrupt cancels it.

        Raises
        ------
        ClosedError
            The thread has ended.
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
