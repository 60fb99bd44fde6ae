"""Cutting a huge batch into parts of nearly equal work, one for each parallel worker (C-1)."""

import numpy as np
import numpy.typing as npt

from rtfilter.scheduler.arrays import IntArray, as_workload


def balanced_parts(workload: npt.ArrayLike, parts: int) -> list[IntArray]:
    """Deal the events of a batch to `parts` workers: equal work, shortest first inside each part.

    The rows are taken in descending workload, `parts` at a time; each such round gives every worker one
    row, the largest to the worker that has least so far. Two properties follow:

    * the sum of all completion times on `parts` identical workers is the smallest possible, as for
      shortest-first list scheduling: a row's weight in that sum is its distance from the end of its part,
      and the rounds give the small weights to the large rows;
    * the sums of two parts differ by no more than the largest workload (by no more than the largest minus
      the smallest, if `parts` divides n), because every round ends where the next one begins.

    Dealing row r to worker r mod m has the same two properties, but leaves the last worker ahead in every
    round; here rounds even each other out.

    Parameters
    ----------
    workload : array_like of int (n,)
        Estimated workload per event, >= 0.
    parts : int
        Number of workers, >= 1.

    Returns
    -------
    list of int64 arrays, `parts` of them
        Rows of each part, ascending in workload, ties in arrival order. Every row is in exactly one part;
        the sizes of two parts differ by at most 1; with more parts than events some are empty.

    Raises
    ------
    ValueError
        If `parts` < 1, or a workload is negative or not whole.
    """
    if parts < 1:
        raise ValueError(f"a batch is cut into at least 1 part; got {parts}")
    work = as_workload(workload)
    descending = np.argsort(work, kind="stable")[::-1]
    loads = np.zeros(parts, dtype=np.int64)
    owner = np.empty(len(work), dtype=np.int64)
    owner[descending] = np.arange(len(work)) % parts
    # A round of equal workloads leaves the differences between workers as they are, whoever gets which row.
    first = work[descending[::parts]]
    last = work[descending[parts - 1 :: parts]]
    uneven = np.flatnonzero(first[: len(last)] != last).tolist() + list(range(len(last), len(first)))
    for turn in uneven:
        rows = descending[turn * parts : (turn + 1) * parts]
        workers = np.argsort(loads, kind="stable")[: len(rows)]
        owner[rows] = workers
        loads[workers] += work[rows]
    # Sorted by owner, then workload, then row: the parts are consecutive slices.
    dealt = np.lexsort((work, owner))
    edges = np.searchsorted(owner[dealt], np.arange(1, parts))
    return [part.astype(np.int64, copy=False) for part in np.split(dealt, edges)]
