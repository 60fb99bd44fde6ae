"""Memory of pools: small ones are copied when they grow, large ones are in reserved address space.

Address space costs nothing. A page of it becomes memory at the first write, and may be returned. So a
large pool has from the start as many rows as it may ever need: to grow is to write the next row. If
the system reserves no address space (Windows, or a limit on it), large pools are copied as well.
"""

import ctypes
import mmap
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Rows = TypeVar("Rows", bound=NDArray[Any])

LINE = 64  # bytes of a cache line
LARGE = 1 << 21  # bytes from which a pool lies in reserved address space
MOST = 1 << 36  # bytes of address space of a pool, unless it needs more
SPARE = 1.5  # growth of a pool that is copied, as a factor
_KEEP_OLD, _FIXED, _MAY_MOVE = 4, 2, 1  # of mremap


def grown(pool: Rows, rows: int, most: int) -> Rows:
    """Return a pool with room for `rows` rows and the same content, or `pool` itself if it has the room.

    A large pool gets room for `most` rows if the system allows it.
    """
    if len(pool) >= rows:
        return pool
    row = int(np.prod(pool.shape[1:])) * pool.itemsize
    spacious = max(rows, int(len(pool) * SPARE))
    larger = _reserved(rows * row, most * row) if spacious * row >= LARGE else None
    if larger is None:
        larger = _aligned(spacious * row)
    if not _pages_moved(pool, larger):
        larger[: pool.nbytes] = pool.reshape(-1).view(np.uint8)
    return larger[: len(larger) // row * row].view(pool.dtype).reshape(-1, *pool.shape[1:])


def zeros(rows: int, columns: int) -> NDArray[np.int32]:
    """Return zeros, int32 (rows, columns), at no cost: pages become memory at the first write."""
    size = 4 * rows * columns
    reserved = _reserved(size, size) if size >= LARGE else None
    if reserved is None:
        return np.zeros((rows, columns), np.int32)
    return reserved[:size].view(np.int32).reshape(rows, columns)


def give_back(pool: NDArray[Any], first: int, last: int) -> int:
    """Return to the system the memory of rows `first` to `last` (exclusive); their content is lost.

    Only whole pages of a pool in reserved address space are returned. Returns the number of bytes.
    """
    mapping = _mapping(pool)
    if not isinstance(mapping, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return 0
    row = pool.strides[0]
    begin = -(-first * row // mmap.PAGESIZE) * mmap.PAGESIZE
    end = last * row // mmap.PAGESIZE * mmap.PAGESIZE
    if begin >= end:
        return 0
    with suppress(OSError):
        mapping.madvise(mmap.MADV_DONTNEED, begin, end - begin)
        return end - begin
    return 0


def use_huge_pages(pool: NDArray[Any], rows: int) -> None:
    """Put the first `rows` rows into huge pages: searches read those faster.

    Do not include rows of coming changes: the system may take long to find room for a huge page.
    """
    mapping = _mapping(pool)
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE, 0, rows * pool.strides[0])


def _aligned(size: int) -> NDArray[np.uint8]:
    """Return `size` uninitialised bytes that begin with a cache line.

    NumPy begins big arrays 16 bytes into a line, so that each vector of mask words would be in two.
    """
    room = np.empty(size + LINE, np.uint8)
    start = -room.__array_interface__["data"][0] % LINE
    return room[start : start + size]


def _reserved(least: int, most: int) -> NDArray[np.uint8] | None:
    """Return zero bytes in reserved address space: `most` if that is free, else 2 x `least`, else None."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return None
    free = [max(least, min(most, max(MOST, 2 * least)))] if _address_space_is_free() else []
    for size in [*free, 2 * least]:
        with suppress(OSError, ValueError, OverflowError):
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _no_reserve()
            return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
    return None


@cache
def _address_space_is_free() -> bool:
    """Return whether unused address space costs nothing."""
    with suppress(OSError, ImportError):
        import resource

        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            return False
    with suppress(OSError):
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "2"
    return True


def _no_reserve() -> int:
    """Return the flag by which pages count at the first write; 0 if it is unknown."""
    usual = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    return getattr(mmap, "MAP_NORESERVE", 0x4000 if usual else 0)


def _mapping(array: Any) -> Any:
    """Return the object that owns the memory of an array."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def _pages_moved(pool: NDArray[Any], larger: NDArray[np.uint8]) -> bool:
    """Move the pages of a pool that is mapped from a file to the start of a larger one, without a copy.

    The old pool then has the content of the file, without later writes. Returns False if impossible.
    """
    move = _mremap()
    begin = pool.__array_interface__["data"][0]
    old, new = _mapping(pool), _mapping(larger)
    if move is None or not isinstance(old, mmap.mmap) or not isinstance(new, mmap.mmap):
        return False
    if pool.nbytes < LARGE or begin % mmap.PAGESIZE or not _of_file(pool):
        return False
    into = larger.__array_interface__["data"][0]
    return bool(move(begin, pool.nbytes, pool.nbytes, _KEEP_OLD | _FIXED | _MAY_MOVE, into) == into)


def _of_file(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


@cache
def _mremap() -> Callable[[int, int, int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    with suppress(OSError, AttributeError):
        call = ctypes.CDLL(None, use_errno=True).mremap
        call.restype = ctypes.c_void_p
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        found: Callable[[int, int, int, int, int], int] = call
        return found
    return None
