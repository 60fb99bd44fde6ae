"""The memory of the process: the system gets back what was freed."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from typing import Any, Final

from rtfilter.index import room

MANY: Final = 500_000
"""Small objects, some 50 MB; Python keeps up to 40,000 free tuples, which may lie all over their memory."""


class Memory:
    """Gives memory back from time to time."""

    def __init__(self) -> None:
        self._most = 0
        self._trim: Any = None
        with suppress(AttributeError, OSError, TypeError):  # another C library than glibc, or Windows
            self._trim = ctypes.CDLL(None).malloc_trim

    def give_back(self) -> None:
        """Free what threads keep for their next search, and give freed memory back to the system.

        glibc keeps freed memory otherwise, in a part of each thread. Takes milliseconds, in which others
        go on; only once after `MANY` objects are gone, all wait while Python looks for garbage.
        """
        room.forget()
        count = sys.getallocatedblocks()
        if count < self._most - MANY:
            gc.collect()
            self._most = count
        self._most = max(self._most, count)
        if self._trim is not None:
            self._trim(0)
