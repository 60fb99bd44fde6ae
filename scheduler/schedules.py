"""A schedule: the order of a batch, cut into groups. The events of a group are released together."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rtfilter.scheduler.checked_arrays import IntArray, as_permutation, as_workload
from rtfilter.scheduler.orders import ORDERS, Order, shortest_first


class Schedule(NamedTuple):
    """The rows of a batch in groups, which are searched one after the other.

    Group k is ``order[cuts[k]:cuts[k + 1]]``.

    Attributes
    ----------
    order : int64 (n,)
        A permutation of the rows of the batch.
    cuts : int64 (g + 1,)
        Strictly increasing from 0 to n; ``[0]`` for an empty batch, which has no group.
    """

    order: IntArray
    cuts: IntArray


OWN = tuple(ORDERS.values())
"""Orders that are known to return permutations."""


def schedule(order: Order, workload: npt.ArrayLike, group: int | None) -> Schedule:
    """Order a batch and cut it into groups.

    Parameters
    ----------
    order : Order
        See :func:`rtfilter.scheduler.resolve` for those that have a name.
    workload : array_like of int (n,)
        Number of nodes at which the search paths of each event stop, at least 0.
    group : int or None
        Events per group, at least 1; the last group may be smaller. With 1 each event is released as soon as
        it is done, as in the paper (Wang et al.); None makes one group of the whole batch.

    Returns
    -------
    Schedule
        Rows with workload 0 need no search: they are done when the estimate is. So they come first under
        each order, as a group of their own, in the sequence that `order` gave them.

    Raises
    ------
    ValueError
        `group` is below 1, a workload is negative or no integer, or `order` returned no permutation.
    """
    if group is not None and group < 1:
        raise ValueError(f"group must be at least 1 event, or None for the whole batch; got {group}")
    work = as_workload(workload)
    n = len(work)
    rows = order(work)
    if order not in OWN:
        rows = as_permutation(rows, n)
    zeros = n - int(np.count_nonzero(work))
    if zeros and order is not shortest_first:
        idle = work[rows] == 0
        rows = np.concatenate([rows[idle], rows[~idle]])
    size = group or max(n, 1)
    first = 1 if zeros else 0
    cuts = np.empty(first + 1 - (zeros - n) // size, np.int64)
    cuts[0], cuts[-1] = 0, n
    cuts[first:-1] = np.arange(zeros, n, size)
    return Schedule(rows, cuts)
