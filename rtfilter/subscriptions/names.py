"""Ids that are text or UUIDs: the index knows integer keys, and here is which id each key stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.subscriptions.ids import Name

FREE: Final = 0
"""In the place of a key that stands for nothing."""


class Names:
    """Ids by key, and keys by id. Many may look up at once; changes run alone, and can be done again.

    A key takes 8 bytes in a column; the dict of keys by id some 80, besides the ids themselves. It is made
    when it is first needed: who only matches does without.

    Parameters
    ----------
    kind : type
        str or UUID.
    """

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self._column: AnyArray = np.zeros(0, object)  # by key
        self._keys: dict[Any, int] | None = None

    def take(self, keys: IntArray) -> AnyArray:
        """The ids of known keys, object (n,)."""
        found: AnyArray = self._column[keys]
        return found

    def key(self, id: object) -> int:
        """The key of an id, -1 if it is unknown or of another type."""
        if not isinstance(id, self.kind):
            return -1
        key: int = self.by_id().get(id, -1)
        return key

    def keys(self, ids: Iterable[Name]) -> IntArray:
        """The key of each id, -1 for unknown ones, int64 (n,)."""
        known = self.by_id()
        return np.array([known.get(id, -1) for id in ids], np.int64)

    @property
    def indexed(self) -> bool:
        """Whether keys can be looked up at once, or `by_id` has to make a dict first."""
        return self._keys is not None

    def by_id(self) -> dict[Any, int]:
        """All keys by their ids; about 0.1 s a million when it is first asked for."""
        if self._keys is None:
            used = self.used()
            self._keys = dict(zip(self._column[used].tolist(), used.tolist(), strict=True))
        return self._keys

    def used(self) -> IntArray:
        """All keys that stand for an id, ascending, int64 (n,)."""
        return np.flatnonzero(self.has(np.arange(len(self._column))))

    def has(self, keys: IntArray) -> BoolArray:
        """Which keys stand for an id, bool (n,)."""
        return np.array([type(id) is not int for id in self._column[keys].tolist()], np.bool_)

    def put(self, keys: Sequence[int], ids: Sequence[Name]) -> None:
        """Let keys, 0 or more each and free, stand for ids, which are new."""
        if not keys:
            return
        least = max(keys) + 1
        if least > len(self._column):
            # In place: nobody looks while this changes, and what was taken are copies.
            self._column.resize(max(least, len(self._column) * 9 // 8 + 16), refcheck=False)
        for key, id in zip(keys, ids, strict=True):
            self._column[key] = id
            if self._keys is not None:
                self._keys[id] = key

    def remove(self, key: int) -> bool:
        """Let a key stand for nothing; whether it stood for something."""
        id: Any = self._column[key] if key < len(self._column) else FREE
        if type(id) is int:
            return False
        if self._keys is not None and self._keys.get(id) == key:  # in a copy it may have another one by now
            del self._keys[id]
        self._column[key] = FREE
        return True

    # -- kept ------------------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, AnyArray]:
        """Keys, ascending, and their ids: UTF-8 and where each begins, or 16 bytes each."""
        keys = self.used()
        ids = self._column[keys].tolist()
        if self.kind is UUID:
            blocks = b"".join([id.bytes for id in ids])
            return {"name_keys": keys, "name_bytes": np.frombuffer(blocks, np.uint8).reshape(-1, 16)}
        texts = [id.encode() for id in ids]
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return {
            "name_keys": keys,
            "name_offsets": offsets,
            "name_text": np.frombuffer(b"".join(texts), np.uint8),
        }

    @classmethod
    def from_arrays(cls, kind: type, arrays: Mapping[str, AnyArray]) -> Names:
        """The ids of `to_arrays`; other arrays are ignored. Raises `ValueError` for what cannot be such."""
        keys = _column(arrays["name_keys"])
        if len(keys) and (keys[0] < 0 or (np.diff(keys) <= 0).any()):
            raise ValueError("the keys of ids do not ascend")
        ids: list[Any]
        if kind is UUID:
            blocks = arrays["name_bytes"]
            if blocks.dtype != np.uint8 or blocks.shape != (len(keys), 16):
                raise ValueError("the ids are no UUIDs")
            ids = [UUID(bytes=row.tobytes()) for row in blocks]
        else:
            offsets, text = _column(arrays["name_offsets"]), arrays["name_text"].tobytes()
            if len(offsets) != len(keys) + 1 or offsets[0] != 0 or offsets[-1] != len(text):
                raise ValueError("the arrays of ids do not fit together")
            ends = offsets.tolist()
            ids = [text[first:last].decode() for first, last in pairwise(ends)]
        made = cls(kind)
        made._column = np.zeros(int(keys[-1]) + 1 if len(keys) else 0, object)
        made._column[keys] = ids
        return made


def _column(array: AnyArray) -> IntArray:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError("the arrays of ids are no columns of integers")
    return array.astype(np.int64, copy=False)
