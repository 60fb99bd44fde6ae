"""Scans of columns: NumPy, DuckDB and polars. They have no index for ranges; the last two join by ranges."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from experiments.peers.peer import Peer, Way, grouped
from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.basics.results import Matches
from rtfilter.replay.workloads import Bounds


def brute_force(boxes: Bounds, points: FloatArray) -> list[IntArray]:
    """Return rows of the closed boxes that contain each point, ascending: the answers that are right."""
    answers = []
    for point in points:
        rows = np.arange(len(boxes.low))
        for low, high, x in zip(boxes.low.T, boxes.high.T, point, strict=True):
            rows = rows[(low[rows] <= x) & (x <= high[rows])]
        answers.append(rows)
    return answers


def require_equal(whose: str, answers: Iterable[ArrayLike], expected: Sequence[IntArray]) -> None:
    """Raise `AssertionError` unless the answers are the expected ids, in any order; `whose` is named."""
    for event, (found, right) in enumerate(zip(answers, expected, strict=True)):
        if not np.array_equal(np.sort(np.asarray(found)), right):
            raise AssertionError(
                f"{whose}: event {event} matches {_few(found)}; brute force says {_few(right)}"
            )


def _few(ids: ArrayLike) -> str:
    return np.array2string(np.asarray(ids), threshold=9)


class NumPy(Peer):
    """Brute force column by column, each on the rows that are left."""

    name = "NumPy"
    package = "numpy"

    def __init__(self, boxes: Bounds) -> None:
        self._boxes = Bounds(np.array(boxes.low, order="F"), np.array(boxes.high, order="F"))

    @property
    def ways(self) -> Mapping[str, Way]:
        """Event by event."""
        return {"scan": lambda points: brute_force(self._boxes, points)}


class DuckDB(Peer):
    """A table with two columns per dimension."""

    name = "DuckDB"
    package = "duckdb"

    def __init__(self, boxes: Bounds) -> None:
        import duckdb

        self._database = duckdb.connect(config={"threads": 1})
        dimensions = range(boxes.low.shape[1])
        columns = {f"{end}{j}": side[:, j] for end, side in zip("lh", boxes, strict=True) for j in dimensions}
        self._database.register("given", columns | {"id": np.arange(len(boxes.low))})
        self._database.execute("create table boxes as select * from given")
        self._database.unregister("given")
        within = " and ".join(f"l{j} <= x{j} and x{j} <= h{j}" for j in dimensions)
        self._join = f"select event, id from events join boxes on {within}"
        where = " and ".join(f"l{j} <= ${j + 1} and ${j + 1} <= h{j}" for j in dimensions)
        self._scan = f"select id from boxes where {where}"

    @property
    def ways(self) -> Mapping[str, Way]:
        """A range join of all events, and a filtered scan per event."""
        return {"join": self.ask_all, "scan": self.ask_each}

    def ask_all(self, points: FloatArray) -> Matches:
        """Match all events with a single query."""
        events = {f"x{j}": column for j, column in enumerate(points.T)} | {"event": np.arange(len(points))}
        self._database.register("events", events)
        found: dict[str, Any] = self._database.execute(self._join).fetchnumpy()
        return grouped(found["event"], found["id"], len(points))

    def ask_each(self, points: FloatArray) -> list[Any]:
        """Match each event with its own query."""
        return [self._database.execute(self._scan, point).fetchnumpy()["id"] for point in points.tolist()]


class Polars(Peer):
    """A data frame with two columns per dimension."""

    name = "polars"
    package = "polars"

    def __init__(self, boxes: Bounds) -> None:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # read when polars is first imported
        import polars

        self._polars = polars
        self._dimensions = range(boxes.low.shape[1])
        columns = {
            f"{end}{j}": side[:, j].copy()
            for end, side in zip("lh", boxes, strict=True)
            for j in self._dimensions
        }
        self._frame = polars.DataFrame(columns | {"id": np.arange(len(boxes.low))})

    @property
    def ways(self) -> Mapping[str, Way]:
        """A range join of all events, and a filter per event."""
        return {"join_where": self.ask_all, "filter": self.ask_each}

    def ask_all(self, points: FloatArray) -> Matches:
        """Match all events with a single `join_where`."""
        column = self._polars.col
        events = self._polars.DataFrame(
            {f"x{j}": points[:, j].copy() for j in self._dimensions} | {"event": np.arange(len(points))}
        )
        within = [
            inside
            for j in self._dimensions
            for inside in (column(f"l{j}") <= column(f"x{j}"), column(f"h{j}") >= column(f"x{j}"))
        ]
        found = self._frame.lazy().join_where(events.lazy(), *within).select("event", "id").collect()
        return grouped(found["event"].to_numpy(), found["id"].to_numpy(), len(points))

    def ask_each(self, points: FloatArray) -> list[IntArray]:
        """Match each event with its own `filter`."""
        column = self._polars.col
        answers = []
        for point in points.tolist():
            within = reduce(
                and_, [(column(f"l{j}") <= x) & (column(f"h{j}") >= x) for j, x in enumerate(point)]
            )
            answers.append(self._frame.lazy().filter(within).select("id").collect()["id"].to_numpy())
        return answers
