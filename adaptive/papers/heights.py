"""The searches of one class of batch sizes, one for each height of the index.

Levels count from the root, so at another height they mean something else. Inserts and deletes in alternation
can also change the height back and forth. So each height has its own search, which continues when the height
returns.
"""

import random
from collections.abc import Callable
from typing import Generic

from rtfilter.adaptive.papers.probing import Counts, Decision, Probing
from rtfilter.adaptive.papers.rule import Rule
from rtfilter.adaptive.papers.samples import P
from rtfilter.adaptive.papers.spaces import PositionSpace
from rtfilter.adaptive.plans import Shape

KEPT = 8
"""Most heights of a class with a search; the least recently used one is removed."""


class Heights(Generic[P]):
    """A :class:`~rtfilter.adaptive.papers.probing.Probing` per height, begun when the height is first seen.

    Parameters
    ----------
    space : PositionSpace
        The positions of the class.
    rule : Rule
    shape : Shape
        Shape of the index at the first batch.
    notify : callable
        Called with each decision.

    Attributes
    ----------
    height : int
        Height of the last batch.
    current : Probing
        The search at this height.
    counts : Counts
        Sums of the counters over all heights.
    """

    def __init__(
        self, space: PositionSpace[P], rule: Rule, shape: Shape, notify: Callable[[Decision[P]], None]
    ) -> None:
        self._space = space
        self._rule = rule
        self._notify = notify
        self._order = None if rule.seed is None else random.Random(rule.seed)
        self.counts = Counts()
        self.height = shape.height
        self.current = self._begin(shape, space.start(shape.height))
        self._machines = {shape.height: self.current}  # in order of use, the last used one last

    def ask(self, shape: Shape) -> tuple[P, int, int]:
        """Return position, episode and serial of the next batch; the last two are 0 if it is no sample."""
        if shape.height != self.height:
            self._change(shape)
        return self.current.ask(shape)

    def tell(self, episode: int, serial: int, value: float, bound: bool) -> bool:
        """Add the response of a sample, or a lower bound of it; return False if the sample is stale."""
        for machine in self._machines.values():
            if machine.episode == episode:
                return machine.tell(serial, value, bound)
        self.counts.stale_reports += 1
        return False

    def drop(self, episode: int, serial: int) -> None:
        """Remove a sample, as if it had never begun."""
        for machine in self._machines.values():
            if machine.episode == episode:
                machine.drop(serial)

    def update(self, count: int) -> None:
        """Count index updates, at all heights."""
        for machine in self._machines.values():
            machine.update(count)

    def _change(self, shape: Shape) -> None:
        machine = self._machines.pop(shape.height, None)
        if machine is None:
            before = self.current  # without a choice, the position of `before` says nothing
            nearest = self._space.clamp(before.position, shape.height)
            machine = self._begin(shape, self._space.start(shape.height) if before.alone else nearest)
        else:
            machine.resume()
        self._machines[shape.height] = machine
        if len(self._machines) > KEPT:
            del self._machines[next(iter(self._machines))]
        self.height, self.current = shape.height, machine

    def _begin(self, shape: Shape, start: P) -> Probing[P]:
        return Probing(self._space, self._rule, shape, start, self._notify, self.counts, self._order)
