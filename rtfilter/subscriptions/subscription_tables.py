"""Subscriptions in tables: data frames, Arrow tables and streams of batches, cursors of databases.

The column ``where`` is required; ``id``, ``ttl`` or ``expires``, and ``metadata`` are optional. Other columns
are ignored. `rtfilter.events.foreign` reads events and bounds from the same frames.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import is_missing
from rtfilter.events.foreign import families, streamed
from rtfilter.text import listed, shown

FETCHED: Final = 10_000
"""Rows that one call fetches from a cursor."""
COLUMNS: Final = ("where", "id", "ttl", "expires", "metadata")
_TEXTS: Final = ("where", "rule", "pattern")
"""Names of a column of predicates in files."""
_MAY_HAVE: Final = ", and may have 'id', 'ttl' or 'expires', and 'metadata'"


class Rules(NamedTuple):
    """n subscriptions as they were passed. A column that is None sets nothing."""

    rules: Sequence[Any]
    ids: Any = None
    ttl: Any = None
    """A value for all, or a column with a value for each."""
    expires: Sequence[Any] | None = None
    metadata: Sequence[Any] | None = None
    is_table: bool = False
    """Metadata of a table may be text: databases without a type for JSON store it so."""


def read_rules(given: object) -> Rules | None:
    """Return the subscriptions of a table or a cursor; None for other values, such as lists.

    Raises
    ------
    PredicateError
        There is no column ``where``, two columns have the same name, or there are both ``ttl`` and
        ``expires``.
    """
    columns = _columns(given)
    if columns is None:
        return None
    if "where" not in columns:
        names = listed([str(name) for name in columns])
        raise PredicateError(f"a table of subscriptions needs a column 'where'{_MAY_HAVE}; it has {names}")
    if "ttl" in columns and "expires" in columns:
        raise PredicateError("a table of subscriptions has a column 'ttl' or a column 'expires'; keep one")
    ids, ttl, expires, metadata = (columns.get(name) for name in COLUMNS[1:])
    return Rules(columns["where"], ids, ttl, expires, metadata, is_table=True)


def _columns(given: Any) -> dict[str, list[Any]] | None:
    """Return the columns of a table by name, as lists with None for missing cells; None for no table."""
    if isinstance(given, list | tuple | str):
        return None
    if hasattr(given, "fetchmany"):
        return _of_cursor(given)
    kinds = families(given)
    if ("pandas", "DataFrame") in kinds:
        _refuse_same(list(given.columns))
        if "where" not in given.columns:
            return {str(name): [] for name in given.columns}
        return {name: _without_missing(given[name]) for name in COLUMNS if name in given.columns}
    if ("pyarrow", "RecordBatchReader") in kinds:
        given = given.read_all()
    elif not {("pyarrow", "Table"), ("pyarrow", "RecordBatch")} & kinds:
        if not hasattr(given, "__arrow_c_stream__") or ("pandas", "Series") in kinds:
            return None
        if not hasattr(type(given), "columns"):  # a single column, as Polars and pyarrow have them
            return None
        given = streamed(given, PredicateError)
    names = list(given.schema.names)
    _refuse_same(names)
    return {name: given.column(at).to_pylist() for at, name in enumerate(names)}


def _without_missing(series: Any) -> list[Any]:
    missing = series.isna()
    return [None if lost else cell for cell, lost in zip(series.tolist(), missing.tolist(), strict=True)]


def _of_cursor(cursor: Any) -> dict[str, list[Any]]:
    """Fetch all rows that a cursor still has, slice by slice."""
    if not getattr(cursor, "description", None):
        raise PredicateError("this cursor has no rows: execute a SELECT first")
    names = [str(column[0]) for column in cursor.description]
    lower = [name.lower() for name in names]  # some databases return names in capitals
    _refuse_same(lower)
    places = {name: lower.index(name) for name in COLUMNS if name in lower}
    if "where" not in places:
        return {name: [] for name in names}
    columns: dict[str, list[Any]] = {name: [] for name in places}
    while rows := cursor.fetchmany(FETCHED):
        by_name = isinstance(rows[0], Mapping)
        for name, at in places.items():
            columns[name] += [row[names[at] if by_name else at] for row in rows]
    return columns


def _refuse_same(names: list[Any]) -> None:
    for name in COLUMNS:
        if names.count(name) > 1:
            raise PredicateError(f"a table has two columns {name!r}; rename one, or leave it out")


def no_list(given: object) -> TypeError:
    """Return the error for a value that is neither a list of predicates nor a table, with a hint."""
    if isinstance(given, Mapping):
        text = _text_of(given)
        if text is None:
            return TypeError("subscribe_many takes a list of predicates; use subscribe for a single one")
        ids = ', ids=columns["id"]' if "id" in given else ""
        return TypeError(
            f"subscribe_many takes a list of predicates or a table, not a dict of columns "
            f'({_listed(given)}); pass subscribe_many(columns["{text}"]{ids})'
        )
    if isinstance(getattr(given, "fieldnames", None), Sequence):  # csv.DictReader
        names = dict.fromkeys(given.fieldnames)  # type: ignore[attr-defined]
        return TypeError(
            "subscribe_many takes a list of predicates, a table or a cursor, not the rows "
            f"({_listed(names)}) of {shown(given)}; {_comprehension(names, 'list(...)')}"
        )
    return TypeError(
        f"subscribe_many takes a list of predicates, a table or a cursor, not {shown(given)}; "
        "list(...) makes a list of an iterator"
    )


def refuse_rows(given: object, attributes: Container[str]) -> None:
    """Raise `TypeError` for rows of a table as dicts, which could be read as event patterns.

    The values of a pattern are lists and mappings. A row has a predicate, an id or an expiry under one of the
    column names, and the schema has no attribute of that name.
    """
    first = given[0] if isinstance(given, list | tuple) and given else None
    if not isinstance(first, Mapping):
        return
    named = [name for name in dict.fromkeys((*_TEXTS, *COLUMNS)) if name in first and name not in attributes]
    if all(isinstance(first[name], list | tuple | Mapping) for name in named):
        return
    raise TypeError(
        f"subscribe_many takes a list of predicates, and this is a list of rows with the columns "
        f"{_listed(first)}; {_comprehension(first, 'rows')}"
    )


def _comprehension(columns: Mapping[str, Any], rows: str) -> str:
    text = _text_of(columns)
    column = "..." if text is None else f'"{text}"'
    ids = ', ids=[row["id"] for row in rows]' if "id" in columns else ""
    made = "with rows = list(...), " if rows != "rows" else ""
    return f"{made}pass subscribe_many([row[{column}] for row in rows]{ids})"


def _text_of(columns: Mapping[str, Any]) -> str | None:
    """Return the name of the column of predicates, None if there is none."""
    return next((name for name in _TEXTS if name in columns), None)


def _listed(columns: Mapping[str, Any]) -> str:
    return listed([str(name) for name in columns])


def cell(value: object) -> object:
    """Return a cell as it is; None if it is missing."""
    return None if is_missing(value) and not isinstance(value, Mapping) else value


def refuse_twice(table: Rules, **given: object) -> None:
    """Raise `TypeError` if both a table and an argument set the same label."""
    told = {"ids": table.ids, "ttl": table.ttl or table.expires, "metadata": table.metadata}
    for name, argument in given.items():
        if argument is not None and told[name] is not None:
            raise TypeError(f"the table has this column, so leave out the argument {name}={shown(argument)}")
