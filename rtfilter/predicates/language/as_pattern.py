"""Event patterns from predicates: `pattern.py`, in the same folder, reads the patterns as equal predicates.

A mapping has each attribute once, with a list of alternatives. So a filter with several constraints of one
attribute continues in a ``"$or"`` of one pattern, unless ``numeric`` holds them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import Constant, Timestamp
from rtfilter.predicates.model.combine import MAX_DEPTH
from rtfilter.predicates.model.constraints import NEGATED, Constraint, Filter, Quantified, Test, is_negated
from rtfilter.predicates.operands.distances import Distance
from rtfilter.predicates.operands.intervals import Now
from rtfilter.predicates.operands.like import escaped, start, with_stars
from rtfilter.predicates.operands.text_operators import TEXT_OPERATORS

_ORDERS: Final = frozenset(("<", "<=", ">", ">="))
_CASELESS: Final = "equals-ignore-case"


def as_pattern(filters: Sequence[Filter]) -> dict[str, Any]:
    """Return the event pattern of a disjunction of filters.

    Raises
    ------
    PredicateError
        A constraint has no form in patterns, or the pattern would be nested too deeply; the message names it.
    """
    if len(filters) == 1:
        return _conjunction(filters[0].constraints, 1)
    return {"$or": [_conjunction(one.constraints, 2) for one in filters]}


def _conjunction(tests: Sequence[Test], depth: int) -> dict[str, Any]:
    if not tests:
        raise PredicateError("TRUE has no form as an event pattern; use to_sql, or Predicate.everything()")
    found: dict[str, Any] = {}
    last = None  # the attribute whose `numeric` may continue
    for at, test in enumerate(tests):
        numeric = isinstance(test, Constraint) and _is_numeric(test)
        name, entry = _entry(test)
        if numeric and name == last:
            found[name][0]["numeric"] += entry[0]["numeric"]
            continue
        if name in found:
            if depth == MAX_DEPTH:
                raise _without_form(test, f"patterns nest no deeper than {MAX_DEPTH} levels")
            found["$or"] = [_conjunction(tests[at:], depth + 1)]
            break
        found[name] = entry
        last = name if numeric else None
    return found


def _entry(test: Test) -> tuple[str, Any]:
    """Return the key and the value of a constraint in a pattern."""
    if isinstance(test, Constraint):
        return test.attribute, _alternatives(test)
    if isinstance(test, Quantified):
        return test.attribute, _quantified(test)
    left, operator, right, _ = test
    if operator == "<>" and isinstance(left, str) and isinstance(right, Now):
        raise _without_form(test, "patterns can only exclude constants")
    if isinstance(left, str) and isinstance(right, Now):
        return left, [{"numeric": [operator, {"now": right.duration()}]}]
    if operator != "<>" and isinstance(left, Distance) and isinstance(right, int | float):
        latitude, longitude, *point = left
        told = {"latitude": latitude, "longitude": longitude, "from": point, "km": [operator, right]}
        return "$distance", told
    raise _without_form(test, "patterns have no arithmetic, and compare no attributes")


def _is_numeric(test: Constraint) -> bool:
    return test.operator in _ORDERS and not isinstance(test.value, str)


def _quantified(test: Quantified) -> list[Any]:
    """Return the list with one matcher that holds the alternatives for elements."""
    word, tests = test
    if word == "all" and len(tests) == 1 and is_negated(tests[0].operator):
        name, operator, value = tests[0]
        word, tests = "none", (Constraint(name, NEGATED[operator], value),)
    if word == "any" and len(tests) > 1:
        if not all(map(_is_numeric, tests)):
            raise _without_form(test, "in patterns an element has one matcher")
        return [{word: [{"numeric": [part for one in tests for part in (one.operator, _plain(one.value))]}]}]
    found: list[Any] = []
    for one in tests:
        alone = one.operator != "=" or len(tests) == 1  # beside others, a constant would be read as a set
        found += _alternatives(one) if alone else [{"exactly": _plain(one.value)}]
    return [{word: found}]


def _alternatives(test: Constraint) -> list[Any]:
    """Return the list of alternatives for a constraint."""
    _, operator, value = test
    if _is_numeric(test):
        return [{"numeric": [operator, _plain(value)]}]
    if operator == "=":
        return [_plain(value)]
    if operator == "in":  # a single constant would be read as =
        constants = [_plain(one) for one in sorted(value)]
        return constants * 2 if len(constants) == 1 else constants
    if operator == "not in" and value:
        return [{"anything-but": [_plain(one) for one in sorted(value)]}]
    if operator == "<>":
        return [{"anything-but": _plain(value)}]
    if operator in ("exists", "is null"):
        return [{"exists": operator == "exists"}]
    matcher = _matcher(test, operator.removeprefix("not "))
    return [{"anything-but": matcher} if operator.startswith("not ") else matcher]


def _matcher(test: Constraint, operator: str) -> dict[str, Any]:
    """Return the matcher of text for a constraint; for a negated one, the matcher of its complement."""
    pattern = test.value
    if operator == "prefix":
        return {"prefix": pattern}
    own = TEXT_OPERATORS.get(operator)
    if own is not None and own.matcher is not None:
        return {own.matcher: pattern}
    if operator == "like":
        stars = with_stars(pattern)
        if stars is None:
            raise _without_form(test, "wildcards of patterns have no _, which stands for one character")
        return {"wildcard": stars}
    if operator == "like ignore case" and test.operator == operator:
        text = start(pattern)
        if pattern == escaped(text) + "%":
            return {"prefix": {_CASELESS: text}}
        text = start(pattern.removeprefix("%"))
        if pattern == "%" + escaped(text):
            return {"suffix": {_CASELESS: text}}
        raise _without_form(test, "in patterns only a beginning or an end is compared without case")
    reason = "in patterns this operator has no complement"
    raise _without_form(test, reason if test.operator.startswith("not ") else "patterns do not order text")


def _plain(value: Constant) -> Any:
    """Return a constant in the form of JSON."""
    return str(value) if isinstance(value, Timestamp) else value


def _without_form(test: Test, why: str) -> PredicateError:
    return PredicateError(
        f"{test} has no form as an event pattern: {why}; use to_sql",
        attribute=test.attributes[0],
        reason=f"has no form as an event pattern: {why}",
    )
