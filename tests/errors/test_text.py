"""What messages show of values and names."""

import pytest

from cases import cases
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.basics.text import listed, numbered, plain, shown
from rtfilter.events.schema import Attribute, Schema
from rtfilter.predicates.explanations.explanation import explain
from rtfilter.predicates.predicate import parse
from rtfilter.replay.output import table

HUGE = 10**5000  # Python refuses to write it out
DEEP: list = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        ("a" * 58, "'" + "a" * 58 + "'"),
        ("a" * 59, "'" + "a" * 56 + "..."),
        ("a" * 10**6, "'" + "a" * 56 + "..."),
        ([1] * 100, "[" + "1, " * 18 + "1,..."),
        (10**40, "1" + "0" * 40),
        (-HUGE, "<more than 40 digits>"),
        ([HUGE], "<list>"),
        ({"a": HUGE}, "<dict>"),
        (DEEP, "<list>"),
        (True, "True"),
    ],
    ids=lambda value: type(value).__name__,  # the values themselves would be written out
)
def test_values_are_cut(value, text):
    assert shown(value) == text
    assert len(text) <= 60


@cases(
    ("value", "digits", "text"),
    [
        (3350.0, 2, "3350"),
        (3349.6, 3, "3350"),
        (999.7, 3, "1000"),
        (1234567.0, 3, "1234567"),
        (12.345, 3, "12.3"),
        (2.0, 3, "2"),
        (100.0, 3, "100"),
        (0.5, 3, "0.5"),
        (0.0000123, 3, "0.0000123"),
        (-0.25, 1, "-0.2"),
        (0.0, 3, "0"),
        (float("inf"), 3, "inf"),
        (1e20, 3, "100000000000000000000"),
        (1e300, 3, "1e+300"),
    ],
)
def test_numbers_are_written_without_exponents(value, digits, text):
    assert plain(value, digits) == text


def test_no_cell_of_a_table_has_an_exponent():
    values = [digit * 10.0**power for digit in (1, 3.35, -9.996) for power in range(-6, 14)]
    text = table([{"x": value} for value in values], {"x": "number"})
    assert "e" not in text.replace("number", "")
    assert "3,350,000" in text


def test_one_is_no_plural():
    told = [numbered(count, noun) for count in (0, 1, 2000) for noun in ("match", "event")]
    assert told == ["0 matches", "0 events", "1 match", "1 event", "2,000 matches", "2,000 events"]


def test_messages_tell_numbers_in_full():
    schema = Schema({"x": Attribute(int, 0, 16_777_216)})
    with pytest.raises(EventError, match=r"outside its domain \[0, 16777216\]"):
        schema.read([{"x": -1}])
    assert "too high by 1234567" in str(explain(parse("x < 1", schema), {"x": 1_234_568}))


def test_lists_of_names_are_cut():
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(tuple("abcdefgh")) == "a, b, c, d, e, f, g, h"
    assert listed(tuple("abcdefghi")) == "a, b, c, d, e, f, g, h, ..."


def test_huge_integers_are_told_wherever_values_are_shown():
    schema = Schema({"x": int, "s": str})
    for pattern in ({"x": HUGE}, {"x": [HUGE]}, {"s": [HUGE]}, {"s": [{"prefix": [HUGE]}]}, {HUGE: []}):
        with pytest.raises(PredicateError, match=r"<more than 40 digits>|<list>"):
            parse(pattern, schema)
    assert "<more than 40 digits>" in str(explain(parse("s = 'a'", schema), {"s": HUGE}))
