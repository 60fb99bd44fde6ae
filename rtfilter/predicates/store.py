"""Data of subscriptions that their boxes do not have, by id; used to verify, to explain and to save.

They are predicates, and the ends of bounds beyond 2**53 (`rtfilter.predicates.ends`).

Predicates are kept as JSON text: it takes a fifth of the memory, and Python's garbage collector has no
objects to visit. The text of a loaded snapshot stays in mapped memory. Matching asks for predicates with an
inexact box; they stay parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Final, overload

import numpy as np

from rtfilter.dtypes import AnyArray
from rtfilter.predicates.ends import EndStore
from rtfilter.predicates.model import Constraint, Predicate, Test, constraint_to_json
from rtfilter.predicates.texts import NO_TEXTS, Texts

_ARRAYS: Final = ("predicate_ids", "predicate_offsets", "predicate_text")
_LISTED: Final = "listed_ids"
_ANY, _ALL = b'["any",[[', b'["all",[['
"""The beginnings of quantified constraints, and of nothing else: in text, a backslash precedes each quote."""
_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

#: The JSON text of a predicate.
Kept = bytes


def kept(predicate: Predicate) -> Kept:
    """Return the JSON text of `Predicate.to_json`."""
    filters = [",".join([encoded_test(one) for one in each.constraints]) for each in predicate.filters]
    return as_bytes(f"[[{'],['.join(filters)}]]" if filters else "[]")


def as_bytes(text: str) -> bytes:
    """JSON text as it is kept: not escaped, as escapes of two surrogates would be read as one character."""
    return text.encode("utf-8", "surrogatepass")


def encoded_test(constraint: Test) -> str:
    """The JSON text of one test."""
    if type(constraint) is not Constraint:
        return _JSON.encode(constraint_to_json(constraint))
    name, operator, value = constraint
    if type(value) is float or type(value) is int:
        return f"{_start(name, operator)}{value!r}]"  # as JSON has it, ten times sooner
    if type(value) is str:
        return f"{_start(name, operator)}{encode_basestring(value)}]"
    return _JSON.encode(constraint_to_json(constraint))


@lru_cache(maxsize=4096)
def _start(name: str, operator: str) -> str:
    """The text of a constraint before its constant."""
    return _JSON.encode([name, operator])[:-1] + ","


class KeptPredicates(Sequence[Predicate]):
    """Predicates that are made of what is kept of them when they are asked for."""

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
        Of subscriptions that are arrays of bounds; they have no predicate here.
    listed : set of int
        Those with quantified constraints: a box of theirs may be exact, but for events without lists only.
    """

    def __init__(self) -> None:
        self.ends = EndStore()
        self._changed: dict[int, Kept | None] = {}  # None: removed from what was loaded
        self._parsed: dict[int, Predicate] = {}  # those that matching has read
        self.listed: set[int] = set()
        self._loaded = NO_TEXTS

    def get(self, id: int) -> Predicate | None:
        """Return the predicate of an id, for matching, which will ask again; None when there is none."""
        predicate = self._parsed.get(id)
        if predicate is None:
            predicate = self.read(id)
            if predicate is not None:
                self._parsed[id] = predicate
        return predicate

    def read(self, id: int) -> Predicate | None:
        """Return the predicate of an id, for a single question; None when there is none."""
        found = self.kept(id)
        return None if found is None else _decoded(found)

    def kept(self, id: int) -> Kept | None:
        """Return what is kept of the predicate of an id, as `put` takes it; None when there is none."""
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
        """Forget the predicate of an id; unknown ones are ignored."""
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
        """Return the store that `to_arrays` described; other arrays are ignored.

        Raises `ValueError` for arrays that are not such.
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
