"""The memory of the process: the system gets freed memory back."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from typing import Any, Final

from rtfilter.index import ready

MANY: Final = 500_000
"""Small objects, some 50 MB. CPython keeps up to 40,000 freed tuples, which may lie all over its memory."""


class Memory:
    """Returns freed memory to the system."""

    def __init__(self) -> None:
        self._most, self._frozen = 0, False
        self._trim: Any = None
        with suppress(AttributeError, OSError, TypeError):  # another C library than glibc, or Windows
            self._trim = ctypes.CDLL(None).malloc_trim

    def give_back(self) -> None:
        """Free the memory that threads keep for their next search, and return freed memory to the system.

        glibc keeps freed memory of each thread otherwise. This takes milliseconds; other threads run then.
        After `MANY` objects are gone, a full garbage collection frees the tuples that CPython keeps. All
        threads wait for it: some milliseconds, because the objects of the search code are frozen.
        """
        if ready.ready():
            from rtfilter.index import room  # which imports numba

            room.forget()
            if not self._frozen:
                self._frozen = True
                gc.collect()  # 0.1 s, this once
                gc.freeze()
        count = sys.getallocatedblocks()
        if count < self._most - MANY:
            gc.collect()
            self._most = count
        self._most = max(self._most, count)
        if self._trim is not None:
            self._trim(0)
