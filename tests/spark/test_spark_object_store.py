"""Indexes on a server of S3's protocol."""

import pytest

from object_store import served
from rtfilter import EventFilter, Schema, SnapshotError
from rtfilter.spark import ChangeStage, MatchStage, ShardedIndex, build_sharded, match_frame, places
from spark_cases import pairs

SCHEMA = Schema({"x": float})


@pytest.fixture(scope="module")
def store():
    with served() as uri:
        yield uri


def intervals(spark, ids):
    rows = [(id, f"x BETWEEN {id} AND {id + 1}") for id in ids]
    return spark.createDataFrame(rows, "id int, where string")


def test_an_index_in_shards_lives_there(spark, store):
    place = store("rules")
    events = spark.createDataFrame([(k, k + 0.5) for k in range(9)], "id int, x double")
    index = build_sharded(intervals(spark, range(6)), place, SCHEMA, shards=2)
    with pytest.raises(SnapshotError, match="is not empty"):
        build_sharded(intervals(spark, [1]), place, SCHEMA)
    index = index.append(intervals(spark, [6])).remove([0])
    assert pairs(match_frame(events, place)) == [(k, k) for k in range(1, 7)]
    changes = spark.createDataFrame(
        [(7, "x > 7", False), (1, None, True)], "id int, where string, removed boolean"
    )
    ChangeStage(place)(changes, 0)
    found = []
    MatchStage(place, lambda matches, number: found.extend(pairs(matches)))(events, 0)
    assert found == sorted([*((k, k) for k in range(2, 7)), (7, 7), (8, 7)])
    newest = ShardedIndex.open(place)
    assert newest.version == 4
    assert newest.expire() == 3
    assert places.names(places.under(place, "versions")) == ["00000004.json"]
    assert pairs(match_frame(events, newest)) == found
    assert ShardedIndex.find(store("nothing")) is None


def test_a_saved_filter_is_matched_from_there(spark, store, tmp_path):
    filter = EventFilter(SCHEMA)
    filter.subscribe("x > 3")
    filter.save(tmp_path / "index")
    places.copy(str(tmp_path / "index"), store("index"))
    events = spark.createDataFrame([(1, 2.0), (2, 4.0)], "id int, x double")
    assert pairs(match_frame(events, store("index"))) == [(2, 0)]
