"""SQL conditions, as in JMS message selectors (normative text: `docs/predicates.md`).

The grammar is that of the page, and no other text is accepted. The parser of an SQL library accepts the
syntax of some dialect, and more in each release; other constructs than those of the page would become
unintended subscriptions.

::

    condition = conjunction {"OR" conjunction}
    conjunction = factor {"AND" factor}
    factor  = "NOT" factor | "(" condition ")" | "TRUE" | "FALSE" | attribute | test
            | ("ANY" | "ALL" | "NONE") factor
    test    = sum ("=" | "<>" | "<" | "<=" | ">" | ">=") sum
            | sum ["NOT"] "BETWEEN" sum "AND" sum
            | sum ["NOT"] "IN" "(" [sum {"," sum}] ")"
            | sum ["NOT"] "LIKE" sum ["ESCAPE" text]
            | sum "IS" ["NOT"] ("NULL" | "MISSING")
            | function "(" sum "," sum ")"
    sum     = product {("+" | "-") product}
    product = signed {("*" | "/") signed}
    signed  = {"+" | "-"} operand
    operand = "(" sum ")" | attribute | number | text | "TRUE" | "FALSE" | ("DATE" | "TIMESTAMP") text
            | ("LOWER" | "UPPER") "(" sum ")" | "DISTANCE_KM" "(" sum "," sum "," sum "," sum ")" | moment
    moment  = ("NOW" "(" ")" | "CURRENT_TIMESTAMP") {("+" | "-") "INTERVAL" text [unit]}
    attribute = name {"." name}

NOT is pushed down to the constraints (De Morgan), so that the result is a disjunction of conjunctions.
Expressions without attributes are computed at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, cast

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import shown
from rtfilter.events.encoding import READERS, Timestamp, microseconds
from rtfilter.events.fields import PHRASES
from rtfilter.events.moments import EXAMPLE, why_no_moment
from rtfilter.events.schema import Schema
from rtfilter.predicates.language.sql_words import SUPPORTED, Word, number_of, words_of
from rtfilter.predicates.model.combine import (
    ALWAYS,
    MAX_DEPTH,
    NOTHING,
    Filters,
    all_of,
    any_element,
    any_of,
    compared,
    no_element,
    one,
)
from rtfilter.predicates.model.comparison import EXCHANGED, RELATIONS
from rtfilter.predicates.model.constraints import NEGATED
from rtfilter.predicates.operands.expressions import (
    Distance,
    Number,
    Operand,
    Operation,
    calculate,
    is_finite,
    quoted,
    written,
)
from rtfilter.predicates.operands.intervals import Now, interval
from rtfilter.predicates.operands.like import canonical_like
from rtfilter.predicates.operands.text_comparison import fold
from rtfilter.predicates.operands.text_operators import FUNCTIONS, TEXT_OPERATORS

MAX_LENGTH: Final = 65_536
"""Most characters of a condition."""

_ARITHMETIC: Final = frozenset("+-*/")
_SIMPLE: Final = frozenset(("name", "number", "text"))
_STATEMENT: Final = re.compile(
    r"\s*(select|where)\b(?!\s*(?:[=<>!.)]|(?:is|(?:not\s+)?(?:in|like|between))\b))", re.IGNORECASE
)
"""The beginning of a statement, which no constraint of an attribute with this name has."""
_TESTS: Final = frozenset(("BETWEEN", "IN", "IS", "LIKE", "NOT"))
"""The keywords that follow an operand."""
_FOLLOWING: Final = {"keyword": ("AND", "OR"), "symbol": (")",)}
"""Words that may follow a constraint."""
_QUANTIFIERS: Final = frozenset(("ANY", "ALL", "NONE"))
_TRUTHS: Final = {"TRUE": True, "FALSE": False}
_MOMENTS: Final = frozenset(("DATE", "TIMESTAMP"))
_CASES: Final[dict[str, Callable[[str], str]]] = {"LOWER": str.lower, "UPPER": str.upper}
"""Functions that convert to one case of letters."""
_CASELESS: Final = {"=": "ignore case", "<>": "not ignore case", "like": "like ignore case"}
"""Each comparison of the results of these functions, and its operator."""


def parse_sql(source: str, schema: Schema) -> Filters:
    """Return the filters that an SQL condition describes.

    Raises `PredicateError`: the text is no SQL condition, not supported, not in the schema, or too large; the
    message shows the place.
    """
    if len(source) > MAX_LENGTH:
        raise PredicateError(f"the condition has {len(source)} characters; at most {MAX_LENGTH} are allowed")
    if source.lstrip().startswith("{"):
        raise PredicateError("text is read as SQL; pass an event pattern as a mapping: json.loads(text)")
    reader = None
    try:
        words = words_of(source)
        if len(words) == 1:
            raise PredicateError("the condition is empty; write TRUE to match every event")
        reader = _SqlReader(source, words, schema)
        return reader.filters()
    except PredicateError as error:
        if reader is not None and error.position is None:
            error.source, error.position = source, reader.place
        start = _STATEMENT.match(source)
        if start is None or start[1] in schema.attributes:
            raise
        raise PredicateError(
            "write only the condition that follows WHERE, not SELECT or WHERE itself", source, start.start(1)
        ) from None
    except RecursionError:
        raise PredicateError("the condition is nested too deeply; use fewer parentheses and NOTs") from None


class _Operand(NamedTuple):
    """A side of a constraint: an attribute, a constant, or arithmetic."""

    place: int
    name: str | None
    value: Any = None
    is_quoted: bool = False
    operation: Operation | Distance | None = None
    case: str | None = None
    """The function around the attribute, a key of `_CASES`."""

    @property
    def is_constant(self) -> bool:
        return self.name is None and self.operation is None

    @property
    def operand(self) -> Operand:
        """The operand for arithmetic and comparisons."""
        return cast(Operand, self.operation or self.name or self.value)


class _SqlReader:
    """Reads words from left to right; ``negated`` means an odd number of NOTs around the words.

    Attributes
    ----------
    place : int
        The offset to which errors of other modules refer.
    """

    def __init__(self, source: str, words: list[Word], schema: Schema) -> None:
        self.source, self.words, self.schema = source, words, schema
        self.at = self.place = 0

    def filters(self) -> Filters:
        """Return the filters of the whole condition."""
        found = self._condition(False, 0)
        if self.word.kind != "end":
            self._unexpected()
        return found

    # -- conditions ------------------------------------------------------------------------------------

    def _condition(self, negated: bool, depth: int) -> Filters:
        start, parts = self.word.start, [self._conjunction(negated, depth)]
        while self._skip("OR"):
            parts.append(self._conjunction(negated, depth))
        self.place = start
        return all_of(parts) if negated else any_of(parts)

    def _conjunction(self, negated: bool, depth: int) -> Filters:
        start, parts = self.word.start, [self._factor(negated, depth)]
        while self._skip("AND"):
            parts.append(self._factor(negated, depth))
        self.place = start
        return any_of(parts) if negated else all_of(parts)

    def _factor(self, negated: bool, depth: int) -> Filters:
        word = self.word
        if self._skip("NOT"):
            return self._factor(not negated, self._deeper(depth, word))
        if self._is_symbol("(") and not self._has_operand():
            self.at += 1
            found = self._condition(negated, self._deeper(depth, word))
            self._close(word)
            return found
        if word.kind == "keyword" and word.text in _TRUTHS and not self._compares(self.at + 1):
            self.at += 1
            return ALWAYS if _TRUTHS[word.text] is not negated else NOTHING
        if self._is_quantifier():
            return self._quantified(negated, depth)
        return self._test(negated, depth)

    def _is_quantifier(self) -> bool:
        """Return whether a quantifier is next; an attribute of that name has no operand behind it."""
        if self._plain(self.at) not in _QUANTIFIERS:
            return False
        kind, text, *_ = self.words[self.at + 1]
        if kind == "keyword" and text == "NOT":
            return self.words[self.at + 2].text not in _TESTS
        return kind in _SIMPLE or (kind, text) == ("symbol", "(") or text in ("TRUE", "FALSE")

    def _quantified(self, negated: bool, depth: int) -> Filters:
        """Read a quantified constraint; ``ALL`` means that no element satisfies the complement."""
        word, self.at = self.word, self.at + 1
        quantifier = word.text.upper()
        found = self._factor(quantifier == "ALL", self._deeper(depth, word))
        self.place = word.start
        return no_element(self.schema, found) if (quantifier == "ANY") is negated else any_element(found)

    def _has_operand(self) -> bool:
        """Return whether the parenthesis here encloses a side of a constraint instead of a condition."""
        depth = 0
        for at in range(self.at, len(self.words)):
            kind, text, *_ = self.words[at]
            if kind == "symbol":
                depth += (text == "(") - (text == ")")
                if not depth:
                    return self._compares(at + 1)
                if depth > MAX_DEPTH:  # refused, whatever is inside
                    break
        return False

    def _compares(self, place: int) -> bool:
        word = self.words[place]
        if word.kind == "symbol":
            return word.text in RELATIONS or word.text in _ARITHMETIC
        return word.kind == "keyword" and word.text in _TESTS

    def _test(self, negated: bool, depth: int) -> Filters:
        word = self.word
        if word.kind == "name":
            found = self._plain_comparison(word, negated)
            if found is not None:
                return found
        if self._plain(self.at) in FUNCTIONS and self.words[self.at + 1][:2] == ("symbol", "("):
            return self._function(negated, depth)
        left, word = self._operand(depth), self.word
        if word.kind == "symbol" and word.text in RELATIONS:
            return self._comparison(left, negated, depth)
        if self._skip("IS"):
            wants_null = not self._skip("NOT")
            if self._plain(self.at) == "MISSING":
                left = left._replace(name=self.schema.nulls.get(left.name or "", left.name))
                self.at += 1
            elif not self._skip("NULL"):
                self._fail(
                    "IS is supported as IS [NOT] NULL and IS [NOT] MISSING only; write = TRUE or = FALSE",
                    word.start,
                )
            return self._one(left, "is null", None, negated is wants_null, left.place)
        negated ^= self._skip("NOT")
        if self._skip("BETWEEN"):
            low = self._other(depth)
            if not self._skip("AND"):
                self._unexpected()
            ends = [(">=", low), ("<=", self._other(depth))]
            parts = [self._compared(left, operator, end, negated) for operator, end in ends]
            return any_of(parts) if negated else all_of(parts)
        if self._skip("IN"):
            return self._set(left, negated, depth)
        if self._skip("LIKE"):
            return self._like(left, negated, depth)
        if word.kind == "end" or word.text in _FOLLOWING.get(word.kind, ()):
            return self._alone(left, negated)
        if left.name is not None and left.name not in self.schema.attributes and not left.is_quoted:
            self._fail(f"{left.name.upper()} is not supported; {SUPPORTED}", left.place)
        self._unexpected()

    def _plain_comparison(self, name: Word, negated: bool) -> Filters | None:
        """Read the comparison of an attribute with one number or text, the usual case.

        Returns None, and reads nothing, if the condition may be longer or wrong.
        """
        at, words = self.at, self.words
        kind, operator, *_ = words[at + 1]
        if kind != "symbol" or operator not in RELATIONS:
            return None
        kind, text, place, _ = words[at + 2]
        if kind != "number" and kind != "text":
            return None
        following = words[at + 3]
        if following.kind != "end" and following.text not in _FOLLOWING.get(following.kind, ()):
            return None
        self.at = at + 3
        value = number_of(text) if kind == "number" else text
        self.place = place if name.text in self.schema.attributes else name.start
        return one(self.schema, name.text, NEGATED[operator] if negated else operator, value)

    def _alone(self, operand: _Operand, negated: bool) -> Filters:
        if operand.name is None:
            what = "a constant" if operand.is_constant else "arithmetic"
            self._fail(f"{what} alone is not a condition; {SUPPORTED}", operand.place)
        if operand.name in self.schema.attributes and self.schema.attributes[operand.name].type is not bool:
            self._fail(
                f"an attribute alone is a condition only if it is a boolean, and {operand.name!r} is "
                f"{PHRASES[self.schema.attributes[operand.name].family]}; compare it with something, or "
                f"write {written(operand.name)} IS NOT NULL",
                operand.place,
            )
        return self._one(operand, "=", True, negated, operand.place)

    def _comparison(self, left: _Operand, negated: bool, depth: int) -> Filters:
        operator = self.word.text
        self.at += 1
        right = self._operand(depth) if left.is_constant else self._other(depth)
        if self._compares(self.at):
            self._fail(f"a comparison of a comparison is not supported; {SUPPORTED}", self.word.start)
        return self._compared(left, operator, right, negated)

    def _compared(self, left: _Operand, operator: str, right: _Operand, negated: bool) -> Filters:
        if left.is_constant:
            if right.is_constant:
                for side in (left, right):
                    if isinstance(side.value, Now):
                        self._fail("NOW() can only be compared with an attribute", side.place)
                return self._decided(left, operator, right, negated)
            left, right, operator = right, left, EXCHANGED[operator]
        if not right.is_constant:
            for side in (left, right):
                if side.case is not None:
                    self._fail(f"{side.case} is compared with constants only", side.place)
        if right.is_constant and left.name is not None:
            return self._one(left, operator, right.value, negated, right.place)
        if right.is_constant:
            self._number_of(right, "a comparison with arithmetic")
        at_left = left.name is not None and left.name not in self.schema.attributes
        self.place = (left if at_left else right).place
        return compared(self.schema, left.operand, NEGATED[operator] if negated else operator, right.operand)

    def _decided(self, left: _Operand, operator: str, right: _Operand, negated: bool) -> Filters:
        """Compare two constants."""
        for side in (left, right):
            if isinstance(side.value, int | float) and not is_finite(side.value):
                self._fail("this number is beyond float64", side.place)
        readers = [READERS[type(side.value)] for side in (left, right)]
        if readers[0] is not readers[1]:
            values = f"{shown(left.value)} and {shown(right.value)}"
            self._fail(f"the constants {values} are of different types and cannot be compared", left.place)
        if isinstance(left.value, bool) and operator not in ("=", "<>"):
            self._fail(f"booleans have no order; use = or <>, not {operator}", left.place)
        found = RELATIONS[operator](left.value, right.value)
        return ALWAYS if found is not negated else NOTHING

    def _set(self, left: _Operand, negated: bool, depth: int) -> Filters:
        opening = self.word
        if not self._skip("("):
            self._fail("IN needs a list of constants in parentheses", opening.start)
        values: list[Any] = []
        parts: list[Filters] = []
        more = not self._is_symbol(")")
        while more:
            item = self._operand(depth) if left.is_constant else self._other(depth)
            part = self._compared(left, "=", item, negated)  # shows the item of a wrong type
            if left.name is not None and item.is_constant and not isinstance(item.value, Now):
                values.append(item.value)
            else:
                parts.append(part)
            more = self._skip(",")
        self._close(opening)
        if left.name is None and not parts:
            self._fail("IN with an empty list needs an attribute before it", left.place)
        if values or not parts:
            parts.append(self._one(left, "in", values, negated, left.place))
        self.place = left.place
        return all_of(parts) if negated else any_of(parts)

    def _like(self, left: _Operand, negated: bool, depth: int) -> Filters:
        pattern, escape = self._operand(depth), "\\"
        if not isinstance(pattern.value, str):
            self._fail("LIKE needs a string constant", pattern.place)
        if self._plain(self.at) == "ESCAPE":
            given = self.words[self.at + 1]
            if given.kind != "text" or len(given.text) != 1:
                self._fail("ESCAPE needs a string of one character", given.start)
            escape = given.text
            self.at += 2
        self.place = pattern.place
        text = canonical_like(pattern.value, escape)
        if left.case is None and "\\" not in text and "_" not in text and "%" not in text[:-1]:
            is_prefix = text.endswith("%")  # the usual case
            return self._one(
                left, "prefix" if is_prefix else "=", text.removesuffix("%"), negated, pattern.place
            )
        return self._one(left, "like", text, negated, pattern.place)

    def _function(self, negated: bool, depth: int) -> Filters:
        """Read ``NAME(attribute, 'constant')``."""
        word, self.at = self.word, self.at + 1
        operator = FUNCTIONS[word.text.upper()]
        function = TEXT_OPERATORS[operator].function
        assert function is not None
        usage = f"write {function.name}(attribute, '{function.example}')"
        given = self._arguments(word, depth, usage)
        if len(given) != 2 or given[0].name is None or given[0].case is not None:
            self._fail(usage, word.start)
        left, constant = given[0], self._known(given[1])
        if not constant.is_constant:
            takes = f"{function.takes} in single quotes, such as '{function.example}'"
            self._fail(f"{function.name} needs {takes}", constant.place)
        return self._one(left, operator, constant.value, negated, constant.place)

    def _one(self, left: _Operand, operator: str, value: Any, negated: bool, place: int) -> Filters:
        if left.name is None:
            what = "a constant" if left.is_constant else "arithmetic"
            self._fail(f"expected an attribute here, not {what}", left.place)
        if left.case is not None:
            return self._caseless(left, operator, value, negated, place)
        self.place = place if left.name in self.schema.attributes else left.place
        return one(self.schema, left.name, NEGATED[operator] if negated else operator, value)

    def _caseless(self, left: _Operand, operator: str, value: Any, negated: bool, place: int) -> Filters:
        """Return a constraint on the result of LOWER or UPPER of an attribute."""
        case, left = left.case, left._replace(case=None)
        if operator == "is null" or (operator == "in" and not value):
            return self._one(left, operator, value, negated, place)
        if operator == "in":
            parts = [self._caseless(left._replace(case=case), "=", item, negated, place) for item in value]
            return all_of(parts) if negated else any_of(parts)
        if operator not in _CASELESS:
            self._fail(f"{case} is supported with =, <>, IN and LIKE only", left.place)
        if case is not None and isinstance(value, str) and value not in (_CASES[case](value), fold(value)):
            hint = f"; write {shown(_CASES[case](value))}"
            self._fail(f"{case} never returns {shown(value)}{hint}", place)
        return self._one(left, _CASELESS[operator], value, negated, place)

    # -- operands --------------------------------------------------------------------------------------

    def _operand(self, depth: int) -> _Operand:
        start = self.at
        if self.word.kind in _SIMPLE:  # mostly there is no arithmetic: then this is all
            found = self._atom(depth)
            if self.word.kind != "symbol" or self.word.text not in _ARITHMETIC:
                return found
            self.at = start
        return self._sum(depth)

    def _sum(self, depth: int) -> _Operand:
        found = self._product(depth)
        while self._is_symbol("+") or self._is_symbol("-"):
            word, self.at = self.word, self.at + 1
            found = self._calculated(found, word, self._product(depth))
        return found

    def _product(self, depth: int) -> _Operand:
        found = self._signed(depth)
        while self._is_symbol("*") or self._is_symbol("/"):
            word, self.at = self.word, self.at + 1
            found = self._calculated(found, word, self._signed(depth))
        return found

    def _calculated(self, left: _Operand, word: Word, right: _Operand) -> _Operand:
        """Return one operation, or its result if that is a constant."""
        sides = [self._number_of(side, f"arithmetic ({word.text})") for side in (left, right)]
        if left.is_constant and right.is_constant:
            result = calculate(word.text, cast(Number, sides[0]), cast(Number, sides[1]))
            if result is None:
                self._fail("a division by zero has no result", word.start)
            if not is_finite(result):
                self._fail("the result of this is beyond float64", word.start)
            return _Operand(left.place, None, result)
        self.place = word.start
        return _Operand(left.place, None, operation=Operation(word.text, *sides))

    def _number_of(self, found: _Operand, what: str) -> Operand:
        """Return an operand of arithmetic. Errors show the place."""
        if found.is_constant:
            if isinstance(found.value, Now):
                self._fail("only an interval can be added to NOW(): NOW() - INTERVAL '1 hour'", found.place)
            if type(found.value) not in (int, float):
                self._fail(f"{what} needs numbers, not {shown(found.value)}", found.place)
            if not is_finite(found.value):
                self._fail("this number is beyond float64", found.place)
        elif found.case is not None:
            self._fail(f"{what} needs numbers, and {found.case} returns text", found.place)
        elif found.name is not None:
            self.place = found.place
            family = self.schema.attribute(found.name).family
            if family != "number":
                self._fail(f"{what} needs numbers, and {found.name!r} is {PHRASES[family]}", found.place)
        return found.operand

    def _signed(self, depth: int) -> _Operand:
        word, minus, signs = self.word, False, 0
        while self._is_symbol("-") or self._is_symbol("+"):
            minus ^= self.word.text == "-"
            signs += 1
            self.at += 1
        if signs > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} signs in a row", word.start)
        found = self._atom(depth)
        if signs:
            self._number_of(found, "a minus sign" if word.text == "-" else "a plus sign")
            if found.is_constant:
                return _Operand(word.start, None, -found.value if minus else found.value)
            if minus:
                return self._calculated(_Operand(word.start, None, 0), word, found)
            return found._replace(place=word.start)
        return found

    def _atom(self, depth: int) -> _Operand:
        word = self.word
        if self._skip("("):
            found = self._operand(self._deeper(depth, word))._replace(place=word.start)
            self._close(word)
            return found
        if word.kind == "name":
            return self._named(depth)
        if word.kind == "number":
            value: Any = number_of(word.text)
        elif word.kind == "text":
            value = word.text
        elif word.kind == "keyword" and word.text in _TRUTHS:
            value = _TRUTHS[word.text]
        elif word.kind == "keyword" and word.text == "NULL":
            self._fail("a comparison with NULL is never true; use IS NULL or IS NOT NULL", word.start)
        else:
            self._unexpected()
        self.at += 1
        return _Operand(word.start, None, value)

    def _named(self, depth: int) -> _Operand:
        """Read an operand that begins with a name: an attribute, a time, or the result of a function."""
        word, self.at = self.word, self.at + 1
        name = word.text.upper()
        if not word.quoted:
            is_now = name == "CURRENT_TIMESTAMP" and word.text not in self.schema.attributes
            if is_now or (name == "NOW" and self._is_symbol("(")):
                return _Operand(word.start, None, self._moment(name))
            if name in _MOMENTS and self.word.kind == "text":
                found = microseconds(self.word.text)
                if found is None:
                    why = why_no_moment(self.word.text)
                    self._fail(f"not an ISO 8601 timestamp, such as {EXAMPLE}: {why}", self.word.start)
                self.at += 1
                return _Operand(word.start, None, Timestamp(found))
        if self._is_symbol("("):
            if name in _CASES and not word.quoted:
                return self._cased(word, depth)
            if name == "DISTANCE_KM" and not word.quoted:
                return self._distance(word, depth)
            if name in FUNCTIONS and not word.quoted:
                self._fail(
                    f"{name}(...) is a condition of its own; write it without a comparison", word.start
                )
            more = f"write {name} tags = 'a'" if name in _QUANTIFIERS else SUPPORTED
            self._fail(f"the function {name} is not supported; {more}", word.start)
        parts = [word]
        while self._skip("."):
            if self.word.kind != "name":
                self._unexpected()
            parts.append(self.word)
            self.at += 1
        whole = ".".join(part.text for part in parts)
        return _Operand(word.start, whole, is_quoted=any(part.quoted for part in parts))

    def _moment(self, name: str) -> Now:
        """Read the words after ``NOW`` or ``CURRENT_TIMESTAMP``: parentheses and intervals."""
        if name == "NOW":
            opening = self.word
            self.at += 1
            self._close(opening)
        offset = 0
        while (
            self.word.text in ("+", "-")
            and self._plain(self.at + 1) == "INTERVAL"
            and self.words[self.at + 2].kind == "text"
        ):
            sign, at = -1 if self.word.text == "-" else 1, self.at + 2
            given, unit = self.words[at], self.words[at + 1]
            self.at = at + 1
            text = given.text
            if unit.kind == "name":
                text, self.at = f"{text} {unit.text}", at + 2
            self.place = given.start
            offset += sign * interval(text)
        return Now(offset)

    def _arguments(self, word: Word, depth: int, usage: str = "") -> list[_Operand]:
        """Read the operands in the parentheses after a function's name."""
        opening, self.at = self.word, self.at + 1
        depth = self._deeper(depth, word)
        found = [self._operand(depth)]
        while self._skip(","):
            found.append(self._operand(depth))
        if usage and self.word.kind != "end" and not self._is_symbol(")"):
            self._fail(usage, word.start)
        self._close(opening)
        return found

    def _distance(self, word: Word, depth: int) -> _Operand:
        usage = "write DISTANCE_KM(latitude, longitude, 48.8584, 2.2945), in degrees"
        given = self._arguments(word, depth, usage)
        if [side.name is not None for side in given] != [True, True, False, False] or not all(
            side.is_constant for side in given[2:]
        ):
            self._fail(usage, word.start)
        for side in given:
            self._number_of(side, "DISTANCE_KM")
        latitude, longitude, north, east = given
        self.place = north.place
        found = Distance(str(latitude.name), str(longitude.name), north.value, east.value)
        return _Operand(word.start, None, operation=found)

    def _cased(self, word: Word, depth: int) -> _Operand:
        case = word.text.upper()
        found, *more = self._arguments(word, depth)
        if found.name is None or found.case is not None or more:
            self._fail(f"{case} needs an attribute", found.place)
        return found._replace(place=word.start, case=case)

    def _other(self, depth: int) -> _Operand:
        """Read the other side of a constraint of an attribute: mostly a constant."""
        return self._known(self._operand(depth))

    def _known(self, found: _Operand) -> _Operand:
        """Return an operand, unless it is an unknown name: mostly text without quotes."""
        if found.name is None or found.name in self.schema.attributes:
            return found
        hint = "put text in single quotes"
        try:
            self.schema.attribute(found.name)
        except PredicateError as error:
            near = error.message.partition("; did you mean ")[2]
            hint = f"did you mean {near}" if near and not found.is_quoted else hint
        if found.name.upper() in ("NOW", "INTERVAL"):
            hint = "write NOW() first, as in at > NOW() - INTERVAL '1 hour'"
        self._fail(f"expected a constant, not {shown(found.name)}; {hint}", found.place)

    # -- words -----------------------------------------------------------------------------------------

    @property
    def word(self) -> Word:
        """The next word."""
        return self.words[self.at]

    def _is_symbol(self, text: str) -> bool:
        word = self.words[self.at]
        return word.kind == "symbol" and word.text == text

    def _plain(self, at: int) -> str:
        """Return a word in capitals; empty unless it is a name without quotes."""
        word = self.words[at]
        return word.text.upper() if word.kind == "name" and not word.quoted else ""

    def _skip(self, text: str) -> bool:
        """Read a keyword or a symbol if it is next, and return whether it was."""
        word = self.words[self.at]
        found = word.text == text and word.kind in ("keyword", "symbol")
        self.at += found
        return found

    def _close(self, opening: Word) -> None:
        if self.word.kind == "end":
            self._fail("not an SQL condition: this parenthesis is not closed", opening.start)
        if not self._skip(")"):
            self._unexpected()

    def _deeper(self, depth: int, word: Word) -> int:
        if depth == MAX_DEPTH:
            self._fail(f"parentheses and NOTs are nested deeper than {MAX_DEPTH} levels", word.start)
        return depth + 1

    def _unexpected(self) -> NoReturn:
        word = self.word
        if word.kind == "end":
            self._fail("not an SQL condition: something is missing here", word.start)
        written_as = self.source[word.start : word.start + len(word.text)]
        if word.kind == "keyword" and written_as in self.schema.attributes:
            hint = f"; put the name into double quotes, {quoted(written_as)}"
        elif word.kind == "name" and not word.quoted and word.text not in self.schema.attributes:
            self._fail(f"{word.text.upper()} is not supported; {SUPPORTED}", word.start)
        else:
            hint = ""
        self._fail(f"not an SQL condition: this is unexpected{hint}", word.start)

    def _fail(self, message: str, place: int) -> NoReturn:
        raise PredicateError(message, self.source, place)
