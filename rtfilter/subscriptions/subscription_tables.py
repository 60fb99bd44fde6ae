"""Subscriptions in tables: data frames, Arrow tables and streams of batches, columns by name, cursors.

A table has the column ``where``, or closed bounds in columns ``low.<attribute>``, ``high.<attribute>``.
``id``, ``ttl`` or ``expires``, and ``metadata`` are optional. Other columns are ignored. The files of the
command line and the frames of Spark are read as such tables.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import listed, shown
from rtfilter.events.encoding import is_missing
from rtfilter.events.foreign import families, streamed
from rtfilter.events.schema import Schema
from rtfilter.predicates.bounds.bound_columns import SIDES, Columns, bounded_columns, read_bounds

FETCHED: Final = 10_000
"""Rows that one call fetches from a cursor."""
COLUMNS: Final = ("where", "id", "ttl", "expires", "metadata")
BOUNDS: Final = tuple(f"{side}." for side in SIDES)


class SubscriptionTable(NamedTuple):
    """n subscriptions as they were passed. A column that is None sets nothing."""

    where: Sequence[Any] | None
    """None: they have `bounds`."""
    ids: Any = None
    ttl: Any = None
    """A value for all, or a column with a value for each."""
    expires: Sequence[Any] | None = None
    metadata: Sequence[Any] | None = None
    bounds: tuple[Columns, Columns] | None = None
    """Closed low and high ends, masked if there is no bound."""
    is_table: bool = False
    """Metadata of a table may be text: databases without a type for JSON store it so."""
    place: Callable[[int], str] = "row {}".format
    """The name of a row in messages about another row."""

    def part(self, rows: slice) -> SubscriptionTable:
        """Return some rows of a table."""
        named = zip(self._fields[:5], self[:5], strict=True)
        lists = {name: column[rows] for name, column in named if column is not None}
        if self.bounds is not None:
            low, high = ({name: side[name][rows] for name in side} for side in self.bounds)
            lists["bounds"] = low, high
        return self._replace(**lists)


def read_table(given: object, schema: Schema) -> SubscriptionTable | None:
    """Return the subscriptions of a table or a cursor; None for other values, such as lists.

    Raises `PredicateError` if there is neither a column ``where`` nor bounds of attributes, or both, if two
    columns have the same name, or if there are both ``ttl`` and ``expires``.
    """
    if isinstance(given, SubscriptionTable):
        return given
    opened = _opened(given)
    if opened is None:
        return None
    names, read = opened
    for name in COLUMNS:
        if names.count(name) > 1:
            raise PredicateError(f"a table has two columns {name!r}; rename one, or leave it out")
    if "ttl" in names and "expires" in names:
        raise PredicateError("a table of subscriptions has a column 'ttl' or a column 'expires'; keep one")
    bounds = bounded_columns(names, schema)
    wanted = [at for at, name in enumerate(names) if name in COLUMNS or name.startswith(BOUNDS)]
    columns = dict(zip(wanted, read(wanted), strict=True))
    where, ids, ttl, expires, metadata = (
        _cells(columns[names.index(name)]) if name in names else None for name in COLUMNS
    )
    ends = read_bounds(columns.__getitem__, names, bounds, schema) if bounds else None
    return SubscriptionTable(where, ids, ttl, expires, metadata, ends, is_table=True)


def _opened(given: Any) -> tuple[list[str], Callable[[list[int]], Sequence[Any]]] | None:
    """Return the names of the columns of a table, and a function that reads some; None for no table."""
    if isinstance(given, list | tuple | str):
        return None
    if isinstance(given, Mapping):
        columns, names = list(given.values()), [str(name) for name in given]
        is_table = "where" in names or any(name.startswith(BOUNDS) for name in names)
        return (names, lambda places: [columns[at] for at in places]) if is_table else None
    if hasattr(given, "fetchmany"):
        return _of_cursor(given)
    kinds = families(given)
    if ("pandas", "DataFrame") in kinds:
        return [str(name) for name in given.columns], lambda places: [given.iloc[:, at] for at in places]
    if ("pyarrow", "RecordBatchReader") in kinds:
        given = given.read_all()
    elif not {("pyarrow", "Table"), ("pyarrow", "RecordBatch")} & kinds:
        if not hasattr(given, "__arrow_c_stream__") or ("pandas", "Series") in kinds:
            return None
        if not hasattr(type(given), "columns"):  # a single column, as Polars and pyarrow have them
            return None
        given = streamed(given, PredicateError)
    return list(given.schema.names), lambda places: [given.column(at) for at in places]


def _cells(column: Any) -> Any:
    """Return a column of Arrow or pandas as a list, with None for missing cells, and any other as it is."""
    if hasattr(column, "to_pylist"):
        return column.to_pylist()
    if not hasattr(column, "isna"):
        return column
    return [
        None if lost else cell for cell, lost in zip(column.tolist(), column.isna().tolist(), strict=True)
    ]


def _of_cursor(cursor: Any) -> tuple[list[str], Callable[[list[int]], Sequence[Any]]]:
    if not getattr(cursor, "description", None):
        raise PredicateError("this cursor has no rows: execute a SELECT first")
    given = [str(column[0]) for column in cursor.description]

    def read(places: list[int]) -> Sequence[Any]:
        """Fetch all rows that the cursor still has, slice by slice."""
        columns: list[list[Any]] = [[] for _ in places]
        while rows := cursor.fetchmany(FETCHED):
            by_name = isinstance(rows[0], Mapping)
            for column, at in zip(columns, places, strict=True):
                column += [row[given[at] if by_name else at] for row in rows]
        return columns

    # Some databases return names in capitals.
    return [name if name.startswith(BOUNDS) else name.lower() for name in given], read


def no_list(given: object) -> TypeError:
    """Return the error for a value that is neither a list of predicates nor a table, with a hint."""
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
    named = [name for name in COLUMNS if name in first and name not in attributes]
    if all(isinstance(first[name], list | tuple | Mapping) for name in named):
        return
    raise TypeError(
        f"subscribe_many takes a list of predicates, and this is a list of rows with the columns "
        f"{_listed(first)}; {_comprehension(first, 'rows')}"
    )


def _comprehension(columns: Mapping[str, Any], rows: str) -> str:
    column = '"where"' if "where" in columns else "..."
    ids = ', ids=[row["id"] for row in rows]' if "id" in columns else ""
    made = "with rows = list(...), " if rows != "rows" else ""
    return f"{made}pass subscribe_many([row[{column}] for row in rows]{ids})"


def _listed(columns: Mapping[str, Any]) -> str:
    return listed([str(name) for name in columns])


def cell(value: object) -> object:
    """Return a cell as it is; None if it is missing."""
    return None if is_missing(value) and not isinstance(value, Mapping) else value


def refuse_twice(table: SubscriptionTable, **given: object) -> None:
    """Raise `TypeError` if both a table and an argument set the same label."""
    ttl = table.expires if table.ttl is None else table.ttl
    told = {"ids": table.ids, "ttl": ttl, "metadata": table.metadata}
    for name, argument in given.items():
        if argument is not None and told[name] is not None:
            raise TypeError(f"the table has this column, so leave out the argument {name}={shown(argument)}")
