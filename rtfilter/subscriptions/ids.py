"""Ids of subscriptions: int64 from 0 to 2**63 - 2."""

from __future__ import annotations

from numbers import Integral
from operator import index
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.dtypes import BoolArray, IntArray
from rtfilter.text import shown

NO_IDS: Final = np.empty(0, np.int64)
LAST_ID: Final = 2**63 - 2


def distinct_ids(ids: ArrayLike, count: int) -> IntArray:
    """Ids for so many new subscriptions, int64 (n,). Raises `ValueError` for what cannot be such."""
    given = np.asarray(ids)
    unusable = f"ids must be {count} integers, not {given.dtype} of shape {given.shape}"
    if given.shape != (count,):
        raise ValueError(unusable)
    try:
        names = as_ids(ids)
    except TypeError:
        raise ValueError(unusable) from None
    if count and names.min() < 0:
        raise ValueError(f"subscription ids must be in 0..2**63 - 2: {given.min()} to {given.max()}")
    if len(np.unique(names)) != count:
        raise ValueError("ids must be distinct")
    return names


def as_ids(ids: ArrayLike) -> IntArray:
    """Return ids, an integer or n of them, as int64 (n,); those beyond int64, which nothing has, as -1.

    Raises `TypeError` for other than integers, `ValueError` for more than one dimension.
    """
    if type(ids) is int:  # for this alone, what follows takes 5 us
        return np.array([ids if 0 <= ids <= LAST_ID else -1])
    names = np.atleast_1d(np.asarray(ids))
    if names.ndim != 1:
        raise ValueError(f"ids must be in one dimension, not in an array of shape {names.shape}")
    if names.dtype.kind in "iu" or not len(names):
        return np.where(names > LAST_ID, -1, names).astype(np.int64)
    # NumPy makes objects of integers beyond 64 bits, and of some lists floats.
    given = np.atleast_1d(np.array(ids, object)).tolist()
    if not all(isinstance(id, Integral) and not isinstance(id, bool) for id in given):
        raise TypeError(f"ids must be integers, not {names.dtype}")
    return np.array([id if 0 <= id <= LAST_ID else -1 for id in given], np.int64)


def one_id(id: object) -> int:
    """Return the id of one new subscription. Raises `TypeError` for what is no integer."""
    try:
        return index(id)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"id must be an integer, not {shown(id)}") from None


def is_integer(id: object) -> bool:
    """Whether this is an integer, and might be an id."""
    return type(id) is int or isinstance(id, Integral)  # the first takes a third of the time


def among(ids: IntArray, ascending: IntArray) -> BoolArray:
    """Which of some ids are among others, which ascend and are at least one; bool (n,)."""
    found: BoolArray = (ids >= ascending[0]) & (ids <= ascending[-1])
    near = np.flatnonzero(found)  # mostly none: new ids lie beyond all others
    found[near] = ascending[np.searchsorted(ascending, ids[near])] == ids[near]
    return found
