"""Classes of batch sizes: the batches of a class share one plan.

A class function takes the size of a batch, at least 1, and returns the *smallest size* of its class. That
size is also the label of the class.
"""

from collections.abc import Callable

SizeClass = Callable[[int], int]


def exact(size: int) -> int:
    """Each batch size is a class of its own, as in the paper (Wang et al.). Use it for few sizes only."""
    return size


def powers_of_two(size: int) -> int:
    """The classes are 1, 2-3, 4-7, 8-15, ...: there are few of them, whatever sizes arrive."""
    return 1 << (size.bit_length() - 1)
