"""Orders: the sequence in which the events of a batch are searched."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from rtfilter.scheduler.checked_arrays import IntArray, as_cost

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
    """Return an order by the true cost, shortest first, which ignores workloads.

    This is the best order for the mean response time. It is a reference: true costs are known only after
    the search.

    Parameters
    ----------
    cost : array_like of float (n,)
        True cost of each event, finite and at least 0.

    Returns
    -------
    Order
        It raises ``ValueError`` for a batch that does not have n events.

    Raises
    ------
    ValueError
        A cost is NaN, infinite or negative.
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

    Raises
    ------
    ValueError
        The name is unknown; the message lists the names in :data:`ORDERS`.
    """
    if callable(order):
        return order
    try:
        return ORDERS[order]
    except KeyError:
        known = ", ".join(repr(name) for name in ORDERS)
        raise ValueError(f"unknown order {order!r}; choose one of {known}") from None
