"""Event patterns as in EventBridge: a mapping of attributes to alternatives (text: `docs/predicates.md`).

``{"symbol": ["A", "B"], "price": [{"numeric": [">", 10, "<=", 20]}]}`` means symbol is A or B, and price is
above 10 and at most 20. Mappings nest as the events do; ``"$or"`` holds a list of patterns, and
``"$distance"`` a constraint of two attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import number
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
from rtfilter.predicates.model.constraints import MAX_TERMS, NEGATED
from rtfilter.predicates.operands.distances import Distance
from rtfilter.predicates.operands.intervals import Now, duration
from rtfilter.predicates.operands.like import escaped
from rtfilter.predicates.operands.text_operators import MATCHERS
from rtfilter.text import composed, shown

ORDERS: Final = frozenset(("<", "<=", "=", ">=", ">"))
_FAMILIES: Final[dict[type, str]] = {bool: "bool", int: "number", float: "number", str: "str"}
"""The family of attributes for each type of JSON value."""
IGNORING: Final = "equals-ignore-case"
_TEXTS: Final = ("prefix", "suffix", "wildcard", "shellstyle", *MATCHERS)
"""Matchers of text, which anything-but accepts as well."""


class _UnfitError(PredicateError):
    """Raised for an alternative that no value of the attribute's type satisfies.

    Other alternatives of its list may fit.
    """


def parse_pattern(pattern: Mapping[str, Any], schema: Schema) -> Filters:
    """Return the filters that an event pattern describes.

    Raises
    ------
    PredicateError
        The mapping is no pattern, not supported, not in the schema, or too large; the message gives the JSON
        path.
    """
    return _PatternReader(schema).mapping(pattern, "", "$", 1)


class _PatternReader:
    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.mappings = 0

    def mapping(self, pattern: Mapping[str, Any], prefix: str, path: str, depth: int) -> Filters:
        """Return the conjunction of a pattern's entries; `prefix` is the outer name with its dot."""
        self.mappings += 1
        # Counted, because mappings in memory may share parts: a small mapping may then expand to a huge one.
        if depth > MAX_DEPTH or self.mappings > MAX_TERMS:
            raise PredicateError(
                f"the pattern is nested deeper than {MAX_DEPTH} levels"
                if depth > MAX_DEPTH
                else f"the pattern has more than {MAX_TERMS} objects"
            )
        if not pattern:
            _fail("an empty pattern is ambiguous; use Predicate.everything() to match every event", path)
        parts: list[Filters] = []
        for key, value in pattern.items():
            if not isinstance(key, str):
                _fail(f"attribute names are strings; got {shown(key)}", path)
            name = prefix + composed(key)
            place = f"{path}.{key}"
            if isinstance(value, list | tuple):
                if key == "$or":
                    part = self._either(value, prefix, place, depth)
                else:
                    part = self._alternatives(value, name, place)
            elif isinstance(value, Mapping) and key == "$distance":
                part = self._distance(value, prefix, place)
            elif isinstance(value, Mapping) and key != "$or":
                first = next(iter(value), None)
                if (
                    len(value) == 1
                    and name in self.schema.attributes
                    and (first in self._matchers or first in _TEXTS)
                ):
                    _fail(f'put the matcher into a list: {{"{key}": [{{"{first}": ...}}]}}', path)
                part = self.mapping(value, f"{name}.", place, depth + 1)
            else:
                _fail(f"expected a list of alternatives; got {shown(value)}", place)
            parts.append(part)
        return _join(all_of, parts, path)

    def _distance(self, given: Mapping[str, Any], prefix: str, path: str) -> Filters:
        if set(given) != {"latitude", "longitude", "from", "km"}:
            _fail(f"$distance has latitude, longitude, from and km; got {shown(list(given))}", path)
        point, ends = given["from"], given["km"]
        if not isinstance(point, list | tuple) or len(point) != 2:
            _fail("expected a point in degrees, as [48.8584, 2.2945]", f"{path}.from")
        latitude, longitude = (
            prefix + composed(name) if isinstance(name, str) else name
            for name in (given["latitude"], given["longitude"])
        )
        if not isinstance(ends, list | tuple) or not ends or len(ends) % 2:
            _fail('km needs a list of operators and numbers, such as ["<=", 10]', f"{path}.km")
        parts: list[Filters] = []
        try:
            far = Distance(latitude, longitude, *point)
            for operator, value in zip(ends[::2], ends[1::2], strict=True):
                if not isinstance(operator, str) or operator not in ORDERS:
                    raise PredicateError(f"expected one of <, <=, =, >=, >; got {shown(operator)}")
                if number(value) is None:
                    raise PredicateError(f"expected a number of kilometres; got {shown(value)}")
                parts.append(compared(self.schema, far, operator, value))
        except PredicateError as error:
            raise _at(error, path) from None
        return _join(all_of, parts, path)

    def _either(self, choices: Sequence[Any], prefix: str, path: str, depth: int) -> Filters:
        parts: list[Filters] = []
        for index, choice in enumerate(choices):
            if not isinstance(choice, Mapping):
                _fail(f"expected a pattern; got {shown(choice)}", f"{path}[{index}]")
            parts.append(self.mapping(choice, prefix, f"{path}[{index}]", depth + 1))
        return _join(any_of, parts, path)

    def _alternatives(self, values: Sequence[Any], name: str, path: str) -> Filters:
        """Return the disjunction of a list: exact values, as one set, and matchers."""
        if len(values) == 1 and not isinstance(values[0], Mapping) and values[0] is not None:
            return self._one(name, "=", values[0], f"{path}[0]")
        parts: list[Filters] = []
        exact: list[Any] = []
        unfit: _UnfitError | None = None
        for index, value in enumerate(values):
            place = f"{path}[{index}]"
            try:
                if value is None and name in self.schema.nulls:
                    parts.append(self._one(self.schema.nulls[name], "=", True, place))
                elif value is None:
                    parts.append(self._one(name, "is null", None, place))
                elif isinstance(value, Mapping):
                    parts.append(self._matcher(value, name, place))
                else:
                    exact.append(self._alternative(name, value, place))
            except _UnfitError as error:
                unfit = unfit or error
        if exact or not parts:
            if unfit is not None and not exact:
                raise PredicateError(unfit.message, attribute=unfit.attribute, reason=unfit.reason)
            parts.append(self._one(name, "in", exact, path))
        return _join(any_of, parts, path)

    def _matcher(self, matcher: Mapping[Any, Any], name: str, path: str) -> Filters:
        if len(matcher) != 1:
            _fail(f"a matcher has exactly one key; got {len(matcher)}: {shown(list(matcher))}", path)
        ((key, argument),) = matcher.items()
        if key in _TEXTS:
            return self._text(key, argument, name, f"{path}.{key}")
        if key not in self._matchers:
            known = ", ".join([*self._matchers, *_TEXTS])
            _fail(
                f"the matcher {shown(key)} is not supported; supported are {known}, exact values and null",
                path,
            )
        return self._matchers[key](self, argument, name, f"{path}.{key}")

    def _numeric(self, argument: Any, name: str, path: str) -> Filters:
        if not isinstance(argument, list | tuple) or not argument or len(argument) % 2:
            _fail('numeric needs a list of operators and constants, such as [">", 10, "<=", 20]', path)
        if name in self.schema.attributes and not any(one.ordinal for one in self._types(name)):
            reason = f"numeric needs an attribute of numbers or timestamps; {name!r} is not"
            raise self._marked(_at(PredicateError(reason, attribute=name), path), name, "number")
        parts: list[Filters] = []
        for at in range(0, len(argument), 2):
            operator, value = argument[at], argument[at + 1]
            if not isinstance(operator, str) or operator not in ORDERS:
                _fail(f"expected one of <, <=, =, >=, >; got {shown(operator)}", f"{path}[{at}]")
            place = f"{path}[{at + 1}]"
            parts.append(self._one(name, operator, _moment(value, place), place))
        return _join(all_of, parts, path)

    def _exactly(self, argument: Any, name: str, path: str) -> Filters:
        return self._one(name, "=", self._alternative(name, argument, path), path)

    def _text(self, matcher: str, argument: Any, name: str, path: str, wanted: bool = True) -> Filters:
        """Return the filters of a matcher of text or, unless it is `wanted`, of its complement."""
        caseless = matcher in ("prefix", "suffix") and isinstance(argument, Mapping)
        if caseless:
            if list(argument) != [IGNORING]:
                _fail(
                    f"{matcher} takes text, or an object with {IGNORING}; got {shown(list(argument))}", path
                )
            argument, path = argument[IGNORING], f"{path}.{IGNORING}"
        if not isinstance(argument, str):
            _fail(f"{matcher} needs text; got {shown(argument)}", path)
        operator, value = text_test(matcher, argument, path, caseless)
        if not wanted:
            return self._one(name, NEGATED[operator], value, path)
        try:
            return self._one(name, operator, value, path)
        except PredicateError as error:
            raise self._marked(error, name, "str") from None

    def _exists(self, argument: Any, name: str, path: str) -> Filters:
        if not isinstance(argument, bool):
            _fail(f"exists needs true or false; got {shown(argument)}", path)
        name = self.schema.nulls.get(name, name)
        return self._one(name, "exists" if argument else "is null", None, path)

    def _anything_but(self, argument: Any, name: str, path: str) -> Filters:
        if isinstance(argument, Mapping):
            return self._no_text(argument, name, path)
        if not isinstance(argument, list | tuple):
            return self._one(name, "<>", argument, path)
        if not argument:
            _fail("anything-but needs at least one value", path)
        values = [self._constant(name, value, f"{path}[{index}]") for index, value in enumerate(argument)]
        return self._one(name, "not in", values, path)

    def _no_text(self, argument: Mapping[Any, Any], name: str, path: str) -> Filters:
        """Return the conjunction of the complements of matchers of text."""
        if len(argument) != 1 or next(iter(argument)) not in _TEXTS:
            known = ", ".join(_TEXTS)
            _fail(
                f"anything-but takes a value, a list, or an object with one of {known}; "
                f"got {shown(list(argument))}",
                path,
            )
        ((key, texts),) = argument.items()
        path = f"{path}.{key}"
        if not isinstance(texts, list | tuple):
            return self._text(key, texts, name, path, wanted=False)
        if not texts:
            _fail(f"{key} needs at least one text", path)
        parts = [self._text(key, text, name, f"{path}[{at}]", wanted=False) for at, text in enumerate(texts)]
        return _join(all_of, parts, path)

    def _any(self, argument: Any, name: str, path: str) -> Filters:
        return self._quantified(any_element, argument, name, path)

    def _all(self, argument: Any, name: str, path: str) -> Filters:
        return self._quantified(
            lambda found: no_element(self.schema, complement(self.schema, found)), argument, name, path
        )

    def _none(self, argument: Any, name: str, path: str) -> Filters:
        return self._quantified(lambda found: no_element(self.schema, found), argument, name, path)

    def _quantified(
        self, of_elements: Callable[[Filters], Filters], argument: Any, name: str, path: str
    ) -> Filters:
        """Return the filters of a list of alternatives for elements."""
        if not isinstance(argument, list | tuple):
            _fail(f"expected a list of alternatives; got {shown(argument)}", path)
        alternatives = self._alternatives(argument, name, path)
        try:
            return of_elements(alternatives)
        except PredicateError as error:
            raise _at(error, path) from None

    _matchers: ClassVar[dict[str, Callable[[_PatternReader, Any, str, str], Filters]]] = {
        "numeric": _numeric,
        "anything-but": _anything_but,
        "exists": _exists,
        "exactly": _exactly,
        "any": _any,
        "all": _all,
        "none": _none,
    }

    def _one(self, name: str, operator: str, value: Any, path: str) -> Filters:
        try:
            return one(self.schema, name, operator, value)
        except PredicateError as error:
            raise _at(error, path) from None

    def _constant(self, name: str, value: Any, path: str) -> Any:
        try:
            return self.schema.constant(name, value)
        except PredicateError as error:
            raise _at(error, path) from None

    def _alternative(self, name: str, value: Any, path: str) -> Any:
        """Return the constant of an alternative."""
        try:
            return self.schema.constant(name, value)
        except PredicateError as refused:
            error = _at(refused, path)
        families = [attribute.family for attribute in self._types(name)]
        if isinstance(value, str) and "timestamp" in families:
            raise error  # of the right type, but no time
        raise self._marked(error, name, _FAMILIES.get(type(value)))

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


def text_test(matcher: str, text: str, path: str, caseless: bool = False) -> tuple[str, str]:
    """Return the operator and the constant of a matcher of text.

    Raises
    ------
    PredicateError
        The text is invalid for the matcher; the message gives the JSON path.
    """
    if matcher == "prefix":
        return ("like ignore case", f"{escaped(text)}%") if caseless else ("prefix", text)
    if matcher == "suffix":
        return "like ignore case" if caseless else "like", f"%{escaped(text)}"
    if matcher in MATCHERS:
        return MATCHERS[matcher], text
    return "like", _with_stars(text, matcher, path)


def _join(join: Callable[[list[Filters]], Filters], parts: list[Filters], path: str) -> Filters:
    try:
        return join(parts)
    except PredicateError as error:
        raise _at(error, path) from None


def _fail(message: str, path: str, attribute: str | None = None) -> NoReturn:
    raise _at(PredicateError(message, attribute=attribute), path)


def _at(error: PredicateError, path: str) -> PredicateError:
    """Return the error with the JSON path of its place."""
    return PredicateError(f"{error.message} (at {path})", attribute=error.attribute, reason=error.reason)


def _moment(value: Any, path: str) -> Any:
    """Return a constant; for an object, the time relative to that of the batch."""
    if not isinstance(value, Mapping):
        return value
    if list(value) != ["now"]:
        _fail(f'expected a constant, or {{"now": "-PT1H"}}; got {shown(value)}', path)
    try:
        return Now(duration(value["now"]))
    except PredicateError as error:
        raise _at(error, f"{path}.now") from None


def _with_stars(text: str, matcher: str, path: str) -> str:
    """Return the LIKE pattern of a text in which * stands for any text.

    In ``wildcard``, a backslash escapes a * or a backslash; in ``shellstyle``, it stands for itself.
    """
    pattern: list[str] = []
    chars = iter(text)
    for char in chars:
        if char == "\\" and matcher == "wildcard":
            char = next(chars, "")
            if char not in ("*", "\\"):
                _fail("in wildcard, a backslash must be followed by * or a backslash", path)
            pattern.append(escaped(char))
        elif char != "*":
            pattern.append(escaped(char))
        elif pattern[-1:] == ["%"]:
            _fail(f"{matcher} has no two * side by side; got {shown(text)}", path)
        else:
            pattern.append("%")
    return "".join(pattern)
