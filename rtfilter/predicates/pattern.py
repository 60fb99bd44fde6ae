"""Event patterns, as in EventBridge: a mapping of attributes to alternatives (text: `docs/predicates.md`).

``{"symbol": ["A", "B"], "price": [{"numeric": [">", 10, "<=", 20]}]}`` means symbol is A or B, and price
is above 10 and at most 20. Mappings nest as the events do; ``"$or"`` holds a list of patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn

from rtfilter.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.combine import MAX_DEPTH, Filters, all_of, any_of, one
from rtfilter.predicates.model import MAX_TERMS
from rtfilter.text import shown

_ORDERS: Final = frozenset(("<", "<=", "=", ">=", ">"))


def parse_pattern(pattern: Mapping[str, Any], schema: Schema) -> Filters:
    """Return the filters that an event pattern describes.

    Raises
    ------
    PredicateError
        Not a pattern, not supported, not in the schema, or too large; the message gives the JSON path.
    """
    return _PatternReader(schema).mapping(pattern, "", "$", 1)


class _PatternReader:
    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.mappings = 0

    def mapping(self, pattern: Mapping[str, Any], prefix: str, path: str, depth: int) -> Filters:
        """Return the conjunction of a pattern's entries; `prefix` is the outer name with its dot."""
        self.mappings += 1
        # Counted, since mappings in memory may share parts: a small one may then unfold into a huge one.
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
            name = prefix + key
            place = f"{path}.{key}"
            if isinstance(value, list | tuple):
                if key == "$or":
                    part = self._either(value, prefix, place, depth)
                else:
                    part = self._alternatives(value, name, place)
            elif isinstance(value, Mapping) and key != "$or":
                first = next(iter(value), None)
                if len(value) == 1 and name in self.schema.attributes and first in self._matchers:
                    _fail(f'put the matcher into a list: {{"{key}": [{{"{first}": ...}}]}}', path)
                part = self.mapping(value, f"{name}.", place, depth + 1)
            else:
                _fail(f"expected a list of alternatives; got {shown(value)}", place)
            parts.append(part)
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
        for index, value in enumerate(values):
            place = f"{path}[{index}]"
            if value is None:
                parts.append(self._one(name, "is null", None, place))
            elif isinstance(value, Mapping):
                parts.append(self._matcher(value, name, place))
            else:
                exact.append(self._constant(name, value, place))
        if exact or not parts:
            parts.append(self._one(name, "in", exact, path))
        return _join(any_of, parts, path)

    def _matcher(self, matcher: Mapping[Any, Any], name: str, path: str) -> Filters:
        if len(matcher) != 1:
            _fail(f"a matcher has exactly one key; got {len(matcher)}: {shown(list(matcher))}", path)
        ((key, argument),) = matcher.items()
        if key not in self._matchers:
            known = ", ".join(self._matchers)
            _fail(
                f"the matcher {shown(key)} is not supported; supported are {known}, exact values and null",
                path,
            )
        return self._matchers[key](self, argument, name, f"{path}.{key}")

    def _numeric(self, argument: Any, name: str, path: str) -> Filters:
        if not isinstance(argument, list | tuple) or not argument or len(argument) % 2:
            _fail('numeric needs a list of operators and constants, such as [">", 10, "<=", 20]', path)
        if name in self.schema.attributes and not self.schema.attributes[name].ordinal:
            _fail(f"numeric needs an attribute of numbers or timestamps; {name!r} is not", path, name)
        parts: list[Filters] = []
        for at in range(0, len(argument), 2):
            operator, value = argument[at], argument[at + 1]
            if not isinstance(operator, str) or operator not in _ORDERS:
                _fail(f"expected one of <, <=, =, >=, >; got {shown(operator)}", f"{path}[{at}]")
            parts.append(self._one(name, operator, value, f"{path}[{at + 1}]"))
        return _join(all_of, parts, path)

    def _prefix(self, argument: Any, name: str, path: str) -> Filters:
        return self._one(name, "prefix", argument, path)

    def _exists(self, argument: Any, name: str, path: str) -> Filters:
        if not isinstance(argument, bool):
            _fail(f"exists needs true or false; got {shown(argument)}", path)
        return self._one(name, "exists" if argument else "is null", None, path)

    def _anything_but(self, argument: Any, name: str, path: str) -> Filters:
        if isinstance(argument, Mapping):
            if list(argument) != ["prefix"]:
                _fail(f"anything-but takes a value, a list or a prefix; got {shown(list(argument))}", path)
            return self._one(name, "not prefix", argument["prefix"], f"{path}.prefix")
        if not isinstance(argument, list | tuple):
            return self._one(name, "<>", argument, path)
        if not argument:
            _fail("anything-but needs at least one value", path)
        values = [self._constant(name, value, f"{path}[{index}]") for index, value in enumerate(argument)]
        return self._one(name, "not in", values, path)

    _matchers: ClassVar[dict[str, Callable[[_PatternReader, Any, str, str], Filters]]] = {
        "numeric": _numeric,
        "prefix": _prefix,
        "anything-but": _anything_but,
        "exists": _exists,
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
