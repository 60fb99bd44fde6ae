"""Checks of the arrays that this package takes."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def as_workload(workload: npt.ArrayLike) -> IntArray:
    """Return workloads as int64 (n,); raise ``ValueError`` unless they are integers >= 0 in one dimension."""
    array = np.asarray(workload)
    if array.ndim != 1:
        raise ValueError(f"workload must have shape (n,), one number per event; got shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"workload must count nodes in an integer array; got dtype {array.dtype}")
    result = array.astype(np.int64, copy=False)
    if result.size and result.min() < 0:
        row = int(np.argmax(result < 0))
        raise ValueError(f"workload of row {row} is {result[row]}; a workload is never negative")
    return result


def as_cost(cost: npt.ArrayLike) -> FloatArray:
    """Return costs as float64 (n,); raise ``ValueError`` unless they are finite, >= 0, in one dimension."""
    result = np.asarray(cost, dtype=np.float64)
    if result.ndim != 1:
        raise ValueError(f"cost must have shape (n,), one number per event; got shape {result.shape}")
    bad = ~(np.isfinite(result) & (result >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"cost of row {row} is {result[row]}; a cost is finite and not negative")
    return result


def as_permutation(order: npt.ArrayLike, n: int) -> IntArray:
    """Return rows as int64 (n,); raise ``ValueError`` unless each of 0..n-1 occurs exactly once."""
    array = np.asarray(order)
    if array.shape != (n,) or (n and array.dtype.kind not in "iu"):
        raise ValueError(
            f"an order of {n} events must be an integer array of shape ({n},); "
            f"got dtype {array.dtype}, shape {array.shape}"
        )
    result = array.astype(np.int64, copy=False)
    inside = not n or (result.min() >= 0 and result.max() < n)
    if not inside or (np.bincount(result, minlength=n) != 1).any():
        raise ValueError(f"an order must be a permutation of the rows 0..{n - 1}, each exactly once")
    return result
