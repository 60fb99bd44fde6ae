"""Letters that differ in case only: what folds, and how texts can begin."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import cases
from rtfilter.predicates.operands.text_comparison import MOST_STARTS, fold, starts

EVERY = [chr(code) for code in range(sys.maxunicode + 1)]


def test_every_character_that_folds_into_ascii_is_known():
    """`starts` goes no further than it knows all the characters that can stand there."""
    for char in EVERY:
        folded = fold(char)
        if folded[0].isascii():
            assert char in starts(folded, 1), hex(ord(char))


@pytest.mark.slow
def test_to_fold_twice_changes_nothing_and_makes_no_wildcard():
    for char in EVERY:
        folded = fold(char)
        assert fold(folded) == folded
        assert folded == char or not set(folded) & set("%_\\")


@cases(
    ("one", "two"),
    [
        ("STRASSE", "straße"),
        ("ΜΆΪΟΣ", "μάϊος"),
        ("Ⱥ", "ⱥ"),
        ("\u212a", "k"),
        ("\U00010c80", "\U00010cc0"),
        ("ǅ", "ǆ"),
    ],
)
def test_equal_but_for_case(one, two):
    assert fold(one) == fold(two)


def test_neither_accents_nor_forms_are_folded():
    assert len({fold(text) for text in ("é", "e", "e\u0301", "\u0131", "i")}) == 5


@given(st.text("abcKkSsß\ufb00f\u0130\u212ai1-é", max_size=8), st.integers(1, 6))
def test_texts_begin_as_told(text, enough):
    found = starts(fold(text), enough)
    assert 1 <= len(found) <= MOST_STARTS
    assert len(set(found)) == len(found)
    assert any(text.startswith(start) for start in found)
    cut = fold(text)[: len(text) // 2]
    assert any(text.startswith(start) for start in starts(cut, enough))


def test_starts_tell_letters_apart():
    assert sorted(starts("ab", 6)) == ["AB", "Ab", "aB", "ab"]
    assert starts("10.0", 3) == ["10."]
    assert starts("", 6) == [""]
    assert starts("éa", 6) == [""]
