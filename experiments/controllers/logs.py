"""A log: batches of a run, each run by every plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from experiments.errors import ResultError
from experiments.output import require_clean
from rtfilter.adaptive import WHOLE, Plan, Report, Shape
from rtfilter.dtypes import AnyArray, BoolArray, FloatArray, IntArray

DIGITS = 3
"""Significant digits of kept times: batches differ by more than the next one says."""
UNITS, SECONDS = "units", "seconds"


@dataclass(frozen=True)
class Log:
    """b batches under p plans.

    A plan that a batch cannot have (its level is not there, its group is not smaller than the batch) has NaN.

    Attributes
    ----------
    about : dict
        The case, its title, seed and machine, JSON-able; ``phases``: names of the phases.
    plans : int64 (p, 2)
        Level and group of each plan; a group of 0 is the whole batch.
    size, height, boxes, packed, updates, phase : int64 (b,)
        The input of a controller before each batch, and the place of its phase in ``phases``.
    moving : bool (b,)
        True if something changes in the phase.
    response, elapsed, estimation : float64 (b, p)
        Seconds; see `rtfilter.adaptive.Report`.
    visits, estimation_visits : int64 (b, p)
        Operations.
    units : float64 (b, p)
        Mean response in work units, see `experiments.paper.work`. NaN where they were not counted.
    """

    about: Mapping[str, Any]
    plans: IntArray
    size: IntArray
    height: IntArray
    boxes: IntArray
    packed: IntArray
    updates: IntArray
    phase: IntArray
    moving: BoolArray
    response: FloatArray
    elapsed: FloatArray
    estimation: FloatArray
    visits: IntArray
    estimation_visits: IntArray
    units: FloatArray

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def column(self) -> dict[Plan, int]:
        """The place of each plan."""
        return {Plan(level, group or None): at for at, (level, group) in enumerate(self.plans.tolist())}

    def place(self, batch: int, plan: Plan) -> int:
        """Return the column of a plan for a batch; a group of at least its size is the whole batch."""
        if plan.group is None or plan.group >= self.size[batch]:
            return self.column[WHOLE]
        return self.column[plan]

    def shape(self, batch: int) -> Shape:
        """Return the index that a batch met."""
        return Shape(int(self.height[batch]), int(self.boxes[batch]), int(self.packed[batch]))

    def report(self, batch: int, plan: Plan, unit: str = SECONDS) -> Report:
        """Return the report to a controller on a batch under a plan."""
        at, size = self.place(batch, plan), int(self.size[batch])
        if unit == UNITS:
            return Report(float(self.units[batch, at]), size)
        groups = 1 if plan.group is None else -(-size // plan.group)
        return Report(
            float(self.response[batch, at]), size, 0, float(self.elapsed[batch, at]),
            float(self.estimation[batch, at]), groups, int(self.visits[batch, at]),
            int(self.estimation_visits[batch, at]),
        )  # fmt: skip

    @property
    def judged_in(self) -> tuple[str, ...]:
        """The units that it knows."""
        return (SECONDS,) if np.isnan(self.units).all() else (UNITS, SECONDS)

    def cost(self, unit: str) -> FloatArray:
        """Return the mean responses (b, p) in a unit."""
        return self.units if unit == UNITS else self.response

    def write(self, path: Path) -> None:
        """Keep it in a file, compressed, in one step.

        Raises
        ------
        ResultError
            The file is one that is kept in the repository, and the tree has changes that are not committed.
        """
        require_clean(path, self.about["machine"])
        arrays: dict[str, AnyArray] = {"about": np.array(json.dumps(dict(self.about)))}
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            arrays[field.name] = _brief(value) if value.dtype == float else value
        beside = path.with_suffix(".new.npz")
        np.savez_compressed(beside, allow_pickle=False, **arrays)
        beside.replace(path)

    @classmethod
    def read(cls, path: Path) -> Log:
        """Return the log in a file.

        Raises
        ------
        ResultError
            There is none.
        """
        try:
            with np.load(path) as kept:
                about = json.loads(str(kept["about"]))
                arrays = {field.name: kept[field.name] for field in fields(cls)[1:]}
        except (OSError, EOFError, ValueError, KeyError) as error:
            raise ResultError(f"{path} is no log of batches: record it anew ({error})") from None
        arrays = {
            name: value.astype(float) if value.dtype == np.float32 else value
            for name, value in arrays.items()
        }
        return cls(about, **arrays)


def _brief(values: FloatArray) -> AnyArray:
    """Return numbers with few digits, which take little room."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(values))))
        rounded = np.where(values == 0, 0.0, np.round(values * scale) / scale)
    return rounded.astype(np.float32)
