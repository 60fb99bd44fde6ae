"""Operators of strings whose constant has a canonical form, with all that other rooms need of each.

A new operator of this kind is a row of `TEXT_OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rtfilter.basics.text import shown
from rtfilter.predicates.operands.like import canonical_like, is_like, sample, simplest, start, why_unlike
from rtfilter.predicates.operands.networks import (
    canonical_network,
    is_in_network,
    network_starts,
    why_outside,
)
from rtfilter.predicates.operands.text_comparison import Reason, fold, why_unequal
from rtfilter.predicates.operands.text_comparison import starts as caseless_starts


class Function(NamedTuple):
    """The notation ``NAME(attribute, 'constant')`` in SQL conditions."""

    name: str
    takes: str
    """The kind of its constant, as messages name it."""
    example: str
    """A constant."""


class TextOperator(NamedTuple):
    """An operator of strings, which has a complement: ``not`` before its name."""

    canonical: Callable[[str], tuple[str, str]]
    """Takes a constant; returns the simplest operator that means the same, and the canonical constant.

    Raises `PredicateError` for an unusable constant.
    """
    accepts: Callable[[str, str], bool]
    """Takes a value and a canonical constant; returns whether the value satisfies the operator."""
    starts: Callable[[str, int], list[str]]
    """Takes a canonical constant and a length; returns the possible beginnings of values that satisfy it.

    Beginnings need not be longer than this. An empty one means that nothing is known.
    """
    example: Callable[[str], str]
    """Takes a canonical constant; returns a value that satisfies the operator."""
    why_not: Callable[[str, str], Reason]
    """Takes a value and a canonical constant; returns the reason why the value does not satisfy it."""
    excluded: str
    """The reason why a value does not satisfy the complement, with {} for the constant."""
    written: str
    """The SQL condition, with {} for the attribute and for the constant."""
    unwritten: str
    """The SQL condition of the complement."""
    function: Function | None = None
    """The function that SQL conditions have for it, if they have one."""
    matcher: str | None = None
    """The matcher of event patterns that has the same constant, if there is one."""


def _like(pattern: str) -> tuple[str, str]:
    return simplest(canonical_like(pattern))


def _like_ignoring_case(pattern: str) -> tuple[str, str]:
    folded = fold(canonical_like(pattern))
    operator, text = simplest(folded)
    return ("ignore case", text) if operator == "=" else ("like ignore case", folded)


def _ignoring_case(why: Callable[[str, str], Reason]) -> Callable[[str, str], Reason]:
    def compare(found: str, constant: str) -> Reason:
        folded = fold(found)
        inner = why(folded, constant)
        if folded == found:
            return inner
        return inner._replace(phrase=f"{shown(folded)} but for case: {inner.phrase}")

    return compare


TEXT_OPERATORS: Final[dict[str, TextOperator]] = {
    "like": TextOperator(
        canonical=_like,
        accepts=is_like,
        starts=lambda pattern, enough: [start(pattern)],
        example=sample,
        why_not=why_unlike,
        excluded="fits {}",
        written="{} LIKE {}",
        unwritten="{} NOT LIKE {}",
    ),
    "ignore case": TextOperator(
        canonical=lambda text: ("ignore case", fold(text)),
        accepts=lambda value, folded: fold(value) == folded,
        starts=caseless_starts,
        example=lambda folded: folded,
        why_not=_ignoring_case(why_unequal),
        excluded="equal to {} but for case",
        written="LOWER({}) = {}",
        unwritten="LOWER({}) <> {}",
        matcher="equals-ignore-case",
    ),
    "like ignore case": TextOperator(
        canonical=_like_ignoring_case,
        accepts=lambda value, pattern: is_like(fold(value), pattern),
        starts=lambda pattern, enough: caseless_starts(start(pattern), enough),
        example=sample,
        why_not=_ignoring_case(why_unlike),
        excluded="fits {} but for case",
        written="LOWER({}) LIKE {}",
        unwritten="LOWER({}) NOT LIKE {}",
    ),
    "cidr": TextOperator(
        canonical=lambda text: ("cidr", canonical_network(text)),
        accepts=is_in_network,
        starts=network_starts,
        example=lambda network: network.partition("/")[0],
        why_not=why_outside,
        excluded="in the network {}",
        written="CIDR({}, {})",
        unwritten="NOT CIDR({}, {})",
        function=Function("CIDR", "a network", "10.0.0.0/8"),
        matcher="cidr",
    ),
}

FUNCTIONS: Final = {own.function.name: name for name, own in TEXT_OPERATORS.items() if own.function}
"""The operator of each function of SQL conditions."""
MATCHERS: Final = {own.matcher: name for name, own in TEXT_OPERATORS.items() if own.matcher}
"""The operator of each matcher of event patterns that has the same constant."""
