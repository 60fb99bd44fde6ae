"""Classes of batch sizes: the batches of a class share one plan.

A class function takes the size of a batch, at least 1, and returns the *smallest size* of its class. That
size is also the label of the class.

The mean response grows with the size of a batch. So responses of a class are converted to its smallest size
before they are compared, see :func:`as_smallest`.
"""

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise

SizeClass = Callable[[int], int]

GROUPS = (1, 4, 16, 64, 256, 1024)
"""Default group sizes. Sizes that differ by less than a factor of 4 hardly differ in response time."""


def ladder(groups: Sequence[int]) -> tuple[int, ...]:
    """Return group sizes as ints; raise ``ValueError`` unless they are at least 1 and strictly increasing."""
    rungs = tuple(map(operator.index, groups))
    if any(rung < 1 for rung in rungs) or any(a >= b for a, b in pairwise(rungs)):
        raise ValueError(f"groups must be strictly increasing sizes of at least 1; got {rungs}")
    return rungs


def exact(size: int) -> int:
    """Return the size: each size is a class, as in the paper (Wang et al.). Use it for few sizes only."""
    return size


def powers_of_two(size: int) -> int:
    """Return the largest power of two up to `size`: the classes are 1, 2-3, 4-7, 8-15, ..."""
    return 1 << (size.bit_length() - 1)


def as_smallest(response: float, size: int, label: int, group: int | None) -> float:
    """Return the mean response of a batch, converted to the smallest size of its class, `label`.

    If each event adds the same time to its group, and groups of g events follow each other, the mean response
    of n events is proportional to n + g. A batch of the smallest size keeps its response exactly. A `group`
    of None is the whole batch.
    """
    if size == label:
        return response
    own, smallest = (n + min(group or n, n) for n in (size, label))
    return response * (smallest / own)
