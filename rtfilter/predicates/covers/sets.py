"""Filters as products of sets: of values for each attribute, and of places for each *aspect*.

An aspect is a property that a constraint tests instead of an attribute's value: whether a text fits a
pattern, the text without case, its address, the order of two expressions, the result of an expression. Every
event has one place in each aspect, so constraints of one aspect are compared exactly. Constraints of
different aspects are treated as independent, although they may not be. So sets that are disjoint or covered
here certainly are, and a remaining set may be empty in fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_network
from itertools import chain, islice, product
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple

from rtfilter.events.encoding import Timestamp
from rtfilter.events.fields import NOW
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes.narrowing import implied
from rtfilter.predicates.model.comparison import EXCHANGED, RELATIONS, Comparison
from rtfilter.predicates.model.constraints import (
    FAMILY_OF,
    FORMS,
    SETS,
    Constraint,
    Filter,
    Quantified,
    Test,
    is_negated,
)
from rtfilter.predicates.model.disjunction import Disjunction
from rtfilter.predicates.model.values import (
    LINES,
    TOP,
    Spans,
    ValueOrder,
    Values,
    behind,
    next_number,
)
from rtfilter.predicates.operands.expressions import SLACK, Distance, Operand, Operation, distance, text
from rtfilter.predicates.operands.intervals import Now
from rtfilter.predicates.operands.like import end as end_of
from rtfilter.predicates.operands.like import escaped, is_wider, sample, simplest
from rtfilter.predicates.operands.networks import address
from rtfilter.predicates.operands.text_comparison import fold
from rtfilter.predicates.operands.text_operators import TEXT_OPERATORS

_V4: Final = 2**32
_ADDRESSES: Final = _V4 + 2**128
_ENOUGH: Final = 64
"""Most characters of the beginning of a text that restrict an attribute."""
MOMENT: Final = 1_700_000_000_000_000
"""The time of batches of generated events, if one is needed, in microseconds since 1970."""
MOST_POINTS: Final = 1000
"""Most texts of one attribute that are tested on the aspects one by one."""

_LINES_OF: Final[dict[str, ValueOrder]] = {
    **dict.fromkeys(TEXT_OPERATORS, LINES["bool"]),
    "end": LINES["str"],  # letters from the last to the first
    "folded": LINES["str"],
    "folded end": LINES["str"],
    "address": ValueOrder(0, _ADDRESSES + 1, lambda place: place + 1),  # the last place: no address
    "order": ValueOrder(-1, 2, lambda sign: sign + 1),
    "result": ValueOrder(-inf, TOP, next_number),
    "age": ValueOrder(
        -(2**64), 2**64, lambda offset: int(offset) + 1
    ),  # microseconds after the time of the batch
}
_ENDS: Final = {"like": "end", "like ignore case": "folded end"}
"""The aspect of the end of texts, for each kind of pattern."""
_PATTERNS: Final = ("like", "like ignore case")
_FITS: Final = LINES["bool"].points((True,))
_SIGNS: Final[dict[str, tuple[int, ...]]] = {
    "=": (0,), "<>": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1),
}  # fmt: skip
_ALIEN_OF: Final[dict[str, Any]] = {"number": "", "timestamp": True, "bool": "", "str": 0}
"""A value of another type for each family."""


class Aspect(NamedTuple):
    """A property that a constraint tests instead of the value of an attribute."""

    kind: str
    """A key of `_LINES_OF`; the name of an operator asks whether a text satisfies it."""
    subject: Operand
    """The attribute; for a comparison, its left side."""
    other: Any = None
    """A pattern, or the right side of a comparison."""

    @property
    def is_partial(self) -> bool:
        """True if an event with all attributes may lack it: arithmetic may have no result."""
        return any(isinstance(side, Operation | Distance) for side in (self.subject, self.other))

    def place(self, value: str) -> Any:
        """Return the place of a text; not of comparisons."""
        if self.kind in TEXT_OPERATORS:
            return TEXT_OPERATORS[self.kind].accepts(value, self.other)
        if self.kind == "end":
            return value[::-1]
        if self.kind == "folded":
            return fold(value)
        if self.kind == "folded end":
            return fold(value)[::-1]
        found = address(value)
        if found is None:
            return _ADDRESSES
        return found[1] if found[0] == 4 else _V4 + found[1]

    def texts(self, spans: Spans) -> Iterator[str]:
        """Yield some texts that may lie in some places."""
        if self.kind in _PATTERNS:
            yield sample(self.other, "", "a")
            yield sample(self.other, "x", "a")
        elif self.kind in TEXT_OPERATORS:
            yield TEXT_OPERATORS[self.kind].example(self.other)
        elif self.kind in ("end", "folded end"):
            for reversed_, _ in spans[:2]:
                yield reversed_[::-1]
        elif self.kind == "folded":
            for folded, _ in spans[:2]:
                yield folded
                yield folded.upper()
        elif self.kind == "address":
            for first, _ in spans[:2]:
                if first < _ADDRESSES:
                    yield str(IPv4Address(first) if first < _V4 else IPv6Address(first - _V4))
        yield "x"


Key = str | Aspect
Cell = dict[Key, Values]
"""The sets of an event's attributes and aspects; attributes and aspects without a set may be anything."""


class MixedError(Exception):
    """Raised if an attribute has constants of several types, and no schema gives its type."""


class Space:
    """The attributes and aspects of some predicates.

    Parameters
    ----------
    schema : Schema or None
        Without one, the constants determine the types of attributes, and their domains are unknown.
    predicates : iterable of Disjunction
        Predicates that were checked against the schema, if there is one.

    Raises
    ------
    MixedError
    """

    def __init__(self, schema: Schema | None, predicates: Iterable[Disjunction]) -> None:
        self.schema = schema
        self._families: dict[str, str] = {}
        self._lines: dict[str, ValueOrder] = {}
        self._aspects: dict[str, list[Aspect]] = {}  # the aspects of texts
        self._numbers: list[float] = [0, 1, -1]
        self._distances: dict[Distance, None] = {}
        self._moment: dict[str, Any] = {}  # the time of generated events
        for predicate in predicates:
            self.meet(predicate)

    def meet(self, predicate: Disjunction) -> None:
        """Add the attributes and aspects of another predicate."""
        for test in chain.from_iterable(conjunction.constraints for conjunction in predicate.filters):
            if type(test) is Constraint:
                if self.schema is None:
                    self._note_family(test.attribute, FAMILY_OF.get(type(test.sample)))
                if test.operator in FORMS:
                    aspect, _ = _aspect_of(test)
                    known = self._aspects.setdefault(test.attribute, [])
                    if aspect not in known:
                        known.append(aspect)
            elif isinstance(test, Comparison):
                if isinstance(test.right, Now):
                    self._moment = {NOW: MOMENT}
                if isinstance(test.left, Distance) and isinstance(test.right, int | float):
                    self._distances.setdefault(test.left)
                if isinstance(test.right, int | float) and test.right not in self._numbers:
                    self._numbers.append(test.right)
                if self.schema is None:
                    for name in test.attributes:
                        self._note_family(name, test.family)

    def _note_family(self, name: str, family: str | None) -> None:
        if family is not None and self._families.setdefault(name, family) != family:
            raise MixedError

    def family(self, name: str) -> str:
        """Return the family of an attribute; any family if only its presence is tested."""
        if self.schema is not None:
            return self.schema.attribute(name).family
        return self._families.get(name, "number")

    def line(self, key: Key) -> ValueOrder:
        """Return the line with the values of an attribute, its domain, or with the places of an aspect."""
        if isinstance(key, Aspect):
            return _LINES_OF[key.kind]
        found = self._lines.get(key)
        if found is None:
            found = LINES[self.family(key)]
            if self.schema is not None and self.schema.attributes[key].ordinal:
                low, high = self.schema.attributes[key].bounds
                found = found._replace(first=max(found.first, low), end=min(found.end, found.after(high)))
            self._lines[key] = found
        return found

    def anything(self, key: Key) -> Values:
        """Return all possible values of an attribute, or places of an aspect."""
        if isinstance(key, Aspect):  # an aspect of texts implies that the value is a text
            return Values(self.line(key).all, alien=key.is_partial)
        return Values(self.line(key).all, alien=True, missing=True)

    # -- filters as cells ----------------------------------------------------------------------------

    def cells(self, predicate: Disjunction) -> list[Cell]:
        """Return the filters as cells, without filters that nothing satisfies."""
        found = (self._cell(conjunction) for conjunction in predicate.filters)
        return [cell for cell in found if cell is not None]

    def _cell(self, conjunction: Filter) -> Cell | None:
        cell: Cell = {}
        for test in conjunction.constraints:
            for key, values in self._parts(test):
                known = cell.get(key)
                cell[key] = found = values if known is None else known.common(values)
                if not found.some:
                    return None
        return cell

    def _parts(self, test: Test) -> Iterator[tuple[Key, Values]]:
        """Yield the sets that a constraint requires of attributes and aspects; none for quantified ones."""
        if isinstance(test, Quantified):
            return
        if isinstance(test, Comparison):
            for constraint in implied(test):
                yield constraint.attribute, self._accepted(constraint)
            yield _compared(test)
            return
        yield test.attribute, self._accepted(test)
        if test.operator in FORMS:
            aspect, spans = _aspect_of(test)
            if test.operator in _ENDS and (text := end_of(test.value)):
                yield Aspect(_ENDS[test.operator], test.attribute), Values(_ending(text))
            yield aspect, Values(self.line(aspect).without(spans) if is_negated(test.operator) else spans)

    def _accepted(self, test: Constraint) -> Values:
        """Return the values that a constraint accepts; may accept, if it also tests an aspect."""
        line, operator, value = self.line(test.attribute), test.operator, test.value
        if operator == "is null":
            return Values((), missing=True)
        if operator == "exists" or (operator == "not in" and not value):
            return Values(line.all, alien=True)
        if operator in RELATIONS:
            return Values(line.accepted(operator, value))
        if operator in SETS:
            spans = line.points(value)
        elif operator in ("prefix", "not prefix"):
            spans = ((value, behind(value)),)
        elif operator in TEXT_OPERATORS:
            starts = TEXT_OPERATORS[operator].starts(value, _ENOUGH)
            spans = _joined((start, behind(start)) for start in starts)
        else:
            return Values(line.all)
        return Values(line.without(spans) if is_negated(operator) else spans)

    def grounded(self, cell: Cell) -> list[Cell]:
        """Split a cell in which an attribute is one of a few texts, each with its place in each aspect."""
        followed = self._followed(cell)
        found = [] if followed is None else [followed]
        for name, aspects in self._aspects.items():
            values = cell.get(name)
            if values is None or values.alien or values.missing or len(values.spans) > MOST_POINTS:
                continue
            if not all(map(self.line(name).is_point, values.spans)):
                continue
            groups: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
            for span in values.spans:
                groups.setdefault(tuple(aspect.place(span[0]) for aspect in aspects), []).append(span)
            found = [
                split
                for one in found
                for places, spans in groups.items()
                if (split := self._placed(one, name, tuple(spans), aspects, places)) is not None
            ]
        return found

    def _followed(self, cell: Cell) -> Cell | None:
        """Return a cell with the consequences of its patterns and distances; None if it is empty."""
        followed = self._far(cell)
        if followed is None:
            return None
        for aspect in [key for key in cell if isinstance(key, Aspect) and key.kind in _PATTERNS]:
            fits = cell[aspect].spans == _FITS
            for other in self._aspects[str(aspect.subject)]:
                if other.kind != aspect.kind or other == aspect:
                    continue
                # A text that fits a pattern also fits a wider one; a text that does not fit the wider one
                # fits neither.
                wider, narrower = (other, aspect) if fits else (aspect, other)
                if not is_wider(wider.other, narrower.other):
                    continue
                if other not in followed:
                    followed = {**followed, other: cell[aspect]}
                elif followed[other].spans != cell[aspect].spans:
                    return None
        return followed

    def _far(self, cell: Cell) -> Cell | None:
        """Return a cell with the consequences of its distances for distances from other points."""
        found = cell
        for own in [key for key in cell if isinstance(key, Aspect) and isinstance(key.subject, Distance)]:
            for other in self._distances if cell[own].spans else ():
                assert isinstance(own.subject, Distance)
                if own.kind != "result" or other == own.subject or other[:2] != own.subject[:2]:
                    continue
                apart = distance(*own.subject[2:], *other[2:])
                low, end = cell[own].spans[0][0], cell[own].spans[-1][1]
                far = inf if end is TOP else end + apart + SLACK
                near = max(low - apart, -inf if end is TOP else apart - end) - SLACK
                key = Aspect("result", other)
                values = Values(((near, TOP if far == inf else far),), alien=cell[own].alien)
                found = {**found, key: values if key not in found else found[key].common(values)}
                if not found[key].some:
                    return None
        return found

    def _placed(
        self, cell: Cell, name: str, spans: Spans, aspects: list[Aspect], places: tuple[Any, ...]
    ) -> Cell | None:
        """Return a cell with only some texts of an attribute, which have these places.

        Returns None if the cell is empty.
        """
        placed: Cell = {**cell, name: Values(spans)}
        for aspect, place in zip(aspects, places, strict=True):
            own = Values(self.line(aspect).points((place,)))
            placed[aspect] = own = own if aspect not in cell else own.common(cell[aspect])
            if not own.some:
                return None
        return placed

    # -- events in cells ---------------------------------------------------------------------------------

    def events(self, cell: Cell, most: int) -> Iterator[dict[str, Any]]:
        """Yield at most `most` flat events that may lie in a cell; their aspects are guessed."""
        names = [key for key in cell if isinstance(key, str)]
        choices = [self._samples(cell, name) for name in names]
        for chosen in islice(product(*choices), most):
            event = {name: value for name, value in zip(names, chosen, strict=True) if value is not None}
            yield event | self._moment

    def real(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return a flat event with values that agree in the attributes for several types of one."""
        if self.schema is None or not self.schema.fields.further:
            return event
        found, fields = dict(event), self.schema.fields
        for field in fields.further:
            value = found.pop(field.name, None)
            if value is not None and (not field.null or value is True):
                found.setdefault(field.of, None if field.null else value)
        return fields.completed(found)

    def corners(self, cell: Cell) -> Iterator[dict[str, Any]]:
        """Yield one or two flat events in opposite corners of a cell, if its aspects allow it."""
        first, last = {**self._moment}, {**self._moment}
        for name in [key for key in cell if isinstance(key, str)]:
            spans, family = cell[name].spans, self.family(name)
            if spans:
                first[name] = _TYPED[family](spans[0][0])
                last[name] = _TYPED[family](self.line(name).near_end(spans[-1]))
            elif not cell[name].missing:
                first[name] = last[name] = _ALIEN_OF[family]
        yield first
        if last != first:
            yield last

    @staticmethod
    def _near(far: Distance, spans: Spans, name: str) -> list[float]:
        """Return latitudes or longitudes of a point, and of some points at about the wanted distance."""
        if name == far.longitude:
            return [far.east]
        if name != far.latitude:
            return []
        ends = [end for span in spans for end in span if isinstance(end, int | float) and 0 <= end < inf]
        return [far.north, *(own for end in ends for own in far.latitudes(end))]

    def _samples(self, cell: Cell, name: str) -> list[Any]:
        """Return some values of an attribute in a cell; None stands for a missing value."""
        values, family = cell[name], self.family(name)
        asked = [key for key in cell if isinstance(key, Aspect)]
        found: list[Any] = []
        for aspect in asked:
            if aspect.kind == "age":
                ages = [age for low, end in cell[aspect].spans for age in (low, end - 1)]
                found += [MOMENT + age for age in ages] if aspect.subject == name else []
            elif isinstance(aspect.subject, Distance):
                found += self._near(aspect.subject, cell[aspect].spans, name)
            elif aspect.kind in ("order", "result"):
                found += self._numbers if family == "number" else ()
                found += [low for other in cell if isinstance(other, str) for low, _ in cell[other].spans[:1]]
            elif aspect.subject == name:
                found += aspect.texts(cell[aspect].spans)
        found += [low for low, _ in values.spans[:4]]
        inside = (one for one in found if _is_in(one, values.spans)) if asked else found
        chosen: list[Any] = [_TYPED[family](one) for one in dict.fromkeys(inside)]
        if values.missing:
            chosen.append(None)
        if values.alien:
            chosen.append(_ALIEN_OF[family])
        return chosen


_TYPED: Final[dict[str, Any]] = {
    "number": lambda value: value,
    "timestamp": Timestamp,
    "bool": bool,
    "str": str,
}


def _is_in(value: Any, spans: Spans) -> bool:
    try:
        return any(low <= value < end for low, end in spans)
    except TypeError:  # of another family
        return False


def _joined(spans: Iterable[tuple[Any, Any]]) -> Spans:
    """Return spans in order, with touching ones joined."""
    found: list[tuple[Any, Any]] = []
    for low, end in sorted(spans, key=itemgetter(0)):
        if found and found[-1][1] >= low:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((low, end))
    return tuple(found)


def _ending(end: str) -> Spans:
    """Return the reversed texts with an end, as spans."""
    return ((end[::-1], behind(end[::-1])),)


def _aspect_of(test: Constraint) -> tuple[Aspect, Spans]:
    """Return the aspect that a constraint tests, and the places at which it or its complement holds."""
    operator, name, value = test.operator.removeprefix("not "), test.attribute, test.value
    if operator in _ENDS and value == "%" + escaped(end_of(value)):
        return Aspect(_ENDS[operator], name), _ending(end_of(value))
    if operator == "ignore case":
        return Aspect("folded", name), LINES["str"].points((value,))
    if operator == "like ignore case":
        simple, start = simplest(value)
        if simple == "prefix":
            return Aspect("folded", name), ((start, behind(start)),)
    if operator == "cidr":
        network = ip_network(value)
        first = int(network.network_address) + (0 if isinstance(network, IPv4Network) else _V4)
        return Aspect("address", name), ((first, first + network.num_addresses),)
    return Aspect(operator, name, value), _FITS


def asks_for_aspects(predicate: Disjunction) -> bool:
    """Return whether a constraint of a predicate tests an aspect instead of an attribute's value."""
    return any(
        not isinstance(test, Constraint) or test.operator in FORMS
        for conjunction in predicate.filters
        for test in conjunction.constraints
    )


def _compared(test: Comparison) -> tuple[Aspect, Values]:
    """Return the aspect of a comparison, and the places in it at which it holds."""
    left, operator, right, _ = test
    if isinstance(right, int | float | Now):
        kind = "age" if isinstance(right, Now) else "result"
        right = right.offset if isinstance(right, Now) else right
        return Aspect(kind, left), Values(_LINES_OF[kind].accepted(operator, right))
    if text(left) > text(right):
        left, operator, right = right, EXCHANGED[operator], left
    return Aspect("order", left, right), Values(_LINES_OF["order"].points(_SIGNS[operator]))
