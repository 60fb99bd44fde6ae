"""Data of subscriptions that their boxes do not have, by id: for verification, explanations and snapshots.

The data are predicates, and the ends of bounds from 2**53 on (`rtfilter.predicates.bounds.ends`).

Predicates are stored as JSON text: it takes a fifth of the memory, and Python's garbage collector has no
objects to visit. The text of a loaded snapshot stays in mapped memory. Predicates that matching has needed
stay parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Final, NamedTuple, overload

import numpy as np

from rtfilter.basics.dtypes import AnyArray, IntArray
from rtfilter.predicates.bounds.ends import EndStore
from rtfilter.predicates.model.constraints import Constraint, Test, constraint_to_json
from rtfilter.predicates.predicate import Predicate

_ARRAYS: Final = ("predicate_ids", "predicate_offsets", "predicate_text")
_LISTED: Final = "listed_ids"
_ANY, _ALL = b'["any",[[', b'["all",[['
"""The beginnings of quantified constraints, and of no other text: there, a backslash precedes each quote."""
_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

#: The JSON text of a predicate.
Kept = bytes


def kept(predicate: Predicate) -> Kept:
    """Return the JSON text of `Predicate.to_json`."""
    filters = [",".join([encoded_test(one) for one in each.constraints]) for each in predicate.filters]
    return as_bytes(f"[[{'],['.join(filters)}]]" if filters else "[]")


def as_bytes(text: str) -> bytes:
    """Return JSON text as stored bytes.

    It is not escaped: escapes of two surrogates would be read as one character.
    """
    return text.encode("utf-8", "surrogatepass")


def encoded_test(constraint: Test) -> str:
    """Return the JSON text of one constraint."""
    if type(constraint) is not Constraint:
        return _JSON.encode(constraint_to_json(constraint))
    name, operator, value = constraint
    if type(value) is float or type(value) is int:
        return f"{_start(name, operator)}{value!r}]"  # equals that of the json module, in a tenth of the time
    if type(value) is str:
        return f"{_start(name, operator)}{encode_basestring(value)}]"
    return _JSON.encode(constraint_to_json(constraint))


@lru_cache(maxsize=4096)
def _start(name: str, operator: str) -> str:
    """Return the JSON text of a constraint before its constant."""
    return _JSON.encode([name, operator])[:-1] + ","


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


class KeptPredicates(Sequence[Predicate]):
    """Predicates that are parsed from their stored text on access."""

    def __init__(self, kept: Sequence[Kept]) -> None:
        self._kept = kept

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, at: int) -> Predicate: ...

    @overload
    def __getitem__(self, at: slice) -> KeptPredicates: ...

    def __getitem__(self, at: int | slice) -> Predicate | KeptPredicates:
        if isinstance(at, slice):
            return KeptPredicates(self._kept[at])
        return _decoded(self._kept[at])


def _decoded(text: bytes) -> Predicate:
    return Predicate.from_json(json.loads(text))


class PredicateStore:
    """Map of subscription id to predicate.

    Attributes
    ----------
    ends : EndStore
        Exact ends of subscriptions that are arrays of bounds; these have no predicate here.
    listed : set of int
        Ids of predicates with quantified constraints: their exact boxes are exact only for events without
        lists.
    """

    def __init__(self) -> None:
        self.ends = EndStore()
        self._changed: dict[int, Kept | None] = {}  # None: removed from the loaded ones
        self._parsed: dict[int, Predicate] = {}  # the predicates that matching has read
        self.listed: set[int] = set()
        self._loaded = NO_TEXTS

    def get(self, id: int) -> Predicate | None:
        """Return the predicate of an id, None if there is none; it stays parsed for the next batch."""
        predicate = self._parsed.get(id)
        if predicate is None:
            predicate = self.read(id)
            if predicate is not None:
                self._parsed[id] = predicate
        return predicate

    def read(self, id: int) -> Predicate | None:
        """Return the predicate of an id for a single use, None if there is none."""
        found = self.kept(id)
        return None if found is None else _decoded(found)

    def kept(self, id: int) -> Kept | None:
        """Return the stored text of the predicate of an id; None if there is none."""
        if id in self._changed:
            return self._changed[id]
        return self._loaded.get(id)

    def put(self, id: int, predicate: Kept) -> None:
        """Set the predicate of an id."""
        self._changed[id] = predicate
        self._forget(id)
        if _ANY in predicate or _ALL in predicate:
            self.listed.add(id)

    def remove(self, id: int) -> None:
        """Remove the predicate of an id; unknown ones are ignored."""
        self._forget(id)
        if self._loaded.has(id):
            self._changed[id] = None
        else:
            self._changed.pop(id, None)

    def _forget(self, id: int) -> None:
        self._parsed.pop(id, None)
        self.listed.discard(id)

    def __contains__(self, id: int) -> bool:
        return self._changed[id] is not None if id in self._changed else self._loaded.has(id)

    def __iter__(self) -> Iterator[int]:
        yield from (id for id in self._loaded.ids.tolist() if id not in self._changed)
        yield from (id for id, predicate in self._changed.items() if predicate is not None)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the ids, ascending, their predicates as a block of JSON texts, and ends if there are any."""
        ids = sorted(self)
        texts = Texts.of(ids, (self.kept(id) or b"" for id in ids))
        arrays = {**texts.to_arrays(_ARRAYS), **self.ends.to_arrays()}
        if self.listed:
            arrays[_LISTED] = np.array(sorted(self.listed), np.int64)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> PredicateStore:
        """Return the store of `to_arrays`; other arrays are ignored.

        Raises `ValueError` for arrays that `to_arrays` cannot have made.
        """
        store = cls()
        store._loaded = Texts.from_arrays(arrays, _ARRAYS, "predicates")
        store.ends = EndStore.from_arrays(arrays)
        listed = arrays.get(_LISTED)
        if listed is not None:
            if listed.ndim != 1 or listed.dtype.kind not in "iu":
                raise ValueError("the ids of quantified predicates are no integers")
            store.listed.update(listed.tolist())
        return store
