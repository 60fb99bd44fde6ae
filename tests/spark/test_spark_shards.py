"""An index in shards gives what one in a piece gives, in every version."""

import gc
import json
import shutil
import time
import weakref
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as sf

from lengths import long_but
from rtfilter import EventFilter, PredicateError, Schema, SnapshotError
from rtfilter.filter import inside
from rtfilter.spark import MatchStage, ShardedIndex, build_sharded, leases, match_frame, places, shards
from rtfilter.spark.cuts import Cuts
from rtfilter.spark.routes import Route
from rtfilter.spark.subscribing import hulls
from spark_cases import expected, frame, pairs

NAMES = ("x", "y", "z")
SCHEMA = Schema(dict.fromkeys(NAMES, float))


def boxes(n, seed=1):
    """Narrow boxes with open sides and repetitions among them."""
    rng = np.random.default_rng(seed)
    low = rng.random((n, 3))
    high = low + rng.choice([0.01, 0.2], (n, 3))
    low[rng.random((n, 3)) < 0.1] = -np.inf
    high[rng.random((n, 3)) < 0.1] = np.inf
    low[n // 2 : n // 2 + 9], high[n // 2 : n // 2 + 9] = low[0], high[0]
    return low, high


def subscriptions(spark, low, high, ids, slices=2):
    """As a frame with flat columns, null where open."""
    sides = {f"{side}.{name}": values[:, k] for side, values in (("low", low), ("high", high))
             for k, name in enumerate(NAMES)}  # fmt: skip
    columns = {name: pa.array(value, mask=~np.isfinite(value)) for name, value in sides.items()}
    table = pa.table({"id": pa.array(ids, pa.int64()), **columns})
    return spark.createDataFrame(table).repartition(slices)


def points(spark, n=400):
    """Events, some of which miss an attribute."""
    rng = np.random.default_rng(2)
    values = rng.random((n, 3))
    columns = {name: pa.array(values[:, k], mask=rng.random(n) < 0.05) for k, name in enumerate(NAMES)}
    table = pa.table({"id": np.arange(n), **columns})
    return spark.createDataFrame(table), table.drop("id")


def matched(filter, events):
    row, id = filter.match_batch(events).pairs()
    return sorted(zip(row.tolist(), id.tolist(), strict=True))


def matched_in(index, events):
    """The same of an index in shards, each event in those to which its route leads."""
    route = index.route()
    rows, shards, _ = route.find(route.schema.read(events))
    found = []
    for number, lease in enumerate(route.leases):
        own = rows[shards == number]
        found += [(int(own[row]), id) for row, id in matched(lease.open(), events.take(pa.array(own)))]
    return sorted(found)


@pytest.fixture(scope="module")
def built(spark, tmp_path_factory):
    """The filter of 3000 boxes, its index in 5 shards, its directory."""
    low, high = boxes(3000)
    ids = np.random.default_rng(3).permutation(9000)[:3000]
    filter = EventFilter(SCHEMA, matcher={"name": "rtree", "capacity": (8, 16)})
    filter.subscribe_boxes(low, high, ids=ids)
    path = tmp_path_factory.mktemp("sharded") / "index"
    frame = subscriptions(spark, low, high, ids)
    return filter, build_sharded(frame, path, SCHEMA, shards=5, capacity=(8, 16)), path


def test_an_index_is_shown_in_one_line():
    parts = [shards.Shard(f"{row:032x}", 1000, b"x" * 3000) for row in range(3)]
    index = ShardedIndex("/data/rules", 2, SCHEMA, (64, 512), 1000, Cuts([]), parts, parts[0])
    assert repr(index) == "ShardedIndex('/data/rules', version 2, 3,000 subscriptions in 3 shards)"


@pytest.mark.parametrize(
    "options",
    long_but([{}, {"partitions": 1}, {"partitions": 7}, {"balance": False}], [{}]),
    ids=str,
)
def test_pairs_are_those_of_one_filter(spark, built, options):
    filter, index, path = built
    events, table = points(spark)
    assert len(index) == 3000
    result = match_frame(events, index, **options)
    told = "match where they are (asked)" if "balance" in options else "deal out (shards)"
    if "partitions" not in options:
        assert told in result._jdf.queryExecution().executedPlan().toString()
    assert pairs(result) == matched(filter, table)
    assert pairs(match_frame(events.limit(0), str(path), **options)) == []


def test_events_with_lists_are_searched_in_all_shards_of_their_elements(built):
    filter, index, _ = built
    rng = np.random.default_rng(4)
    columns = {name: pa.array(rng.random((60, 2 - at % 2)).tolist()) for at, name in enumerate(NAMES)}
    events = pa.table(columns)
    assert matched_in(index, events) == matched(filter, events)


def test_a_stage_of_a_stream_finds_the_same(spark, built):
    filter, index, path = built
    events, table = points(spark)
    seen = []
    stage = MatchStage(path, lambda matches, number: seen.extend(pairs(matches)))
    stage(events, 0)
    assert seen == matched(filter, table)
    assert stage.subscriptions == len(index)


def test_shards_are_of_one_size_and_near_each_other(spark, built):
    _, index, _ = built
    sizes = [shard.subscriptions for shard in index.shards]
    assert sum(sizes) == 3000
    assert max(sizes) <= 1.2 * min(sizes)
    _, table = points(spark)
    rows, shards, _ = index.route().find(index.schema.read(table))
    assert len(np.unique(shards)) == 5
    assert len(rows) < 0.8 * 5 * len(table)  # an event does not visit all


def test_an_event_only_visits_shards_with_a_leaf_in_its_way(spark, built):
    _, index, _ = built
    _, table = points(spark)
    rows, shards, work = index.route().find(index.schema.read(table))
    for number, lease in enumerate(index.route().leases):
        visits = inside(lease.open()).matcher.workload(index.schema.read(table))
        own = shards == number
        assert sorted(rows[own]) == np.flatnonzero(visits).tolist()
        assert work[own].tolist() == visits[rows[own]].tolist()


@pytest.mark.long
def test_partitions_have_the_same_work(spark, built):
    _, index, _ = built
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.random((2000, 3)) * 0.2, rng.random((6000, 3))])
    columns = {name: values[:, k] for k, name in enumerate(NAMES)}
    events = spark.createDataFrame(pa.table({"id": np.arange(len(values)), **columns}))
    result = match_frame(events, index, partitions=4, details=True)
    found = result.withColumn("part", sf.spark_partition_id()).collect()
    shard_of = {int(id): number for number, lease in enumerate(index.route().leases)
                for id in lease.open().ids()}  # fmt: skip
    work, seen = np.zeros(4), set()
    for row in found:
        key = row.id, shard_of[row.subscription]
        if key not in seen:
            seen.add(key)
            work[row.part] += row.workload
    assert work.max() <= 1.15 * work.mean()


def test_conditions_and_structs_are_read_too(spark, alerts, rows, tmp_path):
    """Strings, disjunctions, and predicates that no box bounds exactly."""
    conditions = [(id, str(alerts[id].predicate)) for id in alerts.ids().tolist()]
    given = spark.createDataFrame([*conditions, (1000, "price < 1 AND price > 2")], "id int, where string")
    index = build_sharded(given, tmp_path / "index", alerts.schema, shards=3)
    assert len(index) == len(alerts) + 1
    assert pairs(match_frame(frame(spark, rows), index)) == expected(alerts, rows)
    structs = spark.createDataFrame(
        [(500, (1.0, (None,)), (2.0, (3,)))],
        "id long, low struct<price: double, at: struct<depth: int>>, "
        "high struct<price: double, at: struct<depth: int>>",
    )
    index = index.append(structs)
    event = {"id": "in", "price": 1.5, "symbol": None, "at": {"depth": 2}, "other": 1}
    outside = {**event, "id": "out", "at": {"depth": 4}}
    found = pairs(match_frame(frame(spark, [event, outside], 1), index, balance=False))
    assert ("in", 500) in found
    assert ("out", 500) not in found


@pytest.mark.long
def test_bounds_of_timestamps_and_booleans(spark, tmp_path):
    schema = Schema({"at": datetime, "on": bool})
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    given = spark.createDataFrame(
        [(1, noon, noon, None), (2, None, noon, True)],
        "id int, `low.at` timestamp, `high.at` timestamp, `low.on` boolean",
    )
    index = build_sharded(given, tmp_path / "index", schema, shards=2)
    events = spark.createDataFrame(
        [(1, noon, None), (2, noon, True), (3, noon + timedelta(seconds=1), True)],
        "id int, at timestamp, on boolean",
    )
    assert pairs(match_frame(events, index)) == [(1, 1), (2, 1), (2, 2)]


def test_versions_share_untouched_shards_and_old_ones_stay(spark, built, tmp_path):
    before, _, path = built
    shutil.copytree(path, tmp_path / "index")
    index = ShardedIndex.open(tmp_path / "index")
    events, table = points(spark)
    reader = match_frame(events, index)
    low, high = np.full((20, 3), 0.5), np.full((20, 3), 0.52)  # all in one place
    ids = np.arange(10_000, 10_020)
    longer = index.append(subscriptions(spark, low, high, ids))
    assert longer.version == 2
    assert len(longer) == 3020
    assert len({shard.name for shard in longer.shards} - {shard.name for shard in index.shards}) == 1
    after = EventFilter(SCHEMA, matcher="rtree")
    inside(after).matcher.tree.extend(*inside(before).matcher.tree.content()[:3])
    after.subscribe_boxes(low, high, ids=ids)
    assert matched_in(ShardedIndex.open(tmp_path / "index"), table) == matched(after, table)
    gone = np.concatenate([before.ids()[:40], ids[:5], [77_777]])
    shorter = longer.remove(gone)
    after.unsubscribe_many(gone)
    assert len(shorter) == len(after) == 2975
    assert matched_in(shorter, table) == matched(after, table)
    as_frame = spark.createDataFrame([(int(id),) for id in ids], "id long")
    assert len(shorter.remove(as_frame)) == 2960
    assert shorter.remove([77_777]) is shorter
    assert pairs(reader) == matched(before, table)
    assert ShardedIndex.open(tmp_path / "index", 2) == longer


@pytest.mark.long
def test_shards_that_grow_are_cut(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "LEAST", 10)
    low, high = boxes(400)
    ids = np.arange(400)

    def given(own):
        return subscriptions(spark, low[own], high[own], ids[own])

    index = build_sharded(given(slice(0, 60)), tmp_path / "index", SCHEMA, shards=2)
    filter = EventFilter(SCHEMA, matcher="rtree")
    _, table = points(spark)
    for own in (slice(60, 200), slice(200, 400)):
        index = index.append(given(own))
        assert max(shard.subscriptions for shard in index.shards) <= 60
        assert len(index.cuts.cuts) + 1 == len(index.shards)
    filter.subscribe_boxes(low, high)
    assert matched_in(ShardedIndex.open(tmp_path / "index"), table) == matched(filter, table)
    content = [lease.open() for lease in index.route().leases]
    for number, shard in enumerate(content):
        own = shard.ids()
        assert (index.cuts.place(low[own], high[own], own) == number).all()
    assert sorted(id for shard in content for id in shard.ids()) == ids.tolist()
    index = index.update(given(slice(0, 1)), removed=[5, 6])
    filter.unsubscribe_many([5, 6])
    assert matched_in(index, table) == matched(filter, table)


def test_old_versions_can_be_removed(spark, built, tmp_path):
    before, _, path = built
    shutil.copytree(path, tmp_path / "index")
    first = ShardedIndex.open(tmp_path / "index")
    second = first.remove(before.ids()[:1])
    assert second.expire() == 1
    names = {shard.name for shard in second.shards}
    assert {file.name for file in (tmp_path / "index" / "shards").iterdir()} == names
    assert [file.name for file in (tmp_path / "index" / "leaves").iterdir()] == [second.leaves.name]
    with pytest.raises(SnapshotError, match="has the versions 2, not 1"):
        ShardedIndex.open(tmp_path / "index", 1)
    _, table = points(spark)
    before_less = EventFilter(SCHEMA, matcher="rtree")
    inside(before_less).matcher.tree.extend(*inside(before).matcher.tree.content()[:3])
    before_less.unsubscribe_many(before.ids()[:1])
    assert matched_in(second, table) == matched(before_less, table)


@pytest.mark.long
@pytest.mark.parametrize("count", long_but([0, 1, 2], [0]))
def test_few_subscriptions_make_few_shards(spark, tmp_path, count):
    low, high = boxes(40)
    given = subscriptions(spark, low[:count], high[:count], np.arange(count))
    index = build_sharded(given, tmp_path / "index", SCHEMA, shards=4)
    assert len(index.shards) == max(count, 1)
    filter = EventFilter(SCHEMA, matcher="rtree")
    filter.subscribe_boxes(low[:count], high[:count])
    _, table = points(spark)
    assert matched_in(ShardedIndex.open(tmp_path / "index"), table) == matched(filter, table)
    assert len(index.append(subscriptions(spark, low[5:], high[5:], np.arange(5, 40)))) == 35 + count


@pytest.mark.long
def test_an_index_that_starts_empty_is_cut_where_its_boxes_are(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "LEAST", 200)
    low, high = boxes(2000)
    low, high = np.where(np.isfinite(low), low, 0) * 1000 + 5, np.where(np.isfinite(high), high, 1) * 1000 + 6
    high = np.minimum(high, low + 50)
    index = build_sharded(subscriptions(spark, low[:0], high[:0], []), tmp_path / "index", SCHEMA, shards=1)
    index = index.append(subscriptions(spark, low, high, np.arange(2000)))
    assert len(index.shards) == 20
    found, _, _ = index.route().find(index.schema.read(low[:500]))
    assert len(found) < 5 * 500


@pytest.mark.long
def test_updates_leave_only_what_versions_name(spark, tmp_path, monkeypatch):
    low, high = boxes(40)
    index = build_sharded(
        subscriptions(spark, low, high, np.arange(40)), tmp_path / "index", SCHEMA, shards=2
    )
    for _ in range(2):
        index = index.update(subscriptions(spark, low, high, np.arange(40)))
    (tmp_path / "index" / "shards" / "abandoned").mkdir()
    assert index.expire(2) == 1
    folders = {file.name for file in (tmp_path / "index" / "shards").iterdir()}
    assert len(folders) == 2 * 2 + 1
    monkeypatch.setattr(shards, "ABANDONED", 0.001)
    assert index.expire() == 1
    folders = {file.name for file in (tmp_path / "index" / "shards").iterdir()}
    assert folders == {shard.name for shard in index.shards}
    with pytest.raises(ValueError, match="at least 1 version is kept, not 0"):
        index.expire(0)


@pytest.mark.long
def test_mistakes_change_nothing(spark, built, tmp_path, monkeypatch):
    _, index, path = built
    low, high = boxes(4)

    def refuse(error, match, given, *, at=tmp_path / "new", schema=SCHEMA, **options):
        with pytest.raises(error, match=match):
            build_sharded(given, at, schema, **options)

    good = subscriptions(spark, low, high, [1, 2, 3, 4])
    refuse(SnapshotError, "is not empty", good, at=path)
    refuse(ValueError, "at least 1 shard, not 0", good, shards=0)
    refuse(ValueError, "subscription 2 occurs 2 times", subscriptions(spark, low, high, [1, 2, 2, 4]))
    refuse(ValueError, "must not be negative: -3", subscriptions(spark, low, high, [1, 2, -3, 4]))
    refuse(ValueError, r"at most 2\*\*63 - 2", subscriptions(spark, low, high, [1, 2, 3, 2**63 - 1]))
    twice = good.withColumn("low", sf.struct(sf.lit(1.0).alias("x")))
    refuse(PredicateError, "column 'low.x' occurs twice", twice)
    refuse(ValueError, "1 subscriptions have no id", subscriptions(spark, low, high, [1, 2, None, 4]))
    refuse(ValueError, "subscriptions need one column id", good.drop("id"))
    refuse(PredicateError, "unknown attribute 'z'", good, schema=Schema({"x": float, "y": float}))
    refuse(PredicateError, "holds double, but the attribute is a bool", good,
           schema=Schema({"x": float, "y": float, "z": bool}))  # fmt: skip
    wrong = spark.createDataFrame([(7, "x > 1 AND"), (8, "x > 1")], "id int, where string")
    refuse(PredicateError, r"^subscription 7: [^\n]*\n    x > 1 AND\n          \^$", wrong)
    with monkeypatch.context() as patched:
        patched.setattr(ShardedIndex, "_publish", None)
        refuse(TypeError, "'NoneType' object is not callable", good)
    assert not (tmp_path / "new" / "versions").exists()
    assert len(build_sharded(wrong.where("id = 8"), tmp_path / "new", SCHEMA)) == 1  # nothing is in the way
    with pytest.raises(ValueError, match=f"subscription {index_id(index)} exists already"):
        index.append(subscriptions(spark, low[:1], high[:1], [index_id(index)]))
    with pytest.raises(TypeError, match="ids must be integers"):
        index.remove(["a"])
    assert ShardedIndex.open(path) == index


@pytest.mark.long
def test_shards_keep_times_to_live_and_metadata(spark, tmp_path):
    schema, began = Schema({"x": float}), time.time()
    rows = [(k, f"x > {k}", 3600.0 if k % 2 else None, f'{{"n": {k}}}' if k % 3 else None) for k in range(30)]
    given = spark.createDataFrame(rows, "id int, where string, ttl double, metadata string")
    given = given.withColumn("ttl", sf.col("ttl").cast("decimal(9, 2)"))
    index = build_sharded(given, tmp_path / "index", schema, shards=3)
    more = spark.createDataFrame([(30, 1.0, timedelta(hours=1)), (31, 2.0, timedelta(milliseconds=1))],
                                 "id int, `low.x` double, ttl interval day to second")  # fmt: skip
    index = index.append(more)
    at = datetime(2500, 1, 1, tzinfo=UTC)
    index = index.append(
        spark.createDataFrame([(32, "x > 9", at)], "id int, where string, expires timestamp")
    )
    found = {}
    for lease in index.route().leases:
        shard = lease.open()
        found |= {id: (shard[id].expires, shard[id].metadata) for id in shard.ids().tolist()}
    assert found.pop(32) == (at.timestamp(), None)
    assert sorted(found) == list(range(31))  # by now the last one is gone
    for id, (deadline, metadata) in found.items():
        assert metadata == ({"n": id} if id % 3 and id < 30 else None)
        assert deadline is None if id % 2 == 0 and id < 30 else began + 3600 < deadline < time.time() + 3600
    assert len({deadline for deadline, _ in found.values()}) == 3  # all tasks count from the same moment
    events = spark.createDataFrame([(0, 2.5)], "id int, x double")
    assert [id for _, id in pairs(match_frame(events, index))] == [0, 1, 2, 30]


def test_a_shard_with_what_is_gone_is_cut(spark):
    now = [0.0]
    filter = EventFilter(
        Schema({"x": float}), matcher={"name": "rtree", "capacity": (4, 4)}, clock=lambda: now[0]
    )
    filter.subscribe_many(
        [f"x > {k}" for k in range(40)], ids=range(40), ttl=[5 if k % 4 else None for k in range(40)]
    )
    now[0] = 6.0
    ids, low, _ = hulls(filter)
    assert ids.tolist() == list(range(0, 40, 4))
    assert np.all(np.diff(low[:, 0]) > 0)


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        ("'soon' AS ttl", ValueError, "the column ttl holds seconds, .* not string"),
        ("true AS expires", ValueError, "the column expires holds timestamps, .* not boolean"),
        ("1 AS ttl, 2 AS expires", PredicateError, "'ttl' or a column 'expires'; keep one"),
        ("7 AS metadata", ValueError, "the column metadata holds JSON objects as strings, not int"),
    ],
)
def test_labels_that_cannot_be_kept_are_refused(spark, tmp_path, column, error, message):
    given = spark.sql(f"SELECT 3 AS id, 'x > 1' AS where, {column}")
    with pytest.raises(error, match=message):
        build_sharded(given, tmp_path / "index", Schema({"x": float}))
    assert not (tmp_path / "index" / "versions").exists()


def index_id(index):
    return int(index.route().leases[0].open().ids()[0])


def test_two_writers_do_not_overwrite_each_other(spark, built, tmp_path):
    before, _, path = built
    shutil.copytree(path, tmp_path / "index")
    index = ShardedIndex.open(tmp_path / "index")
    other = index.remove(before.ids()[:1])
    with pytest.raises(RuntimeError, match="another program has made version 2"):
        index.remove(before.ids()[1:2])
    assert ShardedIndex.open(tmp_path / "index") == other
    third = other.remove(before.ids()[3:4])
    third.expire()
    with pytest.raises(RuntimeError, match="another program has made version 2"):
        replace(third, version=2)._publish()  # their version 2 is gone, but not free
    leases._open.clear()
    with pytest.raises(RuntimeError, match="another program has made version 2"):
        index.remove(before.ids()[1:2])  # so are shards of version 1
    assert ShardedIndex.open(tmp_path / "index") == third


def test_subscriptions_are_removed_from_any_thread(spark, built, tmp_path):
    before, _, path = built
    shutil.copytree(path, tmp_path / "index")
    index = ShardedIndex.open(tmp_path / "index")
    with ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(index.remove, before.ids()[:3]).result()) == 2997


def test_a_damaged_version_is_named(spark, built, tmp_path):
    _, _, path = built
    shutil.copytree(path / "versions", tmp_path / "versions")
    file = tmp_path / "versions" / "00000001.json"
    whole = file.read_text()
    other = json.loads(whole)
    other["shards"][0]["subscriptions"] += 1
    newer = {**json.loads(whole), "format_version": 9}
    for damaged, message in (
        (whole[:-100], "truncated or altered"),
        ("[]", "truncated or altered"),
        (json.dumps(other), "checksum does not fit"),
        (json.dumps(newer), "this rtfilter reads"),
    ):
        file.write_text(damaged)
        with pytest.raises(SnapshotError, match=message):
            ShardedIndex.open(tmp_path)


def test_a_shard_that_is_gone_is_named(spark, built, tmp_path):
    _, _, path = built
    shutil.copytree(path, tmp_path / "index")
    index = ShardedIndex.open(tmp_path / "index")
    shutil.rmtree(tmp_path / "index" / "shards")
    leases._open.clear()
    with pytest.raises(SnapshotError, match="executor cannot see it"):
        index.route().leases[0].open()


# Other file systems


def test_shards_of_another_file_system_are_fetched_once(spark, built, tmp_path, monkeypatch):
    from pyarrow import fs

    _, index, path = built
    reach, copies = places.reach, []

    def elsewhere(place):
        if not place.startswith("far://"):
            return reach(place)
        copies.append(place)
        return fs.SubTreeFileSystem(str(path), fs.LocalFileSystem()), place.removeprefix(
            "far://index"
        ).lstrip("/")

    monkeypatch.setattr(places, "reach", elsewhere)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    far = ShardedIndex.open("far://index")
    assert far.shards == index.shards
    _, table = points(spark)
    lease = far.route().leases[0]
    leases._open.clear()
    fetched = lease.open()
    assert matched(fetched, table) == matched(index.route().leases[0].open(), table)
    copies.clear()
    leases._open.clear()
    assert len(lease.open()) == len(fetched)
    assert copies == []


def test_directories_are_copied_to_any_file_system(tmp_path, monkeypatch):
    from pyarrow import fs

    reach = places.reach
    monkeypatch.setattr(
        places,
        "reach",
        lambda place: (
            (fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), place.removeprefix("far://"))
            if place.startswith("far://")
            else reach(place)
        ),
    )
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "file").write_bytes(b"3")
    places.copy(str(tmp_path / "c"), "far://d/e")
    assert places.read_bytes("far://d/e/file") == b"3"
    for _ in range(2):
        places.remove("far://d")
    assert places.names("far://d/e") == []


def test_a_file_system_that_nobody_knows():
    with pytest.raises(SnapshotError, match="a path, or a URI of hdfs, s3, gs or abfs"):
        ShardedIndex.open("nowhere://there/x")


@pytest.mark.parametrize("text", ["file:///a%20b", "/a b"])
def test_local_places(text):
    assert str(places.local(text)) == "/a b"
    assert places.local("s3://a/b") is None


def test_options_of_a_uri_stay_at_its_end():
    place = places.absolute("s3://bucket/a/?region=x")
    assert places.under(place, "b/c") == "s3://bucket/a/b/c?region=x"
    assert places.under("/a?b", "c") == "/a?b/c"


def test_indexes_that_are_closed_are_released(tmp_path, monkeypatch):
    """Although they refer to themselves, and the garbage collector has been told to pass over them."""
    monkeypatch.setattr(leases, "OPEN", 0)
    monkeypatch.setattr(leases, "_open", OrderedDict())
    opened = []
    for count in (1, 2, 3):
        filter = EventFilter(SCHEMA)
        filter.subscribe_boxes(*boxes(count))
        filter.save(tmp_path / str(count))
        index = leases.lease_of(str(tmp_path / str(count))).open()
        opened.append(weakref.ref(inside(index).subscriptions))
        del index
        gc.freeze()
    assert [one() is None for one in opened] == [True, True, False]


# Cuts


@settings(max_examples=50)
@given(st.integers(1, 9), st.integers(0, 60), st.integers(0, 2**32 - 1))
def test_cuts_place_every_box_and_come_back_from_json(shards, n, seed):
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 4, (n, 2)).astype(float)
    high = low + rng.integers(0, 3, (n, 2))
    low[rng.random((n, 2)) < 0.2], high[rng.random((n, 2)) < 0.2] = -np.inf, np.inf
    ids = rng.permutation(1000)[:n]
    cuts = Cuts.into(shards, low, high, ids)
    placed = cuts.place(low, high, ids)
    assert ((placed >= 0) & (placed < shards)).all()
    assert Cuts.from_json(json.loads(json.dumps(cuts.to_json()))) == cuts
    if n >= 20 * shards:
        counts = np.bincount(placed, minlength=shards)
        assert counts.max() - counts.min() <= n / 4


def test_equal_boxes_are_parted():
    cuts = Cuts.into(4, np.zeros((1000, 2)), np.ones((1000, 2)), np.arange(1000))
    other = cuts.place(np.zeros((4000, 2)), np.ones((4000, 2)), np.arange(50_000, 54_000))
    counts = np.bincount(other, minlength=4)
    assert counts.min() > 800


def test_slots_share_the_partitions_by_work():
    from rtfilter.spark.leases import Lease

    route = Route([Lease("a", b"")] * 3, None, np.array([1.0, 0.0, 3.0]))
    slots = route.slots(2)
    assert [len(own) for own in slots] == [16, 1, 48]
    load = sum(np.bincount(own, minlength=2) / 32 for own in (slots[0], slots[2]))
    assert load.tolist() == [1.0, 1.0]
