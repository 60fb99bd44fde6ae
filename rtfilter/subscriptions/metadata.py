"""What programs note beside a subscription: a small JSON object, kept as compact text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from rtfilter.dtypes import AnyArray
from rtfilter.subscriptions.ids import NO_IDS
from rtfilter.text import shown

LIMIT: Final = 4096
"""Most bytes of the text of one."""


def encoded(metadata: object) -> bytes | None:
    """Return the text of a JSON object; None for None, and for one that is empty.

    Raises `TypeError` for what is no mapping, `ValueError` for what JSON cannot hold or is too long.
    """
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a dict that JSON can hold, not {shown(metadata)}")
    plain = dict(metadata)
    try:
        text = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        data, back = text.encode(), json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"metadata must be what JSON can hold: {error}") from None
    if back != plain:
        raise ValueError(
            "metadata must be what JSON can hold, with text as keys: "
            f"{shown(plain)} would become {shown(back)}"
        )
    if len(data) > LIMIT:
        raise ValueError(
            f"metadata takes {len(data):,} bytes as JSON, at most {LIMIT:,} are kept: "
            "keep the rest elsewhere, by id"
        )
    return data if plain else None


class MetadataStore:
    """Texts of JSON objects by handle; what was loaded stays in mapped memory."""

    def __init__(self) -> None:
        self._changed: dict[int, bytes | None] = {}  # None: removed from what was loaded
        self._handles = NO_IDS  # ascending
        self._offsets = np.zeros(1, np.int64)
        self._text = np.empty(0, np.uint8)

    def get(self, handle: int) -> bytes | None:
        """The text of a handle, None if it has none."""
        if handle in self._changed:
            return self._changed[handle]
        place = self._place(handle)
        return self._text[self._offsets[place] : self._offsets[place + 1]].tobytes() if place >= 0 else None

    def put(self, handle: int, text: bytes | None) -> None:
        """Set the text of a handle, None for none."""
        if text is not None or self._place(handle) >= 0:
            self._changed[handle] = text
        else:
            self._changed.pop(handle, None)

    def __bool__(self) -> bool:
        return bool(self._changed or len(self._handles))

    def __iter__(self) -> Iterator[int]:
        yield from (handle for handle in self._handles.tolist() if handle not in self._changed)
        yield from (handle for handle, text in self._changed.items() if text is not None)

    def _place(self, handle: int) -> int:
        if not len(self._handles):
            return -1
        place = int(np.searchsorted(self._handles, handle))
        return place if place < len(self._handles) and self._handles[place] == handle else -1

    def to_arrays(self) -> dict[str, AnyArray]:
        """All handles, ascending, and their texts in a block; nothing where there are none."""
        handles = sorted(self)
        if not handles:
            return {}
        texts: list[Any] = [self.get(handle) for handle in handles]
        return {
            "metadata_handles": np.array(handles, np.int64),
            "metadata_offsets": np.cumsum([0, *map(len, texts)], dtype=np.int64),
            "metadata_text": np.frombuffer(b"".join(texts), np.uint8),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> MetadataStore:
        """The store of `to_arrays`; other arrays are ignored. Raises `ValueError` for what cannot be such."""
        made = cls()
        if "metadata_handles" not in arrays:
            return made
        handles, offsets, text = (arrays[f"metadata_{name}"] for name in ("handles", "offsets", "text"))
        if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (handles, offsets, text)):
            raise ValueError("the arrays of metadata are no columns of integers")
        if len(offsets) != len(handles) + 1 or offsets[0] != 0 or offsets[-1] != len(text):
            raise ValueError("the arrays of metadata do not fit together")
        made._handles = handles.astype(np.int64, copy=False)
        made._offsets = offsets.astype(np.int64, copy=False)
        made._text = text.astype(np.uint8, copy=False)
        return made
