"""Orders: which event of a batch is searched first (W-3 and its baselines)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from rtfilter.scheduler.arrays import IntArray, as_cost

Order = Callable[[IntArray], IntArray]
"""Workloads (n,), int64 -> a permutation of the rows 0..n-1, int64 (n,), first to be searched first."""


def fifo(workload: IntArray) -> IntArray:
    """Arrival order: the rows as they came."""
    return np.arange(len(workload), dtype=np.int64)


def shortest_first(workload: IntArray) -> IntArray:
    """Ascending workload; equal workloads keep arrival order (W-3)."""
    return np.argsort(workload, kind="stable").astype(np.int64, copy=False)


def longest_first(workload: IntArray) -> IntArray:
    """Descending workload; equal workloads keep arrival order.

    The worst order for the mean response time: a reference that every sane order must beat.
    """
    return np.argsort(-workload, kind="stable").astype(np.int64, copy=False)


def true_cost_order(cost: npt.ArrayLike) -> Order:
    """The oracle: shortest first by the true cost, whatever the workloads say (W-3).

    Parameters
    ----------
    cost : array_like (n,)
        True cost per event, known only after the fact. Finite, not negative.

    Returns
    -------
    Order
        Refuses (``ValueError``) a batch that has not n events.
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
"""The orders that can be named in a configuration."""


def resolve(policy: str | Order) -> Order:
    """The order meant by a name of :data:`ORDERS`, or the callable itself.

    Raises
    ------
    ValueError
        For a name that is not in :data:`ORDERS`, listing those that are.
    """
    if callable(policy):
        return policy
    try:
        return ORDERS[policy]
    except KeyError:
        known = ", ".join(repr(name) for name in ORDERS)
        raise ValueError(f"unknown scheduling policy {policy!r}; choose one of {known}") from None
