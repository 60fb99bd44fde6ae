"""Rules in tables: data frames, Arrow tables and streams of batches, cursors of databases.

Columns go by their names: ``rule``, and if there are any ``id``, ``ttl`` or ``expires``, and ``metadata``.
Others are ignored. `rtfilter.events.foreign` reads events and bounds from the same frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import is_missing
from rtfilter.events.foreign import families, streamed
from rtfilter.text import listed, shown

FETCHED: Final = 10_000
"""Rows that are asked of a cursor at once."""
COLUMNS: Final = ("rule", "id", "ttl", "expires", "metadata")
_MAY_HAVE: Final = ", and may have 'id', 'ttl' or 'expires', and 'metadata'"


class Rules(NamedTuple):
    """n rules, with what is told beside them; a column that is None says nothing."""

    rules: Sequence[Any]
    ids: Any = None
    ttl: Any = None
    """One for all, or one for each."""
    expires: Sequence[Any] | None = None
    metadata: Sequence[Any] | None = None
    is_table: bool = False
    """Metadata may then be text: databases without a type for JSON keep it so."""


def read_rules(given: object) -> Rules | None:
    """Return the rules of a table or a cursor; None for what is neither, such as a list of rules.

    Raises
    ------
    PredicateError
        There is no column ``rule``, or two have one name or say the same.
    """
    columns = _columns(given)
    if columns is None:
        return None
    if "rule" not in columns:
        names = listed([str(name) for name in columns])
        raise PredicateError(f"a table of rules needs a column 'rule'{_MAY_HAVE}; it has {names}")
    if "ttl" in columns and "expires" in columns:
        raise PredicateError("a table of rules has a column 'ttl' or a column 'expires'; keep one")
    ids, ttl, expires, metadata = (columns.get(name) for name in COLUMNS[1:])
    return Rules(columns["rule"], ids, ttl, expires, metadata, is_table=True)


def _columns(given: Any) -> dict[str, list[Any]] | None:
    """The columns of a table by name, as lists with None for what is missing; None for no table."""
    if isinstance(given, list | tuple | str):
        return None
    if hasattr(given, "fetchmany"):
        return _of_cursor(given)
    kinds = families(given)
    if ("pandas", "DataFrame") in kinds:
        _refuse_same(list(given.columns))
        return {name: _without_missing(given[name]) for name in COLUMNS if name in given.columns} or {
            str(name): [] for name in given.columns
        }
    if ("pyarrow", "RecordBatchReader") in kinds:
        given = given.read_all()
    elif not {("pyarrow", "Table"), ("pyarrow", "RecordBatch")} & kinds:
        if not hasattr(given, "__arrow_c_stream__") or ("pandas", "Series") in kinds:
            return None
        if not hasattr(type(given), "columns"):  # a column alone, as Polars and pyarrow have them
            return None
        given = streamed(given, PredicateError)
    names = list(given.schema.names)
    _refuse_same(names)
    return {name: given.column(at).to_pylist() for at, name in enumerate(names)}


def _without_missing(series: Any) -> list[Any]:
    missing = series.isna()
    return [None if lost else cell for cell, lost in zip(series.tolist(), missing.tolist(), strict=True)]


def _of_cursor(cursor: Any) -> dict[str, list[Any]]:
    """All rows that a cursor still has, slice by slice."""
    if not getattr(cursor, "description", None):
        raise PredicateError("this cursor has no rows: execute a SELECT first")
    names = [str(column[0]) for column in cursor.description]
    lower = [name.lower() for name in names]  # some databases tell names in capitals
    _refuse_same(lower)
    places = {name: lower.index(name) for name in COLUMNS if name in lower}
    columns: dict[str, list[Any]] = {name: [] for name in places} or {name: [] for name in names}
    while rows := cursor.fetchmany(FETCHED):
        by_name = isinstance(rows[0], Mapping)
        for name, at in places.items():
            columns[name] += [row[names[at] if by_name else at] for row in rows]
    return columns


def _refuse_same(names: list[Any]) -> None:
    for name in COLUMNS:
        if names.count(name) > 1:
            raise PredicateError(f"a table of rules has two columns {name!r}; rename one, or leave it out")


def cell(value: object) -> object:
    """A cell as it is; None for what is missing."""
    return None if is_missing(value) and not isinstance(value, Mapping) else value


def refuse_twice(table: Rules, **given: object) -> None:
    """Raise `TypeError` for what a table tells and the caller, too."""
    told = {"ids": table.ids, "ttl": table.ttl or table.expires, "metadata": table.metadata}
    for name, argument in given.items():
        if argument is not None and told[name] is not None:
            raise TypeError(f"the table has a column for it, so leave out {name}={shown(argument)}")
