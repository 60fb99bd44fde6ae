"""Templates: conditions that differ only in constants are read once, and then filled with other constants.

A condition is cut at its constants; the rest identifies the template. It is parsed twice with constants that
occur nowhere else (`template_constants.py`). If both predicates differ only in these constants, other
constants will have the same places. Conditions whose meaning depends on the value of a constant are parsed
instead: operations on constants, patterns of another form, equal constraints, and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, TypeAlias

from rtfilter.basics.errors import PredicateError
from rtfilter.events.encoding import Timestamp
from rtfilter.events.schema import Schema
from rtfilter.predicates.model.combine import Filters
from rtfilter.predicates.model.constraints import PRESENCE, SETS, Constraint, Filter, Quantified, Test
from rtfilter.predicates.predicate import Predicate, Source
from rtfilter.predicates.stored.predicate_store import as_bytes, encoded_test
from rtfilter.predicates.templates.template_constants import Mark, Read, marked

Row = Sequence[Any] | Mapping[int, Any]
"""The values of the constants of one condition."""


class Slot(NamedTuple):
    """A constant of the text, and its reading in the predicate."""

    at: int
    """Its place among the constants."""
    read: Read
    encode: Callable[[Any], str]
    """Returns its JSON."""


class Hole(NamedTuple):
    """A constraint of a template: its constant, its slot, or a set of both."""

    attribute: str
    operator: str
    slots: tuple[int, ...]
    """Columns of the values that make the constant; empty if it is `value`."""
    value: Any

    def constraint(self, row: Row) -> Constraint:
        """Return the constraint of one condition."""
        return tuple.__new__(Constraint, (self.attribute, self.operator, self.constant(row)))

    def constant(self, row: Row) -> Any:
        """Return the constant of one condition."""
        if self.operator in SETS and self.slots:
            return self.value.union([row[at] for at in self.slots])
        return row[self.slots[0]] if self.slots else self.value

    def is_smaller(self, row: Row) -> bool:
        """Return whether its set has equal elements; their order then decides which one stays, 0 or 0.0."""
        return len(self.constant(row)) < len(self.value) + len(self.slots)


Part: TypeAlias = Hole | Test
"""A constraint of a template; if it is no `Hole`, it is the same in all conditions."""


class Template:
    """A condition without its constants.

    Attributes
    ----------
    slots : list of Slot
        The columns of values that `columns` reads.
    filters : list of list of Part
        The constraints, in the order of the predicate.
    """

    def __init__(self, slots: list[Slot], filters: list[list[Part]], schema: Schema) -> None:
        self.slots, self.filters, self._schema = slots, filters, schema
        # Constraints that may be equal, of which the predicate then has only one; the same for filters.
        self._twins = [pair for tests in filters for pair in _alike([[part] for part in tests])]
        self._twins += _alike(filters)
        parts = [part for tests in filters for part in tests if isinstance(part, Hole)]
        self._sets = [part for part in parts if part.operator in SETS and part.slots]
        self._format = self._as_format()

    @classmethod
    def learn(cls, source: Source, schema: Schema) -> Template | None:
        """Return the template of a condition; None if it has none, or is an error."""
        try:
            first, second = (_parts(*marked(source, schema, year)) for year in (2001, 2002))
        except PredicateError:
            return None
        return None if first is None or first != second else cls(*first, schema)

    def columns(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the values of each slot, for n conditions; None if a condition has to be parsed.

        Parameters
        ----------
        rows : sequence of sequence
            The constants of each condition, as they are written.
        """
        columns = list(zip(*rows, strict=True))
        return [list(map(slot.read, columns[slot.at])) for slot in self.slots]

    def repeating(self, columns: list[list[Any]]) -> list[bool] | None:
        """Return which of n conditions repeat a conjunction, constraint or set element; None for none."""
        if not (self._twins or self._sets):
            return None
        rows = zip(*columns, strict=True)
        return [any(one.is_smaller(row) for one in self._sets) or self._has_equal(row) for row in rows]

    def _has_equal(self, row: Row) -> bool:
        return any(_equal(*pair, row) for pair in self._twins)

    def predicate(self, row: Row) -> Predicate:
        """Return the predicate of one condition without repetitions."""
        filters = [
            Filter(tuple([part.constraint(row) if isinstance(part, Hole) else part for part in tests]))
            for tests in self.filters
        ]
        return Predicate.checked(tuple(filters), self._schema)

    def encoded(self, columns: list[list[Any]], count: int) -> list[bytes]:
        """Return the JSON texts of `count` predicates, in the form of `kept`."""
        written, holes = self._format
        if not holes:
            return [as_bytes(written % ())] * count
        texts = [self._texts(hole, columns) for hole in holes]
        return [as_bytes(written % row) for row in zip(*texts, strict=True)]

    def _texts(self, hole: Hole, columns: list[list[Any]]) -> Iterable[str]:
        """Return the JSON texts of one constraint's constant, for all conditions."""
        encode = self.slots[hole.slots[0]].encode
        if hole.operator not in SETS:
            return map(encode, columns[hole.slots[0]])
        sets = (sorted(hole.constant(row)) for row in zip(*columns, strict=True))
        return (f"[{','.join(map(encode, items))}]" for items in sets)

    def _as_format(self) -> tuple[str, list[Hole]]:
        """Return the JSON text with a place for each constant, and the constraints of these places."""
        holes: list[Hole] = []
        filters = []
        for tests in self.filters:
            texts = []
            for part in tests:
                if isinstance(part, Hole) and part.slots:
                    holes.append(part)
                    start = encoded_test(Constraint(part.attribute, "exists")).replace("%", "%%")
                    texts.append(start.removesuffix('"exists"]') + f'"{part.operator}",%s]')
                else:
                    same = part.constraint(()) if isinstance(part, Hole) else part
                    texts.append(encoded_test(same).replace("%", "%%"))
            filters.append(",".join(texts))
        return (f"[[{'],['.join(filters)}]]" if filters else "[]"), holes


def _alike(groups: Sequence[list[Part]]) -> list[tuple[list[Part], list[Part]]]:
    """Return pairs of groups of constraints that differ at most in constants."""
    shapes = [[part[:2] if isinstance(part, Hole) else part for part in group] for group in groups]
    pairs = ((one, two) for two in range(len(groups)) for one in range(two))
    return [(groups[one], groups[two]) for one, two in pairs if shapes[one] == shapes[two]]


def _equal(one: list[Part], two: list[Part], row: Row) -> bool:
    """Return whether groups of one shape, paired by `_alike`, are equal; only constants may differ."""
    pairs = zip(one, two, strict=True)
    return all(
        a.constant(row) == b.constant(row) for a, b in pairs if isinstance(a, Hole) and isinstance(b, Hole)
    )


def _parts(marks: Sequence[Mark], filters: Filters) -> tuple[list[Slot], list[list[Part]]] | None:
    """Find the marks in a predicate; return its slots and its filters, None if one is not found."""
    known: dict[tuple[type, Any], Slot] = {}
    for at, (constant, readers) in enumerate(marks):
        for read in readers:
            value = read(constant)
            if value is None:
                continue
            if (type(value), value) in known:  # other constants may differ by reader
                return None
            known[type(value), value] = Slot(at, read, _ENCODERS[type(value)])
    slots: dict[Slot, int] = {}

    def slot_of(value: Any) -> int | None:
        slot = known.get((type(value), value))
        return None if slot is None else slots.setdefault(slot, len(slots))

    found: list[list[Part]] = []
    for conjunction in filters:
        parts: list[Part] = []
        for test in conjunction.constraints:
            if isinstance(test, Quantified):
                return None
            if not isinstance(test, Constraint) or test.operator in PRESENCE:
                parts.append(test)
                continue
            name, operator, value = test
            if operator in SETS:
                places = {item: slot_of(item) for item in sorted(value)}
                rest = frozenset([item for item, place in places.items() if place is None])
                filled = tuple(sorted([place for place in places.values() if place is not None]))
                parts.append(Hole(name, operator, filled, rest))
            else:
                place = slot_of(value)
                parts.append(Hole(name, operator, *(((), value) if place is None else ((place,), None))))
        found.append(parts)
    return (list(slots), found) if {slot.at for slot in slots} == set(range(len(marks))) else None


_ENCODERS: Final[dict[type, Callable[[Any], str]]] = {
    int: repr,
    str: encode_basestring,
    Timestamp: lambda value: f'{{"us":{int(value)}}}',
}
