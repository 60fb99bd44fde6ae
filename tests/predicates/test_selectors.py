"""Published suites of message selectors, as a table of facts: no verdict is wrong, and so many are accepted.

`selectors.json` holds a condition, an event and the verdict of each case: true, false, or "error" for what is
refused everywhere. A group that is out, for a reason, is refused here as far as its verdicts do not hold.
"""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

from rtfilter.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.filter import EventFilter
from rtfilter.predicates.parse import parse

FACTS = json.loads((Path(__file__).parent / "selectors.json").read_text(encoding="utf-8"))
PAGE = (Path(__file__).parents[2] / "docs" / "predicates.md").read_text(encoding="utf-8")
ACTIVEMQ, QPID = "ActiveMQ SelectorTest", "Qpid Broker-J JMSSelectorFilterSyntaxTest"
ABSENT = {"unknown": str, "anotherUnknown": int, "dummy": str, "another_entry": str}
"""Attributes that the suites ask for and no event has."""


def event_of(group):
    event = dict(group["event"])
    return (FACTS["message"] if event.pop("...", None) else {}) | event


GROUPS = [(group, event_of(group)) for group in FACTS["groups"]]
TYPES = ABSENT | {name: type(value) for _, event in GROUPS for name, value in event.items()}
CASES = [(group, event, *case) for group, event in GROUPS for case in group["cases"]]


def verdict(event, condition):
    """True, false or "error": by the definition and by an index, which agree."""
    schema = Schema(TYPES | {name: type(value) for name, value in event.items()})
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


@cache
def verdicts():
    """Of each case, as this package decides."""
    return [verdict(event, condition) for _, event, condition, _ in CASES]


def test_no_verdict_is_wrong():
    wrong = [
        f"{group['test']}: {condition} is {found}, not {wanted}"
        for (group, _, condition, wanted), found in zip(CASES, verdicts(), strict=True)
        if found != wanted and not (found == "error" and "out" in group)
    ]
    assert not wrong


def test_the_counts_are_those_of_the_page():
    total, accepted, left = Counter(), Counter(), Counter()
    for (group, _, _, wanted), found in zip(CASES, verdicts(), strict=True):
        total[group["suite"]] += 1
        accepted[group["suite"]] += found == wanted
        if found != wanted:
            left[group["suite"], group["out"]] += 1
    assert (total[ACTIVEMQ], total[QPID]) == (156, 206)
    assert set(left) <= {
        (ACTIVEMQ, "XPath on the text of the message"),
        (ACTIVEMQ, "ActiveMQ's functions"),
        (ACTIVEMQ, "an escape that escapes nothing"),
        (ACTIVEMQ, "joining strings with +"),
    }
    for (suite, out), count in left.items():
        assert re.search(rf"^\| {re.escape(out)}.* \| {suite} \| {count} \|", PAGE, re.MULTILINE)
    for suite in (ACTIVEMQ, QPID):
        row = re.search(rf"^\| {suite} \| (\d+) \| (\d+) \|", PAGE, re.MULTILINE)
        assert (int(row[1]), int(row[2])) == (total[suite], accepted[suite])
