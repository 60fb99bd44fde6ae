"""Values with which an event would satisfy a constraint, near to its own values if easy to find.

Each remedy is tested on the constraint. For numbers and timestamps it is the nearest value; for text it is
some acceptable value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, nextafter
from typing import Any, Final

from rtfilter.events.encoding import EXACT, HIGHEST, READERS, Timestamp
from rtfilter.predicates.explanations.reasons import apart, nearest_text, sample
from rtfilter.predicates.model.comparison import FAMILIES, Comparison
from rtfilter.predicates.model.constraints import Constraint, Quantified, Test
from rtfilter.predicates.operands.distances import Distance
from rtfilter.predicates.operands.expressions import Number, Operand, Operation, calculate, evaluate, names
from rtfilter.predicates.operands.text_operators import TEXT_OPERATORS

Values = Mapping[str, object]

_BLANK: Final[dict[str, object]] = {"number": 1, "timestamp": Timestamp(0), "str": "a", "bool": False}
"""The values for a missing attribute of a comparison until a better one is found."""
_UNDONE: Final = {"+": "-", "-": "+", "*": "/", "/": "*"}


def remedy_of(test: Test, event: Values) -> dict[str, object]:
    """Return attributes and values that make a constraint hold, as few as are easy to find.

    None means a missing value. The result is empty if none are found, and if any value of an attribute does.
    """
    if isinstance(test, Quantified):
        remedies = (remedy_of(own, event) for own in test.tests)
        return next((one for one in remedies if test.matches(one)), {})
    if isinstance(test, Constraint):
        if test.operator == "is null":
            return {test.attribute: None}
        candidates = _candidates(test, event.get(test.attribute))
        return next(({test.attribute: one} for one in candidates if test.accepts(one)), {})
    read = FAMILIES[test.family]
    blanks = {name: _BLANK[test.family] for name in test.attributes if read(event.get(name)) is None}
    changes = ({**blanks, **changed} for changed in _changes(test, {**event, **blanks}))
    return next((one for one in changes if test.matches({**event, **one})), {})


def _candidates(constraint: Constraint, value: object) -> Iterator[Any]:
    _, operator, constant = constraint
    kind = sample(constraint)
    if kind is None:
        return
    found = READERS[type(kind)](value)
    if isinstance(kind, str):
        yield from _texts(operator, constant, found if isinstance(found, str) else "")
    elif isinstance(kind, bool):
        yield from (False, True)
    elif operator == "in":
        yield min(constant, key=lambda one: (0 if found is None else apart(found, one), one))  # type: ignore[arg-type]
    elif operator == "not in":
        for side in (1, -1):
            step: Any = kind if found is None else found
            for _ in range(len(constant)):
                step = _beside(step, kind, value, side) if step in constant else step
            yield Timestamp(step) if isinstance(kind, Timestamp) else step
    else:
        if operator in ("=", "<=", ">="):
            yield constant
        for side in (-1,) if operator == "<" else (1, -1):
            yield _beside(constant, constant, value, side)


def _beside(at: Any, constant: Any, value: object, side: int) -> Any:
    """Return the next number or timestamp on one side; a whole number for a whole value and constant."""
    if isinstance(constant, Timestamp):
        return Timestamp(at + side)
    if (type(at) is int and type(value) is not float) or abs(at) >= EXACT:
        return int(at) + side if abs(int(at) + side) <= HIGHEST else at
    return nextafter(float(at), side * inf)


def _texts(operator: str, constant: Any, found: str) -> Iterator[str]:
    if operator == "in":
        yield nearest_text(found, constant)
    elif operator in TEXT_OPERATORS:
        yield TEXT_OPERATORS[operator].example(constant)
    elif operator == "<":
        yield constant[:-1]
    elif operator == ">":
        yield f"{constant}_"
    elif operator in ("<>", "not in") or operator.startswith("not "):
        longest = max(map(len, constant), default=0) if operator == "not in" else len(constant)
        yield f"{found}_"
        yield "_" * (longest + 1)
        yield ""
    else:
        yield constant


def _changes(comparison: Comparison, row: Values) -> Iterator[dict[str, object]]:
    """Yield changes of one attribute of a row that has values of all attributes."""
    yield {}
    left, _, right, family = comparison
    if family == "number":
        yield from _solutions(comparison, row)
    elif family == "bool":
        yield {str(left): not FAMILIES[family](row[str(left)])}
    elif family == "timestamp":
        at = comparison.sides(row)[1]
        for step in (0, -1, 1):
            yield {str(left): Timestamp(at + step)}
    else:
        text = FAMILIES[family](row[str(right)])
        for one in (text, f"{text}_", text[:-1]):
            yield {str(left): one}
        yield {str(left): "", str(right): "_"}


def _solutions(comparison: Comparison, row: Values) -> Iterator[dict[str, object]]:
    left, _, right, _ = comparison
    if isinstance(left, Distance):
        yield {left.latitude: left.north, left.longitude: left.east}
        yield {left.latitude: -left.north, left.longitude: (left.east % 360) - 180}
    every = [*names(left), *names(right)]
    for name in comparison.attributes:
        if every.count(name) > 1:
            continue
        inside, other = (left, right) if name in names(left) else (right, left)
        target = evaluate(other, row)
        if target is None:
            continue
        for wanted in _near(target):
            solved = _solved(inside, name, wanted, row)
            if solved is not None and abs(solved) <= HIGHEST:
                yield {name: solved}


def _near(target: Number) -> Iterator[Number]:
    """Yield a number, and then others around it at growing distances."""
    yield target
    whole = isinstance(target, int)
    for step in range(18):
        for side in (-1, 1):
            if whole and step < 3:
                yield target + side * 2**step
            elif abs(target) < HIGHEST:
                yield target + side * max(abs(float(target)), 1e-300) * 10.0 ** (step - 16)


def _solved(given: Operand, name: str, target: Number, row: Values) -> Number | None:
    """Return the value of an attribute, which occurs once, for which an operand is nearly `target`."""
    wanted: Number | None = target
    while isinstance(given, Operation) and wanted is not None:
        operator, left, right = given
        first = name in names(left)
        given, constant = (left, right) if first else (right, left)
        known = evaluate(constant, row)
        if known is None:
            return None
        if first or operator in ("+", "*"):
            wanted = calculate(_UNDONE[operator], wanted, known)
        else:  # known - x, known / x
            wanted = calculate(operator, known, wanted)
    return wanted
