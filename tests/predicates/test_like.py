"""Patterns of text: what they fit, that it is one scan, and what is said of a value that does not fit."""

from itertools import chain, groupby

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cases import cases
from predicate_cases import like, regular
from rtfilter.basics.errors import PredicateError
from rtfilter.predicates.operands.like import (
    MAX_PARTS,
    canonical_like,
    escaped,
    is_like,
    simplest,
    start,
    why_unlike,
)

TOKENS = st.lists(st.sampled_from(["a", "b", "ab", "é", "%", "_", "\\%", "\\_", "\\\\"]), max_size=8)
PATTERNS = TOKENS.map("".join)
VALUES = st.text("abé%_\\\n", max_size=10)


@pytest.mark.slow
@given(PATTERNS, VALUES)
@settings(max_examples=500)
@example("a%a_a%a", "aaaaa")
@example("%ab_b%", "abaabbb")
def test_a_value_fits_as_by_a_regular_expression(pattern, value):
    canonical = canonical_like(pattern)
    fits = regular(pattern).fullmatch(value) is not None
    assert is_like(value, canonical) == fits
    assert regular(canonical).fullmatch(value) is not None or not fits
    assert canonical_like(canonical) == canonical
    assert not fits or value.startswith(start(canonical))
    assert (not why_unlike(value, canonical).phrase) is fits
    operator, text = simplest(canonical)
    same = {"=": str.__eq__, "prefix": str.startswith, "like": is_like}
    assert same[operator](value, text) == fits


@given(TOKENS)
def test_patterns_that_fit_the_same_values_have_one_form(tokens):
    wild = [sorted(run) if kind else list(run) for kind, run in groupby(tokens, "%_".__contains__)]
    assert canonical_like("".join(chain(*wild))) == canonical_like("".join(tokens))


@given(VALUES)
def test_escaped_text_fits_itself_alone(value):
    assert escaped(value) == like(value)
    assert simplest(canonical_like(escaped(value))) == ("=", value)


def test_another_escape_character():
    assert canonical_like("a!%!!\\_", "!") == "a\\%!\\\\_"
    assert canonical_like("50=%", "=") == "50\\%"
    with pytest.raises(PredicateError, match="in LIKE, ! must be followed by %, _ or !"):
        canonical_like("a!b", "!")


def test_one_character_is_one_code_point():
    assert is_like("a\U0001f600c", "a_c")
    assert not is_like("ae\u0301c", "a_c")


class Counting(str):
    """Text that counts how often it is looked at."""

    looks = 0

    def find(self, *arguments):
        Counting.looks += 1
        return super().find(*arguments)

    def startswith(self, *arguments):
        Counting.looks += 1
        return super().startswith(*arguments)


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("%a" * 500 + "%b%", 502),
        ("%" + "a_" * MAX_PARTS + "%", 3000 * (MAX_PARTS + 1)),
        ("%" + "_" * 500 + "b%", 3),
    ],
)
def test_a_match_is_one_scan(pattern, most):
    """To try each place for each % anew would take 3000**500 looks."""
    Counting.looks = 0
    assert is_like(Counting("a" * 3000), pattern) is ("b" not in pattern)
    assert Counting.looks <= most


def test_texts_between_underscores_are_limited():
    assert canonical_like("a_" * MAX_PARTS)
    assert canonical_like(("a_" * MAX_PARTS + "%") * 3)
    with pytest.raises(PredicateError, match=f"at most {MAX_PARTS} texts between _ without a %"):
        canonical_like("a_" * MAX_PARTS + "a")


@cases(
    ("value", "pattern", "phrase"),
    [
        ("ab", "abc%_", (2, "does not begin like 'abc_': lacks 'c' after character 2")),
        ("xbcd", "abc%", (0, "does not begin like 'abc': character 1 is 'x', not 'a'")),
        ("abcd", "abc", (3, "goes on after character 3, with 'd'")),
        ("abcd", "%e_", (0, "does not end like 'e_': character 3 is 'c', not 'e'")),
        ("abxd", "a%c%d", (1, "lacks 'c' after character 1 and before character 4")),
        ("acbd", "%b_%c%", (4, "lacks 'c' after character 4")),
    ],
)
def test_what_a_value_lacks(value, pattern, phrase):
    reason = why_unlike(value, canonical_like(pattern))
    assert (reason.agrees, reason.phrase) == phrase
