"""Metadata of a subscription: a small JSON object of the caller, stored as compact text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from rtfilter.dtypes import AnyArray
from rtfilter.predicates.stored.predicate_store import NO_TEXTS, Texts
from rtfilter.text import shown

LIMIT: Final = 4096
"""Most bytes of the text of one object."""
_ARRAYS: Final = ("metadata_handles", "metadata_offsets", "metadata_text")


def encoded(metadata: object) -> bytes | None:
    """Return the text of a JSON object; None for None and for an empty object.

    Raises `TypeError` for a value that is no mapping, `ValueError` for one that JSON cannot hold or that is
    too long.
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
            f"metadata takes {len(data):,} bytes as JSON, and at most {LIMIT:,} are allowed: "
            "store the rest elsewhere, by id"
        )
    return data if plain else None


class MetadataStore:
    """Texts of JSON objects by handle; texts of a snapshot stay in mapped memory."""

    def __init__(self) -> None:
        self._changed: dict[int, bytes | None] = {}  # None: removed from the loaded texts
        self._loaded = NO_TEXTS

    def get(self, handle: int) -> bytes | None:
        """Return the text of a handle, None if it has none."""
        if handle in self._changed:
            return self._changed[handle]
        return self._loaded.get(handle)

    def put(self, handle: int, text: bytes | None) -> None:
        """Set the text of a handle, None to remove it."""
        if text is not None or self._loaded.has(handle):
            self._changed[handle] = text
        else:
            self._changed.pop(handle, None)

    def __bool__(self) -> bool:
        return bool(self._changed or len(self._loaded.ids))

    def __iter__(self) -> Iterator[int]:
        yield from (handle for handle in self._loaded.ids.tolist() if handle not in self._changed)
        yield from (handle for handle, text in self._changed.items() if text is not None)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays that `from_arrays` needs, by name; none if no handle has a text."""
        handles = sorted(self)
        if not handles:
            return {}
        return Texts.of(handles, (self.get(handle) or b"" for handle in handles)).to_arrays(_ARRAYS)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> MetadataStore:
        """Return the store of `to_arrays`; other arrays are ignored.

        Raises `ValueError` for arrays that `to_arrays` cannot have made.
        """
        made = cls()
        if _ARRAYS[0] in arrays:
            made._loaded = Texts.from_arrays(arrays, _ARRAYS, "metadata")
        return made
