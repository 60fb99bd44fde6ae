"""Event patterns as in EventBridge: a mapping of attributes to alternatives (text: `docs/predicates.md`).

``{"symbol": ["A", "B"], "price": [{"numeric": [">", 10, "<=", 20]}]}`` means symbol is A or B, and price is
above 10 and at most 20. Mappings nest as the events do; ``"$or"`` holds a list of patterns, and
``"$distance"`` a constraint of two attributes.

`as_pattern` writes predicates as patterns. A mapping has each attribute once, with a list of alternatives.
So a filter with several constraints of one attribute continues in a ``"$or"`` of one pattern, unless
``numeric`` holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import composed, shown
from rtfilter.events.encoding import Constant, Timestamp, number
from rtfilter.events.schema import Attribute, Schema
from rtfilter.predicates.model.combine import (
    MAX_DEPTH,
    Filters,
    all_of,
    any_element,
    any_of,
    compared,
    complement,
    no_element,
    one,
)
from rtfilter.predicates.model.constraints import (
    FAMILY_OF,
    MAX_TERMS,
    NEGATED,
    Constraint,
    Filter,
    Quantified,
    Test,
    is_negated,
)
from rtfilter.predicates.operands.expressions import Distance
from rtfilter.predicates.operands.intervals import Now, duration
from rtfilter.predicates.operands.like import escaped, start, with_stars
from rtfilter.predicates.operands.text_operators import MATCHERS, TEXT_OPERATORS

ORDERS: Final = frozenset(("<", "<=", "=", ">=", ">"))
"""The operators of ``numeric`` and ``km``."""
IGNORING: Final = "equals-ignore-case"
_TEXTS: Final = ("prefix", "suffix", "wildcard", "shellstyle", *MATCHERS)
"""Matchers of text, which anything-but accepts as well."""


class _UnfitError(PredicateError):
    """Raised for an alternative that no value of the attribute's type satisfies.

    Other alternatives of its list may fit.
    """


def parse_pattern(pattern: Mapping[str, Any], schema: Schema) -> Filters:
    """Return the filters that an event pattern describes.

    Raises `PredicateError`: the mapping is no pattern, not supported, not in the schema, or too large; the
    message gives the JSON path.
    """
    reader = _PatternReader(schema)
    try:
        return reader.mapping(pattern, "", 1)
    except PredicateError as error:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in reader.path)
        raise PredicateError(
            f"{error.message} (at ${path})", attribute=error.attribute, reason=error.reason
        ) from None


class _PatternReader:
    """Reads patterns.

    Attributes
    ----------
    path : list of str and int
        The keys and indexes that lead to the part that is read; after an error, to its place.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.mappings = 0
        self.path: list[str | int] = []

    def mapping(self, pattern: Mapping[str, Any], prefix: str, depth: int) -> Filters:
        """Return the conjunction of a pattern's entries; `prefix` is the outer name with its dot."""
        self.mappings += 1
        # Counted, because mappings in memory may share parts: a small mapping may then expand to a huge one.
        if depth > MAX_DEPTH or self.mappings > MAX_TERMS:
            self.path.clear()
            if depth > MAX_DEPTH:
                raise PredicateError(f"the pattern is nested deeper than {MAX_DEPTH} levels")
            raise PredicateError(f"the pattern has more than {MAX_TERMS} objects")
        if not pattern:
            raise PredicateError(
                "an empty pattern is ambiguous; use Predicate.everything() to match every event"
            )
        parts: list[Filters] = []
        for key, value in pattern.items():
            if not isinstance(key, str):
                raise PredicateError(f"attribute names are strings; got {shown(key)}")
            name = prefix + composed(key)
            if isinstance(value, Mapping):
                self._require_no_matcher(key, value, name)
            self.path.append(key)
            if key == "$or" and isinstance(value, list | tuple):
                part = any_of([self._choice(at, one, prefix, depth) for at, one in enumerate(value)])
            elif isinstance(value, list | tuple):
                part = self._alternatives(value, name)
            elif not isinstance(value, Mapping) or key == "$or":
                raise PredicateError(f"expected a list of alternatives; got {shown(value)}")
            elif key == "$distance":
                part = self._distance(value, prefix)
            else:
                part = self.mapping(value, f"{name}.", depth + 1)
            self.path.pop()
            parts.append(part)
        return all_of(parts)

    def _require_no_matcher(self, key: str, value: Mapping[str, Any], name: str) -> None:
        first = next(iter(value), None)
        if len(value) == 1 and name in self.schema.attributes and first in _KEYS:
            raise PredicateError(f'put the matcher into a list: {{"{key}": [{{"{first}": ...}}]}}')

    def _choice(self, at: int, choice: Any, prefix: str, depth: int) -> Filters:
        self.path.append(at)
        if not isinstance(choice, Mapping):
            raise PredicateError(f"expected a pattern; got {shown(choice)}")
        found = self.mapping(choice, prefix, depth + 1)
        self.path.pop()
        return found

    def _distance(self, given: Mapping[str, Any], prefix: str) -> Filters:
        if set(given) != {"latitude", "longitude", "from", "km"}:
            raise PredicateError(f"$distance has latitude, longitude, from and km; got {shown(list(given))}")
        point, ends = given["from"], given["km"]
        if not isinstance(point, list | tuple) or len(point) != 2:
            self._fail_at("from", "expected a point in degrees, as [48.8584, 2.2945]")
        latitude, longitude = (
            prefix + composed(name) if isinstance(name, str) else name
            for name in (given["latitude"], given["longitude"])
        )
        if not isinstance(ends, list | tuple) or not ends or len(ends) % 2:
            self._fail_at("km", 'km needs a list of operators and numbers, such as ["<=", 10]')
        far = Distance(latitude, longitude, *point)
        parts: list[Filters] = []
        for operator, value in zip(ends[::2], ends[1::2], strict=True):
            if not isinstance(operator, str) or operator not in ORDERS:
                raise PredicateError(f"expected one of <, <=, =, >=, >; got {shown(operator)}")
            if number(value) is None:
                raise PredicateError(f"expected a number of kilometres; got {shown(value)}")
            parts.append(compared(self.schema, far, operator, value))
        return all_of(parts)

    def _fail_at(self, key: str | int, message: str) -> NoReturn:
        self.path.append(key)
        raise PredicateError(message)

    def _alternatives(self, values: Sequence[Any], name: str) -> Filters:
        """Return the disjunction of a list: exact values, as one set, and matchers."""
        if len(values) == 1 and not isinstance(values[0], Mapping) and values[0] is not None:
            self.path.append(0)
            found = one(self.schema, name, "=", values[0])
            self.path.pop()
            return found
        parts: list[Filters] = []
        exact: list[Any] = []
        unfit: tuple[_UnfitError, list[str | int]] | None = None
        depth = len(self.path)
        for index, value in enumerate(values):
            self.path.append(index)
            try:
                if value is None and name in self.schema.nulls:
                    parts.append(one(self.schema, self.schema.nulls[name], "=", True))
                elif value is None:
                    parts.append(one(self.schema, name, "is null"))
                elif isinstance(value, Mapping):
                    parts.append(self._matcher(value, name))
                else:
                    exact.append(self._alternative(name, value))
            except _UnfitError as error:
                unfit = unfit or (error, self.path[:])
            del self.path[depth:]
        if exact or not parts:
            if unfit is not None and not exact:
                first, self.path = unfit
                raise PredicateError(first.message, attribute=first.attribute, reason=first.reason)
            parts.append(one(self.schema, name, "in", exact))
        return any_of(parts)

    def _matcher(self, matcher: Mapping[Any, Any], name: str) -> Filters:
        if len(matcher) != 1:
            raise PredicateError(f"a matcher has exactly one key; got {len(matcher)}: {shown(list(matcher))}")
        ((key, argument),) = matcher.items()
        if key not in _KEYS:
            known = ", ".join(_KEYS)
            raise PredicateError(
                f"the matcher {shown(key)} is not supported; supported are {known}, exact values and null"
            )
        self.path.append(key)
        if key in _MATCHERS:
            found = _MATCHERS[key](self, argument, name)
        elif key in _TEXTS:
            found = self._text(key, argument, name)
        elif not isinstance(argument, list | tuple):
            raise PredicateError(f"expected a list of alternatives; got {shown(argument)}")
        else:
            found = _QUANTIFIERS[key](self.schema, self._alternatives(argument, name))
        self.path.pop()
        return found

    def _numeric(self, argument: Any, name: str) -> Filters:
        if not isinstance(argument, list | tuple) or not argument or len(argument) % 2:
            raise PredicateError(
                'numeric needs a list of operators and constants, such as [">", 10, "<=", 20]'
            )
        if name in self.schema.attributes and not any(one.ordinal for one in self._types(name)):
            reason = f"numeric needs an attribute of numbers or timestamps; {name!r} is not"
            raise self._marked(PredicateError(reason, attribute=name), name, "number")
        parts: list[Filters] = []
        for at in range(0, len(argument), 2):
            operator, value = argument[at], argument[at + 1]
            if not isinstance(operator, str) or operator not in ORDERS:
                self._fail_at(at, f"expected one of <, <=, =, >=, >; got {shown(operator)}")
            self.path.append(at + 1)
            if isinstance(value, Mapping):  # a time relative to that of the batch
                if list(value) != ["now"]:
                    raise PredicateError(f'expected a constant, or {{"now": "-PT1H"}}; got {shown(value)}')
                self.path.append("now")
                value = Now(duration(value["now"]))
                self.path.pop()
            parts.append(one(self.schema, name, operator, value))
            self.path.pop()
        return all_of(parts)

    def _exactly(self, argument: Any, name: str) -> Filters:
        return one(self.schema, name, "=", self._alternative(name, argument))

    def _text(self, matcher: str, argument: Any, name: str, wanted: bool = True) -> Filters:
        """Return the filters of a matcher of text or, unless it is `wanted`, of its complement."""
        depth = len(self.path)
        caseless = matcher in ("prefix", "suffix") and isinstance(argument, Mapping)
        if caseless:
            if list(argument) != [IGNORING]:
                raise PredicateError(
                    f"{matcher} takes text, or an object with {IGNORING}; got {shown(list(argument))}"
                )
            argument = argument[IGNORING]
            self.path.append(IGNORING)
        if not isinstance(argument, str):
            raise PredicateError(f"{matcher} needs text; got {shown(argument)}")
        operator, value = text_test(matcher, argument, caseless)
        try:
            found = one(self.schema, name, operator if wanted else NEGATED[operator], value)
        except PredicateError as error:
            raise self._marked(error, name, "str" if wanted else None) from None
        del self.path[depth:]
        return found

    def _exists(self, argument: Any, name: str) -> Filters:
        if not isinstance(argument, bool):
            raise PredicateError(f"exists needs true or false; got {shown(argument)}")
        return one(self.schema, self.schema.nulls.get(name, name), "exists" if argument else "is null")

    def _anything_but(self, argument: Any, name: str) -> Filters:
        if isinstance(argument, Mapping):
            return self._no_text(argument, name)
        if not isinstance(argument, list | tuple):
            return one(self.schema, name, "<>", argument)
        if not argument:
            raise PredicateError("anything-but needs at least one value")
        values = []
        for at, value in enumerate(argument):
            self.path.append(at)
            values.append(self.schema.constant(name, value))
            self.path.pop()
        return one(self.schema, name, "not in", values)

    def _no_text(self, argument: Mapping[Any, Any], name: str) -> Filters:
        """Return the conjunction of the complements of matchers of text."""
        if len(argument) != 1 or next(iter(argument)) not in _TEXTS:
            raise PredicateError(
                f"anything-but takes a value, a list, or an object with one of {', '.join(_TEXTS)}; "
                f"got {shown(list(argument))}"
            )
        ((key, texts),) = argument.items()
        self.path.append(key)
        if not isinstance(texts, list | tuple):
            parts = [self._text(key, texts, name, wanted=False)]
        elif not texts:
            raise PredicateError(f"{key} needs at least one text")
        else:
            parts = []
            for at, text in enumerate(texts):
                self.path.append(at)
                parts.append(self._text(key, text, name, wanted=False))
                self.path.pop()
        found = all_of(parts)
        self.path.pop()
        return found

    def _alternative(self, name: str, value: Any) -> Any:
        """Return the constant of an alternative."""
        try:
            return self.schema.constant(name, value)
        except PredicateError as error:
            families = [attribute.family for attribute in self._types(name)]
            if isinstance(value, str) and "timestamp" in families:
                raise  # of the right type, but no time
            raise self._marked(error, name, FAMILY_OF.get(type(value))) from None

    def _types(self, name: str) -> list[Attribute]:
        """Return the attributes for all types of an attribute; none if it is unknown."""
        names = self.schema.types.get(name, (name,))
        return [self.schema.attributes[own] for own in names if own in self.schema.attributes]

    def _marked(self, error: PredicateError, name: str, family: str | None) -> PredicateError:
        """Return an error, marked if the family of the constants is not the attribute's."""
        families = [attribute.family for attribute in self._types(name)]
        if not families or family is None or family in families:
            return error
        return _UnfitError(error.message, attribute=error.attribute, reason=error.reason)


_MATCHERS: Final[dict[str, Callable[[_PatternReader, Any, str], Filters]]] = {
    "numeric": _PatternReader._numeric,
    "anything-but": _PatternReader._anything_but,
    "exists": _PatternReader._exists,
    "exactly": _PatternReader._exactly,
}
_QUANTIFIERS: Final[dict[str, Callable[[Schema, Filters], Filters]]] = {
    "any": lambda schema, condition: any_element(condition),
    "all": lambda schema, condition: no_element(schema, complement(schema, condition)),
    "none": no_element,
}
_KEYS: Final = (*_MATCHERS, *_QUANTIFIERS, *_TEXTS)


def text_test(matcher: str, text: str, caseless: bool = False) -> tuple[str, str]:
    """Return the operator and the constant of a matcher of text.

    Raises `PredicateError`: the text is invalid for the matcher.
    """
    if matcher == "prefix":
        return ("like ignore case", f"{escaped(text)}%") if caseless else ("prefix", text)
    if matcher == "suffix":
        return "like ignore case" if caseless else "like", f"%{escaped(text)}"
    return (MATCHERS[matcher], text) if matcher in MATCHERS else ("like", _like_of_stars(text, matcher))


def _like_of_stars(text: str, matcher: str) -> str:
    """Return the LIKE pattern of a text in which * stands for any text.

    In ``wildcard``, a backslash escapes a * or a backslash; in ``shellstyle``, it stands for itself.
    """
    pattern: list[str] = []
    chars = iter(text)
    for char in chars:
        if char == "\\" and matcher == "wildcard":
            char = next(chars, "")
            if char not in ("*", "\\"):
                raise PredicateError("in wildcard, a backslash must be followed by * or a backslash")
            pattern.append(escaped(char))
        elif char != "*":
            pattern.append(escaped(char))
        elif pattern[-1:] == ["%"]:
            raise PredicateError(f"{matcher} has no two * side by side; got {shown(text)}")
        else:
            pattern.append("%")
    return "".join(pattern)


# -- patterns from predicates ------------------------------------------------------------------------------


def as_pattern(filters: Sequence[Filter]) -> dict[str, Any]:
    """Return the event pattern of a disjunction of filters.

    Raises `PredicateError`: a constraint has no form in patterns, or the pattern would be nested too deeply;
    the message names it.
    """
    if len(filters) == 1:
        return _conjunction(filters[0].constraints, 1)
    return {"$or": [_conjunction(one.constraints, 2) for one in filters]}


def _conjunction(tests: Sequence[Test], depth: int) -> dict[str, Any]:
    if not tests:
        raise PredicateError("TRUE has no form as an event pattern; use to_sql, or Predicate.everything()")
    found: dict[str, Any] = {}
    last = None  # the attribute whose `numeric` may continue
    for at, test in enumerate(tests):
        numeric = isinstance(test, Constraint) and _is_numeric(test)
        name, entry = _entry(test)
        if numeric and name == last:
            found[name][0]["numeric"] += entry[0]["numeric"]
            continue
        if name in found:
            if depth == MAX_DEPTH:
                raise _without_form(test, f"patterns nest no deeper than {MAX_DEPTH} levels")
            found["$or"] = [_conjunction(tests[at:], depth + 1)]
            break
        found[name] = entry
        last = name if numeric else None
    return found


def _entry(test: Test) -> tuple[str, Any]:
    """Return the key and the value of a constraint in a pattern."""
    if isinstance(test, Constraint):
        return test.attribute, _alternatives(test)
    if isinstance(test, Quantified):
        return test.attribute, _quantified(test)
    left, operator, right, _ = test
    if operator == "<>" and isinstance(left, str) and isinstance(right, Now):
        raise _without_form(test, "patterns can only exclude constants")
    if isinstance(left, str) and isinstance(right, Now):
        return left, [{"numeric": [operator, {"now": right.duration()}]}]
    if operator != "<>" and isinstance(left, Distance) and isinstance(right, int | float):
        latitude, longitude, *point = left
        told = {"latitude": latitude, "longitude": longitude, "from": point, "km": [operator, right]}
        return "$distance", told
    raise _without_form(test, "patterns have no arithmetic, and compare no attributes")


def _is_numeric(test: Constraint) -> bool:
    return test.operator != "=" and test.operator in ORDERS and not isinstance(test.value, str)


def _quantified(test: Quantified) -> list[Any]:
    """Return the list with one matcher that holds the alternatives for elements."""
    word, tests = test
    if word == "all" and len(tests) == 1 and is_negated(tests[0].operator):
        name, operator, value = tests[0]
        word, tests = "none", (Constraint(name, NEGATED[operator], value),)
    if word == "any" and len(tests) > 1:
        if not all(map(_is_numeric, tests)):
            raise _without_form(test, "in patterns an element has one matcher")
        return [{word: [{"numeric": [part for one in tests for part in (one.operator, _plain(one.value))]}]}]
    found: list[Any] = []
    for own in tests:
        alone = own.operator != "=" or len(tests) == 1  # beside others, a constant would be read as a set
        found += _alternatives(own) if alone else [{"exactly": _plain(own.value)}]
    return [{word: found}]


def _alternatives(test: Constraint) -> list[Any]:
    """Return the list of alternatives for a constraint."""
    _, operator, value = test
    if _is_numeric(test):
        return [{"numeric": [operator, _plain(value)]}]
    if operator == "=":
        return [_plain(value)]
    if operator == "in":  # a single constant would be read as =
        constants = [_plain(one) for one in sorted(value)]
        return constants * 2 if len(constants) == 1 else constants
    if operator == "not in" and value:
        return [{"anything-but": [_plain(one) for one in sorted(value)]}]
    if operator == "<>":
        return [{"anything-but": _plain(value)}]
    if operator in ("exists", "is null"):
        return [{"exists": operator == "exists"}]
    matcher = _matcher(test, operator.removeprefix("not "))
    return [{"anything-but": matcher} if operator.startswith("not ") else matcher]


def _matcher(test: Constraint, operator: str) -> dict[str, Any]:
    """Return the matcher of text for a constraint; for a negated one, the matcher of its complement."""
    pattern = test.value
    if operator == "prefix":
        return {"prefix": pattern}
    own = TEXT_OPERATORS.get(operator)
    if own is not None and own.matcher is not None:
        return {own.matcher: pattern}
    if operator == "like":
        stars = with_stars(pattern)
        if stars is None:
            raise _without_form(test, "wildcards of patterns have no _, which stands for one character")
        return {"wildcard": stars}
    if operator == "like ignore case" and test.operator == operator:
        text = start(pattern)
        if pattern == escaped(text) + "%":
            return {"prefix": {IGNORING: text}}
        text = start(pattern.removeprefix("%"))
        if pattern == "%" + escaped(text):
            return {"suffix": {IGNORING: text}}
        raise _without_form(test, "in patterns only a beginning or an end is compared without case")
    reason = "in patterns this operator has no complement"
    raise _without_form(test, reason if test.operator.startswith("not ") else "patterns do not order text")


def _plain(value: Constant) -> Any:
    """Return a constant in the form of JSON."""
    return str(value) if isinstance(value, Timestamp) else value


def _without_form(test: Test, why: str) -> PredicateError:
    return PredicateError(
        f"{test} has no form as an event pattern: {why}; use to_sql",
        attribute=test.attributes[0],
        reason=f"has no form as an event pattern: {why}",
    )
