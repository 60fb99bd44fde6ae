"""Replay of a controller's log: the same inputs must give the same decisions."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import zip_longest
from typing import TypeVar

from rtfilter.adaptive.matchers import MatcherChooser, feed
from rtfilter.adaptive.plans import Controller, Entry, Plan, Report, Shape, Ticket
from rtfilter.adaptive.recording import Recorder

R = TypeVar("R", bound=Recorder | Controller)


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
    _replay(entries, controller, _feed)


def replay_matchers(entries: Iterable[Entry], chooser: MatcherChooser) -> None:
    """Replay the log of a `MatcherChooser`; its inputs are all lines except those of the kind "decision"."""
    _replay(entries, chooser, feed)


def _replay(entries: Iterable[Entry], replayed: R, give: Callable[[Entry, R], None]) -> None:
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
