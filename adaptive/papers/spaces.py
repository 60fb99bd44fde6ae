"""Spaces of positions: levels, and levels with group sizes."""

import math
from collections.abc import Sequence
from typing import Protocol

from rtfilter.adaptive.papers.samples import P
from rtfilter.adaptive.plans import Plan


class PositionSpace(Protocol[P]):
    """The positions and their neighbours; `height` >= 1 is the current height of the index."""

    def start(self, height: int) -> P:
        """Return the position at which the first episode begins."""

    def clamp(self, position: P, height: int) -> P:
        """Return the nearest position that exists at this height."""

    def neighbours(self, position: P, height: int) -> dict[int, P]:
        """Return the neighbours by step, in the order of sampling.

        Steps -k and +k go in opposite directions along axis k = 1, 2, ...
        """


class Levels:
    """Positions are levels. Their order is c, c - 1, c + 1, as in the paper (Wang et al.)."""

    def start(self, height: int) -> int:
        """Return the level in the middle."""
        return (height - 1) // 2

    def clamp(self, position: int, height: int) -> int:
        """See :meth:`PositionSpace.clamp`."""
        return min(position, height - 1)

    def neighbours(self, position: int, height: int) -> dict[int, int]:
        """See :meth:`PositionSpace.neighbours`."""
        return {step: position + step for step in (-1, 1) if 0 <= position + step < height}


class Plans:
    """Positions are plans: axis 1 is the level, axis 2 the place of the group size in the list of sizes."""

    def __init__(self, size: int, groups: Sequence[int]) -> None:
        self._size = size
        self._rungs: list[int | None] = [group for group in groups if group < size]
        self._rungs.append(None)

    def start(self, height: int) -> Plan:
        """Return the level in the middle, with the group size nearest to twice the root of the batch size."""
        wanted = 2 * math.sqrt(self._size)
        groups = [group for group in self._rungs if group is not None]
        nearest = min(groups, key=lambda group: max(group / wanted, wanted / group), default=None)
        return Plan(Levels().start(height), nearest)

    def clamp(self, position: Plan, height: int) -> Plan:
        """See :meth:`PositionSpace.clamp`."""
        return Plan(Levels().clamp(position.level, height), position.group)

    def neighbours(self, position: Plan, height: int) -> dict[int, Plan]:
        """See :meth:`PositionSpace.neighbours`."""
        levels = Levels().neighbours(position.level, height)
        plans = {step: Plan(level, position.group) for step, level in levels.items()}
        rung = self._rungs.index(position.group)
        for step in (-1, 1):
            if 0 <= rung + step < len(self._rungs):
                plans[2 * step] = Plan(position.level, self._rungs[rung + step])
        return plans
