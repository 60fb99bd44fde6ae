"""Reasons why a value does not satisfy a constraint, with a distance and as a phrase."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from rtfilter.events.encoding import READERS, Timestamp
from rtfilter.events.fields import PHRASES
from rtfilter.events.moments import why_no_moment
from rtfilter.predicates.model.constraints import SETS, Constraint
from rtfilter.predicates.operands.differences import Reason, difference, why_unequal
from rtfilter.predicates.operands.text_operators import TEXT_OPERATORS
from rtfilter.text import plain, shown

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
FAMILY: Final = {bool: "bool", int: "number", float: "number", str: "str", Timestamp: "timestamp"}
"""The family of attributes that a canonical constant is compared with, by its type."""


def sample(constraint: Constraint) -> Any:
    """Return the constant, or one of a set; its type is that of the values compared.

    None if there is none.
    """
    value = constraint.value
    return next(iter(value), None) if isinstance(value, frozenset) else value


def reason(constraint: Constraint, value: object) -> Reason:
    """Return the reason why a constraint does not accept a value, which is not missing."""
    _, operator, constant = constraint
    if operator == "is null":
        return Reason("must be missing")
    kind = sample(constraint)
    if kind is None:
        return Reason("no value is in an empty set")
    found = READERS[type(kind)](value)
    if found is None:
        why = f"; {why_no_moment(value)}" if type(kind) is Timestamp and isinstance(value, str) else ""
        return Reason(f"of another type: not {PHRASES[FAMILY[type(kind)]]}{why}")
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
