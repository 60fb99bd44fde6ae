"""Codes for ids that are text or UUIDs: lists of integers are compared much faster."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice

import numpy as np

from rtfilter.basics.dtypes import AnyArray, IntArray

SPARE = 1000
"""Unused names that may be stored, in addition to as many as were needed."""


class Codes:
    """Names and their codes, which are counted from 0. Not safe for threads.

    Parameters
    ----------
    names : iterable of hashable, distinct
        The names with the first codes.
    """

    def __init__(self, names: Iterable[Hashable] = ()) -> None:
        self._names = list(names)
        self._code_of = {name: code for code, name in enumerate(self._names)}
        self._enough = SPARE + 2 * len(self._names)

    def __len__(self) -> int:
        return len(self._code_of)

    @property
    def many(self) -> bool:
        """True if a search for unused codes pays, because there are many."""
        return len(self) > self._enough

    def of(self, names: AnyArray) -> IntArray:
        """Return the codes of n names, object (n,), as int64 (n,); new names get the next codes."""
        codes = self._code_of
        return np.array([codes.setdefault(name, len(codes)) for name in names.tolist()], np.int64)

    def known(self, names: Iterable[Hashable]) -> IntArray:
        """Return the codes of the names that have one, int64 (k,)."""
        found = list(map(self._code_of.get, names))
        return np.array([code for code in found if code is not None], np.int64)

    def names(self, codes: IntArray) -> AnyArray:
        """Return the names of n codes, int64 (n,), as object (n,)."""
        new = len(self._code_of) - len(self._names)
        if new:  # a dict has its keys in the order of their codes
            self._names.extend(reversed(list(islice(reversed(self._code_of), new))))
        found = np.empty(len(codes), object)
        found[:] = [self._names[code] for code in codes.tolist()]
        return found
