"""Disjunctions of filters put together, and what one predicate may cost."""

import pytest

from rtfilter.basics.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.model.combine import MAX_FILTERS, all_of, any_of
from rtfilter.predicates.model.constraints import MAX_TERMS, Constraint, Filter
from rtfilter.predicates.predicate import parse


def test_duplicates_are_dropped():
    """A repeated constraint counts once, and so does a repeated filter."""
    parsed = parse("(severity > 5 AND severity > 5) OR severity > 5", Schema({"severity": int}))
    assert parsed == parse("severity > 5", Schema({"severity": int}))


def parts_of(*sizes):
    return [tuple(Filter((Constraint(f"a{i}", "=", j),)) for j in range(n)) for i, n in enumerate(sizes)]


def test_number_of_filters_is_bounded_before_they_are_made():
    assert len(all_of(parts_of(16, 16))) == MAX_FILTERS
    with pytest.raises(PredicateError, match=f"272 alternatives .* more than {MAX_FILTERS}"):
        all_of(parts_of(16, 17))
    with pytest.raises(PredicateError, match=r"more than 10\*\*9"):
        all_of(parts_of(*[2] * 1000))
    with pytest.raises(PredicateError, match="257 alternatives"):
        any_of(parts_of(1, MAX_FILTERS))


def test_number_of_constants_is_bounded():
    large = (Filter((Constraint("x", "in", range(MAX_TERMS // 2 - 1)),)),)
    assert len(all_of([large, *parts_of(2)])) == 2
    with pytest.raises(PredicateError, match=f"constants, more than {MAX_TERMS}"):
        all_of([large, *parts_of(3)])
    with pytest.raises(PredicateError, match=f"at most {MAX_TERMS}"):
        Constraint("x", "in", range(MAX_TERMS + 1))


def test_false_in_a_conjunction_is_false_however_large_the_rest():
    assert all_of([*parts_of(*[2] * 100), ()]) == ()
