"""Unbounded subscriptions: each must be verified for nearly every event, so their number is limited."""

from __future__ import annotations

import numpy as np

from rtfilter.dtypes import IntArray
from rtfilter.errors import PredicateError
from rtfilter.matchers.filters import Filters
from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
from rtfilter.subscriptions.deadlines import Deadlines
from rtfilter.subscriptions.ids import among


class Unbounded:
    """The subscriptions with a box that bounds nothing and decides nothing.

    Parameters
    ----------
    boxes : bool
        Whether the matcher works on boxes; with other matchers no subscription counts as unbounded.

    Attributes
    ----------
    boxes : bool
    handles : set of int
        Unbounded subscriptions, those being added included.
    most : int or None
        The limit that `admit` enforces; None for no limit.
    """

    def __init__(self, boxes: bool) -> None:
        self.boxes = boxes
        self.handles: set[int] = set()
        self.most: int | None = MAX_UNBOUNDED

    def admit(
        self, filters: Filters, deadlines: Deadlines | None, moment: float, replaced: int | None = None
    ) -> None:
        """Raise `PredicateError` if new filters would exceed the limit at a moment.

        `replaced` is the handle of a subscription that they replace.
        """
        if self.most is None or not self.boxes:
            return
        rows = filters.unbounded()
        if not len(rows) or len(self.handles) + len(rows) <= self.most:
            return
        others = self.count(deadlines, moment) - (replaced in self.handles)
        if others + len(rows) > self.most:
            error = PredicateError(
                "nothing bounds this predicate, so that nearly every event must be checked exactly: there "
                f"are {others} such subscriptions already, and at most {self.most} are allowed "
                "(max_unbounded); compare an attribute with a constant as well, or allow more",
                row=int(rows[max(self.most - others, 0)]),
            )
            if len(filters) == 1:
                error.row = None
            error.show_row()
            raise error

    def note(self, filters: Filters) -> None:
        """Count the unbounded ones of some subscriptions from now on."""
        if self.boxes:
            rows = filters.unbounded()
            if len(rows):
                self.handles.update(filters.ids[rows].tolist())

    def among(self, ascending: IntArray) -> list[int]:
        """Return the unbounded ones among some handles, at least one and ascending."""
        if not self.handles:
            return []
        counted = np.array(list(self.handles))
        found: list[int] = counted[among(counted, ascending)].tolist()
        return found

    def count(self, deadlines: Deadlines | None, moment: float) -> int:
        """Return the number of unbounded subscriptions at a moment, those being added included."""
        if deadlines is None or moment < deadlines.earliest or not self.handles:
            return len(self.handles)
        passed = deadlines.passed(np.array(list(self.handles)), moment)
        return len(self.handles) - (0 if passed is None else int(passed.sum()))
