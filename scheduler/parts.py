"""Cutting a large batch into parts of nearly equal work, one for each parallel worker."""

import numpy as np
import numpy.typing as npt

from rtfilter.scheduler.checked_arrays import IntArray, as_workload


def balanced_parts(workload: npt.ArrayLike, parts: int) -> list[IntArray]:
    """Deal the events of a batch to `parts` workers: equal work, and shortest first within each part.

    Rows are taken in rounds of `parts` rows, in descending workload. Each round gives one row to each
    worker, the largest row to the worker with the least work so far. This has two properties:

    * The sum of all completion times on `parts` identical workers is the smallest possible, as with
      shortest-first list scheduling. The weight of a row in that sum is its distance from the end of its
      part, and the rounds give small weights to large rows.
    * The sums of two parts differ by at most the largest workload, because no row of a round is larger than
      any row of the round before. If `parts` divides n, they differ by at most the largest workload minus
      the smallest.

    If row r simply went to worker r mod `parts`, both properties would hold too, but the last worker would
    get more in every round. Here the rounds make up for each other.

    Parameters
    ----------
    workload : array_like of int (n,)
        Estimated workload of each event, at least 0.
    parts : int
        Number of workers, at least 1.

    Returns
    -------
    list of int64 arrays
        The rows of each of the `parts` parts, in ascending workload, equal workloads in the order of arrival.
        Each row is in exactly one part. The sizes of two parts differ by at most 1; with more parts than
        events some parts are empty.

    Raises
    ------
    ValueError
        `parts` is below 1, or a workload is negative or no integer.
    """
    if parts < 1:
        raise ValueError(f"a batch is cut into at least 1 part; got {parts}")
    work = as_workload(workload)
    descending = np.argsort(work, kind="stable")[::-1]
    loads = np.zeros(parts, dtype=np.int64)
    owner = np.empty(len(work), dtype=np.int64)
    owner[descending] = np.arange(len(work)) % parts
    # A round of equal workloads does not change the differences between workers, so only the others count.
    first = work[descending[::parts]]
    last = work[descending[parts - 1 :: parts]]
    uneven = np.flatnonzero(first[: len(last)] != last).tolist() + list(range(len(last), len(first)))
    for turn in uneven:
        rows = descending[turn * parts : (turn + 1) * parts]
        workers = np.argsort(loads, kind="stable")[: len(rows)]
        owner[rows] = workers
        loads[workers] += work[rows]
    # Sorted by owner, then workload, then row, the parts are consecutive slices.
    dealt = np.lexsort((work, owner))
    edges = np.searchsorted(owner[dealt], np.arange(1, parts))
    return [part.astype(np.int64, copy=False) for part in np.split(dealt, edges)]
