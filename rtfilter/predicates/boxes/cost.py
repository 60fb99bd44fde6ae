"""The cost of a predicate as a subscription, known before it is added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rtfilter.basics.text import numbered
from rtfilter.events.encoding import EXACT
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes.compiling import compile_predicate, unbounded
from rtfilter.predicates.model.constraints import SETS, Constraint, Filter, Test
from rtfilter.predicates.model.disjunction import Disjunction

MOST: Final = 64
"""Most conditions to which `rtfilter.subscriptions.checks` compiles one predicate; Python verifies others."""
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


class Cost(NamedTuple):
    """The cost of a subscription to a predicate."""

    boxes: int
    """Boxes in the index; 0 for a predicate that no event satisfies, such as ``price < 3 AND price > 5``."""
    checked: bool
    """True if the index finds candidates for it that must be verified."""
    unbounded: bool
    """True if no constraint bounds it: nearly every event must be verified.

    A filter limits such subscriptions.
    """
    compiled: tuple[str, ...] = ()
    """Constraints that boxes do not decide, verified by compiled code: tens of nanoseconds a candidate."""
    python: tuple[str, ...] = ()
    """Constraints that boxes do not decide, verified by Python: microseconds a candidate."""

    def __str__(self) -> str:
        """Return the cost as a phrase."""
        if self.unbounded:
            parts = ["no bound: nearly every event is a candidate"]
        else:
            parts = [numbered(self.boxes, "box")]
        for who, constraints in (("compiled code", self.compiled), ("Python", self.python)):
            if constraints:
                parts.append(f"{who} verifies {' and '.join(constraints)}")
        if self.checked and not (self.compiled or self.python):
            parts.append("candidates are verified")
        return "; ".join(parts)


def cost_of(predicate: Disjunction, schema: Schema) -> Cost:
    """Return the cost of a predicate that was checked against a schema; see `Predicate.cost`."""
    boxes = compile_predicate(predicate, schema)
    found = len(boxes.exact), not boxes.exact.all(), bool(unbounded(boxes, schema).any())
    if not found[1]:
        return Cost(*found)
    tests = dict.fromkeys(test for own in predicate.filters for test in own.constraints)
    families = {name: attribute.family for name, attribute in schema.attributes.items()}
    counts = {test: count_conditions(test, families) for test in tests}
    few = sum(max(counts[test], 1) for own in predicate.filters for test in own.constraints) <= MOST
    alone = {test: compile_predicate(Disjunction((Filter((test,)),)), schema).exact for test in tests}
    dear = [test for test in tests if not alone[test].all()]
    compiled = [test for test in dear if counts[test] and few]
    return Cost(
        *found,
        tuple(str(test) for test in compiled),
        tuple(str(test) for test in dear if test not in compiled),
    )
