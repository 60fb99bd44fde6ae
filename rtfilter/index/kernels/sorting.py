"""Sorting. One kernel for all who insert: each kind of numba's own sorts takes a second to compile."""

import numpy as np

from rtfilter.index.kernels.array_types import Float1, Int1
from rtfilter.index.kernels.jit import kernel


@kernel
def ascending(keys: Float1) -> Int1:
    """The order of keys (n,) from the least on, int64 (n,); equal ones stay as they lie."""
    return np.argsort(keys, kind="mergesort")
