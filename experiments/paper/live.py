"""Controllers that run live while the index grows: the times of Figure 4-d.

At each size all controllers run the same batches in alternation, each by its own plan, and get the time
that they took, in which the time of their own choice is. Fixed plans run many of these batches too. What is
compared are the batches that all of them ran.

A controller that has settled searches again, as often as the profile says, if one loop of the largest N has
room for it. Then the index grows, and all search again. A search that has not settled after two such loops
goes on at the next size; the paper lets no index grow before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from experiments.paper import confidence
from experiments.paper.confidence import Interval
from experiments.paper.index import GrowingFilter
from experiments.paper.plans import last_in_range, level_of
from experiments.paper.runner import Run
from experiments.paper.settings import Setting
from experiments.paper.timing import Call, batches, calls, names, no_collection, run_batch
from experiments.response.bursts import label
from rtfilter.adaptive import Controller, Report, Shape, Ticket
from rtfilter.basics.dtypes import FloatArray
from rtfilter.events.table import EventTable

FIRST = 6
"""Fixed plans run the first batches of a size, this many, for controllers whose searches are short."""
EVERY = 10
"""They run one of so many later batches."""
BLOCK = 5
"""Ratios are medians of those of blocks of this many batches, so that one outlier spoils one block."""
LOOP = 3
"""Levels of a loop: one takes this many times N batches."""


@dataclass
class Search:
    """Batches of one search.

    Attributes
    ----------
    batches : list of int
        Their numbers at this size of the index.
    seconds : list of float
        Their mean responses.
    settled : str
        The plan that the controller settled at; empty if it has not.
    """

    batches: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    settled: str = ""


class Contestant:
    """A controller, and its searches at one size of the index.

    Parameters
    ----------
    who : str
    rounds : int
        Its N.
    own : Controller
    threshold : int
        Index updates after which it searches again.
    """

    def __init__(self, who: str, rounds: int, own: Controller, threshold: int) -> None:
        self.who, self.rounds = who, rounds
        self._own, self._threshold = own, threshold
        self.searches = [Search()]
        """The searches at this size; the last one may be under way."""
        self.done = False
        """True if there are no more searches at this size."""

    def begin(self, shape: Shape, batch: int, searches: int, room: int) -> None:
        """Begin with a size of the index.

        Parameters
        ----------
        shape : Shape
            Its shape, as far as plans may reach.
        batch : int
            Events of a batch.
        searches, room : int
            Another search begins if there were fewer than `searches`, and if a loop of it ends within the
            first `room` batches.
        """
        self._shape, self._batch, self._most, self._room = shape, batch, searches, room
        self.searches, self.done = [Search()], False
        self._ask_after_updates()

    def _ask_after_updates(self) -> None:
        self._own.on_update(self._threshold)
        self._ask()

    def _ask(self) -> None:
        begun = perf_counter()
        self._ticket: Ticket = self._own.plan(self._batch, self._shape)
        self._asking = perf_counter() - begun

    def run(self, number: int, index: GrowingFilter, events: EventTable) -> None:
        """Run a batch by its plan, and report the time."""
        taken = run_batch(index, self._ticket.plan, "shortest", events).seconds + self._asking
        self._own.report(self._ticket, Report(taken, self._batch))
        search = self.searches[-1]
        search.batches.append(number)
        search.seconds.append(taken)
        self._ask()
        if self._ticket.episode == 0:
            search.settled = label(self._ticket.plan, self._batch)
            self._own.drop(self._ticket)
            self.done = len(self.searches) == self._most or number + LOOP * self.rounds >= self._room
            if not self.done:
                self.searches.append(Search())
                self._ask_after_updates()

    def end(self) -> None:
        """End with a size of the index: a batch that it asked for does not come."""
        if not self.done:
            self._own.drop(self._ticket)


class Step:
    """The measurements at a size of the index.

    Attributes
    ----------
    size, height : int
        Subscriptions, and levels that plans may have.
    fixed : dict of str to dict of int to float
        Seconds of each fixed plan by number of the batch.
    searches : list of list of Search
        Those of each contestant.
    """

    def __init__(self, size: int, height: int, plans: Sequence[str]) -> None:
        self.size, self.height = size, height
        self.fixed: dict[str, dict[int, float]] = {name: {} for name in plans}
        self.searches: list[list[Search]] = []

    @property
    def every(self) -> FloatArray:
        """Seconds of all fixed plans on the batches that they ran, float64 (b, p)."""
        return np.array([list(own.values()) for own in self.fixed.values()]).T

    @property
    def best(self) -> int:
        """The column of the fixed plan with the smallest mean."""
        return int(self.every.mean(axis=0).argmin())

    def column(self, name: str) -> int:
        """Return the column of a plan, or of the same group at the last level if the tree is lower."""
        group = name.partition("/")[2]
        return list(self.fixed).index(f"{min(level_of(name), self.height - 1)}/{group}")

    def compared(self, searches: Sequence[Search]) -> tuple[FloatArray, FloatArray]:
        """Return the seconds of a contestant, float64 (b,), and of all plans, on the batches that all ran."""
        known = next(iter(self.fixed.values()))
        pairs = [
            (number, taken)
            for search in searches
            for number, taken in zip(search.batches, search.seconds, strict=True)
            if number in known
        ]
        fixed = [[own[number] for own in self.fixed.values()] for number, _ in pairs]
        return np.array([taken for _, taken in pairs]), np.array(fixed).reshape(len(pairs), len(self.fixed))


def walk(run: Run, contestants: Sequence[Contestant]) -> Iterator[Step]:
    """Grow the index; at each size, let the contestants search."""
    index, profile = GrowingFilter(run.setting, run.seed), run.profile
    arriving, room = batches(index, run.setting.live), LOOP * max(profile.rounds)
    for size in profile.sizes:
        run.tell(f"live at {size}")
        index.grow(size)
        height = reach(run.setting, index.filter.tree.height)
        by_name = calls(run, index, run.setting.live)
        fixed = {name: by_name[name] for name in names(run, height, run.setting.live)}
        for contestant in contestants:
            contestant.begin(Shape(height, size), run.setting.live, profile.searches, room)
        step = Step(size, height, list(fixed))
        _at(step, index, fixed, contestants, arriving, 2 * room, run.seed)
        for contestant in contestants:
            contestant.end()
            step.searches.append(contestant.searches)
        yield step
        run.advance(size / sum(profile.sizes))


def reach(setting: Setting, height: int) -> int:
    """Return the number of levels that plans may have: those of the paper, or all where plans have groups."""
    return height if setting.grouped else last_in_range(height) + 1


def _at(
    step: Step, index: GrowingFilter, fixed: Mapping[str, Call], contestants: Sequence[Contestant],
    arriving: Iterator[EventTable], most: int, seed: int,
) -> None:  # fmt: skip
    """Run batches of one size, until all contestants have searched, or there were `most` of them."""
    rng = np.random.default_rng([seed, step.size])

    def of(name: str, call: Call, number: int, events: EventTable) -> Callable[[], None]:
        def timed() -> None:
            step.fixed[name][number] = call(events).seconds

        return timed

    def live(contestant: Contestant, number: int, events: EventTable) -> Callable[[], None]:
        return lambda: contestant.run(number, index, events)

    for number in range(most):
        searching = [contestant for contestant in contestants if not contestant.done]
        if not searching:
            return
        events = next(arriving)
        turns = [live(contestant, number, events) for contestant in searching]
        all_run = number < FIRST or number % EVERY == 0
        if all_run:
            turns += [of(name, call, number, events) for name, call in fixed.items()]
        with no_collection():
            if all_run:  # so that the first call finds caches as the others do
                fixed[list(fixed)[int(rng.integers(len(fixed)))]](events)
            for turn in rng.permutation(len(turns)).tolist():
                turns[turn]()


def middle(values: FloatArray) -> Interval:
    """Return the median of the means of blocks of values, float64 (b,), with its interval."""
    return confidence.middle([block.mean() for block in _blocks(values)])


def ratio(own: FloatArray, other: FloatArray) -> Interval:
    """Return a contestant's excess time over another's on the same batches, float64 (b,) each, as a share."""
    pairs = zip(_blocks(own), _blocks(other), strict=True)
    return confidence.middle([one.mean() / another.mean() - 1 for one, another in pairs])


def _blocks(values: FloatArray) -> list[FloatArray]:
    return np.array_split(values, max(len(values) // BLOCK, 1))
