"""Sets of rows as bits, 64 per word: add rows, remove them, list the rows outside."""

import numpy as np

from rtfilter.index.kernels.array_types import Int1, Int32_1, Word1
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.vector import ones, trailing_zeros


@kernel
def put(words: Word1, rows: Int32_1, first: int, last: int) -> None:
    """Add ``rows[first:last]``."""
    for at in range(first, last):
        words[rows[at] >> 6] |= np.uint64(1) << np.uint64(rows[at] & 63)


@kernel
def take(words: Word1, rows: Int32_1, first: int, last: int) -> None:
    """Remove ``rows[first:last]``."""
    for at in range(first, last):
        words[rows[at] >> 6] &= ~(np.uint64(1) << np.uint64(rows[at] & 63))


@kernel
def others(words: Word1, count: int) -> int:
    """Return how many of the rows 0 to `count` are not in `words`."""
    left = count
    for word in range(len(words)):
        left -= ones(words[word])
    return left


@kernel
def with_room(found: Int1, size: int, more: int) -> Int1:
    """Return ``found``, or a longer array with the same first `size` items and room for `more`."""
    if size + more <= len(found):
        return found
    # No more than twice what is needed: the first touch of memory takes longer than to write there.
    longer = np.empty(max(2 * len(found), size + more), np.int64)
    longer[:size] = found[:size]
    return longer


@kernel
def write_others(words: Word1, count: int, found: Int1, size: int) -> int:
    """Write the rows 0 to `count` that are not in `words` after ``found[:size]``; return the new size."""
    for word in range(len(words)):
        rest = ~words[word]
        while rest != 0:
            row = word * 64 + trailing_zeros(rest)
            if row >= count:
                return size
            found[size] = row
            size += 1
            rest &= rest - np.uint64(1)
    return size
