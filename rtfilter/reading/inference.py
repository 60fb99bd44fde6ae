"""Inferring a schema from the first events of a file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rtfilter.basics.errors import FileError
from rtfilter.basics.text import shown
from rtfilter.reading.files import place

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema

Tell = Callable[[str], object]
"""Takes messages about a file that are no errors."""
SAMPLE = 10_000
"""Events that inference uses."""
MOSTLY = 0.9
"""Share of numbers from which on a word in a column is taken for a mistake, and reported."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")  # 00501 is a code, not a number
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*)?\.[0-9]+|(0|[1-9][0-9]*)\.?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}.*)?")


def infer_from_objects(objects: Iterable[Mapping[str, Any]], path: str) -> Schema:
    """Infer a schema from JSON objects.

    Nested objects give names with dots, arrays the types of their elements, null nothing. int and float
    together are float; text is a timestamp if all of it is ISO 8601. If types differ, the most frequent
    one is taken, as values of another type are no error.
    """
    seen: dict[str, Counter[str]] = {}
    for found in objects:
        _see(seen, "", found)
    return _schema({name: _most_frequent(kinds) for name, kinds in seen.items() if kinds}, path)


def _see(seen: dict[str, Counter[str]], prefix: str, node: Mapping[str, Any]) -> None:
    for key, value in node.items():
        _see_value(seen, prefix + key, value)


def _see_value(seen: dict[str, Counter[str]], name: str, value: object) -> None:
    if isinstance(value, dict):
        _see(seen, f"{name}.", value)
        return
    if isinstance(value, list):
        for element in value:
            _see_value(seen, name, element)
        return
    kinds = seen.setdefault(name, Counter())
    if isinstance(value, str):
        kinds["timestamp" if _is_moment(value) else "str"] += 1
    elif isinstance(value, bool | int | float):
        kinds[type(value).__name__] += 1


def _most_frequent(kinds: Counter[str]) -> str:
    families = {
        "float" if kinds["float"] else "int": kinds["int"] + kinds["float"],
        "str" if kinds["str"] else "timestamp": kinds["str"] + kinds["timestamp"],
        "bool": kinds["bool"],
    }
    return max(families, key=families.__getitem__)


def infer_from_cells(
    header: list[str], rows: Iterable[tuple[int, list[str]]], path: str, tell: Tell
) -> Schema:
    """Infer a schema from the cells of CSV; see `kinds_of_cells`."""
    return _schema(kinds_of_cells(header, rows, path, tell), path)


def kinds_of_cells(
    header: list[str], rows: Iterable[tuple[int, list[str]]], path: str, tell: Tell
) -> dict[str, str]:
    """Infer the types of the columns of CSV, by name, from rows with their lines; an empty cell has none.

    A column has the type of all its cells: int, float, bool (true and false), timestamp (ISO 8601), or else
    str. Numbers with leading zeros are text. If a few words make text of a column of numbers, the first
    word is reported.
    """
    seen: list[Counter[str]] = [Counter() for _ in header]
    words: dict[int, tuple[int, str]] = {}  # the first of each column, with its line
    for line, row in rows:
        for at, (kinds, cell) in enumerate(zip(seen, row, strict=True)):
            if cell:
                kind = _cell_kind(cell)
                kinds[kind] += 1
                if kind == "str" and at not in words and not cell.isdecimal():
                    words[at] = line, cell
    for at, (line, cell) in words.items():
        numbers, cells = seen[at]["int"] + seen[at]["float"], seen[at].total()
        if numbers >= MOSTLY * cells:
            tell(
                f"{place(path, line)}: column {header[at]!r}: {shown(cell)} makes text of a column in which "
                f"{numbers:,} of {cells:,} cells are numbers; empty this cell, or give a schema"
            )
    return {name: _common(set(kinds)) for name, kinds in zip(header, seen, strict=True) if kinds}


def _cell_kind(cell: str) -> str:
    if _INT.fullmatch(cell):
        return "int"
    if _FLOAT.fullmatch(cell) or _SPECIAL.fullmatch(cell):
        return "float"
    if cell.lower() in ("true", "false"):
        return "bool"
    return "timestamp" if _is_moment(cell) else "str"


def _common(kinds: set[str]) -> str:
    if kinds == {"int", "float"}:
        return "float"
    return next(iter(kinds)) if len(kinds) == 1 else "str"


def infer_from_arrow(schema: Any, path: str) -> Schema:
    """Infer a schema from the column types of a Parquet file; structs give names with dots.

    Lists give the types of their elements.
    """
    found: dict[str, str] = {}
    for field in schema:
        _see_field(found, field.name, field.type)
    return _schema(found, path)


def _see_field(found: dict[str, str], name: str, kind: Any) -> None:
    from pyarrow import types

    from rtfilter.events.foreign import is_uuid

    if types.is_struct(kind):
        for field in kind:
            _see_field(found, f"{name}.{field.name}", field.type)
        return
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        _see_field(found, name, kind.value_type)
        return
    if types.is_dictionary(kind):
        kind = kind.value_type
    for family, belongs in [
        ("bool", types.is_boolean),
        ("int", types.is_integer),
        ("float", lambda t: types.is_floating(t) or types.is_decimal(t)),
        ("str", lambda t: types.is_string(t) or types.is_large_string(t) or is_uuid(t)),
        ("timestamp", lambda t: types.is_timestamp(t) or types.is_date(t)),
    ]:
        if belongs(kind):
            found[name] = family


def _schema(kinds: Mapping[str, str], path: str) -> Schema:
    from rtfilter.events.schema import KINDS, Schema

    # Names that no attribute can have cannot occur in a predicate either.
    usable = {name: kind for name, kind in kinds.items() if all(name.split(".")) and name != "$or"}
    if not usable:
        raise FileError(f"{place(path)}: no values to infer a schema from; give one")
    return Schema({name: KINDS[kind] for name, kind in usable.items()})


def _is_moment(text: str) -> bool:
    from rtfilter.events.encoding import microseconds

    return _MOMENT.fullmatch(text) is not None and microseconds(text) is not None
