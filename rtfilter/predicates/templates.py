"""Templates: conditions that differ in constants only are read once, and then filled with others.

A text is cut at its constants; what is left tells the template. The condition is parsed twice with constants
that occur nowhere else. Where each of these stands in the predicate, and all else is the same in both, other
constants will stand there too. What is decided by the value of a constant is not filled but parsed:
operations on constants, patterns other than a beginning, equal tests, and whatever is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from json.encoder import encode_basestring
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import Timestamp, microseconds
from rtfilter.events.schema import Schema
from rtfilter.predicates.model import FORMS, PRESENCE, SETS, Constraint, Filter, Predicate, Quantified, Test
from rtfilter.predicates.sql import MAX_LENGTH, parse_sql
from rtfilter.predicates.store import as_bytes, encoded_test

_TEXT: Final = r"'(?:[^']|'')*+'"
_NUMBER: Final = r"(?<![\w.])(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![\w.])"
_CONSTANT: Final = re.compile(f"({_TEXT}|{_NUMBER})")
"""Constants where no name is in double quotes; numbers in other forms are no constants of a template."""
_CONSTANT_OR_NAME: Final = re.compile(f'("(?:[^"]|"")*+"|{_TEXT}|{_NUMBER})')
_LIKE: Final = re.compile(r"\blike[\s(]*$", re.IGNORECASE)
_LONGEST: Final = 300
"""Most characters of a number that is surely within float64, or infinite."""

Key = tuple[object, ...]
"""What the conditions of one template have in common."""
Row = Sequence[Any] | Mapping[int, Any]
"""The values of the constants of one condition."""


def cut_at_constants(source: str) -> tuple[Key, list[str]] | None:
    """Return the template of a condition, and its constants as they are written; None where it has none."""
    if "--" in source or "/*" in source or len(source) > MAX_LENGTH:
        return None
    named = '"' in source
    pieces = _without_names(_CONSTANT_OR_NAME.split(source)) if named else _CONSTANT.split(source)
    constants = pieces[1::2]
    if "'" in source:
        return (*pieces[::2], *[constant[0] == "'" for constant in constants]), constants
    return tuple(pieces[::2]), constants


def _without_names(pieces: list[str]) -> list[str]:
    """Pieces of which those in double quotes are no constants."""
    found = pieces[:1]
    for constant, following in zip(pieces[1::2], pieces[2::2], strict=True):
        if constant[0] == '"':
            found[-1] += constant + following
        else:
            found += [constant, following]
    return found


class Slot(NamedTuple):
    """Where a constant of the text stands in the predicate, and how it is read there."""

    at: int
    """Its place among the constants."""
    read: Callable[[str], Any]
    """What it is in the predicate; None where the condition has to be parsed."""
    encode: Callable[[Any], str]
    """Its JSON."""


class Hole(NamedTuple):
    """A test of a template: its constant, its slot, or a set of both."""

    attribute: str
    operator: str
    slots: tuple[int, ...]
    """Columns of values that make the constant; none where it is `value`."""
    value: Any

    def constraint(self, row: Row) -> Constraint:
        """The constraint of one condition."""
        return tuple.__new__(Constraint, (self.attribute, self.operator, self.constant(row)))

    def constant(self, row: Row) -> Any:
        """Its constant."""
        if self.operator in SETS and self.slots:
            return self.value.union([row[at] for at in self.slots])
        return row[self.slots[0]] if self.slots else self.value

    def is_smaller(self, row: Row) -> bool:
        """Whether its set has equal elements: then their order tells which one stays, 0 or 0.0."""
        return len(self.constant(row)) < len(self.value) + len(self.slots)


Part: TypeAlias = Hole | Test
"""A test of a template; what is no `Hole` is the same in all conditions."""


class Template:
    """A condition without its constants.

    Attributes
    ----------
    slots : list of Slot
        The columns of values that `columns` reads.
    filters : list of list of Part
        The tests, as the predicate has them.
    """

    def __init__(self, slots: list[Slot], filters: list[list[Part]], schema: Schema) -> None:
        self.slots, self.filters, self._schema = slots, filters, schema
        # Tests that may be equal, of which the predicate then has only one; the same of filters.
        self._twins = [pair for tests in filters for pair in _alike([[part] for part in tests])]
        self._twins += _alike(filters)
        parts = [part for tests in filters for part in tests if isinstance(part, Hole)]
        self._sets = [part for part in parts if part.operator in SETS and part.slots]
        self._format = self._as_format()

    @classmethod
    def learn(cls, key: Key, constants: Sequence[str], schema: Schema) -> Template | None:
        """Return the template of a condition; None where it is none, or an error."""
        literals = [piece for piece in key if isinstance(piece, str)]
        try:
            first, second = (_marked(literals, constants, schema, year) for year in (2001, 2002))
        except PredicateError:
            return None
        if first is None or first != second:
            return None
        return cls(*first, schema)

    def columns(self, texts: Sequence[Sequence[str]]) -> list[list[Any]]:
        """Return the values of each slot, of n conditions; None where a condition has to be parsed.

        Parameters
        ----------
        texts : sequence of sequence of str
            The constants of each condition.
        """
        columns = list(zip(*texts, strict=True))
        return [[slot.read(text) for text in columns[slot.at]] for slot in self.slots]

    def repeating(self, columns: list[list[Any]]) -> list[bool] | None:
        """Which of n conditions have equal filters, tests or elements of a set; None for none."""
        if not (self._twins or self._sets):
            return None
        rows = zip(*columns, strict=True)
        return [any(one.is_smaller(row) for one in self._sets) or self._has_equal(row) for row in rows]

    def _has_equal(self, row: Row) -> bool:
        return any(_equal(*pair, row) for pair in self._twins)

    def predicate(self, row: Row) -> Predicate:
        """Return the predicate of one condition, which does not repeat anything."""
        filters = [
            Filter(tuple([part.constraint(row) if isinstance(part, Hole) else part for part in tests]))
            for tests in self.filters
        ]
        return Predicate.checked(tuple(filters), self._schema)

    def encoded(self, columns: list[list[Any]], count: int) -> list[bytes]:
        """Return the JSON texts of so many predicates, as `rtfilter.predicates.store.kept` has them."""
        written, holes = self._format
        if not holes:
            return [as_bytes(written % ())] * count
        texts = [self._texts(hole, columns) for hole in holes]
        return [as_bytes(written % row) for row in zip(*texts, strict=True)]

    def _texts(self, hole: Hole, columns: list[list[Any]]) -> Iterable[str]:
        """The JSON texts of the constant of one test, of all conditions."""
        encode = self.slots[hole.slots[0]].encode
        if hole.operator not in SETS:
            return map(encode, columns[hole.slots[0]])
        sets = (sorted(hole.constant(row)) for row in zip(*columns, strict=True))
        return (f"[{','.join(map(encode, items))}]" for items in sets)

    def _as_format(self) -> tuple[str, list[Hole]]:
        """The JSON text with a place for each constant, and the tests of these."""
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
    """Pairs of groups of tests that differ in constants only, if at all."""
    shapes = [[part[:2] if isinstance(part, Hole) else part for part in group] for group in groups]
    pairs = ((one, two) for two in range(len(groups)) for one in range(two))
    return [(groups[one], groups[two]) for one, two in pairs if shapes[one] == shapes[two]]


def _equal(one: list[Part], two: list[Part], row: Row) -> bool:
    pairs = zip(one, two, strict=True)
    return all(
        isinstance(a, Hole) and isinstance(b, Hole) and a.constant(row) == b.constant(row) for a, b in pairs
    )


# -- learning ----------------------------------------------------------------------------------------------


def _marked(
    literals: Sequence[str], constants: Sequence[str], schema: Schema, year: int
) -> tuple[list[Slot], list[list[Part]]] | None:
    """Parse a condition with marks in the place of its constants, and find these.

    Returns its slots and its filters; None where a mark is not found, or the values decide.

    Raises
    ------
    PredicateError
        Not a condition, or none with such constants.
    """
    pieces, starts = [literals[0]], set()
    numbers: dict[int, int] = {}
    moments: dict[Any, int] = {}
    for at, constant in enumerate(constants):
        if constant[0] == "'":
            # A moment, as it is text wherever that is asked for.
            mark = f"{year}-01-02T03:04:05.{at:06}"
            moments[mark] = moments[microseconds(mark)] = at
            if _LIKE.search(literals[at]):
                starts.add(at)
                mark += "%"
            pieces.append(f"'{mark}'")
        else:
            number = year * 1_000_000_007 + at * 7_368_787
            numbers[number] = at
            pieces.append(str(number))
        pieces.append(literals[at + 1])
    marks = _Marks(numbers, moments, starts)
    filters: list[list[Part]] = []
    for tests in parse_sql("".join(pieces), schema):
        parts = [marks.part(test) for test in tests.constraints]
        filters.append([part for part in parts if part is not None])
        if len(filters[-1]) < len(parts):
            return None
    return (marks.slots, filters) if marks.found == set(range(len(constants))) else None


class _Marks:
    """Which constant each mark stands for; `slots` are those that were found."""

    def __init__(self, numbers: dict[int, int], moments: dict[Any, int], starts: set[int]) -> None:
        self._numbers, self._moments, self._starts = numbers, moments, starts
        self.slots: list[Slot] = []
        self.found: set[int] = set()

    def part(self, test: Test) -> Part | None:
        """What a test is in the template; None where its constants have forms of their own."""
        if isinstance(test, Quantified):
            return None
        if not isinstance(test, Constraint) or test.operator in PRESENCE:
            return test
        name, operator, value = test
        if operator not in SETS:
            slot = self._slot(value, operator)
            if slot is not None and operator in FORMS:
                return None
            return Hole(name, operator, () if slot is None else (slot,), value if slot is None else None)
        slots = [(item, self._slot(item, operator)) for item in sorted(value)]
        rest = frozenset([item for item, slot in slots if slot is None])
        return Hole(name, operator, tuple(sorted(slot for _, slot in slots if slot is not None)), rest)

    def _slot(self, value: Any, operator: str) -> int | None:
        """The column of a value; None for one that is no mark."""
        kind = type(value)
        if kind is int and abs(value) in self._numbers:
            at = self._numbers[abs(value)]
            slot = Slot(at, _number if value > 0 else _minus, repr)
        elif kind is Timestamp and int(value) in self._moments:
            at = self._moments[int(value)]
            slot = Slot(at, _moment, _encoded_moment)
        elif kind is str and value in self._moments:
            at = self._moments[value]
            is_start = operator in ("prefix", "not prefix")
            if is_start is not (at in self._starts):
                return None
            slot = Slot(at, _start if is_start else _text, encode_basestring)
        else:
            return None
        self.found.add(at)
        if slot not in self.slots:
            self.slots.append(slot)
        return self.slots.index(slot)


# -- constants, as the parser reads them; None where it has to look ------------------------------------------


def _number(text: str) -> int | float | None:
    if text.isdigit():
        return int(text) if len(text) < _LONGEST else None
    value = float(text)
    return value if value < inf else None


def _minus(text: str) -> int | float | None:
    value = _number(text)
    return None if value is None else -value


def _text(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _start(text: str) -> str | None:
    start = text[1:-2]
    if text[-2] != "%" or "%" in start or "_" in start or "\\" in start:
        return None
    return start.replace("''", "'")


def _moment(text: str) -> Timestamp | None:
    found = microseconds(_text(text))
    return None if found is None or abs(found) >= 2**63 else Timestamp(found)


def _encoded_moment(value: int) -> str:
    return f'{{"us":{int(value)}}}'
