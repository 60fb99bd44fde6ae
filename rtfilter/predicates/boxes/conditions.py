"""The constraints that `rtfilter.subscriptions.checks` compiles to conditions; Python verifies others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtfilter.events.encoding import EXACT
from rtfilter.predicates.model.constraints import SETS, Constraint, Test

MOST: Final = 64
"""Most conditions that one predicate is compiled to."""
LESS, EQUAL, GREATER = 1, 2, 4
ORDERS: Final = {
    "<": LESS, "<=": LESS | EQUAL, "=": EQUAL, "<>": EQUAL, ">=": GREATER | EQUAL, ">": GREATER,
    "in": EQUAL, "not in": EQUAL, "ignore case": EQUAL, "not ignore case": EQUAL,
}  # fmt: skip
"""The results of a comparison of texts that an operator, or its opposite, accepts."""
PATTERNS: Final = frozenset(
    negation + operator for operator in ("prefix", "like", "like ignore case") for negation in ("", "not ")
)


def count_conditions(test: Test, families: Mapping[str, str]) -> int:
    """Return the number of conditions that a constraint is compiled to; 0 if only Python verifies it.

    `families` has `Attribute.family` by name.
    """
    if not isinstance(test, Constraint):
        return 0
    name, operator, value = test
    if operator in ("exists", "is null"):
        return 1
    constants = value if operator in SETS else (value,)
    if families[name] == "str":
        usable = operator in ORDERS or operator in PATTERNS
    else:
        usable = all(abs(one) < EXACT for one in constants)
    return len(constants) if usable else 0
