"""An event loop in a thread of its own, for programs without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from rtfilter.client.errors import ClosedError

T = TypeVar("T")


class Background:
    """Runs coroutines in another thread. The thread does not keep the program from ending."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="rtfilter client", daemon=True)
        self._lock, self._closed = threading.RLock(), False
        try:
            self._thread.start()
        except BaseException:  # interrupted
            self.close()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there.

        Raises
        ------
        ClosedError
            The thread has ended.
        """
        with self._lock:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise ClosedError("the client is disconnected")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait for it. Who is interrupted meanwhile cancels it.

        Raises
        ------
        ClosedError
            The thread has ended.
        """
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:  # by `close`
            raise ClosedError("the client is disconnected") from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread, with what it does."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(5)
