"""Controllers by name, the part that they share, and the replay of their logs."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from importlib import import_module
from itertools import zip_longest
from typing import Any, Final, TypeVar

from rtfilter.adaptive.plans import Controller, Entry, Plan, Report, Shape, Sink, Ticket
from rtfilter.adaptive.sizes import powers_of_two
from rtfilter.basics.options import Named, require, split

CONTROLLERS: Final[Mapping[str, str]] = {
    "cost": "rtfilter.adaptive.cost_controller:CostController",
    "wang": "rtfilter.adaptive.papers.wang:WangController",
    "level": "rtfilter.adaptive.papers.climbing:LevelController",
    "plan": "rtfilter.adaptive.papers.climbing:PlanController",
    "fixed": "rtfilter.adaptive.controllers:FixedPlan",
}
"""Name to module and class; the module is imported at the first use. A new controller is a new line here."""


def make_controller(given: Named, log: Sink | None = None) -> Controller:
    """Make a controller.

    Parameters
    ----------
    given : str or mapping
        A name in `CONTROLLERS`; or an object with it and options, such as ``{"name": "wang", "rounds": 32,
        "threshold": 1000}``, where ``rounds`` is N of the paper (Wang et al.) and ``threshold`` its
        Threshold.
    log : callable, optional
        See `Controller`.

    Raises
    ------
    ValueError
        The name or an option is unknown, or an option has a wrong value.
    """
    name, options = split("controller", given, CONTROLLERS)
    module, _, kind = CONTROLLERS[name].partition(":")
    make = getattr(import_module(module), kind)
    require(f"the controller {name!r}", make, options)
    made: Controller = make(**options, log=log)
    return made


class Recorder:
    """Writes each input to the log, followed by the decisions that it caused."""

    def __init__(self, log: Sink | None) -> None:
        self.log = log
        self._decisions: list[Entry] = []  # written after their input

    def _record(self, kind: str, **fields: Any) -> None:
        if self.log is not None:
            self.log({"kind": kind, **fields})
            for entry in self._decisions:
                self.log(entry)
        self._decisions.clear()


class RecordedController(Recorder, ABC):
    """Checks and records the inputs of a controller; a subclass decides."""

    def plan(self, size: int, shape: Shape) -> Ticket:
        """See :meth:`Controller.plan`. Of a batch of one event, the order is no choice: level 0, group 1."""
        size, shape = positive("size", size), _checked(shape)
        ticket = self._ticket(size, shape)
        self._record("plan", size=size, **shape._asdict(), **_ticket_fields(ticket))
        return ticket

    def report(self, ticket: Ticket, report: Report) -> None:
        """See :meth:`Controller.report`."""
        if not isinstance(report, Report):
            raise TypeError(f"report takes a Report, such as Report(mean_response, size); got {report!r}")
        used = self._learn(ticket, report)
        told = {field.name: getattr(report, field.name) for field in fields(Report)}
        self._record("report", **_ticket_fields(ticket), **told, used=used)

    def drop(self, ticket: Ticket) -> None:
        """See :meth:`Controller.drop`."""
        self._forget(ticket)
        self._record("drop", **_ticket_fields(ticket))

    def on_update(self, count: int = 1) -> None:
        """See :meth:`Controller.on_update`."""
        updates = not_negative(count)
        self._update(updates)
        self._record("update", count=updates)

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """See :meth:`Controller.snapshot`."""

    @abstractmethod
    def _ticket(self, size: int, shape: Shape) -> Ticket: ...

    def _learn(self, ticket: Ticket, report: Report) -> bool:
        """Return whether the report is used."""
        return False

    def _forget(self, ticket: Ticket) -> None: ...

    def _update(self, count: int) -> None: ...


class FixedPlan(RecordedController):
    """Gives every batch the same plan, and ignores reports.

    Parameters
    ----------
    level : int
        At least 0. An index with fewer levels gets its last level instead.
    group : int or None
        Events per group, at least 1; None for the whole batch.
    log : callable, optional
        See :class:`Controller`.
    """

    def __init__(self, level: int, group: int | None, log: Sink | None = None) -> None:
        super().__init__(log)
        self._plan = Plan(level, group)

    def _ticket(self, size: int, shape: Shape) -> Ticket:
        return Ticket(Plan(min(self._plan.level, shape.height - 1), self._plan.group), powers_of_two(size))

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`Controller.snapshot`."""
        return {"controller": "FixedPlan", **plan_fields(self._plan), "stale_reports": 0, "classes": {}}


def plan_fields(plan: Plan) -> Entry:
    """Return a plan as fields of a line of the log."""
    return {"level": plan.level, "group": plan.group}


def _ticket_fields(ticket: Ticket) -> Entry:
    own = {"size_class": ticket.size_class, "episode": ticket.episode, "serial": ticket.serial}
    return {**plan_fields(ticket.plan), **own}


def positive(name: str, value: int) -> int:
    """Return the value as an int; raise ``ValueError`` if it is below 1."""
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"the {name} must be at least 1; got {number}")
    return number


def not_negative(value: int) -> int:
    """Return a number of index updates as an int; raise ``ValueError`` if it is negative."""
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"the number of index updates cannot be negative; got {number}")
    return number


def _checked(shape: Shape) -> Shape:
    if not isinstance(shape, Shape):
        raise TypeError(f"a plan needs the shape of the index, such as Shape(height=2); got {shape!r}")
    height, boxes, packed = positive("height", shape.height), *map(operator.index, shape[1:])
    if boxes < 0:
        raise ValueError(f"an index has at least 0 boxes; got {boxes}")
    return Shape(height, boxes, packed)


class ReplayError(ValueError):
    """A new controller made another decision than the log has."""


def replay(entries: Iterable[Entry], controller: Controller) -> None:
    """Pass the inputs of a log to a new controller, and check that it makes the same decisions.

    Afterwards the controller has the state of the controller that wrote the log.

    Parameters
    ----------
    entries : iterable of dict
        The complete log from the first batch on, as a sink got it or as it was read from JSON. Inputs have
        the ``kind`` "plan" (with the returned ticket), "report", "drop" or "update"; lines of the kind
        "decision" are only compared.
    controller : Controller
        A new one, with the parameters of the controller that wrote the log. Its own `log` gets nothing.

    Raises
    ------
    ReplayError
        The message names the first line that differs, and both versions of it.
    """
    replay_log(entries, controller, _feed)


R = TypeVar("R", bound=Recorder | Controller)


def replay_log(entries: Iterable[Entry], replayed: R, give: Callable[[Entry, R], None]) -> None:
    """Replay a log; `give` passes an input of it to `replayed`."""
    recorded = list(entries)
    repeated: list[Entry] = []
    log, replayed.log = replayed.log, repeated.append
    try:
        for entry in recorded:
            give(entry, replayed)
    finally:
        replayed.log = log
    for line, (before, now) in enumerate(zip_longest(recorded, repeated)):
        if before != now:
            raise ReplayError(f"the log differs at line {line}: recorded {before}, repeated {now}")


def _feed(entry: Entry, controller: Controller) -> None:
    match entry["kind"]:
        case "plan":
            controller.plan(entry["size"], Shape(*(entry[name] for name in Shape._fields)))
        case "report":
            report = Report(**{field.name: entry[field.name] for field in fields(Report)})
            controller.report(_ticket(entry), report)
        case "drop":
            controller.drop(_ticket(entry))
        case "update":
            controller.on_update(entry["count"])


def _ticket(entry: Entry) -> Ticket:
    plan = Plan(entry["level"], entry["group"])
    return Ticket(plan, entry["size_class"], entry["episode"], entry["serial"])
