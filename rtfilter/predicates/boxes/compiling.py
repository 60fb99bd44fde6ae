"""Compiling predicates to closed boxes in encoded coordinates.

One filter becomes one or several boxes: a set has a box per value, ``<>`` one on either side. Every event
that satisfies the filter lies in one of its boxes. If a box may hold other events too, its `exact` flag is
false, and `rtfilter.predicates.model.disjunction.Disjunction.matches` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import chain, pairwise, product
from math import inf, nextafter, prod
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import BoolArray, FloatArray
from rtfilter.basics.errors import PredicateError
from rtfilter.events.encoding import (
    ALIEN,
    EXACT,
    HIGHEST,
    IDENTITY_MAX,
    LOWEST,
    MISSING,
    ORDER_MAX,
    STRING_BYTES,
    ending_code,
    order_code,
    string_code,
    utf8,
)
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes.affixes import NO_AFFIX, affix_of
from rtfilter.predicates.boxes.narrowing import MAX_SPLIT, implied, is_lowered, lowered
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import COMPARE, FORMS, Constraint, Filter, Test
from rtfilter.predicates.model.disjunction import Disjunction, asks_for_every
from rtfilter.predicates.model.values import Spans, common, left_of
from rtfilter.predicates.operands.like import end as like_end
from rtfilter.predicates.operands.like import start as like_start
from rtfilter.predicates.operands.text_comparison import fold
from rtfilter.predicates.operands.text_comparison import starts as caseless_starts
from rtfilter.predicates.operands.text_operators import TEXT_OPERATORS

MAX_BOXES: Final = 1024
"""Most boxes of one predicate."""
MAX_UNBOUNDED: Final = 1000
"""Most subscriptions, by default, with a box that bounds and decides nothing; see `unbounded`."""
ENDS: Final = frozenset(("=", "<", "<=", ">", ">="))
"""Operators whose constant is an end of an interval of numbers or timestamps."""
_STRICTEST: Final[dict[str, Callable[[Any, Any], Any]]] = {"<": min, "<=": min, ">": max, ">=": max}


_ENOUGH: Final = STRING_BYTES + 3
"""Folded characters that decide `order`: the fold of one character has three at most."""


def _ranges(starts: Iterable[str]) -> Spans:
    """Return the `order` of the strings with some beginnings."""
    return tuple(sorted({text_range(utf8(start)) for start in starts}))


@lru_cache(maxsize=4096)
def _caseless_ranges(start: str) -> Spans:
    """Return `_ranges` for a folded beginning: it takes 20 us, and many subscriptions begin alike."""
    return _ranges(caseless_starts(start, STRING_BYTES))


def _beginning(operator: str, value: str) -> Spans:
    """Return the `order` of strings that satisfy an operator of `TEXT_OPERATORS`."""
    if operator == "ignore case":
        return _caseless_ranges(value[:_ENOUGH])
    if operator == "like ignore case":
        return _caseless_ranges(like_start(value)[:_ENOUGH])
    return _ranges(TEXT_OPERATORS[operator].starts(value, STRING_BYTES))


ENDINGS: Final[dict[str, Callable[[str], tuple[float, float]]]] = {
    "like": lambda pattern: ending_range(fold(like_end(pattern))),
    "like ignore case": lambda pattern: ending_range(like_end(pattern)),
    "ignore case": lambda folded: (ending_code(folded),) * 2,
}
"""The first and the last `ending` coordinate of the strings that satisfy an operator of `FORMS`."""


Ends = tuple[tuple[float, ...], tuple[float, ...]]
"""The low and the high ends of a box."""
Distinct = dict[Ends, bool]
"""Boxes of one predicate, and whether each is exact."""
Distincts = list[tuple[Ends, bool]]
"""The same for several predicates, some of which may be equal."""


class Boxes(NamedTuple):
    """Closed boxes in encoded coordinates; none for a predicate that matches nothing."""

    low: FloatArray
    """float64 (m, D)."""
    high: FloatArray
    """float64 (m, D), at least `low` everywhere."""
    exact: BoolArray
    """bool (m,): whether every event inside satisfies the predicate.

    For quantified constraints, this holds for events without lists.
    """


class Piece(NamedTuple):
    """An interval of one attribute: a side of a box, for a string two sides."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    exact: bool


def compile_predicate(predicate: Disjunction, schema: Schema) -> Boxes:
    """Compile a predicate that was checked against `schema` (see `rtfilter.predicates.predicate.parse`).

    Returns
    -------
    Boxes
        Distinct boxes; an event that satisfies the predicate lies in at least one.

    Raises `PredicateError`: the predicate needs more than `MAX_BOXES` boxes, or names an attribute that the
    schema does not have.
    """
    box = _only_box(predicate, schema)
    if box is not None:
        ends = np.array(box[0] + box[1]).reshape(2, 1, -1)
        return Boxes(ends[0], ends[1], np.array((True,)))
    return boxes_of(_all_boxes(predicate, schema), schema)


def distinct_boxes(predicate: Disjunction, schema: Schema) -> Distinct:
    """Return the boxes of `compile_predicate`, box by box. Raises the same errors."""
    box = _only_box(predicate, schema)
    return _all_boxes(predicate, schema) if box is None else {box: True}


def _only_box(predicate: Disjunction, schema: Schema) -> Ends | None:
    """Return the box of a predicate that `_plain_box` can compile, else None."""
    filters = predicate.filters
    return _plain_box(filters[0].constraints, schema) if len(filters) == 1 else None


def _all_boxes(predicate: Disjunction, schema: Schema) -> Distinct:
    found: Distinct = {}
    for conjunction in predicate.filters:
        for low, high, exact in _boxes_of(conjunction, schema):
            # A box is exact if one of its filters makes it exact.
            found[low, high] = exact or found.get((low, high), False)
        if len(found) > MAX_BOXES:
            raise PredicateError(
                f"the predicate needs more than {MAX_BOXES} boxes; split it into several subscriptions"
            )
    if asks_for_every(predicate) and not all(found.values()):  # see `PredicateStore.listed`
        found = dict.fromkeys(found, False)
    return found


def boxes_of(found: Distinct | Distincts, schema: Schema) -> Boxes:
    """Return boxes as arrays."""
    items = found.items() if isinstance(found, dict) else found
    ends = np.array([box for box, _ in items], np.float64).reshape(len(found), 2, schema.dimensions)
    # -0.0 becomes 0.0, so that equal boxes have equal bytes.
    ends = np.ascontiguousarray(ends.swapaxes(0, 1)) + 0.0
    return Boxes(ends[0], ends[1], np.array([exact for _, exact in items], np.bool_))


def unbounded(boxes: Boxes, schema: Schema) -> BoolArray:
    """Return which boxes bound and decide nothing, bool (m,): nearly every event must be verified.

    A box that only asks for the presence of attributes is one of them.
    """
    wide = [_WIDEST[attribute.family] for attribute in schema.attributes.values()]
    lows, highs = (np.concatenate([np.atleast_1d(one[side]) for one in wide]) for side in (0, 1))
    found: BoolArray = ~boxes.exact & (boxes.low <= lows).all(axis=1) & (boxes.high >= highs).all(axis=1)
    return found


_WIDEST: Final[dict[str, tuple[Any, Any]]] = {
    "number": (LOWEST, HIGHEST),
    "timestamp": (-float(2**63), float(2**63)),
    "bool": (0.0, 1.0),
    "str": ((0.0, 0.0, 0.0), (float(ORDER_MAX), float(IDENTITY_MAX), float(ORDER_MAX))),
}
"""The coordinates of all values of each family."""


def _plain_box(constraints: Iterable[Test], schema: Schema) -> Ends | None:
    """Compile a conjunction of comparisons of numbers and timestamps, the usual case.

    The box equals that of `_filter_boxes`, and takes a fraction of the time. The result is None for other
    constraints, ends that are not sharp, and conjunctions that match nothing.
    """
    offsets = schema.ordinal_offsets
    lows, highs = [-inf] * schema.dimensions, [inf] * schema.dimensions
    for constraint in constraints:
        if type(constraint) is not Constraint:
            return None
        name, operator, value = constraint
        at = offsets.get(name)
        if at is None or operator not in ENDS or not -EXACT < value < EXACT:
            return None
        low, high, end = LOWEST, HIGHEST, value + 0.0
        if operator == ">=":
            low = end
        elif operator == "<=":
            high = end
        elif operator == "=":
            low = high = end
        elif operator == ">":
            low = nextafter(end, inf) + 0.0  # -0.0 becomes 0.0
        else:
            high = nextafter(end, -inf)
        if low > lows[at]:
            lows[at] = low
        if high < highs[at]:
            highs[at] = high
        if lows[at] > highs[at]:
            return None
    return tuple(lows), tuple(highs)


def _boxes_of(conjunction: Filter, schema: Schema) -> Iterable[Piece]:
    if is_lowered(conjunction):
        return _filter_boxes(conjunction.constraints, schema)
    parts, complete = lowered(conjunction)
    boxes = chain.from_iterable(_filter_boxes(own.constraints, schema) for own in parts)
    return [box._replace(exact=box.exact and complete) for box in boxes]


def _filter_boxes(constraints: Iterable[Test], schema: Schema) -> Iterable[Piece]:
    by_name: dict[str, list[Constraint]] = {}
    sharp = True
    for test in constraints:
        # A comparison is verified later: its box has the constraints that follow from it for each attribute.
        if isinstance(test, Comparison):
            sharp, follow = False, implied(test)
        else:
            assert isinstance(test, Constraint)  # `lowered` leaves no other constraints
            follow = [test]
        for constraint in follow:
            by_name.setdefault(constraint.attribute, []).append(constraint)
    sides: list[list[Piece]] = []
    for name, given in by_name.items():
        pieces = pieces_of(name, given, schema)
        if not pieces:
            return []
        sides.append(pieces)
    _limit(sides)
    low, high = [-inf] * schema.dimensions, [inf] * schema.dimensions
    places = [schema.offsets[name] for name in by_name]
    boxes: list[Piece] = []
    for choice in product(*sides):
        every = sharp
        for place, (lows, highs, exact) in zip(places, choice, strict=True):
            if len(lows) == 1:
                low[place], high[place] = lows[0], highs[0]
            else:
                low[place : place + len(lows)] = lows
                high[place : place + len(highs)] = highs
            every = every and exact
        boxes.append(Piece(tuple(low), tuple(high), every))
    return boxes


def pieces_of(name: str, constraints: list[Constraint], schema: Schema) -> list[Piece]:
    """Return the sides of boxes that constraints of one attribute leave; none if they contradict."""
    attribute = schema.attribute(name)
    pieces = _presence(constraints, attribute.width)
    return _VALUES[attribute.family](constraints) if pieces is None else pieces


def _presence(constraints: list[Constraint], width: int) -> list[Piece] | None:
    """Return the pieces if only presence matters; None if values do."""
    operators = {constraint.operator for constraint in constraints}
    if "is null" in operators:
        return [Piece((MISSING,) * width, (MISSING,) * width, True)] if len(operators) == 1 else []
    if operators == {"exists"}:
        return [Piece((LOWEST,) * width, (ALIEN,) * width, True)]
    return None


def _chosen(constraints: list[Constraint]) -> list[Any] | None:
    """Return the values that `=` and `in` leave after all other constraints; None without such operators."""
    sets: list[frozenset[Any]] = []
    removed: set[Any] = set()
    ends: dict[str, Any] = {}
    others: list[tuple[Callable[[Any, Any], bool], Any]] = []
    for _, operator, value in constraints:
        if operator in ("=", "in"):
            sets.append(value if operator == "in" else frozenset((value,)))
        elif operator in ("<>", "not in"):
            removed.update(value if operator == "not in" else (value,))
        elif operator in _STRICTEST:  # one constraint per operator, so that the cost stays linear
            ends[operator] = _STRICTEST[operator](ends.get(operator, value), value)
        elif operator in FORMS or operator.endswith("prefix"):
            others.append((COMPARE[operator], value))
        elif operator != "exists":  # a box that ignored an operator could lose matches, or call itself exact
            raise NotImplementedError(f"there are no boxes for the operator {operator!r}")
    if not sets:
        return None
    others += [(COMPARE[operator], value) for operator, value in ends.items()]
    values: Iterable[Any] = frozenset.intersection(*sets) - removed
    for holds, constant in others:
        values = [value for value in values if holds(value, constant)]
    return sorted(values)  # hashes of strings differ by process, and so would boxes


def _ordinal(constraints: list[Constraint]) -> list[Piece]:
    """Return the pieces of numbers, and of timestamps in microseconds."""
    chosen = _chosen(constraints)
    if chosen is not None:
        points = {float(value) + 0.0: abs(value) < EXACT for value in chosen}
        return [Piece((point,), (point,), exact) for point, exact in points.items()]
    low, high, exact = LOWEST, HIGHEST, True
    holes: set[float] = set()
    for _, operator, value in constraints:
        if operator == "exists":
            continue
        if operator in ("<>", "not in"):
            values = (value,) if operator == "<>" else value
            holes.update(float(v) for v in values if abs(v) < EXACT)
            exact = exact and all(abs(v) < EXACT for v in values)
            continue
        end = float(value) + 0.0
        # From 2**53 on, an integer may round to its neighbour: the end stays closed, and `matches` decides.
        sharp = abs(value) < EXACT
        exact = exact and sharp
        if operator in (">", ">="):
            low = max(low, nextafter(end, inf) if operator == ">" and sharp else end)
        else:
            high = min(high, nextafter(end, -inf) if operator == "<" and sharp else end)
    found = left_of(((low, nextafter(high, inf)),), [(hole, nextafter(hole, inf)) for hole in sorted(holes)])
    return [Piece((a,), (nextafter(b, -inf),), exact) for a, b in found]


def _boolean(constraints: list[Constraint]) -> list[Piece]:
    tests = [c for c in constraints if c.operator in COMPARE]
    values = [v for v in (False, True) if all(COMPARE[c.operator](v, c.value) for c in tests)]
    return [Piece((float(values[0]),), (float(values[-1]),), True)] if values else []


def _text(constraints: list[Constraint]) -> list[Piece]:
    """Return the pieces of strings: `order` serves ranges and prefixes, `identity` equality.

    Both are exact up to 6 bytes. `ending` only reduces the candidates of patterns and of constraints that
    ignore case. The low end of `identity` tells their beginning or end if it is long (`Affix.end`).
    """
    chosen = _chosen(constraints)
    if chosen is not None:
        exact_of = {string_code(text): len(utf8(text)) <= STRING_BYTES for text in chosen}
        return [
            Piece((float(order), float(identity), -inf), (float(order), float(identity), inf), exact)
            for (order, identity, _), exact in exact_of.items()
        ]
    orders: Spans = ((0, ORDER_MAX + 1),)
    exact = True
    ending: tuple[float, float] = (-inf, inf)
    affix = NO_AFFIX
    cuts: list[tuple[int, int]] = []
    holes: set[float] = set()
    for _, operator, value in constraints:
        if operator == "exists":
            continue
        if operator in FORMS:
            exact = False
            if operator in TEXT_OPERATORS:  # no complement
                orders = common(orders, _beginning(operator, value))
            if operator in ENDINGS:
                first, last = ENDINGS[operator](value)
                ending = max(ending[0], first), min(ending[1], last)
                affix = max(affix, affix_of(operator, value))
            continue
        if operator in ("<>", "not in"):
            for text in (value,) if operator == "<>" else value:
                if len(utf8(text)) <= STRING_BYTES:
                    holes.add(string_code(text)[1])
                else:
                    exact = False  # other strings may share its code, so it cannot be cut out
            continue
        data = utf8(value)
        start, end = text_range(data)
        # Codes are padded with NUL, so "a" and "a\0" have one order code.
        sharp = len(data) <= STRING_BYTES and not data.endswith(b"\0")
        if operator in ("prefix", "not prefix"):
            exact = exact and sharp
            if operator == "prefix":
                orders = common(orders, ((start, end),))
                affix = max(affix, affix_of(operator, value))
            elif sharp:
                cuts.append((start, end))
        elif operator in (">", ">="):
            orders = common(orders, ((start, ORDER_MAX + 1),))
            exact = exact and sharp and operator == ">="
        else:
            orders = common(orders, ((0, start if operator == "<" and sharp else start + 1),))
            exact = exact and sharp and operator == "<"
    orders = left_of(orders, sorted(cuts))
    if ending[0] > ending[1]:
        return []
    if affix.length and len(orders) > 1:  # by the affix one box is found as well as several
        orders = ((orders[0][0], orders[-1][1]),)
    if not holes:
        return [Piece((a, affix.end, ending[0]), (b - 1, inf, ending[1]), exact) for a, b in orders]
    identities = left_of(((0, IDENTITY_MAX + 1),), [(hole, hole + 1) for hole in sorted(holes)])
    both = [_merge([Piece((a,), (b - 1,), exact) for a, b in own], MAX_SPLIT) for own in (orders, identities)]
    return [
        Piece((*o.low, *i.low, ending[0]), (*o.high, *i.high, ending[1]), o.exact and i.exact)
        for o, i in product(*both)
    ]


_VALUES: Final = {"number": _ordinal, "timestamp": _ordinal, "bool": _boolean, "str": _text}


def text_range(start: bytes) -> tuple[int, int]:
    """Return the first `order` of the strings that begin with some bytes, and the one behind all of them."""
    first, last = _longer(order_code(start), len(start))
    return first, last + 1


def ending_range(folded: str) -> tuple[float, float]:
    """Return the first and last `ending` coordinate of strings that end with a text, in any case."""
    return _longer(ending_code(folded), len(utf8(folded))) if folded else (-inf, inf)


def _longer(code: int, size: int) -> tuple[int, int]:
    """Return the first and the last code with the first `size` bytes of a code."""
    return code, code + 256 ** max(STRING_BYTES - size, 0) - 1


def _limit(sides: list[list[Piece]]) -> None:
    """Merge pieces, those of the largest lists first, until a filter has at most `MAX_SPLIT` boxes."""
    while (total := prod(map(len, sides))) > MAX_SPLIT:
        largest = max(range(len(sides)), key=lambda at: len(sides[at]))
        keep = MAX_SPLIT // (total // len(sides[largest]))
        sides[largest] = _merge(sides[largest], max(keep, 1))


def _merge(pieces: list[Piece], keep: int) -> list[Piece]:
    """Return at most `keep` pieces that cover the given ones, separate at the widest gaps."""
    if len(pieces) <= keep:
        return pieces
    ordered = sorted(pieces)
    gaps = [after.low[0] - before.high[0] for before, after in pairwise(ordered)]
    widest = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: keep - 1]
    ends = [0, *sorted(at + 1 for at in widest), len(ordered)]
    return [_hull(ordered[start:end]) for start, end in pairwise(ends)]


def _hull(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    low = tuple(map(min, zip(*(piece.low for piece in pieces), strict=True)))
    high = tuple(map(max, zip(*(piece.high for piece in pieces), strict=True)))
    return Piece(low, high, False)
