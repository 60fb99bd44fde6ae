"""Reasons why a value fails a constraint, and remedies: values with which an event would satisfy it.

Each remedy is tested on the constraint. For numbers and timestamps it is the nearest value; for text it is
some acceptable value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf, nextafter
from typing import Any, Final

from rtfilter.basics.text import plain, shown
from rtfilter.events.encoding import EXACT, HIGHEST, READERS, Timestamp
from rtfilter.events.fields import PHRASES
from rtfilter.events.moments import why_no_moment
from rtfilter.predicates.model.comparison import FAMILIES, Comparison
from rtfilter.predicates.model.constraints import FAMILY_OF, SETS, Constraint, Quantified, Test
from rtfilter.predicates.operands.expressions import (
    Distance,
    Number,
    Operand,
    Operation,
    calculate,
    evaluate,
    names,
)
from rtfilter.predicates.operands.text_comparison import Reason, difference, why_unequal
from rtfilter.predicates.operands.text_operators import TEXT_OPERATORS

MICROSECONDS: Final = 1_000_000
WORDS: Final = {
    "<": "below",
    "<=": "at most",
    ">": "above",
    ">=": "at least",
    "=": "equal to",
    "<>": "different from",
}
"""The words for the relation that a value lacks; used if there is no distance."""


def reason(constraint: Constraint, value: object) -> Reason:
    """Return the reason why a constraint does not accept a value, which is not missing."""
    _, operator, constant = constraint
    if operator == "is null":
        return Reason("must be missing")
    kind = constraint.sample
    if kind is None:
        return Reason("no value is in an empty set")
    found = READERS[type(kind)](value)
    if found is None:
        why = f"; {why_no_moment(value)}" if type(kind) is Timestamp and isinstance(value, str) else ""
        return Reason(f"of another type: not {PHRASES[FAMILY_OF[type(kind)]]}{why}")
    if operator in ("<>", "not in"):
        return Reason("excluded")
    if isinstance(kind, str):
        return _TEXT[operator](found, constant)
    if isinstance(kind, bool):
        return Reason(f"not {not found}")
    return _ordinal(operator, found, constant, isinstance(kind, Timestamp))


def by_how_much(distance: float, high: bool, unit: str) -> str:
    """Return a distance that is not 0 as a phrase."""
    return f"too {'high' if high else 'low'} by {plain(distance, 6)}{' ' * bool(unit)}{unit}"


def apart(left: float, right: float, timestamps: bool = False) -> float:
    """Return the distance of two values, in seconds for timestamps; infinite beyond float64."""
    left, right = (int(one) if type(one) is float and one.is_integer() else one for one in (left, right))
    try:
        distance = abs(left - right) if left != right else 0  # two infinite ones have no difference
        return float(distance / MICROSECONDS if timestamps else distance)
    except OverflowError:
        return inf


def _ordinal(operator: str, found: Any, constant: Any, timestamps: bool) -> Reason:
    wanted = min(constant, key=lambda one: (apart(found, one), one)) if operator in SETS else constant
    distance = apart(found, wanted, timestamps)
    # A distance of 0 means an open end, or less than float64 can show.
    if distance == 0:
        return Reason(f"not {WORDS.get(operator, 'equal to')} {shown(wanted)}", 0.0)
    phrase = by_how_much(distance, found > wanted, "s" if timestamps else "")
    if operator in SETS and len(constant) > 1:
        phrase += f" for {shown(wanted)}, the nearest"
    return Reason(phrase, distance)


def _among(found: str, constants: frozenset[str]) -> Reason:
    if len(constants) == 1:
        return why_unequal(found, next(iter(constants)))
    nearest = nearest_text(found, constants)
    agrees = difference(found, nearest).place
    near = f"; {shown(nearest)} agrees up to character {agrees}" if agrees else ""
    return Reason(f"none of {len(constants)} texts{near}", None, agrees)


def nearest_text(found: str, constants: frozenset[str]) -> str:
    """Return the constant that agrees longest with a value; the first one of several."""
    return max(sorted(constants), key=lambda one: difference(found, one).place)


def _ordered(operator: str) -> Callable[[str, str], Reason]:
    def compare(found: str, constant: str) -> Reason:
        phrase = f"not {WORDS[operator]} {shown(constant)}"
        if found == constant:
            return Reason(phrase, None, len(found))
        differs = difference(found, constant)
        return Reason(f"{phrase}: {differs}", None, differs.place)

    return compare


def _excluded(phrase: str) -> Callable[[str, str], Reason]:
    return lambda found, constant: Reason(phrase.format(shown(constant)))


_TEXT: Final[dict[str, Callable[[Any, Any], Reason]]] = {
    "=": why_unequal,
    "in": _among,
    **{operator: _ordered(operator) for operator in ("<", "<=", ">", ">=")},
    "prefix": why_unequal,
    "not prefix": _excluded("begins with {}"),
    **{name: own.why_not for name, own in TEXT_OPERATORS.items()},
    **{f"not {name}": _excluded(own.excluded) for name, own in TEXT_OPERATORS.items()},
}
"""The function that explains a string, for each operator with a constant except ``<>`` and ``not in``."""


# -- remedies ----------------------------------------------------------------------------------------------

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
    kind = constraint.sample
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
