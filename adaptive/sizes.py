"""Classes of batch size: which batches share one tuned plan (W-5).

A class function takes the size of a batch (>= 1) and returns the *smallest size* of its class, which is
the label of the class as well.
"""

from collections.abc import Callable

SizeClass = Callable[[int], int]


def exact(size: int) -> int:
    """Every batch size is a class of its own, as in the paper; for experiments with few sizes."""
    return size


def powers_of_two(size: int) -> int:
    """Sizes 1, 2-3, 4-7, 8-15, ...: few classes whatever sizes arrive; for services."""
    return 1 << (size.bit_length() - 1)
