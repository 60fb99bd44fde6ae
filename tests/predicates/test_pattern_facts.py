"""Published verdicts on event patterns: those of event-ruler's and quamina's own tests and pages.

`pattern_facts.json` has the facts: a pattern, events that it matches and events that it does not match, and
where that is written; and patterns alone that are accepted or refused. A mark names what is known to be
different here:

- ``array``: an element of a list in the event decides; no difference.
- ``array of objects``: the same, of objects that hold together; no difference.
- ``other type``: anything-but is satisfied by a value of another type.
- ``regexp``: the matcher of regular expressions.
- ``never matches``: refused there, and accepted here as a pattern that nothing satisfies.
- ``wider``: refused there, and accepted here with a meaning.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from predicate_cases import inside
from rtfilter import EventFilter
from rtfilter.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes import compile_predicate
from rtfilter.predicates.parse import parse

FACTS = json.loads(Path(__file__).with_name("pattern_facts.json").read_text(encoding="utf-8"))
TYPES = {bool: bool, int: float, float: float, str: str}


def attributes(pattern, prefix=""):
    """Each attribute that a pattern names, with its alternatives."""
    for key, value in pattern.items():
        if key == "$or":
            for choice in value:
                yield from attributes(choice, prefix)
        elif isinstance(value, dict):
            yield from attributes(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def constants(argument, matcher=None):
    """The constants in an alternative or in the argument of a matcher."""
    if isinstance(argument, dict):
        for key, value in argument.items():
            yield from constants(value, key)
    elif isinstance(argument, list):
        for value in argument[1::2] if matcher == "numeric" else argument:
            yield from constants(value)
    elif matcher != "exists" and argument is not None:
        yield argument


def values(event, path=""):
    """Each value of an event, by its flat name; of a list each element."""
    if isinstance(event, dict):
        for key, value in event.items():
            yield from values(value, f"{path}.{key}" if path else key)
    elif isinstance(event, list):
        for element in event:
            yield from values(element, path)
    else:
        yield path, event


def schema_of(pattern, event):
    """The schema of someone who has both: the types of the constants; where they are several, the event's."""
    found, types = dict(values(event)), {}
    for name, alternatives in attributes(pattern):
        kinds = [TYPES[type(value)] for value in constants(alternatives) if type(value) in TYPES]
        own = TYPES.get(type(found.get(name)), str)
        types.setdefault(name, own if own in kinds or not kinds else kinds[0])
    return Schema(types or {"x": str})


def decide(pattern, event):
    """Whether the pattern matches, by its boxes as by its definition; None where it is refused."""
    schema = schema_of(pattern, event)
    try:
        predicate = parse(pattern, schema)
    except PredicateError:
        return None
    table = schema.read([event, {}])
    if table.choices is not None:
        filter = EventFilter(schema)
        filter.subscribe(predicate)
        return filter.any_match([event]).tolist() == [True]
    matched = predicate.matches(table.row(0))
    low, high, exact = compile_predicate(predicate, schema)
    hits = [sure for *box, sure in zip(low, high, exact, strict=True) if inside(table.points[0], *box)]
    assert hits or not matched
    assert matched or not any(hits)
    return matched


def test_no_verdict_is_wrong():
    outcomes = Counter()
    for group in FACTS["events"]:
        for verdict in (True, False):
            for event in group["match" if verdict else "no match"]:
                found = decide(group["pattern"], event)
                outcome = "refused" if found is None else "right" if found is verdict else "wrong"
                outcomes[group.get("mark", ""), outcome] += 1
                assert outcome == "right" or "mark" in group, (group["source"], group["pattern"], event)
    assert outcomes == {
        ("", "right"): 3619,
        ("array", "right"): 58,
        ("array of objects", "right"): 24,
        ("other type", "wrong"): 7,
        ("regexp", "refused"): 3,
    }
    page = (Path(__file__).parents[2] / "docs" / "predicates.md").read_text(encoding="utf-8")
    right = sum(count for (_, outcome), count in outcomes.items() if outcome == "right")
    assert f"{right:,} of the {outcomes.total():,} verdicts" in page
    assert f"| regular expressions | quamina | {outcomes['regexp', 'refused']} |" in page
    assert f"{outcomes['other type', 'wrong']} more verdicts of event-ruler are decided otherwise" in page


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ("accepted", {("", "accepted"): 90, ("other type", "refused"): 1}),
        ("refused", {("", "refused"): 101, ("never matches", "accepted"): 7, ("wider", "accepted"): 6}),
    ],
)
def test_patterns_are_accepted_or_refused_as_published(verdict, expected):
    outcomes = Counter()
    for fact in FACTS["patterns"]:
        if fact["verdict"] == verdict:
            outcome = "refused" if decide(fact["pattern"], {}) is None else "accepted"
            outcomes[fact.get("mark", ""), outcome] += 1
            assert (outcome == verdict) is ("mark" not in fact), fact
    assert outcomes == expected
