"""No verdict of a published suite is wrong, and the page counts them."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from published import DIFFERS, REFUSED, RIGHT, accepted_patterns, cesql, patterns, selectors

PAGE = (Path(__file__).parents[2] / "docs" / "predicates.md").read_text(encoding="utf-8")
ACTIVEMQ, QPID = "ActiveMQ SelectorTest", "Qpid Broker-J JMSSelectorFilterSyntaxTest"


@cache
def outcomes(suite):
    return list(suite())


@pytest.mark.slow
@pytest.mark.parametrize("suite", [selectors, patterns, accepted_patterns])
def test_no_verdict_is_wrong(suite):
    assert not [one for one in outcomes(suite) if one.verdict not in (RIGHT, REFUSED, DIFFERS)]


@pytest.mark.slow
def test_selectors_are_counted_on_the_page():
    total, accepted, left = Counter(), Counter(), Counter()
    for one in outcomes(selectors):
        total[one.suite] += 1
        accepted[one.suite] += one.verdict == RIGHT
        if one.verdict != RIGHT:
            left[one.suite, one.reason] += 1
    assert total == {ACTIVEMQ: 156, QPID: 206}
    assert set(left) <= {
        (ACTIVEMQ, "XPath on the text of the message"),
        (ACTIVEMQ, "ActiveMQ's functions"),
        (ACTIVEMQ, "an escape that escapes nothing"),
        (ACTIVEMQ, "joining strings with +"),
    }
    for (suite, reason), count in left.items():
        assert re.search(rf"^\| {re.escape(reason)}.* \| {suite} \| {count} \|", PAGE, re.MULTILINE)
    for suite in total:
        assert re.search(rf"^\| {suite} \| {total[suite]} \| {accepted[suite]} \|", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_patterns_are_counted_on_the_page():
    found = Counter((one.reason, one.verdict) for one in outcomes(patterns))
    assert found == {
        ("", RIGHT): 3619,
        ("array", RIGHT): 58,
        ("array of objects", RIGHT): 24,
        ("other type", DIFFERS): 7,
        ("regexp", REFUSED): 3,
    }
    right = sum(count for (_, verdict), count in found.items() if verdict == RIGHT)
    assert f"| the same | {right:,} of {found.total():,} |" in PAGE
    assert f"| refused: the pattern is a regular expression | {found['regexp', REFUSED]} |" in PAGE
    assert f"satisfies `anything-but` | {found['other type', DIFFERS]} |" in PAGE
    assert f"| regular expressions | quamina | {found['regexp', REFUSED]} |" in PAGE
    alone = Counter((one.reason, one.verdict) for one in outcomes(accepted_patterns))
    assert alone == {
        ("", RIGHT): 191,
        ("never matches", DIFFERS): 7,
        ("wider", DIFFERS): 6,
        ("other type", REFUSED): 1,
    }


CASES = """
tests:
  - {expression: "size = 2", eventOverrides: {size: 2}, result: true}
  - {expression: "size", eventOverrides: {size: 2}, result: 2}
  - {expression: "label", eventOverrides: {label: 'a'}, result: 'a'}
  - {expression: "absent LIKE 'a%'", result: false}
  - {expression: "size %", error: parse}
  - {expression: "ABS(-1)", result: 1}
  - {expression: "5 / 3", result: 1}
  - {expression: "1 = 1", result: false}
  - {expression: "time BETWEEN", result: false}
"""


def test_a_suite_of_cloudevents_is_decided_case_by_case(tmp_path):
    (tmp_path / "some.yaml").write_text(CASES)
    verdicts = [one.verdict for one in cesql(tmp_path)]
    assert verdicts[:7] == [RIGHT, RIGHT, RIGHT, RIGHT, RIGHT, REFUSED, DIFFERS]
    assert verdicts[7] == "True, not False"
    assert "something is missing here" in verdicts[8]
