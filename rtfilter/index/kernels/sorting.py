"""Sorting in as little code as possible: each of numba's own sorts takes seconds to compile."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtfilter.index.kernels.array_types import Int1
from rtfilter.index.kernels.jit import kernel

RUN = 8  # keys that are sorted by insertion before runs are merged


@kernel
def ascending(keys: NDArray[Any]) -> Int1:
    """Return the ascending order of keys (n,), int64 (n,); equal keys keep their order."""
    n = len(keys)
    order, merged = np.empty(n, np.int64), np.empty(n, np.int64)
    for row in range(n):
        at, first = row, row // RUN * RUN
        while at > first and keys[order[at - 1]] > keys[row]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = row
    size = RUN
    while size < n:
        for first in range(0, n, 2 * size):
            middle, last = min(first + size, n), min(first + 2 * size, n)
            a, b = first, middle
            for at in range(first, last):
                if b == last or (a < middle and keys[order[a]] <= keys[order[b]]):
                    merged[at] = order[a]
                    a += 1
                else:
                    merged[at] = order[b]
                    b += 1
        order, merged = merged, order
        size *= 2
    return order


@kernel
def partition(keys: NDArray[Any], rows: Int1, nth: int) -> None:
    """Reorder both arrays so that the nth least key is at nth, none greater before, none less after."""
    low, high = 0, len(keys) - 1
    while low < high:
        pivot = keys[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                rows[i], rows[j] = rows[j], rows[i]
                i += 1
                j -= 1
        if nth <= j:
            high = j
        elif nth >= i:
            low = i
        else:
            return
