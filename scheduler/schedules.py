"""Schedules: the order of the events of a batch, cut into groups or into parts for parallel workers."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

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


Order = Callable[[IntArray], IntArray]
"""Function of the workloads, int64 (n,), that returns a permutation of the rows 0..n-1, int64 (n,): the row
that is searched first comes first."""


def fifo(workload: IntArray) -> IntArray:
    """Return the order of arrival: 0, 1, ..., n - 1."""
    return np.arange(len(workload), dtype=np.int64)


def shortest_first(workload: IntArray) -> IntArray:
    """Return rows by ascending workload: shortest job first (Wang et al.). Equal ones keep their order."""
    return np.argsort(workload, kind="stable").astype(np.int64, copy=False)


def longest_first(workload: IntArray) -> IntArray:
    """Return rows by descending workload. Equal workloads keep the order of arrival.

    This is the worst order for the mean response time. Other orders can be compared with it.
    """
    return np.argsort(-workload, kind="stable").astype(np.int64, copy=False)


def true_cost_order(cost: npt.ArrayLike) -> Order:
    """Return an order by the true cost (n,) of each event, shortest first, which ignores workloads.

    This is the best order for the mean response time. It is a reference: true costs are known only after
    the search. It raises ``ValueError`` for a cost that is NaN, infinite or negative, and for a batch that
    does not have n events.
    """
    order = np.argsort(as_cost(cost), kind="stable").astype(np.int64, copy=False)

    def by_true_cost(workload: IntArray) -> IntArray:
        if len(workload) != len(order):
            raise ValueError(f"true costs of {len(order)} events cannot order a batch of {len(workload)}")
        return order

    return by_true_cost


ORDERS: Mapping[str, Order] = MappingProxyType(
    {"fifo": fifo, "shortest": shortest_first, "longest": longest_first}
)
"""The orders that have a name."""


def resolve(order: str | Order) -> Order:
    """Return the order of a name in :data:`ORDERS`; a callable is returned as it is.

    Raises ``ValueError`` for an unknown name; the message lists the known ones.
    """
    if callable(order):
        return order
    try:
        return ORDERS[order]
    except KeyError:
        known = ", ".join(repr(name) for name in ORDERS)
        raise ValueError(f"unknown order {order!r}; choose one of {known}") from None


class Schedule(NamedTuple):
    """The rows of a batch in groups, which are searched one after the other.

    Group k is ``order[cuts[k]:cuts[k + 1]]``.
    """

    order: IntArray
    """int64 (n,): a permutation of the rows of the batch."""
    cuts: IntArray
    """int64 (g + 1,): strictly increasing from 0 to n; ``[0]`` for an empty batch, which has no group."""


def schedule(order: Order, workload: npt.ArrayLike, group: int | None) -> Schedule:
    """Order a batch and cut it into groups.

    Parameters
    ----------
    order : Order
        See :func:`resolve` for those that have a name.
    workload : array_like of int (n,)
        Number of nodes at which the search paths of each event stop, at least 0.
    group : int or None
        Events per group, at least 1; the last group may be smaller. With 1 each event is released as soon as
        it is done, as in the paper (Wang et al.); None makes one group of the whole batch.

    Rows with workload 0 need no search: they are done when the estimate is. So they come first under each
    order, as a group of their own, in the sequence that `order` gave them.

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
    if order not in ORDERS.values():
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


def balanced_parts(workload: npt.ArrayLike, parts: int) -> list[IntArray]:
    """Deal the events of a batch to `parts` workers: equal work, and shortest first within each part.

    Rows are taken in rounds of `parts` rows, in descending workload. Each round gives one row to each
    worker, the largest row to the worker with the least work so far. This has two properties:

    * The sum of all completion times on `parts` identical workers is the smallest possible, as with
      shortest-first list scheduling.
    * The sums of two parts differ by at most the largest workload. If `parts` divides n, they differ by at
      most the largest workload minus the smallest.

    Parameters
    ----------
    workload : array_like of int (n,)
        Estimated workload of each event, at least 0.
    parts : int
        Number of workers, at least 1.

    Returns
    -------
    list of int64 arrays
        The rows of each part, in ascending workload, equal workloads in the order of arrival. Each row is in
        exactly one part. The sizes of two parts differ by at most 1; with more parts than events some parts
        are empty.
    """
    if parts < 1:
        raise ValueError(f"a batch is cut into at least 1 part; got {parts}")
    work = as_workload(workload)
    descending = np.argsort(work, kind="stable")[::-1]
    loads = np.zeros(parts, dtype=np.int64)
    owner = np.empty(len(work), dtype=np.int64)
    owner[descending] = np.arange(len(work)) % parts
    # A round of equal workloads does not change the differences between workers, so only the others count.
    greatest, least = work[descending[::parts]], work[descending[parts - 1 :: parts]]
    whole = len(least)
    uneven = np.flatnonzero(greatest[:whole] != least).tolist() + list(range(whole, len(greatest)))
    for at in uneven:
        rows = descending[at * parts : (at + 1) * parts]
        workers = np.argsort(loads, kind="stable")[: len(rows)]
        owner[rows] = workers
        loads[workers] += work[rows]
    # Sorted by owner, then workload, then row, the parts are consecutive slices.
    by_owner = np.lexsort((work, owner))
    edges = np.searchsorted(owner[by_owner], np.arange(1, parts))
    return [part.astype(np.int64, copy=False) for part in np.split(by_owner, edges)]
