"""Matching Parquet files gives all matches once, whatever happens to a call."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

import files_driver
from rtfilter import EventError, EventFilter, Schema
from rtfilter.basics.errors import FileError
from rtfilter.spark import (
    build_sharded,
    event_files,
    file_units,
    leases,
    match_files,
    places,
    whole_files,
)
from rtfilter.spark import file_matching as files
from rtfilter.spark.routes import Route
from spark_cases import expected, temporary

KINDS = pa.schema(
    [
        ("id", pa.string()),
        ("price", pa.float64()),
        ("symbol", pa.string()),
        ("at", pa.struct([("depth", pa.int32()), ("unused", pa.string())])),
        ("other", pa.int64()),
    ]
)


def write(path, rows, kinds=KINDS, group=40):
    """Write events, in row groups of a few."""
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.Table.from_pylist(rows, kinds), path, row_group_size=group)
    return path


def found(out):
    """The matches in a directory, sorted."""
    table = pq.read_table(out)
    return sorted(zip(table["id"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def parts(out):
    """The files of matches, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in Path(out).glob("part-*")}


def drafts(out):
    """What the unfinished files have so far; one may be finished, or another begun, meanwhile."""
    with suppress(FileNotFoundError):
        return [path.read_text("latin-1") for path in out.glob("_drafts/*")]
    return []


class Here:
    """As much of a session of Spark as `match_files` uses; tasks run in this process, one after the other."""

    def __init__(self):
        self.conf = {"spark.sql.caseSensitive": "false"}
        self.tasks = 0

    def range(self, *bounds):
        self.numbers = range(*bounds[:3])
        return self

    def mapInArrow(self, work, kinds):  # noqa: N802
        self.work = work
        return self

    def collect(self):
        rows = []
        for number in self.numbers:
            self.tasks += 1
            batches = self.work(iter([pa.record_batch({"id": [number]})]))
            rows += [SimpleNamespace(**row) for batch in batches for row in batch.to_pylist()]
        return rows


@pytest.fixture
def here(monkeypatch):
    """Stand-in for a session on two cores. A unit may have few events."""
    monkeypatch.setattr(files, "cores_of", lambda _: 2)
    monkeypatch.setattr(files, "route_to", lambda _, index: Route.whole(leases.lease_of(str(index))))
    monkeypatch.setattr(files, "LEAST", 1)
    return Here()


@pytest.fixture
def index(alerts, tmp_path):
    """The place of a saved index."""
    alerts.save(tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def call(here, index, rows, tmp_path):
    """A function that matches a file of events into `out`, with other arguments on demand."""
    write(tmp_path / "events" / "a.parquet", rows)

    def match(**changed):
        arguments = {"events": tmp_path / "events", "index": index, "out": tmp_path / "out", **changed}
        return match_files(here, **arguments)

    return match


# The result


def test_matches_are_those_of_the_filter(spark, alerts, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LEAST", 1)
    first = write(tmp_path / "events" / "a.parquet", rows[:100])
    turned = pa.schema([KINDS.field(name) for name in ("symbol", "at", "id")])  # without a price
    second = write(tmp_path / "b.parquet", rows[100:170], turned, group=1000)
    write(tmp_path / "events" / "c.parquet", rows[170:])
    write(tmp_path / "events" / "empty.parquet", [])
    write(tmp_path / "events" / "_hidden" / "d.parquet", rows)
    result = match_files(spark, [tmp_path / "events", second, first], alerts, out=tmp_path / "out")
    unpriced = [{"id": row["id"], "symbol": row["symbol"], "at": row["at"]} for row in rows[100:170]]
    wanted = expected(alerts, [*rows[:100], *unpriced, *rows[170:]])
    assert found(tmp_path / "out") == wanted
    assert (result.files, result.events, result.matches, result.left_out) == (4, 300, len(wanted), 0)
    assert len(parts(tmp_path / "out")) == 7  # of eight row groups
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(wanted)


def test_an_index_in_shards(spark, rows, tmp_path):
    rules = spark.createDataFrame([(k, f"price > {k}") for k in range(90)], "id int, where string")
    index = build_sharded(rules, tmp_path / "rules", Schema({"price": float}), shards=3)
    write(tmp_path / "a.parquet", rows)
    match_files(spark, tmp_path / "a.parquet", index, out=tmp_path / "out", details=True)
    assert found(tmp_path / "out") == sorted(
        (row["id"], k) for row in rows for k in range(90) if row["price"] is not None and row["price"] > k
    )
    table = pq.read_table(tmp_path / "out")
    assert table.column_names == ["id", "subscription", "workload", "offset"]
    assert min(table["workload"].to_pylist()) >= 1
    assert min(table["offset"].to_pylist()) >= 0


CONDITIONS = ["tags = 'a'", "NONE tags = 'b'", "staff.name = 'Ann' AND staff.pay > 5", "x > 1", "x = d.y"]
CONDITIONS += ["x IS NULL", "d.name LIKE 'a%'", "ALL staff.pay > 5"]
TEXT = st.sampled_from(["a", "b", "Ann", ""]) | st.none()
NUMBER = st.sampled_from([0.0, 1.0, 6.0, -0.0, 1e300]) | st.none()
EVENTS = st.fixed_dictionaries(
    {
        "x": NUMBER,
        "tags": st.none() | st.lists(TEXT, max_size=3),
        "d": st.none() | st.fixed_dictionaries({"y": NUMBER, "more": TEXT, "name": TEXT}),
        "staff": st.none() | st.lists(st.fixed_dictionaries({"name": TEXT, "pay": NUMBER}), max_size=2),
    }
)
NESTED = pa.schema(
    [
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("id", pa.int16()),
        ("d", pa.struct([("more", pa.string()), ("y", pa.float64()), ("name", pa.string())])),
        ("staff", pa.list_(pa.struct([("pay", pa.float64()), ("name", pa.string())]))),
    ]
)


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENTS, max_size=12), st.integers(1, 5))
def test_nested_events_are_matched_as_by_the_filter(tmp_path_factory, events, group):
    folder = tmp_path_factory.mktemp("nested")
    schema = {"x": float, "tags": str, "d.y": float, "d.name": str, "staff.name": str, "staff.pay": float}
    filter = EventFilter(Schema(schema))
    filter.subscribe_many(CONDITIONS, ids=[f"rule {k}" for k in range(len(CONDITIONS))])
    filter.save(folder / "index")
    rows = [{**event, "id": number} for number, event in enumerate(events)]
    write(folder / "a.parquet", rows, NESTED, group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "cores_of", lambda _: 2)
        patch.setattr(files, "route_to", lambda _, index: Route.whole(leases.lease_of(str(index))))
        match_files(Here(), folder / "a.parquet", folder / "index", out=folder / "out")
    assert found(folder / "out") == sorted((row["id"], id) for row in rows for id in filter.match(row))


def test_only_attributes_are_read(call, index, tmp_path):
    given = event_files.find(tmp_path / "events", str(tmp_path / "out"))
    route = Route.whole(leases.lease_of(str(index)))
    inputs = file_units.Inputs.of(given, Here(), route, "id", "raise")
    (batch,) = file_units.read(inputs.parts[:1], inputs.columns[0], 1000)
    assert batch.schema == pa.schema(
        [
            ("id", pa.string()),
            ("price", pa.float64()),
            ("symbol", pa.string()),
            ("at", pa.struct([("depth", pa.int32())])),
        ]
    )


def test_a_directory_out_hides_only_its_own_files(tmp_path, rows):
    event, result = str(tmp_path / "out" / "a.parquet"), tmp_path / "out?1"
    write(tmp_path / "out" / "a.parquet", rows[:9])
    write(result / "part-0.parquet", rows[:9])
    assert [file.place for file in event_files.find(tmp_path, str(result))] == [event]


def test_columns_are_named_as_spark_names_them(here, index, alerts, rows, tmp_path):
    depth = pa.struct([("Depth", pa.int32())])
    kinds = pa.schema([("ID", pa.string()), ("PRICE", pa.float64()), ("At", depth)])
    cells = [
        {"ID": r["id"], "PRICE": r["price"], "At": {"Depth": (r["at"] or {}).get("depth")}} for r in rows
    ]
    write(tmp_path / "a.parquet", cells, kinds)
    match_files(here, tmp_path / "a.parquet", index, out=tmp_path / "out")
    assert found(tmp_path / "out") == expected(
        alerts, [{"id": r["id"], "price": r["price"], "at": r["at"]} for r in rows]
    )
    here.conf = {"spark.sql.caseSensitive": "true"}
    with pytest.raises(FileError, match="no column 'id'"):
        match_files(here, tmp_path / "a.parquet", index, out=tmp_path / "other")
    here.conf = {"spark.sql.caseSensitive": "false"}
    twice = kinds.append(pa.field("price", pa.float64()))
    write(tmp_path / "b.parquet", [{**cell, "price": 1.0} for cell in cells], twice)
    with pytest.raises(FileError, match="'PRICE' and 'price' are both 'price' to Spark"):
        match_files(here, tmp_path / "b.parquet", index, out=tmp_path / "other")


def test_types_that_spark_lacks(here, tmp_path):
    filter = EventFilter(Schema({"n": int, "half": float, "kind": str}))
    filter.subscribe("n > 2 AND half < 1 AND kind = 'a'")
    filter.save(tmp_path / "index")
    columns = {
        "id": pa.array([UUID(int=7).bytes] * 4, pa.binary(16)),
        "n": pa.array([1, 2, 3, 4], pa.uint64()),
        "half": pa.array(np.array([0.5] * 4, np.float16)),
        "kind": pa.array(["a", "a", "b", "a"]).dictionary_encode(),
        "unread": pa.array([1] * 4, pa.duration("s")),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    match_files(here, tmp_path / "a.parquet", tmp_path / "index", out=tmp_path / "out")
    assert found(tmp_path / "out") == [(UUID(int=7).bytes, 0)]


# What is wrong with the events


def test_an_event_that_cannot_be_used_is_named_or_left_out(spark, alerts, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LEAST", 1)
    bad = [{**row, "price": np.inf} if k in (250, 251) else row for k, row in enumerate(rows)]
    write(tmp_path / "a.parquet", bad)
    arguments = spark, tmp_path / "a.parquet", alerts
    with pytest.raises(EventError, match=r"^event 'e125': attribute 'price' is infinite"):
        match_files(*arguments, out=tmp_path / "out")
    kept = parts(tmp_path / "out")
    assert len(kept) < 8
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    result = match_files(*arguments, out=tmp_path / "out", on_error="skip")
    good = [row for row in bad if row["price"] != np.inf]
    assert found(tmp_path / "out") == expected(alerts, good)
    assert (result.events, result.left_out) == (300, 2)
    assert kept.items() <= parts(tmp_path / "out").items()
    (tmp_path / "out" / "_SUCCESS").unlink()  # as if it had been killed just before
    assert match_files(*arguments, out=tmp_path / "out").left_out == 2


def test_files_that_cannot_be_used_are_named(call, rows, tmp_path):
    for events in ("*.csv", "[", "nothing"):
        with pytest.raises(FileError, match=f"{re.escape(events)}: there"):
            call(events=tmp_path / "events" / events)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(FileError, match="nothing: there are no files; give a file"):
        call(events=tmp_path / "nothing")
    with pytest.raises(FileError, match="name at least one"):
        call(events=[])
    (tmp_path / "text").write_text("id,price")
    with pytest.raises(FileError, match="text: not a readable Parquet file"):
        call(events=tmp_path / "text")
    with pytest.raises(FileError, match=r"a\.parquet: events have no column 'name'"):
        call(id="name")
    for columns, message in (
        ({"id": ["a"], "prize": [1.0]}, "has none of the attributes"),
        ({"id": ["a"], "price": ["1"]}, "column 'price' is string"),
        ({"id": [1], "price": [1.0]}, "column 'id' is int64, but string in .*/a.parquet"),
    ):
        pq.write_table(pa.table(columns), tmp_path / "events" / "b.parquet")
        with pytest.raises(FileError, match=rf"b\.parquet: .*{message}"):
            call()
    assert not (tmp_path / "out").exists()


def test_a_directory_that_gives_spark_a_column_is_refused(call, rows, tmp_path):
    write(tmp_path / "events" / "Price=1" / "a.parquet", rows)
    with pytest.raises(FileError, match=r"Price=1/a\.parquet: 'Price' is in the name of a directory"):
        call()


def test_a_file_that_changes_before_it_is_read_is_noticed(call, here, rows, tmp_path):
    collect = here.collect

    def change():
        write(tmp_path / "events" / "a.parquet", rows[:100])
        return collect()

    here.collect = change
    with pytest.raises(FileError, match=r"a\.parquet has changed since match_files was called"):
        call()
    assert parts(tmp_path / "out") == {}


def test_patterns_and_lists_name_each_file_once(rows, tmp_path):
    for name in (
        "out/a.parquet",
        "2024/a.parquet",
        "2025/a.parquet",
        "2025/b.parquet",
        "2025/_c.parquet",
        "2025/x[1].txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    def names(*given):
        places = [str(tmp_path / one) for one in given]
        return [
            Path(file.place).relative_to(tmp_path).as_posix()
            for file in event_files.find(places, str(tmp_path / "out"))
        ]

    assert names("*/a.parquet") == ["2024/a.parquet", "2025/a.parquet"]  # not that of the result
    assert names("202[5-9]/*.par*") == ["2025/a.parquet", "2025/b.parquet"] == names("2025/?.parquet")
    assert names("2025/x[1].txt") == ["2025/x[1].txt"]
    assert names("*5", "2025/a.parquet") == names("2025") == names("2025/*")
    assert names("2025/_c.parquet") == ["2025/_c.parquet"]  # as it is named


# Again


def test_a_second_call_does_nothing(call, here, tmp_path):
    first, before = call(), parts(tmp_path / "out")
    tasks, second = here.tasks, call()
    assert (second.files, second.events, second.matches) == (first.files, first.events, first.matches)
    assert here.tasks == tasks
    assert parts(tmp_path / "out") == before


def test_a_missing_file_is_written_again(call, alerts, rows, tmp_path):
    first = call()
    before = parts(tmp_path / "out")
    (gone,) = (tmp_path / "out").glob("part-00003-*")
    gone.unlink()
    again = call()
    assert (again.matches, again.left_out) == (first.matches, 0)
    assert found(tmp_path / "out") == expected(alerts, rows)
    after = parts(tmp_path / "out")
    assert {name for name in after if after[name] != before[name]} == {gone.name}


def test_an_equal_index_continues(call, index, alerts, tmp_path):
    call()
    alerts.save(tmp_path / "again")  # as after a restart of a program that makes a filter
    before = parts(tmp_path / "out")
    call(index=tmp_path / "again")
    assert parts(tmp_path / "out") == before


def test_other_arguments_are_refused(call, rows, tmp_path):
    call()
    other = EventFilter(Schema({"price": float}))
    other.subscribe("price > 1")
    other.save(tmp_path / "other")
    write(tmp_path / "b.parquet", rows[:9])
    for changed, message in (
        ({"id": "symbol"}, "as id differs"),
        ({"details": True}, "as details differ"),
        ({"index": tmp_path / "other"}, "as the index differs"),
        ({"events": [tmp_path / "events", tmp_path / "b.parquet"]}, r"as the files .* \(.*b\.parquet\)"),
    ):
        with pytest.raises(FileError, match=f"out has matches of another call, {message}: choose another"):
            call(**changed)
    write(tmp_path / "events" / "a.parquet", rows[:9])
    with pytest.raises(FileError, match=r"as the files of events differ \([^,]*a\.parquet\)"):  # named once
        call()


def test_a_directory_of_others_is_refused(call, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.parquet").write_text("")
    with pytest.raises(FileError, match=r"out has other files, mine\.parquet: choose another"):
        call()


def test_a_full_disk_leaves_nothing_half(call, alerts, rows, tmp_path, monkeypatch):
    fsync, calls = os.fsync, []

    def full(file):
        calls.append(file)
        if len(calls) == 4:  # after the plan and two files
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    monkeypatch.setattr(whole_files.os, "fsync", full)
    with pytest.raises(
        FileError, match=r"out cannot be written: No space left on device; .* call match_files"
    ):
        call()
    assert len(parts(tmp_path / "out")) == 2
    assert list((tmp_path / "out" / "_drafts").iterdir()) == []
    call()
    assert found(tmp_path / "out") == expected(alerts, rows)


def test_a_killed_call_continues(spark, alerts, index, rows, tmp_path):
    events, out = write(tmp_path / "a.parquet", rows), tmp_path / "out"
    path = os.pathsep.join([str(Path(files_driver.__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **temporary(tmp_path), "PYTHONPATH": path}
    driver = [sys.executable, files_driver.__file__, str(events), str(index), str(out)]
    process = subprocess.Popen(driver, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        while "half a file" not in drafts(out):
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = parts(out)
    assert set(found(out)) < set(expected(alerts, rows))  # readers see whole files only
    assert not (out / "_SUCCESS").exists()
    match_files(spark, events, index, out=out)
    assert found(out) == expected(alerts, rows)
    assert before.items() <= parts(out).items()
    assert sorted(path.name for path in out.iterdir() if path.name not in parts(out)) == [
        "_SUCCESS",
        "_plan.json",
    ]


# Elsewhere


def test_an_object_appears_when_it_is_complete(call, alerts, rows, tmp_path, monkeypatch):
    store, reach = fs._MockFileSystem(), places.reach
    monkeypatch.setattr(
        places, "reach", lambda place: (store, place[7:]) if place.startswith("mock://") else reach(place)
    )
    with suppress(KeyError), whole_files.whole_file("mock://store/out", "name") as file:
        file.write(b"half")
        raise KeyError
    assert places.names("mock://store/out") == []
    store.create_dir("store/out")
    call(out="mock://store/out")
    table = pa.concat_tables(
        pq.read_table(f"store/out/{name}", filesystem=store)
        for name in places.names("mock://store/out")
        if name.startswith("part-")
    )
    pairs = sorted(zip(table["id"].to_pylist(), table["subscription"].to_pylist(), strict=True))
    assert pairs == expected(alerts, rows)
