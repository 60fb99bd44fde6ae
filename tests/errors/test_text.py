"""What messages show of values and names."""

import pytest

from rtfilter.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.explain import explain
from rtfilter.predicates.parse import parse
from rtfilter.text import listed, shown

HUGE = 10**5000  # Python refuses to write it out


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
        (True, "True"),
    ],
    ids=lambda value: type(value).__name__,  # the values themselves would be written out
)
def test_values_are_cut(value, text):
    assert shown(value) == text
    assert len(text) <= 60


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
