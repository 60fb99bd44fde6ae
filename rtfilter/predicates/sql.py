"""SQL conditions, as in JMS message selectors, read by `sqlglot` (normative text: `docs/predicates.md`).

sqlglot parses; this module accepts the constructs that filters have, and refuses everything else by name
and with its place. NOT is pushed down to the constraints (De Morgan), so that the result is a disjunction
of conjunctions of constraints.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final, NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError

from rtfilter.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.combine import ALWAYS, MAX_DEPTH, NOTHING, Filters, all_of, any_of, one
from rtfilter.predicates.model import NEGATED
from rtfilter.text import shown

MAX_LENGTH: Final = 65_536
"""Longest condition, in characters."""
SUPPORTED: Final = (
    "supported are =, <>, <, <=, >, >=, BETWEEN, IN, LIKE 'prefix%', IS NULL, AND, OR, NOT, TRUE, FALSE"
)

_DIALECT: Final = Dialect.get_or_raise(None)
_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_CONSTANTS: Final = (exp.Literal, exp.Boolean, exp.Neg, exp.Null, exp.Cast)
_NAMES: Final[dict[type[exp.Expr], str]] = {
    **dict.fromkeys(_COMPARISONS, "a comparison of a comparison"),
    exp.Boolean: "a constant alone",
    exp.ILike: "ILIKE",
    exp.Literal: "a constant alone",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.Parameter: "a parameter",
    exp.Placeholder: "a placeholder",
    exp.RegexpLike: "a regular expression",
    exp.Subquery: "a subquery",
}
"""Names of refused constructs in messages, where the parser's own word would not do."""
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MOMENTS: Final = frozenset(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "DATETIME", "DATE"))
_OPENING: Final = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE))
_CLOSING: Final = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE))
_UNARY: Final = frozenset((TokenType.NOT, TokenType.DASH, TokenType.TILDE, TokenType.PLUS))


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
        return _SqlReader(source, schema).filters(_syntax_tree(source, schema), negated=False)
    except RecursionError:
        raise PredicateError("the condition is nested too deeply; use fewer parentheses and NOTs") from None


def _syntax_tree(source: str, schema: Schema) -> exp.Expr:
    try:
        tokens = _DIALECT.tokenize(source)
        _check_depth(tokens, source)
        if not tokens:
            raise PredicateError("the condition is empty; write TRUE to match every event")
        parser = _DIALECT.parser(error_level=ErrorLevel.IMMEDIATE)
        # A condition, not a statement: an attribute may be called update or set.
        trees = parser.parse_into(exp.Condition, tokens, source)
    except ParseError as error:
        found: dict[str, Any] = error.errors[0] if error.errors else {}
        reason = found.get("description") or "it cannot be parsed"
        at = _offset(source, found)
        word = "".join(takewhile(_is_word, source[at:]))
        hint = f'; put the name into double quotes, "{word}"' if word in schema.attributes else ""
        raise PredicateError(f"not an SQL condition: {_plain(reason)}{hint}", source, at) from None
    except SqlglotError:
        raise PredicateError(
            "not an SQL condition: a quote or a comment is not closed", source, len(source)
        ) from None
    if len(trees) != 1 or trees[0] is None:
        raise PredicateError("expected one condition, without semicolons", source, source.find(";"))
    return trees[0]


def _check_depth(tokens: list[Token], source: str) -> None:
    """Refuse nesting that would exhaust the stack of the parser, which recurses."""
    levels: list[int] = []
    depth = pending = 0
    for token in tokens:
        if token.token_type in _UNARY:
            pending += 1
        elif token.token_type in _OPENING:
            levels.append(pending + 1)
            depth += pending + 1
            pending = 0
        else:
            pending = 0
            if token.token_type in _CLOSING and levels:
                depth -= levels.pop()
        if depth + pending > MAX_DEPTH:
            raise PredicateError(
                f"parentheses and NOTs are nested deeper than {MAX_DEPTH} levels", source, token.start
            )


def _plain(reason: str) -> str:
    """Put the parser's message into a user's words."""
    if reason.startswith("Required keyword"):
        return "something is missing here"
    return "this is unexpected" if reason.startswith("Invalid expression") else reason


def _offset(source: str, found: dict[str, Any]) -> int:
    """Return where a parse error is: sqlglot gives the line and the column of the token's last character."""
    lines = source.splitlines(keepends=True)
    before = sum(map(len, lines[: found.get("line", 1) - 1]))
    column: int = found.get("col", 1)
    return before + max(column - len(found.get("highlight") or " "), 0)


class _SqlReader:
    def __init__(self, source: str, schema: Schema) -> None:
        self.source = source
        self.schema = schema

    def filters(self, node: exp.Expr, negated: bool) -> Filters:
        """Return a condition, or its negation, as a disjunction of filters."""
        while isinstance(node, exp.Paren | exp.Not):
            negated ^= isinstance(node, exp.Not)
            node = node.this
        try:
            if isinstance(node, exp.And | exp.Or):
                parts = [self.filters(part, negated) for part in _operands(node)]
                return all_of(parts) if isinstance(node, exp.And) is not negated else any_of(parts)
            if isinstance(node, exp.Boolean):
                return ALWAYS if bool(node.this) is not negated else NOTHING
            return self._comparison(node, negated)
        except PredicateError as error:
            if error.position is None:
                error.source, error.position = self.source, _start(node)
            raise

    def _comparison(self, node: exp.Expr, negated: bool) -> Filters:
        operator = _COMPARISONS.get(type(node))
        if operator is not None:
            self._only(node, "this", "expression")
            left, right = _inner(node.this), _inner(node.expression)
            if not _parts(left):
                if not _parts(right):
                    odd = right if isinstance(left, _CONSTANTS) else left
                    self._fail(
                        f"{_construct(odd)} is not supported; a comparison has an attribute on one side and "
                        f"a constant on the other; {SUPPORTED}",
                        odd,
                    )
                left, right, operator = right, left, _MIRRORED[operator]
            return self._one(left, operator, self._constant(right), negated, right)
        if isinstance(node, exp.Between):
            self._only(node, "this", "low", "high")
            parts = [
                self._one(node.this, operator, self._constant(end), negated, end)
                for operator, end in ((">=", _inner(node.args["low"])), ("<=", _inner(node.args["high"])))
            ]
            return any_of(parts) if negated else all_of(parts)
        if isinstance(node, exp.In):
            if node.args.get("query"):
                self._fail(f"a subquery is not supported; {SUPPORTED}", node)
            self._only(node, "this", "expressions")
            if not node.expressions:
                self._fail("IN needs a list of at least one constant", node)
            values = [self._constant(_inner(item)) for item in node.expressions]
            for item, value in zip(node.expressions, values, strict=True):
                self._one(node.this, "=", value, False, item)  # shows which one is of a wrong type
            return self._one(node.this, "in", values, negated, node)
        if isinstance(node, exp.Like | exp.Escape):
            return self._like(node, negated)
        if isinstance(node, exp.Is):
            self._only(node, "this", "expression")
            if not isinstance(node.expression, exp.Null):
                self._fail("IS is supported as IS NULL and IS NOT NULL only; write = TRUE or = FALSE", node)
            return self._one(node.this, "is null", None, negated, node)
        if _parts(node):
            self._fail(f"an attribute alone is not a condition; write {self._name(node)} = TRUE", node)
        self._fail(f"{_construct(node)} is not supported; {SUPPORTED}", node)

    def _like(self, node: exp.Expr, negated: bool) -> Filters:
        escape = "\\"
        whole = node
        if isinstance(node, exp.Escape):
            escape = self._constant(node.expression)
            if not isinstance(escape, str) or len(escape) != 1:
                self._fail("ESCAPE needs a string of one character", node)
            node = node.this
        if not isinstance(node, exp.Like):
            self._fail(f"{_construct(node)} is not supported; {SUPPORTED}", whole)
        self._only(node, "this", "expression", "negate")
        pattern = _inner(node.expression)
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            self._fail("LIKE needs a string constant", node)
        text, is_prefix = self._prefix(pattern, escape)
        negated ^= bool(node.args.get("negate"))
        return self._one(node.this, "prefix" if is_prefix else "=", text, negated, pattern)

    def _prefix(self, pattern: exp.Expr, escape: str) -> tuple[str, bool]:
        """Return the text of a LIKE pattern, and whether it ends in the wildcard %."""
        text: list[str] = []
        chars = iter(str(pattern.this))
        for char in chars:
            if char == escape:
                char = next(chars, "")
                if char not in ("%", "_", escape):
                    self._fail(f"in LIKE, {escape} must be followed by %, _ or {escape}", pattern)
                text.append(char)
            elif char == "%":
                if any(rest != "%" for rest in chars):
                    self._fail(
                        "LIKE supports % at the end only (a prefix); write \\% for a percent sign", pattern
                    )
                return "".join(text), True
            elif char == "_":
                self._fail("LIKE does not support _ for any character; write \\_ for an underscore", pattern)
            else:
                text.append(char)
        return "".join(text), False

    def _one(self, name: exp.Expr, operator: str, value: Any, negated: bool, place: exp.Expr) -> Filters:
        attribute = self._name(_inner(name))
        try:
            return one(self.schema, attribute, NEGATED[operator] if negated else operator, value)
        except PredicateError as error:
            known = attribute in self.schema.attributes
            error.source, error.position = self.source, _start(place if known else name)
            raise

    def _name(self, node: exp.Expr) -> str:
        parts = _parts(node)
        if not parts:
            self._fail(f"expected an attribute here; {_construct(node)} is not supported", node)
        return ".".join(part.name for part in parts)

    def _constant(self, node: exp.Expr) -> Any:
        sign = 1
        inner = node
        while isinstance(inner, exp.Neg | exp.Paren):
            sign = -sign if isinstance(inner, exp.Neg) else sign
            inner = inner.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return sign * _number(str(inner.this))
        if inner is not _inner(node):
            self._fail("a minus sign needs a number", node)
        if isinstance(inner, exp.Literal):
            return str(inner.this)
        if isinstance(inner, exp.Boolean):
            return bool(inner.this)
        if isinstance(inner, exp.Cast) and inner.to.this.name in _MOMENTS:
            text = inner.this
            if isinstance(text, exp.Literal) and text.is_string:
                return self._moment(text)
        if isinstance(inner, exp.Null):
            self._fail("a comparison with NULL is never true; use IS NULL or IS NOT NULL", node)
        if _parts(inner):
            quoted = any(part.args.get("quoted") for part in _parts(inner))
            hint = "; put text in single quotes" if quoted else ""
            self._fail(f"two attributes cannot be compared; expected a constant{hint}", inner)
        self._fail(f"expected a constant; {_construct(inner)} is not supported", node)

    def _moment(self, literal: exp.Expr) -> Any:
        from rtfilter.events.encoding import Timestamp, microseconds

        found = microseconds(str(literal.this))
        if found is None:
            self._fail("not an ISO 8601 timestamp, such as 2024-05-31T12:00:00Z", literal)
        return Timestamp(found)

    def _only(self, node: exp.Expr, *expected: str) -> None:
        """Refuse options of a construct that this module does not know, rather than ignore them."""
        extra = [key for key, value in node.args.items() if value and key not in expected]
        if extra:
            self._fail(f"{_construct(node)} with {extra[0].upper()} is not supported; {SUPPORTED}", node)

    def _fail(self, message: str, node: exp.Expr) -> NoReturn:
        raise PredicateError(message, self.source, _start(node))


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of one connective; iteratively, chains may be long."""
    operands: list[exp.Expr] = []
    kind = type(node)
    while type(node) is kind:
        operands.append(node.expression)
        node = node.this
    return [node, *reversed(operands)]


def _inner(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _parts(node: exp.Expr) -> list[exp.Identifier]:
    """Return the parts of an attribute's name, or none for anything else."""
    # Up to four parts are a Column; more are a Dot over one.
    dotted = isinstance(node, exp.Column | exp.Dot)
    parts: list[exp.Expr] = list(node.parts) if dotted else []  # type: ignore[attr-defined]
    names = [part for part in parts if isinstance(part, exp.Identifier)]
    return names if len(names) == len(parts) else []


def _number(text: str) -> int | float:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:  # not of this form, or too many digits for an int
            continue
    raise PredicateError(f"{shown(text)} is not a number")


def _start(node: exp.Expr) -> int:
    """Return the offset of the first token of a node that has one; 0 where none does."""
    return min(_starts(node), default=0)


def _starts(node: exp.Expr) -> Iterator[int]:
    for part in node.walk():
        start = part.meta.get("start")
        if start is not None:
            yield start


def _construct(node: exp.Expr) -> str:
    """Name a construct for a message."""
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod | exp.Neg):
        return "arithmetic"
    if isinstance(node, exp.Query | exp.Exists):
        return "a subquery"
    if isinstance(node, exp.Func) and not isinstance(node, exp.Cast | exp.Case | exp.If):
        return (
            f"the function {str(node.name if isinstance(node, exp.Anonymous) else node.sql_name()).upper()}"
        )
    return _NAMES.get(type(node), node.key.upper())


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"
