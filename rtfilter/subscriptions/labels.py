"""What is known of subscriptions besides what they ask for: ids that are no integers, deadlines, metadata."""

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
    """Labels of n subscriptions, a row each. A column that is None says nothing."""

    names: Sequence[Name] | None = None
    deadlines: FloatArray | None = None
    """float64 (n,): seconds; inf for none."""
    metadata: Sequence[bytes | None] | None = None

    def piece(self, first: int, last: int) -> Beside:
        """Those of rows that follow each other."""
        names, deadlines, metadata = self
        return Beside(
            None if names is None else names[first:last],
            None if deadlines is None else deadlines[first:last],
            None if metadata is None else metadata[first:last],
        )

    def take(self, rows: IntArray) -> Beside:
        """Those of some rows."""
        names, deadlines, metadata = self
        return Beside(
            None if names is None else [names[row] for row in rows.tolist()],
            None if deadlines is None else deadlines[rows],
            None if metadata is None else [metadata[row] for row in rows.tolist()],
        )


NO_LABELS = Beside()


class Labels:
    """Labels by key. Many may look up at once; changes run alone, and can be done again.

    Attributes
    ----------
    names : Names or None
        Ids; None where keys are ids.
    deadlines : Deadlines or None
        None where none was ever set.
    metadata : MetadataStore or None
        The same.
    """

    def __init__(self, kind: type | None) -> None:
        self.names: Names | None = None if kind is None or kind is int else Names(kind)
        self.deadlines: Deadlines | None = None
        self.metadata: MetadataStore | None = None

    # -- changing --------------------------------------------------------------------------------------------

    def put(self, keys: list[int], beside: Beside) -> None:
        """Set labels of keys; ids only of keys that have none."""
        names, deadlines, metadata = beside
        if names is not None:
            assert self.names is not None
            self.names.put(keys, names)
        if deadlines is not None:
            if self.deadlines is None and (deadlines < inf).any():
                self.deadlines = Deadlines()
            if self.deadlines is not None:
                self.deadlines.put_many(np.array(keys, np.int64), deadlines)
        if metadata is not None:
            if self.metadata is None:
                self.metadata = MetadataStore()
            for key, text in zip(keys, metadata, strict=True):
                self.metadata.put(key, text)

    def drop(self, keys: IntArray) -> list[int]:
        """Forget all labels of keys; those that had ids, and now are free."""
        freed: list[int] = []
        if self.deadlines is not None:
            for key in keys.tolist():
                self.deadlines.remove(key)
        if self.metadata is not None:
            for key in keys.tolist():
                self.metadata.put(key, None)
        if self.names is not None:
            freed = [key for key in keys.tolist() if self.names.remove(key)]
        return freed

    # -- looking ---------------------------------------------------------------------------------------------

    def of(self, keys: IntArray) -> Beside:
        """The labels of known keys, int64 (n,)."""
        if self.names is None and self.deadlines is None and self.metadata is None:
            return NO_LABELS
        return Beside(
            None if self.names is None else self.names.take(keys).tolist(),
            None if self.deadlines is None else self.deadlines.of(keys),
            None if self.metadata is None else [self.metadata.get(key) for key in keys.tolist()],
        )

    def key(self, id: object) -> int:
        """The key of an id; one that stands for nothing, if it is unknown."""
        if self.names is not None:
            return self.names.key(id)
        return id if is_integer(id) else -1  # type: ignore[return-value]

    def keys(self, ids: IntArray | list[Name]) -> IntArray:
        """The keys of ids, int64 (n,); -1, or what stands for nothing, for unknown ones."""
        if self.names is None:
            return np.full(len(ids), -1) if isinstance(ids, list) else ids
        return self.names.keys(ids) if isinstance(ids, list) else np.full(len(ids), -1)

    def ids(self, keys: IntArray) -> AnyArray:
        """The ids that known keys stand for, int64 or object (n,)."""
        return keys if self.names is None else self.names.take(keys)

    def passed(self, keys: IntArray, moment: float) -> BoolArray | None:
        """Which keys are beyond their deadlines, bool (n,); None for none."""
        return None if self.deadlines is None else self.deadlines.passed(keys, moment)

    def has_passed(self, key: int, moment: float) -> bool:
        """Whether a key is beyond its deadline."""
        return self.deadlines is not None and self.deadlines.has_passed(key, moment)

    # -- kept ------------------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, AnyArray]:
        """What `from_arrays` needs, by name."""
        arrays: dict[str, AnyArray] = {}
        if self.names is not None:
            arrays |= self.names.to_arrays()
        if self.deadlines is not None:
            arrays["deadline_keys"], arrays["deadlines"] = self.deadlines.content()
        if self.metadata is not None:
            arrays |= self.metadata.to_arrays()
        return arrays

    @classmethod
    def from_arrays(cls, kind: type | None, arrays: Mapping[str, AnyArray], known: IntArray) -> Labels:
        """The labels of `to_arrays`, of known keys, ascending; `ValueError` for what cannot be such."""
        made = cls(kind)
        if made.names is not None:
            made.names = Names.from_arrays(made.names.kind, arrays)
            if not np.array_equal(made.names.used(), known):
                raise ValueError("there are not as many ids as subscriptions")
        if "deadlines" in arrays:
            keys, deadlines = arrays["deadline_keys"], arrays["deadlines"]
            if keys.dtype != np.int64 or deadlines.dtype != np.float64 or keys.shape != deadlines.shape:
                raise ValueError("the arrays of deadlines do not fit together")
            if keys.ndim != 1 or np.isnan(deadlines).any() or not _subset(keys, known):
                raise ValueError("there are deadlines of what is no subscription")
            made.deadlines = Deadlines(keys, deadlines)
        metadata = MetadataStore.from_arrays(arrays)
        if metadata:
            made.metadata = metadata
        return made


def _subset(keys: IntArray, known: IntArray) -> bool:
    """Whether keys are distinct, and known."""
    return len(np.unique(keys)) == len(keys) and bool(np.isin(keys, known).all())
