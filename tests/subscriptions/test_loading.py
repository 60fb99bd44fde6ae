"""Loads that take what can be used, and tell of the rest; from lists, tables and cursors."""

import csv
import io
import logging
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from rtfilter import EventFilter, Predicate, PredicateError, Schema
from rtfilter.filter import inside
from rtfilter.watch.metrics import Metrics

SCHEMA = Schema({"price": float, "symbol": str})


@pytest.fixture
def rules():
    return EventFilter(SCHEMA, clock=lambda: 1000.0)


def test_bad_rules_are_told_and_the_rest_is_taken(rules):
    bad = []
    sources = ["price > 1", "prise > 1", {"symbol": ["A"]}, "price > 'a'", "price >", 7]
    added = rules.subscribe_many(sources, ids=list("abcdef"), on_error=bad.append)
    assert added.tolist() == ["a", "c"]
    assert set(rules.ids()) == {"a", "c"}
    assert [(one.row, one.id, one.where) for one in bad] == [
        (1, "b", "prise > 1"),
        (3, "d", "price > 'a'"),
        (4, "e", "price >"),
        (5, "f", 7),
    ]
    assert [one.attribute for one in bad] == ["prise", "price", None, None]
    assert [one.position for one in bad] == [0, 8, 6, None]
    assert bad[0].reason == "unknown attribute 'prise'; did you mean 'price'?"
    assert str(bad[1]).startswith("row 3, id 'd': attribute 'price' is a number, it cannot be compared")
    assert str(bad[0]).endswith("    prise > 1\n    ^")


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["price > 1", "price > 2", "price > 3", "prise > 1", "price > 1e999", "FALSE", "price >"]
            ),
            st.sampled_from(["a", "b", "c", "d", "e", 7, None, "known"]),
            st.sampled_from([None, 5, 0, "soon"]),
            st.sampled_from([None, {"a": 1}, {1: 2}, 5]),
        ),
        max_size=12,
    )
)
def test_a_load_is_as_if_each_was_added_alone(rows):
    alone, together = EventFilter(SCHEMA), EventFilter(SCHEMA)
    for filter in (alone, together):
        filter.subscribe("price < 0", id="known")
    errors, bad = {}, []
    for row, (rule, id, ttl, metadata) in enumerate(rows):
        try:
            if id is None:
                raise ValueError
            alone.subscribe(rule, id, ttl=ttl, metadata=metadata)
        except (TypeError, ValueError) as error:
            errors[row] = type(error)
    sources, ids, lives, notes = ([row[at] for row in rows] for at in range(4))
    added = together.subscribe_many(sources, ids=ids, ttl=lives, metadata=notes, on_error=bad.append)
    assert [one.row for one in bad] == list(errors)
    assert added.tolist() == [id for row, id in enumerate(ids) if row not in errors]
    assert {id: together[id].predicate for id in together.ids()} == {
        id: alone[id].predicate for id in alone.ids()
    }
    assert {id: together[id].metadata for id in added} == {id: alone[id].metadata for id in added}


def test_raise_tells_the_first_and_how_many_there_are(rules):
    frame = pd.DataFrame({"where": ["price > 1", "prise > 1", "price >"], "id": [1, 2, 3]})
    with pytest.raises(PredicateError, match="row 1, unknown attribute 'prise'") as error:
        rules.subscribe_many(frame)
    assert error.value.__notes__ == ['2 rows cannot be used; on_error="skip" adds the others']
    assert len(rules) == 0


def test_skip_says_so_in_the_log(rules, caplog):
    with caplog.at_level(logging.WARNING, "rtfilter"):
        assert rules.subscribe_many(["price > 1", "price >"], on_error="skip").tolist() == [0]
    assert caplog.messages[0].startswith(
        "1 of 2 subscriptions left out; on_error=errors.append collects all errors. The first: row 1,"
    )


def test_what_the_callable_raises_leaves_nothing(rules):
    with pytest.raises(ZeroDivisionError):
        rules.subscribe_many(["price > 1", "price >"], on_error=lambda bad: 1 / 0)
    assert len(rules) == 0


def test_rules_that_nothing_bounds_are_bad_beyond_the_limit():
    quotes = EventFilter(Schema({"bid": float, "ask": float}), max_unbounded=2)
    bad = []
    sources = ["bid > ask", "bid > 1", "bid >= ask", "bid < ask", "bid <= ask", "ask > 1"]
    assert len(quotes.subscribe_many(sources, on_error=bad.append)) == 4
    assert [one.row for one in bad] == [3, 4]
    assert "max_unbounded" in bad[0].reason


def test_metrics_count_what_was_refused():
    watched = EventFilter(SCHEMA, metrics=Metrics())
    watched.subscribe_many(["price > 1", "price >", "prise > 1"], on_error=[].append)
    assert (inside(watched).metrics.added, inside(watched).metrics.refused) == (1, 2)


def test_other_matchers_take_the_rest_too():
    hashes = EventFilter(SCHEMA, matcher="hashes")
    bad = []
    hashes.subscribe_many(["symbol = 'A'", "prise > 1"], on_error=bad.append)
    assert len(hashes) == 1
    assert bad[0].row == 1


def test_on_error_is_understood(rules):
    with pytest.raises(ValueError, match="on_error is"):
        rules.subscribe_many(["price > 1"], on_error="ignore")


# -- tables and cursors --------------------------------------------------------------------------------------

ROWS = {
    "id": ["a", "b", "c"],
    "where": ["price > 1", "symbol = 'A'", "prise > 1"],
    "ttl": [5.0, None, 7.0],
    "metadata": [{"owner": "ann"}, None, None],
    "note": [1, 2, 3],
}


def database(rows):
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE rules (id TEXT, rule TEXT, ttl REAL, metadata TEXT, note INTEGER)")
    import json

    texts = [None if one is None else json.dumps(one) for one in rows["metadata"]]
    connection.executemany(
        "INSERT INTO rules VALUES (?, ?, ?, ?, ?)",
        list(zip(rows["id"], rows["where"], rows["ttl"], texts, rows["note"], strict=True)),
    )
    return connection.execute('SELECT note, rule AS "WHERE", id, metadata, ttl FROM rules ORDER BY id')


class Named:
    """A cursor that gives rows by name."""

    def __init__(self, rows):
        self.description = [(name, None) for name in rows]
        self._rows = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]

    def fetchmany(self, size):
        taken, self._rows = self._rows[:2], self._rows[2:]
        return taken


TABLES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "batch": lambda rows: pa.RecordBatch.from_pydict(rows),
    "reader": lambda rows: pa.table(rows).to_reader(max_chunksize=2),
    "sqlite": database,
    "named": Named,
    "columns": dict,
}


@pytest.mark.parametrize("kind", TABLES)
def test_rules_come_from_tables(kind, rules):
    bad = []
    assert rules.subscribe_many(TABLES[kind](ROWS), on_error=bad.append).tolist() == ["a", "b"]
    assert [(one.row, one.id) for one in bad] == [(2, "c")]
    assert rules["a"].expires == 1005.0
    assert rules["b"].expires is None
    assert rules["a"].metadata == {"owner": "ann"}
    assert rules["b"].metadata is None


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_rules_expire_at_moments(kind, rules):
    moments = [datetime.fromtimestamp(2000, UTC), None]
    rules.subscribe_many(
        TABLES[kind]({"where": ["price > 1", "price > 2"], "expires": moments, "id": [1, 2]})
    )
    assert (rules[1].expires, rules[2].expires) == (2000.0, None)


def test_moments_may_be_text_or_seconds_and_past_ones_are_gone(rules):
    cells = ["1970-01-01T00:20:00Z", 1300, 3.0, "soon", True]
    bad = []
    rules.subscribe_many(
        pd.DataFrame({"where": ["price > 1"] * 5, "expires": pd.Series(cells, dtype=object)}),
        on_error=bad.append,
    )
    assert [one.row for one in bad] == [3, 4]
    assert [rules[id].expires for id in (0, 1)] == [1200.0, 1300.0]
    assert rules.ids().tolist() == [0, 1]


def test_ids_of_databases_are_of_their_types(rules):
    ids = [UUID(int=1), UUID(int=2)]
    found = rules.subscribe_many(Named({"where": ["price > 1"] * 2, "id": ids, "ttl": [timedelta(1), None]}))
    assert found.tolist() == ids
    assert EventFilter(SCHEMA).subscribe_many(pd.DataFrame({"where": ["price > 1"], "id": [7]})).tolist() == [
        7
    ]


def test_patterns_may_be_in_a_column_of_json(rules):
    rules.subscribe_many(Named({"where": [{"symbol": ["A"]}], "id": [4]}))
    assert rules.match({"symbol": "A"}).tolist() == [4]


@cases(
    ("table", "says"),
    [
        (
            pd.DataFrame({"id": [1], "rule": [""]}),
            "need a column where, or .*; they may have .* has id, rule",
        ),
        (sqlite3.connect(":memory:").execute("SELECT 1 id, '' name"), "the table has id, name$"),
        (pd.DataFrame({"where": ["TRUE"], "low.price": [1]}), "not both; .* has where, low.price$"),
        ({"low.prise": [1]}, "column 'low.prise': unknown attribute 'prise'; did you mean 'price'"),
        (pa.table({"low.price": ["1"]}), "column 'low.price' holds string, but the attribute is a number"),
        (pa.table({"where": ["TRUE"], "ttl": [1], "expires": [1]}), "keep one"),
        (sqlite3.connect(":memory:").cursor(), "execute a SELECT"),
        (sqlite3.connect(":memory:").execute("SELECT 'TRUE' rule, 1 id, 2 ID"), "two columns 'id'"),
        (pd.DataFrame([["TRUE", "FALSE"]], columns=["where", "where"]), "two columns 'where'"),
        (pa.table([["TRUE"], [1], [2]], ["where", "id", "id"]), "two columns 'id'"),
    ],
)
def test_tables_that_are_none(table, says, rules):
    with pytest.raises(PredicateError, match=says):
        rules.subscribe_many(table)


def test_what_a_table_tells_is_not_told_twice(rules):
    with pytest.raises(TypeError, match="leave out the argument ids="):
        rules.subscribe_many(pa.table({"where": ["TRUE"], "id": [1]}), ids=[2])
    assert rules.subscribe_many(pa.table({"where": ["TRUE"]}), ids=[2]).tolist() == [2]


def test_arrays_of_text_are_lists_of_rules(rules):
    assert rules.subscribe_many(np.array(["price > 1", "price > 2"])).tolist() == [0, 1]


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pl.Series, pa.array])
def test_columns_by_name_are_of_any_kind(kind, rules):
    columns = {"where": ["price > 1", "price > 2"], "id": [7, 8], "ttl": [5.0, 6.0]}
    assert rules.subscribe_many({name: kind(column) for name, column in columns.items()}).tolist() == [7, 8]
    assert [rules[id].expires for id in (7, 8)] == [1005.0, 1006.0]
    bounds = {"low.price": [1.0, 2.0], "high.price": [1.0, 3.0]}
    added = rules.subscribe_many({name: kind(column) for name, column in bounds.items()}, ids=[1, 2], ttl=9)
    assert (added.tolist(), rules[2].expires) == ([1, 2], 1009.0)
    assert sorted(rules.match({"price": 2.5}).tolist()) == [2, 7, 8]


BOUNDS = {
    "id": ["a", "b", "c", "d", "e"],
    "low.price": [1.0, 5.0, None, float("-inf"), 3.0],
    "high.price": [2.0, 4.0, 3.0, None, 3.0],
    "metadata": [None, None, '{"to": 1}', "[", None],
}


@pytest.mark.parametrize("kind", sorted(TABLES.keys() - {"sqlite"}))
def test_bounds_come_from_tables(kind, rules):
    bad = []
    assert rules.subscribe_many(TABLES[kind](BOUNDS), on_error=bad.append).tolist() == ["a", "c", "e"]
    assert [(one.row, one.id) for one in bad] == [(1, "b"), (3, "d")]
    assert str(bad[0]) == "row 1, id 'b': attribute 'price': low above high in [5.0, 4.0]"
    assert bad[0].where == {"low.price": 5.0, "high.price": 4.0}
    assert sorted(rules.match({"price": 2})) == ["a", "c"]
    assert rules["c"].metadata == {"to": 1}


@settings(max_examples=30)
@given(st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 2.0, np.nan, np.inf, -np.inf])] * 2), max_size=40))
def test_each_bad_row_of_bounds_is_found(ends):
    rules, bad, alone = EventFilter(Schema({"price": float})), [], []
    for row, (low, high) in enumerate(ends):
        try:
            rules.subscribe_boxes([[low]], [[high]])
        except PredicateError:
            alone.append(row)
    low, high = np.array(ends).reshape(-1, 2).T
    table = {"low.price": low, "high.price": high, "id": range(100, 100 + len(ends))}
    rules.subscribe_many(table, on_error=bad.append)
    assert [one.row for one in bad] == alone
    assert len(rules) == 2 * (len(ends) - len(alone))


def test_bounds_of_another_type_than_the_attribute_are_found_by_row(rules):
    bad = []
    rows = Named({"high.price": [1, "soon", None, 2], "id": [1, 2, 3, 4]})
    assert rules.subscribe_many(rows, on_error=bad.append).tolist() == [1, 3, 4]
    assert bad[0].reason == "attribute 'price' is a number, but has the bound str 'soon'"


@cases(
    ("ids", "says"),
    [
        (["a", "b", "a"], "row 2, id 'a': the id 'a' is taken already, see row 0"),
        ([1, 2, "a"], "row 2, id 'a': the id 'a' is text, that of row 0 is an integer; use one type"),
        ([1, 2, 2**63], "row 2, id 9223372036854775808: an id is an integer from 0 to 2"),
        ([UUID(int=1), UUID(int=2), None], "row 2, this subscription has no id; give each one"),
    ],
)
@cases("column", [{"where": ["price > 1"] * 3}, {"low.price": [1, 2, 3]}])
def test_ids_that_cannot_be_used_are_named(ids, says, column):
    bad = []
    EventFilter(SCHEMA).subscribe_many({**column, "id": ids}, on_error=bad.append)
    with pytest.raises((ValueError, TypeError)) as error:
        EventFilter(SCHEMA).subscribe_many({**column, "id": ids})
    assert [str(one).startswith(says) for one in (*bad, error.value)] == [True, True]


@cases(
    ("columns", "says"),
    [
        ({"where": "price > 1"}, "where must be a list with a value for each subscription, not 'price > 1'"),
        ({"where": ["TRUE"], "id": [1, 2]}, "ids has 2 rows for 1 subscriptions"),
        ({"low.price": [1], "high.price": [1, 2]}, "the columns of bounds have 1, 2 rows"),
    ],
)
def test_columns_have_a_value_for_each(columns, says, rules):
    with pytest.raises((TypeError, ValueError), match=says):
        rules.subscribe_many(columns)


def test_metadata_that_is_no_json_is_named():
    bad = []
    rules = EventFilter(SCHEMA)
    table = pd.DataFrame({"where": ["price < 3", "price < 4"], "metadata": ['{"a": 1}', "{bad"]})
    assert rules.subscribe_many(table, on_error=bad.append).tolist() == [0]
    assert bad[0].reason.startswith("metadata as text must be JSON, but '{bad' is not: ")


@pytest.mark.parametrize("metadata", ["{bad", "[" * 100_000, b"\xff", '["a list"]'], ids=range(4))
def test_metadata_of_tables_that_are_no_json_say_so(metadata, rules):
    table = pd.DataFrame({"where": ["price > 1", "price > 2"], "metadata": [metadata, '{"a": 1}']})
    with pytest.raises((TypeError, ValueError), match=r"^row 0, metadata "):
        rules.subscribe_many(table)
    bad = []
    assert rules.subscribe_many(table, on_error=bad.append).tolist() == [0]
    assert [one.row for one in bad] == [0]
    assert bad[0].reason.startswith("metadata ")


NEVER = "price BETWEEN 5 AND 3"


@pytest.mark.parametrize(
    ("add", "said"),
    [
        (lambda rules: rules.subscribe(NEVER), "1 of 1 subscription can match no event.*: price >= 5 AND"),
        (
            lambda rules: rules.subscribe_many(["price > 1", "FALSE", NEVER, {"symbol": ["a"]}, NEVER]),
            "2 of 5 subscriptions can match no event.*: row 2, price >= 5 AND price <= 3; see Predicate",
        ),
        (lambda rules: rules.subscribe_many([NEVER, "price >"], on_error="skip"), "1 of 1 subscription can"),
        (
            lambda rules: rules.update(rules.subscribe("TRUE"), NEVER),
            "1 of 1 subscription can match no event",
        ),
        (
            lambda rules: rules.subscribe("symbol = 'a' AND symbol = 'b' OR price < 1 AND price > 2"),
            "no event",
        ),
    ],
)
def test_what_can_match_no_event_is_warned_of_once(rules, caplog, add, said):
    with caplog.at_level(logging.WARNING, "rtfilter"):
        rules.subscribe("FALSE")  # is meant so
        assert caplog.messages == []
        add(rules)
        rules.subscribe(NEVER)
    (told,) = [text for text in caplog.messages if "no event" in text]
    assert re.match(said, told) or said in told
    assert Predicate.parse(NEVER, SCHEMA).cost.boxes == 0


RECORDS = [{"id": "a", "where": "price > 1"}, {"id": "b", "where": "price > 2"}]


@cases(
    ("given", "says"),
    [
        (RECORDS, r'the columns id, where; .*\[row\["where"\] for row in rows\], ids=\[row\["id"\]'),
        ([{"where": "TRUE"}], r'\(\[row\["where"\] for row in rows\]\)'),
        ([{"id": 8, "condition": "TRUE"}], r"\[row\[\.\.\.\] for row in rows\], ids="),
        (csv.DictReader(io.StringIO("id,where\na,TRUE\n")), r'rows = list\(\.\.\.\), pass .*"where"'),
        ({"price": [5]}, "use subscribe for a single one"),
        ((text for text in ["TRUE"]), r"not <generator .*list\(\.\.\.\) makes a list"),
    ],
)
@cases("on_error", ["raise", "skip"])
def test_rows_and_columns_are_told_how_to_be_passed(given, says, on_error, rules):
    with pytest.raises(TypeError, match=says):
        rules.subscribe_many(given, on_error=on_error)
    assert len(rules) == 0


def test_patterns_of_attributes_that_are_called_like_columns_are_patterns():
    rules = EventFilter(Schema({"id": int, "where": str}))
    assert len(rules.subscribe_many([{"id": [5], "where": ["Paris"]}, {"where": ["Rome"]}])) == 2
    with pytest.raises(PredicateError, match="expected a list of alternatives; got 5"):
        rules.subscribe_many([{"id": 5}])


@cases("given", [iter(["price > 1"]), sqlite3.connect(":memory:"), 5, None])
@cases("on_error", ["raise", "skip"])
def test_what_is_no_list_of_rules_says_so(given, on_error, rules):
    with pytest.raises(TypeError, match=r"takes a list of predicates, a table or a cursor, not .*list\("):
        rules.subscribe_many(given, on_error=on_error)


def test_floats_as_ids_tell_how_to_make_integers(rules):
    bad = []
    table = pd.DataFrame({"where": ["price > 1", "price > 2"], "id": [1, None]})  # pandas makes floats of it
    rules.subscribe_many(table, on_error=bad.append)
    assert [one.reason for one in bad] == [
        "an id is an integer, text or a UUID, not 1.0; int(id) makes one",
        "this subscription has no id; give each one",
    ]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_one_time_to_live_that_is_text_is_not_taken_for_a_column(on_error, rules):
    with pytest.raises(TypeError, match="a time to live is a number of seconds or a timedelta, not '60'"):
        rules.subscribe_many(["price > 1", "price > 2"], ttl="60", on_error=on_error)


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_arrays_of_times_are_times_in_every_unit(unit):
    rules = EventFilter(Schema({"price": float}), clock=lambda: 1_000_000_000.0)
    expires = np.array(["2030-01-01", "2020-01-01"], f"datetime64[{unit}]")
    rules.subscribe_many({"where": ["price > 1", "price > 2"], "expires": expires})
    assert [rules[id].expires for id in rules] == [1893456000.0, 1577836800.0]
    rules.subscribe_many(
        {"where": ["price > 3"], "ttl": np.array([5], "timedelta64[s]").astype(f"timedelta64[{unit}]")}
    )
    assert rules[2].expires == 1_000_000_005.0
