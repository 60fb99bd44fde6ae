"""Ids of subscriptions: integers from 0 to 2**63 - 2, text, or UUIDs; a filter has ids of one type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from operator import index
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.basics.dtypes import BoolArray, IntArray
from rtfilter.basics.text import shown

NO_IDS: Final = np.empty(0, np.int64)
LAST_ID: Final = 2**63 - 2

Name = str | UUID
"""An id that is no integer."""
KINDS: Final[dict[str, type]] = {"int": int, "str": str, "uuid": UUID}
"""Types of ids, by their names in snapshots."""
_BOOLEANS: Final = frozenset((bool, np.bool_))
WORDS: Final[dict[type, str]] = {int: "integers", str: "text", UUID: "UUIDs"}
"""Types of ids in messages."""


def kind_of(given: object) -> type | None:
    """Return the given type of the ids of a filter; None lets the first id decide.

    Raises `TypeError` for another type.
    """
    if given is None or (isinstance(given, type) and given in WORDS):
        return given
    raise TypeError(f"ids is int, str or uuid.UUID, the type of all ids of a filter; got {shown(given)}")


def refuse_kind(kind: type, id: object) -> TypeError:
    """Return the error for an id of another type than the filter's."""
    hint = {int: "", str: "; str(id) makes one", UUID: "; uuid.UUID(text) makes one"}[kind]
    return TypeError(f"the ids of this filter are {WORDS[kind]}, not {shown(id)}{hint}")


def new_ids(ids: ArrayLike | Sequence[Name], count: int) -> IntArray | list[Name]:
    """Return ids for `count` new subscriptions: int64 (n,), or n names of one type.

    Raises `ValueError` for values that cannot be ids, and `TypeError` for names of several types.
    """
    values = _elements(ids)
    if not values or not isinstance(values[0], Name):
        try:
            return distinct_ids(ids, count)
        except ValueError:
            if not any(isinstance(value, Name) for value in values or ()):
                raise
    assert values is not None
    names = _names(values)
    if len(names) != count:
        raise ValueError(f"there are {len(names)} ids for {count} subscriptions")
    if len(set(names)) != count:
        twice, _ = Counter(names).most_common(1)[0]
        raise ValueError(f"ids must be distinct: {shown(twice)} occurs twice")
    return names


def _elements(ids: Any) -> list[Any] | None:
    """Return the elements of a possible list of names; None for other values, such as arrays of integers."""
    if isinstance(ids, list | tuple):
        return list(ids)
    given = np.asarray(ids)
    return given.tolist() if given.ndim == 1 and given.dtype.kind in "OUT" else None


def _names(values: list[Any]) -> list[Name]:
    """Return names, all of the type of the first.

    Raises `TypeError` for another type, and `ValueError` for text that UTF-8 cannot encode.
    """
    kind = str if isinstance(values[0], str) else UUID
    if not isinstance(values[0], kind):
        kind = type(values[0])
    for row, value in enumerate(values):
        if type(value) is not kind:
            if not isinstance(value, kind):
                raise TypeError(
                    f"ids must be of one type: row 0 has {shown(values[0])}, row {row} has {shown(value)}"
                )
            other: Any = value
            values[row] = str.__str__(other) if kind is str else UUID(int=other.int)
    if kind is str:
        try:
            "".join(values).encode()
        except UnicodeEncodeError as error:
            alone = shown(error.object[error.start])
            raise ValueError(f"an id has the character {alone}, which UTF-8 cannot hold; remove it") from None
    return values


def distinct_ids(ids: Any, count: int) -> IntArray:
    """Return ids for `count` new subscriptions, int64 (n,).

    Raises `ValueError` for values that cannot be distinct ids.
    """
    given = np.asarray(ids)
    if given.shape != (count,):
        raise ValueError(f"ids must be {count} integers, not {given.dtype} of shape {given.shape}")
    try:
        names = as_ids(ids)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if count and names.min() < 0:
        raise ValueError(f"subscription ids must be in 0..2**63 - 2: {given.min()} to {given.max()}")
    if len(np.unique(names)) != count:
        raise ValueError("ids must be distinct")
    return names


def asked_ids(ids: Any, kind: type | None) -> IntArray | list[Name]:
    """Return ids to look up in a filter with ids of one type: int64 (n,), or n names.

    Raises `TypeError` for ids of another type, and the errors of `as_ids`.
    """
    if kind is int:
        return as_ids(ids)
    values = [ids] if isinstance(ids, Name) else _elements(ids)
    if kind is None:  # no subscriptions: every valid id is unknown
        if values and all(isinstance(value, Name) for value in values):
            return values
        return as_ids(ids)
    if values is None:
        values = np.atleast_1d(np.asarray(ids)).tolist()
    for value in values:
        if not isinstance(value, kind):
            raise refuse_kind(kind, value)
    return values


def as_ids(ids: ArrayLike) -> IntArray:
    """Return ids, an integer or n of them, as int64 (n,); -1 for integers that int64 cannot hold.

    Raises `TypeError` for values that are no integers, `ValueError` for more than one dimension.
    """
    if type(ids) is int:  # the lines below take 5 us for it
        return np.array([ids if 0 <= ids <= LAST_ID else -1])
    if isinstance(ids, list | tuple) and not _BOOLEANS.isdisjoint(map(type, ids)):
        raise TypeError("ids must be integers, not booleans")  # NumPy would convert them to integers
    names = np.atleast_1d(np.asarray(ids))
    if names.ndim != 1:
        raise ValueError(f"ids must be in one dimension, not in an array of shape {names.shape}")
    if names.dtype.kind in "iu" or not len(names):
        return np.where(names > LAST_ID, -1, names).astype(np.int64)
    # NumPy makes objects of integers over 64 bits, and floats of some lists.
    given = np.atleast_1d(np.array(ids, object)).tolist()
    if not all(isinstance(id, Integral) and not isinstance(id, bool) for id in given):
        raise TypeError(f"ids must be integers, not {names.dtype}")
    return np.array([id if 0 <= id <= LAST_ID else -1 for id in given], np.int64)


def one_id(id: object) -> IntArray | list[Name]:
    """Return the id of one new subscription as `new_ids` does, but faster.

    Raises `TypeError` for a value of another type, and `ValueError` as `new_ids`.
    """
    if type(id) is not int and isinstance(id, Name):
        return _names([id])
    try:
        number = index(id)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(id, bool | np.bool_):
        raise TypeError(f"id must be an integer, text or a UUID, not {shown(id)}") from None
    if not 0 <= number <= LAST_ID:
        raise ValueError(f"subscription ids must be in 0..2**63 - 2: {number}")
    return np.array([number])


def is_integer(id: object) -> bool:
    """Return whether an object is an integer, and so may be an id."""
    # The first check takes a third of the time.
    return type(id) is int or (isinstance(id, Integral) and not isinstance(id, bool))


def among(ids: IntArray, ascending: IntArray) -> BoolArray:
    """Return which of some ids are among others, at least one and ascending; bool (n,)."""
    found: BoolArray = (ids >= ascending[0]) & (ids <= ascending[-1])
    near = np.flatnonzero(found)  # mostly empty: new ids lie behind all others
    found[near] = ascending[np.searchsorted(ascending, ids[near])] == ids[near]
    return found
