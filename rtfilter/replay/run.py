"""Run a replay: bursts of events against a changing set of subscriptions.

Each contender runs each burst on the same index, one after the other. So contenders differ in the order and
the grouping of events only. An `rtree` index may run some of the bursts as the peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

from rtfilter.adaptive.controllers import FixedPlan
from rtfilter.basics.dtypes import IntArray
from rtfilter.basics.extras import needed
from rtfilter.events.table import EventTable
from rtfilter.filter import EventFilter, inside
from rtfilter.matchers.rtree import tree_of
from rtfilter.predicates.predicate import Predicate, parse
from rtfilter.replay.output import Row
from rtfilter.replay.report import PEER, Contender, ReplayInterrupted, ReplayReport, ReplaySettings
from rtfilter.replay.workloads.base import Bounds, Workload


def replay(
    workload: Workload,
    settings: ReplaySettings,
    contenders: Sequence[Contender],
    filter: EventFilter,
    progress: bool = False,
) -> ReplayReport:
    """Run all bursts of a replay.

    Parameters
    ----------
    workload : Workload
        The source of events and subscriptions.
    settings : ReplaySettings
    contenders : sequence of Contender
    filter : EventFilter
        An empty filter over the workload's schema. The replay fills it and changes it.
    progress : bool
        Show a progress bar on standard error.

    Raises
    ------
    ReplayInterrupted
        Interrupted after at least one burst; has the report of the complete bursts.
    AssertionError
        Contenders found different matches, or others than brute force: the times would have no meaning.
    ModuleNotFoundError
        The peer is wanted, but `rtree` is not installed.
    """
    rng = np.random.default_rng(settings.seed)
    sizes = _sizes(settings, rng)
    running = _Replay(workload, settings, contenders, filter, rng, progress)
    _warm_up(filter, workload)
    try:
        with _bar(f"replaying {workload.name}", settings.bursts, progress) as bar:
            for burst, size in enumerate(sizes):
                running.burst(burst, size)
                running.change()
                bar.update()
    except KeyboardInterrupt:
        if not running.report.rows:
            raise
        raise ReplayInterrupted(running.finished()) from None
    return running.finished()


class _Replay:
    """A replay that is running."""

    def __init__(
        self,
        workload: Workload,
        settings: ReplaySettings,
        contenders: Sequence[Contender],
        filter: EventFilter,
        rng: np.random.Generator,
        progress: bool,
    ) -> None:
        self.workload, self.settings, self.contenders = workload, settings, contenders
        self.filter, self.rng = filter, rng
        self.report = ReplayReport(
            workload.name, settings, [*(contender.name for contender in contenders), PEER]
        )
        self.supply = _Supply(workload, settings.subscriptions + settings.bursts * settings.insert)
        self.checked = _CheckedFilter(filter)
        self.live = self.checked.subscribe(self.supply.take(settings.subscriptions)).tolist()
        self.events = 0  # number of used events of the workload
        self.peer = None
        if settings.peer_every:
            with needed("replay", "the comparison with rtree"):
                from rtfilter.replay.rtree_peer import RtreePeer

            with _bar("building rtree", len(tree_of(inside(filter).matcher).content()[0]), progress) as bar:
                self.peer = RtreePeer(filter, bar.update)

    def burst(self, burst: int, size: int) -> None:
        """Run a burst; it is in the report when it is complete."""
        events = self.filter.schema.read(self.workload.events(self.events, size))
        self.events += size
        rows: list[Row] = []
        answers = []
        for i in range(len(self.contenders)):  # in turn, because the first one finds cold caches
            contender = self.contenders[(burst + i) % len(self.contenders)]
            row, answer = _run(self.filter, contender, events)
            rows.append({"burst": burst, "contender": contender.name, "size": size, **row})
            answers.append(answer)
        assert all(answer == answers[0] for answer in answers), "contenders disagree"
        count = 0
        if burst % self.settings.check_every == 0:
            count = self.checked.check(events, answers[0], self.settings.check, self.rng)
        if self.peer is not None and burst % self.settings.peer_every == 0:
            ended, boxes = self.peer.response(events.points)
            assert all(a <= b for a, b in zip(answers[0], boxes, strict=True)), "rtree disagrees"
            rows.append({"burst": burst, "contender": PEER, "size": size, **_row(float(ended.mean()))})
        self.report.rows += rows
        self.report.matches += sum(map(len, answers[0]))
        self.report.checked += count

    def change(self) -> None:
        """Add new subscriptions, and remove the oldest ones."""
        if not self.settings.insert and not self.settings.delete:
            return
        new = self.checked.subscribe(self.supply.take(self.settings.insert))
        gone = np.array(self.live[: self.settings.delete], np.int64)
        self.checked.unsubscribe(gone)
        if self.peer is not None:
            self.peer.add(new)
            self.peer.remove(gone)
        self.live = self.live[len(gone) :] + new.tolist()
        changes = len(new) + len(gone)
        self.report.updates += changes
        for contender in self.contenders:
            # The filter informs its own controller.
            if contender.controller is not inside(self.filter).controller:
                contender.controller.on_update(changes)

    def finished(self) -> ReplayReport:
        """Return the report, with the statistics at the end."""
        self.report.index = self.filter.stats()
        self.report.controllers = {
            contender.name: contender.controller.snapshot() for contender in self.contenders
        }
        return self.report


def _sizes(settings: ReplaySettings, rng: np.random.Generator) -> list[int]:
    """Draw the number of events of each burst."""
    if settings.poisson is None:
        return [int(size) for size in rng.choice(np.array(settings.sizes), settings.bursts)]
    return [max(1, int(size)) for size in rng.poisson(settings.poisson, settings.bursts)]


def _bar(text: str, total: int, progress: bool) -> Any:
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return nullcontext(SimpleNamespace(update=lambda more=1: None))  # `tqdm` is of the extra `progress`
    return tqdm(total=total, desc=text, disable=not progress, leave=False)


def _warm_up(filter: EventFilter, workload: Workload) -> None:
    """Match a few events as a whole and in groups, so that the kernels are loaded before the measurement."""
    controller = inside(filter).controller
    for group in (None, 1):
        filter.configure(controller=FixedPlan(0, group))
        list(filter.stream(workload.events(0, 4)))
    filter.configure(controller=controller)


def _row(response: float, level: int | None = None, group: int | None = None, **more: Any) -> Row:
    return {
        "response": response,
        "level": level,
        "group": group,
        "estimation": more.get("estimation"),
        "estimation_visits": more.get("estimation_visits"),
        "visits": more.get("visits"),
    }


def _run(filter: EventFilter, contender: Contender, events: EventTable) -> tuple[Row, list[set[int]]]:
    """Run one burst for one contender; return its row of the report, and the matches of each event."""
    filter.configure(order=contender.order, controller=contender.controller)
    stream = filter.stream(events)
    answers: list[set[int]] = [set()] * len(stream)
    released = list(stream)
    for completion in released:
        answers[completion.event] = set(completion.ids.tolist())
    row = _row(
        stream.mean_response,
        stream.plan.level,
        stream.plan.group,
        estimation=stream.estimation,
        estimation_visits=stream.estimation_visits,
        visits=int(stream.visits.sum()),
    )
    return row, answers


class _Supply:
    """All subscriptions of a replay. They are drawn and parsed before the measurement."""

    def __init__(self, workload: Workload, count: int) -> None:
        drawn = workload.subscriptions(0, count)
        self._drawn: Bounds | list[Predicate] = (
            drawn if isinstance(drawn, Bounds) else [parse(source, workload.schema) for source in drawn]
        )
        self._used = 0

    def take(self, count: int) -> Bounds | list[Predicate]:
        """Return the next `count` subscriptions."""
        rows = slice(self._used, self._used + count)
        self._used += count
        if isinstance(self._drawn, Bounds):
            return Bounds(self._drawn.low[rows], self._drawn.high[rows])
        return self._drawn[rows]


class _CheckedFilter:
    """A filter whose answers are compared with brute force over the same subscriptions."""

    def __init__(self, filter: EventFilter) -> None:
        self._filter = filter
        self._predicates: dict[int, Predicate] = {}
        self._low = self._high = np.empty((0, len(filter.schema.names)))
        self._ids = np.empty(0, np.int64)

    def subscribe(self, chosen: Bounds | list[Predicate]) -> IntArray:
        """Add subscriptions; return their ids, int64 (count,)."""
        if isinstance(chosen, Bounds):
            ids = self._filter.subscribe_boxes(chosen.low, chosen.high)
            self._low = np.concatenate([self._low, chosen.low])
            self._high = np.concatenate([self._high, chosen.high])
            self._ids = np.concatenate([self._ids, ids])
            return ids
        ids = self._filter.subscribe_many(chosen)
        self._predicates.update(zip(ids.tolist(), chosen, strict=True))
        return ids

    def unsubscribe(self, ids: IntArray) -> None:
        """Remove subscriptions."""
        self._filter.unsubscribe_many(ids)
        keep = ~np.isin(self._ids, ids)
        self._low, self._high, self._ids = self._low[keep], self._high[keep], self._ids[keep]
        for id in ids.tolist():
            self._predicates.pop(id, None)

    def check(
        self, events: EventTable, answers: Sequence[set[int]], count: int, rng: np.random.Generator
    ) -> int:
        """Compare matches of `count` random events with brute force; return the number of these events."""
        rows = rng.permutation(len(events))[:count]
        for row in rows.tolist():
            if self._predicates:
                event = events.row(row)
                expected = {id for id, predicate in self._predicates.items() if predicate.matches(event)}
            else:
                point = events.points[row]
                inside = ((self._low <= point) & (point <= self._high)).all(axis=1)
                expected = set(self._ids[inside].tolist())
            assert answers[row] == expected, f"event {row}: {answers[row] ^ expected} against brute force"
        return len(rows)
