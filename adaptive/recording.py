"""The parts that controllers share: the log of their inputs, and the checks of their arguments."""

import operator
from dataclasses import fields
from typing import Any

from rtfilter.adaptive.plans import Entry, Plan, Report, Shape, Sink, Ticket

REPORTED = tuple(field.name for field in fields(Report))


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


def plan_fields(plan: Plan) -> Entry:
    """Return a plan as fields of a line of the log."""
    return {"level": plan.level, "group": plan.group}


def ticket_fields(ticket: Ticket) -> Entry:
    """Return a ticket as fields of a line of the log."""
    return {
        **plan_fields(ticket.plan),
        "size_class": ticket.size_class,
        "episode": ticket.episode,
        "serial": ticket.serial,
    }


def report_fields(report: Report) -> Entry:
    """Return a report as fields of a line of the log."""
    return {name: getattr(report, name) for name in REPORTED}


def positive(name: str, value: int) -> int:
    """Return the value as an int; raise ``ValueError`` if it is below 1."""
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"the {name} must be at least 1; got {number}")
    return number


def count(value: int) -> int:
    """Return a number of index updates as an int; raise ``ValueError`` if it is negative."""
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"the number of index updates cannot be negative; got {number}")
    return number


def require_report(report: object) -> None:
    """Raise ``TypeError`` if `report` is no `Report`, such as a mean response alone."""
    if not isinstance(report, Report):
        raise TypeError(f"report takes a Report, such as Report(mean_response, size); got {report!r}")


def checked(shape: Shape) -> Shape:
    """Return the shape with ints; raise ``ValueError`` if its height is below 1."""
    if not isinstance(shape, Shape):
        raise TypeError(f"a plan needs the shape of the index, such as Shape(height=2); got {shape!r}")
    height, boxes, packed = positive("height", shape.height), *map(operator.index, shape[1:])
    if boxes < 0:
        raise ValueError(f"an index has at least 0 boxes; got {boxes}")
    return Shape(height, boxes, packed)
