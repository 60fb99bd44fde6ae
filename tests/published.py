"""Published suites of conditions and patterns, and how each of their verdicts holds here.

- Message selectors of ActiveMQ and Qpid: a table of facts, `predicates/selectors.json`.
- Event patterns of event-ruler and quamina: a table of facts, `predicates/pattern_facts.json`.
- CloudEvents SQL: the files of its conformance tests, in a folder of who runs them; none are kept here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from predicate_cases import inside
from rtfilter import EventFilter
from rtfilter.basics.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes.compiling import compile_predicate
from rtfilter.predicates.predicate import parse

RIGHT, REFUSED, DIFFERS = "right", "refused clearly", "differs as documented"
_FOLDER = Path(__file__).parent / "predicates"
SELECTORS = json.loads((_FOLDER / "selectors.json").read_text(encoding="utf-8"))
PATTERNS = json.loads((_FOLDER / "pattern_facts.json").read_text(encoding="utf-8"))
_TYPES = {bool: bool, int: float, float: float, str: str}


class Outcome(NamedTuple):
    """How one case of a suite holds here."""

    suite: str
    case: str
    verdict: str
    """One of the three, or what was found instead."""
    reason: str = ""


# -- message selectors -----------------------------------------------------------------------------------

_ABSENT = {"unknown": str, "anotherUnknown": int, "dummy": str, "another_entry": str}
"""Attributes that the suites ask for and no event has."""


def selectors() -> Iterator[Outcome]:
    """Cases of ActiveMQ's and Qpid's tests. A group that is out, for a reason, is refused here."""
    groups = [(group, _message(group["event"])) for group in SELECTORS["groups"]]
    types = _ABSENT | {name: type(value) for _, event in groups for name, value in event.items()}
    for group, event in groups:
        for condition, wanted in group["cases"]:
            found = _selected(condition, event, types)
            verdict = RIGHT if found == wanted else REFUSED if found == "error" else f"{found}, not {wanted}"
            yield Outcome(group["suite"], f"{group['test']}: {condition}", verdict, group.get("out", ""))


def _message(given: dict[str, Any]) -> dict[str, Any]:
    event = dict(given)
    return (SELECTORS["message"] if event.pop("...", None) else {}) | event


def _selected(condition: str, event: dict[str, Any], types: dict[str, type]) -> bool | str:
    """True, false or "error": by the definition and by an index, which agree."""
    schema = Schema(types | {name: type(value) for name, value in event.items()})
    try:
        predicate = parse(condition, schema)
    except PredicateError:
        return "error"
    matches = predicate.matches(schema.read(event).row(0))
    assert parse(str(predicate), schema) == predicate
    subscriptions = EventFilter(schema)
    subscriptions.subscribe(predicate)
    assert subscriptions.match(event).tolist() == [0] * matches
    return matches


# -- event patterns --------------------------------------------------------------------------------------


def patterns() -> Iterator[Outcome]:
    """Patterns and events of event-ruler's and quamina's tests and pages.

    A mark names what is known to be different here: ``other type``, where anything-but is satisfied by a
    value of another type; ``regexp``, the matcher of regular expressions. With ``array`` and
    ``array of objects`` nothing differs.
    """
    for group in PATTERNS["events"]:
        suite = "quamina" if "quamina" in group["source"] else "event-ruler"
        for wanted in (True, False):
            for event in group["match" if wanted else "no match"]:
                found, mark = _matched(group["pattern"], event), group.get("mark", "")
                differs = REFUSED if found is None else DIFFERS if mark else f"{found}, not {wanted}"
                case = f"{group['source']}: {group['pattern']} {event}"
                yield Outcome(suite, case, RIGHT if found is wanted else differs, mark)


def accepted_patterns() -> Iterator[Outcome]:
    """Patterns alone that are accepted or refused there.

    Marks: ``never matches``, refused there, and here a pattern that nothing satisfies; ``wider``, refused
    there, and here with a meaning; ``other type``, accepted there.
    """
    for fact in PATTERNS["patterns"]:
        suite = "quamina" if "quamina" in fact["source"] else "event-ruler"
        found = "refused" if _matched(fact["pattern"], {}) is None else "accepted"
        mark = fact.get("mark", "")
        differs = REFUSED if found == "refused" else DIFFERS if mark else f"{found}, not {fact['verdict']}"
        yield Outcome(suite, str(fact), RIGHT if found == fact["verdict"] else differs, mark)


def _attributes(pattern: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each attribute that a pattern names, with its alternatives."""
    for key, value in pattern.items():
        if key == "$or":
            for choice in value:
                yield from _attributes(choice, prefix)
        elif isinstance(value, dict):
            yield from _attributes(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _constants(argument: Any, matcher: str | None = None) -> Iterator[Any]:
    """The constants in an alternative or in the argument of a matcher."""
    if isinstance(argument, dict):
        for key, value in argument.items():
            yield from _constants(value, key)
    elif isinstance(argument, list):
        for value in argument[1::2] if matcher == "numeric" else argument:
            yield from _constants(value)
    elif matcher != "exists" and argument is not None:
        yield argument


def _values(event: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of an event, by its flat name; of a list each element."""
    if isinstance(event, dict):
        for key, value in event.items():
            yield from _values(value, f"{path}.{key}" if path else key)
    elif isinstance(event, list):
        for element in event:
            yield from _values(element, path)
    else:
        yield path, event


def _schema_of(pattern: Any, event: Any) -> Schema:
    """The schema of someone who has both: the types of the constants; where they are several, the event's."""
    found, types = dict(_values(event)), dict[str, Any]()
    for name, alternatives in _attributes(pattern):
        kinds = [_TYPES[type(value)] for value in _constants(alternatives) if type(value) in _TYPES]
        own = _TYPES.get(type(found.get(name)), str)
        types.setdefault(name, own if own in kinds or not kinds else kinds[0])
    return Schema(types or {"x": str})


def _matched(pattern: Any, event: Any) -> bool | None:
    """Whether the pattern matches, by its boxes as by its definition; None where it is refused."""
    schema = _schema_of(pattern, event)
    try:
        predicate = parse(pattern, schema)
    except PredicateError:
        return None
    table = schema.read([event, {}])
    if table.choices is not None:
        filter = EventFilter(schema)
        filter.subscribe(predicate)
        return filter.match_batch([event]).any.tolist() == [True]
    matched = predicate.matches(table.row(0))
    low, high, exact = compile_predicate(predicate, schema)
    hits = [sure for *box, sure in zip(low, high, exact, strict=True) if inside(table.points[0], *box)]
    assert hits or not matched
    assert matched or not any(hits)
    return matched


# -- CloudEvents SQL -------------------------------------------------------------------------------------

CESQL = "CloudEvents SQL"
_EVENT = {"id": "1", "source": "/source", "type": "a.type", "specversion": "1.0"}
"""What every event of CloudEvents has."""
_UNLIKE = {
    "functions": r"the function \w+ is not supported|(LOWER|UPPER) needs an attribute",
    "XOR, EXISTS and %": r"(XOR|EXISTS|%) is not supported",
    "values that are cast to another type": (
        r"of different types and cannot be compared|cannot be compared with|needs numbers, not"
        r"|a constant alone is not a condition|an attribute alone is a condition only if it is a boolean"
        r"|has no operator"
    ),
    "text in double quotes": r"unknown attribute '(?i:abc|bcd)'|in single quotes|this quote is not closed",
    "LIKE of constants and of numbers": r"expected an attribute here|LIKE needs a string constant",
    "a backslash that escapes nothing": r"in LIKE, \\ must be followed by",
    "a division by zero": r"a division by zero has no result",
    "two minus signs, which begin a comment": r"the condition is empty",
}
"""What is refused here, by the message."""
_OTHERWISE = {
    "integers divide to numbers": r"5 / 3 = 1",
    "an expression of a missing attribute is false, not 0": r"[^=]*missing[^=]* = 0",
    "text is not compared as a number": r"hop < ttl",
}
"""What is decided otherwise, by the condition."""


def cesql(folder: Path) -> Iterator[Outcome]:
    """Cases of CloudEvents SQL's conformance tests. What gives a number or a text is compared with it."""
    import yaml

    for file in sorted(folder.glob("*.yaml")):
        for case in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]:
            event = _EVENT | (case.get("event") or {}) | (case.get("eventOverrides") or {})
            given = case["expression"]
            condition, wanted = (
                str(given).upper() if isinstance(given, bool) else str(given),
                case.get("result"),
            )
            if not isinstance(wanted, bool | None):
                condition, wanted = f"{condition} = {_written(wanted)}", True
            yield Outcome(CESQL, f"{file.name}: {condition}", *_evaluated(condition, event, wanted))


def _written(value: object) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat()}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _evaluated(condition: str, event: dict[str, Any], wanted: bool | None) -> tuple[str, str]:
    types = {name: type(value) for name, value in event.items() if type(value) in _TYPES} | {"time": datetime}
    for name, text in re.findall(
        r"([a-z]\w*)\s*(?:(?:NOT )?LIKE|!?=|<>)?\s*('?)", re.sub(r"'[^']*'", "''", condition)
    ):
        types.setdefault(name, str if text else float)
    filter = EventFilter(Schema(types))
    try:
        filter.subscribe(condition)
    except PredicateError as error:
        if wanted is None:  # it is refused there as well
            return RIGHT, ""
        reasons = [reason for reason, message in _UNLIKE.items() if re.search(message, error.message)]
        return (REFUSED, reasons[0]) if reasons else (str(error), "")
    found = bool(len(filter.match(event)))
    if found == wanted:
        return RIGHT, ""
    reasons = [reason for reason, form in _OTHERWISE.items() if re.fullmatch(form, condition)]
    return (DIFFERS, reasons[0]) if reasons else (f"{found}, not {wanted}", "")
