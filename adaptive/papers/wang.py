"""The controller of the paper, with its rules only (Wang et al., the adaptive level)."""

from dataclasses import dataclass, field
from typing import Any

from rtfilter.adaptive.controllers import RecordedController, plan_fields, positive
from rtfilter.adaptive.plans import Plan, Report, Shape, Sink, Ticket


@dataclass(slots=True)
class _Status:
    """The status buffer of one batch size."""

    level: int
    height: int
    loop: int = 0  # number of the loop of comparisons
    stable: bool = False
    updates: int = 0  # of the index since it became stable
    begun: dict[int, int] = field(default_factory=dict)  # batches of this loop by level, in their order
    times: dict[int, list[float]] = field(default_factory=dict)  # their mean responses, by level
    running: dict[int, int] = field(default_factory=dict)  # levels of unreported batches, by serial number

    def begin(self) -> None:
        """Begin a loop at the present level, the one above and the one below."""
        self.loop += 1
        self.updates = 0
        levels = [level for level in (self.level, self.level - 1, self.level + 1) if 0 <= level < self.height]
        self.begun = dict.fromkeys(levels, 0)
        self.times = {level: [] for level in levels}
        self.running = {}
        self.stable = len(levels) == 1


class WangController(RecordedController):
    """Follows the best level as the paper does.

    Each batch size has a status of its own. While it is *unstable*, successive batches run at the present
    level, the level above and the level below, in alternation. After `rounds` batches at each, the present
    level is stable if its time is less than both others (``CTime < UTime and CTime < LTime``). Otherwise the
    better side becomes the present level, and the next loop begins. After `threshold` index updates a stable
    level is unstable again.

    No other rule ends a search: on ties it moves on. `LevelController` has rules for real traffic.

    Choices where the paper is silent: the first level is the middle one; at the root and at the leaves the
    only neighbour is compared; of equal sides the upper one is better; a cancelled batch runs again; if the
    height of the tree changes, a loop begins at the nearest level. Groups have one event.

    Parameters
    ----------
    rounds : int
        N of the paper, at least 1: batches at each level in a loop.
    threshold : int
        Index updates after which a stable level is compared again, at least 1.
    log : callable, optional
        See `Controller`.
    """

    def __init__(self, *, rounds: int = 64, threshold: int = 300_000, log: Sink | None = None) -> None:
        super().__init__(log)
        self._rounds, self._threshold = positive("rounds", rounds), positive("threshold", threshold)
        self._sizes: dict[int, _Status] = {}
        self._serial = self._loops = self._moves = self._stale = 0

    def _ticket(self, size: int, shape: Shape) -> Ticket:
        if size == 1:
            return Ticket(Plan(0, 1), 1)
        height = shape.height
        status = self._sizes.get(size)
        if status is None:
            status = self._sizes[size] = _Status((height - 1) // 2, height)
            status.begin()
        elif status.height != height:
            status.level, status.height = min(status.level, height - 1), height
            status.begin()
        if status.stable:
            return Ticket(Plan(status.level, 1), size)
        level = min(status.begun, key=status.begun.__getitem__)  # the first with the fewest batches
        self._serial += 1
        status.begun[level] += 1
        status.running[self._serial] = level
        return Ticket(Plan(level, 1), size, status.loop, self._serial)

    def _learn(self, ticket: Ticket, report: Report) -> bool:
        status, level = self._taken(ticket)
        used = level is not None and not report.unfinished and len(status.times[level]) < self._rounds
        if used:
            status.times[level].append(report.mean_response)
            if all(len(times) == self._rounds for times in status.times.values()):
                self._decide(ticket.size_class, status)
        elif level is not None and report.unfinished:
            status.begun[level] -= 1
        elif ticket.episode:
            self._stale += 1
        return used

    def _taken(self, ticket: Ticket) -> tuple[Any, int | None]:
        """Return the status and the level of a batch; the level is None for a stale report."""
        status = self._sizes.get(ticket.size_class)
        return status, None if status is None else status.running.pop(ticket.serial, None)

    def _decide(self, size: int, status: _Status) -> None:
        sums = {level: sum(times) for level, times in status.times.items()}
        own = sums.pop(status.level)
        origin = status.level
        self._loops += 1
        if all(own < other for other in sums.values()):
            status.stable, status.running = True, {}
        else:
            status.level = min(sums, key=sums.__getitem__)
            self._moves += 1
        if self.log is not None:
            means = {str(level): total / self._rounds for level, total in {origin: own, **sums}.items()}
            outcome = "settle" if status.stable else "move"
            self._decisions.append(
                {"kind": "decision", "size_class": size, "outcome": outcome, "from_level": origin}
                | {"level": status.level, "group": 1, "means": means}
            )
        if not status.stable:
            status.begin()

    def _forget(self, ticket: Ticket) -> None:
        status, level = self._taken(ticket)
        if level is not None:
            status.begun[level] -= 1  # the level runs again

    def _update(self, count: int) -> None:
        for status in self._sizes.values():
            if status.stable:
                status.updates += count
                if status.updates >= self._threshold:
                    status.begin()

    def snapshot(self) -> dict[str, Any]:
        """Return the parameters, and in ``classes`` the state of each batch size, by the size as text."""
        return {
            "controller": "WangController",
            "rounds": self._rounds,
            "threshold": self._threshold,
            "loops": self._loops,
            "moves": self._moves,
            "stale_reports": self._stale,
            "classes": {
                str(size): {
                    **plan_fields(Plan(status.level, 1)),
                    "height": status.height,
                    "mode": "STABLE" if status.stable else "UNSTABLE",
                    "updates": status.updates,
                    "episode": status.loop,
                }
                for size, status in self._sizes.items()
            },
        }
