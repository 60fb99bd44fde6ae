"""SQL conditions, as in JMS message selectors (normative text: `docs/predicates.md`).

The grammar is that of the page, and nothing else is read. The parser of an SQL library reads whatever some
dialect has, and each release more; what the page does not list would become a subscription that nobody meant.

::

    condition = conjunction {"OR" conjunction}
    conjunction = factor {"AND" factor}
    factor  = "NOT" factor | "(" condition ")" | "TRUE" | "FALSE" | test
    test    = operand ("=" | "<>" | "<" | "<=" | ">" | ">=") operand
            | operand ["NOT"] "BETWEEN" operand "AND" operand
            | operand ["NOT"] "IN" "(" [operand {"," operand}] ")"
            | operand ["NOT"] "LIKE" operand ["ESCAPE" text]
            | operand "IS" ["NOT"] "NULL"
            | "CIDR" "(" operand "," operand ")"
    operand = "(" operand ")" | name {"." name} | ("+" | {"-"}) number | text | "TRUE" | "FALSE"
            | ("DATE" | "TIMESTAMP") text | ("LOWER" | "UPPER") "(" operand ")"

NOT is pushed down to the constraints (De Morgan), so that the result is a disjunction of conjunctions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import Timestamp, microseconds
from rtfilter.events.schema import Schema
from rtfilter.predicates.combine import ALWAYS, MAX_DEPTH, NOTHING, Filters, all_of, any_of, one
from rtfilter.predicates.letters import fold
from rtfilter.predicates.like import canonical_like
from rtfilter.predicates.model import NEGATED
from rtfilter.predicates.names import quoted, written
from rtfilter.predicates.sql_words import SUPPORTED, Word, words_of
from rtfilter.text import shown

MAX_LENGTH: Final = 65_536
"""Longest condition, in characters."""

_COMPARISONS: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Each comparison, and the same one with its sides exchanged."""
_STATEMENT: Final = re.compile(
    r"\s*(select|where)\b(?!\s*(?:[=<>!.)]|(?:is|(?:not\s+)?(?:in|like|between))\b))", re.IGNORECASE
)
"""How a statement begins, and no test of an attribute of this name."""
_TESTS: Final = frozenset(("BETWEEN", "IN", "IS", "LIKE", "NOT"))
"""What else follows an operand."""
_MOMENTS: Final = frozenset(("DATE", "TIMESTAMP"))
_CASES: Final[dict[str, Callable[[str], str]]] = {"LOWER": str.lower, "UPPER": str.upper}
"""Functions that leave one case of letters, and which."""
_CASELESS: Final = {"=": "ignore case", "<>": "not ignore case", "like": "like ignore case"}
"""Each comparison of what these functions return, and the operator that it is."""


def parse_sql(source: str, schema: Schema) -> Filters:
    """Return the filters that an SQL condition describes.

    Raises
    ------
    PredicateError
        Not an SQL condition, not supported, not in the schema, or too large; shows the place.
    """
    if len(source) > MAX_LENGTH:
        raise PredicateError(f"the condition has {len(source)} characters; at most {MAX_LENGTH} are allowed")
    if source.lstrip().startswith("{"):
        raise PredicateError("text is read as SQL; pass an event pattern as a mapping: json.loads(text)")
    try:
        words = words_of(source)
        if len(words) == 1:
            raise PredicateError("the condition is empty; write TRUE to match every event")
        return _SqlReader(source, words, schema).filters()
    except PredicateError:
        start = _STATEMENT.match(source)
        if start is None or start[1] in schema.attributes:
            raise
        raise PredicateError(
            "write only the condition that follows WHERE, not SELECT or WHERE itself", source, start.start(1)
        ) from None
    except RecursionError:
        raise PredicateError("the condition is nested too deeply; use fewer parentheses and NOTs") from None


class _Operand(NamedTuple):
    """One side of a test: an attribute, or a constant."""

    place: int
    name: str | None
    value: Any = None
    is_quoted: bool = False
    case: str | None = None
    """The function around the attribute, a key of `_CASES`."""


class _SqlReader:
    """Reads words from left to right; ``negated``: what is read is under an odd number of NOTs."""

    def __init__(self, source: str, words: list[Word], schema: Schema) -> None:
        self.source, self.words, self.schema = source, words, schema
        self.at = 0
        self.closing = self._parentheses()

    def _parentheses(self) -> dict[int, int]:
        """Return the place of the parenthesis that closes each opening one."""
        closing: dict[int, int] = {}
        open_ones: list[int] = []
        for place, word in enumerate(self.words):
            if word.kind == "symbol" and word.text == "(":
                open_ones.append(place)
            elif word.kind == "symbol" and word.text == ")" and open_ones:
                closing[open_ones.pop()] = place
        return closing

    def filters(self) -> Filters:
        """Return the filters of the whole condition."""
        found = self._condition(False, 0)
        if self.word.kind != "end":
            self._unexpected()
        return found

    # -- conditions ------------------------------------------------------------------------------------

    def _condition(self, negated: bool, depth: int) -> Filters:
        return self._chain("OR", self._conjunction, any_of if not negated else all_of, negated, depth)

    def _conjunction(self, negated: bool, depth: int) -> Filters:
        return self._chain("AND", self._factor, all_of if not negated else any_of, negated, depth)

    def _chain(
        self,
        connective: str,
        part: Callable[[bool, int], Filters],
        join: Callable[[list[Filters]], Filters],
        negated: bool,
        depth: int,
    ) -> Filters:
        start = self.word.start
        parts = [part(negated, depth)]
        while self._skip(connective):
            parts.append(part(negated, depth))
        try:
            return join(parts)
        except PredicateError as error:
            error.source, error.position = self.source, start
            raise

    def _factor(self, negated: bool, depth: int) -> Filters:
        word = self.word
        if self._skip("NOT"):
            return self._factor(not negated, self._deeper(depth, word))
        if self._is_symbol("(") and not self._has_operand():
            self.at += 1
            found = self._condition(negated, self._deeper(depth, word))
            self._close(word)
            return found
        if word.kind == "keyword" and word.text in ("TRUE", "FALSE") and not self._compares(self.at + 1):
            self.at += 1
            return ALWAYS if (word.text == "TRUE") is not negated else NOTHING
        return self._test(negated, depth)

    def _has_operand(self) -> bool:
        """Whether the parenthesis here encloses a side of a test, not a condition."""
        end = self.closing.get(self.at)
        return end is not None and self._compares(end + 1)

    def _compares(self, place: int) -> bool:
        word = self.words[place]
        return word.text in (
            _COMPARISONS if word.kind == "symbol" else _TESTS if word.kind == "keyword" else ()
        )

    def _test(self, negated: bool, depth: int) -> Filters:
        if self._is_function("CIDR"):
            return self._network(negated, depth)
        left, word = self._operand(depth), self.word
        if word.kind == "symbol" and word.text in _COMPARISONS:
            return self._comparison(left, negated, depth)
        if self._skip("IS"):
            wants_null = not self._skip("NOT")
            if not self._skip("NULL"):
                self._fail(
                    "IS is supported as IS NULL and IS NOT NULL only; write = TRUE or = FALSE", word.start
                )
            return self._one(left, "is null", None, negated is wants_null, left.place)
        negated ^= self._skip("NOT")
        if self._skip("BETWEEN"):
            low = self._constant(depth)
            if not self._skip("AND"):
                self._unexpected()
            high = self._constant(depth)
            ends = [(">=", low), ("<=", high)]
            parts = [self._one(left, operator, end.value, negated, end.place) for operator, end in ends]
            return any_of(parts) if negated else all_of(parts)
        if self._skip("IN"):
            return self._set(left, negated, depth)
        if self._skip("LIKE"):
            return self._like(left, negated, depth)
        if word.kind == "end" or (word.kind, word.text) in (
            ("symbol", ")"),
            ("keyword", "AND"),
            ("keyword", "OR"),
        ):
            self._alone(left)
        if left.name is not None and left.name not in self.schema.attributes and not left.is_quoted:
            self._fail(f"{left.name.upper()} is not supported; {SUPPORTED}", left.place)
        self._unexpected()

    def _alone(self, operand: _Operand) -> NoReturn:
        if operand.name is None:
            self._fail(f"a constant alone is not a condition; {SUPPORTED}", operand.place)
        attribute = self.schema.attribute(operand.name)
        name = written(operand.name)
        hint = (
            f"write {name} = TRUE"
            if attribute.type is bool
            else f"compare it with a constant, or write {name} IS NOT NULL"
        )
        self._fail(f"an attribute alone is not a condition; {hint}", operand.place)

    def _comparison(self, left: _Operand, negated: bool, depth: int) -> Filters:
        operator = self.word.text
        self.at += 1
        right = self._operand(depth)
        if self._compares(self.at):
            self._fail(f"a comparison of a comparison is not supported; {SUPPORTED}", self.word.start)
        if left.name is None:
            if right.name is None:
                self._fail(
                    f"a comparison has an attribute on one side and a constant on the other; {SUPPORTED}",
                    left.place,
                )
            left, right, operator = right, left, _COMPARISONS[operator]
        self._require_constant(right)
        return self._one(left, operator, right.value, negated, right.place)

    def _set(self, left: _Operand, negated: bool, depth: int) -> Filters:
        opening = self.word
        if not self._pass("("):
            self._fail("IN needs a list of constants in parentheses", opening.start)
        values = []
        more = not self._is_symbol(")")
        while more:
            item = self._constant(depth)
            self._one(left, "=", item.value, False, item.place)  # shows which one is of a wrong type
            values.append(item.value)
            more = self._pass(",")
        self._close(opening)
        return self._one(left, "in", values, negated, left.place)

    def _like(self, left: _Operand, negated: bool, depth: int) -> Filters:
        pattern, escape = self._operand(depth), "\\"
        if not isinstance(pattern.value, str):
            self._fail("LIKE needs a string constant", pattern.place)
        word = self.word
        if word.kind == "name" and word.text.upper() == "ESCAPE" and not word.quoted:
            given = self.words[self.at + 1]
            if given.kind != "text" or len(given.text) != 1:
                self._fail("ESCAPE needs a string of one character", given.start)
            escape = given.text
            self.at += 2
        try:
            text = canonical_like(pattern.value, escape)
        except PredicateError as error:
            self._fail(error.message, pattern.place)
        if left.case is None and "\\" not in text and "_" not in text and "%" not in text[:-1]:
            is_prefix = text.endswith("%")  # as most are
            return self._one(
                left, "prefix" if is_prefix else "=", text.removesuffix("%"), negated, pattern.place
            )
        return self._one(left, "like", text, negated, pattern.place)

    def _network(self, negated: bool, depth: int) -> Filters:
        """Read ``CIDR(attribute, 'network')``."""
        word, self.at = self.word, self.at + 1
        opening = self.word
        self.at += 1
        left = self._operand(self._deeper(depth, word))
        if left.name is None or left.case is not None or not self._pass(","):
            self._fail("write CIDR(attribute, '10.0.0.0/8')", word.start)
        network = self._constant(depth)
        self._close(opening)
        return self._one(left, "cidr", network.value, negated, network.place)

    def _one(self, left: _Operand, operator: str, value: Any, negated: bool, place: int) -> Filters:
        if left.name is None:
            self._fail("expected an attribute here, not a constant", left.place)
        if left.case is not None:
            return self._caseless(left, operator, value, negated, place)
        try:
            return one(self.schema, left.name, NEGATED[operator] if negated else operator, value)
        except PredicateError as error:
            known = left.name in self.schema.attributes
            error.source, error.position = self.source, place if known else left.place
            raise

    def _caseless(self, left: _Operand, operator: str, value: Any, negated: bool, place: int) -> Filters:
        """Return a test of what LOWER or UPPER makes of an attribute."""
        case, left = left.case, left._replace(case=None)
        if operator == "is null" or (operator == "in" and not value):
            return self._one(left, operator, value, negated, place)
        if operator == "in":
            parts = [self._caseless(left._replace(case=case), "=", item, negated, place) for item in value]
            try:
                return all_of(parts) if negated else any_of(parts)
            except PredicateError as error:
                self._fail(error.message, place)
        if operator not in _CASELESS:
            self._fail(f"{case} is supported with =, <>, IN and LIKE only", left.place)
        if case is not None and isinstance(value, str) and value not in (_CASES[case](value), fold(value)):
            hint = f"; write {shown(_CASES[case](value))}"
            self._fail(f"{case} never returns {shown(value)}{hint}", place)
        return self._one(left, _CASELESS[operator], value, negated, place)

    # -- operands --------------------------------------------------------------------------------------

    def _operand(self, depth: int) -> _Operand:
        word = self.word
        if self._pass("("):
            found = self._operand(self._deeper(depth, word))._replace(place=word.start)
            self._close(word)
        else:
            found = self._plain_operand()
        if self._is_symbol("+") or self._is_symbol("-"):
            self._fail(f"arithmetic is not supported; {SUPPORTED}", self.word.start)
        return found

    def _plain_operand(self) -> _Operand:
        word = self.word
        if word.kind == "name":
            return self._named()
        if self._is_symbol("-") or self._is_symbol("+"):
            return self._number()
        if word.kind == "number":
            value: Any = _number(word.text)
        elif word.kind == "text":
            value = word.text
        elif word.kind == "keyword" and word.text in ("TRUE", "FALSE"):
            value = word.text == "TRUE"
        elif word.kind == "keyword" and word.text == "NULL":
            self._fail("a comparison with NULL is never true; use IS NULL or IS NOT NULL", word.start)
        else:
            self._unexpected()
        self.at += 1
        return _Operand(word.start, None, value)

    def _number(self) -> _Operand:
        """Read a number with a plus or any number of minuses before it."""
        first, sign = self.word, 1
        if not self._pass("+"):
            while self._pass("-"):
                sign = -sign
        if self.word.kind != "number":
            kind = "minus" if first.text == "-" else "plus"
            self._fail(f"a {kind} sign needs a number; arithmetic is not supported", first.start)
        value = sign * _number(self.word.text)
        self.at += 1
        return _Operand(first.start, None, value)

    def _named(self) -> _Operand:
        """Read what begins with a name: an attribute, or a moment."""
        word = self.word
        self.at += 1
        if self.word.kind == "text" and word.text.upper() in _MOMENTS and not word.quoted:
            found = microseconds(self.word.text)
            if found is None:
                self._fail("not an ISO 8601 timestamp, such as 2024-05-31T12:00:00Z", self.word.start)
            self.at += 1
            return _Operand(word.start, None, Timestamp(found))
        if self._is_symbol("("):
            if word.text.upper() in _CASES and not word.quoted:
                return self._cased(word)
            self._fail(f"the function {word.text.upper()} is not supported; {SUPPORTED}", word.start)
        parts = [word]
        while self._pass("."):
            if self.word.kind != "name":
                self._unexpected()
            parts.append(self.word)
            self.at += 1
        name = ".".join(part.text for part in parts)
        return _Operand(word.start, name, is_quoted=any(part.quoted for part in parts))

    def _cased(self, word: Word) -> _Operand:
        """Read what is in the parentheses of LOWER or UPPER."""
        opening, case = self.word, word.text.upper()
        self.at += 1
        found = self._plain_operand()
        if found.name is None or found.case is not None:
            self._fail(f"{case} needs an attribute", found.place)
        self._close(opening)
        return found._replace(place=word.start, case=case)

    def _is_function(self, name: str) -> bool:
        """Whether a function of this name is next."""
        word = self.words[self.at]
        if word.kind != "name" or word.text.upper() != name or word.quoted:
            return False
        following = self.words[self.at + 1]
        return following.kind == "symbol" and following.text == "("

    def _constant(self, depth: int) -> _Operand:
        found = self._operand(depth)
        self._require_constant(found)
        return found

    def _require_constant(self, found: _Operand) -> None:
        if found.name is None:
            return
        if found.name in self.schema.attributes and not found.is_quoted:
            self._fail("two attributes cannot be compared; expected a constant", found.place)
        self._fail(f"expected a constant, not {shown(found.name)}; put text in single quotes", found.place)

    # -- words -----------------------------------------------------------------------------------------

    @property
    def word(self) -> Word:
        """The next word."""
        return self.words[self.at]

    def _is_symbol(self, text: str) -> bool:
        word = self.words[self.at]
        return word.kind == "symbol" and word.text == text

    def _pass(self, symbol: str) -> bool:
        """Whether a symbol is next, which is then read."""
        found = self._is_symbol(symbol)
        self.at += found
        return found

    def _skip(self, keyword: str) -> bool:
        """Whether a keyword is next, which is then read."""
        word = self.words[self.at]
        found = word.kind == "keyword" and word.text == keyword
        self.at += found
        return found

    def _close(self, opening: Word) -> None:
        if self.word.kind == "end":
            self._fail("not an SQL condition: this parenthesis is not closed", opening.start)
        if not self._pass(")"):
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


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # not of this form, or too many digits for an int
        return float(text)
