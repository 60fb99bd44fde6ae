"""Ids that are text or UUIDs, in shards and in changes."""

from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest

from rtfilter import EventFilter, PredicateError, Schema
from rtfilter.spark import ChangeStage, ShardedIndex, build_sharded, match_frame
from spark_cases import pairs

SCHEMA = Schema({"x": float, "y": float})


def conditions(numbers, name="rule {}".format, width=2.0):
    """Boxes at random places, some of them equal, by their ids."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 20, (1000, 2)) * (np.arange(1000) % 5 > 0)[:, None]
    return {
        name(k): f"x BETWEEN {x} AND {x + width} AND y BETWEEN {y} AND {y + width}"
        for k, (x, y) in zip(numbers, ends[numbers].tolist(), strict=True)
    }


def rows(spark, given):
    return spark.createDataFrame(list(given.items()), "id string, where string")


def filtered(given):
    """A filter with these conditions."""
    filter = EventFilter(SCHEMA, ids=str)
    filter.subscribe_many(list(given.values()), ids=list(given))
    return filter


def require(spark, index, given):
    """Check that the index has these subscriptions and gives what a filter gives."""
    values = np.random.default_rng(4).integers(0, 24, (60, 2)).astype(float)
    events = spark.createDataFrame(
        [(k, *row) for k, row in enumerate(values.tolist())], "id int, x double, y double"
    )
    event, id = filtered(given).match_batch(values).pairs()
    wanted = sorted(zip(event.tolist(), id.tolist(), strict=True))
    assert len(index) == len(given)
    assert pairs(match_frame(events, index)) == wanted


@pytest.fixture(scope="module")
def built(spark, tmp_path_factory):
    given = conditions(range(90))
    path = tmp_path_factory.mktemp("text") / "index"
    return build_sharded(rows(spark, given), path, SCHEMA, shards=3), given


def test_an_index_changes_as_a_filter_does(spark, built):
    index, given = built
    assert min(shard.subscriptions for shard in index.shards) > 20
    more = conditions(range(90, 240))
    index = replace(index, most=60).append(rows(spark, more))
    assert len(index.shards) > 3  # shards were cut
    given = given | more
    require(spark, index, given)
    changed = conditions(range(5), width=9.0)
    index = index.update(rows(spark, changed), removed=["rule 7", "unknown"])
    given = given | changed
    del given["rule 7"]
    index = index.remove(spark.createDataFrame([("rule 8",), (None,)], "id string"))
    del given["rule 8"]
    require(spark, ShardedIndex.open(index.place), given)


def test_ids_that_cannot_be_used_are_named(spark, tmp_path):
    index = build_sharded(rows(spark, conditions(range(3))), tmp_path / "index", SCHEMA)
    twice = spark.createDataFrame([("a", "x > 1"), ("a", "x > 2")], "id string, where string")
    with pytest.raises(ValueError, match="subscription a occurs 2 times"):
        index.append(twice)
    with pytest.raises(ValueError, match="subscription rule 1 exists already"):
        index.append(rows(spark, {"a": "x > 1", "rule 1": "x > 1"}))
    bad = []
    index.append(twice, on_error=bad.append)
    assert [(one.id, one.reason) for one in bad] == [("a", "occurs 2 times; ids must be distinct")]


def test_an_index_has_ids_of_one_kind(spark, built, tmp_path):
    index, _ = built
    numbers = spark.createDataFrame([(1, "x > 1")], "id int, where string")
    with pytest.raises(ValueError, match="the ids of this index are text, the column id holds integers"):
        index.append(numbers)
    for wrong in (UUID(int=1), 7):
        with pytest.raises(TypeError, match=r"the ids of this filter are text, .*str\(id\) makes one"):
            index.remove([wrong])
    others = build_sharded(numbers.where("false"), tmp_path / "index", SCHEMA)
    with pytest.raises(ValueError, match="the ids of this index are integers, the column id holds text"):
        others.append(rows(spark, {"a": "x > 1"}))
    with pytest.raises(ValueError, match="the column id holds integers or text, not double"):
        build_sharded(numbers.selectExpr("1.5D AS id", "where"), tmp_path / "new", SCHEMA)


def test_changes_of_a_stream(spark, tmp_path):
    given = conditions(range(20))
    build_sharded(rows(spark, given), tmp_path / "index", SCHEMA, shards=2)
    changes = [
        ("rule 3", "x > 1", False),
        ("new", "x > 2", None),
        ("rule 4", None, True),
        ("rule 5", "x >", None),
    ]
    ChangeStage(tmp_path / "index")(
        spark.createDataFrame(changes, "id string, where string, removed boolean"), 0
    )
    given |= {"rule 3": "x > 1", "new": "x > 2"}
    del given["rule 4"]
    require(spark, ShardedIndex.open(tmp_path / "index"), given)


def test_changes_of_a_saved_filter_with_uuids(spark, tmp_path):
    first, second = UUID(int=10), UUID(int=11)
    filter = EventFilter(SCHEMA, ids=UUID)
    filter.subscribe_many(["x > 1", "x > 2"], ids=[first, second])
    filter.save(tmp_path / "index")
    changes = [(str(first).upper(), "x > 5", False), (str(second), None, True), ("soon", "x > 1", None)]
    frame = spark.createDataFrame(changes, "id string, where string, removed boolean")
    bad = []
    stage = ChangeStage(tmp_path / "index", on_error=bad.append)
    for number in range(2):
        stage(frame, number)
        changed = EventFilter.load(tmp_path / "index")
        assert {id: str(changed[id].predicate) for id in changed} == {first: "x > 5"}
    assert {(one.id, one.reason.partition(";")[0]) for one in bad} == {
        ("soon", "the ids of this filter are UUIDs, not 'soon'")
    }
    with pytest.raises(PredicateError, match="subscription soon: the ids of this filter are UUIDs"):
        ChangeStage(tmp_path / "index", on_error="raise")(frame, 2)
