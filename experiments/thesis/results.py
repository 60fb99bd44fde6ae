"""Rows of the thesis's benchmark, put together by method and size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isclose
from statistics import median

from experiments.thesis.contestants import FOUR
from experiments.thesis.workload import METHODS, SIZES, Method
from rtfilter.replay.output import Row


@dataclass
class Cell:
    """A method at a size, a cell of the thesis's tables.

    Attributes
    ----------
    method : Method
    predicates, events : int
        The size as the thesis has it.
    times : int
        Number of matches of the event here: as often as in the thesis by the profile ``full`` alone.
    matched : int
        Predicates that the event satisfies.
    rounds : list of dict
        The seconds of all these times by contestant, in each round.
    operations : dict
        The operations of one event by contestant.
    """

    method: Method
    predicates: int
    events: int
    times: int
    matched: int
    rounds: list[dict[str, float]] = field(default_factory=list)
    operations: dict[str, int] = field(default_factory=dict)

    @cached_property
    def seconds(self) -> dict[str, float]:
        """The median over rounds, by contestant."""
        return {name: median(one[name] for one in self.rounds) for name in self.rounds[0]}

    @property
    def label(self) -> str:
        """The size that was run: predicates P, and events U, with those of the thesis where they are more."""
        events = f"{self.times}" if self.times == self.events else f"{self.times} of {self.events}"
        return f"{self.predicates} P, {events} U"

    @property
    def fastest(self) -> str:
        """The fastest of the thesis's four algorithms."""
        return min(FOUR, key=self.seconds.__getitem__)


def of(rows: Sequence[Row], kind: str) -> list[Row]:
    """Return the rows of a kind."""
    return [row for row in rows if row["kind"] == kind]


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Return all cells, in the order of the thesis: by method, then by size."""
    found: dict[tuple[str, int, int], Cell] = {}
    methods = {method.name: method for method in METHODS}
    for row in of(rows, "match"):
        key = (row["method"], row["predicates"], row["events"])
        if key not in found:
            found[key] = Cell(methods[key[0]], key[1], key[2], row["times"], row["matched"])
        found[key].operations[row["peer"]] = row["operations"]
    for row in of(rows, "time"):
        found[row["method"], row["predicates"], row["events"]].rounds.append(row["seconds"])
    return [found[method, *size] for method in methods for size in SIZES if (method, *size) in found]


def ratios(cell: Cell) -> dict[str, float]:
    """Return the time of each of the four, divided by that of the fastest."""
    least = cell.seconds[cell.fastest]
    return {name: cell.seconds[name] / least for name in FOUR}


def wins(found: Sequence[Cell]) -> dict[str, int]:
    """Return in how many cells each of the four is the fastest."""
    return {name: sum(cell.fastest == name for cell in found) for name in FOUR}


def growth(found: Sequence[Cell], of: tuple[int, int], over: tuple[int, int], peer: str) -> dict[str, float]:
    """Return the time of a size as a multiple of another's, the median over rounds, by method."""
    by = {(cell.method.name, cell.predicates, cell.events): cell.rounds for cell in found}
    return {
        method.name: median(
            one[peer] / other[peer]
            for one, other in zip(by[method.name, *of], by[method.name, *over], strict=True)
        )
        for method in METHODS
    }


def rises_as(values: Sequence[float], others: Sequence[float]) -> float:
    """Return Spearman's rank correlation of two lists, neither of them constant."""
    from scipy.stats import spearmanr

    found = float(spearmanr(values, others).statistic)
    return 1.0 if isclose(found, 1.0) else found
