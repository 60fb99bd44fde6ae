"""Tables of misses: which pairs are in them, in which order, and what a row says."""

import math
from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limits import sources_within
from predicate_cases import events, schemas
from rtfilter import EventFilter, UnknownSubscriptionError
from rtfilter.events.schema import Schema
from rtfilter.predicates.explanations import misses as module
from rtfilter.predicates.explanations.explanation import explain, nearest
from rtfilter.predicates.explanations.misses import Miss, MissSearch
from rtfilter.predicates.predicate import parse

SCHEMA = Schema({"price": float, "symbol": str, "bid": float, "at": datetime})


def table(conditions, rows, limit=1000):
    """The table of conditions, numbered from 0, and events."""
    search = MissSearch(limit)
    for id, condition in enumerate(conditions):
        search.look(id, parse(condition, SCHEMA), rows)
    return search.misses()


def nearness(failing):
    """What the order is made of: fewer constraints, then fewer without a distance, then smaller distances."""
    told = [one.distance for one in failing if one.distance is not None]
    return len(failing), len(failing) - len(told), sum(told)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60)
def test_the_table_is_that_of_single_explanations(data):
    types = data.draw(schemas())
    schema = Schema(types)
    predicates = [
        parse(data.draw(sources_within(types))[0], schema) for _ in range(data.draw(st.integers(1, 4)))
    ]
    batch = schema.read(data.draw(st.lists(events(types), max_size=4)) or [{}])
    rows = [batch.row(row) for row in range(len(batch))]
    limit = data.draw(st.integers(0, 12))
    search = MissSearch(limit)
    for id, predicate in enumerate(predicates):
        search.look(id, predicate, rows)
    found = search.misses()
    assert found.pairs == len(rows) * len(predicates)
    assert found.matched == sum(one.matches(row) for one in predicates for row in rows)
    expected = []
    for id, predicate in enumerate(predicates):
        for event, row in enumerate(rows):
            if not predicate.matches(row):
                filters = enumerate(explain(predicate, row).filters, 1)
                nearest = min(((nearness(one.failing), place, one.failing) for place, one in filters),
                              key=lambda one: one[:2], default=((math.inf, 0, 0), 0, ()))  # fmt: skip
                expected.append((nearest[0], event, id, *nearest[1:]))
    expected.sort(key=lambda one: one[:3])
    told = [(event, id, place, len(failing)) for _, event, id, place, failing in expected[:limit]]
    seen = dict.fromkeys((row.event, row.subscription, row.filter, row.failing) for row in found)
    assert list(seen) == told
    assert (found.told, found.missed) == (len(told), len(expected))
    of_events = [str(one.constraint) for each in expected[:limit] for one in each[4]]
    assert [row.constraint for row in found if row.filter] == of_events
    assert all(len(line) <= 100 for line in str(found).splitlines())


def test_rows_say_what_was_wanted_and_by_how_much():
    rows = [{"price": 12.5, "symbol": "ACMX", "bid": 13, "at": "2024-05-31T12:00:00Z"}]
    found = table(
        [
            "price < 10",
            "symbol = 'ACME' AND bid < 10",
            "bid <= price",
            "symbol IN ('B', 'A') OR symbol LIKE 'B%' AND price = 1",
            "at > TIMESTAMP '2024-05-31T12:01:00Z'",
            "FALSE",
            "TRUE",
        ],
        rows,
    )
    less = ("price", "<", 10, 12.5, 2.5, "", None, "price < 10", "too high by 2.5")
    noon = 1_717_156_800 * 10**6
    assert list(found) == [
        Miss(0, 2, 1, 1, "bid", "<=", 12.5, 13, 0.5, "", None, "bid <= price", "too high by 0.5 for 12.5"),
        Miss(0, 0, 1, 1, *less),
        Miss(
            0, 4, 1, 1, "at", ">", noon + 60 * 10**6, "2024-05-31T12:00:00Z", 60.0, "s", None,
            "at > TIMESTAMP '2024-05-31T12:01:00Z'", "too low by 60 s",
        ),
        Miss(
            0, 3, 1, 1, "symbol", "in", ("A", "B"), "ACMX", None, "", 1, "symbol IN ('A', 'B')",
            "none of 2 texts; 'A' agrees up to character 1",
        ),
        Miss(0, 1, 2, 1, "symbol", "=", "ACME", "ACMX", None, "", 3, "symbol = 'ACME'",
             "character 4 is 'X', not 'E'"),
        Miss(0, 1, 2, 1, "bid", "<", 10, 13, 3.0, "", None, "bid < 10", "too high by 3"),
        Miss(0, 5, 0, 0, "", "", None, None, None, "", None, "FALSE", "no filter: nothing can match"),
    ]  # fmt: skip
    assert (found.pairs, found.matched, found.missed, found.told) == (7, 1, 6, 6)


def test_printed():
    found = table(
        ["price < 10 AND symbol = 'A'", "bid <= price"],
        [{"price": 12.5, "symbol": "a long symbol", "bid": 99}, {}],
        limit=3,
    )
    assert str(found) == (
        "0 of 4 pairs match; the nearest 3 of the 4 others\n"
        "event  subscription  constraint    value            by how much\n"
        "0      1             bid <= price  99               too high by 86.5 for 12.5\n"
        "1      1             bid <= price                   bid and price missing\n"
        "0      0             price < 10    12.5             too high by 2.5\n"
        "                     symbol = 'A'  'a long symbol'  character 1 is 'a', not 'A'"
    )
    assert repr(found) == "Misses(0 of 4 pairs match; the nearest 3 of the 4 others)"
    assert "subscription" not in str(table(["TRUE"], [{}]))
    assert repr(table(["TRUE"], [{}])) == "Misses(1 of 1 pair match)"


def test_long_cells_are_cut():
    condition = "symbol = 'a symbol that is longer than its column is wide'"
    search = MissSearch()
    search.look(UUID(int=7), parse(condition, SCHEMA), [{"symbol": "a symbol that is long\n, too"}])
    line = str(search.misses()).splitlines()[-1]
    assert len(line) <= 100
    assert line.startswith(
        "0      00000000-0000-0000-0000-000000000007  symbol = 'a s...  'a sy...  character 22"
    )


def test_a_long_table_is_printed_in_part():
    found = table(["price < 10"], [{"price": 10 + row} for row in range(150)])
    lines = str(found).splitlines()
    assert len(lines) == 2 + 100 + 1
    assert lines[-1] == "... and 50 more rows"
    assert [row.event for row in found] == list(range(150))


@pytest.mark.parametrize("limit", [-1, 1.5, True, "5"])
def test_a_limit_that_is_none(limit):
    with pytest.raises(ValueError, match="limit is the number of pairs in the table"):
        MissSearch(limit)


def test_columns_for_others():
    found = table(["price < 10", "symbol = '\ud800'"], [{"price": 12.5, "symbol": "é"}, {}])
    frame = found.to_pandas()
    assert list(frame) == list(Miss._fields)
    assert frame.distance.dtype == "float64"
    assert frame.distance[0] == 2.5
    assert frame.agrees.tolist() == [pd.NA, 0, pd.NA, pd.NA]
    arrow = found.to_arrow()
    assert arrow.column_names == list(Miss._fields)
    assert arrow["value"].to_pylist() == ["12.5", "'é'", None, None]
    assert arrow["wanted"].to_pylist() == ["10", "'\\ud800'", "10", "'\\ud800'"]
    assert arrow["subscription"].to_pylist() == [0, 1, 0, 1]
    empty = table([], [])
    assert not len(empty.to_pandas())
    assert empty.to_arrow().schema == arrow.schema


# -- of a filter -------------------------------------------------------------------------------------


def alerts(**options):
    filter = EventFilter(SCHEMA, **options)
    filter.subscribe_many(["price < 10", "price < 15", "price > 20 AND symbol = 'A'"])
    return filter


def test_a_batch_and_some_or_all_subscriptions():
    filter, batch = alerts(), [{"price": 12.5}, {"price": 9}]
    every = filter.explain(batch)
    assert (every.pairs, every.matched) == (6, 3)
    assert list(filter.explain(pd.DataFrame(batch))) == list(every)
    assert [row.event for row in filter.explain(batch, ids=0)] == [0]
    assert [row.subscription for row in filter.explain(batch[0])] == [0, 2, 2]
    for ids in ([0, 2, 2], np.array([0, 2]), (2, 0)):
        assert {row.subscription for row in filter.explain(batch, ids=ids)} == {0, 2}
    assert filter.explain(batch, limit=1).rows == every.rows[:1]
    assert filter.explain([]).pairs == 0
    with pytest.raises(UnknownSubscriptionError):
        filter.explain(batch, ids=[0, 9])


@pytest.mark.parametrize("ids", [["b", "a"], [UUID(int=2), UUID(int=1)]])
def test_ids_that_are_no_integers(ids):
    filter = EventFilter(SCHEMA)
    filter.subscribe_many(["price < 10", "price < 5"], ids=ids)
    found = filter.explain([{"price": 12}, {"price": 10}])
    assert [(row.event, row.subscription) for row in found] == [
        (1, ids[0]),
        (0, ids[0]),
        (1, ids[1]),
        (0, ids[1]),
    ]
    given = [getattr(id, "bytes", id) for id in ids]
    assert found.to_arrow()["subscription"].to_pylist() == [given[0], given[0], given[1], given[1]]
    assert [row.subscription for row in filter.explain([{"price": 7}], ids=ids[1])] == [ids[1]]
    with pytest.raises(TypeError):
        filter.explain([{}], ids=5)
    with pytest.raises(TypeError, match="one event and its `id`"):
        filter.explain({}, ids[0], limit=5)
    with pytest.raises(ValueError, match="one event with an id, not 2"):
        filter.explain([{}, {}], ids[0])


def test_a_subscription_beyond_its_deadline_is_not_looked_at():
    now = [0.0]
    filter = EventFilter(SCHEMA, clock=lambda: now[0])
    filter.subscribe_many(["price < 10", "price < 5"], ttl=[10, None])
    assert filter.explain([{}]).pairs == 2
    now[0] = 10.0
    assert [row.subscription for row in filter.explain([{}])] == [1]


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr("rtfilter.predicates.explanations.misses.MAX_PAIRS", 5)
    with pytest.raises(ValueError, match="2 events and 3 subscriptions are more than 5 pairs"):
        alerts().explain([{}, {}])


def test_most_pairs_are_not_explained(monkeypatch):
    """Beyond the limit, only pairs that fail in few enough constraints are."""
    explained = []
    monkeypatch.setattr(module, "nearest", lambda *of: explained.append(of) or nearest(*of))
    search = MissSearch(2)
    near, far = parse("price < 10", SCHEMA), parse("price < 10 AND bid < 10", SCHEMA)
    search.look(0, near, [{"price": 11}, {"price": 12}])
    search.look(1, far, [{"price": 11, "bid": 11}] * 100)
    assert len(explained) == 2
    assert [row.event for row in search.misses()] == [0, 1]


def test_both_sides_of_a_comparison_are_moments():
    noon = datetime(2024, 5, 31, 12, tzinfo=UTC)
    search = MissSearch()
    schema = Schema({"t": datetime, "u": datetime})
    search.look(0, parse("t > u", schema), [{"t": noon, "u": noon}])
    assert [(str(row.value), str(row.wanted), row.by) for row in search.misses()] == [
        ("2024-05-31T12:00:00Z", "2024-05-31T12:00:00Z", "not above 2024-05-31T12:00:00Z")
    ]
