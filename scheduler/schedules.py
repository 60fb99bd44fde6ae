"""A schedule: the order of a batch, cut into groups that are searched and released together."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rtfilter.scheduler.arrays import IntArray, as_permutation, as_workload
from rtfilter.scheduler.orders import Order


class Schedule(NamedTuple):
    """Group k is ``order[cuts[k]:cuts[k + 1]]``; groups are searched one after the other.

    Attributes
    ----------
    order : int64 (n,)
        A permutation of the rows of the batch.
    cuts : int64 (g + 1,)
        Strictly increasing from 0 to n; ``[0]`` for an empty batch (no group at all).
    """

    order: IntArray
    cuts: IntArray


def schedule(order: Order, workload: npt.ArrayLike, group: int | None) -> Schedule:
    """Order a batch and cut it into groups (W-3).

    Parameters
    ----------
    order : Order
        See :func:`scheduler.resolve` for the named ones.
    workload : array_like of int (n,)
        Stop nodes per event, >= 0.
    group : int or None
        Events per group, the last group takes what is left. 1 releases event by event (the paper);
        None makes one group of the whole batch (a plain batch join).

    Returns
    -------
    Schedule
        Rows of workload 0 need no search: they are complete as soon as the estimate is known, so under
        every order they come first, as a group of their own (W-2), in the sequence that `order` gave them.

    Raises
    ------
    ValueError
        If `group` < 1, a workload is negative or not whole, or `order` returned no permutation.
    """
    if group is not None and group < 1:
        raise ValueError(f"group must be at least 1 event, or None for the whole batch; got {group}")
    work = as_workload(workload)
    n = len(work)
    rows = as_permutation(order(work), n)
    idle = work[rows] == 0
    zeros = int(np.count_nonzero(idle))
    if zeros:
        rows = np.concatenate([rows[idle], rows[~idle]])
    starts = np.arange(zeros, n, group or max(n, 1), dtype=np.int64)
    cuts = np.concatenate([np.zeros(min(zeros, 1), np.int64), starts, np.array([n], np.int64)])
    return Schedule(rows, cuts)
