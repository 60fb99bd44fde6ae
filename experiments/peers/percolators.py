"""Percolators: libraries that match a document against stored queries.

Both take conjunctions of numeric ranges, but neither is made for them. `perq` looks up terms, and then tests
the ranges of all queries that are left, in Python. So equalities are written as terms. `mokaccino` compares
integers only. It loses matches if a field has both equalities and comparisons (0.9.1: of the queries a=5 and
a>=5 it finds only the first). So equalities are written as two comparisons.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from experiments.peers.peer import Peer, Way
from rtfilter.basics.dtypes import FloatArray
from rtfilter.replay.workloads import Bounds


class Perq(Peer):
    """`perq`, with equalities as terms and ranges as numeric filters."""

    name = "perq"
    package = "perq"

    def __init__(self, boxes: Bounds) -> None:
        perq: Any = import_module("perq")
        self._terms = bool((boxes.low == boxes.high).any())
        queries = []
        for id, (low, high) in enumerate(zip(boxes.low.tolist(), boxes.high.tolist(), strict=True)):
            sides = list(enumerate(zip(low, high, strict=True)))
            terms = [(_term(j, least),) for j, (least, most) in sides if least == most]
            filters = [
                perq.RangeFilter(str(j), gte=_finite(least), lte=_finite(most))
                for j, (least, most) in sides
                if least < most and (_finite(least), _finite(most)) != (None, None)
            ]
            queries.append(perq.Query(id, terms, filters=filters))
        store = perq.MemoryStore()
        perq.index(queries, store)
        self._matcher: Any = perq.QueryMatcher(store)

    @classmethod
    def refuses(cls, boxes: Bounds) -> str:
        """Refuse boxes without any constraint."""
        return "" if _all_constrained(boxes) else "a query needs a constraint"

    @property
    def ways(self) -> Mapping[str, Way]:
        """Document by document."""
        return {"match_many": self.ask}

    def ask(self, points: FloatArray) -> list[list[int]]:
        """Match each event as a document."""
        document: Any = import_module("perq").Document
        documents = (
            document(
                [_term(j, x) for j, x in enumerate(point)] if self._terms else [],
                values={str(j): [x] for j, x in enumerate(point)},
            )
            for point in points.tolist()
        )
        return list(self._matcher.match_many(documents))


class Mokaccino(Peer):
    """`mokaccino`, with comparisons of integers."""

    name = "mokaccino"
    package = "mokaccino"

    def __init__(self, boxes: Bounds) -> None:
        from mokaccino import Percolator, Query

        percolator = Percolator()
        for id, (low, high) in enumerate(zip(boxes.low.tolist(), boxes.high.tolist(), strict=True)):
            parts = []
            for j, (least, most) in enumerate(zip(low, high, strict=True)):
                if np.isfinite(least):
                    parts.append(Query.from_kge(str(j), int(least)))
                if np.isfinite(most):
                    parts.append(Query.from_kle(str(j), int(most)))
            percolator.add_query_id(Query.from_and(parts), id)
        self._percolator = percolator.optimized()

    @classmethod
    def refuses(cls, boxes: Bounds) -> str:
        """Refuse fractions, and boxes without any constraint."""
        ends = np.concatenate(boxes)
        if not (np.floor(ends) == ends).all():
            return "compares integers only"
        return "" if _all_constrained(boxes) else "a query needs a constraint"

    @property
    def ways(self) -> Mapping[str, Way]:
        """Document by document."""
        return {"percolate_list": self.ask}

    def ask(self, points: FloatArray) -> list[list[int]]:
        """Match each event as a document."""
        from mokaccino import Document

        answers = []
        for point in points.astype(np.int64).tolist():
            document = Document()
            for j, x in enumerate(point):
                document.add_value(str(j), str(x))
            answers.append(self._percolator.percolate_list(document))
        return answers


def _all_constrained(boxes: Bounds) -> bool:
    return bool((np.isfinite(boxes.low) | np.isfinite(boxes.high)).any(axis=1).all())


def _finite(end: float) -> float | None:
    return end if np.isfinite(end) else None


def _term(dimension: int, value: float) -> str:
    return f"{dimension}={value!r}"
