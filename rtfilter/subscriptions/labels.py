"""Labels of subscriptions beside their predicates: ids that are no integers, expiry, metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.subscriptions.deadlines import Deadlines
from rtfilter.subscriptions.ids import Name, is_integer
from rtfilter.subscriptions.metadata import MetadataStore
from rtfilter.subscriptions.names import Names


class Beside(NamedTuple):
    """Labels of n subscriptions, a row each. A column that is None sets nothing."""

    names: Sequence[Name] | None = None
    deadlines: FloatArray | None = None
    """float64 (n,): seconds of the clock; inf for none."""
    metadata: Sequence[bytes | None] | None = None

    def piece(self, first: int, last: int) -> Beside:
        """Return the labels of consecutive rows."""
        names, deadlines, metadata = self
        return Beside(
            None if names is None else names[first:last],
            None if deadlines is None else deadlines[first:last],
            None if metadata is None else metadata[first:last],
        )

    def take(self, rows: IntArray) -> Beside:
        """Return the labels of some rows."""
        names, deadlines, metadata = self
        return Beside(
            None if names is None else [names[row] for row in rows.tolist()],
            None if deadlines is None else deadlines[rows],
            None if metadata is None else [metadata[row] for row in rows.tolist()],
        )


NO_LABELS = Beside()


class Labels:
    """Labels by handle.

    Threads may look up at the same time; a change must run alone, and can be repeated.

    Attributes
    ----------
    names : Names or None
        Ids; None where handles are ids.
    deadlines : Deadlines or None
        None if no subscription ever had an expiry.
    metadata : MetadataStore or None
        None if no subscription ever had metadata.
    plain : bool
        Whether names, deadlines and metadata are all None.
    """

    def __init__(self, kind: type | None) -> None:
        self.names: Names | None = None if kind is None or kind is int else Names(kind)
        self.deadlines: Deadlines | None = None
        self.metadata: MetadataStore | None = None
        self.plain = self.names is None

    # -- changing --------------------------------------------------------------------------------------------

    def put(self, handles: list[int], beside: Beside) -> None:
        """Set labels of handles; ids only for handles without one."""
        names, deadlines, metadata = beside
        if names is not None:
            assert self.names is not None
            self.names.put(handles, names)
        if deadlines is not None:
            if self.deadlines is None and (deadlines < inf).any():
                self.plain, self.deadlines = False, Deadlines()
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

    # -- looking up ------------------------------------------------------------------------------------------

    def of(self, handles: IntArray) -> Beside:
        """Return the labels of known handles, int64 (n,)."""
        if self.plain:
            return NO_LABELS
        return Beside(
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
        return self.deadlines is not None and self.deadlines.has_passed(handle, moment)

    # -- arrays ----------------------------------------------------------------------------------------------

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
            if handles.ndim != 1 or np.isnan(deadlines).any() or not _subset(handles, known):
                raise ValueError("an expiry time is NaN, or of an unknown subscription")
            made.deadlines = Deadlines(handles, deadlines)
        metadata = MetadataStore.from_arrays(arrays)
        if metadata:
            made.metadata = metadata
        made.plain = made.names is None and made.deadlines is None and made.metadata is None
        return made


def _subset(handles: IntArray, known: IntArray) -> bool:
    """Return whether handles are distinct and known."""
    return len(np.unique(handles)) == len(handles) and bool(np.isin(handles, known).all())
