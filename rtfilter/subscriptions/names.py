"""Ids that are text or UUIDs. The index knows integer handles; a column says which id each stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.subscriptions.ids import Name

FREE: Final = 0
"""Marks a handle that stands for nothing."""


class Names:
    """Ids by handle, and handles by id.

    Threads may look up at the same time; a change must run alone, and can be repeated.

    A handle takes 8 bytes in a column, and about 80 bytes in the dict of handles by id, besides the id
    itself. The first look-up by id makes the dict; matching does not need it.

    Parameters
    ----------
    kind : type
        str or UUID.
    """

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self._column: AnyArray = np.zeros(0, object)  # by handle
        self._handles: dict[Any, int] | None = None

    def take(self, handles: IntArray) -> AnyArray:
        """Return the ids of known handles, object (n,)."""
        found: AnyArray = self._column[handles]
        return found

    def handle(self, id: object) -> int:
        """Return the handle of an id, -1 if it is unknown or of another type."""
        if not isinstance(id, self.kind):
            return -1
        handle: int = self.by_id().get(id, -1)
        return handle

    def handles(self, ids: Iterable[Name]) -> IntArray:
        """Return the handle of each id, -1 for unknown ones, int64 (n,)."""
        known = self.by_id()
        return np.array([known.get(id, -1) for id in ids], np.int64)

    @property
    def indexed(self) -> bool:
        """True if the dict of handles by id exists; False if `by_id` must make it first."""
        return self._handles is not None

    def by_id(self) -> dict[Any, int]:
        """Return all handles by their ids; the first call takes about 0.1 s for a million."""
        if self._handles is None:
            used = self.used()
            self._handles = dict(zip(self._column[used].tolist(), used.tolist(), strict=True))
        return self._handles

    def used(self) -> IntArray:
        """Return all handles that stand for an id, ascending, int64 (n,)."""
        return np.flatnonzero(self.has(np.arange(len(self._column))))

    def has(self, handles: IntArray) -> BoolArray:
        """Return which handles stand for an id, bool (n,)."""
        return np.array([type(id) is not int for id in self._column[handles].tolist()], np.bool_)

    def put(self, handles: Sequence[int], ids: Sequence[Name]) -> None:
        """Assign new ids to free handles, 0 or more."""
        if not handles:
            return
        least = max(handles) + 1
        if least > len(self._column):
            # In place: no reader runs during a change, and `take` returned copies.
            self._column.resize(max(least, len(self._column) * 9 // 8 + 16), refcheck=False)
        for handle, id in zip(handles, ids, strict=True):
            self._column[handle] = id
            if self._handles is not None:
                self._handles[id] = handle

    def remove(self, handle: int) -> bool:
        """Free a handle; return whether it stood for an id."""
        id: Any = self._column[handle] if handle < len(self._column) else FREE
        if type(id) is int:
            return False
        # In a copy the id may have another handle by now.
        if self._handles is not None and self._handles.get(id) == handle:
            del self._handles[id]
        self._column[handle] = FREE
        return True

    # -- arrays ----------------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return handles, ascending, and their ids: UTF-8 with offsets, or 16 bytes each."""
        handles = self.used()
        ids = self._column[handles].tolist()
        if self.kind is UUID:
            blocks = b"".join([id.bytes for id in ids])
            return {"name_handles": handles, "name_bytes": np.frombuffer(blocks, np.uint8).reshape(-1, 16)}
        texts = [id.encode() for id in ids]
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return {
            "name_handles": handles,
            "name_offsets": offsets,
            "name_text": np.frombuffer(b"".join(texts), np.uint8),
        }

    @classmethod
    def from_arrays(cls, kind: type, arrays: Mapping[str, AnyArray]) -> Names:
        """Return the ids of `to_arrays`; other arrays are ignored.

        Raises `ValueError` for arrays that `to_arrays` cannot have made.
        """
        handles = _column(arrays["name_handles"])
        if len(handles) and (handles[0] < 0 or (np.diff(handles) <= 0).any()):
            raise ValueError("the handles of ids do not ascend")
        ids: list[Any]
        if kind is UUID:
            blocks = arrays["name_bytes"]
            if blocks.dtype != np.uint8 or blocks.shape != (len(handles), 16):
                raise ValueError("the ids are no UUIDs")
            ids = [UUID(bytes=row.tobytes()) for row in blocks]
        else:
            offsets, text = _column(arrays["name_offsets"]), arrays["name_text"].tobytes()
            if len(offsets) != len(handles) + 1 or offsets[0] != 0 or offsets[-1] != len(text):
                raise ValueError("the arrays of ids do not fit together")
            ends = offsets.tolist()
            ids = [text[first:last].decode() for first, last in pairwise(ends)]
        made = cls(kind)
        made._column = np.zeros(int(handles[-1]) + 1 if len(handles) else 0, object)
        made._column[handles] = ids
        return made


def _column(array: AnyArray) -> IntArray:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError("the arrays of ids are no columns of integers")
    return array.astype(np.int64, copy=False)
