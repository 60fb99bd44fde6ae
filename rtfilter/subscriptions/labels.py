"""Labels of subscriptions beside their predicates: ids that are text or UUIDs, expiry, metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.basics.text import shown
from rtfilter.predicates.stored.predicate_store import NO_TEXTS, Texts
from rtfilter.subscriptions.expiries import Expiries
from rtfilter.subscriptions.ids import Name, is_integer

_NAME_ARRAYS: Final = ("name_handles", "name_offsets", "name_text")
LIMIT: Final = 4096
"""Most bytes of the text of one object."""
_METADATA_ARRAYS: Final = ("metadata_handles", "metadata_offsets", "metadata_text")


class Names:
    """Ids by handle, and handles by id.

    Threads may look up at the same time; a change must run alone, and can be repeated.

    A handle takes 8 bytes in a column, and about 80 bytes in the dict of handles by id, besides the id
    itself. The first look-up by id makes the dict; matching does not need it. `kind` is str or UUID.
    """

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self._column: AnyArray = np.zeros(0, object)  # by handle; 0 for one that stands for nothing
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
        """Return the handle of each id, int64 (n,); -1 for unknown ones."""
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
        return np.flatnonzero([type(id) is not int for id in self._column.tolist()])

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
        id: Any = self._column[handle] if handle < len(self._column) else 0
        if type(id) is int:
            return False
        # In a copy the id may have another handle by now.
        if self._handles is not None and self._handles.get(id) == handle:
            del self._handles[id]
        self._column[handle] = 0
        return True

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return handles, ascending, and their ids: UTF-8 with offsets, or 16 bytes each."""
        handles = self.used()
        ids = self._column[handles].tolist()
        if self.kind is str:
            return Texts.of(handles.tolist(), [id.encode() for id in ids]).to_arrays(_NAME_ARRAYS)
        blocks = b"".join([id.bytes for id in ids])
        return {"name_handles": handles, "name_bytes": np.frombuffer(blocks, np.uint8).reshape(-1, 16)}

    @classmethod
    def from_arrays(cls, kind: type, arrays: Mapping[str, AnyArray]) -> Names:
        """Return the ids of `to_arrays`; other arrays are ignored.

        Raises `ValueError` for arrays that `to_arrays` cannot have made.
        """
        ids: list[Any]
        if kind is str:
            handles, offsets, block = Texts.from_arrays(arrays, _NAME_ARRAYS, "ids")
            text = block.tobytes()
            ids = [text[first:last].decode() for first, last in pairwise(offsets.tolist())]
        else:
            handles, blocks = arrays["name_handles"], arrays["name_bytes"]
            if blocks.dtype != np.uint8 or handles.dtype.kind != "i" or blocks.shape != (len(handles), 16):
                raise ValueError("the ids are no UUIDs")
            ids = [UUID(bytes=row.tobytes()) for row in blocks]
        if len(handles) and (handles[0] < 0 or (np.diff(handles) <= 0).any()):
            raise ValueError("the handles of ids do not ascend")
        made = cls(kind)
        made._column = np.zeros(int(handles[-1]) + 1 if len(handles) else 0, object)
        made._column[handles] = ids
        return made


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
        return Texts.of(handles, (self.get(handle) or b"" for handle in handles)).to_arrays(_METADATA_ARRAYS)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> MetadataStore:
        """Return the store of `to_arrays`; other arrays are ignored.

        Raises `ValueError` for arrays that `to_arrays` cannot have made.
        """
        made = cls()
        if _METADATA_ARRAYS[0] in arrays:
            made._loaded = Texts.from_arrays(arrays, _METADATA_ARRAYS, "metadata")
        return made


class LabelColumns(NamedTuple):
    """Labels of n subscriptions, a row each. A column that is None sets nothing."""

    names: Sequence[Name] | None = None
    deadlines: FloatArray | None = None
    """float64 (n,): times of expiry, in seconds of the clock; inf for none."""
    metadata: Sequence[bytes | None] | None = None

    def piece(self, rows: slice) -> LabelColumns:
        """Return the labels of consecutive rows."""
        columns: Any = (None if column is None else column[rows] for column in self)
        return LabelColumns(*columns)

    def take(self, rows: IntArray) -> LabelColumns:
        """Return the labels of some rows."""
        names, deadlines, metadata = self
        return LabelColumns(
            None if names is None else [names[row] for row in rows.tolist()],
            None if deadlines is None else deadlines[rows],
            None if metadata is None else [metadata[row] for row in rows.tolist()],
        )


NO_LABELS = LabelColumns()


class Labels:
    """Labels by handle.

    Threads may look up at the same time; a change must run alone, and can be repeated.

    Attributes
    ----------
    names : Names or None
        Ids; None where handles are ids.
    deadlines : Expiries or None
        None if no subscription ever had an expiry.
    metadata : MetadataStore or None
        None if no subscription ever had metadata.
    plain : bool
        Whether names, deadlines and metadata are all None.
    """

    def __init__(self, kind: type | None) -> None:
        self.names: Names | None = None if kind is None or kind is int else Names(kind)
        self.deadlines: Expiries | None = None
        self.metadata: MetadataStore | None = None
        self.plain = self.names is None

    def put(self, handles: list[int], beside: LabelColumns) -> None:
        """Set labels of handles; ids only for handles without one."""
        names, deadlines, metadata = beside
        if names is not None:
            assert self.names is not None
            self.names.put(handles, names)
        if deadlines is not None:
            if self.deadlines is None and (deadlines < inf).any():
                self.plain, self.deadlines = False, Expiries()
            if self.deadlines is not None:
                self.deadlines.put_many(np.array(handles, np.int64), deadlines)
        if metadata is not None:
            if self.metadata is None:
                self.plain, self.metadata = False, MetadataStore()
            for handle, text in zip(handles, metadata, strict=True):
                self.metadata.put(handle, text)

    def drop(self, handles: IntArray) -> list[int]:
        """Remove all labels of handles; return the handles that had ids and are now free."""
        freed: list[int] = []
        if self.deadlines is not None:
            for handle in handles.tolist():
                self.deadlines.remove(handle)
        if self.metadata is not None:
            for handle in handles.tolist():
                self.metadata.put(handle, None)
        if self.names is not None:
            freed = [handle for handle in handles.tolist() if self.names.remove(handle)]
        return freed

    def of(self, handles: IntArray) -> LabelColumns:
        """Return the labels of known handles, int64 (n,)."""
        if self.plain:
            return NO_LABELS
        return LabelColumns(
            None if self.names is None else self.names.take(handles).tolist(),
            None if self.deadlines is None else self.deadlines.of(handles),
            None if self.metadata is None else [self.metadata.get(handle) for handle in handles.tolist()],
        )

    def handle(self, id: object) -> int:
        """Return the handle of an id; for an unknown id, a handle that stands for nothing."""
        if self.names is not None:
            return self.names.handle(id)
        return id if is_integer(id) else -1  # type: ignore[return-value]

    def handles(self, ids: IntArray | list[Name]) -> IntArray:
        """Return the handles of ids, int64 (n,); for unknown ids, -1 or a handle that stands for nothing."""
        if self.names is None:
            return np.full(len(ids), -1) if isinstance(ids, list) else ids
        return self.names.handles(ids) if isinstance(ids, list) else np.full(len(ids), -1)

    def ids(self, handles: IntArray) -> AnyArray:
        """Return the ids that known handles stand for, int64 or object (n,)."""
        return handles if self.names is None else self.names.take(handles)

    def passed(self, handles: IntArray, moment: float) -> BoolArray | None:
        """Return which handles are expired, bool (n,); None for none."""
        return None if self.deadlines is None else self.deadlines.passed(handles, moment)

    def has_passed(self, handle: int, moment: float) -> bool:
        """Return whether a handle is expired."""
        own = self.deadlines
        return own is not None and own.earliest <= moment and own.get(handle) <= moment

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays that `from_arrays` needs, by name."""
        arrays: dict[str, AnyArray] = {}
        if self.names is not None:
            arrays |= self.names.to_arrays()
        if self.deadlines is not None:
            arrays["deadline_handles"], arrays["deadlines"] = self.deadlines.content()
        if self.metadata is not None:
            arrays |= self.metadata.to_arrays()
        return arrays

    @classmethod
    def from_arrays(cls, kind: type | None, arrays: Mapping[str, AnyArray], known: IntArray) -> Labels:
        """Return the labels of `to_arrays`, of known handles, ascending.

        Raises `ValueError` for arrays that `to_arrays` cannot have made.
        """
        made = cls(kind)
        if made.names is not None:
            made.names = Names.from_arrays(made.names.kind, arrays)
            if not np.array_equal(made.names.used(), known):
                raise ValueError("the number of ids differs from that of the subscriptions")
        if "deadlines" in arrays:
            handles, deadlines = arrays["deadline_handles"], arrays["deadlines"]
            if handles.dtype != np.int64 or deadlines.dtype != np.float64 or handles.shape != deadlines.shape:
                raise ValueError("the arrays of expiry times do not fit together")
            distinct = handles.ndim == 1 and len(np.unique(handles)) == len(handles)
            if not distinct or np.isnan(deadlines).any() or not np.isin(handles, known).all():
                raise ValueError("an expiry time is NaN, or of an unknown subscription")
            made.deadlines = Expiries(handles, deadlines)
        metadata = MetadataStore.from_arrays(arrays)
        if metadata:
            made.metadata = metadata
        made.plain = made.names is None and made.deadlines is None and made.metadata is None
        return made
