"""Kernels work on the arrays that are lent to them, in place."""

from typing import NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

from rtfilter.index.kernels.borrow import ByAddress, borrowed

RECORD = np.dtype([("id", "i8"), ("link", "i4")], align=True)


class Lent(NamedTuple):
    cubes: np.ndarray
    records: np.ndarray
    bytes: np.ndarray


def arrays(rows):
    return Lent(np.arange(rows * 6.0).reshape(rows, 2, 3), np.zeros(rows, RECORD), np.ones(rows, np.uint8))


BY_ADDRESS = ByAddress(lambda: arrays(0))
opened = BY_ADDRESS.opened


@njit
def changed(where):
    lent = opened(where)
    lent.cubes[-1, 1, 2] = -1
    for i in range(len(lent.records)):
        lent.records[i].id, lent.records[i].link = i, -i
    lent.bytes[:] = 2
    return lent.cubes[1].sum()


@pytest.mark.slow
def test_lent_arrays_are_read_and_written_in_place():
    lent = arrays(4)
    assert changed(BY_ADDRESS.addresses(lent)) == np.arange(6.0, 12).sum()
    assert lent.cubes[3].tolist() == [[18, 19, 20], [21, 22, -1]]
    assert lent.records.tolist() == [(0, 0), (1, -1), (2, -2), (3, -3)]
    assert lent.bytes.tolist() == [2] * 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"cubes": np.zeros((4, 2, 3), np.float32)},
        {"cubes": np.zeros((4, 6))},
        {"cubes": np.zeros((4, 3, 2)).transpose(0, 2, 1)},
        {"cubes": np.broadcast_to(0.0, (4, 2, 3))},
        {"records": np.zeros(4, np.dtype([("id", "i8"), ("link", "i4")]))},
    ],
    ids=["dtype", "axes", "strides", "read-only", "record"],
)
def test_only_arrays_as_the_kernels_expect_them_are_lent(wrong):
    with pytest.raises(TypeError, match="kernels take writable, contiguous arrays of"):
        BY_ADDRESS.addresses(arrays(4)._replace(**wrong))


@njit
def doubled_in_place(lent):
    first, (second, _) = borrowed(lent)
    for array in (first, borrowed(second)):
        array[:] *= 2
    return first.sum() + second.sum()


@pytest.mark.long
def test_borrowed_arrays_are_those_given():
    first, second = np.arange(5.0), np.arange(7.0)
    assert doubled_in_place((first, (second, np.arange(3)))) == 20 + 42
    assert first.tolist() == [0, 2, 4, 6, 8]


def test_types_are_made_known_under_the_lock_and_once():
    """A thread that loads a kernel goes through numba's table of types, which must not grow then."""
    locked = []

    def example():
        locked.append(global_compiler_lock.is_locked())
        return arrays(4)

    by_address = ByAddress(example)
    for _ in range(2):
        by_address.addresses(arrays(4))
    assert locked == [True]
