"""Texts by id in one block, as in a snapshot: loaded texts stay in mapped memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rtfilter.dtypes import AnyArray, IntArray


class Texts(NamedTuple):
    """n texts by id."""

    ids: IntArray
    """int64 (n,), ascending."""
    offsets: IntArray
    """int64 (n + 1,): the start and the end of each text in the block."""
    block: AnyArray
    """uint8."""

    @classmethod
    def of(cls, ids: Sequence[int], texts: Iterable[bytes]) -> Texts:
        """Put texts into a block; their ids must ascend."""
        parts = list(texts)
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls(np.array(ids, np.int64), offsets, np.frombuffer(b"".join(parts), np.uint8))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], names: tuple[str, str, str], what: str) -> Texts:
        """Return the texts of `to_arrays`.

        Raises `ValueError` for arrays that `to_arrays` cannot have made.
        """
        ids, offsets, block = (arrays[name] for name in names)
        if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (ids, offsets, block)):
            raise ValueError(f"the arrays of {what} are no columns of integers")
        if len(offsets) != len(ids) + 1 or offsets[0] != 0 or offsets[-1] != len(block):
            raise ValueError(f"the arrays of {what} do not fit together")
        return cls(
            ids.astype(np.int64, copy=False),
            offsets.astype(np.int64, copy=False),
            block.astype(np.uint8, copy=False),
        )

    def to_arrays(self, names: tuple[str, str, str]) -> dict[str, AnyArray]:
        """Return the arrays by the names of ids, offsets and block."""
        return dict(zip(names, self, strict=True))

    def get(self, id: int) -> bytes | None:
        """Return the text of an id, None if it has none."""
        place = self._place(id)
        return self.block[self.offsets[place] : self.offsets[place + 1]].tobytes() if place >= 0 else None

    def has(self, id: int) -> bool:
        """Return whether an id has a text."""
        return self._place(id) >= 0

    def _place(self, id: int) -> int:
        if not len(self.ids):
            return -1
        place = int(np.searchsorted(self.ids, id))
        return place if place < len(self.ids) and self.ids[place] == id else -1


NO_TEXTS = Texts.of((), ())
