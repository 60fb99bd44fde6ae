"""Of several writers of a version, one makes it, on any file system."""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from pyspark.sql import SparkSession

from object_store import served
from rtfilter import Schema, SnapshotError
from rtfilter.spark import ShardedIndex, build_sharded, match_frame, places, shards, versions
from spark_cases import pairs

WRITERS = 3


@pytest.fixture(scope="module", params=["local", "s3"])
def place(request, tmp_path_factory):
    """A function that makes the place of a new folder."""
    if request.param == "local":
        home = tmp_path_factory.mktemp("versions")
        yield lambda name: str(home / name)
    else:
        with served() as uri:
            yield uri


def test_a_version_is_made_once(place):
    folder = place("once")
    for number in (1, 2, 4):
        versions.publish(folder, number, b"%d" % number)
    for number in (1, 3, 4):
        with pytest.raises(versions.VersionTakenError):
            versions.publish(folder, number, b"other")
    places.remove(versions.file_of(folder, 2))
    with pytest.raises(versions.VersionTakenError):
        versions.publish(folder, 2, b"other")
    assert versions.numbers(folder) == [1, 4]
    assert places.read_bytes(versions.file_of(folder, 4)) == b"4"
    left = {name for name in places.names(folder) if name != ".lock"}
    assert left == {"00000001.json", "00000004.json"}


def test_programs_that_write_at_once_lose_nothing(place):
    folder, count = place("at-once"), 5
    with ProcessPoolExecutor(WRITERS, get_context("spawn")) as pool:
        found = pool.map(write, [folder] * WRITERS, "abc", [count] * WRITERS)
        made = {number: text for one in found for number, text in one.items()}
    assert sorted(made) == list(range(1, WRITERS * count + 1)) == versions.numbers(folder)
    assert made == {number: places.read_bytes(versions.file_of(folder, number)).decode() for number in made}


def write(folder, name, count):
    """Add versions; return their content by number."""
    made = {}
    while len(made) < count:
        number = max(versions.numbers(folder), default=0) + 1
        try:
            versions.publish(folder, number, f"{name} {len(made)}".encode())
        except versions.VersionTakenError:
            continue
        made[number] = f"{name} {len(made)}"
    return made


@pytest.mark.long
def test_programs_that_append_at_once_lose_nothing(spark, place):
    """Each repeats what was refused."""
    index, count = place("shared"), 3
    build_sharded(spark.createDataFrame([], "id int, where string"), index, Schema({"x": float}))
    with ProcessPoolExecutor(WRITERS, get_context("spawn")) as pool:
        list(pool.map(append, [index] * WRITERS, range(WRITERS), [count] * WRITERS))
    newest = ShardedIndex.open(index)
    assert (newest.version, len(newest)) == (1 + WRITERS * count, WRITERS * count)
    events = spark.createDataFrame([(k, float(k)) for k in range(WRITERS * count)], "id int, x double")
    assert pairs(match_frame(events, newest)) == [(k, k) for k in range(WRITERS * count)]
    newest.expire()
    for folder in ("shards", "leaves"):
        written = {name for name in newest._names() if name.startswith(folder)}
        assert {f"{folder}/{name}" for name in places.names(places.under(index, folder))} == written


def append(place, writer, count):
    """Append subscriptions one by one, in a session of this process."""
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False)
    spark = session.config("spark.driver.host", "localhost").getOrCreate()
    for id in range(writer * count, writer * count + count):
        while True:
            try:
                index = ShardedIndex.open(place)
                index.append(spark.createDataFrame([(id, f"x = {id}")], "id int, where string")).expire()
                break
            except versions.VersionTakenError:
                continue
    spark.stop()


def test_programs_that_build_at_once_do_not_disturb_each_other(spark, tmp_path, monkeypatch):
    given = spark.createDataFrame([(1, "x > 1")], "id int, where string")
    built, schema = shards._built, Schema({"x": float})

    def late(*arguments):
        monkeypatch.setattr(shards, "_built", built)
        with pytest.raises(SnapshotError, match="is not empty"):
            build_sharded(given, tmp_path / "index", schema)
        return built(*arguments)

    monkeypatch.setattr(shards, "_built", late)
    index = build_sharded(given, tmp_path / "index", schema)
    assert len(index.route().leases[0].open()) == 1
    assert ShardedIndex.open(tmp_path / "index") == index


# Claims, on file systems without links


@pytest.fixture
def far(tmp_path, monkeypatch):
    """A file system of Arrow that the operating system does not reach; the folder where it lies."""
    from pyarrow import fs

    system, reach = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), places.reach
    monkeypatch.setattr(
        places,
        "reach",
        lambda place: (system, place[6:]) if place.startswith("far://") else reach(place),
    )
    (tmp_path / "versions").mkdir()
    return tmp_path / "versions"


def test_of_two_that_claim_a_version_the_one_of_the_lesser_name_waits(far, monkeypatch):
    """Until the other one has withdrawn."""
    other = far / "00000001.json.~"
    other.write_bytes(b"other")
    looks = []

    def sleep(seconds):
        looks.append(versions.numbers("far://versions"))
        if len(looks) == 3:
            other.unlink()

    monkeypatch.setattr(versions, "sleep", sleep)
    versions.publish("far://versions", 1, b"own")
    assert looks == [[]] * 3
    assert os.listdir(far) == ["00000001.json"]


def test_the_one_of_the_greater_name_withdraws(far, monkeypatch):
    other = far / "00000001.json.!"
    other.write_bytes(b"other")

    def sleep(seconds):
        assert os.listdir(far) == [other.name]
        other.rename(far / "00000001.json")

    monkeypatch.setattr(versions, "sleep", sleep)
    with pytest.raises(versions.VersionTakenError):
        versions.publish("far://versions", 1, b"own")
    assert os.listdir(far) == ["00000001.json"]


def test_a_claim_that_is_moved_during_a_listing_counts(far, monkeypatch):
    real = versions._numbers

    def numbers(names):
        (far / "00000001.json").write_bytes(b"other")
        return real(names)

    monkeypatch.setattr(versions, "_numbers", numbers)
    with pytest.raises(versions.VersionTakenError):
        versions.publish("far://versions", 1, b"own")
    assert (far / "00000001.json").read_bytes() == b"other"


def test_the_claim_of_a_killed_writer_counts_for_a_while(far, monkeypatch):
    claim = far / "00000001.json.killed"
    claim.write_bytes(b"half")
    monkeypatch.setattr(versions, "PATIENCE", 0.2)
    with pytest.raises(OSError, match=r"another program has begun to write version 1 .* in 10 minutes"):
        versions.publish("far://versions", 1, b"own")
    assert os.listdir(far) == [claim.name]
    old = claim.stat().st_mtime - versions.STALE - 1
    os.utime(claim, (old, old))
    versions.publish("far://versions", 1, b"own")
    assert (far / "00000001.json").read_bytes() == b"own"


def test_the_lock_of_a_killed_writer_is_free(tmp_path):
    import fcntl

    folder = tmp_path / "versions"
    folder.mkdir()
    writer = threading.Thread(target=versions.publish, args=(str(folder), 1, b"1"))
    with open(folder / ".lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer.start()
        writer.join(0.05)
        assert versions.numbers(str(folder)) == []
    writer.join()  # closed, as by the end of a process
    assert versions.numbers(str(folder)) == [1]
